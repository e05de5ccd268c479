"""The events that a host tells its program: what is safe, how far copies are, what differs, and who
leads.

Theory of operation. Nothing is queued but changes of roles (`rolelog`), of which a program hears
each one: that its host was deposed is news also where it leads again by then. For all else one task
compares how things stand with what was told last, and has a thread make one call for each
difference. While a call lasts, nothing else is told, and afterwards only how things stand then. So
a program that takes its time delays no other part of the host, what waits for it never grows beyond
one value for each queue and host, and the changes that the role log keeps for it; and the pumps,
native or not, know nothing of it. The task hears of acknowledgements by a watch at the board, which
rings the bell of the event loop. For all else it looks once a second, and when something has
changed.
"""

import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Final

import trio

from cqrepl.net.threads import NoThread, in_thread
from cqrepl.protocol import StopReason
from cqrepl.protocol.programfault import Contained
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.reaches import Reach, reaches_of
from cqrepl.replicator.rolelog import Role, RoleChange, RoleLog
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from cqrepl.surroundings import surroundings

LOOK_SECONDS: Final = 1.0  # to the next look, at the latest
PAUSE_SECONDS: Final = 0.05  # between two looks at least
END_SECONDS: Final = 1.0  # for the last calls, when the host ends in order
NOTHING: Final = -1
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvents:
    """The functions that a host calls when something is different; each may be left out.

    The calls come one after the other, from a thread that is not the event loop's, and may take
    their time: what changes meanwhile is told afterwards, as it stands then; changes of roles are
    told one by one. An exception is logged, and changes nothing else.

    Args:
        on_acked: name of a queue, and the index up to which its policy calls it safe now. Not of a
            queue whose policy waits for no host.
        on_lag: name of a queue, id of the host that has a copy, and the excerpts that it lacks of
            what was there a second before; None for more than a cycle, 0 when it has caught up.
            Of a queue that is taken in, of what its source had when the stream began; the id is
            that of its master, 0 where it is taken from any host.
        on_diverged: the stop of a queue whose copies differ; once, until it goes on.
        on_role: name of a queue, and what this host does with it: at the start, and each time that
            changes.
        on_role_change: the same with the epoch and its leader (`RoleChange`); also when only these
            change.
        on_unknown: name of a queue, and how many of its waits have ended by now without knowing
            whether hosts have what they waited for: the time of the policy was over.
    """

    on_acked: Callable[[str, int], None] | None = None
    on_lag: Callable[[str, int, int | None], None] | None = None
    on_diverged: Callable[[Stop], None] | None = None
    on_role: Callable[[str, Role], None] | None = None
    on_role_change: Callable[[RoleChange], None] | None = None
    on_unknown: Callable[[str, int], None] | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            function = getattr(self, each.name)
            if function is not None and not callable(function):
                raise TypeError(f"HostEvents: {each.name}=: expected a function, got {function!r}")


def events_of(events: HostEvents | Iterable[HostEvents] | None) -> tuple[HostEvents, ...]:
    """The events of a host, which come as one or as several.

    Raises:
        TypeError: they are something else.
    """
    given = (events,) if events is None or isinstance(events, HostEvents) else events
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if each is not None and not isinstance(each, HostEvents):
            raise TypeError(f"events=: expected HostEvents, or a list of them, got {each!r}")
    return tuple(each for each in found if each is not None)


@dataclass(frozen=True, slots=True)
class _Call:
    """One of the functions of a program, and what it is told."""

    name: str
    function: Callable[..., None]
    told: tuple[object, ...]


class EventDesk:
    """Tells one program.

    Args:
        source: None for a host that streams nothing.
        sink: None for one that takes nothing in.
        roles: of that host; None: it has no log of its own.
    """

    def __init__(
        self,
        events: HostEvents,
        source: Source | None = None,
        sink: Sink | None = None,
        roles: RoleLog | None = None,
    ) -> None:
        self._events = events
        self._source = source
        self._sink = sink
        self._acked: dict[str, int] = {}
        self._ends: dict[tuple[str, int], int] = {}  # of the queue, at the look before
        self._lags: dict[tuple[str, int], int | None] = {}
        self._diverged: list[Stop] = []
        self._has_own_log = roles is None
        self._log = RoleLog(source, sink) if roles is None else roles
        wants_roles = events.on_role is not None or events.on_role_change is not None
        self._reader = self._log.reader() if wants_roles else None
        self._roles: dict[str, Role] = {}  # as told
        self._unknown: dict[str, int] = {}  # waits
        self._lags_due = -math.inf  # by trio's clock
        self._limiter = trio.CapacityLimiter(1)
        self._is_ending = False
        self._rest = trio.CancelScope()  # between two looks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For the length of a block tells what is different; and, within a second, how things
        stand at its end in order."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._work)
                yield
                nursery.cancel_scope.deadline = trio.current_time() + END_SECONDS
                self._is_ending = True
                self._rest.cancel()
        finally:
            if self._reader is not None:
                self._log.drop(self._reader)
            if self._has_own_log:
                self._log.end()

    async def _work(self) -> None:
        is_last = False
        while not is_last:
            if is_last := self._is_ending:
                self._lags_due = -math.inf
            await self._call(self._news())
            with trio.CancelScope() as self._rest:
                if not self._is_ending:
                    await trio.sleep(PAUSE_SECONDS)
                    await self._wait()

    async def _wait(self) -> None:
        """Waits until something may be different."""
        halves = [half for half in (self._source, self._sink) if half is not None]
        with trio.move_on_after(LOOK_SECONDS), ExitStack() as stack:
            for queue in self._acked_queues():
                safe, policy = self._acked.get(queue.name, NOTHING), queue.policy
                if queue.board.has_ended or safe == INDEX_MAX:
                    continue
                count, hosts, level = policy.hosts_min or 1, policy.counted, policy.level
                stack.enter_context(queue.board.watched(safe + 1, count, hosts=hosts, level=level))
            async with trio.open_nursery() as nursery:
                for half in halves:
                    nursery.start_soon(_cancel_when, half.changed, nursery.cancel_scope)

    async def _call(self, calls: list[_Call]) -> None:
        if not calls:
            return
        if not surroundings().has_threads:
            _make(calls)
            return
        while True:
            with suppress(NoThread):
                work = partial(_make, calls)
                await in_thread(work, limiter=self._limiter, abandon_on_cancel=True)
                return
            await trio.sleep(LOOK_SECONDS)  # they wait until there is one

    def _news(self) -> list[_Call]:
        """The calls that are to be made; from now on they count as made."""
        calls: list[_Call] = []
        events = self._events
        calls += self._new_roles()
        if events.on_acked is not None:
            calls += [_Call("on_acked", events.on_acked, each) for each in self._new_acked()]
        if events.on_unknown is not None:
            calls += [_Call("on_unknown", events.on_unknown, each) for each in self._new_unknown()]
        if events.on_lag is not None and trio.current_time() >= self._lags_due:
            self._lags_due = trio.current_time() + LOOK_SECONDS
            calls += [_Call("on_lag", events.on_lag, each) for each in self._new_lags()]
        if events.on_diverged is not None:
            calls += [
                _Call("on_diverged", events.on_diverged, (each,)) for each in self._new_diverged()
            ]
        return calls

    def _acked_queues(self) -> list[SourceQueue]:
        """The queues whose policies wait for hosts."""
        if self._source is None or self._events.on_acked is None:
            return []
        queues = self._source.queues.values()
        return [each for each in queues if each.policy.hosts_min and each.copy is None]

    def _new_acked(self) -> Iterator[tuple[str, int]]:
        queues = self._acked_queues()
        gone = self._acked.keys() - {queue.name for queue in queues}
        for name in gone:
            del self._acked[name]
        for queue in queues:
            safe = queue.leading.safe_index()
            if safe > self._acked.get(queue.name, NOTHING):
                self._acked[queue.name] = safe
                yield queue.name, safe

    def _new_unknown(self) -> Iterator[tuple[str, int]]:
        queues = {} if self._source is None else self._source.queues
        before = self._unknown
        self._unknown = {name: each.leading.unknown_waits for name, each in queues.items()}
        for name, waits in self._unknown.items():
            if waits and waits != before.get(name):
                yield name, waits

    def _new_lags(self) -> Iterator[tuple[str, int, int | None]]:
        seen = set()
        for half in (self._source, self._sink):
            for each in () if half is None else reaches_of(half):
                key = (each.queue, each.peer or 0)
                seen.add(key)
                lag = _lag(each, self._ends.get(key))
                self._ends[key] = each.end
                if key not in self._lags or self._lags[key] != lag:
                    self._lags[key] = lag
                    yield *key, lag
        for key in self._ends.keys() - seen:  # it is told again when it comes again
            del self._ends[key]
            self._lags.pop(key, None)

    def _new_diverged(self) -> list[Stop]:
        halves = [half for half in (self._source, self._sink) if half is not None]
        stops = [stop for half in halves for stop in half.stops]
        before = self._diverged
        self._diverged = [stop for stop in stops if stop.reason is StopReason.DIVERGED]
        return [stop for stop in self._diverged if stop not in before]

    def _new_roles(self) -> Iterator[_Call]:
        if self._reader is None:
            return
        self._log.look_at_all()
        on_role, on_change = self._events.on_role, self._events.on_role_change
        for change in self._reader.take():
            is_other = self._roles.get(change.queue) is not change.role or change.missed
            self._roles[change.queue] = change.role
            if on_role is not None and is_other:
                yield _Call("on_role", on_role, (change.queue, change.role))
            if on_change is not None:
                yield _Call("on_role_change", on_change, (change,))


def _lag(reach: Reach, end_before: int | None) -> int | None:
    """The excerpts that a copy lacks of what was there at the look before: one that is on its way
    is no news. None for more than a cycle."""
    end = reach.end if end_before is None else end_before
    if reach.held >= end:
        return 0
    if reach.held < 0:
        return None if end >> reach.shift else end + 1
    is_near = reach.held >> reach.shift == end >> reach.shift
    return end - reach.held if is_near else None


def _make(calls: list[_Call]) -> None:
    for call in calls:
        with Contained(partial(_log_fault, call)):
            call.function(*call.told)


def _log_fault(call: _Call, error: Exception) -> None:
    told = ", ".join(map(str, call.told))
    _logger.error("the program has failed in %s(%s): %r", call.name, told, error, exc_info=error)


async def _cancel_when(changed: Signal, scope: trio.CancelScope) -> None:
    await changed.wait()
    scope.cancel()


@asynccontextmanager
async def telling(
    events: HostEvents | Iterable[HostEvents] | None,
    source: Source | None = None,
    sink: Sink | None = None,
    roles: RoleLog | None = None,
) -> AsyncIterator[None]:
    """For the length of a block tells a program, or each of several: none of them waits for
    another one. Arguments as `EventDesk`."""
    async with AsyncExitStack() as stack:
        for each in events_of(events):
            desk = EventDesk(each, source, sink, roles)
            await stack.enter_async_context(desk.running())
        yield
