"""A queue that its source cannot read for now: it pauses, both sides know why, the rest goes on."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from cqrepl.host import serve_host
from cqrepl.protocol import StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.states import SourceState
from cqrepl.queue import QueueDamaged
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.outgoing.endwatch import EndWatch
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.settings import host_settings
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.net.test_withdrawals import offered_cid
from tests.support.copies import assert_same
from tests.support.peer import (
    acknowledgement,
    end_of_stream,
    heartbeats,
    register,
    source_handler,
    uber,
)
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    acked,
    at,
    eventually,
    live_source,
    more_excerpts,
)
from tests.support.samples import fill, noon_path
from tests.support.unreadable import made_unreadable

CYCLES = {0: 3, 1: 3, 2: 3}
NAMES = ("bad", "good")


@asynccontextmanager
async def plain_sink(source: Source) -> AsyncIterator[tuple[trio.SocketStream, bytearray]]:
    """A sink such as Java's, which knows of no pause: its connection, and what it heard there."""
    heard = bytearray()

    async def hear(stream: trio.SocketStream) -> None:
        async for piece in stream:
            heard.extend(piece)

    async with (
        await trio.open_tcp_stream("127.0.0.1", source.port or 0) as stream,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(hear, stream)
        await stream.send_all(uber(2, 1) + heartbeats())
        yield stream, heard
        nursery.cancel_scope.cancel()


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if words in each.getMessage()]


@pytest.mark.parametrize("goes_both_ways", [False, True])
async def test_a_store_file_that_cannot_be_opened_for_a_while(
    goes_both_ways: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other queue of the connection goes on; each side says it once, and when it is over."""
    caplog.set_level("INFO")
    bad = fill(tmp_path / "bad", "FAST_DAILY", CYCLES)
    fill(tmp_path / "good", "FAST_DAILY", {0: 3})
    bring_back = made_unreadable(noon_path(tmp_path / "bad", ahead=1))
    sources = {name: tmp_path / name for name in NAMES}
    sinks = {name: tmp_path / "copies" / name for name in NAMES}
    other = {"other": tmp_path / "other"} if goes_both_ways else {}
    settings = host_settings(1, 2, listen=LOOPBACK, **BEATS)
    async with serve_host(settings, sources=sources, sinks=other) as host:
        source = host.source
        async with serve_sink(sinks, connect=at(host.port), **BEATS) as sink:
            await eventually(lambda: sink.queues["bad"].life.trouble is not None)
            (session,) = source.endpoint.sessions
            for nth in range(3):  # while it is tried again
                more = more_excerpts(tmp_path / "good", 3 + nth, 1)
                await acked(source, more[-1][0], "good")
                await trio.sleep(0.4)
            assert not source.stops + sink.stops
            pauses = said(caplog, "queue 'bad' pauses: ")
            assert ["the peer says: " in each for each in pauses].count(True) == 1
            assert len(pauses) == 2
            assert all(str(noon_path(tmp_path / "bad", ahead=1)) in each for each in pauses)
            assert not said(caplog, "goes on")
            bring_back()
            await acked(source, bad[-1][0], "bad")
            await eventually(lambda: len(said(caplog, "queue 'bad' goes on")) == 2)
            assert source.endpoint.sessions == [session]
    for name in NAMES:
        assert_same(tmp_path / name, sinks[name])


async def test_a_queue_that_cannot_even_be_offered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end is in the file that cannot be opened: the sink hears why nothing comes."""
    bad = fill(tmp_path / "bad", "FAST_DAILY", CYCLES)
    fill(tmp_path / "good", "FAST_DAILY", {0: 3})
    sinks = {name: tmp_path / "copies" / name for name in NAMES}
    async with serve_source(
        {name: tmp_path / name for name in NAMES}, listen=LOOPBACK, **BEATS
    ) as source:
        bring_back = made_unreadable(noon_path(tmp_path / "bad", ahead=2))
        async with serve_sink(sinks, connect=at(source.port), **BEATS) as sink:
            await eventually(lambda: sink.queues["bad"].life.trouble is not None)
            await acked(source, more_excerpts(tmp_path / "good", 3, 1)[-1][0], "good")
            assert not source.stops + sink.stops
            bring_back()
            await acked(source, bad[-1][0], "bad")
    assert len(said(caplog, "queue 'bad' pauses: ")) == 2
    assert_same(tmp_path / "bad", sinks["bad"])


def failing_once(
    step: str, source: Source, name: str, monkeypatch: pytest.MonkeyPatch
) -> list[bool]:
    """Has one step fail once as the stream of a queue begins. Gets an item then: True where the
    queue counts as streamed by none."""
    queue, place = source.queues[name], {"settle": EndWatch, "begin_marks": Outgoing}[step]
    begin, failed = getattr(place, step), list[bool]()

    def fails_once(one: EndWatch | Outgoing, *args: object, **options: object) -> None:
        if one in (queue.end_watch, *source_outgoing(source, name)) and not failed:
            failed.append(queue.streams == set())
            raise OSError(errno.EMFILE, "Too many open files", str(queue.path))
        begin(one, *args, **options)

    monkeypatch.setattr(place, step, fails_once)
    return failed


@pytest.mark.parametrize("step", ["settle", "begin_marks"])
async def test_a_queue_that_cannot_be_read_as_its_stream_begins(
    step: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue pauses alone, at whichever step that is, and counts as streamed when it is."""
    bad = fill(tmp_path / "bad", "FAST_DAILY", {0: 3})
    fill(tmp_path / "good", "FAST_DAILY", {0: 3})
    sinks = {name: tmp_path / "copies" / name for name in NAMES}
    async with serve_source(
        {name: tmp_path / name for name in NAMES}, listen=LOOPBACK, **BEATS
    ) as source:
        queue = source.queues["bad"]
        failed = failing_once(step, source, "bad", monkeypatch)
        async with serve_sink(sinks, connect=at(source.port), **BEATS) as sink:
            await eventually(lambda: sink.queues["bad"].life.trouble is not None)
            assert queue.streams == set()
            (session,) = source.endpoint.sessions
            await acked(source, bad[-1][0], "bad")
            assert len(queue.streams) == 1
            assert source.endpoint.sessions == [session]
            assert not source.stops + sink.stops
    assert failed == [True]
    assert len(said(caplog, "queue 'bad' pauses: ")) == 2
    assert_same(tmp_path / "bad", sinks["bad"])


def source_outgoing(source: Source, name: str) -> list[Outgoing]:
    found = sessions_of(SourceSession, source.endpoint.sessions)
    each = [one for session in found for one in session.outgoing.values()]
    return [one for one in each if one.queue.name == name]


@pytest.mark.parametrize("is_by_hand", [False, True])
async def test_a_sink_that_cannot_be_told_gets_nothing_for_a_while(
    tmp_path: Path, is_by_hand: bool
) -> None:
    """As Java's: its connection stays, and the stream goes on where it was, also once a pause by
    hand is over."""
    written = fill(tmp_path / "q", "FAST_DAILY", CYCLES)
    bring_back = made_unreadable(noon_path(tmp_path / "q", ahead=1))
    async with live_source(tmp_path / "q") as source, plain_sink(source) as (stream, heard):
        cid = await offered_cid(heard)
        answer = register("/replication/q/2", cid, source_handler(0, name="q"))
        await stream.send_all(answer + end_of_stream(cid))
        await eventually(lambda: written[2][1] in heard)
        (session,) = source.endpoint.sessions
        assert isinstance(session, SourceSession)
        await eventually(lambda: bool(session.troubles))
        if is_by_hand:
            await source.pause("q")
        bring_back()
        if is_by_hand:
            source.resume("q")
        await eventually(lambda: written[-1][1] in heard)
        assert all(heard.count(payload) == 1 for _, payload in written if len(payload) > 8)
        await stream.send_all(acknowledgement(written[-1][0], ns=0, cid=cid))
        assert not session.troubles
        assert source.endpoint.sessions == [session]


@pytest.mark.parametrize("step", ["settle", "begin_marks"])
async def test_a_stream_that_could_not_begin_for_a_sink_that_cannot_be_told(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins when it is tried again, with all that comes with a beginning."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        failed = failing_once(step, source, "q", monkeypatch)
        async with plain_sink(source) as (stream, heard):
            cid = await offered_cid(heard)
            answer = register("/replication/q/2", cid, source_handler(0, name="q"))
            await stream.send_all(answer + end_of_stream(cid))
            (session,) = source.endpoint.sessions
            await eventually(lambda: written[-1][1] in heard)
            assert failed == [True]
            await stream.send_all(acknowledgement(written[-1][0], ns=0, cid=cid))
            await acked(source, written[-1][0])
            assert len(source.queues["q"].streams) == 1
            assert source.endpoint.sessions == [session]


async def test_an_answer_that_comes_after_the_stop_begins_no_stream(tmp_path: Path) -> None:
    """A sink such as Java's knows of no stop, and answers what it was offered before."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source, plain_sink(source) as (stream, heard):
        cid = await offered_cid(heard)
        (session,) = source.endpoint.sessions
        assert isinstance(session, SourceSession)
        session.stop("q", QueueDamaged("for this test", path=tmp_path / "q"))
        await eventually(lambda: bool(source.stops))
        answer = register("/replication/q/2", cid, source_handler(0, name="q"))
        await stream.send_all(answer + end_of_stream(cid))
        core = session._connection.source(Cid(cid))
        await eventually(lambda: core.state is SourceState.STREAMING)
        await trio.sleep(0.3)
        assert not any(payload in heard for _, payload in written if len(payload) > 8)
        assert not source.queues["q"].streams
        assert source.stops[0].reason is StopReason.DAMAGED
