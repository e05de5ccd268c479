"""Closing any descriptor of a file drops all record locks that this process has on the file."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.acceptance import accept_unproved
from cqrepl.queue.files.listing import BOOT_KEY
from cqrepl.queue.files.mapping import RECORD_LOCK_GUARD
from cqrepl.queue.files.storefile import StoreFile
from cqrepl.queue.files.syncedmark import store_synced
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.inspection.repairplan import _copy
from cqrepl.queue.quarantine import quarantine
from cqrepl.queue.write.heldexcerpts import HeldExcerpts
from tests.support.samples import NOON_MS, fill, layout, noon_index, noon_path, read
from tests.support.tables import set_word
from tests.support.tears import tear
from wire.header import HEADER_BYTES


class Closes:
    """Notes each close of a file of a queue: with the guard in `seen`, without it in `bare`."""

    def __init__(self, queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen, self.bare = list[str](), list[str]()
        self.is_watching = True
        self._queue = queue
        self._close = os.close
        monkeypatch.setattr(os, "close", self._closed)
        self._open: Callable[..., IO[Any]] = io.open
        monkeypatch.setattr(io, "open", self._opened)  # as `Path.open` does

    def _closed(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(f"{self._queue}/") and ".cq4" in path:
            mutex = RECORD_LOCK_GUARD._mutex
            is_held = mutex._is_owned()  # type: ignore[attr-defined]  # no public name tells
            (self.seen if is_held else self.bare).append(path)
        self._close(descriptor)

    def _opened(self, file: str | Path, *words: Any, **named: Any) -> IO[Any]:
        is_store = Path(file).parent == self._queue and Path(file).suffix == ".cq4"
        if is_store and self.is_watching:
            self.bare.append(str(file))  # such a file closes itself
        return self._open(file, *words, **named)


def test_the_guard_is_held_where_a_queue_is_made_mended_or_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes = Closes(tmp_path / "q", monkeypatch)
    path, payloads = tmp_path / "q", [bytes([1 + n]) * 3000 for n in range(9)]
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append(payloads, NOON_MS)
    closes.is_watching = False
    tear(path, noon_index(sequence=5), 1, None)
    closes.is_watching = True
    with Queue.open(path) as queue:
        comparing = HeldExcerpts(queue.cycles, noon_index(sequence=0), noon_index(sequence=0))
        comparing.compare(ExcerptBatch.of(noon_index(sequence=0), payloads))
        comparing.close()
    assert [payload for _, payload in read(path)] == payloads
    _copy({noon_path(path)}, tmp_path / "backup")
    assert closes.seen
    assert not closes.bare


def torn_end(path: Path) -> None:
    """A power cut has taken a header of the last file: an appender puts the end aside."""
    store = StoreFile.open(noon_path(path), Cycle(0), writable=True)
    assert store is not None
    at = store.find(0).offsets[9] - HEADER_BYTES
    store.mapping.data[at : at + HEADER_BYTES] = bytes(HEADER_BYTES)
    store.close()
    set_word(path, BOOT_KEY, 1)


def put_aside(path: Path) -> None:
    with Queue.open(path) as queue:
        queue.append(b"new", now_ms=NOON_MS)
    assert list(path.glob("*.discard"))


def behind_its_mark(path: Path) -> None:
    store_synced(path, noon_index(sequence=5), boot=bytes(16))


Step = Callable[[Path], object]


@pytest.mark.parametrize(
    ("counts", "prepare", "act"),
    [
        ({0: 20}, torn_end, put_aside),
        ({0: 20, 1: 3}, behind_its_mark, lambda path: quarantine(path, noon_index(sequence=15))),
        ({0: 20, 1: 3}, behind_its_mark, accept_unproved),
    ],
    ids=["end put aside", "quarantine", "acceptance"],
)
def test_the_guard_is_held_where_files_are_cut_or_synced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    counts: dict[int, int],
    prepare: Step,
    act: Step,
) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", counts)
    prepare(path)
    closes = Closes(path, monkeypatch)
    act(path)
    assert str(noon_path(path)) in closes.seen
    assert not closes.bare
