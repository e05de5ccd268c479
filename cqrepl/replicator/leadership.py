"""A queue that this host leads, as a program has it: to append to, and to wait until that is safe.

Theory of operation. What is safe a policy says (`protocol.ackpolicy`). A wait is at the board of
the queue (`ackboard`): so many hosts, of these, at this level. A thread sleeps there without the
interpreter and is woken once, when its own wait is over; no event loop comes in between.

When the time of a policy is over it is not known whether hosts have an excerpt: the acknowledgement
may be on its way. The write stays, and no wait ever says that it has failed.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.net.eventloop import check_in_trio, check_not_awaited, is_in_loop
from cqrepl.protocol.ackpolicy import AckPolicy, From, OnTimeout, check_policy, commit_index
from cqrepl.protocol.programfault import Contained
from cqrepl.queue import Queue, QueueLocked
from cqrepl.queue.files.tablestore import TableValue
from cqrepl.queue.format.index import INDEX_MAX, NEXT_OF_EMPTY, Index, format_index
from cqrepl.replicator.leadlease import LeadLease
from cqrepl.replicator.marks.ackboard import AckBoard, WaitEnded, Wanted, named_hosts
from cqrepl.replicator.queuestate.durations import Durations
from cqrepl.surroundings import is_no_thread, surroundings

NOTHING: Final = -1
_ONE_HAS_IT: Final = AckPolicy()
_NOBODY_WAITS: Final = AckPolicy(from_=From.NONE)
_IN_ASYNCIO: Final = ": in asyncio with that of cqrepl.aio.Host.queue(name)"
_CLOSED: Final = "its source has closed"
_logger: Final = logging.getLogger(__name__)


class AckOutcome(Enum):
    """The ways in which a wait can end."""

    ACKED = "acked"  # it is as safe as the policy says
    UNKNOWN = "unknown"  # the time is over, and whether hosts have it is not known
    STEPPED_DOWN = "stepped down"  # it is not known either, and this host leads no longer


class Appended(int):
    """The index of the last excerpt that an append has written, and what came of its wait.

    Attributes:
        outcome: how the wait has ended; None where nothing was waited for: there is no policy, it
            is for no host, or its window has room.
    """

    outcome: AckOutcome | None

    def __new__(cls, index: int, outcome: AckOutcome | None = None) -> Self:
        appended = super().__new__(cls, index)
        appended.outcome = outcome
        return appended

    def __reduce__(self) -> tuple[type[Self], tuple[int, AckOutcome | None]]:
        return type(self), (int(self), self.outcome)

    @property
    def is_acked(self) -> bool:
        """True where a policy calls what was appended safe; else that is not known."""
        return self.outcome is AckOutcome.ACKED


class AckUnknown(TimeoutError):
    """The time of a policy is over, and whether hosts have an excerpt is not known. It is in the
    queue, and stays there.

    Attributes:
        queue: name of the queue.
        index: what was waited for.
        hindrances: what is known to keep hosts from saying more, for people.
    """

    def __init__(
        self, queue: str, index: int, policy: AckPolicy, hindrances: Sequence[str] = ()
    ) -> None:
        super().__init__(queue, index)
        self.queue = queue
        self.index = index
        self.hindrances = tuple(hindrances)
        self._policy = policy

    def __str__(self) -> str:
        return _unknown(self.queue, self.index, self._policy, self.hindrances)


class SteppedDown(Exception):
    """This host leads a queue no longer, and appends nothing to it: another host leads, or this one
    has given up the lead; a policy has had it step down, until `lead_again`; or the queue was
    closed, with its host or alone.

    Attributes:
        queue: name of the queue.
        epoch: the number of the epoch in which this host led; 0: it was never promoted.
        why: the reason why it leads no longer; empty where a policy has had it step down, or the
            queue was closed.
    """

    def __init__(self, message: str, *, queue: str = "", epoch: int = 0, why: str = "") -> None:
        super().__init__(message)
        self.queue = queue
        self.epoch = epoch
        self.why = why


class _Needed(NamedTuple):
    """The level that a policy waits for, and the hosts.

    Args:
        hosts_min: so many hosts have to say so, 0 for none.
        hosts: the ids of those that count.
    """

    hosts_min: int
    level: AckLevel
    hosts: tuple[int, ...]
    policy: AckPolicy


class Leading:
    """One queue of a source; made by it (`Source.leading`). Any thread may use it.

    Args:
        path: directory of the queue.
        policy: that the queue was given, by a configuration or a program. None: it was given none;
            then appends wait for no host, and what one host has appended is safe.
        epoch: see below.

    Attributes:
        epoch: the number of the epoch in which this host leads the queue; 0: it was never promoted.
            It stays: a host that leads once more, in a later epoch, has another `Leading`.
        policy: of each call that does not give its own, but for appends.
        given: the policy that the queue was given; None: none.
        unknown_waits: the number of waits that have ended because their time was over: it is not
            known whether hosts have what they waited for.
        waited: how long the waits by a policy took that ended well, by its level.
        has_stepped_down: a wait has ended so, under a policy that says so; or this host leads no
            longer.
        why_fenced: the reason why this host leads no longer, for good; empty while it may.
        hindrances: what keeps hosts from saying that an index is as safe as a policy says, for
            people; any thread asks.
        on_step_down: is called then, once for each time that the lead is lost. Where a policy says
            so, in the thread or task that waited first; else in a thread of its own, and what it
            raises is logged.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        board: AckBoard,
        policy: AckPolicy | None,
        *,
        epoch: int = 0,
        begins: Index = NEXT_OF_EMPTY,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self._begins = begins  # the next index at the beginning of the epoch
        self.given = policy
        self.policy = policy or _ONE_HAS_IT
        self.unknown_waits = 0
        self.waited = {level: Durations() for level in AckLevel}
        self.has_stepped_down = False
        self.why_fenced = ""
        self._stepping = threading.Lock()  # of both
        self.on_step_down: Callable[[], None] = lambda: None
        self.role_changed: Callable[[], None] = lambda: None  # called in order, in any thread
        self.hindrances: Callable[[AckPolicy], Sequence[str]] = lambda policy: ()
        self.lease: LeadLease | None = None  # by an election
        self._path = path
        self._board = board
        self._guard = threading.Lock()  # of the next three
        self._queue: Queue | None = None  # open once it is needed
        self._appends = 0  # under way
        self._is_closed = False
        self._last_needed: _Needed | None = None
        self._unsafe: deque[tuple[int, int]] = deque()  # last indexes and numbers of excerpts

    def append(self, payloads: Sequence[bytes], *, policy: AckPolicy | None = None) -> Appended:
        """Appends excerpts under one lock, and waits until a policy calls them safe; the index of
        the last, and how the wait has ended. For threads. A policy with a window waits first, for
        what was appended before.

        Args:
            policy: None: the one that the queue was given. If that has a window, only the window is
                waited for: so many excerpts are under way. If it was given none, no host is.

        Raises:
            SteppedDown: this host leads no longer, or a policy has had it step down, now or before.
                What was appended stays.
            AckUnknown, WaitEnded: as `wait`; the excerpts are appended, unless it was the window
                that was waited for.
            ValueError: a policy that counts all hosts and names none; nothing is appended.
            RuntimeError: called in a task with anything to wait for; nothing is appended.
            QueueError, OSError: as `Queue.append_many`.
        """
        admitted = self.admit(len(payloads), policy)
        queue = self._begin_append()
        try:
            index = queue.append_many(payloads)
        except QueueLocked:
            self.check_leads()  # as it is locked for the host that leads now
            raise
        finally:
            self._end_append()
        return self.settle(index, len(payloads), policy, admitted)

    def admit(self, count: int, policy: AckPolicy | None) -> AckOutcome | None:
        """Waits until a policy lets so many excerpts more be unsafe. For threads.

        Args:
            policy: None: as for `append`.

        Returns:
            How the last wait has ended, for `settle`; None where it had not to wait.

        Raises:
            SteppedDown: a policy has had this host step down.
            AckUnknown, WaitEnded, RuntimeError, ValueError: as `wait`.
        """
        policy = self._or_given(policy)
        if self._needed(policy).hosts_min:
            _check_in_thread()
        outcome = None
        while (oldest := self._beyond_window(policy, count)) is not None:
            outcome = self._wait(oldest[0], policy)
            if outcome is not AckOutcome.ACKED:
                break
            self._forget(oldest)
        self.check_leads()
        return outcome

    async def admit_task(self, count: int, policy: AckPolicy | None) -> AckOutcome | None:
        """The same in a task of the source's event loop.

        Raises:
            RuntimeError: a connection waits for what this task does, so no acknowledgement would
                come that way; nothing is appended.
        """
        policy = self._or_given(policy)
        if self._needed(policy).hosts_min:
            check_not_awaited("an append that waits for a policy")
        outcome = None
        while (oldest := self._beyond_window(policy, count)) is not None:
            outcome = await self.wait_acked(oldest[0], policy)
            if outcome is not AckOutcome.ACKED:
                break
            self._forget(oldest)
        self.check_leads()
        return outcome

    def settle(
        self, index: int, count: int, policy: AckPolicy | None, admitted: AckOutcome | None = None
    ) -> Appended:
        """Waits until so many excerpts are safe, of which the last one has this index, and which
        were appended by other means since `admit`, in the same thread.

        Args:
            policy: None: as for `append`.
            admitted: what `admit` gave.

        Returns:
            The index, with what is known of it. Where only a window was waited for, in vain, that
            is unknown; where it had room, nothing was waited for.

        Raises:
            SteppedDown: a policy has had this host step down.
            AckUnknown, WaitEnded: as `wait`.
        """
        waited = self._note(index, count, policy)
        if waited is None:
            return _under_way(index, admitted)
        outcome = self._wait(index, waited)
        self._check_leads(outcome, index, waited)
        return Appended(index, outcome)

    async def settle_task(
        self, index: int, count: int, policy: AckPolicy | None, admitted: AckOutcome | None = None
    ) -> Appended:
        """The same in a task of the source's event loop."""
        waited = self._note(index, count, policy)
        if waited is None:
            return _under_way(index, admitted)
        outcome = await self.wait_acked(index, waited)
        self._check_leads(outcome, index, waited)
        return Appended(index, outcome)

    def wait(
        self, index: int, policy: AckPolicy | None = None, timeout_s: float | None = None
    ) -> AckOutcome:
        """Waits until everything up to `index` is safe. For threads: it holds up its own, and lets
        all others run.

        Args:
            timeout_s: instead of the policy's; None: that.

        Raises:
            AckUnknown: the time is over, and the policy says `fail`; or it says `block`, and the
                time is that of this call.
            WaitEnded: nothing more comes of the queue; it is not known either.
            RuntimeError: called in a task, which waits with `wait_acked`.
            ValueError: what is no index, or a policy that counts all hosts and names none.
        """
        policy = policy or self.policy
        if not self._needed(policy).hosts_min:
            return AckOutcome.ACKED
        _check_in_thread()
        return self._wait(index, policy, timeout_s)

    def _wait(self, index: int, policy: AckPolicy, timeout_s: float | None = None) -> AckOutcome:
        """The same in what is known to be a thread."""
        wanted = self._wanted(index, policy)
        if wanted is None:
            return AckOutcome.ACKED
        limit = policy.timeout_seconds if timeout_s is None else timeout_s
        start = surroundings().monotonic()
        try:
            try:
                self._board.wait_for(wanted, limit)
            except TimeoutError:
                if timeout_s is not None and policy.on_timeout is OnTimeout.BLOCK:
                    self._count_unknown()
                    raise self._ack_unknown(index, policy) from None
                if not self._goes_on(index, policy):
                    return self._unknown(policy)
                self._board.wait_for(wanted, None)
        except WaitEnded as ended:
            return self.outcome_of(ended)
        return self._acked(policy, start)

    async def wait_acked(self, index: int, policy: AckPolicy | None = None) -> AckOutcome:
        """The same in a task of the source's event loop.

        Raises:
            AckUnknown, WaitEnded, ValueError: as `wait`.
            RuntimeError: not in a task of trio.
        """
        check_in_trio("Leading.wait_acked")
        policy = policy or self.policy
        wanted = self._wanted(index, policy)
        if wanted is None:
            return AckOutcome.ACKED
        start = surroundings().monotonic()
        try:
            with trio.move_on_after(_seconds(policy.timeout_seconds)) as scope:
                await self._board.wait_for_in_task(wanted)
            if scope.cancelled_caught:
                if not self._goes_on(index, policy):
                    return self._unknown(policy)
                await self._board.wait_for_in_task(wanted)
        except WaitEnded as ended:
            return self.outcome_of(ended)
        return self._acked(policy, start)

    async def wait_hosts(
        self, index: int, n: int = 1, *, hosts: Iterable[int] | None = None
    ) -> AckOutcome:
        """Waits for so many hosts, of these, without limit, whatever any policy says.

        Raises:
            WaitEnded, ValueError, RuntimeError: as `AckBoard.wait_acked`.
        """
        try:
            await self._board.wait_acked(index, n, hosts=hosts)
        except WaitEnded as ended:
            return self.outcome_of(ended)
        return AckOutcome.ACKED

    def wait_hosts_here(
        self,
        index: int,
        n: int = 1,
        timeout_s: float | None = None,
        *,
        hosts: Iterable[int] | None = None,
    ) -> AckOutcome:
        """The same for threads.

        Raises:
            TimeoutError, WaitEnded, ValueError, RuntimeError: as `AckBoard.wait`.
        """
        try:
            self._board.wait(index, n, timeout_s, hosts=hosts)
        except WaitEnded as ended:
            return self.outcome_of(ended)
        return AckOutcome.ACKED

    def outcome_of(self, ended: WaitEnded) -> AckOutcome:
        """The outcome of a wait at the board that has ended: another host leads.

        Raises:
            WaitEnded: none does, as far as is known.
        """
        if self.why_fenced:
            return AckOutcome.STEPPED_DOWN
        raise ended

    def _wanted(self, index: int, policy: AckPolicy) -> Wanted | None:
        """The index, hosts and level of a wait, in a thread or a task; None where it waits for no
        host."""
        needed = self._needed(policy)
        if not needed.hosts_min:
            return None
        if index < 0:
            raise ValueError(f"an index expected, {index} came")
        return index, needed.hosts_min, needed.level, needed.hosts

    def commit_index(self, policy: AckPolicy | None = None) -> int:
        """The index up to which a policy calls the queue safe now; -1 for nothing.

        Raises:
            SteppedDown: the queue is streamed from here no longer.
            QueueError, OSError: the queue cannot be read.
        """
        marks = self.marks()  # first: what is appended later is no less safe for it
        with self._guard:
            last = self._open().last_index()
        return commit_index(policy or self.policy, marks, NOTHING if last is None else last)

    def may_read(self) -> bool:
        """True while what this host reads of its own state is what was written last: it leads, and
        under an election no other host can lead by now. Without an election, copies that have
        promised another host keep it from appending, and not from reading. It is asked before the
        state is read, never after."""
        return self.goes_on and (self.lease is None or self.lease.holds())

    async def read_index(self, policy: AckPolicy | None = None) -> int:
        """The index up to which a consistent read has to have seen the queue, as `commit_index` has
        it. Where the lease is over the members are asked once more first. A new leader waits until
        so many hosts have told that they hold what earlier leaders may have called safe.

        Raises:
            SteppedDown: this host leads no longer, or too few members answer.
            RuntimeError: not in a task of trio.
            QueueError, OSError: the queue cannot be read.
        """
        check_in_trio("Leading.read_index")
        self.check_leads()
        if self.lease is not None and not self.lease.holds() and not await self.lease.renewed():
            self.check_leads()
            raise self._stepped_down("too few members have answered that they hear this host")
        with self._guard:
            before = self._open().last_index_before(self._begins)
        wanted = None if before is None else self._wanted(before, policy or self.policy)
        if wanted is not None:
            try:
                await self._board.wait_for_in_task(wanted)
            except WaitEnded as ended:
                raise self._stepped_down(ended.why) from ended
        return self.commit_index(policy)

    def safe_index(self) -> int:
        """The index up to which the queue's own policy calls safe what hosts have, however long the
        queue is; -1 for nothing. It is asked for often, of many queues."""
        return commit_index(
            self.policy, self._marks_at({AckLevel.APPENDED, self.policy.level}), INDEX_MAX
        )

    def keep_safe(self, word: TableValue) -> None:
        """Has a word of the table store rise with what the policy that the queue was given calls
        safe, or, where it was given none, with what one peer has."""
        if self.given is None:
            self._board.keep_safe(word, 1, AckLevel.APPENDED, None)
        elif needed := self.given.hosts_min:
            self._board.keep_safe(word, needed, self.given.level, named_hosts(self.given.counted))

    def wanted_beyond(self, safe: int) -> Wanted | None:
        """The least that has to come at the board for the queue's own policy to call more safe than
        up to this index; None where no host is waited for, or it is not known which are all."""
        return self._wanted(safe + 1, self.policy) if self.policy.hosts_min is not None else None

    def marks(self) -> Mapping[int, Mapping[AckLevel, int]]:
        """The index up to which each level is true of each host, in this run of the source."""
        return self._marks_at(AckLevel)

    def _marks_at(self, levels: Iterable[AckLevel]) -> Mapping[int, Mapping[AckLevel, int]]:
        found: dict[int, dict[AckLevel, int]] = {}
        for level in levels:
            for host, index in self._board.marks_at(level).items():
                found.setdefault(host, {})[level] = index
        return found

    @property
    def goes_on(self) -> bool:
        """True while this host may append, and has not closed the queue."""
        return not (self.has_stepped_down or self._is_closed)

    def check_leads(self) -> None:
        """Does nothing while this host may append.

        Raises:
            SteppedDown: a policy has had this host step down, until `lead_again`; or another host
                leads, which is named.
        """
        if self.has_stepped_down:
            leads = f": {self.why_fenced}" if self.why_fenced else ""
            raise self._stepped_down(f"this host has stepped down{leads}")

    def check_goes_on(self) -> None:
        """Does nothing while this host may append, and has not closed the queue.

        Raises:
            SteppedDown: as `check_leads`; or the queue was closed.
        """
        self.check_leads()
        if self._is_closed:
            raise self._stepped_down(_CLOSED)

    def lead_again(self) -> None:
        """Takes back that this host has stepped down.

        Raises:
            SteppedDown: another host leads by now, or the queue was closed, which nothing here
                takes back.
        """
        with self._stepping:  # another thread may fence it now
            if self.why_fenced or self._is_closed:
                raise self._stepped_down(self.why_fenced or _CLOSED)
            self.has_stepped_down = False
            self.role_changed()

    def fence(self, why: str) -> None:
        """Another host leads the queue: nothing is appended here any more, and all waits end. In
        the event loop, which does not wait for the program."""
        with self._stepping:
            is_news, self.has_stepped_down = not self.has_stepped_down, True
            self.why_fenced = why
            self.role_changed()
        self._board.close(f"this host has stepped down: {why}")
        if is_news:
            self._tell_program()

    def _tell_program(self) -> None:
        """Calls `on_step_down` in a thread; where there is none to be had, here."""
        if surroundings().has_threads:
            try:
                trio.lowlevel.start_thread_soon(self._call_program, lambda _: None)
                return
            except RuntimeError as error:
                if not is_no_thread(error):
                    raise
        self._call_program()

    def _call_program(self) -> None:
        with Contained(self._log_fault):
            self.on_step_down()

    def _log_fault(self, error: Exception) -> None:
        told = "queue %r: the program has failed in on_step_down: %r"
        _logger.error(told, self.name, error, exc_info=error)

    def close(self) -> None:
        """The queue is closed with its source, or by the last append that is under way."""
        with self._guard:
            self._is_closed = True
            self._close_unused()

    def _begin_append(self) -> Queue:
        """The queue, which stays open until `_end_append`."""
        with self._guard:
            queue = self._open()
            self._appends += 1
        return queue

    def _end_append(self) -> None:
        with self._guard:
            self._appends -= 1
            self._close_unused()

    def _needed(self, policy: AckPolicy) -> _Needed:
        """The needs of a policy. Those of the last policy are kept: most appends have the same
        one."""
        needed = self._last_needed
        if needed is None or needed.policy is not policy:
            count, hosts = _count(policy), named_hosts(policy.counted)
            needed = self._last_needed = _Needed(count, policy.level, hosts, policy)
        return needed

    def _close_unused(self) -> None:
        if self._is_closed and not self._appends and self._queue is not None:
            self._queue.close()
            self._queue = None

    def _beyond_window(self, policy: AckPolicy, count: int) -> tuple[int, int] | None:
        """The append that has to be safe before so many excerpts more may be unsafe: its last index
        and number of excerpts. None: none has to be."""
        if policy.window is None:
            return None
        with self._guard:
            waiting = count + sum(each for _, each in self._unsafe)
            return self._unsafe[0] if waiting > policy.window and self._unsafe else None

    def _forget(self, safe: tuple[int, int]) -> None:
        with self._guard, suppress(ValueError):  # another thread may have waited for it too
            self._unsafe.remove(safe)

    def _or_given(self, policy: AckPolicy | None) -> AckPolicy:
        """The policy that an append waits for."""
        check_policy(policy)
        return policy or self.given or _NOBODY_WAITS

    def _note(self, index: int, count: int, policy: AckPolicy | None) -> AckPolicy | None:
        """The policy that is waited for behind an append; None where no host is waited for, or the
        append is within its window."""
        own = self._or_given(policy)
        if not self._needed(own).hosts_min:
            return None
        if own.window is None:
            return own
        with self._guard:
            self._unsafe.append((index, count))
        return policy

    def _check_leads(self, outcome: AckOutcome, index: int, policy: AckPolicy) -> None:
        if outcome is not AckOutcome.STEPPED_DOWN:
            return
        if self.why_fenced:
            is_unknown = f"it is not known whether hosts have {format_index(index)}"
            raise self._stepped_down(f"{self.why_fenced}; {is_unknown}")
        raise self._stepped_down(str(self._ack_unknown(index, policy)))

    def _stepped_down(self, text: str) -> SteppedDown:
        message = f"queue {self.name!r}: {text}"
        return SteppedDown(message, queue=self.name, epoch=self.epoch, why=self.why_fenced)

    def _open(self) -> Queue:
        if self._is_closed:
            self.check_goes_on()
        if self._queue is None:
            self._queue = Queue.open_for_append(self._path)
        return self._queue

    def _goes_on(self, index: int, policy: AckPolicy) -> bool:
        """The time is over. True where the wait goes on.

        Raises:
            AckUnknown: the policy says `fail`.
        """
        if policy.on_timeout is OnTimeout.FAIL:
            self._count_unknown()
            raise self._ack_unknown(index, policy)
        _logger.warning("%s", self._ack_unknown(index, policy))
        return policy.on_timeout is OnTimeout.BLOCK

    def _ack_unknown(self, index: int, policy: AckPolicy) -> AckUnknown:
        return AckUnknown(self.name, index, policy, self.hindrances(policy))

    def _acked(self, policy: AckPolicy, start: float) -> AckOutcome:
        """A wait has ended well; it began then."""
        self.waited[policy.level].add(surroundings().monotonic() - start)
        return AckOutcome.ACKED

    def _count_unknown(self) -> None:
        with self._guard:
            self.unknown_waits += 1

    def _unknown(self, policy: AckPolicy) -> AckOutcome:
        self._count_unknown()
        if policy.on_timeout is not OnTimeout.STEP_DOWN:
            return AckOutcome.UNKNOWN
        with self._stepping:  # another thread may lead again now
            is_news, self.has_stepped_down = not self.has_stepped_down, True
            self.role_changed()
        if is_news:
            self.on_step_down()
        return AckOutcome.STEPPED_DOWN


def _under_way(index: int, admitted: AckOutcome | None) -> Appended:
    """An append that is not waited for; unknown where its window was waited for in vain."""
    return Appended(index, AckOutcome.UNKNOWN if admitted is AckOutcome.UNKNOWN else None)


def _seconds(limit: float | None) -> float:
    """A limit as trio has it."""
    return math.inf if limit is None else limit


def _check_in_thread() -> None:
    if is_in_loop():
        there = "" if trio.lowlevel.in_trio_task() else _IN_ASYNCIO
        raise RuntimeError(f"a task of the event loop waits with wait_acked{there}")


def _count(policy: AckPolicy) -> int:
    count = policy.hosts_min
    if count is None:
        raise ValueError(
            f"hosts expected with 'from: {policy.from_}': it is not known which are all"
        )
    return count


def _unknown(queue: str, index: int, policy: AckPolicy, hindrances: Sequence[str]) -> str:
    known = "".join(f"; {each}" for each in hindrances)
    return (
        f"queue {queue!r}: it is not known whether hosts have {format_index(index)},"
        f" after the time for that; its policy: {policy}{known}"
    )
