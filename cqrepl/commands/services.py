"""Runs the services of a host, as the file of its cluster has them."""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.broker.service import BoardService
from cqrepl.broker.taskdesk import TaskDesk
from cqrepl.cluster.checkpoints import Checkpointer, Keeping
from cqrepl.cluster.snapshots import GroupState, Snapshots
from cqrepl.config.hostplan import HostPlan
from cqrepl.config.serviceplan import ServicePlan, plan_services
from cqrepl.grid.griddesk import GridDesk
from cqrepl.grid.gridgroup import GridGroup, group_name
from cqrepl.grid.loaderchoice import sql_loaders
from cqrepl.grid.loaders import LoaderDesk
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.host import Host
from cqrepl.net.errors import Refused
from cqrepl.net.program import Program
from cqrepl.persist.persistdesk import PersistDesk, SyncJoining
from cqrepl.persist.storage.storageservice import StorageService
from cqrepl.queue import Cycle, Index, Queue, QueueError, cycle_of
from cqrepl.replicator.electionsettings import LEASE_SECONDS
from cqrepl.replicator.followfeed import CannotJoin
from cqrepl.service.ledservice import HasLed, check_groups

BEGINS_SECONDS: Final = 60.0  # from one question to the next
_logger: Final = logging.getLogger(__name__)


class Services:
    """All services of one host: its programs, and what runs beside it."""

    def __init__(self, plan: HostPlan) -> None:
        self._plan: ServicePlan = plan_services(plan)
        own = plan.settings.protocol.host_id
        self._others = frozenset(plan.settings.protocol.remote_ids) - {own}
        self._paths: Mapping[str, Path] = {**plan.sources, **plan.sinks}
        boards = [
            BoardService(name, each, self._addresses)
            for name, each in self._plan.boards.items()
            if each.group in self._paths  # this host has a copy of it
        ]
        self.desk = TaskDesk(boards)
        self.persist = PersistDesk(
            StorageService(each, self._addresses)
            for group, each in self._plan.storages.items()
            if group in self._paths
        )
        self.grids = GridDesk(self._groups(plan), self._addresses)
        self._services: list[HasLed] = [
            *self.desk.boards.values(),
            *self.persist.services.values(),
            *self.grids.groups.values(),
        ]
        check_groups(self._services)
        self._snapshots = Snapshots(self._others, self._leader)
        self._host: Host | None = None
        self._begins: dict[str, Cycle] = {}  # of groups that this host follows, where they lead

    def _groups(self, plan: HostPlan) -> Iterator[GridGroup]:
        """The groups of map sets that this host has a copy of."""
        election = plan.settings.election
        lease_seconds = LEASE_SECONDS if election is None else election.lease_seconds
        for grid in self._plan.grids.values():
            settings = grid.settings
            loaders, callback = sql_loaders(settings.name, grid.loaders)
            desk = LoaderDesk(settings, loaders, callback, ValueCodec())
            for nth in range(settings.group_count):
                name = group_name(settings.name, nth)
                if name in self._paths:
                    copies = partial(self._plan.copies.__getitem__, name)
                    yield GridGroup(settings, nth, desk, copies, lease_seconds, self._addresses)

    def _addresses(self) -> dict[int, str]:
        return dict(self._plan.addresses)

    @property
    def programs(self) -> list[Program]:
        """Those that its host has."""
        found: list[Program] = [self.desk] if self.desk.boards else []
        found += [self.persist] if self.persist.services else []
        found += [self.grids] if self.grids.groups else []
        return [*found, self._snapshots] if self._services else []

    @asynccontextmanager
    async def running(self, host: Host) -> AsyncIterator[None]:
        """For the length of a block in that of the host they run."""
        self._host = host
        joining = SyncJoining(self.persist, self._snapshots)
        async with AsyncExitStack() as stack:
            for each in self._services:
                group = each.group
                saver = Checkpointer(
                    group,
                    self._paths[group],
                    self._plan.checkpoints,
                    joining if group in self.persist.services else self._snapshots,
                    partial(self._keeping, group),
                )
                await stack.enter_async_context(each.led.running(host, saver, self._plan.join))
                host.control.services[group] = partial(_fields, each, saver)
                self._snapshots.groups[group] = GroupState(
                    path=self._paths[group], folder=saver.folder, save=each.led.feed.save
                )
            await stack.enter_async_context(self.grids.answering())
            if not self._services:
                yield
                return
            async with self._snapshots.running(), trio.open_nursery() as nursery:
                for storages in self.persist.services.values():
                    nursery.start_soon(self.persist.keep, storages)
                nursery.start_soon(self._ask_begins)
                nursery.start_soon(self._end_where_nothing_is_left, host)
                yield
                nursery.cancel_scope.cancel()

    async def _end_where_nothing_is_left(self, host: Host) -> None:
        """Ends a host whose services all cannot join, and which has no other queue.

        Raises:
            CannotJoin: so it is.
        """
        groups = {each.group for each in self._services}
        while True:
            await trio.sleep(1.0)
            faults = [each.led.fault for each in self._services]
            first = next((each for each in faults if isinstance(each, CannotJoin)), None)
            if first is not None and all(isinstance(each, CannotJoin) for each in faults):
                if not self._paths.keys() - groups:
                    raise Refused(str(first))
                return

    def _leader(self, group: str) -> int | None:
        return None if self._host is None else self._host.position(group).leader

    async def _ask_begins(self) -> None:
        """Learns what hosts that lead have deleted."""
        while True:
            await trio.sleep(BEGINS_SECONDS)
            for group, path in self._paths.items():
                if group in self._snapshots.groups and self._follows(group):
                    begin = await self._snapshots.begin_of(group)
                    with suppress(QueueError, OSError), Queue.open(path) as queue:
                        shift = queue.layout.roll_cycle.shift
                        self._begins[group] = cycle_of(Index(begin), shift)

    def _follows(self, group: str) -> bool:
        return self._host is not None and self._host.queue(group).committed_here() is None

    def _keeping(self, group: str) -> Keeping:
        """A host that leads deletes what all members have; one that follows, what the one that
        leads has no more."""
        assert self._host is not None
        if not self._follows(group):
            return Keeping(members=self._members(group))
        return Keeping(keep_from=self._begins.get(group))

    def _members(self, group: str) -> frozenset[int]:
        """The other hosts that have a copy."""
        election = None if self._host is None else self._host.settings.election
        members = None if election is None else election.members.get(group)
        return self._others if members is None else members & self._others


def _fields(service: HasLed, saver: Checkpointer) -> dict[str, object]:
    """The fields of a service in the status of its host."""
    saved = None if saver.latest is None else str(saver.latest.pos)
    return service.fields() | {"checkpoint": saved}
