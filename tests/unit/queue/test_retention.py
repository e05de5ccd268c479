"""Retention: which store files may go, why the rest stay, and what deleting leaves behind."""

import os
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueError, QueueLocked
from cqrepl.queue.files.checkpointfile import give_name, write_part
from cqrepl.queue.files.chroniclemarks import ACKNOWLEDGED_KEY, SENT_KEY
from cqrepl.queue.files.keptmarks import HostLevels
from cqrepl.queue.files.locks import UNLOCKED, WRITE_LOCK_KEY
from cqrepl.queue.files.markslots import MarkLevel
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.format.logpos import LogPos
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.read.namedtailer import NamedPosition
from cqrepl.queue.read.registration import Readers, registered_readers
from cqrepl.queue.write.retention import FileVerdict, Policy, plan, remove
from cqrepl.replicator.marks.hostmarks import NOTHING_SENT
from tests.support.goldens import unpack
from tests.support.reading import cycles_of
from tests.support.samples import (
    NOON_MS,
    Excerpts,
    fill,
    noon_index,
    noon_path,
    read,
    without_end_mark,
)
from tests.support.tables import keys_of, set_word

ALL = Policy()
DAY_MS = 86_400_000


@pytest.fixture
def written(path: Path) -> Excerpts:
    """Three excerpts in each of five cycles."""
    return fill(path, "FAST_DAILY", dict.fromkeys(range(5), 3))


def known_hosts(path: Path) -> HostLevels:
    """The hosts that are not forgotten, as another process finds them."""
    with Queue.open(path) as queue:
        return queue.host_marks.load()


def aheads(verdicts: list[FileVerdict]) -> list[int]:
    """The cycles that may go, counted from noon's."""
    noon = by_name("FAST_DAILY").cycle_at(NOON_MS, 0)
    return [one.cycle - noon for one in verdicts if one.is_removable]


def test_without_readers_all_but_the_last_cycle_may_go(path: Path, written: Excerpts) -> None:
    verdicts = plan(cycles_of(path), ALL)
    assert [one.path for one in verdicts] == [noon_path(path, ahead=n) for n in range(5)]
    assert aheads(verdicts) == [0, 1, 2, 3]
    assert all(one.size_bytes > 0 for one in verdicts)
    assert "the queue ends in it" in str(verdicts[-1])
    assert str(verdicts[0]) == "20240305F.cq4: may go"
    assert read(path) == written


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(cycles_min=3), [0, 1]),
        (Policy(cycles_min=9), []),
        (Policy(keep_from_ms=NOON_MS + 2 * DAY_MS), [0, 1]),
        (Policy(keep_from_ms=NOON_MS - 9 * DAY_MS), []),
        (Policy(cycles_min=4, keep_from_ms=NOON_MS + 9 * DAY_MS), [0]),
    ],
)
def test_the_caller_says_what_stays(
    path: Path, written: Excerpts, policy: Policy, expected: list[int]
) -> None:
    assert len(written) == 15
    assert aheads(plan(cycles_of(path), policy)) == expected


def test_a_named_tailer_holds_the_cycle_it_stands_in(path: Path, written: Excerpts) -> None:
    cycles = cycles_of(path)
    position = NamedPosition(cycles, "alpha")
    for index, expected in [
        (0, []),
        (written[0][0], []),
        (noon_index(sequence=3), []),  # it has read all, but only the file itself can tell
        (noon_index(ahead=1), [0]),
        (noon_index(ahead=2, sequence=3), [0, 1]),
        (noon_index(ahead=9), [0, 1, 2, 3]),
    ]:
        position.move(index)
        assert aheads(plan(cycles, ALL)) == expected
    position.move(0)
    reasons = plan(cycles, ALL)[0].reasons
    assert reasons == ("named tailer alpha is at the start, never moved",)
    position.move(written[4][0])
    assert plan(cycles, ALL)[1].reasons == ("named tailer alpha is at 0x4d4c00000001",)
    assert plan(cycles, ALL)[0].is_removable
    position.close()


def test_replicated_names_and_many_names_hold_too(path: Path, written: Excerpts) -> None:
    cycles = cycles_of(path)
    for nth in range(8):
        position = NamedPosition(cycles, f"replicated:{nth}")
        position.move(written[3][0])
        position.close()
    verdicts = plan(cycles, ALL)
    assert aheads(verdicts) == [0]
    assert "replicated:0" in verdicts[1].reasons[0]
    assert verdicts[1].reasons[-1] == "3 more have not passed it"


def test_registered_readers_hold_what_they_need(path: Path, written: Excerpts) -> None:
    cycles = cycles_of(path)
    readers = Readers(cycles)
    assert readers.register("Spark") == 0
    assert aheads(plan(cycles, ALL)) == []
    readers.advance("Spark", written[6][0])
    assert aheads(plan(cycles, ALL)) == [0, 1]
    readers.advance("Spark", written[1][0])  # never back
    assert readers.register("spark", 5) == written[6][0]
    assert "reader Spark is at 0x4d4d00000000" in plan(cycles, ALL)[2].reasons
    assert readers.unregister("spark")
    assert not readers.unregister("spark")
    assert not readers.unregister("nobody")
    assert aheads(plan(cycles, ALL)) == [0, 1, 2, 3]
    with pytest.raises(QueueError, match="found no spark"):
        readers.advance("spark", 7)
    with pytest.raises(QueueError, match="found no other"):
        readers.advance("other", 7)
    with pytest.raises(QueueError, match="1 to 256 bytes"):
        readers.register("")
    assert readers.register("spark", written[3][0]) == written[3][0]
    table = TableStore(path / FILE_NAME, writable=False)
    assert registered_readers(table) == {"Spark": written[3][0]}
    table.close()


def test_replication_holds_what_is_not_acknowledged(path: Path, written: Excerpts) -> None:
    cycles = cycles_of(path)
    set_word(path, SENT_KEY, written[9][0])
    assert aheads(plan(cycles, ALL)) == [0, 1, 2]
    set_word(path, ACKNOWLEDGED_KEY, written[4][0])
    assert aheads(plan(cycles, ALL)) == [0]
    assert "acknowledged" in plan(cycles, ALL)[1].reasons[0]


def test_each_known_host_holds_what_it_has_not_acknowledged(path: Path, written: Excerpts) -> None:
    cycles = cycles_of(path)
    with Queue.open(path) as queue:
        marks = queue.host_marks
        for host in (2, 3, 4):
            assert marks.raise_to(host, MarkLevel.SENT, written[14][0])
        set_word(path, SENT_KEY, written[14][0])
        assert aheads(plan(cycles, ALL)) == [0, 1, 2, 3]  # none was ever asked to acknowledge
        assert marks.raise_to(4, MarkLevel.ACKNOWLEDGED, NOTHING_SENT)
        assert [each.reasons[0] for each in plan(cycles, ALL)[:4]] == [
            f"host {host}, acknowledged, is at the start, never moved" for host in (2, 2, 2, 2)
        ]
        for host, acknowledged in ((2, 13), (3, 4)):
            assert marks.raise_to(host, MarkLevel.ACKNOWLEDGED, written[acknowledged][0])
    set_word(path, ACKNOWLEDGED_KEY, written[13][0])
    assert plan(cycles, ALL)[0].reasons == ("host 4, acknowledged, is at the start, never moved",)
    without_4 = Policy(forgotten=frozenset({4}))
    assert aheads(plan(cycles, without_4)) == [0]
    assert plan(cycles, without_4)[1].reasons == ("host 3, acknowledged, is at 0x4d4c00000001",)
    assert known_hosts(path).keys() == {2, 3, 4}
    assert len(remove(cycles, without_4)) == 1
    assert known_hosts(path).keys() == {2, 3}
    assert len(remove(cycles, Policy(forgotten=frozenset({3})))) == 3
    assert read(path) == written[12:]


def test_a_host_holds_what_it_may_not_have_on_its_disk(path: Path, written: Excerpts) -> None:
    """A power cut there would take it. A Java host says nothing of that, and holds nothing."""
    cycles, last = cycles_of(path), written[13][0]
    with Queue.open(path) as queue:
        marks = queue.host_marks
        for host in (2, 3):
            assert marks.raise_to(host, MarkLevel.ACKNOWLEDGED, last)
        assert aheads(plan(cycles, ALL)) == [0, 1, 2, 3]
        assert marks.raise_to(2, MarkLevel.SYNCED, written[4][0])
        assert aheads(plan(cycles, ALL)) == [0]
        assert plan(cycles, ALL)[1].reasons == ("host 2, on its disk, is at 0x4d4c00000001",)
        assert marks.raise_to(2, MarkLevel.SYNCED, last)
        assert aheads(plan(cycles, ALL)) == [0, 1, 2, 3]


def test_a_forgotten_host_is_known_again_with_what_it_is_sent(
    path: Path, written: Excerpts
) -> None:
    cycles = cycles_of(path)
    with Queue.open(path) as queue:
        assert queue.host_marks.raise_to(2, MarkLevel.SENT, written[0][0])
        remove(cycles, Policy(forgotten=frozenset({2})))
        assert known_hosts(path) == {}
        assert queue.host_marks.raise_to(2, MarkLevel.SENT, written[1][0])
    assert known_hosts(path) == {2: {MarkLevel.SENT: written[1][0]}}


def test_an_open_cycle_holds_all_above_it(path: Path, written: Excerpts) -> None:
    assert written
    without_end_mark(path, ahead=1)
    verdicts = plan(cycles_of(path), ALL)
    assert [one.reasons for one in verdicts[:4]] == [
        (),
        ("it has no end-of-file mark",),
        ("a lower cycle stays",),
        ("a lower cycle stays",),
    ]


def test_a_file_that_is_not_ready_stays(path: Path, written: Excerpts) -> None:
    assert written
    noon_path(path, ahead=-1).write_bytes(b"")
    assert aheads(plan(cycles_of(path), ALL)) == []


def test_an_empty_queue_and_one_without_table_store_can_be_explained(
    path: Path, tmp_path: Path
) -> None:
    fill(path, "FAST_DAILY", {})
    assert plan(cycles_of(path), ALL) == []
    assert remove(cycles_of(path), ALL) == []
    other = unpack("no_metadata", tmp_path)
    with Queue.open(other) as queue:
        cycles = cycles_of(other, queue.layout.roll_cycle.name)
    assert plan(cycles, ALL)
    with pytest.raises(FileNotFoundError):
        remove(cycles, ALL)


def test_empty_cycles_above_the_last_excerpt_stay(tmp_path: Path) -> None:
    path = unpack("empty_last_cycle", tmp_path)
    verdicts = plan(cycles_of(path), ALL)
    assert not verdicts[-1].is_removable
    assert not verdicts[-2].is_removable


def test_a_file_is_off_the_listing_before_it_goes(
    path: Path, written: Excerpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's read-only tailers trust the listing: they would open a file that is gone."""
    assert written
    listed, unlink = list[int](), Path.unlink
    lowest = keys_of(path)["listing.lowestcycle"]

    def unlinked(file: Path, missing_ok: bool = False) -> None:
        listed.append(keys_of(path)["listing.lowestcycle"])
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlinked)
    assert aheads(remove(cycles_of(path), ALL)) == [0, 1, 2, 3]
    assert set(listed) == {lowest + 4}


def test_removing_keeps_the_rest_readable_and_the_listing_right(
    path: Path, written: Excerpts
) -> None:
    cycles = cycles_of(path)
    before = keys_of(path)
    removed = remove(cycles, Policy(cycles_min=2))
    assert aheads(removed) == [0, 1, 2]
    assert [one.name for one in sorted(path.glob("*.cq4"))] == ["20240308F.cq4", "20240309F.cq4"]
    after = keys_of(path)
    assert after["listing.lowestcycle"] == before["listing.lowestcycle"] + 3
    assert after["listing.highestcycle"] == before["listing.highestcycle"]
    assert after["listing.modcount"] > before["listing.modcount"]
    assert after[WRITE_LOCK_KEY] == UNLOCKED
    assert read(path) == written[9:]
    assert remove(cycles, Policy(cycles_min=2)) == []
    with Queue.open_for_append(path) as queue:
        index = queue.appender().append([b"more"], NOON_MS)
    assert read(path)[-1] == (index, b"more")


def test_a_writer_that_holds_its_lock_is_waited_for(
    path: Path, written: Excerpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written
    monkeypatch.setattr("cqrepl.queue.write.retention._LOCK_TIMEOUT_S", 0.01)
    set_word(path, WRITE_LOCK_KEY, os.getppid())
    with pytest.raises(QueueLocked):
        remove(cycles_of(path), ALL)
    assert len(list(path.glob("*.cq4"))) == 5


def test_a_member_that_was_never_heard_of_holds_everything(path: Path, written: Excerpts) -> None:
    verdicts = plan(cycles_of(path), Policy(members=frozenset({2})))
    assert aheads(verdicts) == []
    assert "host 2, never heard of, is at the start" in str(verdicts[0])


def test_a_host_that_follows_keeps_what_its_leader_has(path: Path, written: Excerpts) -> None:
    noon = by_name("FAST_DAILY").cycle_at(NOON_MS, 0)
    verdicts = plan(cycles_of(path), Policy(keep_from=Cycle(noon + 2)))
    assert aheads(verdicts) == [0, 1]
    assert "the host that leads has it" in str(verdicts[2])


def test_files_of_a_service_wait_for_its_older_checkpoint(path: Path, written: Excerpts) -> None:
    folder = path / "snapshots"
    folder.mkdir()
    told = "the older checkpoint of its service is not there, or cannot be read"
    assert told in str(plan(cycles_of(path), ALL)[0])
    for ahead, gone in ((1, []), (2, [0]), (4, [0, 1])):
        pos = LogPos(0, noon_index(ahead=ahead, sequence=1))
        give_name(write_part(folder, "g0", pos, lambda out: None))
        assert aheads(plan(cycles_of(path), ALL)) == gone
