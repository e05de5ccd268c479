"""Live pumps between a real source and a real sink: hand-over, several queues, the end."""

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cqrepl.kernel import live
from cqrepl.kernel.live import Ended, Pausing
from cqrepl.net.livepump import SLICE_MIXED_MS, Came, Heard, LivePump
from cqrepl.net.sharedsocket import FRUITLESS_MAX
from cqrepl.net.socketturn import SocketTurn
from cqrepl.net.tokenbucket import TokenBucket
from cqrepl.protocol.states import SocketMove, SocketState
from cqrepl.queue import Queue
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.net.live_pumps import content
from tests.support.relay import Relay
from tests.support.replicas import BEATS, LOOPBACK, copied, eventually, received

WAIT_S = 30
pytestmark = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")


async def two_heartbeats(source: Source) -> None:
    """Waits until the only connection of a source has been due to beat twice."""
    (pump,) = source.endpoint._live
    seen: set[float] = set()

    def has_seen_two() -> bool:
        seen.add(pump.connection.next_deadline())
        return len(seen) > 2

    await eventually(has_seen_two)


@pytest.mark.parametrize("pauser", ["balanced", "sleepy"])
async def test_every_queue_is_passed_on_whatever_the_others_do(tmp_path: Path, pauser: str) -> None:
    """One has something from the start, one begins later, one rolls, one is closed for good."""
    names = ("busy", "late", "rolls", "over")
    paths = {name: tmp_path / name for name in names}
    copies = {name: tmp_path / f"{name}-copy" for name in names}
    noon_ms = 1_709_640_000_000
    queues = {name: Queue.open(paths[name], create="MINUTELY") for name in names}
    try:
        appenders = {name: queue.appender() for name, queue in queues.items()}
        for name in ("busy", "rolls", "over"):
            appenders[name].append([b"first"], noon_ms)
        appenders["over"].append([b"second"], noon_ms + 60_000)
        async with (
            serve_sink(copies, listen="127.0.0.1:0") as sink,
            serve_source(paths, connect=f"127.0.0.1:{sink.port}", pauser=pauser),
        ):
            for name in ("busy", "rolls", "over"):
                await copied(paths[name], copies[name])
            for minute in range(4):
                for name in ("busy", "late", "rolls"):
                    now_ms = noon_ms + (60_000 * minute if name == "rolls" else 0)
                    appenders[name].append([f"{name} {minute}".encode()] * 300, now_ms)
                    await copied(paths[name], copies[name])
    finally:
        for queue in queues.values():
            queue.close()


async def test_what_is_appended_while_it_streams_comes_in_order(tmp_path: Path) -> None:
    """A backlog, then bursts and single excerpts, over three connections."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open(path, create="FAST_DAILY") as queue:
        queue.append_many([os.urandom(nth % 500 + 1) for nth in range(20_000)])
        async with serve_sink({"q": copy}, listen="127.0.0.1:0") as sink:
            for _ in range(3):
                async with serve_source({"q": path}, connect=f"127.0.0.1:{sink.port}") as source:
                    for nth in range(50):
                        queue.append_many([os.urandom(100)] * (nth % 7 * 100 + 1))
                        await trio.sleep(0.001)
                    last = queue.last_index()
                    assert last is not None
                    with trio.fail_after(WAIT_S):
                        await source.wait_acked(last)
    assert content(copy) == content(path)


async def test_nothing_gets_between_the_parts_of_a_frame(tmp_path: Path) -> None:
    """The peer takes nothing while heartbeats are due and another queue is still without a file."""
    paths = {name: tmp_path / name for name in ("large", "late")}
    copies = {name: tmp_path / f"{name}-copy" for name in paths}
    with (
        Queue.open(paths["large"], create="FAST_DAILY") as large,
        Queue.open(paths["late"], create="FAST_DAILY") as late,
    ):
        large.append_many([os.urandom(150_000)] * 200)
        async with (
            serve_source(paths, listen=LOOPBACK, **BEATS) as source,
            Relay(source.port).running() as relay,
            serve_sink(copies, connect=f"127.0.0.1:{relay.port}", **BEATS) as sink,
        ):
            for _ in range(2):
                before = sink.queues["large"].received_excerpts
                await received(sink, before + 1, "large")
                relay.close_gate()
                await two_heartbeats(source)
                relay.open_gate()
            late.append(b"now")
            for name in paths:
                await copied(paths[name], copies[name])
            assert relay.connections == 1


async def test_cancelling_does_not_wait_for_a_slice(tmp_path: Path) -> None:
    """A pump would be away for a quarter of a second; a task that cancels has it at once."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open(path, create="FAST_DAILY") as queue:
        for _ in range(5):
            queue.append(b"one")  # a sink that has stored nothing is not live
            with trio.fail_after(WAIT_S), trio.CancelScope() as scope:
                async with (
                    serve_sink({"q": copy}, listen="127.0.0.1:0") as sink,
                    serve_source({"q": path}, connect=f"127.0.0.1:{sink.port}") as source,
                ):
                    last = queue.last_index()
                    assert last is not None
                    await source.wait_acked(last)
                    await eventually(lambda: is_live(sink))
                    scope.cancel()
                    await trio.sleep_forever()
            assert scope.cancelled_caught


def is_live(sink: Sink | Source) -> bool:
    """True while a live pump waits for the next excerpt."""
    return any(pump._shared.turn.is_working for pump in sink.endpoint._live)


async def test_what_is_had_back_is_not_lent_at_once(tmp_path: Path) -> None:
    """The task that has the socket back takes a decision, and no pump may run on across it."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open(path, create="FAST_DAILY") as queue:
        queue.append(b"one")
        async with (
            serve_sink({"q": copy}, listen="127.0.0.1:0") as sink,
            serve_source({"q": path}, connect=f"127.0.0.1:{sink.port}") as source,
        ):
            for host in (sink, source) * 5:
                queue.append(b"more")
                await copied(path, copy)
                await eventually(partial(is_live, host))
                (pump,) = host.endpoint._live
                await pump.have_back()
                assert not is_live(host)
                pump.look()


async def test_a_pump_that_is_interrupted_before_it_waits_comes_back(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append(b"one")
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        near = await trio.open_tcp_stream("127.0.0.1", listeners[0].socket.getsockname()[1])
        far = await listeners[0].accept()
        async with near, far, listeners[0]:
            turn = SocketTurn()
            pump = LivePump(near.socket.fileno(), turn)
            with trio.fail_after(WAIT_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pump.guard)
                    nursery.start_soon(_receive_nothing, pump, turn)
                    await wait_all_tasks_blocked(0.05)
                    assert turn.is_working
                    nursery.cancel_scope.cancel()
            assert turn.state is SocketState.RETURNING


async def _receive_nothing(pump: LivePump, turn: SocketTurn) -> None:
    came = Came(Ended.SLICE, b"", b"", Heard(None, None))
    while came.ended is Ended.SLICE:
        if turn.state is SocketState.RETURNING:
            turn.move(SocketMove.TAKE)
        turn.move(SocketMove.LEND)
        came = await pump.run(
            [],
            [],
            pausing=Pausing.BALANCED,
            is_idle=False,
            slice_ms=50,
            data=b"",
            said=b"",
            bucket=TokenBucket(),
        )


async def test_what_was_counted_meanwhile_was_not_in_vain(tmp_path: Path) -> None:
    """A pump that comes back from the end of a file has done something before, though all of that
    is known by then: the next one is lent the socket too."""
    noon_ms = 1_709_640_000_000
    with Queue.open(tmp_path / "q", create="MINUTELY") as queue:
        appender = queue.appender()
        appender.append([b"first"], noon_ms)
        async with (
            serve_sink({"q": tmp_path / "copy"}, listen="127.0.0.1:0") as sink,
            serve_source({"q": tmp_path / "q"}, connect=f"127.0.0.1:{sink.port}"),
        ):
            for minute in range(1, 6):
                for nth in range(2):
                    await received(sink, 2 * minute + nth - 1)  # which asks the lanes
                    await eventually(lambda: is_live(sink))
                    appender.append([b"more"], noon_ms + minute * 60_000)
                (pump,) = sink.endpoint._live
                assert pump._shared._fruitless < FRUITLESS_MAX
        assert content(tmp_path / "copy") == content(tmp_path / "q")


def noted_ends(monkeypatch: pytest.MonkeyPatch) -> list[Ended]:
    """The reasons for which pumps with queues that go out come back, from now on."""
    ends = []
    run = LivePump.run

    async def noting(pump: LivePump, sources: Any, *args: Any, **more: Any) -> Came:
        came = await run(pump, sources, *args, **more)
        if sources:
            ends.append(came.ended)
        return came

    monkeypatch.setattr(LivePump, "run", noting)
    return ends


async def test_a_queue_that_waits_for_its_file_calls_no_pump_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One streams, one has no file yet, one has closed its last one, and one has stopped."""
    ends = noted_ends(monkeypatch)
    names = ("busy", "empty", "closed", "stopped")
    paths = {name: tmp_path / name for name in names}
    copies = {name: tmp_path / f"{name}-copy" for name in names}
    noon_ms = 1_709_640_000_000
    with ExitStack() as stack:
        queues = {
            name: stack.enter_context(Queue.open(path, create="MINUTELY"))
            for name, path in paths.items()
        }
        appenders = {name: queue.appender() for name, queue in queues.items()}
        for name in ("busy", "closed", "stopped"):
            appenders[name].append([name.encode()], noon_ms)
        appenders["closed"].end_cycle()
        with Queue.open(copies["stopped"], create="MINUTELY") as other:
            other.appender().append([b"something else"], noon_ms)
        async with (
            serve_sink(copies, listen="127.0.0.1:0") as sink,
            serve_source(paths, connect=f"127.0.0.1:{sink.port}") as source,
        ):
            await eventually(lambda: bool(source.stops))
            for name in ("busy", "closed"):
                await copied(paths[name], copies[name])
            await eventually(lambda: is_live(source))
            ends.clear()
            until = trio.current_time() + 20 * SLICE_MIXED_MS / 1000
            while trio.current_time() < until:
                last = appenders["busy"].append([b"more"], noon_ms)
                await source.wait_acked(last, "busy")
                await trio.sleep(0.001)
            assert Ended.SLICE not in ends
            for name in ("empty", "closed"):
                appenders[name].append([b"now"], noon_ms + 60_000)
                await copied(paths[name], copies[name])
