"""Queues that a peer lets go of at a bad moment, and other strange peers: nothing breaks."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import serve_sink
from tests.support import peer
from tests.support.peer import (
    data,
    decoded,
    end_of_stream,
    excerpt,
    heartbeats,
    register,
    select,
    sink_handler,
    source_handler,
    uber,
)
from tests.support.replicas import LOOPBACK, eventually, live_sink, live_source, received
from tests.support.samples import fill, layout, noon_index

ANNOUNCED = {"v": 1, "capabilities": ["ended", "queues"], "role": "host"}
HOURLY = {"rollCycle": "FAST_HOURLY"}


def offer(name: str, cid: int, **more: Any) -> bytes:
    return register(f"/replication/{name}/2", cid, sink_handler(0, name=name, **more))


def ended(cid: int) -> bytes:
    return select(cid) + data(ended="enough")


def takes(*names: str) -> bytes:
    kind = peer.Typed("QueuesHandler", {})
    return register("/cqrepl/queues", 9, kind) + select(9) + data(queues={"sink": list(names)})


@asynccontextmanager
async def scripted(
    port: int | None, ours: int, theirs: int, *first: bytes
) -> AsyncIterator[tuple[trio.SocketStream, bytearray]]:
    """A peer that has announced itself; what it was sent."""
    assert port is not None
    heard = bytearray()

    async def hear(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # what was on its way to a host that closes
            async for piece in stream:
                heard.extend(piece)

    async with (
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(hear, stream)
        greeting = uber(theirs, ours, cqrepl=ANNOUNCED) + heartbeats()
        await stream.send_all(greeting + b"".join(first))
        yield stream, heard
        nursery.cancel_scope.cancel()


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a queue takes a moment."""

    prepare = SinkQueue.prepare

    def slow(self: SinkQueue, *args: Any, **more: Any) -> None:
        prepare(self, *args, **more)
        time.sleep(0.2)

    monkeypatch.setattr(SinkQueue, "prepare", slow)


@pytest.mark.usefixtures("slowly")
async def test_offers_that_are_withdrawn_while_their_queues_are_opened(tmp_path: Path) -> None:
    """Even such that could not have been answered, and with a cid that comes again."""
    names = [f"q{nth}" for nth in range(4)]
    for name in names:
        fill(tmp_path / name, "FAST_DAILY", {0: 3})
    queues = {name: tmp_path / name for name in (*names, "new")}
    async with serve_sink(queues, listen=LOOPBACK) as sink:
        wrong = b"".join(
            offer(name, 5 + nth, cqrepl=HOURLY) + ended(5 + nth) for nth, name in enumerate(names)
        )
        async with scripted(sink.port, 2, 1, wrong, offer("new", 5)) as (stream, heard):
            await eventually(lambda: b"SourceReplicationHandler" in heard)
            answers = [each for each in decoded(bytes(heard)) if each.get("cid") == 5]
            (answer,) = [each for each in answers if "handler" in each]
            assert answer["handler"][1]["queueName"] == "new"
            assert answer["handler"][1]["nextIndexRequired"] == 0
            await stream.send_all(offer("q0", 50))
            await eventually(lambda: heard.count(b"SourceReplicationHandler") == 2)
        assert not sink.stops


@pytest.mark.usefixtures("slowly")
async def test_a_queue_is_opened_once_however_often_it_is_offered(tmp_path: Path) -> None:
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        first = offer("q", 5)
        async with scripted(sink.port, 2, 1, first) as (stream, heard):
            await eventually(lambda: sink.queues["q"].owner is not None)
            await stream.send_all(ended(5) + offer("q", 6))
            await eventually(lambda: b"+" in heard)  # it is free again
            await stream.send_all(offer("q", 7))
            await eventually(lambda: b"SourceReplicationHandler" in heard)
        assert not sink.stops


async def test_an_offer_that_only_comes_to_be_taken_back_makes_no_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By it a source says why nothing comes; it says nothing of what the queue is like."""
    said = uber(1, 2, cqrepl={**ANNOUNCED, "capabilities": ["ended", "lineage", "queues"]})
    async with (
        serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink,
        await trio.open_tcp_stream("127.0.0.1", sink.port or 0) as stream,
    ):
        await stream.send_all(said + heartbeats() + offer("q", 5))
        await trio.sleep(0.2)  # what it would do with a queue it has done by then
        await stream.send_all(ended(5))
        await eventually(lambda: "pauses: the peer says: enough" in caplog.text)
        assert not sink.queues["q"].is_open
    assert not (tmp_path / "q").exists()


async def offered_cid(heard: bytearray) -> int:
    await eventually(lambda: b"SinkReplicationHandler" in heard)
    (cid,) = [
        each["cid"]
        for each in decoded(bytes(heard))
        if "SinkReplicationHandler" in str(each.get("handler"))
    ]
    assert isinstance(cid, int)
    return cid


async def test_a_queue_that_has_stopped_is_withdrawn_too(tmp_path: Path) -> None:
    """It is not offered again on this connection, and the source ends in order."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with scripted(source.port, 1, 2, takes("q")) as (stream, heard):
            cid = await offered_cid(heard)
            answer = register("/replication/q/2", cid, source_handler(-1, name="q"))
            again = select(9) + data(**{"+": {"sink": ["q"]}})
            await stream.send_all(answer + ended(cid) + again)
            await eventually(lambda: len(source.stops) == 1)
            with trio.fail_after(30):
                await source.wait_stopped()
            await eventually(lambda: b"ended" in heard)
            assert heard.count(b"SinkReplicationHandler") == 1


async def more_of(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some()
    assert data, "the source has closed"
    return bytes(data)


async def test_a_queue_is_withdrawn_while_a_long_excerpt_waits(tmp_path: Path) -> None:
    """For a buffer of its own; the other queues go on."""
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        for nth in range(60):
            queue.appender().append([bytes(290_000 if nth % 2 else 150_000)])
    async with live_source(tmp_path / "q") as source:
        assert source.port is not None
        for some in range(0, 2_000_000, 400_000):
            async with await trio.open_tcp_stream("127.0.0.1", source.port) as stream:
                greeting = uber(2, 1, cqrepl=ANNOUNCED) + heartbeats() + takes("q")
                await stream.send_all(greeting)
                heard = bytearray()
                while b"SinkReplicationHandler" not in heard:
                    heard.extend(await more_of(stream))
                cid = await offered_cid(heard)
                answer = register("/replication/q/2", cid, source_handler(0, name="q"))
                await stream.send_all(answer + end_of_stream(cid))
                while len(heard) < some:
                    heard.extend(await more_of(stream))
                await stream.send_all(ended(cid))
                with trio.move_on_after(0.1):
                    while True:
                        heard.extend(await stream.receive_some())
            # one that comes before the last has gone takes over from it, a few times and no more
            await eventually(lambda: not source.endpoint.connections)
        async with live_sink(tmp_path / "copy", source.port):
            with Queue.open(tmp_path / "q") as queue:
                last = queue.last_index()
            assert last is not None
            with trio.fail_after(60):
                await source.wait_acked(last)


async def test_a_cid_that_comes_again_stands_for_the_other_queue_alone(tmp_path: Path) -> None:
    """A queue that grows has others looked at that have: the files of the first may be closed."""
    names = ("first", "second", "third")
    async with serve_sink({name: tmp_path / name for name in names}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 2, 1) as (stream, heard):

            async def offered(nth: int, cid: int) -> None:
                await stream.send_all(offer(names[nth], cid))
                await eventually(lambda: heard.count(b"SourceReplicationHandler") == nth + 1)

            await offered(0, 5)
            await stream.send_all(excerpt(noon_index(), b"x", cid=5))
            await received(sink, 1, "first")
            await stream.send_all(ended(5))
            first = sink.queues["first"]
            await eventually(lambda: first.owner is None)
            first.rest()
            await offered(1, 5)
            await offered(2, 6)
            await stream.send_all(excerpt(noon_index(), b"x", cid=6))
            await received(sink, 1, "third")
        assert not sink.stops


async def test_a_queue_that_was_let_go_of_and_then_stops_holds_nothing_up(tmp_path: Path) -> None:
    """Its sink let go of it, and has it offered again, before it is found to be damaged."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with scripted(source.port, 1, 2, takes("q")) as (stream, heard):
            cid = await offered_cid(heard)
            again = select(9) + data(**{"+": {"sink": ["q"]}})
            await stream.send_all(ended(cid) + again)
            await eventually(lambda: heard.count(b"SinkReplicationHandler") == 2)
            (session,) = source.endpoint.sessions
            assert isinstance(session, SourceSession)
            session.stop("q", QueueDamaged("for this test", path=tmp_path / "q"))
            with trio.fail_after(30):
                await source.wait_stopped()
            assert not session.progress.withdrawn
