"""The files of a queue are not closed while a live pump writes to them."""

import errno
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cqrepl.kernel import live
from cqrepl.queue import Queue
from cqrepl.replicator import proofdesk
from cqrepl.replicator.lineage import held
from cqrepl.replicator.sinkqueue import SinkQueue
from cqrepl.replicator.sinksession import SinkSession
from cqrepl.replicator.source import Source
from tests.support.replicas import SECONDS, acked, copied, eventually, joined

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
