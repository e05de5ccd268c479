"""Lost closed store files and unproved excerpts, which a person declares to count as they are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.acceptance import accept_missing, accept_unproved, lost_cycles, unproved
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.chainfile import CHAIN_SUFFIX
from cqrepl.queue.files.closedcycles import ClosedCycles
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.format.errors import DurabilityLost
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk.queueaudit import QueueAudit
from cqrepl.surroundings import within
from tests.support.disks import FailingDisk
from tests.support.samples import (
    NOON_MS,
    fill,
    flip_byte,
    layout,
    noon_index,
    noon_path,
    read,
    wipe_hints,
)
from tests.support.tears import tear

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 7, 3: 2}
ALL = Index(noon_index(ROLL, ahead=3))


def look(path: Path) -> None:
    """Notes, and reads what was written to, as a source or sink does that has just been started."""
    with Queue.open(path) as queue:
        chains = Chains(queue.cycles)
        ClosedFiles(queue.cycles, chains).look(ALL)
        for cycle in queue.cycles.listing()[:-1]:
            chains.at(Index((cycle << queue.cycles.shift) + 1))
        audit = QueueAudit(chains, None)
        audit.reread(queue.cycles)
        audit.save(ALL)


def noted(path: Path) -> list[int]:
    """Numbers of excerpts of the closed cycles."""
    return [record.excerpts for _, record in sorted(ClosedCycles(path).load().items())]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a queue whose closed cycles have been noted."""
    fill(tmp_path / "q", ROLL, COUNTS)
    look(tmp_path / "q")
    return tmp_path / "q"


def gone(path: Path, _: Path) -> None:
    noon_path(path, ROLL, ahead=1).unlink()


def altered(path: Path, _: Path) -> None:
    with Queue.open(path) as queue:
        payload = bytes(next(iter(queue.tailer(noon_index(ROLL, ahead=1, sequence=150)))))
    flip_byte(noon_path(path, ROLL, ahead=1), payload, 0)


def older(path: Path, tmp_path: Path) -> None:
    fill(tmp_path / "older", ROLL, {1: 4, 2: 1})
    noon_path(tmp_path / "older", ROLL, ahead=1).rename(noon_path(path, ROLL, ahead=1))


@pytest.mark.parametrize(
    ("lose", "told", "found"),
    [(gone, "--accept-missing", None), (altered, "altered", 300), (older, "found 4", 4)],
)
def test_what_is_accepted_counts_as_it_is_and_nothing_before(
    path: Path, tmp_path: Path, lose: Callable[[Path, Path], None], told: str, found: int | None
) -> None:
    lose(path, tmp_path)
    with pytest.raises(QueueDamaged, match=told):
        look(path)
    assert len(lost_cycles(path)) == 1
    assert noted(path) == [5, 300, 7]
    (lost,) = accept_missing(path)
    second = noon_path(path, ROLL, ahead=1)
    assert (lost.path, lost.noted, lost.found) == (second, 300, found)
    look(path)
    assert noted(path) == ([5, 7] if found is None else [5, found, 7])
    assert len(read(path)) == sum(COUNTS.values()) - 300 + (found or 0)
    assert lost_cycles(path) == []
    assert second.with_suffix(CHAIN_SUFFIX).exists() is (found is not None)
    assert not inspect_queue(path).is_damaged


@pytest.mark.parametrize("how", ["cut", "zeros"])
def test_a_file_without_its_header(path: Path, how: str) -> None:
    file = noon_path(path, ROLL, ahead=1)
    size = file.stat().st_size
    file.write_bytes(b"")
    if how == "zeros":
        os.truncate(file, size)
    (lost,) = accept_missing(path)
    assert lost.found is None
    assert noted(path) == [5, 7]
    assert not inspect_queue(path).is_damaged


def test_what_holds_what_it_held_stays_noted(path: Path) -> None:
    before = ClosedCycles(path).path.stat().st_ino
    assert accept_missing(path) == []
    assert ClosedCycles(path).path.stat().st_ino == before


def cut_power(path: Path, monkeypatch: pytest.MonkeyPatch, proved: int) -> None:
    """The machine was started again after so many excerpts were on the disk."""
    with monkeypatch.context() as before:
        before.setattr(syncedmark, "this_boot", lambda: bytes(16))
        store_synced(path, noon_index(sequence=proved))


@pytest.fixture
def torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue with two torn excerpts behind its mark."""
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.appender().append([b"%04d" % n * 500 for n in range(40)], NOON_MS)
    cut_power(tmp_path / "q", monkeypatch, 20)
    for sequence in (25, 38):
        tear(tmp_path / "q", noon_index(sequence=sequence), 1, None)
    return tmp_path / "q"


def test_what_is_unproved(torn: Path) -> None:
    mark = load_synced(torn)
    found = unproved(torn)
    assert (found.start, found.end) == (noon_index(sequence=20), noon_index(sequence=40))
    assert found.excerpts == 20
    assert found.torn == (noon_index(sequence=25), noon_index(sequence=38))
    assert load_synced(torn) == mark


def test_it_counts_as_proved(torn: Path) -> None:
    before, found = read(torn), unproved(torn)
    assert accept_unproved(torn) == found
    mark = load_synced(torn)
    assert mark is not None
    assert mark.is_of_this_boot
    assert (mark.end, mark.doubtful) == (noon_index(sequence=40), range(0))
    assert inspect_queue(torn).unproved_from is None
    assert unproved(torn).excerpts == 0
    assert read(torn) == before
    assert accept_unproved(torn).excerpts == 0


def test_what_did_not_reach_the_disk_does_not_count_when_it_is_tried_again(torn: Path) -> None:
    """The system tells of that once."""
    before = unproved(torn)
    with pytest.raises(OSError, match="Input/output"), within(FailingDisk(r"\.cq4$")):
        accept_unproved(torn)
    with pytest.raises(DurabilityLost, match="started again"):
        accept_unproved(torn)
    assert unproved(torn) == before


def test_nor_does_what_a_repair_has_met(path: Path) -> None:
    wipe_hints(path)
    with pytest.raises(OSError, match="Input/output"), within(FailingDisk(r"\.cq4$")):
        apply(plan_repair(path))
    mark = load_synced(path)
    assert mark is not None
    assert mark.has_failed


def test_a_queue_without_a_mark(path: Path) -> None:
    assert unproved(path).excerpts == 0


def test_a_copy_whose_mark_was_lost(torn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy without one is unproved as a whole."""
    (torn / syncedmark.SYNCED_FILE_NAME).unlink()
    with Queue.open_for_append(torn) as queue:
        queue.note_follower(is_follower=True)
    monkeypatch.setattr(Queue, "is_of_this_boot", False)
    assert unproved(torn).excerpts == 40
    assert accept_unproved(torn).excerpts == 40
    assert unproved(torn).excerpts == 0
