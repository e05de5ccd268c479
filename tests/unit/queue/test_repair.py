"""Repairs: everything beside the excerpts is made again, nothing of them is touched."""

import os
import struct
from pathlib import Path

import pytest

from cqrepl.queue import NotAQueue, Queue, QueueDamaged, QueueError, QueueLocked
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WRITE_LOCK_KEY
from cqrepl.queue.inspection.findings import FindingKind
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.inspection.repairplan import apply, plan_repair
from tests.support.goldens import READABLE, manifest, unpack
from tests.support.samples import (
    NOON_MS,
    check_marks,
    digests,
    fill,
    noon_index,
    noon_path,
    read,
    wipe_hints,
)

NAME = "TEST4_SECONDLY"
CLOSED_BY_NOBODY = ("backfilled_no_eof", "misplaced_eof", "missing_eof_middle")


def damage(file: Path, position: int, data: bytes) -> None:
    raw = bytearray(file.read_bytes())
    raw[position : position + len(data)] = data
    file.write_bytes(raw)


# without a table store there is no lock to repair a queue under
@pytest.mark.parametrize("name", [name for name in READABLE if manifest(name).has_metadata])
def test_hints_are_made_again_as_they_were(tmp_path: Path, name: str) -> None:
    path, expected = unpack(name, tmp_path), manifest(name)
    apply(plan_repair(path))  # what the golden itself lacks
    whole = {file.name: file.read_bytes() for file in path.glob("*.cq4")}
    wipe_hints(path)
    plan = plan_repair(path)
    assert plan.repairs
    assert not plan.remaining
    assert apply(plan) == len(plan.repairs)
    for file, data in whole.items():
        assert (path / file).read_bytes() == data, file
    assert digests(read(path)) == expected.digests
    assert plan_repair(path).repairs == ()


def test_a_lost_way_before_the_first_excerpt_hides_nothing_for_good(tmp_path: Path) -> None:
    """The first index page claims to be longer and ends within an excerpt: no end mark goes there.

    Found by random damage: the marks agreed that excerpts are there, and were all wiped.
    """
    path = tmp_path / "q"
    with Queue.open(path, create="TEST2_DAILY") as queue:
        queue.append_many([b"\xde" * 24] * 40, now_ms=NOON_MS)
        queue.append(b"in the next cycle", now_ms=NOON_MS + 86_400_000)
    file = noon_path(path, "TEST2_DAILY")
    raw = file.read_bytes()
    page = 0
    for _ in range(2):  # over the header and index2index
        page = (page + 4 + (int.from_bytes(raw[page : page + 4], "little") & 0x3FFFFFFF) + 3) & ~3
    word = int.from_bytes(raw[page : page + 4], "little")
    damage(file, page, (word | 0x400).to_bytes(4, "little"))
    damaged = file.read_bytes()
    plan = plan_repair(path)
    assert not [repair for repair in plan.repairs if repair.path == file]
    assert FindingKind.DAMAGE in {finding.kind for finding in plan.remaining}
    apply(plan)
    assert file.read_bytes() == damaged


@pytest.mark.parametrize("name", CLOSED_BY_NOBODY)
def test_missing_end_marks_are_written(tmp_path: Path, name: str) -> None:
    path, expected = unpack(name, tmp_path), manifest(name)
    assert len(read(path)) == expected.java_reads < len(expected.digests)
    [repair] = plan_repair(path).repairs
    assert repair.written == bytes.fromhex("000000c0c3454f46")
    apply(plan_repair(path))
    assert digests(read(path)) == expected.digests


def test_a_header_left_not_complete_is_freed_or_becomes_the_end(tmp_path: Path) -> None:
    path = unpack("not_complete_header", tmp_path)
    [repair] = plan_repair(path).repairs
    assert repair.written == bytes(4)
    apply(plan_repair(path))
    other = tmp_path / "two"
    fill(other, NAME, {0: 10, 1: 3})
    end = inspect_queue(other, deep=True).files[0].position_end
    damage(noon_path(other, NAME), end, struct.pack("<II", 0x80000020, 7))
    [repair] = plan_repair(other).repairs
    assert repair.written[:4] == struct.pack("<I", 0xC0000000)
    apply(plan_repair(other))
    assert len(read(other)) == 13


def test_wrong_slots_are_set_right_where_something_behind_agrees(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    written = fill(path, NAME, {0: 300})
    file = noon_path(path, NAME)
    whole = file.read_bytes()
    first = whole.index(b"\xb9\x05index")
    slots = whole.index(b"\x8d", first) + 17
    damage(file, slots + 8, struct.pack("<qq", 12, -4))
    damage(file, whole.index(b"index2index") + 11 + 7 + 16 + 8, struct.pack("<q", 1 << 40))
    plan = plan_repair(path)
    assert {FindingKind.DAMAGE} == {each.kind for each in inspect_queue(path, deep=True).findings}
    apply(plan)
    assert file.read_bytes() == whole
    assert read(path) == written
    check_marks(path)


def test_the_head_of_an_index_page_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 300})
    file = noon_path(path, NAME)
    whole = file.read_bytes()
    at = whole.index(b"\xb9\x05index")
    damage(file, at, b"\xb9\x05mndex")
    apply(plan_repair(path))
    assert file.read_bytes() == whole
    at = whole.index(b"index2index")
    damage(file, at + 14, b"\0\0\0\0\0\0\0\0")
    apply(plan_repair(path))
    assert file.read_bytes() == whole


def test_a_broken_chain_is_left_alone_and_told(tmp_path: Path) -> None:
    """To close such a file, or to set its marks back, would hide what may still be saved."""
    path = tmp_path / "queue"
    written = fill(path, NAME, {0: 200, 1: 3})
    file = noon_path(path, NAME)
    damage(file, file.read_bytes().index(written[150][1]) - 4, bytes(4))
    before = file.read_bytes()
    plan = plan_repair(path)
    assert plan.repairs == ()
    advice = list(plan.advice())
    assert any("take the excerpts from 0x" in each and "from a copy" in each for each in advice)
    assert apply(plan) == 0
    assert file.read_bytes() == before


def test_a_wrong_length_that_shifts_sequences_is_left_alone(tmp_path: Path) -> None:
    """An excerpt swallows its neighbour, so that every slot behind it disagrees with the walk."""
    path = tmp_path / "queue"
    written = fill(path, NAME, {0: 200})
    file = noon_path(path, NAME)
    raw = file.read_bytes()
    at = raw.index(written[101][1]) - 4
    behind = raw.index(written[103][1]) - 4
    damage(file, at, struct.pack("<I", behind - at - 4))
    plan = plan_repair(path)
    assert plan.repairs == ()
    assert any(finding.index == noon_index(NAME, sequence=104) for finding in plan.remaining)
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        certain = tailer.next_batch()
        assert certain is not None
        assert [data for _, data in certain] == [data for _, data in written[:100]]
        for _ in range(2):  # it does not get past the damage by being asked again
            with pytest.raises(QueueDamaged):
                tailer.next_batch()


def test_an_unfinished_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    written = fill(path, NAME, {0: 5, 2: 5})
    between = noon_path(path, NAME, ahead=1)
    between.write_bytes(bytes(1024))
    assert len(read(path)) == 5
    plan = plan_repair(path)
    assert [repair.renamed_to is not None for repair in plan.repairs] == [True]
    assert "rename to" in str(plan.repairs[0])
    apply(plan)
    assert not between.exists()
    assert read(path) == written
    assert plan_repair(path).repairs == ()


def test_listing_and_dead_lock_are_put_right(tmp_path: Path) -> None:
    path = unpack("first_cycle_deleted", tmp_path)
    [repair] = plan_repair(path).repairs
    assert "listing.lowestCycle" in repair.reason
    apply(plan_repair(path))
    assert inspect_queue(path).findings == ()
    dead = unpack("killed_mid_message", tmp_path)
    apply(plan_repair(dead))
    assert inspect_queue(dead).findings == ()


def test_a_plan_is_refused_when_the_queue_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 50})
    wipe_hints(path)
    plan = plan_repair(path)
    with Queue.open_for_append(path) as queue:
        queue.appender().append([b"more"], 0)
    before = {file.name: file.read_bytes() for file in path.glob("*.cq4")}
    with pytest.raises(QueueError, match="as when it was planned"):
        apply(plan)
    assert {file.name: file.read_bytes() for file in path.glob("*.cq4")} == before


def test_the_write_lock_is_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 50})
    wipe_hints(path)
    plan = plan_repair(path)
    with Queue.open_for_append(path) as queue, queue.word_lock(WRITE_LOCK_KEY).held(1.0):
        with pytest.raises(QueueLocked):
            apply(plan)
    assert apply(plan)
    assert inspect_queue(path, deep=True).findings == ()


def test_a_dead_append_lock_is_told_and_left_to_people(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 3})
    table = path / "metadata.cq4t"
    at = table.read_bytes().index(APPEND_LOCK_KEY.encode()) + len(APPEND_LOCK_KEY)
    at += -at % 8
    damage(table, at, struct.pack("<q", 999_999_999))
    plan = plan_repair(path)
    assert plan.repairs == ()
    assert [finding.kind for finding in plan.remaining] == [FindingKind.LOCK]


def test_copies_are_made_before(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 50, 1: 4})
    wipe_hints(path)
    before = {file.name: file.read_bytes() for file in path.glob("*.cq4")}
    apply(plan_repair(path), backup=tmp_path / "backup")
    assert {file.name: file.read_bytes() for file in (tmp_path / "backup").iterdir()} == before
    wipe_hints(path)
    with pytest.raises(FileExistsError):
        apply(plan_repair(path), backup=tmp_path / "backup")


def test_without_a_whole_table_store_nothing_is_stored(tmp_path: Path) -> None:
    path = unpack("no_metadata", tmp_path)
    wipe_hints(path)
    with pytest.raises(NotAQueue):
        apply(plan_repair(path))
    other = tmp_path / "other"
    fill(other, NAME, {0: 5})
    wipe_hints(other)
    os.truncate(other / "metadata.cq4t", 194)
    plan = plan_repair(other)
    assert plan.repairs
    with pytest.raises(QueueDamaged):
        apply(plan)
