"""A service on one group: follows on each host, and serves on the one that leads.

Theory of operation. The state of a service is made by the records of its group's log, on each host,
by a feed (`FollowFeed`). A host that comes to lead serves once its state has all that was there
then, and its own first record. That record says which epoch began; where the service wants it, the
host waits until it is safe: so nothing is said before that a later leader would not know. A host
whose feed has a fault gives up the lead, each time that it comes to lead: another may be able to
serve.

How one makes a service of it:

    class Board:                                # a `GroupService`, which is a `Follower` as well
        sort, name, group = "board", "jobs", "g0"

        def __init__(self) -> None:
            self.led = LedService(self, addresses)

        # apply, snapshot, restore: see `Follower`; `opened` and the rest: `GroupService`

    desk = ServiceDesk([Board()])               # refuses two services on one group
    async with Host(settings, programs=[...]) as host, desk.running(host, checkpoints):
        ...

`checkpoints` gives those of one service (`cluster.checkpoints.Checkpointer`), or None. What clients
say comes to a `Program` of the service's own (`service.servicehalf`); where `led.is_serving` is
False it answers with `led.leader()`. What `serve` writes goes through `leading.append` in a thread,
`led.outcome` waits for it, and `led.feed.reached` for the state to have it.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import trio

from cqrepl.host import Host
from cqrepl.net.errors import Refused
from cqrepl.net.threads import in_thread
from cqrepl.protocol import AckPolicy
from cqrepl.protocol.ackpolicy import From
from cqrepl.queue import QueueError
from cqrepl.replicator.followfeed import (
    Checkpoints,
    Follower,
    FollowFeed,
    JoinBy,
    ServiceFailed,
)
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, Leading, SteppedDown
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.replicator.rolelog import Role

LOOK_SECONDS: Final = 0.25
AT_ONCE: Final = AckPolicy(from_=From.NONE)  # of an append that is waited for in another task
_ENDINGS: Final = (SteppedDown, WaitEnded, Refused, QueueError, OSError, ServiceFailed)
_logger: Final = logging.getLogger(__name__)


class GroupService(Follower, Protocol):
    """A service, as the floor calls it.

    Attributes:
        sort: what it is, for people: `board`.
        name: its own name; one of a sort on a host.
        group: the queue that is its log; one service of any sort has it.
        waits_for_first: it serves only once its first record is safe.
    """

    @property
    def sort(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def waits_for_first(self) -> bool: ...

    def opened(self, epoch: int, leader: int) -> bytes | None:
        """The first record of a host that begins to lead; None for none."""

    async def serve(self, leading: Leading) -> None:
        """Serves, until this host leads no longer: `leading` tells, or what it raises, or a fault
        of the feed. It may be cancelled."""

    def stop_serving(self) -> None:
        """The host serves no longer: what waits for an answer gets one that says so."""


class Leader(NamedTuple):
    """The host that leads a group, as far as this one knows.

    Args:
        host: 0 where that is not known, or it is this host, which does not serve.
        where: clients reach it; empty where that is not known.
        why: this host does not serve, for people.
    """

    host: int
    where: str
    why: str


class LedService:
    """The part of a service that all services have in common; it lasts as long as `running`.

    Args:
        addresses: of hosts, where clients reach them, by their ids.

    Attributes:
        is_serving: this host leads, and serves.
        has_begun: it runs, or has run.
        feed: of a service that has begun.
    """

    feed: FollowFeed

    def __init__(
        self, service: GroupService, addresses: Callable[[], dict[int, str]] = dict
    ) -> None:
        self.is_serving = False
        self.has_begun = False
        self._service = service
        self._addresses = addresses
        self._host: Host  # of a service that has begun

    def __str__(self) -> str:
        return f"{self._service.sort} {self._service.name!r}"

    @asynccontextmanager
    async def running(
        self, host: Host, checkpoints: Checkpoints | None, join: JoinBy = JoinBy.AUTO
    ) -> AsyncIterator[None]:
        """For the length of a block in that of the host: it follows, and serves while it leads."""
        queue = host.queue(self._service.group)
        self._host = host
        self.feed = feed = FollowFeed(queue, self._service, checkpoints, join)
        self.has_begun = True
        async with feed.running(), trio.open_nursery() as nursery:
            nursery.start_soon(self._lead_when_it_does)
            yield
            nursery.cancel_scope.cancel()

    @property
    def fault(self) -> Exception | None:
        """The error that has ended the service on this host; None while it goes on."""
        return self.feed.fault if self.has_begun else None

    @property
    def own_id(self) -> int:
        """The id of this host."""
        return self._host.settings.protocol.host_id

    @property
    def others(self) -> frozenset[int]:
        """The ids of the other hosts that have a copy of the group."""
        settings = self._host.settings
        others = frozenset(settings.protocol.remote_ids) - {self.own_id}
        members = settings.members if settings.election is None else settings.election.members
        return others & members.get(self._service.group, others)

    def leader(self) -> Leader:
        """The host that leads, for what came to a host that does not serve."""
        found = 0
        with suppress(ValueError, QueueError, OSError):
            found = self._host.position(self._service.group).leader or 0
        own = self.own_id
        other = 0 if found == own else found
        why = f"host {own} does not serve {self}"
        why += f": host {other} leads it" if other else ""
        return Leader(other, self._addresses().get(other, ""), why)

    async def catch_up(self) -> None:
        """Returns once the state has all that this host's copy has now.

        Raises:
            Refused: the queue was removed from the host.
            CannotJoin, Exception: as `FollowFeed.caught_up`.
        """
        try:
            last = self._host.position(self._service.group).last_index
        except ValueError as error:
            raise Refused(str(error)) from error
        await self.feed.caught_up(-1 if last is None else last)

    async def outcome(self, leading: Leading, index: int) -> AckOutcome:
        """Waits until the group's policy calls what was appended safe."""
        try:
            return await leading.wait_acked(index)
        except (AckUnknown, WaitEnded):
            return AckOutcome.UNKNOWN

    async def until_safe(self, leading: Leading, index: int) -> None:
        """Returns once the group's policy calls what was appended safe, however often its time is
        over, and also where nothing more is heard of the queue for a while.

        Raises:
            SteppedDown: this host leads no longer, or the queue was closed.
        """
        while await self.outcome(leading, index) is not AckOutcome.ACKED:
            leading.check_goes_on()
            await trio.sleep(LOOK_SECONDS)  # a wait of a queue that has stopped ends at once

    async def _lead_when_it_does(self) -> None:
        while self.feed.fault is None:
            leading = self._leading()
            if leading is not None:
                try:
                    await self._lead(leading)
                except* _ENDINGS as errors:
                    told = "%s: this host serves it no longer: %s"
                    _logger.info(told, self, errors.exceptions[0])
                finally:
                    self.is_serving = False
                    self._service.stop_serving()
            await trio.sleep(LOOK_SECONDS)
        while True:  # another host may be able to serve, each time that this one comes to lead
            if self._leading() is not None:
                await self._give_up_lead()
            await trio.sleep(LOOK_SECONDS)

    async def _give_up_lead(self) -> None:
        group, elections = self._service.group, self._host.elections
        with suppress(Refused, ValueError, QueueError, OSError):
            await self._host.step_down(group, f"{self} has ended: {self.feed.fault}")
            if elections is not None:
                elections.rest(group)

    def _leading(self) -> Leading | None:
        """None while this host does not lead."""
        with suppress(Refused, ValueError, QueueError, OSError):
            queue = self._host.queue(self._service.group)
            is_streamed = queue.is_streamed  # which costs less than all that is looked at then
            if is_streamed and self._host.position(queue.name).role is Role.LEADING:
                leading = queue.leading
                return leading if leading.goes_on else None
        return None

    async def _lead(self, leading: Leading) -> None:
        await self.catch_up()
        own = self.own_id
        opened = self._service.opened(leading.epoch, own)
        if opened is not None:
            index = await in_thread(partial(leading.append, [opened], policy=AT_ONCE))
            self.feed.wake()
            if self._service.waits_for_first:
                await self.until_safe(leading, index)
            await self.feed.reached(index)
        leading.check_goes_on()
        self.is_serving = True
        _logger.info("%s: host %d serves it, in epoch %d", self, own, leading.epoch)
        await self._service.serve(leading)


class HasLed(Protocol):
    """A service on a group: a `GroupService` that has its `LedService`."""

    @property
    def sort(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def led(self) -> LedService: ...

    def fields(self) -> dict[str, object]:
        """Those of the service in the status of its host."""


S = TypeVar("S", bound=HasLed)


def check_groups(services: Iterable[HasLed]) -> None:
    """Looks whether each group belongs to one service, of whatever sort.

    Raises:
        ValueError: two services have one group; or two of one sort have one name.
    """
    names: set[tuple[str, str]] = set()
    groups: dict[str, HasLed] = {}
    for each in services:
        if (each.sort, each.name) in names:
            raise ValueError(f"expected one {each.sort} of a name, got two of {each.name!r}")
        names.add((each.sort, each.name))
        other = groups.setdefault(each.group, each)
        if other is not each:
            raise ValueError(
                f"expected a group for each service, got group {each.group!r} for"
                f" {other.led} and {each.led}"
            )


class ServiceDesk(Generic[S]):
    """All services of one sort of one host.

    Attributes:
        services: by their names.

    Raises:
        ValueError: as `check_groups`.
    """

    def __init__(self, services: Iterable[S]) -> None:
        found = list(services)
        check_groups(found)
        self.services: dict[str, S] = {each.name: each for each in found}

    @asynccontextmanager
    async def running(
        self,
        host: Host,
        checkpoints: Callable[[S], Checkpoints | None],
        join: JoinBy = JoinBy.AUTO,
    ) -> AsyncIterator[None]:
        """For the length of a block in that of the host all services run.

        Args:
            checkpoints: those of a service on this host.
        """
        async with AsyncExitStack() as stack:
            for each in self.services.values():
                await stack.enter_async_context(each.led.running(host, checkpoints(each), join))
            yield
