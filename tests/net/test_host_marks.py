"""The marks of each sink host: over its connections, over restarts of the source, in `Source`."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.net import sharedsocket
from cqrepl.queue import Queue
from cqrepl.queue.files.keptmarks import KEY_END_MAX, KEYS_END_WARNED
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME
from cqrepl.queue.write.retention import Policy, plan
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.marks.ackboard import AckBell, WaitEnded
from cqrepl.replicator.marks.hostmarks import HostMarks, QueueMarks
from cqrepl.replicator.source import Source
from tests.support import peer
from tests.support.relay import Relay
from tests.support.replicas import (
    SECONDS,
    acked,
    copied,
    eventually,
    live_sink,
    live_source,
    more_excerpts,
    stopped,
)
from tests.support.samples import fill, noon_index
from tests.support.scripted import scripted
from tests.support.tables import fill_keys, keys_of, set_word

LOGGER = "cqrepl.replicator.marks.hostmarks"


def marks_in(source: Source) -> dict[int, tuple[int, int]]:
    """Sent and acknowledged of each host."""
    marks: Mapping[int, HostMarks] = source.queues["q"].marks
    assert all(each.host_id == host_id for host_id, each in marks.items())
    return {host_id: (each.sent, each.acknowledged) for host_id, each in marks.items()}


def may_go(path: Path) -> list[bool]:
    """For each store file, true when `cqrepl gc` would delete it."""
    with Queue.open(path) as queue:
        return [one.is_removable for one in plan(queue.cycles, Policy())]


def marks_of_java(path: Path) -> tuple[int, int]:
    with Queue.open(path) as queue:
        return queue.sent_index, queue.acknowledged_index


def both(index: int) -> tuple[int, int]:
    return index, index


@pytest.fixture(params=[True, False], ids=["usual", "without a live pump"])
def has_pump(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(sharedsocket, "pump_for", lambda *_: None)
    return bool(request.param)


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


@pytest.mark.usefixtures("has_pump")
async def test_one_excerpt_after_another_raises_the_marks(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    async with live_source(path) as source, live_sink(tmp_path / "copy", source.port):
        for sequence in range(3, 13):
            index = more_excerpts(path, sequence, 1)[-1][0]
            await acked(source, index)
            assert marks_in(source) == {2: both(index)}
            assert keys_of(path)["cqrepl.2.snt"] == keys_of(path)["cqrepl.2.idx"] == index


async def test_marks_are_kept_over_a_reconnect(tmp_path: Path) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 200})
    async with live_source(path) as source, Relay(source.port).running() as relay:
        async with live_sink(copy, relay.port):
            await acked(source, written[-1][0])
            marks = source.queues["q"].marks[2]
            relay.reset()
            assert marks_in(source) == {2: both(written[-1][0])}
            last = more_excerpts(path, 200, 20)[-1][0]
            await copied(path, copy)
            await eventually(lambda: marks_in(source) == {2: both(last)})
            assert source.queues["q"].marks[2] is marks


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


async def test_what_a_host_had_before_is_acknowledged(tmp_path: Path) -> None:
    """Nothing goes over the wire: it was never sent."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    last = fill(path, "FAST_DAILY", {0: 20})[-1][0]
    fill(copy, "FAST_DAILY", {0: 20})
    async with live_source(path) as source, live_sink(copy, source.port, host_id=7):
        await eventually(lambda: marks_in(source) == {7: (-1, last)})
    assert "cqrepl.7.snt" not in keys_of(path)


async def test_a_source_that_asks_for_no_acknowledgements_marks_what_it_sent(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q"
    last = fill(path, "FAST_DAILY", {0: 20})[-1][0]
    async with live_source(path, acknowledge=False) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await eventually(lambda: marks_in(source) == {2: (last, -1)})


async def test_with_a_full_table_store_marks_are_in_the_side_file(tmp_path: Path) -> None:
    path = tmp_path / "q"
    last = fill(path, "FAST_DAILY", {0: 20})[-1][0]
    fill_keys(path, KEY_END_MAX)
    async with live_source(path) as source, live_sink(tmp_path / "copy", source.port):
        await acked(source, last)
    assert (path / SLOTS_FILE_NAME).exists()
    async with live_source(path) as source:
        assert marks_in(source) == {2: both(last)}


async def test_where_nothing_can_be_kept_marks_live_as_long_as_the_source(tmp_path: Path) -> None:
    path = tmp_path / "q"
    last = fill(path, "FAST_DAILY", {0: 20})[-1][0]
    (path / "metadata.cq4t").unlink()
    async with live_source(path) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, last)
        assert marks_in(source) == {2: both(last)}
    assert marks_in(source) == {2: both(last)}, "still to be read"
    async with live_source(path) as source:
        assert marks_in(source) == {}


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


def has_marks(source: Source, host_id: int) -> bool:
    return host_id in source.queues["q"].marks


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


async def test_a_table_store_that_is_nearly_full_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q"
    last = fill(path, "FAST_DAILY", {0: 20})[-1][0]
    fill_keys(path, KEYS_END_WARNED - 100)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        async with live_source(path) as source:
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, last)
            assert warnings(caplog) == []
            fill_keys(path, KEYS_END_WARNED + 1)
            for host_id in (3, 4):
                async with live_sink(tmp_path / f"copy{host_id}", source.port, host_id=host_id):
                    await eventually(partial(has_marks, source, host_id))
            [said] = warnings(caplog)
            with Queue.open(path) as queue:
                end = queue.host_marks.keys_end()
            assert f"'q': the keys of its table store end at {end} bytes; behind 65536" in said
        async with live_source(path):
            assert len(warnings(caplog)) == 2


async def test_marks_that_cannot_be_read_stop_no_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q"
    last = fill(path, "FAST_DAILY", {0: 20})[-1][0]
    (path / SLOTS_FILE_NAME).mkdir()
    async with live_source(path) as source, live_sink(tmp_path / "copy", source.port):
        await acked(source, last)
        assert marks_in(source) == {2: both(last)}
    assert "cannot be read" in warnings(caplog)[0]


def test_guests_have_marks_that_nobody_else_sees(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    before = keys_of(path)
    with Queue.open(path) as queue:
        marks = QueueMarks("q", queue.host_marks, AckBell().board("q"))
        guest = marks.of(0)
        guest.raise_sent(noon_index(sequence=2))
        assert guest.sent == noon_index(sequence=2)
        assert marks.known() == {}
        assert marks.of(0) is not guest
    assert keys_of(path) == before


def test_marks_rise_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    set_word(path, "cqrepl.2.snt", 0x20)
    set_word(path, "cqrepl.9.idx", -1)
    with Queue.open(path) as queue:
        marks = QueueMarks("q", queue.host_marks, AckBell().board("q"))
        host = marks.of(2)
        host.raise_sent(0x10)
        host.raise_acknowledged(0x08)
        host.raise_acknowledged(0x07)
        assert repr(host) == "HostMarks(2, sent=0x20, acknowledged=0x8, synced=-1, applied=-1)"
        assert repr(marks.of(9)) == "HostMarks(9, sent=-1, acknowledged=-1, synced=-1, applied=-1)"
        assert list(marks.known()) == [2]
    assert keys_of(path)["cqrepl.2.snt"] == 0x20
    assert keys_of(path)["cqrepl.2.idx"] == 8


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
