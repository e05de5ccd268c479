"""A tailer under trio."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cqrepl.queue import Queue, Tailer
from cqrepl.queue.read.pauser import Pauser
from cqrepl.replicator.follow import follow
from tests.support.reading import cycles_of
from tests.support.samples import NOON_MS, Excerpts, fill


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue"


async def test_gives_what_is_there_and_what_comes(path: Path, autojump_clock: MockClock) -> None:
    written = fill(path, "FAST_DAILY", {0: 600, 1: 5}, per_batch=600)
    found: Excerpts = []
    with Queue.open_for_append(path) as queue:
        tailer, appender = Tailer(cycles_of(path), 0), queue.appender()

        async def read() -> None:
            async for excerpt in follow(tailer):
                found.append((excerpt.index, bytes(excerpt)))
                if bytes(excerpt) == b"last":
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            while len(found) < len(written):
                await trio.sleep(0.01)
            for data in (b"more", b"last"):
                index = appender.append([data], NOON_MS)
                written.append((index, data))
                await trio.sleep(1)
        assert found == written
        tailer.close()


async def test_others_run_while_there_is_much_to_read(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 2000}, per_batch=2000)
    tailer, turns = Tailer(cycles_of(path), 0), 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        given = 0
        async for _ in follow(tailer):
            given += 1
            if given == 2000:
                break
        nursery.cancel_scope.cancel()
    assert turns >= 5  # a checkpoint every 256 excerpts
    tailer.close()


async def test_it_can_be_cancelled_while_it_waits(path: Path, autojump_clock: MockClock) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    tailer = Tailer(cycles_of(path), 0)
    given = 0
    with trio.move_on_after(60) as scope:
        async for _ in follow(tailer, Pauser(spins=0, sleep_max_s=1.0)):
            given += 1
    assert scope.cancelled_caught
    assert given == 1
    tailer.close()
