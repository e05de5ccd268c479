"""Hosts of a cluster: one connection between any two, and each queue only from its master."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import Host, HostSettings, NetSettings, ProtocolSettings, Queue, serve_host
from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.net.address import Address
from cqrepl.net.link import Session
from cqrepl.replicator.marks.counters import NOTHING
from cqrepl.replicator.settings import SourceSettings
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.status.snapshot import snapshot_of
from tests.support import peer
from tests.support.ports import reserved_port
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    at,
    copied,
    eventually,
    last_of,
    live_sink,
)
from tests.support.samples import NOON_MS, fill, payloads
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


async def test_a_host_that_is_in_no_file_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mesh = Mesh(tmp_path, {"q": 1})
    async with mesh.hosts(1):
        mesh.append("q")
        async with live_sink(tmp_path / "copy", mesh.ports[1], host_id=9):
            await eventually(lambda: "host id 2, 3 expected, 9 came" in caplog.text)
    assert not (tmp_path / "copy").exists()


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


async def test_one_that_is_away_holds_up_no_other(tmp_path: Path) -> None:
    path, copies = tmp_path / "q", [tmp_path / "2", tmp_path / "3"]
    fill(path, "FAST_DAILY", {0: 30})
    listens: Any = {"listen": LOOPBACK} | BEATS
    async with serve_sink({"q": copies[0]}, **listens, host_id=2) as second:
        async with serve_sink({"q": copies[1]}, **listens, host_id=3) as third:
            connect = {9: at(reserved_port()), 2: at(second.port), 3: at(third.port)}
            async with serve_source({"q": path}, connect=connect, **BEATS) as source:
                for each in copies:
                    await copied(path, each)
                assert source.endpoint.connections.keys() == {2, 3}
                assert source.port is None


async def test_a_host_is_taken_at_its_own_address_only(tmp_path: Path) -> None:
    """Two addresses that were exchanged feed no sink, as each peer says who it is."""
    path, copies = tmp_path / "q", [tmp_path / "2", tmp_path / "3"]
    fill(path, "FAST_DAILY", {0: 3})
    listens: Any = {"listen": LOOPBACK} | BEATS
    async with serve_sink({"q": copies[0]}, **listens, host_id=2) as second:
        async with serve_sink({"q": copies[1]}, **listens, host_id=3) as third:
            connect = {3: at(second.port), 4: at(third.port)}
            async with serve_source({"q": path}, connect=connect, **BEATS):
                right: Any = {"connect": {3: at(third.port)}, "host_id": 5} | BEATS
                async with serve_source({"q": path}, **right):
                    await copied(path, copies[1])
    assert not copies[0].exists()


async def test_a_host_shows_all_its_addresses(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 1})
    settings = HostSettings.of(sources={"q": tmp_path / "q"}, listen=[LOOPBACK, LOOPBACK])
    async with Host(settings) as host:
        first, second = host.endpoint.ports
        assert snapshot_of(host)["listens"] == f"127.0.0.1:{first}, 127.0.0.1:{second}"


@pytest.mark.parametrize(
    ("listen", "connect", "ids", "says"),
    [
        ("h:1", {2: "h:2"}, (), "to listen on or to connect to expected, both came"),
        (["h:1"], "h:2", (), "expected, both came"),
        ([], None, (), "expected, none came"),
        (None, {}, (), "expected, none came"),
        (None, {2: "h:2", 3: "h:2"}, (), "an address for each host expected, h:2 came twice"),
        (None, {2: "h:2"}, (2,), "no remote ids expected beside"),
        (None, {0: "h:2"}, (), "a host id from 1 to 127 expected, 0 came"),
        (None, {2: "h"}, (), "HOST:PORT expected, 'h' came"),
        (["h:1", "h"], None, (), "HOST:PORT expected, 'h' came"),
    ],
)
def test_what_does_not_fit_is_refused(
    listen: str | Sequence[str] | None,
    connect: str | Mapping[int, str] | None,
    ids: tuple[int, ...],
    says: str,
) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        HostSettings.of(listen=listen, connect=connect, remote_ids=ids)
    assert says in str(caught.value)


NAMES = ("a", "b")


def settings(host_id: int, net: NetSettings, source: SourceSettings | None = None) -> HostSettings:
    protocol = ProtocolSettings(host_id=host_id, remote_ids=frozenset({3 - host_id}))
    return HostSettings(net=net, protocol=protocol, source=source or SourceSettings())


@asynccontextmanager
async def two_queues(tmp_path: Path, source: SourceSettings) -> AsyncIterator[Host]:
    """Host 1 streams "a" and "b", none of which is there, to host 2."""
    ours = settings(1, NetSettings(listen=Address.parse(LOOPBACK)), source)
    out = {name: tmp_path / "out" / name for name in NAMES}
    into = {name: tmp_path / "in" / name for name in NAMES}
    async with serve_host(ours, sources=out, sinks={}) as host:
        theirs = settings(2, NetSettings(connect=Address.parse(at(host.port))))
        async with serve_host(theirs, sources={}, sinks=into):
            yield host


def appended(path: Path) -> None:
    """Twenty excerpts, as an application appends them."""
    with Queue.open_for_append(path) as queue:
        queue.appender().append(payloads(20, seed=1), NOON_MS)


async def test_queues_are_made_and_only_some_are_acknowledged(tmp_path: Path) -> None:
    source = SourceSettings(
        made_with={"a": "FAST_HOURLY", "b": "FAST_DAILY"},
        unacknowledged=frozenset({"b"}),
        source_ids={"b": 1002},
    )
    async with two_queues(tmp_path, source) as host:
        for name, cycle in (("a", "FAST_HOURLY"), ("b", "FAST_DAILY")):
            with Queue.open(tmp_path / "out" / name) as queue:
                assert queue.layout.roll_cycle.name == cycle
            appended(tmp_path / "out" / name)
        last = last_of(tmp_path / "out" / "a")
        assert last is not None
        with trio.fail_after(SECONDS):
            await host.source.wait_acked(last, "a")
        await copied(tmp_path / "out" / "b", tmp_path / "in" / "b")
        assert host.source.queues["b"].acknowledged == NOTHING
        with Queue.open(tmp_path / "in" / "b") as copy:
            assert copy.layout.source_id == 1002


async def test_a_queue_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    made = SourceSettings(made_with=dict.fromkeys(NAMES, "FAST_DAILY"))
    async with two_queues(tmp_path, made):
        pass
    other = replace(made, made_with=dict.fromkeys(NAMES, "FAST_HOURLY"))
    async with two_queues(tmp_path, other) as host:
        assert host.source.queues["a"].queue.layout.roll_cycle.name == "FAST_DAILY"
