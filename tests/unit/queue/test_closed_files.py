"""Closed store files: what they held once, they hold now, or it is told."""

import os
import shutil
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, IndexGap, Queue, QueueDamaged
from cqrepl.queue.acceptance import accept_missing, lost_cycles
from cqrepl.queue.files.closedcycles import (
    CLOSED_FILE_NAME,
    FETCH,
    RECORD_BYTES,
    ClosedCycle,
    ClosedCycles,
)
from cqrepl.queue.format.index import INDEX_MAX, Cycle, Index
from cqrepl.queue.inspection import closedfiles, repairplan
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.inspection.differences import Flaw
from cqrepl.queue.inspection.findings import FindingKind
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.inspection.repairplan import plan_repair
from cqrepl.queue.inspection.verification import verify
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.count import nth_last_index
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.replicator.disk.queueaudit import QueueAudit
from tests.support.samples import fill, layout, noon_index, noon_path, read, with_number_of
from tests.support.tables import set_word

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 7, 3: 2}
ALL = Index(noon_index(ROLL, ahead=3))  # all before the last cycle is on the disk


def look(path: Path, synced: Index = ALL) -> None:
    """Notes closed cycles, and checks them, as a process does that has just been started."""
    with Queue.open(path) as queue:
        ClosedFiles(queue.cycles, Chains(queue.cycles)).look(synced)


def noted(path: Path) -> dict[int, int]:
    """Numbers of excerpts, by how far ahead of noon a cycle is."""
    first = layout(ROLL).roll_cycle.cycle_at(1_709_640_000_000, 0)
    records = ClosedCycles(path).load()
    return {cycle - first: record.excerpts for cycle, record in sorted(records.items())}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a queue whose closed cycles have been noted."""
    fill(tmp_path / "q", ROLL, COUNTS)
    look(tmp_path / "q")
    return tmp_path / "q"


def older(path: Path, tmp_path: Path, count: int) -> None:
    """The second store file becomes one that was never closed, with fewer excerpts."""
    fill(tmp_path / "older", ROLL, {1: count})
    noon_path(tmp_path / "older", ROLL, ahead=1).rename(noon_path(path, ROLL, ahead=1))


def test_an_older_file_may_have_the_number_of_the_one_before(path: Path, tmp_path: Path) -> None:
    with Queue.open(path) as queue:
        closed = ClosedFiles(queue.cycles, Chains(queue.cycles))
        closed.look(ALL)
        older(path, tmp_path, 9)
        file = noon_path(path, ROLL, ahead=1)
        data = file.read_bytes()
        shutil.copy2(noon_path(path, ROLL, ahead=2), file)
        with_number_of(file, data)
        with pytest.raises(QueueDamaged, match="expected 300 excerpts"):
            closed.look(ALL)


def test_what_is_noted(path: Path) -> None:
    assert noted(path) == {0: 5, 1: 300, 2: 7}  # not the last one, which may grow
    look(path)
    assert (path / CLOSED_FILE_NAME).stat().st_size == 3 * RECORD_BYTES


def test_what_is_known_is_known_while_it_is_noted(tmp_path: Path) -> None:
    """One thread notes, as a sink's syncer does, and others read, as chains and scrubbing do."""
    closed, count = ClosedCycles(tmp_path), 150
    remembered = 0

    def note() -> None:
        nonlocal remembered
        for nth in range(count):
            closed.remember(ClosedCycle(Cycle(nth), nth + 1, bytes([nth]) * 16))
            remembered = nth + 1
            closed.note_below(Cycle(nth))  # all but the last

    def look() -> None:
        at_least = 0
        while at_least < count:
            at_least = remembered
            found = closed.load()
            assert sorted(found)[:at_least] == list(range(at_least))
            assert all(found[cycle].excerpts == cycle + 1 for cycle in found)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(note), *(pool.submit(look) for _ in range(3))]:
            done.result(timeout=60)


def test_nothing_noted_is_lost_to_one_who_forgets(tmp_path: Path) -> None:
    writers, each_notes = 3, 40

    def note(writer: int) -> None:
        closed = ClosedCycles(tmp_path)
        for nth in range(each_notes):
            closed.remember(ClosedCycle(Cycle(1000 * writer + nth), 1, bytes([7]) * 16))
            closed.note_below(Cycle(1_000_000))

    def forget() -> None:
        for nth in range(each_notes):
            ClosedCycles(tmp_path).forget({Cycle(-1 - nth)})  # none of those that are noted

    with ThreadPoolExecutor(writers + 1) as pool:
        for done in [pool.submit(forget), *(pool.submit(note, n) for n in range(writers))]:
            done.result(timeout=60)
    assert len(ClosedCycles(tmp_path).load()) == writers * each_notes


def test_the_layout_of_a_record(path: Path) -> None:
    record = (path / CLOSED_FILE_NAME).read_bytes()[:RECORD_BYTES]
    with Queue.open(path) as queue:
        (cycle, *_), chains = queue.cycles.listing(), Chains(queue.cycles)
        assert record[24:40] == chains.at(noon_index(ROLL, sequence=5))
    assert record[:8] == b"cqclosed"
    assert int.from_bytes(record[8:16], "little") == cycle
    assert int.from_bytes(record[16:24], "little") == 5
    assert int.from_bytes(record[40:], "little") == zlib.crc32(record[:40])


def test_what_is_not_on_the_disk_is_not_noted(tmp_path: Path) -> None:
    """A power cut may take it, and mends itself otherwise; for this process it counts."""
    path = tmp_path / "q"
    fill(path, ROLL, COUNTS)
    look(path, noon_index(ROLL, ahead=1, sequence=9))
    assert noted(path) == {0: 5}
    with Queue.open(path) as queue:
        files = ClosedFiles(queue.cycles, Chains(queue.cycles))
        files.look(Index(0))
        noon_path(path, ROLL, ahead=1).unlink()
        with pytest.raises(QueueDamaged, match="expected 300 excerpts, the store file is not"):
            files.look(Index(0))
    assert noted(path) == {0: 5}


def test_an_inspection_tells_of_a_file_that_is_missing_between_others(path: Path) -> None:
    lost = noon_path(path, ROLL, ahead=1)
    lost.unlink()
    (finding,) = [one for one in inspect_queue(path).findings if one.path == lost]
    assert finding.index == noon_index(ROLL, ahead=1)
    assert "expected 300 excerpts, the store file is not there" in finding.text


@pytest.mark.parametrize("count", [1, 299])
def test_an_inspection_tells_of_an_older_file(path: Path, tmp_path: Path, count: int) -> None:
    older(path, tmp_path, count)
    texts = [one.text for one in inspect_queue(path).findings]
    assert f"expected 300 excerpts, found {count}" in texts


READERS: dict[str, Callable[[Queue], object]] = {
    "down": lambda queue: list(queue.backward()),
    "down from it": lambda queue: list(queue.backward(noon_index(ROLL, ahead=1, sequence=299))),
    "count": lambda queue: queue.count(),
    "count of it": lambda queue: queue.count(noon_index(ROLL, ahead=1), noon_index(ROLL, ahead=2)),
    "by index": lambda queue: queue.tailer(noon_index(ROLL, ahead=1, sequence=299)),
    "by time": lambda queue: queue.seek_time(299, lambda payload: time_in(queue, payload)),
    "from behind": lambda queue: nth_last_index(queue.cycles, 10),
}


def time_in(queue: Queue, payload: memoryview) -> int | None:
    """A time before that of the first excerpt of the third cycle."""
    third = queue.read_columns(noon_index(ROLL, ahead=2), INDEX_MAX)
    starts = zip(third.offsets, third.offsets[1:], strict=False)
    return 300 if payload in [third.payload[start:end] for start, end in starts] else 0


@pytest.mark.parametrize("ahead", [1, 2])
def test_what_copies_are_compared_by_does_not_pass_a_missing_file(path: Path, ahead: int) -> None:
    """Not even a missing file right below the end is passed: what it lacks is no difference between
    two copies."""
    noon_path(path, ROLL, ahead=ahead).unlink()
    end = noon_index(ROLL, ahead=3)
    with Queue.open(path) as queue:
        shift = queue.cycles.shift
        first, last = (Cycle(index >> shift) for index in (noon_index(ROLL, ahead=ahead), end))
        for start in (Cycle(first - 1), first):
            with pytest.raises(QueueDamaged, match=f"expected {COUNTS[ahead]} excerpts"):
                Chains(queue.cycles).over_cycles(start, last)


# what becomes of the second file, and what is told of it
LOSSES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "gone": (
        lambda path, _: noon_path(path, ROLL, ahead=1).unlink(),
        "the store file is not there",
    ),
    "older": (lambda path, tmp_path: older(path, tmp_path, 2), "found 2"),
    "cut": (lambda path, _: lose_header(path, "cut"), "found a file without a header"),
    "zeros": (lambda path, _: lose_header(path, "zeros"), "found a file without a header"),
}


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("reader", [*READERS, "up", "the look"])
def test_a_lost_file_is_told_to_every_reader(
    path: Path, tmp_path: Path, reader: str, how: str
) -> None:
    """Without the note one without its header would be read as nothing, or waited for."""
    lose, found = LOSSES[how]
    lose(path, tmp_path)
    readers = READERS | {"up": lambda queue: read(queue.path), "the look": lambda _: look(path)}
    with Queue.open(path) as queue, pytest.raises(QueueDamaged) as told:
        readers[reader](queue)
    assert told.value.path == noon_path(path, ROLL, ahead=1)
    assert f"expected 300 excerpts, {found}" in told.value.reason
    assert FETCH in told.value.reason


def lose_header(path: Path, how: str, ahead: int = 1) -> Path:
    """A store file looks as if its creator were busy with it; its path."""
    file = noon_path(path, ROLL, ahead=ahead)
    size = file.stat().st_size
    file.write_bytes(b"")
    if how == "zeros":
        os.truncate(file, size)
    return file


LOST_HEADER = pytest.mark.parametrize("how", ["cut", "zeros"])


@LOST_HEADER
def test_a_running_host_sees_that_a_file_was_overwritten(path: Path, how: str) -> None:
    """The file stays the same to the system."""
    with Queue.open(path) as queue:
        files = ClosedFiles(queue.cycles, Chains(queue.cycles))
        files.look(ALL)
        lose_header(path, how)
        with pytest.raises(QueueDamaged, match="expected 300 excerpts"):
            files.look(ALL)


@LOST_HEADER
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_file_without_its_header_is_damage_and_stays(path: Path, how: str, ahead: int) -> None:
    lost = lose_header(path, how, ahead)
    (finding,) = [one for one in inspect_queue(path).findings if one.path == lost]
    assert finding.kind is FindingKind.DAMAGE
    assert f"expected {COUNTS[ahead]} excerpts" in finding.text
    plan = plan_repair(path)
    assert [each for each in plan.repairs if each.path == lost] == []
    (advice,) = [each for each in plan.advice() if str(lost) in each]
    assert FETCH in advice
    repairplan.apply(plan)
    assert lost.exists()


@LOST_HEADER
def test_verify_says_what_a_file_without_its_header_held(path: Path, how: str) -> None:
    shutil.copytree(path, path.parent / "copy")
    lost = lose_header(path, how)
    found = [one for one in verify([path.parent / "copy", path]) if isinstance(one, Flaw)]
    (told,) = [one.finding for one in found if not one.is_same]
    assert told.path == lost
    assert "expected 300 excerpts, found a file without a header" in told.text


def test_two_copies_that_have_lost_the_same_file_are_not_the_same(path: Path) -> None:
    """Both copies are told to be damaged, though nothing of what both hold differs."""
    copy = path.parent / "copy"
    shutil.copytree(path, copy)
    lost = [noon_path(each, ROLL, ahead=1) for each in (path, copy)]
    for file in lost:
        file.unlink()
    told = [each for each in verify([path, copy]) if not each.is_same]
    assert [each.finding.path for each in told if isinstance(each, Flaw)] == lost
    assert {each.finding.kind for each in told if isinstance(each, Flaw)} == {FindingKind.DAMAGE}
    assert all(isinstance(each, Flaw) for each in told)


@LOST_HEADER
def test_no_writer_puts_aside_what_held_excerpts(path: Path, how: str) -> None:
    """An appender that does not know which files are closed opens all of them."""
    lost = lose_header(path, how)
    set_word(path, "cqrepl.endsChecked", -1)
    set_word(path, "normalisedEOFsTo", 0)
    with (
        Queue.open_for_append(path) as queue,
        pytest.raises(QueueDamaged, match="expected 300 excerpts, found a file without a header"),
    ):
        queue.appender()
    assert lost.exists()
    assert not list(path.glob("*.discard"))


def test_a_file_that_is_being_made_is_no_damage(path: Path) -> None:
    made = noon_path(path, ROLL, ahead=4)
    made.touch()
    (finding,) = [one for one in inspect_queue(path).findings if one.path == made]
    assert finding.kind is FindingKind.UNFINISHED
    assert len(read(path)) == sum(COUNTS.values())


@pytest.mark.parametrize("ahead", [1, 2])
def test_what_does_not_pass_a_missing_file_is_given(path: Path, ahead: int) -> None:
    noon_path(path, ROLL, ahead=ahead).unlink()
    with Queue.open(path) as queue:
        assert len(list(queue.backward(noon_index(ROLL, sequence=9)))) == 5
        assert queue.count(last=noon_index(ROLL, sequence=9)) == 5
        assert len(queue.backward().next_batch() or ()) == 2
        assert queue.count(noon_index(ROLL, ahead=3)) == 2
        assert nth_last_index(queue.cycles, 2) == noon_index(ROLL, ahead=3)


@pytest.mark.parametrize("gone", [(0, 1), (2, 3)])
def test_no_reader_complains_of_a_lost_end_or_of_retention(
    path: Path, gone: tuple[int, int]
) -> None:
    for ahead in gone:
        noon_path(path, ROLL, ahead=ahead).unlink()
    held = sum(count for ahead, count in COUNTS.items() if ahead not in gone)
    with Queue.open(path) as queue:
        assert len(list(queue.backward())) == queue.count() == held
        assert nth_last_index(queue.cycles, 1000) == queue.first_index()
        for ahead in gone:
            with pytest.raises(IndexGap):
                queue.tailer(noon_index(ROLL, ahead=ahead, sequence=1))


def test_an_older_file_that_only_lacks_its_end(path: Path, tmp_path: Path) -> None:
    """Readers would wait there for ever."""
    older(path, tmp_path, 300)
    for each in (look, read):
        with pytest.raises(QueueDamaged, match="expected 300 excerpts and its end, found it open"):
            each(path)


def test_a_lost_end_is_no_damage(path: Path, tmp_path: Path) -> None:
    """A backup was put back below a newer record. That is no damage, since the copies have the
    rest."""
    older(path, tmp_path, 9)
    for ahead in (2, 3):
        noon_path(path, ROLL, ahead=ahead).unlink()
    look(path)
    assert len(read(path)) == COUNTS[0] + 9
    assert not [one for one in inspect_queue(path).findings if "expected" in one.text]


def test_it_goes_on_once_the_file_is_back(path: Path, tmp_path: Path) -> None:
    file = noon_path(path, ROLL, ahead=1)
    shutil.copy(file, tmp_path / "backup")
    with Queue.open(path) as queue:
        files = ClosedFiles(queue.cycles, Chains(queue.cycles))
        files.look(ALL)
        file.unlink()
        with pytest.raises(QueueDamaged):
            files.look(ALL)
        shutil.copy(tmp_path / "backup", file)
        files.look(ALL)
    assert len(read(path)) == sum(COUNTS.values())


def test_files_below_the_lowest_are_retention(path: Path) -> None:
    for ahead in (0, 1):
        noon_path(path, ROLL, ahead=ahead).unlink()
    look(path)
    assert len(read(path)) == COUNTS[2] + COUNTS[3]
    assert not [one for one in inspect_queue(path).findings if "expected" in one.text]


def test_what_retention_takes_is_forgotten_in_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closedfiles, "STALE_MAX", 1)
    with Queue.open(path) as queue:
        assert len(remove(queue.cycles, Policy(cycles_min=2))) == 2
    look(path)
    assert noted(path) == {0: 5, 1: 300, 2: 7}  # as many as there are files
    noon_path(path, ROLL, ahead=2).unlink()
    look(path)
    assert noted(path) == {2: 7}  # so far retention has come


def test_a_record_that_is_not_whole_counts_not(path: Path) -> None:
    """A kill or a power cut while the record was written takes a part of it: the cycle is noted
    again."""
    file = path / CLOSED_FILE_NAME
    whole = file.read_bytes()
    for length in (RECORD_BYTES, 2 * RECORD_BYTES + 1, 3 * RECORD_BYTES - 1):
        file.write_bytes(whole[:length])
        assert len(noted(path)) == length // RECORD_BYTES
        look(path)
        assert file.read_bytes()[: len(whole)] == whole
    file.write_bytes(whole[:50] + b"?" + whole[51:])
    assert noted(path) == {0: 5, 2: 7}


def test_removing_the_record_declares_that_all_is_there(path: Path) -> None:
    noon_path(path, ROLL, ahead=1).unlink()
    (path / CLOSED_FILE_NAME).unlink()
    look(path)
    assert len(read(path)) == sum(COUNTS.values()) - COUNTS[1]


def test_the_last_record_of_a_cycle_counts(tmp_path: Path) -> None:
    for count in (1, 2):
        closed = ClosedCycles(tmp_path)
        closed.remember(ClosedCycle(Cycle(7), count, bytes(16)))
        closed.note_below(Cycle(8))
    assert {each.excerpts for each in ClosedCycles(tmp_path).load().values()} == {2}


def test_a_reader_that_stands_before_a_lost_file_is_told(path: Path) -> None:
    with Queue.open(path) as queue:
        tailer = queue.tailer(noon_index(ROLL, ahead=1))
        noon_path(path, ROLL, ahead=1).unlink()
        with pytest.raises(QueueDamaged, match="expected 300 excerpts"):
            tailer.next_batch()


def renoted(path: Path, tmp_path: Path) -> None:
    """Puts the notes of another queue in the place of this queue's notes."""
    look(tmp_path / "other")
    (tmp_path / "other" / CLOSED_FILE_NAME).replace(path / CLOSED_FILE_NAME)


OTHERS = {"fewer": 0, "others": 1, "more": 2}  # excerpts that differ


@pytest.mark.parametrize("how", ["gone", *OTHERS])
def test_one_that_goes_with_its_note_is_missed_all_the_same(
    path: Path, tmp_path: Path, how: str
) -> None:
    """A host that runs misses the file: it has seen what was there."""
    file, notes = noon_path(path, ROLL, ahead=1), path / CLOSED_FILE_NAME
    with Queue.open(path) as queue:
        chains = Chains(queue.cycles)
        files = ClosedFiles(queue.cycles, chains)
        files.look(ALL)
        if how == "gone":
            file.unlink()
            notes.unlink()
        else:
            fill(tmp_path / "other", ROLL, {0: 5, 1: 299})
            with Queue.open_for_append(tmp_path / "other") as other:
                appender = other.appender()
                for nth in range(OTHERS[how]):
                    index = noon_index(ROLL, ahead=1, sequence=299 + nth)
                    appender.append_at(ExcerptBatch.of(index, [b"another"]))
                appender.append_at(ExcerptBatch.of(ALL, [b"behind"]))
            renoted(path, tmp_path)
            noon_path(tmp_path / "other", ROLL, ahead=1).replace(file)

        def watch() -> None:
            files.look(ALL)
            QueueAudit(chains, None).reread(queue.cycles)

        with pytest.raises(QueueDamaged, match="expected 300 excerpts"):
            watch()
        assert queue.cycles.closed.known[queue.cycles.listing()[0]].excerpts == 5


@pytest.mark.parametrize("how", ["gone", "older", "altered"])
def test_what_a_person_accepts_beside_a_host_that_runs_stays_accepted(
    path: Path, tmp_path: Path, how: str
) -> None:
    """The host has told of it, and does not note it once more: nor would it be right after a new
    start."""
    file = noon_path(path, ROLL, ahead=1)
    with Queue.open(path) as queue:
        chains = Chains(queue.cycles)
        files, audit = ClosedFiles(queue.cycles, chains), QueueAudit(chains, None)

        def watch() -> None:
            files.look(ALL)
            audit.reread(queue.cycles)

        watch()
        if how == "gone":
            file.unlink()
        elif how == "older":
            older(path, tmp_path, 9)
        else:
            data = bytearray(file.read_bytes())
            data[max(at for at, byte in enumerate(data) if byte) - 20] ^= 1
            file.write_bytes(data)
        with pytest.raises(QueueDamaged):
            watch()
        with Queue.open_for_append(path) as writer:
            writer.appender().close()  # it closes an older one
        (lost,) = accept_missing(path)
        assert lost.path == file
        watch()
        assert lost_cycles(path) == []


def test_notes_that_go_are_written_anew(path: Path) -> None:
    with Queue.open(path) as queue:
        files = ClosedFiles(queue.cycles, Chains(queue.cycles))
        files.look(ALL)
        before = (path / CLOSED_FILE_NAME).read_bytes()
        (path / CLOSED_FILE_NAME).unlink()
        files.look(ALL)
        assert (path / CLOSED_FILE_NAME).read_bytes() == before


def test_what_retention_takes_is_not_missed(path: Path) -> None:
    with Queue.open(path) as queue:
        files = ClosedFiles(queue.cycles, Chains(queue.cycles))
        files.look(ALL)
        for ahead in (0, 1):
            noon_path(path, ROLL, ahead=ahead).unlink()
        (path / CLOSED_FILE_NAME).unlink()
        files.look(ALL)
    assert noted(path) == {2: 7}
