"""The reader of the laboratory's judge: held against what Java wrote, and against our own files."""

import ast
import hashlib
import json
from contextlib import closing
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.chroniclemarks import BEGIN_KEY
from cqrepl.queue.files.epochfile import store_epochs
from cqrepl.queue.files.syncedmark import store_synced, this_boot
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.epochs import EPOCHS_MAX, Epoch, Epochs, History, merged
from cqrepl.queue.format.index import Index
from cqrepl.testing import storereader
from tests.support.goldens import GOLDEN, READABLE, manifest, unpack


@pytest.mark.parametrize("name", READABLE)
def test_it_reads_what_java_wrote(name: str, tmp_path: Path) -> None:
    path, expected = unpack(name, tmp_path), manifest(name)
    found = [
        (index, hashlib.sha256(payload).hexdigest())
        for index, payload in storereader.excerpts(path)
    ]
    assert found == expected.digests[: expected.java_reads]
    assert storereader.last_index(path) == max(expected.indexes, default=-1)


def test_it_reads_named_tailers_from_the_table_store(tmp_path: Path) -> None:
    tailers = json.loads((GOLDEN / "named_tailers.json").read_text())["namedTailers"]
    expected = {f"index.{name}": int(str(index), 16) for name, index in tailers.items()}
    assert expected
    assert expected.items() <= storereader.table_values(unpack("named_tailers", tmp_path)).items()


@pytest.mark.parametrize("roll_cycle", ["FAST_DAILY", "TEST_SECONDLY", "TEST4_DAILY", "HUGE_DAILY"])
def test_it_reads_what_our_appender_writes(roll_cycle: str, tmp_path: Path) -> None:
    payloads = [b"%d" % nth * (nth + 1) for nth in range(100)]
    with Queue.open_for_append(tmp_path / "q", create=roll_cycle) as queue:
        written = [(queue.append(payload), payload) for payload in payloads]
    assert list(storereader.excerpts(tmp_path / "q")) == written
    assert storereader.last_index(tmp_path / "q") == written[-1][0]


def test_a_quarantine_begins_where_its_table_store_says(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create="FAST_DAILY") as queue:
        indexes = [queue.append(b"%d" % nth) for nth in range(5)]
    with closing(TableStore(tmp_path / "q" / FILE_NAME, writable=True)) as table:
        table.value(BEGIN_KEY, indexes[3])
    assert [index for index, _ in storereader.excerpts(tmp_path / "q")] == indexes[3:]


def test_there_is_nothing_in_an_empty_directory(tmp_path: Path) -> None:
    assert not list(storereader.excerpts(tmp_path))
    assert storereader.last_index(tmp_path) == -1
    assert storereader.promises(tmp_path) == storereader.Promises()
    assert storereader.on_disk(tmp_path) is None


def test_it_reads_promises(tmp_path: Path) -> None:
    history = (Epoch(3, 2, Index(7)), Epoch(5, 1, Index(9)))
    store_epochs(tmp_path, Epochs(promised=6, promised_to=4, history=history))
    assert storereader.promises(tmp_path) == storereader.Promises(6, 4, begun(history))


def begun(history: History) -> tuple[storereader.Begun, ...]:
    return tuple(storereader.Begun(each.number, each.leader, each.start) for each in history)


def test_it_reads_promises_that_have_merged(tmp_path: Path) -> None:
    """An older file of them, of which another version has not known, says nothing."""
    every = tuple(Epoch(number, 1, Index(number)) for number in range(1, 90))
    for count in (70, 89):
        history = merged(every[:count], EPOCHS_MAX)
        store_epochs(tmp_path, Epochs(promised=count, promised_to=1, history=history))
        assert storereader.promises(tmp_path).history == begun((every[0], *history[1:]))
    later = every[-EPOCHS_MAX:-1]
    store_epochs(tmp_path, Epochs(promised=89, promised_to=1, history=later))
    assert storereader.promises(tmp_path).history == begun(later)
    (tmp_path / "merged.cqmark").write_bytes(b"x" * 64)
    store_epochs(tmp_path, Epochs(promised=89, promised_to=1, history=every[-EPOCHS_MAX:]))
    with pytest.raises(storereader.UnreadableError, match=r"merged\.cqmark is not as it was"):
        storereader.promises(tmp_path)


def test_half_a_file_of_promises_is_told(tmp_path: Path) -> None:
    store_epochs(tmp_path, Epochs(promised=6, promised_to=4))
    file = tmp_path / "epoch.cqmark"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(storereader.UnreadableError, match="not as it was written"):
        storereader.promises(tmp_path)


def test_it_reads_the_later_mark_of_what_is_on_the_disk(tmp_path: Path) -> None:
    for end in (5, 9):
        store_synced(tmp_path, end, range(2, 4))
    assert storereader.on_disk(tmp_path) == storereader.OnDisk(9, this_boot(), range(2, 4))


def test_a_document_beyond_the_end_of_its_file_is_told(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append(b"x")
    [file] = (tmp_path / "q").glob("*.cq4")
    with file.open("r+b") as opened:
        opened.write(b"\xff\xff\xff\x3f")
    with pytest.raises(storereader.UnreadableError, match="a document of"):
        list(storereader.excerpts(tmp_path / "q"))


def test_it_shares_no_code_with_what_it_judges() -> None:
    tree = ast.parse(Path(storereader.__file__).read_text())
    modules = {
        node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not [each for each in modules if each.startswith(("cqrepl", "wire"))]
