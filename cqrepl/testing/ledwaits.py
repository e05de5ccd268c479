"""Programs that wait, as policies say, at whichever host leads a queue.

An excerpt that a wait calls safe is there in the end, though another host may lead by then. It need
not be where a promotion to a later epoch said beforehand that it may be lost, and was done all the
same. That goes also for what an old leader that could not be reached calls safe after that.

Policies cover power cuts as far as `safewaits` says. Where a host has lost its power since, it is
enough that some host has the excerpt, in its copy or its quarantine. A leader that comes back
without it, and goes on after its time of waiting, has another queue than the copies that have it,
and they say so.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping

import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.leadership import AckOutcome
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.surroundings import within
from cqrepl.testing.checker import BrokenPromiseError
from cqrepl.testing.ledqueue import LedExcerpt, LedQueue
from cqrepl.testing.operators import Promoted
from cqrepl.testing.safewaits import (
    APPLY_SECONDS,
    WAIT_EVERY_SECONDS,
    WAIT_SECONDS,
    Safe,
    drawn_policy,
)
from cqrepl.testing.timedwaits import TimedWaits, check_met, ends_in_time, with_time


class LedWaits:
    """The waits of one queue.

    Args:
        acks: how many hosts its policy waits for, at least 1.
        applies: a program on each host takes what is there; else programs of a user do.
        is_timed: half of the waits have a time; else none has, and a seed stands for the same run.

    Attributes:
        called: how many waits called something safe, by the level of their policy.
        timed: those that have a time.
    """

    def __init__(self, led: LedQueue, acks: int, *, is_timed: bool, applies: bool = True) -> None:
        self.called: Counter[str] = Counter()
        self.timed = TimedWaits()
        self._times = random.Random(f"led times {led.draws}") if is_timed else None
        self._applies = applies
        self._led = led
        self._acks = acks
        self._rng = random.Random(f"led waits {led.draws}")
        self._safe: list[tuple[Safe, int]] = []  # with the epoch of each

    async def run(self) -> None:
        """Waits, and applies, for ever."""
        async with trio.open_nursery() as nursery:
            if self._applies:
                nursery.start_soon(self._apply)
            while True:
                await trio.sleep(self._rng.expovariate(1 / WAIT_EVERY_SECONDS))
                for host, application in self._led.applications.items():
                    queue, newest = self._led.streamed_at(host), application.newest
                    if queue is None or newest is None:
                        continue
                    if self._led.lost_power(host, since=newest.at):
                        continue  # it may be gone, and its index a program's excerpt by now
                    # what it appended in an earlier epoch may be aside, and its index another's
                    if newest.epoch == queue.epochs.now.number:
                        others = sorted(self._led.copies.keys() - {host})
                        policy = drawn_policy(self._rng, others, count_min=self._acks)
                        if self._times is not None:
                            policy = with_time(self._times, policy)
                        nursery.start_soon(self._wait, queue, newest, policy)

    async def _wait(self, queue: SourceQueue, last: LedExcerpt, policy: AckPolicy) -> None:
        host = self._led.copies[last.host].host
        process = host.process
        with trio.move_on_after(math.inf if ends_in_time(policy) else WAIT_SECONDS):
            try:
                outcome = await self.timed.wait(queue.leading, last.index, policy)
            except WaitEnded:
                return
            if host.process is not process or outcome is not AckOutcome.ACKED:
                return
            marks = queue.board.marks_at(policy.level)
            hosts = frozenset(each for each, mark in marks.items() if mark >= last.index)
            check_met(hosts & self._led.copies.keys(), host)
            self.called[policy.level.name.lower()] += 1
            safe = Safe(last.index, last.digest, policy, hosts, trio.current_time())
            self._safe.append((safe, queue.epochs.now.number))

    async def _apply(self) -> None:
        """A program on each host takes what is there."""
        while True:
            await trio.sleep(APPLY_SECONDS)
            for each in self._led.copies.values():
                sink, process = each.host.sink, each.host.process
                queue = None if sink is None else sink.queues.get(each.name)
                if sink is not None and queue is not None and process is not None:
                    with within(process):
                        last = queue.known_last
                        if last is not None:
                            sink.applied(last, each.name)

    def check(
        self,
        found: Mapping[int, bytes],
        anywhere: Mapping[int, set[bytes]],
        promoted: Iterable[Promoted],
    ) -> None:
        """Checks the waits when all is quiet.

        Args:
            found: what the leader holds.
            anywhere: what any copy holds, or any quarantine.
            promoted: all promotions.

        Raises:
            BrokenPromiseError: what a wait called safe is not there; or a wait goes on though its
                time is over.
        """
        self.timed.check()
        losing = [(each.epoch, each.lost_from) for each in promoted if each.lost_from is not None]
        for safe, epoch in self._safe:
            if any(later > epoch and first <= safe.index for later, first in losing):
                continue  # that was said beforehand
            cut = {host for host in self._led.copies if self._led.lost_power(host, since=safe.at)}
            if safe.policy.level is not AckLevel.SYNCED and len(safe.hosts - cut) < self._acks:
                continue
            is_there = found.get(safe.index) == safe.digest
            if not is_there and not (cut and safe.digest in anywhere.get(safe.index, ())):
                raise BrokenPromiseError(
                    "safe",
                    f"{format_index(safe.index)} was safe at {safe.at:.3f} s by {safe.policy}, on"
                    f" hosts {sorted(safe.hosts)}, and is lost",
                )
