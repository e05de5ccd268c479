"""The marks of each sink host: over its connections, over restarts of the source, in `Source`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl import Source
from cqrepl.kernel.board import AckLevel
from cqrepl.net import sharedsocket
from cqrepl.queue import Queue
from cqrepl.queue.files.chroniclemarks import LEADS_KEY
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.marks import resends
from cqrepl.replicator.marks.ackboard import AckBell, WaitEnded
from cqrepl.replicator.marks.counters import Tally
from cqrepl.replicator.marks.hostmarks import HostMarks, QueueMarks
from cqrepl.replicator.marks.resends import (
    FEW_EXCERPTS,
    RESEND_SECONDS,
    RESENDS_MAX,
    Resends,
    is_resend,
)
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.replicas import (
    SECONDS,
    acked,
    copied,
    eventually,
    joined,
    live_sink,
    live_source,
    more_excerpts,
    stopped,
)
from tests.support.samples import Excerpts, fill, may_go, noon_index
from tests.support.scripted import scripted
from tests.support.tables import fill_keys, keys_of


def marks_in(source: Source) -> dict[int, tuple[int, int]]:
    """Sent and acknowledged of each host."""
    marks: Mapping[int, HostMarks] = source.queues["q"].marks
    assert all(each.host_id == host_id for host_id, each in marks.items())
    return {host_id: (each.sent, each.acknowledged) for host_id, each in marks.items()}


def marks_of_java(path: Path) -> tuple[int, int]:
    with Queue.open(path) as queue:
        return queue.sent_index, queue.acknowledged_index


def both(index: int) -> tuple[int, int]:
    return index, index


@pytest.mark.usefixtures("has_pump")
async def test_each_host_has_its_own_marks_and_keeps_them_over_a_restart(tmp_path: Path) -> None:
    """Host 3 leaves in between: it is behind, and Java's marks are those of host 2."""
    path, one, other = tmp_path / "q", tmp_path / "one", tmp_path / "other"
    first = fill(path, "FAST_DAILY", {0: 300})[-1][0]
    async with live_source(path) as source:
        assert marks_in(source) == {}
        async with live_sink(one, source.port, host_id=2):
            async with live_sink(other, source.port, host_id=3):
                await eventually(lambda: marks_in(source) == {2: both(first), 3: both(first)})
            last = more_excerpts(path, 300, 40)[-1][0]
            await eventually(lambda: marks_in(source) == {2: both(last), 3: both(first)})
            assert marks_of_java(path) == both(last)
    async with live_source(path) as source:
        assert marks_in(source) == {2: both(last), 3: both(first)}
        assert source.queues["q"].acknowledged == -1, "of this run"
        async with live_sink(other, source.port, host_id=3):
            await eventually(lambda: marks_in(source) == {2: both(last), 3: both(last)})
    assert keys_of(path)["cqrepl.3.idx"] == last
    assert marks_of_java(path) == both(last)


@pytest.mark.parametrize("nth", [0, 4])
async def test_a_host_that_comes_back_with_less_holds_its_store_files_again(
    tmp_path: Path, nth: int
) -> None:
    """As its copy was made anew, or is from a backup: what it lacks is not to be deleted."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 3, 1: 3, 2: 3})
    last, has = written[-1][0], written[nth - 1][0] if nth else -1
    async with live_source(path) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await eventually(lambda: marks_in(source) == {2: both(last)})
            # what it said of its disk last counts for a peer that says nothing of it
            await eventually(lambda: source.queues["q"].marks[2].synced == last)
            assert may_go(path) == [True, True, False]
        await eventually(lambda: not source.endpoint.sessions)
        async with scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(written[nth][0] if nth else 0)
            await sink.send(peer.end_of_stream(cid))
            await sink.hear("re", len(written) - nth)
            assert marks_in(source) == {2: (last, has)}
            assert source.board("q").marks == ({2: has} if nth else {})
            assert may_go(path) == [nth > 0, False, False]
        await eventually(lambda: not source.endpoint.sessions)
        async with live_sink(tmp_path / "again", source.port):
            await eventually(lambda: may_go(path) == [True, True, False])
        assert marks_in(source) == {2: both(last)}


async def test_with_a_full_table_store_marks_are_in_the_side_file(tmp_path: Path) -> None:
    path = tmp_path / "q"
    last = fill(path, "FAST_DAILY", {0: 20})[-1][0]
    fill_keys(path, KEY_END_MAX)
    async with live_source(path) as source, live_sink(tmp_path / "copy", source.port):
        await acked(source, last)
    assert (path / SLOTS_FILE_NAME).exists()
    async with live_source(path) as source:
        assert marks_in(source) == {2: both(last)}


@pytest.mark.parametrize("filled", [0, KEY_END_MAX])
def test_a_lead_is_noted_where_its_key_leaves_room_for_those_of_java(
    tmp_path: Path, filled: int
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 1})
    fill_keys(tmp_path / "q", filled)
    with Queue.open(tmp_path / "q") as queue:
        queue.note_leads(0)
        assert LEADS_KEY not in keys_of(tmp_path / "q"), "a queue without elections has none"
        for until_ns in (5, 3, 0):
            queue.note_leads(until_ns)
            expected = None if filled else until_ns
            assert keys_of(tmp_path / "q").get(LEADS_KEY) == expected


@pytest.mark.usefixtures("has_pump")
@pytest.mark.parametrize("is_later", [False, True], ids=["before", "later"])
async def test_what_a_sink_acknowledges_counts_though_the_queue_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_later: bool
) -> None:
    """A live pump has sent it, and has heard of it or not, and the event loop knows of neither."""
    monkeypatch.setattr(sharedsocket, "LOOK_SECONDS", 1000.0)
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)
    path = tmp_path / "q"
    first = fill(path, "FAST_DAILY", {0: 3})[-1][0]
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        _, cid = await sink.answer(0)
        await sink.send(peer.end_of_stream(cid))
        await sink.hear("re", 3)
        await sink.send(peer.acknowledgement(first, cid=cid))
        await acked(source, first)
        last = more_excerpts(path, 3, 5)[-1][0]
        await sink.hear("re", 8)
        said = peer.acknowledgement(last, cid=cid)
        board = source.board()
        if not is_later:
            await sink.send(said)
            await trio.to_thread.run_sync(partial(board.wait, last, 1, SECONDS))
        (path / "metadata.cq4t").unlink()
        await stopped(source)
        if is_later:
            await sink.send(said)
        await eventually(lambda: marks_in(source) == {2: both(last)})
        assert board.marks == {2: last}
        with pytest.raises(WaitEnded, match="expected"):
            await source.wait_acked(last + 1)
        assert len(source.endpoint.sessions) == 1


def test_no_mark_rises_beyond_what_a_host_was_passed_by_with(tmp_path: Path) -> None:
    """The host may acknowledge more: no mark counts that until its next stream begins."""
    fill(tmp_path, "FAST_DAILY", {0: 3})
    with Queue.open(tmp_path) as queue:
        host = QueueMarks("q", queue.host_marks, AckBell().board("q")).of(2)
        host.raise_sent(0x10)
        host.withhold(0x08)
        host.raise_level(AckLevel.SYNCED, 0x10)
        assert (host.covers(0x10), host.covers(0x07), host.synced) == (0x08, 0x07, 0x08)
        host.begin()
        host.raise_level(AckLevel.SYNCED, 0x10)
        assert (host.covers(0x10), host.synced) == (0x10, 0x10)


def test_an_acknowledgement_that_was_overtaken_takes_nothing_back(tmp_path: Path) -> None:
    """As one of a connection that was over: also not for the next start, from the disk."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    board = AckBell().board("q")
    with Queue.open(path) as queue:
        host = QueueMarks("q", queue.host_marks, board).of(2)
        host.raise_sent(0x20)
        for index in (0x10, 0x20, 0x10):
            host.raise_acknowledged(index)
        assert (host.acknowledged, host.had) == (0x20, 0x20)
        assert board.marks_at(AckLevel.APPENDED) == {2: 0x20}
    with Queue.open(path) as queue:
        assert QueueMarks("q", queue.host_marks, AckBell().board("q")).of(2).acknowledged == 0x20


def test_a_host_that_is_forgotten_counts_at_no_level(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    board = AckBell().board("q")
    with Queue.open(path) as queue:
        marks = QueueMarks("q", queue.host_marks, board)
        host = marks.of(2)
        host.raise_sent(0x10)
        host.raise_acknowledged(0x10)
        for level in (AckLevel.SYNCED, AckLevel.APPLIED):
            host.raise_level(level, 0x10)
            board.wait(0x10, timeout=0, level=level)
        assert marks.forget(2)
        for level in AckLevel:
            assert board.marks_at(level) == {}
            with pytest.raises(TimeoutError):
                board.wait(0x10, timeout=0, level=level)
        again = marks.of(2)
        again.raise_acknowledged(0x10)  # it has said nothing of the other levels yet
        assert board.marks_at(AckLevel.SYNCED) == {}


def tally(written: Excerpts, times: int = 1) -> Tally:
    """The counters after so many transfers of these excerpts."""
    return Tally(times * len(written), times * sum(len(data) for _, data in written))


@pytest.mark.parametrize("has_pump", [True, False], ids=["usual", "without a live pump"])
async def test_all_numbers_agree_with_what_is_in_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pump: bool
) -> None:
    if not has_pump:
        monkeypatch.setattr(sharedsocket, "pump_for", lambda *_: None)
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 700, 1: 40})
    async with live_source(path) as source, live_sink(tmp_path / "copy", source.port) as sink:
        await acked(source, written[-1][0])
        sent = source.queues["q"].counters.drained()
        assert sent.sent == sent.acknowledged == tally(written)
        assert sent.index_sent == sent.index_acknowledged == written[-1][0]
        assert sink.queues["q"].counters.drained().received == tally(written)
        with Queue.open(path) as queue:
            assert queue.sent_index == sent.index_sent
            assert queue.acknowledged_index == sent.index_acknowledged


async def test_what_a_sink_had_before_moves_the_mark_alone(tmp_path: Path) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 100})
    assert fill(copy, "FAST_DAILY", {0: 100}) == written
    async with live_source(path) as source, live_sink(copy, source.port) as sink:
        await acked(source, written[-1][0])
        counters = source.queues["q"].counters.drained()
        assert counters.acknowledged == counters.sent == Tally()
        more = more_excerpts(path, 100, 20)
        await acked(source, more[-1][0])
        assert counters.drained().acknowledged == tally(more)
        assert sink.queues["q"].counters.drained().received == tally(more)


SHIFT = 32
LAST = noon_index(sequence=3 * FEW_EXCERPTS)


@pytest.mark.parametrize(
    ("next_index", "acknowledged", "is_one"),
    [
        (0, -1, False),  # it never had anything
        (LAST + 1, LAST, False),
        (LAST, LAST, False),  # an acknowledgement that was lost
        (LAST - FEW_EXCERPTS + 1, LAST, False),  # what a power cut took
        (LAST - FEW_EXCERPTS, LAST, True),
        (noon_index(ahead=-1), LAST, True),
        (0, noon_index(), True),
    ],
)
def test_t13_what_counts_as_asking_again(next_index: int, acknowledged: int, is_one: bool) -> None:
    assert is_resend(next_index, acknowledged, SHIFT) == is_one


def test_t13_a_few_at_once_and_then_one_now_and_then() -> None:
    bucket = Resends()
    due = [bucket.next(100.0) - 100.0 for _ in range(RESENDS_MAX + 3)]
    assert due == [0.0] * RESENDS_MAX + [RESEND_SECONDS * nth for nth in (1, 2, 3)]
    due = [bucket.next(9000.0) - 9000.0 for _ in range(RESENDS_MAX + 1)]
    assert due == [0.0] * RESENDS_MAX + [RESEND_SECONDS]


async def test_t13_everything_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few times it comes at once, then it waits; another sink does not, nor one that is further.

    The one that waits gets it all the same, in its time.
    """
    monkeypatch.setattr(resends, "RESEND_SECONDS", 8.0)
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    first, last = written[0][0], written[-1][0]
    async with live_source(tmp_path / "q") as source:
        for _ in range(1 + RESENDS_MAX):
            async with scripted(source.port, 9, 1) as sink:
                _, cid = await sink.answer(0)
                await sink.send(peer.end_of_stream(cid))
                await sink.hear("re", 3)
                await sink.send(peer.acknowledgement(last, 1, cid))
                await eventually(lambda: source.queues["q"].marks[9].acknowledged == last)
            await eventually(lambda: not source.endpoint.sessions)
        async with scripted(source.port, 9, 1) as sink:
            _, cid = await sink.answer(0)
            await sink.send(peer.end_of_stream(cid))
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, last)
                await copied(tmp_path / "q", tmp_path / "copy")
            assert not sink.all("re")
            assert not source.stops
            await sink.hear("re", 3)
            assert [message["re"][0] for message in sink.all("re")] == [*range(first, last + 1)]
        await eventually(lambda: not source.endpoint.sessions)
        async with scripted(source.port, 9, 1) as sink:
            _, cid = await sink.answer(last)
            await sink.send(peer.end_of_stream(cid))
            assert [each["re"][0] for each in await sink.hear("re", 1)] == [last]


async def test_marks_are_lowered_and_rise_with_what_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a backup was put back: the table store knows more than the store file has."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 9})
    fill(tmp_path / "less", "FAST_DAILY", {0: 4})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    for file in (tmp_path / "less").glob("*.cq4"):
        file.rename(tmp_path / "q" / file.name)
    caplog.clear()
    async with live_source(tmp_path / "q") as source:
        assert source.queues["q"].marks[2].acknowledged == written[3][0]
        assert "host 2 may return it" in caplog.text
    with Queue.open(tmp_path / "q") as queue:
        assert queue.acknowledged_index == written[3][0]
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
        assert source.queues["q"].marks[2].acknowledged == written[-1][0]
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_each_copy_counts_once_one_has_given_back_the_end(tmp_path: Path) -> None:
    """The second one has all that the first one has given back, and is sent nothing."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    fill(tmp_path / "less", "FAST_DAILY", {0: 4})
    last = written[-1][0]

    async def all_acked(source: Source) -> None:
        marks = source.queues["q"].marks
        await eventually(lambda: all(each.acknowledged == last for each in marks.values()))
        assert marks.keys() == {2, 3}

    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "two", source.port):
            async with live_sink(tmp_path / "three", source.port, host_id=3):
                await eventually(lambda: len(source.queues["q"].marks) == 2)
                await all_acked(source)
    for file in (tmp_path / "less").glob("*.cq4"):
        file.rename(tmp_path / "q" / file.name)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "two", source.port):
            await acked(source, last)
            async with live_sink(tmp_path / "three", source.port, host_id=3):
                await all_acked(source)
    assert_same(tmp_path / "q", tmp_path / "three")


async def test_its_readers_go_back_to_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else they would pass over what gets the same indexes. At the start of a later cycle nothing
    more was read."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    end, later = written[4][0], noon_index(ahead=1)
    stands = {"replicated:a": written[7][0], "b": written[8][0] + 1, "c": end}
    with Queue.open(tmp_path / "q") as queue:
        for name, index in stands.items():
            queue.named_position(name).move(index)
    fill(tmp_path / "less", "FAST_DAILY", {0: 4})
    for file in (tmp_path / "less").glob("*.cq4"):
        file.rename(tmp_path / "q" / file.name)
    async with live_source(tmp_path / "q"):
        pass
    with Queue.open(tmp_path / "q") as queue:
        found = {name: queue.named_position(name).load() for name in stands}
        assert queue.named_position("replicated:a").version() == 1
        assert found == dict.fromkeys(stands, end)
    assert "its readers 'replicated:a', 'b' had read more" in caplog.text
    caplog.clear()
    with Queue.open(tmp_path / "q") as queue:
        queue.named_position("d").move(later)
    async with live_source(tmp_path / "q"):
        pass
    with Queue.open(tmp_path / "q") as queue:
        assert queue.named_position("d").load() == later
    assert "had read more" not in caplog.text
