"""The files of a queue are not closed while a live pump writes to them."""

import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from cqrepl.kernel import live
from cqrepl.protocol import StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.proofs import write_identity
from cqrepl.queue import Appender, ExcerptBatch, Queue, QueueError
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.format.identity import Identity
from cqrepl.replicator.agreement.lineage import held
from cqrepl.replicator.incoming import proofdesk, sinklanes
from cqrepl.replicator.incoming.sinklanes import OTHERS_MAX
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.incoming.sinksession import SinkSession
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.net.live_pumps import content
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    at,
    copied,
    eventually,
    joined,
    stopped,
)

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


async def test_few_others_are_looked_at_with_each_queue_that_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection may have many; none is looked at that is let go of, which its owner closes."""
    looked_at: list[list[str]] = []
    reserve = sinklanes.reserve

    def noted(queue: SinkQueue, batch: ExcerptBatch, others: list[SinkQueue]) -> None:
        looked_at.append([other.name for other in others])
        reserve(queue, batch, others)

    monkeypatch.setattr(sinklanes, "reserve", noted)
    *names, last, very_last = [f"q{nth}" for nth in range(2 * OTHERS_MAX)]
    paths = {name: tmp_path / name for name in (*names, last, very_last)}
    copies = {name: tmp_path / f"{name}-copy" for name in paths}
    with ExitStack() as stack:
        queues = {
            name: stack.enter_context(Queue.open(path, create="FAST_DAILY"))
            for name, path in paths.items()
        }
        async with (
            serve_source(paths, listen=LOOPBACK) as source,
            serve_sink(copies, connect=at(source.port)) as sink,
        ):
            for name in names:
                await acked(source, queues[name].append(b"first"), name)
            assert [len(others) for others in looked_at] == [
                min(nth, OTHERS_MAX) for nth in range(len(names))
            ]
            seen = {name for others in looked_at for name in others}
            assert len(seen) > OTHERS_MAX  # not the same ones again and again
            await sink.pause(names[0])
            looked_at.clear()
            for name in (last, very_last):
                await acked(source, queues[name].append(b"first"), name)
            once_more = [name for others in looked_at for name in others]
            assert set(once_more) >= set(names[1:])
            assert names[0] not in once_more


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
