"""The conditions that a queue whose leader is elected must keep, besides those of `ledjudge`.

No two hosts would answer a consistent read at a time. What a program was told is safe, or has read
consistently, is there in the end, and no read misses any of it. No operator makes anything good:
once faults have healed, hosts have a leader within a stated time.
"""

from typing import Final

import trio

from cqrepl.queue.format.index import format_index
from cqrepl.testing.checker import BrokenPromiseError, content
from cqrepl.testing.electedqueue import ElectedQueue, GrownLog
from cqrepl.testing.ledjudge import MEET_SECONDS, LedJudge
from cqrepl.testing.ledwaits import LedWaits
from cqrepl.testing.linearizability import check_linearizable
from cqrepl.testing.operators import Operator
from cqrepl.testing.story import Story

LED_SECONDS: Final = 30.0  # until all copies may follow one leader, once all hosts run and have met
LOOK_SECONDS: Final = 0.25


class ElectedJudge(LedJudge):
    """The judge of the queue."""

    def __init__(
        self, led: ElectedQueue, operator: Operator, waits: LedWaits, story: Story
    ) -> None:
        super().__init__(led, operator, waits, story)
        self._elected = led
        self._appended_before = -1

    def check(self) -> None:
        """While faults come.

        Raises:
            BrokenPromiseError: something is not as it must be.
        """
        super().check()
        under_lease = self._elected.under_lease
        if len(under_lease) > 1:
            raise BrokenPromiseError("lease", f"hosts {under_lease} hold the lease at a time")

    async def make_good(self) -> None:
        """Waits for a leader that all copies may follow.

        Raises:
            BrokenPromiseError: none is there in time, or a wait has not ended.
        """
        await trio.sleep(MEET_SECONDS)
        await self._wait_for_leader()
        if not self._has_leader and self._is_held_by_clocks():
            await self._set_clocks()
            await self._wait_for_leader()
        if not self._has_leader:
            text = f"hosts {self.leading} lead {self._led.name!r}, {LED_SECONDS:g} s after all met"
            raise BrokenPromiseError("leader", text)
        for each in self._elected.late_waits():
            text = f"a wait for {format_index(each.index)} goes on since {each.since:.3f} s"
            raise BrokenPromiseError("waits", text)

    async def _wait_for_leader(self) -> None:
        with trio.move_on_after(LED_SECONDS):
            while not self._has_leader:
                await trio.sleep(LOOK_SECONDS)

    async def _set_clocks(self) -> None:
        """An operator sets all clocks to the latest one, and has the copies go on that have stopped
        for excerpts of times to come: a copy that has stopped promises nothing, so too few may be
        left to elect."""
        self._story.tell("operator", "all clocks are set to the latest one")
        machines = [each.host.machine for each in self._led.copies.values()]
        latest = max(each.skew_ns for each in machines)
        for each in machines:
            each.skew_ns = latest
        for host in self._led.copies:
            await self._operator.resume(host)

    def append_one(self) -> bool:
        """The program in the host that leads appends an excerpt; true once it has."""
        led, leading = self._elected, self.leading
        if self._appended_before < 0 and len(leading) == 1:
            self._appended_before = len(led.appended)
            led.applications[leading[0]].append((b"one more, once all is quiet",))
        return len(led.appended) > self._appended_before >= 0

    def judge(self) -> None:
        """Checks the queue when all is quiet.

        Raises:
            BrokenPromiseError: something is not as it must be.
        """
        super().judge()
        led, [leader] = self._elected, self.leading
        found = content(led.copies[leader].path)
        for each in led.told:
            if found.get(each.index) != each.digest:
                text = f"{format_index(each.index)} {each.how} at host {each.host}, {each.at:.3f} s"
                raise BrokenPromiseError("safe", f"{text}, and is not there")
        known = [each for each in led.history.operations if each.key == led.name]
        stuck = check_linearizable(known, GrownLog())
        if stuck is not None:
            raise BrokenPromiseError("linearizable", str(stuck))
        if led.is_alone:
            for index, digest in found.items():
                if digest not in led.attempted and digest not in led.written.torn.get(index, ()):
                    text = f"{format_index(index)} was written by no program"
                    raise BrokenPromiseError("altered", text)
