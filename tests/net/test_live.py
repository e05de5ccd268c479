"""Live pumps between a real source and a real sink: hand-over, several queues, the end."""

import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from cqrepl.kernel import live
from cqrepl.net.socketturn import OutgoingTurn, SocketTurn
from cqrepl.protocol import LocalProtocolError, StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.proofs import write_identity
from cqrepl.protocol.states import (
    OUTGOING_MOVES,
    SOCKET_MOVES,
    OutgoingMove,
    OutgoingState,
    SocketMove,
    SocketState,
)
from cqrepl.queue import Appender, Queue, QueueError
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.format.identity import Identity
from cqrepl.replicator.agreement.lineage import held
from cqrepl.replicator.incoming import proofdesk
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.incoming.sinksession import SinkSession
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.net.live_pumps import content
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
    received,
    stopped,
)

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


needs_pump = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pump")


def none_left() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def is_lent(queue: SinkQueue) -> bool:
    """True while a live pump takes a queue in."""
    session = queue.owner
    lent = session._lanes.each if isinstance(session, SinkSession) else ()
    return any(other is queue for _, other, _ in lent)


async def fails_in_a_proof(
    source: Source, queue: SinkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source asks what the copy holds; that cannot be read, in a thread, while more comes."""
    seen: list[bool] = []

    def fails(*arguments: object) -> object:
        monkeypatch.setattr(proofdesk, "held", held)  # the next time all is well
        end = time.monotonic() + SECONDS
        while not is_lent(queue) and time.monotonic() < end:
            time.sleep(0.001)
        seen.append(is_lent(queue))
        raise none_left()

    monkeypatch.setattr(proofdesk, "held", fails)
    for session in source._caught_up():
        session.ask_audits()
    await eventually(lambda: bool(seen))
    assert seen == [True]


async def fails_beside_the_stream(
    source: Source, queue: SinkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await eventually(lambda: is_lent(queue))
    assert queue.owner is not None
    queue.owner.stop("q", none_left())


@needs_pump
@pytest.mark.parametrize("fail", [fails_in_a_proof, fails_beside_the_stream])
async def test_a_queue_that_finds_too_few_descriptors_is_closed_behind_its_pump(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[Source, SinkQueue, pytest.MonkeyPatch], Awaitable[None]],
) -> None:
    """Its descriptors have the numbers of other files from then on: what the pump then stored, it
    would write there."""
    closed: list[bool] = []
    close_files = SinkQueue._close_files

    def noted(queue: SinkQueue) -> None:
        closed.append(is_lent(queue))
        close_files(queue)

    with Queue.open(tmp_path / "q", create="FAST_DAILY") as original:
        original.append(b"first")
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
            await acked(source, original.append(b"second"))
            monkeypatch.setattr(SinkQueue, "_close_files", noted)
            await fail(source, sink.queues["q"], monkeypatch)
            await eventually(lambda: bool(closed))
            assert closed == [False]
            await acked(source, original.append(bytes(64 << 10)))  # it goes on when its pause ends
            await copied(tmp_path / "q", tmp_path / "copy")
            assert not sink.stops


async def test_a_queue_that_finds_too_few_descriptors_is_closed_behind_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread makes room in that queue, as another queue of the connection needs some."""
    begun, goes_on, seen = threading.Event(), threading.Event(), list[bool]()
    reserve_ahead = Appender.reserve_ahead

    def late(appender: Appender) -> None:
        begun.set()
        assert goes_on.wait(SECONDS)
        seen.append(appender.is_closed)
        reserve_ahead(appender)

    paths = {name: tmp_path / name for name in ("q", "other")}
    copies = {name: tmp_path / f"{name}-copy" for name in paths}
    with (
        Queue.open(paths["q"], create="FAST_DAILY") as original,
        Queue.open(paths["other"], create="FAST_DAILY") as other,
    ):
        original.append(b"first")
        async with (
            serve_source(paths, listen=LOOPBACK, **BEATS) as source,
            serve_sink(copies, connect=at(source.port), **BEATS) as sink,
        ):
            await acked(source, original.append(b"second"), "q")
            queue = sink.queues["q"]
            session = queue.owner
            assert isinstance(session, SinkSession)
            await eventually(lambda: sink.queues["other"].owner is session)
            monkeypatch.setattr(Appender, "reserve_ahead", late)
            index = other.append(b"first")  # its first store file is made
            await eventually(begun.is_set)
            session.stop("q", none_left())
            assert session.uses("q")
            goes_on.set()
            await acked(source, index, "other")
            assert seen == [False]
            await eventually(lambda: queue._queue is None)
            await acked(source, original.append(b"third"), "q")  # when its pause ends
            assert not sink.stops


@needs_pump
async def test_a_queue_that_is_told_of_another_identity_has_one_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread judges it while the live pump stores on: the thread writes to no store file, the
    pump is back before the queue stops, and what the copy has until then is whole."""
    stored_meanwhile, lent_at_stop = list[bool](), list[bool]()
    take_identity, stop = SinkQueue.take_identity, SinkSession._stop

    def late(queue: SinkQueue, of_source: Identity) -> None:
        before, end = content(tmp_path / "copy"), time.monotonic() + SECONDS
        while content(tmp_path / "copy") == before and time.monotonic() < end:
            original.append(b"meanwhile")
            time.sleep(0.01)
        stored_meanwhile.append(content(tmp_path / "copy") != before and is_lent(queue))
        take_identity(queue, of_source)

    def noted(session: SinkSession, cid: Cid, name: str, error: QueueError | OSError) -> None:
        lent_at_stop.append(is_lent(session._queues[name]))
        stop(session, cid, name, error)

    monkeypatch.setattr(SinkSession, "_stop", noted)
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as original:
        original.append(b"first")
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
            await acked(source, original.append(b"second"))
            await eventually(lambda: is_lent(sink.queues["q"]))
            monkeypatch.setattr(SinkQueue, "take_identity", late)
            (session,) = source._caught_up()
            (cid,) = session.outgoing
            handler = session._connection.source(cid)
            handler._outbox.send(handler.cid_document, write_identity(new_identity()))
            session._pump.wake()
            await stopped(sink)
            (why,) = sink.stops
            assert why.reason is StopReason.REFUSED
        assert stored_meanwhile == [True]
        assert lent_at_stop == [False]
    copy = content(tmp_path / "copy")
    assert copy == content(tmp_path / "q")[: len(copy)]


TO_SOCKET = {
    SocketState.TASKS: (),
    SocketState.LENT: (SocketMove.LEND,),
    SocketState.WORKING: (SocketMove.LEND, SocketMove.START),
    SocketState.RETURNING: (SocketMove.LEND, SocketMove.START, SocketMove.COME_BACK),
    SocketState.OVER: (SocketMove.END,),
}
TO_OUTGOING = {
    OutgoingState.WRITER: (),
    OutgoingState.LEFT: (OutgoingMove.LEAVE,),
    OutgoingState.LENT: (OutgoingMove.LEAVE, OutgoingMove.LEND),
}


def check_move(turn: Any, state: Enum, move: Enum, moves: Mapping[tuple[Any, Any], Enum]) -> None:
    """Makes a move in a state, and expects what the table says."""
    assert turn.state is state
    after = moves.get((state, move))
    if after is None:
        with pytest.raises(LocalProtocolError, match=f"{move.name} is not allowed while"):
            turn.move(move)
    else:
        turn.move(move)
    assert turn.state is (after or state)


@pytest.mark.parametrize(("state", "move"), list(product(SocketState, SocketMove)))
def test_the_socket_moves_as_its_table_says(state: SocketState, move: SocketMove) -> None:
    turn = SocketTurn()
    for step in TO_SOCKET[state]:
        turn.move(step)
    check_move(turn, state, move, SOCKET_MOVES)
    assert turn.is_working == (turn.state is SocketState.WORKING)
    assert turn.is_back == (turn.state in (SocketState.TASKS, SocketState.OVER))


@pytest.mark.parametrize(("state", "move"), list(product(OutgoingState, OutgoingMove)))
def test_queues_that_go_out_move_as_their_table_says(
    state: OutgoingState, move: OutgoingMove
) -> None:
    turn = OutgoingTurn()
    for step in TO_OUTGOING[state]:
        turn.move(step)
    check_move(turn, state, move, OUTGOING_MOVES)
    assert turn.is_writers == (turn.state is OutgoingState.WRITER)
    assert turn.is_lent == (turn.state is OutgoingState.LENT)


@pytest.mark.parametrize("last", [SocketMove.TAKE, SocketMove.END])
async def test_who_waits_for_the_socket_goes_on_when_it_is_back_or_over(
    autojump_clock: trio.testing.MockClock, last: SocketMove
) -> None:
    turn = SocketTurn()
    is_back = trio.Event()

    async def wait() -> None:
        await turn.back()
        is_back.set()

    turn.move(SocketMove.LEND)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for move in (SocketMove.START, SocketMove.COME_BACK):
            turn.move(move)
            await trio.sleep(1)
            assert not is_back.is_set()
        turn.move(last)
        await is_back.wait()


def has_lent(host: Sink | Source) -> bool:
    """True while a live pump runs."""
    return any(pump._shared.turn.is_working for pump in host.endpoint._live)


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")
async def test_hosts_make_every_move_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pump is lent the socket, hands it back, gets it again, and the connection ends."""
    made: set[tuple[Enum, Enum]] = set()

    def noting(kind: Any) -> None:
        make = kind.move

        def move(self: Any, move: Any) -> None:
            before = self.state
            make(self, move)
            made.add((before, move))

        monkeypatch.setattr(kind, "move", move)

    noting(SocketTurn)
    noting(OutgoingTurn)
    path, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open(path, create="FAST_DAILY") as queue:
        async with (
            serve_sink({"q": copy}, listen="127.0.0.1:0") as sink,
            serve_source({"q": path}, connect=f"127.0.0.1:{sink.port}") as source,
        ):
            for nth in range(3):
                queue.append(b"%d" % nth)
                await copied(path, copy)
                for host in (sink, source):
                    await eventually(partial(has_lent, host))
                    (pump,) = host.endpoint._live
                    await pump.have_back()
                    pump.look()
    usual = {pair for pair in SOCKET_MOVES if SocketMove.END not in pair}
    assert made >= usual | OUTGOING_MOVES.keys()
    assert {move for _, move in made} >= {SocketMove.END}
