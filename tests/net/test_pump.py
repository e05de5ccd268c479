"""One connection, against a peer whose bytes are written by hand."""

import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cqrepl.net.pump import Pump
from cqrepl.protocol.events import Connected, RegistrationRefused
from cqrepl.protocol.states import ConnectionState
from tests.net.streams import (
    OURS,
    THEIRS,
    InMemory,
    Recorder,
    greeting,
    lockstep_streams,
    loopback_streams,
    make_pump,
    memory_streams,
    said,
)
from tests.support import peer
from tests.support.replicas import eventually

Stream = InMemory | trio.SocketStream


@asynccontextmanager
async def streams(kind: str) -> AsyncIterator[tuple[Stream, Stream]]:
    """Both ends, in memory or on loopback."""
    if kind == "memory":
        yield memory_streams()
    else:
        async with loopback_streams() as pair:
            yield pair


@asynccontextmanager
async def running(pump: Pump, session: Recorder) -> AsyncIterator[None]:
    """Runs a pump for the length of a block, and longer if it does not end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump.run, session)
        yield


both = pytest.mark.parametrize("kind", ["memory", "loopback"])


@both
async def test_greeting_and_end_of_stream(kind: str) -> None:
    async with streams(kind) as (near, far):
        pump, session = make_pump(near), Recorder()
        async with running(pump, session):
            await far.send_all(greeting())
            uber, beats = await said(far, 2)
            assert uber["handler"][1]["remoteIdentifier"] == OURS
            assert beats["handler"][1]["heartbeatTimeoutMs"] == 40_000
            await far.send_eof()
        assert session.acted == [Connected(remote_id=THEIRS)]
        assert (session.is_closed, pump.heard, pump.ended_orderly) == (1, True, False)
        assert pump.ended_why == "the connection ended without a goodbye"
        assert pump.ended.is_set()
        assert pump.label == f"host {THEIRS} at test"


@both
async def test_orderly_end_by_the_peer(kind: str) -> None:
    async with streams(kind) as (near, far):
        pump, session = make_pump(near), Recorder()
        async with running(pump, session):
            await far.send_all(greeting() + peer.terminator())
        assert pump.ended_orderly
        assert pump.ended_why == "ended in order by the peer"
        assert pump.connection.state is ConnectionState.CLOSED


@both
async def test_peer_resets_while_we_send(kind: str) -> None:
    """The writer meets the broken stream; the reader ends the connection."""
    async with streams(kind) as (near, far):
        pump, session = make_pump(near), Recorder(to_send=1 << 30, piece=1 << 16)
        async with running(pump, session):
            await far.send_all(greeting())
            await said(far, 2) if kind == "memory" else await far.receive_some(1)
            await trio.aclose_forcefully(far)  # type: ignore[arg-type]  # has `aclose`: enough
        assert not pump.ended_orderly
        assert pump.ended_why
        assert session.is_closed == 1


@both
async def test_cancellation_cleans_up(kind: str) -> None:
    async with streams(kind) as (near, far):
        pump, session = make_pump(near), Recorder()
        with trio.CancelScope() as scope:
            async with running(pump, session):
                await far.send_all(greeting())
                await said(far, 2)
                scope.cancel()
        assert scope.cancelled_caught
        assert (session.is_closed, pump.ended.is_set()) == (1, True)
        with pytest.raises(trio.ClosedResourceError):
            await near.send_all(b"x")


@both
async def test_data_is_sent_in_pieces_of_the_session(kind: str) -> None:
    async with streams(kind) as (near, far):
        pump, session = make_pump(near), Recorder(to_send=2500, piece=1000)
        async with running(pump, session):
            await far.send_all(greeting())
            await eventually(lambda: session.framed == 2500)
            await far.send_eof()
        assert session.sizes == [1000, 1000, 500]


async def test_push_back(autojump_clock: MockClock) -> None:
    """While the peer does not receive, no more than one piece is made."""
    near, far = lockstep_streams()
    pump, session = make_pump(near), Recorder(to_send=10_000, piece=1000)
    with trio.move_on_after(10) as scope:
        async with running(pump, session):
            await far.send_all(greeting())
            await said(far, 2)
            await wait_all_tasks_blocked()
            assert session.framed == 1000
            await trio.sleep(5)
            assert session.framed == 1000
            for pieces in (2, 3, 4):
                assert len(await far.receive_some(1000)) == 1000
                await wait_all_tasks_blocked()
                assert session.framed == pieces * 1000
            scope.cancel()
    assert session.is_closed == 1


async def test_control_documents_go_before_frames(autojump_clock: MockClock) -> None:
    near, far = lockstep_streams()
    pump, session = make_pump(near), Recorder(to_send=50, piece=50)
    with trio.CancelScope() as scope:
        async with running(pump, session):
            await far.send_all(greeting())
            assert len(await said(far, 2)) == 2
            assert await far.receive_some(65536) == bytes(50)
            scope.cancel()


async def test_heartbeats_while_idle(autojump_clock: MockClock) -> None:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    start = trio.current_time()
    times: list[float] = []

    async def beat() -> None:
        while True:
            await trio.sleep(0.5)
            await far.send_all(peer.heartbeat())

    with trio.CancelScope() as scope:
        async with running(pump, session), trio.open_nursery() as nursery:
            await far.send_all(greeting(1000, 500))
            await said(far, 2)
            nursery.start_soon(beat)
            while len(times) < 20:
                chosen, heartbeat = await said(far, 2)
                assert set(heartbeat) == {"heartbeat"}
                assert chosen == {"meta": True, "cid": peer.HEARTBEAT_CID}
                times.append(round(trio.current_time() - start, 6))
            scope.cancel()
    assert times == [nth * 0.5 for nth in range(1, 21)]


async def test_silence_ends_the_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    start = trio.current_time()
    async with running(pump, session):
        await far.send_all(greeting(1500, 500))
    assert trio.current_time() - start == pytest.approx(1.5)
    assert pump.ended_why == "nothing received for 1.5 s"
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        f"host {THEIRS} at test: closed: nothing received for 1.5 s"
    ]
    assert near.is_closed


async def test_silence_ends_a_connection_that_is_stuck_in_sending(
    autojump_clock: MockClock,
) -> None:
    near, far = lockstep_streams()
    pump, session = make_pump(near), Recorder(to_send=10_000)
    async with running(pump, session):
        await far.send_all(greeting(1500, 500))
    assert pump.ended_why == "nothing received for 1.5 s"
    assert session.is_closed == 1


async def test_no_greeting_within_5_seconds(autojump_clock: MockClock) -> None:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    start = trio.current_time()
    document = peer.uber(THEIRS, OURS)
    async with running(pump, session):
        for byte in document[:4]:  # one byte a second is no greeting either
            await trio.sleep(1)
            await far.send_all(bytes([byte]))
    assert trio.current_time() - start == pytest.approx(5)
    assert pump.ended_why == "no greeting (an UberHandler) of the peer within 5 s"
    assert pump.was_refused
    assert not session.acted


async def test_a_document_has_30_seconds_to_end(autojump_clock: MockClock) -> None:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    start = trio.current_time()
    async with running(pump, session):
        await far.send_all(greeting() + peer.header(1000))
        for _ in range(29):
            await trio.sleep(1)
            await far.send_all(b"\0")
    assert trio.current_time() - start == pytest.approx(30)
    assert pump.ended_why == "a document that started was not complete after 30 s"


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "binary UberHandler|length|document"),
        (bytes(8), "header"),
        (b"\xff" * 8, "."),
        (peer.heartbeats(), "an UberHandler expected before any other document"),
        (peer.uber(OURS, OURS), "both sides have host id 1"),
        (peer.uber(THEIRS, 9), "the peer expects host id 9, this side has 1"),
    ],
)
async def test_wrong_greeting_is_logged_once_with_its_reason(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, stream: bytes, why: str
) -> None:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    async with running(pump, session):
        await far.send_all(stream)
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert record.getMessage() == f"test: closed: {pump.ended_why}"
    assert re.search(why, pump.ended_why), pump.ended_why
    assert (session.acted, session.is_closed, pump.was_refused) == ([], 1, True)


async def test_a_dialler_leaves_its_complaint_to_whoever_dials_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    near, far = memory_streams()
    config = peer.connection_config(host_id=OURS, is_dialler=True, remote_ids=frozenset({THEIRS}))
    pump, session = make_pump(near, config), Recorder()
    async with running(pump, session):
        await far.send_all(peer.uber(9, OURS))
    assert pump.ended_why == "host id 2 expected, 9 came"
    assert pump.was_refused
    assert not [r for r in caplog.records if r.levelno >= logging.INFO]


async def test_t9_first_refusals_are_logged_and_the_101st_ends_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    async with running(pump, session):
        await far.send_all(greeting())
        for cid in range(101):
            await far.send_all(peer.select(10_000 + cid))
            await wait_all_tasks_blocked()
    refused = [event for event in session.acted if isinstance(event, RegistrationRefused)]
    assert len(refused) == 100
    logged = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(logged) == 2  # they are one reason: the others are counted
    assert logged[0].endswith("refused: cid 10000 is not registered")
    assert logged[1].endswith("closed: more than 100 messages had to be refused")


async def end_of(
    greeted: bytes, after_terminator: Callable[[InMemory], None] | None
) -> tuple[Pump, Recorder, float, list[peer.Message]]:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    async with running(pump, session):
        await far.send_all(greeted)
        heard = await said(far, 2) if greeted else []
        await wait_all_tasks_blocked()
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump.end, session)
            await wait_all_tasks_blocked()
            if after_terminator is not None:
                await far.send_eof()
        took = trio.current_time() - start
    return pump, session, took, heard


async def test_our_end_waits_for_the_peer_to_close(autojump_clock: MockClock) -> None:
    pump, session, took, _ = await end_of(greeting(), lambda stream: None)
    assert took < 0.01
    assert session.is_draining
    assert pump.ended_orderly


async def test_our_end_does_not_wait_for_ever(autojump_clock: MockClock) -> None:
    pump, session, took, _ = await end_of(greeting(), None)
    assert 1 <= took < 1.1
    assert pump.ended_why == "ended"
    assert session.is_closed == 1


def has_announced_end(pump: Pump) -> bool:
    """True once our end was announced."""
    return pump.connection.state is ConnectionState.ENDING


async def test_our_end_waits_for_what_is_under_way(autojump_clock: MockClock) -> None:
    near, far = memory_streams()
    pump, session = make_pump(near), Recorder()
    session.is_settled = False
    async with running(pump, session):
        await far.send_all(greeting())
        await said(far, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump.end, session)
            await trio.sleep(0.5)
            assert not has_announced_end(pump)
            session.is_settled = True
            await trio.sleep(0.1)
            assert has_announced_end(pump)
            await far.send_eof()
    assert pump.ended_orderly
