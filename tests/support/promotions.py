"""Hosts of a cluster in this process, with copies of one queue that are promoted."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from cqrepl import Host, HostSettings, NetSettings, Program, ProtocolSettings
from cqrepl.net.address import Address
from cqrepl.queue import Queue
from cqrepl.replicator.hostevents import HostEvents
from cqrepl.replicator.rolelog import Role, RoleChange
from cqrepl.replicator.settings import SinkSettings, SourceSettings
from tests.support.ports import reserved_port
from tests.support.replicas import connected, copied, eventually, last_of, more_excerpts
from tests.support.samples import fill, noon_index


class Cluster:
    """Hosts that stream and take in the queue "a"; host 1 is its master. The higher id dials.

    Attributes:
        masters: the master of the queue by the file that each host reads.
    """

    def __init__(
        self, folder: Path, nursery: trio.Nursery, count: int, source: SourceSettings | None = None
    ) -> None:
        self._source = source or SourceSettings()
        self.hosts: dict[int, Host] = {}
        self._ids = range(1, count + 1)
        self.roles: dict[int, list[Role]] = {host_id: [] for host_id in self._ids}
        self.changes: dict[int, list[RoleChange]] = {host_id: [] for host_id in self._ids}
        self.events: dict[int, list[HostEvents]] = {}  # more of a host that is started
        self.programs: dict[int, list[Program]] = {}  # of a host that is started
        self.masters = dict.fromkeys(self._ids, 1)
        self._folder = folder
        self._nursery = nursery
        self._ports = {host_id: reserved_port() for host_id in self._ids}
        self._ends: dict[int, tuple[trio.Event, trio.CancelScope, trio.Event]] = {}

    def path(self, host_id: int) -> Path:
        return self._folder / str(host_id) / "a"

    def settings(self, host_id: int) -> HostSettings:
        peers = {each: self.address(each) for each in self._ids if each < host_id}
        paths, master = {"a": self.path(host_id)}, self.masters[host_id]
        others = frozenset(self._ids) - {host_id}
        policies = {name: each.among(others) for name, each in self._source.policies.items()}
        return HostSettings(
            net=NetSettings(listen=self.address(host_id), peers=peers),
            protocol=ProtocolSettings(host_id=host_id, remote_ids=others),
            source=replace(self._source, policies=policies),
            sink=SinkSettings(masters={"a": master}),
            sources=paths if host_id == master else {},
            sinks={} if host_id == master else paths,
        )

    async def reload(self, host_id: int, master: int) -> str:
        """Its file names another master from now on; what is to come of that yet. Where that is
        refused it reads the older file again at its next start."""
        was, self.masters[host_id] = self.masters[host_id], master
        try:
            return await self.hosts[host_id].change_master("a", self.settings(host_id))
        except BaseException:
            self.masters[host_id] = was
            raise

    async def remove(self, host_id: int) -> None:
        """A host has the queue "b" instead of "a" from now on."""
        other, host = self.path(host_id).with_name("b"), self.hosts[host_id]
        Queue.open_for_append(other, create="FAST_DAILY").close()
        await host.change(replace(host.settings, sources={"b": other}, sinks={}))

    def address(self, host_id: int) -> Address:
        return Address.parse(f"127.0.0.1:{self._ports[host_id]}")

    async def start(self, *host_ids: int) -> None:
        for host_id in host_ids:
            await self._nursery.start(self._run, host_id)

    async def _run(
        self, host_id: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        end, killed, ended = self._ends[host_id] = trio.Event(), trio.CancelScope(), trio.Event()
        events = [
            HostEvents(
                on_role=lambda _, role: self.roles[host_id].append(role),
                on_role_change=self.changes[host_id].append,
            ),
            *self.events.get(host_id, ()),
        ]
        try:
            with killed:
                settings, programs = self.settings(host_id), self.programs.get(host_id, ())
                made = Host(settings, events=events, programs=programs)
                async with made as self.hosts[host_id]:
                    task_status.started()
                    await end.wait()
        finally:
            self.hosts.pop(host_id, None)
            ended.set()

    async def stop(self, host_id: int) -> None:
        end, _, ended = self._ends.pop(host_id)
        end.set()
        await ended.wait()

    async def kill(self, host_id: int) -> None:
        """Ends a host in the middle of whatever it does. It says nothing to its peers."""
        _, killed, ended = self._ends.pop(host_id)
        killed.cancel()
        await ended.wait()

    async def stop_all(self) -> None:
        for host_id in list(self._ends):
            await self.stop(host_id)

    async def meet(self) -> None:
        """All that run are connected with each other."""
        await connected(self.hosts)

    async def follow(self, leader: int) -> None:
        for host_id in self.hosts.keys() - {leader}:
            await copied(self.path(leader), self.path(host_id))

    async def uneven(self, ends: Mapping[int, int]) -> None:
        """Copies with so many excerpts, by host; the master has as many as the longest one."""
        done = min(ends.values())
        fill(self.path(1), "FAST_DAILY", {0: done})
        await self.start(1, *ends)
        for host_id, end in sorted(ends.items(), key=lambda pair: pair[1]):
            if end > done:
                more_excerpts(self.path(1), done, end - done, seed=end)
                done = end
            await eventually(partial(ends_at, self.path(host_id), last(end)))
            await self.hosts[host_id].pause("a")

    async def followed(self, ends: Mapping[int, int]) -> None:
        """Copies as `uneven` has them at first, which follow their master then."""
        await self.uneven(ends)
        await self.resume_all()
        await self.meet()

    async def resume_all(self) -> None:
        for host in self.hosts.values():
            await host.resume("a")

    async def leaderless(self, ends: Mapping[int, int]) -> None:
        """Copies as `uneven` has them, whose master has ended."""
        await self.uneven(ends)
        await self.stop(1)
        await self.resume_all()
        await self.meet()


def ends_at(path: Path, index: int) -> bool:
    return last_of(path) == index


def last(count: int) -> int:
    return noon_index(sequence=count - 1)


@asynccontextmanager
async def cluster(
    folder: Path, count: int, *, source: SourceSettings | None = None
) -> AsyncIterator[Cluster]:
    """A cluster with so many hosts, for the length of a block.

    Args:
        source: what all of them do with what they stream.
    """
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            made = Cluster(folder, nursery, count, source)
            try:
                yield made
            finally:
                with trio.CancelScope(shield=True):
                    await made.stop_all()
