"""`cqrepl identity show` and `adopt`: what they print, change and refuse."""

import json
import shlex
from pathlib import Path

import pytest

from cqrepl.queue.files.keptidentity import KeptIdentity
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.identity import Identity, parse_identity
from tests.support.invoke import Invoke, invoke
from tests.support.replicas import acked, eventually, joined
from tests.support.samples import fill

__all__ = ["invoke"]

ONE = parse_identity("1" * 32)
OTHER = parse_identity("2" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    return tmp_path / "q"


def kept(path: Path) -> KeptIdentity:
    return KeptIdentity(path / FILE_NAME)


def test_none(path: Path, invoke: Invoke) -> None:
    assert invoke("identity", "show", path).stdout == "none\n"
    shown = json.loads(invoke("identity", "show", path, "--json").stdout)
    assert shown == {"v": 1, "path": str(path), "identity": None}


@pytest.mark.parametrize("before", [None, OTHER])
def test_it_says_what_it_would_do_and_does_it(
    path: Path, invoke: Invoke, before: Identity | None
) -> None:
    if before is not None:
        kept(path).replace(before)
    content = (path / FILE_NAME).read_bytes()
    said = invoke("identity", "adopt", path, ONE)
    assert (said.exit_code, (path / FILE_NAME).read_bytes()) == (0, content)
    assert f"{before or 'none'}" in said.stdout
    assert ONE in said.stdout
    assert "nothing was changed" in said.stdout
    result = invoke("identity", "adopt", path, ONE.upper(), "--apply", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "v": 1, "path": str(path), "identity": before, "adopted": ONE, "applied": True,
    }  # fmt: skip
    assert kept(path).load() == ONE
    assert invoke("identity", "show", path).stdout == ONE + "\n"
    assert json.loads(invoke("identity", "show", path, "--json").stdout)["identity"] == ONE
    assert "already" in invoke("identity", "adopt", path, ONE, "--apply").stdout


def test_that_of_another_directory(path: Path, invoke: Invoke, tmp_path: Path) -> None:
    fill(tmp_path / "copy", "FAST_DAILY", {0: 5})
    kept(path).replace(ONE)
    result = invoke("identity", "adopt", tmp_path / "copy", "--from", path, "--apply")
    assert result.exit_code == 0
    assert kept(tmp_path / "copy").load() == ONE


def test_another_directory_without_one(path: Path, invoke: Invoke, tmp_path: Path) -> None:
    fill(tmp_path / "copy", "FAST_DAILY", {0: 5})
    kept(path).replace(ONE)
    result = invoke("identity", "adopt", path, "--from", tmp_path / "copy", "--apply")
    assert result.exit_code == 2
    assert "this one has none" in result.stderr
    assert kept(path).load() == ONE


@pytest.mark.parametrize(
    "words",
    [(), (ONE, "--from", "."), ("123",), ("0" * 32,), ("x" * 32,)],
    ids=["nothing", "both", "short", "zeros", "no digits"],
)
def test_what_is_wrong(path: Path, invoke: Invoke, words: tuple[str, ...]) -> None:
    result = invoke("identity", "adopt", path, *words)
    assert result.exit_code == 2
    assert result.stderr


@pytest.mark.parametrize("words", [("show",), ("adopt", ONE, "--apply")], ids=["show", "adopt"])
def test_no_queue(tmp_path: Path, invoke: Invoke, words: tuple[str, ...]) -> None:
    command, *more = words
    assert invoke("identity", command, tmp_path / "nothing", *more).exit_code == 2
    assert not list(tmp_path.iterdir())


async def test_the_command_that_a_stopped_queue_names_mends_it(
    path: Path, invoke: Invoke, tmp_path: Path
) -> None:
    """A copy that came by other means has got an identity of its own."""
    copy = tmp_path / "copy"
    (*_, (last, _)) = fill(copy, "FAST_DAILY", {0: 5})
    kept(path).replace(ONE)
    kept(copy).replace(OTHER)
    async with joined(path, copy) as (source, sink):
        await eventually(lambda: bool(sink.stops and source.stops))
        (stop,) = sink.stops
    command = shlex.split(stop.message[stop.message.index("cqrepl identity") :])
    assert invoke(*command[1:]).exit_code == 0
    async with joined(path, copy) as (source, sink):
        await acked(source, last)
        assert not sink.stops
