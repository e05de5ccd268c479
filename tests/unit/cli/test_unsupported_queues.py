"""A queue of a form that cqrepl does not read is called that by each command: code 2, no damage."""

from pathlib import Path

import pytest

from tests.support.goldens import OLD, manifest, unpack
from tests.support.invoke import Invoke, invoke

__all__ = ["invoke"]

COMMANDS = ("info", "verify", "repair", "gc", "tail")
FIELD_FORMAT = b"\xcadataFormat\xa1\x01"


def altered(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after, 1))


def another_format(queue: Path) -> None:
    for store in queue.glob("*.cq4"):
        altered(store, FIELD_FORMAT, FIELD_FORMAT[:-1] + b"\x02")


def version_4(queue: Path) -> None:
    """Each store file says itself when it rolls, as in version 4."""
    for store in queue.glob("*.cq4"):
        altered(store, FIELD_FORMAT, b"\xc4roll" + 6 * b"\x8f" + b"\xa1\x01")


def without_field_names(queue: Path) -> None:
    for store in queue.glob("*.cq4"):
        for name in (b"writePosition", b"indexing", b"index2Index", b"lastIndex"):
            altered(store, name, bytes(len(name)))


def another_wire_type(queue: Path) -> None:
    altered(queue / "metadata.cq4t", b"BINARY_LIGHT", b"DELTA_BINARY")


def foreign_file(queue: Path) -> None:
    """Makes a file as a file system of another kind leaves one beside each file that it copies."""
    (queue / "._20240305F.cq4").write_bytes(b"\0\5\x16\7" + bytes(200))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (another_format, "found 2"),
        (version_4, "found version 4"),
        (without_field_names, "FIELDLESS_BINARY is not supported"),
        (another_wire_type, "DELTA_BINARY: it is not supported"),
        (foreign_file, "found ._20240305F.cq4: move it away"),
    ],
)
def test_each_command_says_that_it_is_not_supported(
    invoke: Invoke, tmp_path: Path, make: object, reason: str, command: str
) -> None:
    queue = unpack("fast_daily_basic", tmp_path)
    assert callable(make)
    make(queue)
    result = invoke(command, queue)
    assert result.exit_code == 2, result.output
    assert reason in result.output
    assert "damage" not in result.output


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize("command", ["info", "verify", "repair", "tail"])
def test_queues_of_an_old_version_are_read_by_each_command(
    invoke: Invoke, tmp_path: Path, name: str, command: str
) -> None:
    result = invoke(command, unpack(name, tmp_path))
    assert result.exit_code == 0, result.output
    if command != "repair":
        assert f"{manifest(name).indexes[-1]:#x}" in result.output
