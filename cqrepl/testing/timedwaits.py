"""Waits with a time of their own, and appends with a window, held to what their policies say.

What a wait calls safe the marks of the hosts must say at that moment, by the pure function of both.
Else a wait ends only where its policy has a time, not before that is over and not long after, and
as the policy has it then: it is not known, or this host has stepped down.
"""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import trio

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy, From, OnTimeout
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, Leading, SteppedDown
from cqrepl.testing.checker import BrokenPromiseError
from cqrepl.testing.labhosts import LabHost

LATE_SECONDS: Final = 1.0  # after its time a wait is over at last
_SECONDS: Final = (None, None, 0.0, 0.02, 0.3, 2.0)
_HOSTS: Final = range(1, 128)  # guests, that have other ids, never count
_WINDOWS: Final = (1, 2, 5, 20)
_ENDS: Final = {
    OnTimeout.WARN: AckOutcome.UNKNOWN,
    OnTimeout.FAIL: AckOutcome.UNKNOWN,  # as an exception
    OnTimeout.STEP_DOWN: AckOutcome.STEPPED_DOWN,
}


def with_time(rng: random.Random, policy: AckPolicy) -> AckPolicy:
    """The same policy, with any time, or none."""
    seconds, on_timeout = rng.choice(_SECONDS), rng.choice(list(OnTimeout))
    if seconds is None:
        return policy
    return replace(policy, timeout_seconds=seconds, on_timeout=on_timeout)


def with_window(rng: random.Random, policy: AckPolicy) -> AckPolicy:
    """The same policy, with any window, and such a time that an append that returns was
    admitted."""
    timed, window = with_time(rng, policy), rng.choice(_WINDOWS)
    if timed.on_timeout is OnTimeout.WARN:
        timed = replace(timed, on_timeout=OnTimeout.FAIL)
    return replace(timed, window=window)


def ends_in_time(policy: AckPolicy) -> bool:
    """True where a wait is over with its time."""
    return policy.timeout_seconds is not None and policy.on_timeout is not OnTimeout.BLOCK


class TimedWaits:
    """Those of one stream.

    Attributes:
        ended: how many waits have ended with their time.
    """

    def __init__(self) -> None:
        self.ended = 0
        self._due: dict[object, tuple[float, int, AckPolicy]] = {}  # of those that go on
        self._going: dict[object, tuple[Leading, int, AckPolicy]] = {}
        self._answerable: set[object] = set()  # of those that went on when it was looked last

    async def wait(self, leading: Leading, index: int, policy: AckPolicy) -> AckOutcome:
        """Waits.

        Raises:
            BrokenPromiseError: it ends otherwise than its policy says.
            WaitEnded: as `Leading.wait_acked`.
        """
        began, is_error = trio.current_time(), False
        with self._going_on(leading, index, policy):
            try:
                outcome = await leading.wait_acked(index, policy)
            except AckUnknown:
                outcome, is_error = AckOutcome.UNKNOWN, True
        due = began + (policy.timeout_seconds or 0.0)
        if ends_in_time(policy) and trio.current_time() > due + LATE_SECONDS:
            raise _broken(index, policy, "has gone on after its time")
        if outcome is AckOutcome.ACKED:
            check_marks(leading, index, policy)
            return outcome
        if outcome is AckOutcome.STEPPED_DOWN and leading.why_fenced:  # at any time
            return outcome
        self.ended += 1
        is_early = trio.current_time() < due
        is_other = _ENDS.get(policy.on_timeout) is not outcome
        if is_early or is_other or is_error is not (policy.on_timeout is OnTimeout.FAIL):
            raise _broken(index, policy, f"has ended as {outcome.value} after its time")
        if outcome is AckOutcome.STEPPED_DOWN:
            lead_again(leading)
        return outcome

    @contextmanager
    def _going_on(self, leading: Leading, index: int, policy: AckPolicy) -> Iterator[None]:
        key = object()
        self._going[key] = leading, index, policy
        if ends_in_time(policy):
            due = trio.current_time() + (policy.timeout_seconds or 0.0)
            self._due[key] = (due, index, policy)
        try:
            yield
        finally:
            self._due.pop(key, None)
            del self._going[key]

    def look(self) -> None:
        """Looks now and then at the waits that go on.

        Raises:
            BrokenPromiseError: one does though the hosts that it waits for had it when this was
                asked the last time.
        """
        answerable = {key for key, each in self._going.items() if _is_safe(*each)}
        for key in answerable & self._answerable:
            _, index, policy = self._going[key]
            raise _broken(index, policy, "goes on though all that it waits for have it")
        self._answerable = answerable

    def check(self) -> None:
        """Checks the waits when all is quiet.

        Raises:
            BrokenPromiseError: a wait goes on though its time has long been over.
        """
        for due, index, policy in self._due.values():
            if trio.current_time() > due + LATE_SECONDS:
                raise _broken(index, policy, "goes on after its time")


class Window:
    """The excerpts that a program has under way by a policy with a window.

    Args:
        leading: of one run of the source.
    """

    def __init__(self, leading: Leading, policy: AckPolicy) -> None:
        self.leading = leading
        self.policy = policy
        self._noted: list[tuple[int, bytes]] = []  # the latest ones, with their digests

    @property
    def newest(self) -> int:
        """The index of what was noted last; -1 for none."""
        return self._noted[-1][0] if self._noted else -1

    async def admit(self) -> tuple[int, bytes] | None:
        """Waits until one more may be under way.

        Returns:
            What had to be safe for that, which it is; None for nothing.

        Raises:
            BrokenPromiseError: it is not; or that was waited for though there was room.
            AckUnknown, SteppedDown, WaitEnded: as `Leading.admit_task`.
        """
        began, size = trio.current_time(), self.policy.window or 0
        await self.leading.admit_task(1, self.policy)
        before = len(self._noted) + 1 - size
        if before > 0:
            safe = self._noted[before - 1]
            check_marks(self.leading, safe[0], self.policy)
            del self._noted[:before]
            return safe
        if trio.current_time() > began:
            raise _broken(
                self.newest, self.policy, f"has waited with {before + size - 1} under way"
            )
        return None

    async def settle(self, index: int, digest: bytes) -> None:
        """One more is under way; returns when it is safe.

        Raises:
            BrokenPromiseError: it is not.
            AckUnknown, SteppedDown, WaitEnded: as `Leading.settle_task`.
        """
        self._noted.append((index, digest))
        await self.leading.settle_task(index, 1, self.policy)
        check_marks(self.leading, index, self.policy)


def lead_again(leading: Leading) -> None:
    """Leads on, after a wait that had this host step down; not where another host leads by now.

    Raises:
        BrokenPromiseError: it had not.
    """
    try:
        leading.check_leads()
    except SteppedDown:
        with suppress(SteppedDown):
            leading.lead_again()
    else:
        raise BrokenPromiseError("timed", "a host has stepped down, and would append")


def check_met(hosts: Iterable[int], host: LabHost) -> None:
    """Looks whether each host that counts has been there since the leader was started.

    Raises:
        BrokenPromiseError: one has not: its mark is of an earlier run, and it may have lost what it
            had since.
    """
    for each in hosts:
        if not host.has_met(each):
            text = f"host {each} counts at {host.machine.name}, which it has not met in this run"
            raise BrokenPromiseError("timed", text)


def _is_safe(leading: Leading, index: int, policy: AckPolicy) -> bool:
    try:
        check_marks(leading, index, policy)
    except BrokenPromiseError:
        return False
    return True


def check_marks(leading: Leading, index: int, policy: AckPolicy) -> None:
    """Right after a wait, before anything else goes on.

    Raises:
        BrokenPromiseError: by its policy, and the marks of the hosts, this is not safe.
    """
    having = [
        host
        for host, levels in leading.marks().items()
        if host in _HOSTS
        and (policy.hosts is None or host in policy.hosts)
        and min(levels.get(AckLevel.APPENDED, -1), levels.get(policy.level, -1)) >= index
    ]
    needed = _needed(policy)
    if needed is None or len(having) < needed:
        what = f"calls it safe, of {needed} hosts that it waits for {len(having)} have it"
        raise _broken(index, policy, f"{what} by the marks")


def _needed(policy: AckPolicy) -> int | None:
    """The number of hosts that a policy waits for; None where it names none of all."""
    match policy.from_:
        case From.NONE:
            return 0
        case From.ANY:
            return 1
        case From.ALL:
            return None if policy.hosts is None else len(policy.hosts)
        case From.MAJORITY:
            members = None if policy.hosts is None else len(policy.hosts) + 1
            return None if members is None else members // 2
        case number:
            return number


def _broken(index: int, policy: AckPolicy, what: str) -> BrokenPromiseError:
    return BrokenPromiseError("timed", f"a wait for {format_index(index)} by {policy} {what}")
