"""Turns: of queues that go out on one connection, and of the two directions."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
import trio

from cqrepl.bench.catchup import BenchLogEntry, log_entries
from cqrepl.kernel import live
from cqrepl.net.link import OUT_BYTES
from cqrepl.protocol.messages import write_cid
from cqrepl.queue import Queue
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.surroundings import surroundings
from tests.net.live_pumps import CID, LONG_MS, Ends, Running, source_lane
from tests.support.replicas import BEATS, LOOPBACK, acked, at, received

SOCKET_BYTES: Final = 64 << 10
MUCH: Final = 48 << 20  # far more than what two sockets hold
PIECE: Final = 16 << 10


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")
def test_what_comes_now_and_then_does_not_wait_for_all_that_have_much(tmp_path: Path) -> None:
    """Of many queues with a backlog one buffer at most goes before it, of those not sent yet."""
    count, excerpt = 24, bytes(8192)
    with ExitStack() as stack:
        ends = stack.enter_context(Ends.connected())
        for end, option in ((ends.near, socket.SO_SNDBUF), (ends.far, socket.SO_RCVBUF)):
            end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        lanes = []
        for nth in range(count + 1):
            path = tmp_path / str(nth)
            queue = stack.enter_context(Queue.open(path, create="FAST_DAILY"))
            queue.append_many([excerpt] * 96 if nth < count else [b"first"])
            lanes.append(source_lane(queue.tailer(), cid=CID + nth))
        running = Running(lambda: ends.stream(*lanes, slice_ms=LONG_MS))
        cid = write_cid(CID + count)
        try:
            assert read_up_to(ends.far, cid) > 0
            passed = []
            for _ in range(4):
                queue.append(b"now")
                passed.append(read_up_to(ends.far, cid))
        finally:
            ends.control.interrupt()
            running.ended()
    # what had been framed, and was in the sockets, goes before it
    assert max(passed) <= 2 * OUT_BYTES + 8 * SOCKET_BYTES


def read_up_to(end: socket.socket, part: bytes) -> int:
    """Receive until these bytes have come; the number of bytes received."""
    data, at = b"", -1
    while at < 0:
        more = end.recv(4096)
        assert more
        data += more
        at = data.find(part, max(0, len(data) - len(more) - len(part)))
    return len(data)


def backlog(queue: Queue, size: int = MUCH) -> int:
    """Appends that much at once; the last index."""
    last = 0
    for _ in range(size // PIECE // 256):
        last = queue.append_many([bytes(PIECE)] * 256)
    return last


def bytes_between(noted: Sequence[BenchLogEntry], after_ns: int, before_ns: int) -> int:
    """The payload bytes that a sink has stored in a span of time."""
    return sum(each.payload_bytes for each in noted if after_ns < each.noted_ns < before_ns)


async def test_a_queue_with_a_backlog_does_not_hold_up_another_one(tmp_path: Path) -> None:
    names, log = ("much", "little"), tmp_path / "log"
    paths = {name: tmp_path / name for name in names}
    copies = {name: tmp_path / f"{name}-copy" for name in names}
    with (
        Queue.open(paths["much"], create="FAST_DAILY") as much,
        Queue.open(paths["little"], create="FAST_DAILY") as little,
    ):
        for queue in (much, little):
            queue.append(b"first")
        async with (
            serve_source(paths, listen=LOOPBACK, **BEATS) as source,
            serve_sink(copies, connect=at(source.port), append_log=log, **BEATS) as sink,
        ):
            for name in names:
                await received(sink, 1, name)
            await trio.to_thread.run_sync(backlog, much)
            singles = []
            for nth in range(8):
                await received(sink, 1 + nth * MUCH // PIECE // 16, "much")
                index = little.append(b"now")
                singles.append((index, surroundings().monotonic_ns()))
            last = much.last_index()
            assert last is not None
            await acked(source, last, "much")
            await acked(source, singles[-1][0], "little")
    noted = list(log_entries(log / "much"))
    little_noted = list(log_entries(log / "little"))
    for index, after_ns in singles:
        stored = next(each for each in little_noted if each.index_last >= index)
        # what is in the sockets goes before it
        assert bytes_between(noted, after_ns, stored.noted_ns) < MUCH / 2
