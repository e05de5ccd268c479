"""Sources and sinks as a library, in this process, over loopback."""

import threading
from pathlib import Path

import pytest
import trio

from cqrepl.kernel import memory
from cqrepl.net.pump import Pump
from cqrepl.net.roster import Roster
from cqrepl.protocol import Connection, WireShape
from cqrepl.protocol.states import ConnectionState
from cqrepl.queue import Queue, QueueLocked
from cqrepl.replicator.incoming.offersin import WORKERS
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.relay import Relay
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    at,
    copied,
    eventually,
    joined,
    live_sink,
    live_source,
    more_excerpts,
    received,
)
from tests.support.samples import NOON_MS, fill, layout, noon_index, payloads, read

ROLLED = {0: 700, 1: 1, 3: 40}  # skips a cycle


@pytest.mark.parametrize("source_dials", [False, True])
async def test_one_sink(tmp_path: Path, source_dials: bool) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(original, "FAST_DAILY", ROLLED)
    async with joined(original, copy, source_dials=source_dials) as (source, sink):
        await acked(source, written[-1][0])
        assert (source.port is None) == source_dials
        assert read(copy) == written
        assert sink.queues["q"].received_excerpts == len(written)
        assert source.queues["q"].sent_excerpts == len(written)
        assert source.queues["q"].sent_bytes == sum(len(data) for _, data in written)
        assert not source.stops
        assert not sink.stops
    assert read(copy) == written
    with Queue.open(original) as queue:
        assert queue.sent_index == queue.acknowledged_index == written[-1][0]


async def test_no_acknowledgements(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(original, "FAST_DAILY", ROLLED)
    async with live_source(original, acknowledge=False) as source:
        async with live_sink(copy, source.port) as sink:
            await received(sink, len(written))
            assert source.queues["q"].acknowledged == -1
    assert read(copy) == written


@pytest.mark.parametrize("shape", ["network", "seed"])
async def test_both_shapes_of_messages(tmp_path: Path, shape: str) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    more = {"wire_shape": WireShape(shape)}
    async with live_source(tmp_path / "q", **more) as source:
        async with live_sink(tmp_path / "copy", source.port, **more):
            await acked(source, written[-1][0])
    assert read(tmp_path / "copy") == written


async def test_empty_excerpts_and_one_of_a_mebibyte(tmp_path: Path) -> None:
    """A frame that is longer than the usual buffer, between ones without a byte."""
    sizes = (0, 0, 1 << 20, 0, 300_000, 7)
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.appender().append([bytes([7]) * size for size in sizes], NOON_MS)
    written = read(tmp_path / "q")
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    assert read(tmp_path / "copy") == written


async def test_three_sinks_of_different_speeds(tmp_path: Path) -> None:
    """One takes everything at once; one whose gate is closed, and one that came late, wait."""
    original = tmp_path / "q"
    with Queue.open_for_append(original, create=layout()) as queue:
        appender = queue.appender()
        for _ in range(20):  # more than passes before a gate can be closed
            appender.append([bytes(1000)] * 1000, NOON_MS)
    written = read(original)
    last = written[-1][0]
    async with live_source(original) as source:
        async with Relay(source.port).running() as slow, Relay(source.port).running() as slower:
            quick, second, third = tmp_path / "1", tmp_path / "2", tmp_path / "3"
            async with (
                live_sink(quick, source.port, host_id=2),
                live_sink(second, slow.port, host_id=3) as sink,
                live_sink(third, slower.port, host_id=4) as last_sink,
            ):
                await received(sink, 1)
                slow.close_gate()
                await received(last_sink, 1)
                slower.close_gate()
                await copied(original, quick)
                assert sink.queues["q"].received_excerpts < len(written)
                slow.open_gate()
                await copied(original, second)
                assert last_sink.queues["q"].received_excerpts < len(written)
                slower.open_gate()
                await copied(original, third)
                await eventually(
                    lambda: all(
                        each._connection.source(cid).index_acknowledged == last
                        for each in source.endpoint.sessions
                        if isinstance(each, SourceSession)
                        for cid in each.outgoing
                    )
                )
    for path in (quick, second, third):
        assert read(path) == written


async def test_several_queues_on_one_connection(tmp_path: Path) -> None:
    """Also of different roll cycles; the sink makes each like its source."""
    names = {"daily": "FAST_DAILY", "hourly": "FAST_HOURLY", "large": "LARGE_DAILY", "old": "DAILY"}
    written = {q: fill(tmp_path / q, cycle, {0: 300, 1: 3}) for q, cycle in names.items()}
    originals = [tmp_path / name for name in names]
    copies = {name: tmp_path / "copies" / name for name in names}
    async with serve_source(originals, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            for name in names:
                await acked(source, written[name][-1][0], name)
            with pytest.raises(ValueError, match="one of the queues"):
                await source.wait_acked(0)
            with pytest.raises(ValueError, match="'nobody' came"):
                await source.wait_acked(0, "nobody")
        assert len(source.endpoint.sessions) <= 1
    for name in names:
        assert read(copies[name]) == written[name]


@pytest.mark.parametrize("ahead", [0, 1, 1 << 20, 32 << 20])
async def test_what_is_touched_ahead_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ahead: int
) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        appender = queue.appender()
        for nth in range(12):
            last = appender.append([bytes([nth]) * 999] * 1000, NOON_MS + nth // 8 * 86_400_000)
    async with joined(tmp_path / "q", tmp_path / "copy", touch_ahead_bytes=ahead) as (source, sink):
        await acked(source, last)
        has_helper = sink.queues["q"].toucher is not None
    assert has_helper == (ahead > 0 and memory.page_populator() is not None)
    assert ("nothing is touched ahead" in caplog.text) == (ahead > 0 and not has_helper)
    assert "touch-ahead" not in {thread.name for thread in threading.enumerate()}
    assert_same(tmp_path / "q", tmp_path / "copy")
    for name in ("20240305F.cq4", "20240306F.cq4"):
        one, other = ((tmp_path / each / name).read_bytes() for each in ("q", "copy"))
        assert one.rstrip(b"\0") == other.rstrip(b"\0")


async def test_a_long_excerpt_is_not_held_up_by_a_busy_queue(tmp_path: Path) -> None:
    """It needs a buffer of its own; the second queue always has something to send meanwhile."""
    queues = [tmp_path / "long", tmp_path / "busy"]
    copies = {"long": tmp_path / "1", "busy": tmp_path / "2"}
    for path in queues:
        Queue.open_for_append(path, create=layout()).close()

    def append(name: str, data: list[bytes], times: int) -> int:
        with Queue.open_for_append(tmp_path / name) as queue:
            return [queue.appender().append(data, NOON_MS) for _ in range(times)][-1]

    first = {name: append(name, [b"x"], 1) for name in ("long", "busy")}
    log = tmp_path / "log"
    async with serve_source(queues, listen=LOOPBACK, ack_log=log, **BEATS) as source:
        # what is done for new queues only, a sync say, keeps neither of them from its start later
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            for name, index in first.items():
                await acked(source, index, name)
        last = append("long", [bytes(3_000_000)] * 3, 1)
        busy_last = append("busy", [bytes(1000)] * 1000, 200)
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            await acked(source, last, "long")
            await acked(source, busy_last, "busy")
    ends = {name: ENTRY.unpack(read(log / name)[-1][1]) for name in ("long", "busy")}
    at_ns = {name: now_ns for name, (_, _, now_ns, _, _) in ends.items()}
    assert at_ns["long"] < at_ns["busy"]


@pytest.mark.parametrize("are_new", [True, False])
async def test_many_queues_start(tmp_path: Path, are_new: bool) -> None:
    """More than are begun with at a time, and more than are all looked at with each that starts."""
    names = [f"q{nth}" for nth in range(3 * WORKERS)]
    written = {name: fill(tmp_path / name, "FAST_DAILY", {0: 20}) for name in names}
    for name in () if are_new else names:
        fill(tmp_path / f"copy-{name}", "FAST_DAILY", {0: 10})
    copies = {name: tmp_path / f"copy-{name}" for name in names}
    async with serve_source(
        [tmp_path / name for name in names], listen=LOOPBACK, **BEATS
    ) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS) as sink:
            for name, excerpts in written.items():
                await acked(source, excerpts[-1][0], name)
            assert not source.stops + sink.stops
    for name, excerpts in written.items():
        assert read(copies[name]) == excerpts


async def test_a_queue_that_the_sink_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not offered, and the queue that is known goes on."""
    caplog.set_level("INFO")
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    fill(tmp_path / "secret", "FAST_DAILY", {0: 10})
    queues = [tmp_path / "q", tmp_path / "secret"]
    async with serve_source(queues, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0], "q")
            assert not source.stops
    assert "queue 'secret': the peer does not take it now" in caplog.text
    assert "refused" not in caplog.text
    assert [path.name for path in tmp_path.iterdir() if path.name == "copy"] == ["copy"]


async def test_live_appends_by_a_thread(tmp_path: Path) -> None:
    """Another thread appends in small batches, rolling on the way, while the source streams."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open_for_append(original, create=layout("TEST_SECONDLY")) as queue:
        start = threading.Event()
        appender = queue.appender()

        def write() -> None:
            start.wait()
            for nth in range(200):
                appender.append(payloads(10, seed=nth), NOON_MS + 20 * nth)

        async with joined(original, copy) as (source, _):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, write)
                await eventually(lambda: bool(source.endpoint.sessions))
                start.set()
            last = queue.last_index()
            assert last is not None
            await acked(source, last)
    written = read(original)
    assert len(written) == 2000
    assert len({index >> 32 for index, _ in written}) == 4
    assert read(copy) == written


async def test_appends_in_the_same_task(tmp_path: Path) -> None:
    """As an application would: append, then wait until it is safe elsewhere."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open_for_append(original, create=layout()) as queue:
        appender = queue.appender()
        async with joined(original, copy) as (source, _):
            for nth in range(20):
                index = appender.append([b"%d" % nth], NOON_MS)
                await acked(source, index)
                assert read(copy)[-1] == (index, b"%d" % nth)


async def test_a_late_sink_and_one_that_comes_back(tmp_path: Path) -> None:
    original, first, late = tmp_path / "q", tmp_path / "first", tmp_path / "late"
    fill(original, "FAST_DAILY", {0: 300})
    async with live_source(original) as source:
        async with live_sink(first, source.port):
            await copied(original, first)
        more_excerpts(original, 300, 50)
        async with live_sink(late, source.port, host_id=3):
            await copied(original, late)
        more_excerpts(original, 350, 50)
        async with live_sink(first, source.port) as again:
            await copied(original, first)
            assert again.queues["q"].received_excerpts == 100  # no more than it lacked
    assert len(read(first)) == 400


async def test_a_sink_of_a_source_that_is_started_later(tmp_path: Path) -> None:
    """The dialler tries again until the peer listens."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 30})
    port = reserved_port()
    async with live_sink(tmp_path / "copy", port):
        async with live_source(tmp_path / "q", listen=at(port)) as source:
            await acked(source, written[-1][0])


async def test_empty_queue_is_made_and_caught_up(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout("LARGE_HOURLY")):
        pass
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        with trio.fail_after(SECONDS):
            await source.wait_caught_up()
    with Queue.open(tmp_path / "copy") as copy:
        assert copy.layout.roll_cycle.name == "LARGE_HOURLY"
        assert copy.last_index() is None


async def test_caught_up_means_what_was_there_at_the_start(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", ROLLED)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port):
            with trio.fail_after(SECONDS):
                await source.wait_caught_up()
            assert source.queues["q"].acknowledged == written[-1][0]


async def test_source_ends_first(tmp_path: Path) -> None:
    """The sink hears of it, and has everything that was sent."""
    written = fill(tmp_path / "q", "FAST_DAILY", ROLLED)
    async with live_source(tmp_path / "q") as source:
        sink_service = live_sink(tmp_path / "copy", source.port)
        async with sink_service as sink:
            await acked(source, written[-1][0])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sink.wait_ended)
                for pump, session in list(source.endpoint._live.items()):
                    with trio.fail_after(SECONDS):
                        await pump.end(session)
    assert read(tmp_path / "copy") == written


async def test_source_ends_while_a_sink_is_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letting one in can take a moment, in which the end is announced: nothing is offered then."""
    fill(tmp_path / "q", "FAST_DAILY", ROLLED)
    knocked = trio.Event()
    offered = []

    async def let_in_late(self: Roster, host_id: int, pump: Pump) -> None:
        knocked.set()
        await eventually(lambda: pump.connection.state is ConnectionState.ENDING)

    monkeypatch.setattr(Roster, "enter", let_in_late)
    monkeypatch.setattr(Connection, "offer_queue", lambda *args, **more: offered.append(args))
    async with live_source(tmp_path / "q") as source:
        assert source.port is not None
        async with await trio.open_tcp_stream("127.0.0.1", source.port) as stream:
            await stream.send_all(peer.uber(2, 1))
            await knocked.wait()
            (session,) = source.endpoint.sessions
            assert isinstance(session, SourceSession)
            await source.endpoint._end()
    assert session.is_settled
    assert not offered


@pytest.mark.usefixtures("unhurried_ends")
async def test_sink_ends_while_the_source_streams(tmp_path: Path) -> None:
    """The sink acknowledges what it took in before it goes; the source goes on without it."""
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        appender = queue.appender()
        for _ in range(20):
            appender.append([bytes(1000)] * 1000, NOON_MS)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await received(sink, 1)
        await eventually(lambda: not source.endpoint.sessions)
        assert source.endpoint.ended_orderly.is_set()
        there = read(tmp_path / "copy")
        assert source.queues["q"].acknowledged <= there[-1][0]
        async with live_sink(tmp_path / "copy", source.port):
            await copied(tmp_path / "q", tmp_path / "copy")


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Locks are given back, and both directories can be used by another process at once."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    async with joined(tmp_path / "q", tmp_path / "copy"):
        await copied(tmp_path / "q", tmp_path / "copy")
        with pytest.raises(QueueLocked):
            async with serve_sink([tmp_path / "copy"], listen=LOOPBACK):
                raise AssertionError("two sinks of one queue")
    for path in (tmp_path / "q", tmp_path / "copy"):
        with Queue.open_for_append(path) as queue:
            assert queue.append_lock.holder() is None
            queue.appender(to_copy=True).append([b"free"], NOON_MS)
            assert queue.last_index() == noon_index(sequence=10)
