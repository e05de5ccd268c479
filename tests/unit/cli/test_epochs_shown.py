"""`cqrepl info` and `cqrepl verify` show the epochs of a queue. They name a file of epochs that is
no longer what was written."""

import json
from pathlib import Path

import pytest

from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME, MERGED_FILE_NAME, store_epochs
from cqrepl.queue.format.epochs import EPOCHS_MAX, Epoch, Epochs, merged
from tests.support.invoke import Invoke
from tests.support.samples import fill, noon_index

FIRST, SECOND = Epoch(1, 2, noon_index()), Epoch(3, 1, noon_index(sequence=4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 6})
    return tmp_path / "q"


def test_who_has_led_from_where_on(invoke: Invoke, path: Path) -> None:
    store_epochs(path, Epochs(promised=3, promised_to=1, history=(FIRST, SECOND)))
    said = invoke("info", path)
    assert said.exit_code == 0
    lines = [line.split() for line in said.stdout.splitlines() if line.startswith("epoch  ")]
    assert lines == [
        ["epoch", "1", "host", "2", "from", f"{noon_index():#x}"],
        ["epoch", "3", "host", "1", "from", f"{noon_index(sequence=4):#x}"],
    ]
    shown = json.loads(invoke("info", path, "--json").stdout)
    assert shown["promised"] == {"epoch": 3, "leader": 1}
    assert [each["epoch"] for each in shown["epochs"]] == [1, 3]
    assert shown["epochs"][1] == {"epoch": 3, "leader": 1, "start": f"{noon_index(sequence=4):#x}"}


def test_a_promise_of_which_nothing_is_here(invoke: Invoke, path: Path) -> None:
    store_epochs(path, Epochs(promised=4, promised_to=3, history=(FIRST,)))
    assert "epoch  4  promised to host 3, nothing of it is here yet" in invoke("info", path).stdout


def test_a_queue_without_promotions_shows_none(invoke: Invoke, path: Path) -> None:
    assert not any(line.startswith("epoch ") for line in invoke("info", path).stdout.splitlines())
    shown = json.loads(invoke("info", path, "--json").stdout)
    assert (shown["promised"], shown["epochs"]) == (None, [])


def store_many(path: Path) -> None:
    """70 epochs, of which the first seven have merged."""
    every = tuple(Epoch(number, 2, noon_index()) for number in range(1, 71))
    store_epochs(path, Epochs(promised=70, promised_to=2, history=merged(every, EPOCHS_MAX)))


def test_merged_epochs_are_counted(invoke: Invoke, path: Path) -> None:
    store_many(path)
    lines = [line for line in invoke("info", path).stdout.splitlines() if line.startswith("epoch ")]
    assert len(lines) == EPOCHS_MAX
    first, second, *_ = (" ".join(line.split()) for line in lines)
    assert first == f"epoch 1 host 2 from {noon_index():#x} and up to 6 later epochs, merged"
    assert second == f"epoch 8 host 2 from {noon_index():#x}"
    shown = json.loads(invoke("info", path, "--json").stdout)["epochs"]
    assert [each.get("merged_to") for each in shown[:2]] == [7, None]


def torn(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zeroed(data: bytes) -> bytes:
    return data[:16] + bytes(len(data) - 16)


def flipped(data: bytes) -> bytes:
    return data[:20] + bytes([data[20] ^ 1]) + data[21:]


def longer(data: bytes) -> bytes:
    return data + b"\0"


@pytest.mark.parametrize("damaged", [torn, zeroed, flipped, longer, lambda data: b""])
@pytest.mark.parametrize("command", ["info", "verify", "verify --quick"])
@pytest.mark.parametrize("name", [EPOCH_FILE_NAME, MERGED_FILE_NAME])
def test_a_damaged_file_is_named(
    invoke: Invoke, path: Path, damaged: object, command: str, name: str
) -> None:
    assert callable(damaged)
    store_many(path)
    file = path / name
    file.write_bytes(damaged(file.read_bytes()))
    word, *options = command.split()
    said = invoke(word, path, *options)
    assert said.exit_code == 4
    assert f"{file}" in said.output
    assert (
        "expected the epochs that were promised, found a file that is not as it was" in said.output
    )
    assert "no host streams or takes it in before that is mended" in said.output
