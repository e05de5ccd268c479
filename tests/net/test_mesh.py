"""Hosts of a cluster: one connection between any two, and each queue only from its master."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from cqrepl import Host, Queue, serve_host
from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.net.link import Session
from cqrepl.replicator.incoming.sinksession import SinkSession
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from tests.support import peer
from tests.support.ports import reserved_port
from tests.support.replicas import SECONDS, copied, eventually, live_sink
from tests.support.samples import NOON_MS, payloads
from tests.support.scripted import SHAPE, scripted
from tests.support.threehosts import three_hosts


class Mesh:
    """Plans of three hosts; queue `qN` has master N.

    Args:
        masters: which host streams each queue, if not these.
        silent: hosts without an address.
    """

    def __init__(
        self,
        folder: Path,
        masters: Mapping[str, int] | None = None,
        silent: frozenset[int] = frozenset(),
    ) -> None:
        self.folder = folder
        self.masters = masters or {"q1": 1, "q2": 2, "q3": 3}
        self.ports = {each: reserved_port() for each in (1, 2, 3)}
        self._silent = silent

    def text(self, masters: Mapping[str, int] | None = None) -> str:
        """The file of the cluster."""
        lines = ["cluster:", "  context:", "    heartbeatIntervalMs: 500"]
        lines += ["    heartbeatTimeoutMs: 60000", f"    basePath: {self.folder}/$hostId"]
        for each, port in self.ports.items():
            where = "" if each in self._silent else f', connectUri: "127.0.0.1:{port}"'
            lines.append(f"  host{each}: {{hostId: {each}{where}}}")
        lines.append("queues:")
        for name, master in (masters or self.masters).items():
            lines.append(f"  {name}: {{masterId: {master}, acknowledge: true}}")
        return "\n".join(lines) + "\n"

    def plan(self, host_id: int, masters: Mapping[str, int] | None = None) -> HostPlan:
        """The plan of a host by the file, or by another file with these masters."""
        config = read_cluster(self.text(masters).encode(), "mesh.yaml")
        return plan_host(config, host_id, in_effect(config, {}, {}))

    @asynccontextmanager
    async def hosts(self, *ids: int) -> AsyncIterator[dict[int, Host]]:
        """Runs some of them, the ones with higher ids first."""
        if not ids:
            yield {}
            return
        async with self.host(ids[-1]) as host, self.hosts(*ids[:-1]) as others:
            yield {**others, ids[-1]: host}

    def host(
        self, host_id: int, masters: Mapping[str, int] | None = None
    ) -> AbstractAsyncContextManager[Host]:
        """Runs one of them; `masters` as for `plan`."""
        plan = self.plan(host_id, masters)
        return serve_host(plan.settings, sources=plan.sources, sinks=plan.sinks)

    def at(self, host_id: int, name: str) -> Path:
        """The directory of a queue at a host."""
        return self.folder / str(host_id) / name

    def append(self, name: str, *, day: int = 0) -> None:
        """Excerpts of an application of the master."""
        with Queue.open_for_append(self.at(self.masters[name], name)) as queue:
            queue.appender().append(payloads(20, seed=day), NOON_MS + day * 86_400_000)

    async def copied(self, *ids: int) -> None:
        """Waits until these hosts have all that masters have."""
        for name, master in self.masters.items():
            for each in ids:
                if each != master:
                    await copied(self.at(master, name), self.at(each, name))


async def connected(host: Host, count: int) -> list[Session]:
    """The sessions, as soon as there are so many."""
    await eventually(lambda: len(host.endpoint.sessions) == count)
    return host.endpoint.sessions


async def test_three_hosts_with_a_master_for_each_queue(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path)
    async with mesh.hosts(1, 2, 3) as hosts:
        for name in mesh.masters:
            mesh.append(name)
        await mesh.copied(1, 2, 3)
        for host in hosts.values():
            assert len(await connected(host, 2)) == 2
            assert not host.stops


async def test_a_host_without_an_address_reaches_the_others(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path, silent=frozenset({1}))
    async with mesh.hosts(1, 2, 3) as hosts:
        assert hosts[1].port is None
        for name in mesh.masters:
            mesh.append(name)
        await mesh.copied(1, 2, 3)
        for host in hosts.values():
            assert len(await connected(host, 2)) == 2


async def test_each_host_is_started_again_in_turn(tmp_path: Path) -> None:
    """Applications go on while a host is away, also with the queue that it streams."""
    mesh = Mesh(tmp_path)
    async with mesh.hosts(1, 2, 3):
        for name in mesh.masters:
            mesh.append(name)
        await mesh.copied(1, 2, 3)
    for away in (1, 2, 3):
        async with mesh.hosts(*(each for each in (1, 2, 3) if each != away)):
            for name in mesh.masters:
                mesh.append(name, day=away)
            async with mesh.host(away):
                await mesh.copied(1, 2, 3)


async def test_a_queue_is_taken_only_from_its_master(tmp_path: Path) -> None:
    """By another version of the file host 3 is the master of a queue of host 1."""
    mesh = Mesh(tmp_path)
    async with mesh.hosts(1, 2) as hosts:
        mesh.append("q1")
        await copied(mesh.at(1, "q1"), mesh.at(2, "q1"))
        async with mesh.host(3, {"q1": 3, "q2": 2, "q3": 3}) as wrong:
            await connected(wrong, 2)
            with Queue.open_for_append(mesh.at(3, "q1")) as queue:
                queue.appender().append(payloads(5, seed=7), NOON_MS)
            mesh.append("q2")
            await copied(mesh.at(2, "q2"), mesh.at(3, "q2"))
        mesh.append("q1", day=1)
        await copied(mesh.at(1, "q1"), mesh.at(2, "q1"))
        assert not hosts[1].stops + hosts[2].stops


async def test_a_host_that_only_streams_is_a_source_and_one_that_only_takes_in_a_sink(
    tmp_path: Path,
) -> None:
    """They get the connection to themselves, as with the commands of one way."""
    mesh = Mesh(tmp_path, {"a": 1})
    async with mesh.hosts(1, 2) as hosts:
        mesh.append("a")
        await mesh.copied(1, 2)
        assert {type(each) for each in await connected(hosts[1], 1)} == {SourceSession}
        assert {type(each) for each in await connected(hosts[2], 1)} == {SinkSession}


async def test_the_newer_of_two_connections_stays(tmp_path: Path) -> None:
    """Host 2 dials host 1, and so does a sink that has its id."""
    mesh = Mesh(tmp_path, {"q": 1})
    async with mesh.hosts(1, 2) as hosts:
        (first,) = await connected(hosts[1], 1)
        async with live_sink(tmp_path / "copy", mesh.ports[1], host_id=2):
            await eventually(lambda: first not in hosts[1].endpoint.sessions)
        with trio.fail_after(SECONDS):
            mesh.append("q")
            await mesh.copied(1, 2)
        assert len(hosts[1].endpoint.sessions) == 1


async def test_a_host_that_is_in_no_file_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mesh = Mesh(tmp_path, {"q": 1})
    async with mesh.hosts(1):
        mesh.append("q")
        async with live_sink(tmp_path / "copy", mesh.ports[1], host_id=9):
            await eventually(lambda: "host id 2, 3 expected, 9 came" in caplog.text)
    assert not (tmp_path / "copy").exists()


async def test_the_host_has_stopped_when_all_of_its_queues_have(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path, {"a": 1, "b": 2})
    for host_id in (1, 2):  # each has something of its own under both names
        for name in mesh.masters:
            with Queue.open_for_append(mesh.at(host_id, name), create="FAST_DAILY") as queue:
                queue.appender().append(payloads(5, seed=host_id), NOON_MS)
    async with mesh.hosts(1, 2) as hosts:
        with trio.fail_after(SECONDS):
            for host in hosts.values():
                await host.wait_stopped()
                assert {stop.name for stop in host.stops} == {"a", "b"}


async def test_a_queue_that_is_offered_by_another_host_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Java's sources do so: they offer what they have to every peer that is there."""
    mesh = Mesh(tmp_path, {"q": 1})
    async with mesh.hosts(2) as hosts, scripted(mesh.ports[2], 3, 2) as other:
        handler = peer.sink_handler(0, name="q", **SHAPE)
        await other.send(peer.register("/replication/q/2", 901, handler))
        says = "queue 'q' refused: it is taken from host 1 only"
        await eventually(lambda: says in caplog.text)
        assert hosts[2].sink.queues["q"].owner is None
        assert not hosts[2].stops
    assert not mesh.at(2, "q").exists()


async def test_two_hosts_that_both_stream_a_queue_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has a file that names it as the master."""
    caplog.set_level("INFO")
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(2)
        cluster.master = 2
        await cluster.start(2)
        await cluster.meet()
        said = "queue 'q': the peer does not take it now, host {} streams it too"
        await eventually(lambda: all(said.format(each) in caplog.text for each in (1, 2)))
