"""Closing any descriptor of a file drops all record locks that this process has on the file."""

import os
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.mapping import RECORD_LOCK_GUARD
from cqrepl.queue.inspection.repairplan import _copy
from cqrepl.queue.write.heldexcerpts import HeldExcerpts
from tests.support.samples import NOON_MS, layout, noon_index, noon_path, read
from tests.support.tears import tear


def test_no_file_of_a_queue_is_closed_without_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one is made, mended, or copied before a repair."""
    close, seen, bare = os.close, list[str](), list[str]()

    def closed(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(f"{tmp_path}/q/") and ".cq4" in path:
            mutex = RECORD_LOCK_GUARD._mutex
            is_held = mutex._is_owned()  # type: ignore[attr-defined]  # no public name tells
            (seen if is_held else bare).append(path)
        close(descriptor)

    monkeypatch.setattr(os, "close", closed)
    path, payloads = tmp_path / "q", [bytes([1 + n]) * 3000 for n in range(9)]
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append(payloads, NOON_MS)
    tear(path, noon_index(sequence=5), 1, None)
    with Queue.open(path) as queue:
        comparing = HeldExcerpts(queue.cycles, noon_index(sequence=0), noon_index(sequence=0))
        comparing.compare(ExcerptBatch.of(noon_index(sequence=0), payloads))
        comparing.close()
    assert [payload for _, payload in read(path)] == payloads
    _copy({noon_path(path)}, tmp_path / "backup")
    assert seen
    assert not bare
