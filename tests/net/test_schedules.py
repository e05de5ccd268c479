"""Whole hosts over schedules that are drawn: all that was acknowledged is there in the end, at its
index, and all hosts hold the same.

Three hosts run in this process, on loopback, with live pumps or without: a source, and two that
follow it, of which the third may take the queue from the second. Steps append, roll, wait, cut
connections, pause and resume, end hosts and start them again, and promote another one.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from cqrepl.net import sharedsocket
from cqrepl.queue import Queue
from tests.support.replicas import SECONDS
from tests.support.samples import NOON_MS, Excerpts, read
from tests.support.threehosts import IDS, ThreeHosts, three_hosts

DAY_MS: Final = 86_400_000
Step = tuple[str, int]


class Play:
    """A schedule that is played; `leader` is the host that streams.

    Args:
        relayed: host 3 takes the queue from host 2.
    """

    def __init__(self, cluster: ThreeHosts, relayed: bool) -> None:
        self.leader = 1
        self.acknowledged: dict[int, bytes] = {}
        self._cluster = cluster
        self._relayed = relayed
        self._paused: set[int] = set()
        self._day = self._count = 0

    async def play(self, steps: list[Step]) -> None:
        for name, number in steps:
            step: Callable[[int], Coroutine[Any, Any, None]] = getattr(self, name)
            await step(number)
        await self._cluster.start(*(each for each in IDS if each not in self._cluster.hosts))
        for each in sorted(self._paused):
            await self._cluster.hosts[each].resume("q")
        await self.append(1)
        await self._cluster.follow(self.leader)
        assert not [stop for host in self._cluster.hosts.values() for stop in host.stops]

    async def append(self, number: int) -> None:
        """By a process of its own, whether the leader's host runs or not."""
        payloads = [b"%d" % (self._count + nth) for nth in range(number)]
        self._count += number
        with Queue.open(self._cluster.at(self.leader), wait_for_seconds=0) as queue:
            queue.append_many(payloads, now_ms=NOON_MS + self._day * DAY_MS)

    async def roll(self, number: int) -> None:
        self._day += 1 + number % 2

    async def wait(self, number: int) -> None:
        """Until a host has acknowledged all; by then it is there for good."""
        going = self._cluster.hosts.keys() - self._paused
        direct = {2} if self._relayed else {*IDS} - {self.leader}
        if self.leader in going and going & direct:
            held = read(self._cluster.at(self.leader))
            source = self._cluster.hosts[self.leader].source
            with trio.fail_after(SECONDS):
                await source.board("q").wait_acked(held[-1][0])
            self.acknowledged |= dict(held)

    async def cut(self, number: int) -> None:
        if host := self._cluster.hosts.get(1 + number % 3):
            for pump, _ in list(host.endpoint.connections.values()):
                pump.fail("of the schedule")

    async def pause(self, number: int) -> None:
        if (each := 1 + number % 3) in self._cluster.hosts:
            await self._cluster.hosts[each].pause("q")
            self._paused.add(each)

    async def resume(self, number: int) -> None:
        if (each := 1 + number % 3) in self._paused:
            await self._cluster.hosts[each].resume("q")
            self._paused.remove(each)

    async def end(self, number: int) -> None:
        if (each := 1 + number % 3) in self._cluster.hosts:
            await self._cluster.stop(each)
            self._paused.discard(each)

    async def start(self, number: int) -> None:
        if (each := 1 + number % 3) not in self._cluster.hosts:
            await self._cluster.start(each)

    async def promote(self, number: int) -> None:
        """A host that is not there, or holds still, might lack what was acknowledged."""
        each, is_whole = 1 + number % 3, self._cluster.hosts.keys() == {*IDS}
        if each != self.leader and is_whole and not self._paused and not self._relayed:
            await self._cluster.meet()
            await self._cluster.hosts[each].leaders.promote("q")
            self.leader = each


async def played(folder: Path, steps: list[Step], relayed: bool) -> None:
    async with three_hosts(folder, "  routes: {q: {3: 2}}" if relayed else "") as cluster:
        play = Play(cluster, relayed)
        await play.play(steps)
    found: list[Excerpts] = [read(cluster.at(each)) for each in IDS]
    assert found[0] == found[1] == found[2]
    assert dict(found[0]).items() >= play.acknowledged.items()
    numbers = [int(data) for _, data in found[0][10:]]
    assert numbers == sorted(set(numbers)), "each once, and in order"


NAMES: Final = ("append", "append", "roll", "wait", "cut", "pause", "resume", "end", "start")
STEPS: Final = st.lists(
    st.tuples(st.sampled_from((*NAMES, "promote")), st.integers(1, 60)), min_size=4, max_size=16
)


@pytest.mark.usefixtures("unhurried_ends")
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(steps=STEPS, relayed=st.booleans(), has_pump=st.booleans())
@example(
    steps=[("end", 0), ("append", 50), ("start", 0), ("wait", 0), ("cut", 1), ("append", 3)],
    relayed=True,
    has_pump=True,
)
@example(
    steps=[
        *[("append", 5), ("wait", 0), ("promote", 1), ("cut", 1), ("append", 40), ("roll", 0)],
        *[("append", 2), ("end", 0), ("append", 9), ("wait", 0), ("start", 0), ("promote", 2)],
    ],
    relayed=False,
    has_pump=True,
)
@example(
    steps=[("pause", 1), ("append", 30), ("wait", 0), ("pause", 0), ("append", 4), ("roll", 1)],
    relayed=False,
    has_pump=False,
)
def test_all_hosts_hold_the_same_and_nothing_acknowledged_is_missing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], relayed: bool, has_pump: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not has_pump:
            patch.setattr(sharedsocket, "pump_for", lambda *_: None)
        trio.run(played, tmp_path_factory.mktemp("schedule"), steps, relayed)
