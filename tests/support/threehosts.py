"""Three hosts of a cluster by one file, in this process; host 1 is the master of the queue "q"."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from cqrepl import Host
from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.config.reloader import Reloader
from cqrepl.status.snapshot import snapshot_of
from tests.support.ports import reserved_port
from tests.support.replicas import connected, copied
from tests.support.samples import fill

IDS: Final = (1, 2, 3)


@dataclass
class ThreeHosts:
    """The hosts of three that run.

    Args:
        more: lines of the file below `cqrepl`.
        others: names of more queues with the same master.
        awaits_leader: no host leads before it is promoted.
        start_locked: names of queues that writers are kept out of from the start.
    """

    folder: Path
    nursery: trio.Nursery
    more: str = ""
    others: tuple[str, ...] = ()
    master: int = 1
    awaits_leader: bool = False
    start_locked: frozenset[str] = frozenset()
    hosts: dict[int, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ports = {each: reserved_port() for each in IDS}
        self._ends: dict[int, tuple[trio.Event, trio.Event]] = {}
        self._reloaders: dict[int, Reloader] = {}

    def at(self, host_id: int) -> Path:
        return self.folder / str(host_id) / "q"

    def text(self) -> str:
        lines = ["cluster:", "  context:", "    heartbeatIntervalMs: 500"]
        lines += ["    heartbeatTimeoutMs: 60000", f"    basePath: {self.folder}/$hostId"]
        for each, port in self._ports.items():
            lines.append(f'  host{each}: {{hostId: {each}, connectUri: "127.0.0.1:{port}"}}')
        lines.append("queues:")
        for name in ("q", *self.others):
            lines.append(f"  {name}: {{masterId: {self.master}, acknowledge: true}}")
        return "\n".join([*lines, *(["cqrepl:", self.more] if self.more else [])]) + "\n"

    def plan(self, host_id: int) -> HostPlan:
        config = read_cluster(self.text().encode(), "cluster.yaml")
        plan = plan_host(config, host_id, in_effect(config, {}, {}))
        sink = replace(plan.settings.sink, start_locked=self.start_locked)
        settings = replace(plan.settings, awaits_leader=self.awaits_leader, sink=sink)
        return replace(plan, settings=settings)

    async def start(self, *host_ids: int) -> None:
        for host_id in host_ids:
            await self.nursery.start(self._run, host_id)

    async def _run(
        self, host_id: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        plan = self.plan(host_id)  # a file that is wrong starts no host that would have to end
        end, ended = self._ends[host_id] = trio.Event(), trio.Event()
        self._reloaders[host_id] = Reloader(partial(self.plan, host_id), plan)
        try:
            async with Host(plan.settings) as self.hosts[host_id]:
                task_status.started()
                await end.wait()
        finally:  # also one that fails has ended
            del self.hosts[host_id]
            ended.set()

    async def reload(self, host_id: int) -> Any:
        """Has a host read the file again; the answer."""
        return await self._reloaders[host_id].reload(self.hosts[host_id])

    async def stop(self, *host_ids: int) -> None:
        for host_id in host_ids:
            end, ended = self._ends.pop(host_id)
            end.set()
            await ended.wait()

    async def stop_all(self) -> None:
        await self.stop(*self._ends)

    async def meet(self) -> None:
        """All that run are connected with each other."""
        await connected(self.hosts)

    async def follow(self, leader: int) -> None:
        for host_id in self.hosts.keys() - {leader}:
            await copied(self.at(leader), self.at(host_id))

    def said(self, host_id: int) -> dict[str, Any]:
        """The fields of the queue in a host's status."""
        queues: Any = snapshot_of(self.hosts[host_id])["queues"]
        return dict(queues[0])


@asynccontextmanager
async def three_hosts(
    folder: Path,
    more: str = "",
    *,
    excerpts: int = 10,
    others: tuple[str, ...] = (),
    awaits_leader: bool = False,
) -> AsyncIterator[ThreeHosts]:
    """All of them, connected, with so many excerpts at each; where they await a leader, with none.

    Args:
        more: lines of the file below `cqrepl`.
        others: names of more queues with the same master.
    """
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            made = ThreeHosts(folder, nursery, more, others=others, awaits_leader=awaits_leader)
            excerpts = 0 if awaits_leader else excerpts
            if excerpts:
                fill(made.at(1), "FAST_DAILY", {0: excerpts})
            try:
                await made.start(*IDS)
                await made.meet()
                if excerpts:
                    await made.follow(1)
                yield made
            finally:
                with trio.CancelScope(shield=True):
                    await made.stop_all()
