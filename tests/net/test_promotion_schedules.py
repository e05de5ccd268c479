"""`cqrepl plan promote` prints in advance what a promotion then does, over schedules by chance.

Hosts with copies of different lengths are promoted several times in a row. The old source is there,
or was ended or killed before, during or after that, with excerpts that no other host has; it comes
back before, during or after the next one. Each schedule is of its seed.
"""

import random
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.cluster.promotion import Promotion
from cqrepl.net.errors import NetError
from cqrepl.queue import QueueError
from tests.support.copies import assert_same
from tests.support.promotions import Cluster, cluster, ends_at, last
from tests.support.replicas import eventually, more_excerpts
from tests.support.samples import noon_index, read

SEEDS = 200
SHORT = 5  # of them, without the long runs


class Schedule:
    """One of them.

    Args:
        hosts: whose copies are to be promoted; host 1 streams.
    """

    def __init__(self, seed: int, hosts: Cluster, count: int) -> None:
        self._chance = random.Random(seed)
        self._hosts = hosts
        self._ids = range(1, count + 1)
        self._leader = 1
        self._lengths: dict[int, int] = {}  # of each copy
        self._payloads: list[tuple[int, bytes]] = []  # of the queue, as its leader has it
        self._tails: dict[int, int] = {}  # excerpts of hosts that led, and that no other host had

    async def run(self) -> None:
        """Promotes a few times, and looks at each step."""
        ends = {host_id: self._chance.randint(1, 9) for host_id in self._ids if host_id != 1}
        await self._hosts.uneven(ends)
        self._lengths = {**ends, 1: max(ends.values())}
        self._payloads = read(self._hosts.path(1))
        for number in range(self._chance.randint(2, 4)):
            await self._promote(number)
        running = self._hosts.hosts.keys()
        for host_id in [each for each in self._ids if each not in running]:
            await self._hosts.start(host_id)
        self._append(9)
        await self._all_follow()

    def _append(self, seed: int) -> None:
        """Local writers of the leader's host append."""
        count, done = self._chance.randint(1, 6), len(self._payloads)
        self._payloads += more_excerpts(self._hosts.path(self._leader), done, count, seed=seed)
        self._lengths[self._leader] = len(self._payloads)

    async def _all_follow(self) -> None:
        """All that run hold what the leader has, and nothing else."""
        await self._hosts.resume_all()
        for host_id in self._hosts.hosts:  # a tail may end where the leader does
            await eventually(partial(self._holds_all, host_id))
        await self._hosts.follow(self._leader)
        for host_id, host in self._hosts.hosts.items():
            assert read(self._hosts.path(host_id)) == self._payloads
            assert not host.stops
            self._lengths[host_id] = len(self._payloads)
            kept = self._tails.pop(host_id, 0)
            if kept:  # what it had alone is not gone
                folders = list((self._hosts.path(host_id) / "quarantine").iterdir())
                ends = [read(each)[-1][0] + 1 for each in folders]
                assert max(ends) - self._payloads[0][0] >= kept

    def _holds_all(self, host_id: int) -> bool:
        path = self._hosts.path(host_id)
        with suppress(QueueError, OSError):  # while its tail is put aside
            return ends_at(path, last(len(self._payloads))) and read(path) == self._payloads
        return False

    async def _lag(self) -> None:
        """Copies get different lengths: they are paused one after the other, and are resumed once
        the leader is away, or to catch up with it."""
        followers = sorted(self._hosts.hosts.keys() - {self._leader})
        self._chance.shuffle(followers)
        for nth, host_id in enumerate(followers):
            await self._hosts.hosts[host_id].pause("a")
            if nth + 1 < len(followers):
                self._append(10 + nth)
                for other in followers[nth + 1 :]:
                    end = last(len(self._payloads))
                    await eventually(partial(ends_at, self._hosts.path(other), end))
                    self._lengths[other] = len(self._payloads)

    async def _end(self, host_id: int) -> None:
        """A host ends, in order or not."""
        end = self._chance.choice([self._hosts.stop, self._hosts.kill])
        await end(host_id)

    async def _promote(self, number: int) -> None:
        when = self._chance.choice(["before", "before", "during", "after", "never"])
        back = self._chance.choice(["at once", "during", "after"])
        hosts, old = self._hosts, self._leader
        if number:  # at the start they differ
            await self._lag()
        tail = 0
        if when == "before":
            if self._chance.random() < 0.5:  # what it has alone
                tail = len(more_excerpts(hosts.path(old), len(self._payloads), 3, seed=70 + number))
            await self._end(old)
            await hosts.resume_all()
        else:
            await hosts.resume_all()
            await hosts.follow(old)
            self._lengths = dict.fromkeys(hosts.hosts, len(self._payloads)) | {
                host_id: self._lengths[host_id]
                for host_id in self._lengths
                if host_id not in hosts.hosts
            }
        await hosts.meet()
        to = self._chance.choice(sorted(hosts.hosts.keys() - {old}))
        plan = await hosts.hosts[to].leaders.plan("a", to)
        assert not plan.refusal
        reached = {to, *plan.fenced}
        assert reached == hosts.hosts.keys()
        assert plan.start == noon_index(sequence=max(self._lengths[each] for each in reached))
        async with trio.open_nursery() as nursery:
            if when == "during":
                nursery.start_soon(self._end_soon, old)
            elif when == "before" and back == "during":
                nursery.start_soon(hosts.start, old)
            done = await self._done(to, plan)
        if when == "before" and back == "during":
            self._check_with_one_more(plan, done, tail)
        elif when == "during":
            assert (done.start, done.leader) == (plan.start, to)
        else:
            assert done == plan
        if done.start > plan.start:
            self._payloads = read(hosts.path(to))[: done.start - noon_index()]
        else:
            if tail:
                self._tails[old] = len(self._payloads) + tail
            del self._payloads[done.start - noon_index() :]
        self._leader = to
        assert read(hosts.path(to)) == self._payloads
        self._append(20 + number)
        if when == "after":
            await self._end(old)
        if back == "at once" and old not in hosts.hosts:
            await hosts.start(old)
        await self._all_follow()
        if back != "at once" and old not in hosts.hosts:
            await hosts.start(old)
            await self._all_follow()

    async def _end_soon(self, host_id: int) -> None:
        await trio.sleep(self._chance.random() / 20)
        await self._end(host_id)

    async def _done(self, to: int, plan: Promotion) -> Promotion:
        """Promote a host, once more where a host died on the way; the promotion that was done."""
        while True:
            try:
                return await self._hosts.hosts[to].leaders.promote("a")
            except NetError:
                assert len(self._hosts.hosts) < len(self._ids) or not plan.fenced

    def _check_with_one_more(self, plan: Promotion, done: Promotion, tail: int) -> None:
        """The old source may have promised too, or streamed to a copy before that did: then what it
        had alone is the queue's."""
        assert done.start - plan.start in {0, tail}
        assert (done.leader, done.was) == (plan.leader, plan.was)
        assert {*done.fenced, *done.unreached} == {*plan.fenced, *plan.unreached}
        if (done.fenced, done.epoch, done.start) == (plan.fenced, plan.epoch, plan.start):
            assert done == plan


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.long] if n >= SHORT else []) for n in range(SEEDS)]
)
async def test_the_plan_is_what_happens(tmp_path: Path, seed: int) -> None:
    count = 3 + seed % 2
    async with cluster(tmp_path, count) as hosts:
        await Schedule(seed, hosts, count).run()
        paths = [hosts.path(each) for each in range(1, count + 1)]
    for path in paths[1:]:
        assert_same(paths[0], path)
