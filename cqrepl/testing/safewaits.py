"""Programs that wait as policies say; what a wait called safe is there when all is over.

A program on a source's host waits for what the application appended last, each time with another
policy. What counts as safe then is kept, with the hosts that had it. A power cut takes what was not
synced. So what is appended, or applied, is promised to be there only where one of these hosts, or
the source's, never lost its power. What is synced is promised to be there, whatever loses its
power. A program that waits dies with the replication of its host, and what it would have been told
then is lost. Nor does it ask for what the application had appended before the source's host lost
its power: that may be gone, and hosts that hold what came after it have all of the queue up to its
index.

Half of the policies have a time: `timedwaits` holds waits to that. What ended with its time is not
known, so it is not called safe; that it is still there is what the check of lost excerpts says of
all that was appended. Beside that a program appends with a window.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy, From
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, SteppedDown
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.surroundings import within
from cqrepl.testing.checker import BrokenPromiseError, content, is_readable
from cqrepl.testing.cluster import Stream
from cqrepl.testing.plan import Kind
from cqrepl.testing.timedwaits import (
    TimedWaits,
    Window,
    check_met,
    ends_in_time,
    lead_again,
    with_time,
    with_window,
)

WAIT_EVERY_SECONDS: Final = 0.5  # on average
APPLIED_BEYOND: Final = (0, 0, 0, 5)  # excerpts
WAIT_SECONDS: Final = 20.0  # a wait that takes longer is left
APPLY_SECONDS: Final = 0.4  # between two times that a sink's program takes what is there
# what no policy covers: files that are removed, exchanged or altered, and retention
NOT_COVERED: Final = frozenset(
    {
        Kind.ANEW,
        Kind.RESTORED,
        Kind.FOREIGN,
        Kind.SAME_DIRECTORY,
        Kind.MOVED_AWAY,
        Kind.BIT_FLIP,
        Kind.FILE_GONE,
        Kind.FILE_OLD,
        Kind.GC,
    }
)


@dataclass(frozen=True, slots=True)
class Safe:
    """An excerpt that a wait has called safe.

    Args:
        hosts: ids of the hosts that had it then.
        at: when the wait called it safe, by trio's clock.
    """

    index: int
    digest: bytes
    policy: AckPolicy
    hosts: frozenset[int]
    at: float


def drawn_policy(rng: random.Random, hosts: list[int], *, count_min: int) -> AckPolicy:
    """Any policy that waits for so many hosts at least, of those there are."""
    count = rng.randint(count_min, len(hosts))
    named = frozenset(rng.sample(hosts, rng.randint(count, len(hosts))))
    return AckPolicy(
        level=rng.choice(list(AckLevel)),
        from_=From.ALL if count == len(named) else count,
        hosts=named if count == len(named) or rng.random() < 0.5 else None,
    )


class SafeWaits:
    """The waits of one stream.

    Attributes:
        called: how many waits called something safe, by the level of their policy.
        timed: those that have a time.
        admitted: how many appends were admitted once others were safe.
    """

    def __init__(self, stream: Stream, seed: int) -> None:
        self.called: Counter[str] = Counter()
        self.timed = TimedWaits()
        self.admitted = 0
        self._stream = stream
        self._rng = random.Random(f"waits {stream.master} {seed}")
        self._times = random.Random(f"times {stream.master} {seed}")
        self._windows = random.Random(f"windows {stream.master} {seed}")
        self._beyond = random.Random(f"beyond {stream.master} {seed}")
        self._safe: list[Safe] = []
        self._boot_id = stream.source.host.machine.boot_id
        self._asked_behind = -1  # what is up to here may have gone with the power
        self._sinks = sorted(each.host.host for each in stream.direct)

    async def run(self) -> None:
        """Waits, and applies, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._apply)
            nursery.start_soon(self._append_with_windows, nursery)
            while True:
                await trio.sleep(self._rng.expovariate(1 / WAIT_EVERY_SECONDS))
                policy = drawn_policy(self._rng, self._sinks, count_min=1)
                policy = with_time(self._times, policy)
                newest, queue = self._newest, self._queue
                if newest is not None and queue is not None:
                    nursery.start_soon(self._wait, queue, *newest, policy)

    @property
    def _queue(self) -> SourceQueue | None:
        """The queue as the source's host has it now; None while it has none."""
        source = self._stream.source.host.source
        return None if source is None else source.queues.get(self._stream.source.name)

    @property
    def _newest(self) -> tuple[int, bytes] | None:
        """The index and digest of the excerpt that the application has appended last since the
        source's host was started, as far as that is known; None for nothing."""
        newest, boot_id = (
            self._stream.application.written.newest,
            self._stream.source.host.machine.boot_id,
        )
        last = max(newest, default=-1)
        if boot_id != self._boot_id:
            self._boot_id, self._asked_behind = boot_id, last
        return (last, newest[last]) if last > self._asked_behind else None

    async def _wait(self, queue: SourceQueue, index: int, digest: bytes, policy: AckPolicy) -> None:
        host = self._stream.source.host
        process = host.process
        with trio.move_on_after(math.inf if ends_in_time(policy) else WAIT_SECONDS):
            try:
                outcome = await self.timed.wait(queue.leading, index, policy)
            except WaitEnded:
                return
            if outcome is AckOutcome.ACKED and host.process is process:
                self._call_safe(queue, index, digest, policy)

    def _call_safe(self, queue: SourceQueue, index: int, digest: bytes, policy: AckPolicy) -> None:
        marks = queue.board.marks_at(policy.level)
        hosts = frozenset(each for each, mark in marks.items() if mark >= index)
        check_met(hosts & set(self._sinks), self._stream.source.host)
        self.called[policy.level.name.lower()] += 1
        self._safe.append(Safe(index, digest, policy, hosts, trio.current_time()))

    async def _append_with_windows(self, nursery: trio.Nursery) -> None:
        """A program that appends by a policy with a window, another one in each run of the
        source; what the application has appended stands for what it appends."""
        window: Window | None = None
        host = self._stream.source.host
        while True:
            await trio.sleep(self._windows.expovariate(1 / WAIT_EVERY_SECONDS))
            queue, process = self._queue, host.process
            if queue is None:
                continue
            if window is None or window.leading is not queue.leading:
                drawn = drawn_policy(self._windows, self._sinks, count_min=1)
                window = Window(queue.leading, with_window(self._windows, drawn))
            with trio.move_on_after(WAIT_SECONDS) as scope:
                try:
                    safe = await window.admit()
                except SteppedDown:
                    lead_again(window.leading)
                    continue
                except (AckUnknown, WaitEnded):
                    continue
            if scope.cancelled_caught or host.process is not process:
                continue
            if safe is not None:
                self.admitted += 1
                self._call_safe(queue, *safe, window.policy)
            newest = self._newest
            if newest is not None and newest[0] > window.newest:
                nursery.start_soon(self._settle, window, queue, *newest)

    async def _settle(self, window: Window, queue: SourceQueue, index: int, digest: bytes) -> None:
        host = self._stream.source.host
        process = host.process
        with trio.move_on_after(WAIT_SECONDS):
            try:
                await window.settle(index, digest)
            except SteppedDown:
                lead_again(window.leading)
                return
            except (AckUnknown, WaitEnded):
                return
            if host.process is process:
                self._call_safe(queue, index, digest, window.policy)

    async def _apply(self) -> None:
        """A program on each sink takes what is there."""
        while True:
            await trio.sleep(APPLY_SECONDS)
            for each in self._stream.sinks:
                sink, process = each.host.sink, each.host.process
                queue = None if sink is None else sink.queues.get(each.name)
                if sink is not None and queue is not None and process is not None:
                    with within(process):
                        last = queue.known_last
                        if last is not None:  # it may say more than there is: that counts later
                            sink.applied(last + self._beyond.choice(APPLIED_BEYOND), each.name)

    def check(self) -> None:
        """Checks the waits when all is quiet.

        Raises:
            BrokenPromiseError: what a wait called safe is on no host; or a wait goes on though its
                time is over.
        """
        self.timed.check()
        copies = (self._stream.source, *self._stream.sinks)
        found = {each: content(each.path) for each in copies if is_readable(each.path)}
        has_lost_power = {each.host.host: each.host.has_lost_power for each in copies}
        for safe in self._safe:
            if not self._is_promised(safe, has_lost_power):
                continue
            if not any(held.get(safe.index) == safe.digest for held in found.values()):
                raise BrokenPromiseError(
                    "safe",
                    f"{format_index(safe.index)} was safe at {safe.at:.3f} s by {safe.policy}, on"
                    f" hosts {sorted(safe.hosts)}, and is on none",
                )

    def _is_promised(self, safe: Safe, has_lost_power: Mapping[int, bool]) -> bool:
        if safe.policy.level is AckLevel.SYNCED:
            return True
        had = {*safe.hosts, self._stream.master}
        return not all(has_lost_power[host] for host in had)
