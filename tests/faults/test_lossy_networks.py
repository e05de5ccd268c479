"""A source and a sink on hosts of their own, with a line between them that fails in every way.

An application appends all the while. What comes when is random; the seed is printed, and
CQREPL_NETWORK_SEED repeats it. Each kind of fault comes once, which takes a minute in all, and
all of them again and again until CQREPL_NETWORK_SECONDS are over.

At any time what is acknowledged is in the copy; after each fault replication goes on, and how long
that took is printed; in the end the two are equal.
"""

import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import trio

from cqrepl.queue import Queue
from tests.faults.lossylink import ADDRESSES, FAIR, Hosts, Line, Weather, hosts
from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.replicas import last_of
from tests.support.samples import NOON_MS, layout

SECONDS: Final = float(os.environ.get("CQREPL_NETWORK_SECONDS", "1"))
LASTS_SECONDS: Final = (0.5, 3.5)  # some longer than a peer may be silent, and some not
HEALED_SECONDS: Final = 60.0  # ten times what is usual, and then some
PORT: Final = 9009
BEATS: Final = ("--heartbeat-interval", "500ms", "--heartbeat-timeout", "2s")
RATE: Final = 200  # excerpts a second: less than a slow line takes
SIZE: Final = 120
BOTH: Final = frozenset({0, 1})


def faults(dice: random.Random) -> dict[str, Weather]:
    """Each kind of fault once, as bad as the dice say."""
    return {
        "a little loss": Weather(loss=dice.uniform(0.01, 0.05)),
        "much loss": Weather(loss=dice.uniform(0.1, 0.3)),
        "delay": Weather(delay=dice.uniform(0.01, 0.2)),
        "other order": Weather(delay=0.005, jitter=dice.uniform(0.01, 0.1), twice=0.05),
        "1 Mbit/s": Weather(bytes_per_s=125_000, delay=0.02),
        "cut off from the sink": Weather(cut=frozenset({0})),
        "cut off from the source": Weather(cut=frozenset({1})),
        "partition": Weather(cut=BOTH),
        "reset": Weather(resets=True),
        "much at once": Weather(
            loss=0.05, delay=0.03, jitter=0.03, twice=0.02, bytes_per_s=125_000
        ),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Appends to the original, and knows what of it must be in the copy by now."""

    original: Path
    copy: Path
    queue: Queue

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """It appends for the length of a block, in which nothing acknowledged may be missing."""
        self.queue.append(b"the first", now_ms=NOON_MS)
        await self.has_all()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._append)
            nursery.start_soon(self._check)
            yield
            nursery.cancel_scope.cancel()

    async def _append(self) -> None:
        nth = 0
        while True:
            for _ in range(RATE // 20):
                nth += 1
                self.queue.append(b"%d " % nth + bytes(nth % SIZE), now_ms=NOON_MS)
            await trio.sleep(1 / 20)

    async def _check(self) -> None:
        """Nothing is acknowledged that is not in the copy, at any time."""
        while True:
            acknowledged = self.queue.acknowledged_index
            if acknowledged >= 0:
                last = last_of(self.copy)
                assert last is not None
                assert acknowledged <= last
            await trio.sleep(0.1)

    async def has_all(self) -> float:
        """Waits until the copy has what is there now; after how many seconds that was."""
        begun, wanted = time.monotonic(), self.queue.last_index()
        assert wanted is not None
        with trio.fail_after(HEALED_SECONDS):
            while self.queue.acknowledged_index < wanted:
                await trio.sleep(0.01)
        return time.monotonic() - begun


@asynccontextmanager
async def replicated(
    both: Hosts, original: Path, copy: Path, dialler: int, seconds: float
) -> AsyncIterator[None]:
    """A source on one host, a sink on the other one; both end in order."""
    listens = 1 - dialler
    where = [("--connect", f"{ADDRESSES[listens]}:{PORT}")] * 2
    where[listens] = ("--listen", f"{ADDRESSES[listens]}:{PORT}")
    async with (
        commands(seconds, before=both.entering(0)) as start_source,
        commands(seconds, before=both.entering(1)) as start_sink,
    ):
        source = await start_source("source", f"q={original}", *where[0], *BEATS)
        sink = await start_sink("sink", f"q={copy}", *where[1], *BEATS)
        yield
        await source.terminate()
        await sink.terminate()


async def has_an_effect(line: Line, weather: Weather) -> None:
    """Waits until packets have met it: a fault that nothing meets would show nothing."""
    before = line.dropped, line.resets, sum(line.passed)
    while weather is not FAIR:
        dropped, resets, passed = line.dropped, line.resets, sum(line.passed)
        if weather.cut or weather.loss:
            is_met = dropped > before[0]
        elif weather.resets:
            is_met = resets > before[1]
        else:
            is_met = passed > before[2] + 20
        if is_met:
            return
        await trio.sleep(0.01)


async def bad_times(line: Line, application: Application, dice: random.Random) -> dict[str, float]:
    """Fault after fault until the time is over, each kind at least once; the longest time after
    each that replication took to go on."""
    took: dict[str, float] = {}
    ends_at = trio.current_time() + SECONDS
    while not took or trio.current_time() < ends_at:
        kinds = list(faults(dice).items())
        dice.shuffle(kinds)
        for name, weather in kinds:
            line.weather = weather
            with trio.fail_after(HEALED_SECONDS):
                await has_an_effect(line, weather)
            await trio.sleep(dice.uniform(*LASTS_SECONDS))
            line.weather = FAIR
            took[name] = max(took.get(name, 0.0), await application.has_all())
    return took


@pytest.mark.timeout(int(SECONDS * 4) + 600)
async def test_a_line_that_fails_in_every_way(tmp_path: Path) -> None:
    seed = os.environ.get("CQREPL_NETWORK_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"CQREPL_NETWORK_SEED={seed}")
    dice = random.Random(seed)
    dialler = dice.randrange(2)
    original, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open_for_append(original, create=layout()) as queue:
        application = Application(original=original, copy=copy, queue=queue)
        async with (
            hosts(random.Random(dice.random())) as both,
            replicated(both, original, copy, dialler, SECONDS * 4 + 500),
        ):
            async with application.at_work():
                took = await bad_times(both.line, application, dice)
            await application.has_all()
    for name, seconds in took.items():
        print(f"{name}: went on after {seconds:.2f} s")
    assert_same(original, copy)
