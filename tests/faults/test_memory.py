"""A sink that has stopped reading costs its source no memory, however much is waiting."""

import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from tests.support import peer
from tests.support.commands import Command, commands
from tests.support.processes import private_bytes
from tests.support.replicas import at, eventually, last_of
from tests.support.samples import NOON_MS, layout, noon_index
from tests.support.scripted import scripted

MIB = 1 << 20
GROWTH_MAX = 16 * MIB
EXCERPT = 64 * 1024
BATCH = 256
STILL_SECONDS = 0.5
UNDER_WAY_MAX = 100 * MIB  # the window and both buffers of the system


@pytest.fixture(scope="module")
def long_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """256 MiB in excerpts of 64 KiB: far more than may be under way."""
    path = tmp_path_factory.mktemp("long") / "q"
    Queue.open_for_append(path, create=layout()).close()
    append(path, 256 * MIB)
    yield path
    for file in path.iterdir():
        file.unlink()


def append(path: Path, size: int) -> None:
    """Appends so many bytes."""
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        for _ in range(size // (BATCH * EXCERPT)):
            appender.append([os.urandom(8) * (EXCERPT // 8)] * BATCH, NOON_MS)


def unsent_bytes(port: int) -> int:
    """The bytes in the send buffer of the connected socket at a port of this machine."""
    waiting = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if int(local.partition(":")[2], 16) == port and state == "01":
            waiting += int(queues.partition(":")[0], 16)
    return waiting


async def stands_still(path: Path) -> int:
    """Waits until the mark of what was sent has not moved for a while; where it stands.

    On a busy machine it may move once more, and never far: the caller tells how far it may be.
    """
    with Queue.open(path) as queue:
        with trio.fail_after(100):
            while True:
                sent = queue.sent_index
                await trio.sleep(STILL_SECONDS)
                if queue.sent_index == sent:
                    return sent


async def watched(source: Command, peaks: list[int]) -> None:
    while not source.ended.is_set():
        peaks.append(private_bytes(source.pid))
        await trio.sleep(0.02)


@asynccontextmanager
async def flat_source(queue: Path) -> AsyncIterator[int]:
    """The port of a source whose memory must stay as it is for the length of a block."""
    async with commands(300) as start, trio.open_nursery() as nursery:
        source = await start("source", queue, "--listen", "127.0.0.1:0")
        port = await source.port()
        before = private_bytes(source.pid)
        peaks: list[int] = []
        nursery.start_soon(watched, source, peaks)
        yield port
        assert max(peaks) - before < GROWTH_MAX, f"{max(peaks) - before:,} bytes"
        nursery.cancel_scope.cancel()


async def test_t6_sink_that_stops_reading(long_queue: Path, tmp_path: Path) -> None:
    async with flat_source(long_queue) as port, scripted(port, 2, 1) as sink:
        _, cid = await sink.answer(0)
        await sink.send(peer.end_of_stream(cid))
        await sink.hear("re", 1)  # the stream has begun; nothing is read any more
        first = noon_index()
        await eventually(lambda: unsent_bytes(port) > 0)  # the socket is full
        assert (await stands_still(long_queue) - first) * EXCERPT < UNDER_WAY_MAX
        append(long_queue, 160 * MIB)  # the lag grows, the mark does not
        assert (await stands_still(long_queue) - first) * EXCERPT < UNDER_WAY_MAX
        # another sink is served all the while
        last = last_of(long_queue)
        assert last is not None
        async with scripted(port, 3, 1) as other:
            _, cid = await other.answer(last - 3)
            await other.send(peer.end_of_stream(cid))
            assert len(await other.hear("re", 4)) == 4


async def test_sink_that_never_acknowledges(long_queue: Path) -> None:
    """It reads everything: the window ends the stream, and bounds what is kept for it."""
    async with flat_source(long_queue) as port, scripted(port, 2, 1) as sink:
        _, cid = await sink.answer(0)
        await sink.send(peer.end_of_stream(cid))
        taken = 0
        with trio.fail_after(100):
            while taken < 60 * MIB:
                taken += len(await sink.stream.receive_some(MIB))
        with trio.move_on_after(STILL_SECONDS) as idle:
            while data := await sink.stream.receive_some(MIB):
                taken += len(data)
                idle.deadline = trio.current_time() + STILL_SECONDS
        assert idle.cancelled_caught
        assert taken < 70 * MIB
        assert unsent_bytes(port) == 0


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_both_sides_over_a_gibibyte(long_queue: Path, tmp_path: Path) -> None:
    """Neither of two processes grows with what passes through it."""
    append(long_queue, 768 * MIB)
    async with commands(300) as start, trio.open_nursery() as nursery:
        source = await start("source", long_queue, "--listen", "127.0.0.1:0")
        address = at(await source.port())
        sink = await start("sink", f"q={tmp_path / 'copy'}", "--connect", address)
        await sink.says(re.compile("connected"))
        before = {each: private_bytes(each.pid) for each in (source, sink)}
        peaks: dict[Command, list[int]] = {source: [], sink: []}
        for each, seen in peaks.items():
            nursery.start_soon(watched, each, seen)
        last = last_of(long_queue)
        await eventually(lambda: last_of(tmp_path / "copy") == last, 300)
        for each, seen in peaks.items():
            assert max(seen) - before[each] < GROWTH_MAX, each.title
        nursery.cancel_scope.cancel()
    (tmp_path / "copy").rename(tmp_path / "done")
    for file in (tmp_path / "done").iterdir():
        file.unlink()
