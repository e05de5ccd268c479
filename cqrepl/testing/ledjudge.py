"""The conditions that a queue whose leader changes must keep, when all is quiet.

One host leads. Every copy is equal to the leader's, and the leader knows; or it was said why not.
Each excerpt that an application was told it had appended is in the queue, or in a quarantine, or
was lost with the power of its host.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trio

from cqrepl.net.controlsocket import Values
from cqrepl.net.wordwatch import word_watch
from cqrepl.queue.files.cutreports import FOLDER_NAME, REPORT_NAME
from cqrepl.queue.format.index import format_index
from cqrepl.testing.causes import CLOCKS_DIFFER_SECONDS, OF_THE_CLOCK, unexplained
from cqrepl.testing.checker import (
    BrokenPromiseError,
    check_invented,
    check_mark,
    check_readable,
    check_synced,
    content,
    difference,
    is_readable,
    last_index,
)
from cqrepl.testing.labhosts import Copy
from cqrepl.testing.ledqueue import LedQueue
from cqrepl.testing.ledwaits import LedWaits
from cqrepl.testing.losses import is_behind
from cqrepl.testing.operators import Operator
from cqrepl.testing.quietanswers import Pair
from cqrepl.testing.storereader import promises
from cqrepl.testing.story import Story

MEET_SECONDS: Final = 10.0  # for hosts to start, to dial and to compare what they have
CLOCKS_DIFFER_NS: Final = int(CLOCKS_DIFFER_SECONDS) * 10**9


class LedJudge:
    """The judge of the queue."""

    def __init__(self, led: LedQueue, operator: Operator, waits: LedWaits, story: Story) -> None:
        self._led = led
        self._operator = operator
        self._waits = waits
        self._story = story
        self._refusals: dict[int, str] = {}  # of promotions in the end, by host
        self._to_quarantine: list[tuple[int, int]] = []  # hosts, and from which index on

    def check(self) -> None:
        """While faults come.

        Raises:
            BrokenPromiseError: something is not as it must be.
        """
        self._led.check_epochs()
        check_synced(self._led.written)
        for host, copy in self._led.copies.items():
            queue = self._led.streamed_at(host)
            if queue is None:
                continue
            for other, marks in sorted(queue.marks.items()):
                check_mark("the leader itself", marks.acknowledged, copy.path)
                there = self._led.copies[other]
                if promises(there.path).promised > queue.epochs.now.number:
                    continue  # it follows a host of which this one has not heard yet
                if not is_behind(there, self._led.written):
                    check_mark(there.title, marks.acknowledged, there.path)

    async def make_good(self) -> None:
        """Does what operators do when all hosts run and no faults come. Paused queues go on. Where
        no host leads that all copies may follow, a host is promoted."""
        await trio.sleep(MEET_SECONDS)
        for host in self._led.copies:
            await self._operator.resume(host)
        if not await self._operator.files.finish(self._is_held_by_clocks):
            self._story.tell("laboratory", "a new master by the file waits for the clocks")
        await trio.sleep(MEET_SECONDS)
        for accept_loss in (False, True):  # a copy that has stopped promises nothing
            for host in self._led.copies:
                if not self._has_leader:
                    done = await self._operator.promote(host, accept_loss=accept_loss)
                    if done is not None and "error" not in done:
                        self._check_promoted(host, done)
                    elif done is not None:
                        self._refusals[host] = str(done["error"])

    def _check_promoted(self, leader: int, done: Values) -> None:
        """Looks whether what a promotion has told is so, while nothing else goes on.

        Raises:
            BrokenPromiseError: it is not.
        """
        if leader not in self.leading:
            raise BrokenPromiseError("promotion", f"told as done, and host {leader} leads nothing")
        fenced, quarantined, epoch = done["fenced"], done["quarantined"], done["epoch"]
        assert isinstance(fenced, list)
        assert isinstance(quarantined, list)
        for host in fenced:
            now = promises(self._led.copies[host].path)
            if (now.promised, now.promised_to) != (epoch, leader):
                text = f"host {host} was told as fenced, and has promised {now.promised}"
                raise BrokenPromiseError("promotion", text)
        self._to_quarantine = [(each["host"], int(each["first"], 16)) for each in quarantined]

    def _check_quarantined(self) -> None:
        """Looks whether the tails that a promotion has told of as going to quarantine are there.

        Raises:
            BrokenPromiseError: one is not, and its host has not said why.
        """
        for host, first in self._to_quarantine:
            copy = self._led.copies[host]
            aside = [index for path in _quarantined(copy) for index in content(path)]
            if max(aside, default=-1) < first and not self._has_told(copy):
                text = f"host {host} was to put aside what it had from {format_index(first)} on"
                raise BrokenPromiseError("promotion", text)

    @property
    def _has_leader(self) -> bool:
        """True when one host leads that all copies may follow. False also where a copy has promised
        an epoch that its host has not begun, or has promised the latest epoch to another host. Such
        a copy follows no host, and the leader goes on with the others."""
        known = [promises(copy.path) for copy in self._led.copies.values()]
        promised = max(each.promised for each in known)
        queues = [self._led.streamed_at(host) for host in self.leading]
        leads = [each.epochs.now.number for each in queues if each is not None] == [promised]
        to = {each.promised_to for each in known if each.promised == promised}
        return leads and (not promised or to == set(self.leading))

    @property
    def leading(self) -> list[int]:
        """Ids of the hosts that stream it."""
        return sorted(self._led.streaming)

    @property
    def is_settled(self) -> bool:
        """True when one host leads, and all others have what it has, or say why not."""
        leading = self.leading
        return (
            len(leading) == 1
            and self._operator.files.is_settled
            and all(
                self._is_equal(leading[0], copy) or self._has_told(copy)
                for host, copy in self._led.copies.items()
                if host != leading[0]
            )
        )

    def _is_equal(self, leader: int, copy: Copy) -> bool:
        queue = self._led.streamed_at(leader)
        marks = None if queue is None else queue.marks.get(copy.host.host)
        if marks is None:
            return False
        source = self._led.copies[leader]
        return last_index(copy.path) == last_index(source.path) == marks.acknowledged

    @property
    def lacking(self) -> str:
        """The copies that are not equal, for people."""
        leading = self.leading
        if len(leading) != 1:
            return f"hosts {leading} lead {self._led.name!r}"
        others = (copy for host, copy in self._led.copies.items() if host != leading[0])
        lack = [copy.title for copy in others if not self._is_equal(leading[0], copy)]
        return f"{', '.join(lack)}, of host {leading[0]}"

    def append_one(self) -> bool:
        """The application of the host that leads appends an excerpt; false where it cannot, though
        its cycle has room."""
        led, leading = self._led, self.leading
        count = len(led.appended)
        if len(leading) != 1:
            return False
        application = led.applications[leading[0]]
        application.append((b"one more, once all is quiet",))
        word_watch().look()
        return len(led.appended) > count or application.refusals.has_full_cycle

    @property
    def answering(self) -> Iterator[Pair]:
        """The copies that are to answer, once all is quiet."""
        leading = self.leading
        if len(leading) == 1:
            [leader] = leading
            for host, copy in self._led.copies.items():
                if host != leader and not self._has_told(copy) and self._is_equal(leader, copy):
                    yield Pair(self._led.copies[leader], copy)

    def _has_told(self, copy: Copy) -> bool:
        return bool(copy.host.ends) if copy.host.node is None else copy.has_stopped

    def judge(self) -> None:
        """Checks the queue when all is quiet.

        Raises:
            BrokenPromiseError: something is not as it must be.
        """
        self.check()
        leading, led = self.leading, self._led
        if len(leading) != 1:
            text = f"hosts {leading} lead the queue" if leading else "no host leads the queue"
            whys = "; ".join(self._refusals.values()) if not leading else ""
            raise BrokenPromiseError("leader", f"{text}: {whys}" if whys else text)
        source = led.copies[leading[0]]
        found = content(source.path)
        check_readable(source.path, found)
        check_invented(f"the leader, host {leading[0]},", found, led.written)
        anywhere: dict[int, set[bytes]] = {}
        _add(anywhere, found)
        for host, copy in led.copies.items():
            for path in _quarantined(copy):
                aside = content(path)
                check_readable(path, aside)
                _add(anywhere, aside)
            if host != leading[0]:
                says = self._judge_copy(leading[0], copy, found, anywhere)
                if says:
                    led.differing.add(host)
        for each in led.appended:
            is_there = each.digest in anywhere.get(each.index, ())
            if not is_there and (each.index, each.digest) not in led.written.taken:
                text = f"{format_index(each.index)} of host {each.host}, {each.at:.3f} s, is lost"
                raise BrokenPromiseError("lost", text)
        self._check_quarantined()
        self._operator.files.judge()
        self._waits.check(found, anywhere, self._operator.promoted)
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self._operator.counts.items()))
        self._story.tell(
            "laboratory",
            f"{len(found)} excerpts, {len(led.differing)} copies say why they differ;"
            f" promotions: {counts}",
        )

    def _judge_copy(
        self, leader: int, copy: Copy, found: dict[int, bytes], anywhere: dict[int, set[bytes]]
    ) -> str:
        """The reason that a copy differs, as its host has said; empty where it does not differ."""
        if not self._is_equal(leader, copy) and self._has_told(copy):
            if is_readable(copy.path):
                _add(anywhere, content(copy.path))
            says = self._explained(copy)
            self._story.tell("laboratory", f"{copy.title} differs: {says}")
            return says
        held = content(copy.path)
        check_readable(copy.path, held)
        check_invented(copy.title, held, self._led.written)
        text = difference(found, held)
        if text is not None:
            raise BrokenPromiseError("equal", f"{copy.title} differs silently: {text}")
        if not self._is_equal(leader, copy):
            text = f"{copy.title} has all, and the leader was not told so"
            raise BrokenPromiseError("acknowledged", text)
        return ""

    def _explained(self, copy: Copy) -> str:
        """The reason that a copy has stopped, as its host says.

        Raises:
            BrokenPromiseError: nothing that was done accounts for it.
        """
        sink = copy.host.sink
        if sink is None:
            text = f"{copy.title} ends each time that it is started: {copy.host.ends[-1]}"
            raise BrokenPromiseError("cause", text)
        stops = copy.stops
        hosts = {copy.host.host} | self._led.have_led
        for stop in unexplained(stops, self._led.causes, hosts):
            if not self._is_of_the_clock(copy, stop.message):
                raise BrokenPromiseError("cause", f"{copy.title}: no fault explains {stop}")
        return "; ".join(map(str, stops))

    def _is_held_by_clocks(self) -> bool:
        """True when a copy stops because of its clock: then its master gives nothing to another one
        in order."""
        return any(
            self._is_of_the_clock(copy, stop.message)
            for copy in self._led.copies.values()
            for stop in copy.stops
        )

    def _is_of_the_clock(self, copy: Copy, says: str) -> bool:
        """True when a copy stops for excerpts of times to come, by its own clock. A host whose
        clock is so far behind another host's refuses a cycle that the other one has begun."""
        skews = [each.host.machine.skew_ns for each in self._led.copies.values()]
        is_behind = max(skews) - copy.host.machine.skew_ns > CLOCKS_DIFFER_NS
        return is_behind and any(each in says for each in OF_THE_CLOCK)


def _quarantined(copy: Copy) -> Iterator[Path]:
    """Directories of tails that have a report."""
    for report in sorted((copy.path / FOLDER_NAME).glob(f"*/{REPORT_NAME}")):
        yield report.parent


def _add(anywhere: dict[int, set[bytes]], found: dict[int, bytes]) -> None:
    for index, digest in found.items():
        anywhere.setdefault(index, set()).add(digest)
