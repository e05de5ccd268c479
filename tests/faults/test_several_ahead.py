"""A source that has lost its end, and three sinks that each have more than it, and not the same.

They connect one after the other, in every order, and an application writes at the source after
each of them. What a sink gives back before such a write is in the source again; a sink that has
more than the source had by then stops, on both sides. Nothing that one of them held is altered.
"""

import random
import re
from collections.abc import Iterator
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest
import trio

from cqrepl.queue import ExcerptBatch, Queue, QueueLocked
from tests.support.commands import Command, Start, commands, until
from tests.support.copies import assert_same
from tests.support.replicas import last_of
from tests.support.samples import NOON_MS, layout, noon_index

HELD = {2: 5, 3: 7, 4: 9}  # by host id; the source holds the first three
AT_THE_SOURCE = 3
ORDERS = list(permutations(HELD))
LARGE = 10_000  # times as many, of 2 KB
BATCH = 1000
DIVERGED = re.compile("diverged at")


def payload(nth: int, length: int) -> bytes:
    return random.Random(nth).randbytes(length)


def history(path: Path, count: int, length: int) -> None:
    """A queue with the first excerpts of what all of them once had."""
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        for start in range(0, count, BATCH):
            data = [payload(nth, length) for nth in range(start, min(start + BATCH, count))]
            appender.append_at(ExcerptBatch.of(noon_index(sequence=start), data))


def digests(path: Path) -> Iterator[tuple[int, int]]:
    with Queue.open(path) as queue:
        for excerpt in queue.tailer():
            yield excerpt.index, hash(bytes(excerpt))


async def write(path: Path, text: bytes) -> int:
    """Writes as an application does, which tries again while excerpts come back."""
    with Queue.open(path) as queue:
        while True:
            try:
                return await trio.to_thread.run_sync(lambda: queue.append(text, now_ms=NOON_MS))
            except QueueLocked:
                await trio.sleep(0.05)


class Sinks:
    """The sinks of one run, each of which is equal to the source in the end, or has stopped."""

    def __init__(self, start: Start, folder: Path, port: int) -> None:
        self._start = start
        self._folder = folder
        self._port = port
        self.running: dict[int, Command] = {}

    def copy(self, host: int) -> Path:
        return self._folder / f"copy-{host}"

    async def connect(self, host: int) -> None:
        where = ("--connect", f"127.0.0.1:{self._port}", "--host-id", host)
        self.running[host] = await self._start("sink", f"q={self.copy(host)}", *where)

    def has_stopped(self, host: int) -> bool:
        return DIVERGED.search(self.running[host].said) is not None

    def is_level(self, host: int) -> bool:
        return last_of(self.copy(host)) == last_of(self._folder / "q")

    async def settle(self, host: int) -> None:
        await until(lambda: self.has_stopped(host) or self.is_level(host))


async def try_order(
    folder: Path, order: tuple[int, ...], scale: int, length: int, rng: random.Random | None
) -> None:
    """Connects the sinks in that order.

    Args:
        rng: draws when each sink is killed once it runs; it is started again. None: never.
    """
    original = folder / "q"
    history(original, AT_THE_SOURCE * scale, length)
    for host, held in HELD.items():
        history(folder / f"copy-{host}", held * scale, length)
    before = {host: list(digests(folder / f"copy-{host}")) for host in HELD}
    returns = ("--accept-returns", ",".join(map(str, HELD)))
    async with commands() as start:
        source = await start("source", f"q={original}", "--listen", "127.0.0.1:0", *returns)
        sinks = Sinks(start, folder, await source.port())
        written: list[tuple[int, bytes]] = []
        for host in order:
            await sinks.connect(host)
            if rng is not None:
                await trio.sleep(rng.uniform(0.3, 1.5))
                await sinks.running[host].kill()
                await sinks.connect(host)
            await sinks.settle(host)
            text = b"written after host %d" % host
            written.append((await write(original, text), text))
        for host in order:
            await sinks.settle(host)
        # the first write took the place of what the first sink did not have
        equal = [host for host in order if HELD[host] <= HELD[order[0]]]
        for host in set(order) - set(equal):
            await until(partial(sinks.has_stopped, host))
            await source.says(re.compile(f"host {host}"))
        stopped = len(order) - len(equal)
        await until(lambda: len(DIVERGED.findall(source.said)) >= stopped)
        await trio.sleep(0.5)  # no difference shows behind the stream either
        assert equal == [host for host in order if not sinks.has_stopped(host)]
        for command in (*sinks.running.values(), source):
            await command.end()
    for host in order:
        now = list(digests(folder / f"copy-{host}"))
        assert now[: len(before[host])] == before[host], f"what host {host} held has changed"
        if host in equal:
            assert_same(original, folder / f"copy-{host}")
    with Queue.open(original) as queue:
        found = {excerpt.index: bytes(excerpt) for excerpt in queue.tailer()}
    assert [found[index] for index, _ in written] == [text for _, text in written]


FIRST_OF_EACH = [order for order in ORDERS if order[1] < order[2]]  # the others in the long run


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, marks=[] if order in FIRST_OF_EACH else [pytest.mark.long])
        for order in ORDERS
    ],
)
async def test_each_order_is_equal_or_told(tmp_path: Path, order: tuple[int, ...]) -> None:
    await try_order(tmp_path, order, 1, 100, None)


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
async def test_many_excerpts_and_killed_sinks(tmp_path: Path, order: tuple[int, ...]) -> None:
    await try_order(tmp_path, order, LARGE, 2000, random.Random(str(order)))
