"""Queues that a host takes in and passes on: chains of hosts, and circles of them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import cqrepl
from cqrepl import Host, Queue, serve_host
from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.status.snapshot import snapshot_of
from tests.support.ports import reserved_port
from tests.support.replicas import copied, eventually, last_of, more_excerpts
from tests.support.samples import fill


class Chain:
    """Hosts of clusters whose files may differ; the queue is "q".

    Args:
        hosts: their ids.
    """

    def __init__(self, folder: Path, *hosts: int) -> None:
        self.folder = folder
        self._ports = {each: reserved_port() for each in hosts}

    def text(self, master: int, routes: str, more: str = "") -> str:
        lines = ["cluster:", "  context:", "    heartbeatIntervalMs: 500"]
        lines += ["    heartbeatTimeoutMs: 60000", f"    basePath: {self.folder}/$hostId"]
        for each, port in self._ports.items():
            lines.append(f'  host{each}: {{hostId: {each}, connectUri: "127.0.0.1:{port}"}}')
        lines += ["queues:", f"  q: {{masterId: {master}, acknowledge: true}}"]
        lines += ["cqrepl:", f"  routes: {{q: {routes}}}", more]
        return "\n".join(lines) + "\n"

    def plan(self, host_id: int, master: int, routes: str, more: str = "") -> HostPlan:
        config = read_cluster(self.text(master, routes, more).encode(), "chain.yaml")
        return plan_host(config, host_id, in_effect(config, {}, {}))

    def host(
        self, host_id: int, master: int, routes: str, more: str = ""
    ) -> AbstractAsyncContextManager[Host]:
        plan = self.plan(host_id, master, routes, more)
        return serve_host(plan.settings, sources=plan.sources, sinks=plan.sinks)

    def at(self, host_id: int) -> Path:
        return self.folder / str(host_id) / "q"

    def fill(self, *hosts: int) -> None:
        """The same 10 excerpts at each; those behind the first are copies of it."""
        identity = new_identity()
        for each in hosts:
            fill(self.at(each), "FAST_DAILY", {0: 10})
            with Queue.open(self.at(each)) as queue:
                queue.identity.keep(lambda: identity)
                queue.note_follower(is_follower=each != hosts[0])


@asynccontextmanager
async def three(tmp_path: Path, more: str = "") -> AsyncIterator[tuple[Chain, dict[int, Host]]]:
    """Host 1 has 10 excerpts, host 2 takes them from there, and host 3 from host 2."""
    chain = Chain(tmp_path, 1, 2, 3)
    fill(chain.at(1), "FAST_DAILY", {0: 10})
    async with AsyncExitStack() as stack:
        hosts = {
            each: await stack.enter_async_context(chain.host(each, 1, "{3: 2}", more))
            for each in (1, 2, 3)
        }
        yield chain, hosts


def said(host: Host, role: str) -> dict[str, Any]:
    """The status of the queue in one role, as its host tells it."""
    queues: Any = snapshot_of(host)["queues"]
    (found,) = [each for each in queues if each["role"] == role]
    return dict(found)


async def test_a_copy_is_passed_on(tmp_path: Path) -> None:
    async with three(tmp_path) as (chain, hosts):
        await copied(chain.at(1), chain.at(3))
        more_excerpts(chain.at(1), 10, 10)
        await copied(chain.at(1), chain.at(3))
        await eventually(lambda: said(hosts[2], "source")["sinks"][0]["lag"] == 0)
        assert said(hosts[2], "source")["path_of_hosts"] == [1, 2]
        assert [each["host"] for each in said(hosts[2], "source")["sinks"]] == [3]
        assert [each["host"] for each in said(hosts[1], "source")["sinks"]] == [2]
        assert said(hosts[3], "sink")["path_of_hosts"] == [1, 2]
        assert (said(hosts[3], "sink")["state"], said(hosts[3], "sink")["master"]) == ("live", 2)
        identities = set()
        for each in (1, 2, 3):
            with Queue.open(chain.at(each)) as queue:
                identities.add(queue.identity.load())
                assert queue.is_follower == (each != 1)
        assert len(identities) == 1
        assert None not in identities
        for host in hosts.values():
            assert not host.stops


async def test_what_the_middle_acknowledges_is_its_own(tmp_path: Path) -> None:
    async with three(tmp_path) as (chain, hosts):
        await copied(chain.at(1), chain.at(3))
        await hosts[3].pause("q")
        more_excerpts(chain.at(1), 10, 10)
        last = last_of(chain.at(1))
        assert last is not None
        await eventually(lambda: hosts[1].source.board("q").marks == {2: last})
        await eventually(lambda: said(hosts[2], "source")["sinks"][0]["lag"] == 10)
        await hosts[3].resume("q")
        await copied(chain.at(1), chain.at(3))
        with pytest.raises(cqrepl.Refused, match="is taken in here"):
            await hosts[2].queue("q").append(b"no")


async def test_a_circle_of_three_is_refused_where_it_closes(tmp_path: Path) -> None:
    """By each host's file its queue comes from another host, and goes on to the third. Who meets
    the others once one of them has refused it is in no circle any more: nothing comes to it."""
    chain = Chain(tmp_path, 1, 2, 3)
    chain.fill(1, 2, 3)
    with Queue.open(chain.at(1)) as queue:
        queue.note_follower(is_follower=True)
    async with (
        chain.host(1, 3, "{2: 1}") as one,
        chain.host(2, 1, "{3: 2}") as two,
        chain.host(3, 2, "{1: 3}") as three,
    ):
        await eventually(lambda: any(is_refused(host) for host in (one, two, three)))
        assert {last_of(chain.at(each)) for each in (1, 2, 3)} == {last_of(chain.at(1))}


def is_refused(host: Host) -> bool:
    """Both by it, and by whom it would pass the queue on to."""
    said_here = "a loop: it has come by" in sink_state(host)
    return said_here and "the peer says: a loop" in told_by_taker(host)


def sink_state(host: Host) -> str:
    return str(said(host, "sink")["state"])


def told_by_taker(host: Host) -> str:
    queues: Any = snapshot_of(host)["queues"]
    sinks = [sink for each in queues for sink in each.get("sinks", [])]
    return " ".join(str(each["state"]) for each in sinks)


async def test_an_end_that_is_ahead_waits_for_the_middle(tmp_path: Path) -> None:
    """Host 2 has lost what host 3 has: it comes from host 1, and nothing goes back."""
    chain = Chain(tmp_path, 1, 2, 3)
    chain.fill(1, 2, 3)
    more_excerpts(chain.at(3), 10, 10)
    async with chain.host(2, 1, "{3: 2}") as two, chain.host(3, 1, "{3: 2}") as three:
        waits = "host 3 has more than this copy"
        await eventually(lambda: waits in sink_state(three))
        assert not two.stops
        assert not three.stops
        more_excerpts(chain.at(1), 10, 10)
        async with chain.host(1, 1, "{3: 2}"):
            await copied(chain.at(1), chain.at(2))
            await eventually(lambda: sink_state(three) == "live")


async def test_a_copy_that_goes_to_quarantine_is_not_passed_on_meanwhile(tmp_path: Path) -> None:
    chain = Chain(tmp_path, 1, 2, 3)
    chain.fill(1, 2)
    more_excerpts(chain.at(1), 10, 20)
    more_excerpts(chain.at(2), 10, 10, seed=77)
    aside = "  sink: {onDivergence: quarantine}"
    async with chain.host(2, 1, "{3: 2}", aside), chain.host(3, 1, "{3: 2}", aside):
        await copied(chain.at(2), chain.at(3))  # not compared with host 1 yet
        async with chain.host(1, 1, "{3: 2}", aside):
            await copied(chain.at(1), chain.at(2))
            await copied(chain.at(1), chain.at(3))
    for each in (2, 3):
        assert (chain.at(each) / "quarantine").exists()


async def test_other_routes_are_taken_on(tmp_path: Path) -> None:
    async with three(tmp_path) as (chain, hosts):
        await copied(chain.at(1), chain.at(3))
        ways = (("{}", [1], 10), ("{2: 3}", [1], 20), ("{3: 2}", [1, 2], 30))
        for routes, by, count in ways:
            for each in (1, 2, 3):
                await hosts[each].change(chain.plan(each, 1, routes).settings)
            more_excerpts(chain.at(1), count, 10)
            for each in (2, 3):
                await copied(chain.at(1), chain.at(each))
            assert said(hosts[3], "sink")["path_of_hosts"] == by
        for host in hosts.values():
            assert not host.stops
