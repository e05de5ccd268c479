"""Three hosts in this process that elect the leader of a queue, and go on by themselves."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio

from cqrepl import SteppedDown, parse_policy
from cqrepl.cluster.election import electiondesk
from cqrepl.cluster.election.electiondesk import ElectionDesk
from cqrepl.commands.statuspage import page
from cqrepl.net.errors import Refused
from cqrepl.protocol.messages.fences import FenceBy
from cqrepl.queue.files.chroniclemarks import LEADS_KEY
from cqrepl.replicator.electionsettings import ElectionSettings
from cqrepl.replicator.rolelog import Role
from cqrepl.replicator.settings import HostSettings, SourceSettings
from cqrepl.status.snapshot import snapshot_of
from tests.support.promotions import Cluster
from tests.support.replicas import eventually
from tests.support.tables import keys_of

LEASE = 0.5
POLICY = parse_policy("from=any timeout=60s on_timeout=fail")


class Electing(Cluster):
    """Hosts that elect.

    Attributes:
        elects, leases: of single hosts, from their next start on.
    """

    more: Mapping[str, Any] = MappingProxyType({})  # settings of elections

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.elects: dict[int, bool] = {}
        self.leases: dict[int, float] = {}

    def settings(self, host_id: int) -> HostSettings:
        made = super().settings(host_id)
        if not self.elects.get(host_id, True):
            return made
        lease = self.leases.get(host_id, LEASE)
        election = ElectionSettings(**{"lease_seconds": lease, **self.more})
        return replace(made, election=election, members=election.members)

    def leaders(self) -> list[int]:
        return [i for i, h in self.hosts.items() if h.position("a").role is Role.LEADING]


@asynccontextmanager
async def electing(folder: Path, **more: Any) -> AsyncIterator[Electing]:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            made = SourceSettings(made_with={"a": "FAST_DAILY"})
            cluster = Electing(folder, nursery, 3, made)
            cluster.more = more
            try:
                await cluster.start(1, 2, 3)
                yield cluster
            finally:
                with trio.CancelScope(shield=True):
                    await cluster.stop_all()


async def led(cluster: Electing, *, not_by: int = 0) -> int:
    """The host that leads, once all that run follow it."""

    def is_led() -> bool:
        found = {host.position("a").leader for host in cluster.hosts.values()}
        return len(found) == 1 and found.isdisjoint({None, not_by}) and bool(cluster.leaders())

    await eventually(is_led)
    return cluster.leaders()[0]


async def test_a_leader_is_elected_and_replaced_when_it_is_gone(tmp_path: Path) -> None:
    async with electing(tmp_path) as cluster:
        first = await led(cluster)
        queue = cluster.hosts[first].queue("a")
        index = await queue.append(b"one", policy=POLICY)
        epoch = queue.leading.epoch
        await cluster.kill(first)
        second = await led(cluster, not_by=first)
        queue = cluster.hosts[second].queue("a")
        assert await queue.append(b"two", policy=POLICY) > index
        await cluster.start(first)
        assert await led(cluster) == second
        assert await queue.append(b"three", policy=POLICY) > index
        await cluster.follow(second)
        assert queue.leading.epoch > epoch
        assert queue.leading.may_read()
        assert await queue.leading.read_index(POLICY) >= 0


async def test_a_host_asks_again_that_was_giving_the_queue_away(tmp_path: Path) -> None:
    """A hand-over may take longer than a lease, and the host that was to lead may die meanwhile."""
    async with electing(tmp_path) as cluster:
        first = await led(cluster)
        desks = [cluster.hosts[each].elections for each in {1, 2, 3} - {first}]
        for desk in desks:
            assert desk is not None
            desk._busy.add("a")
        await cluster.kill(first)
        await eventually(
            lambda: all("gives" in each.queues["a"].last_refusal for each in desks if each)
        )
        for desk in desks:
            assert desk is not None
            desk._busy.discard("a")
        await led(cluster, not_by=first)


async def test_a_leader_that_no_majority_hears_steps_down_and_waits_end_so(tmp_path: Path) -> None:
    async with electing(tmp_path) as cluster:
        leader = await led(cluster)
        queue = cluster.hosts[leader].queue("a")
        leading = queue.leading
        for other in {1, 2, 3} - {leader}:
            await cluster.kill(other)
        with pytest.raises(SteppedDown, match="no majority of its 3 members has heard it"):
            await queue.append(b"lost", policy=POLICY)
        assert not leading.may_read()
        with pytest.raises(SteppedDown):
            await leading.read_index()
        assert cluster.hosts[leader].position("a").role is not Role.LEADING
        await cluster.start(*({1, 2, 3} - {leader}))
        again = await led(cluster)
        if again == leader:
            assert cluster.hosts[again].queue("a").leading.epoch > leading.epoch


def leads_for(path: Path) -> float:
    """The seconds for which programs beside a host are told that it leads; 0.0 where it does
    not."""
    until_ns = keys_of(path).get(LEADS_KEY, 0)
    return max(0.0, until_ns - time.monotonic_ns()) / 1e9 if until_ns else 0.0


async def test_programs_beside_the_leader_read_until_when_it_leads(tmp_path: Path) -> None:
    async with electing(tmp_path) as cluster:
        leader = await led(cluster)
        path = cluster.path(leader)
        leading = cluster.hosts[leader].queue("a").leading
        await eventually(lambda: leads_for(path) > 0)
        first = keys_of(path)[LEADS_KEY]
        await eventually(lambda: keys_of(path)[LEADS_KEY] > first)
        assert leads_for(path) <= LEASE
        others = {1, 2, 3} - {leader}
        assert [leads_for(cluster.path(other)) for other in others] == [0.0, 0.0]
        for other in others:
            await cluster.kill(other)
        await eventually(lambda: leading.has_stepped_down)
        await eventually(lambda: keys_of(path)[LEADS_KEY] == 0)


async def test_an_operator_promotes_another_host_for_all_that_the_leader_is_heard(
    tmp_path: Path,
) -> None:
    async with electing(tmp_path) as cluster:
        leader = await led(cluster)
        other = min({1, 2, 3} - {leader})
        elections = cluster.hosts[other].elections
        assert elections is not None
        await eventually(lambda: elections.hears_leader("a"))
        with pytest.raises(Refused, match=f"hears host {leader}, which leads in epoch"):
            await cluster.hosts[other].leaders.promote("a", by=FenceBy.ELECTION)
        assert await led(cluster) == leader
        await cluster.hosts[other].leaders.promote("a")
        assert await led(cluster) == other


async def test_a_member_that_cannot_elect_keeps_all_others_from_it(tmp_path: Path) -> None:
    async with electing(tmp_path) as cluster:
        leader = await led(cluster)
        others = sorted({1, 2, 3} - {leader})
        cluster.elects[others[0]] = False
        await cluster.stop(others[0])
        await cluster.start(others[0])
        elections = cluster.hosts[others[1]].elections
        assert elections is not None
        await eventually(lambda: elections.cannot_elect == [others[0]])
        said = elections.fields("a")
        assert said is not None
        assert (said["state"], said["cannot_elect"]) == ("off", [others[0]])
        await cluster.follow(leader)
        assert cluster.leaders() == [leader]  # it leads on, as it would without elections


async def test_a_member_with_another_lease_elects_nothing_with_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with electing(tmp_path) as cluster:
        await led(cluster)
        cluster.leases[3] = 2 * LEASE
        await cluster.stop(3)
        await cluster.start(3)
        for host_id in (1, 2):
            elections = cluster.hosts[host_id].elections
            assert elections is not None
            await eventually(partial(_cannot_elect, elections, [3]))
        own = cluster.hosts[3].elections
        assert own is not None
        await eventually(lambda: own.cannot_elect == [1, 2])
    assert "host 3 has a leaseTimeout of 1000 ms, and this host one of 500 ms" in caplog.text


def _cannot_elect(elections: ElectionDesk, hosts: list[int]) -> bool:
    return elections.cannot_elect == hosts


async def test_a_queue_goes_back_to_the_member_that_leads_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(electiondesk, "QUIET_LEASES", 1)
    monkeypatch.setattr(electiondesk, "GIVE_BACK_SECONDS", 0.0)
    async with electing(tmp_path, preferred={"a": 3}, gives_back=True) as cluster:
        await eventually(lambda: cluster.leaders() == [3])
        await cluster.kill(3)
        other = await led(cluster, not_by=3)
        await cluster.hosts[other].queue("a").append(b"meanwhile", policy=POLICY)
        await cluster.start(3)
        await eventually(lambda: cluster.leaders() == [3])
        assert await led(cluster) == 3
        await cluster.follow(3)


async def test_commands_are_run_in_order_for_each_role_and_what_fails_is_shown(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n[ "$3" != leading ]\n')
    program.chmod(0o755)
    async with electing(tmp_path, on_role=(str(program), "of")) as cluster:
        leader = await led(cluster)
        elections = cluster.hosts[leader].elections
        assert elections is not None
        await eventually(lambda: _told(elections) == "exit code 1")
        lines = (tmp_path / "told").read_text().splitlines()
        epoch = cluster.hosts[leader].queue("a").leading.epoch
        assert f"of a leading {epoch}" in lines
        assert lines.index("of a following 0") < lines.index(f"of a leading {epoch}")


def _told(elections: ElectionDesk) -> object:
    fields = elections.fields("a")
    return fields and fields["on_role"]


async def test_an_operator_has_the_leader_step_down_or_hand_over(tmp_path: Path) -> None:
    # where the other two ask at one time, as on a busy machine, the first one may be back from its
    # rest before they are: turns and rests are longer with a longer lease
    async with electing(tmp_path, lease_seconds=4 * LEASE) as cluster:
        first = await led(cluster)
        answer = await cluster.hosts[first].control.do({"do": "step down", "queue": "a"})
        assert answer["said"] == ["queue 'a': this host leads it no longer: another one is elected"]
        second = await led(cluster, not_by=first)
        said = await cluster.hosts[first].control.do({"do": "step down", "queue": "a"})
        assert f"this host does not lead it: host {second} leads it" in str(said["error"])
        order = {"do": "step down", "queue": "a", "to": first}
        assert "error" not in await cluster.hosts[second].control.do(order)
        assert await led(cluster) == first
        told = await cluster.hosts[first].control.do({"do": "epochs", "queue": "a"})
        assert told["promised_to"] == first
        wrong = await cluster.hosts[first].control.do(order | {"to": first})
        assert "expected the id of another host" in str(wrong["error"])
        queues: Any = snapshot_of(cluster.hosts[first])["queues"]
        assert queues[0]["election"]["members"] == [1, 2, 3]
        assert any("elect its leader, by majority" in line for line in page(_shown(cluster, first)))


def _shown(cluster: Electing, host_id: int) -> dict[str, Any]:
    return snapshot_of(cluster.hosts[host_id])


async def test_a_host_whose_service_cannot_serve_is_not_elected_and_takes_no_lead(
    tmp_path: Path,
) -> None:
    async with electing(tmp_path) as cluster:
        first = await led(cluster)
        await cluster.hosts[first].queue("a").append(b"one", policy=POLICY)
        unfit, fit = sorted({1, 2, 3} - {first})  # of equal copies the first one asks first
        asked: list[int | None] = []

        def why_unfit(end: int | None) -> str:
            asked.append(end)
            return "its service is ill"

        with cluster.hosts[unfit].queue("a").asking(why_unfit):
            order = {"do": "step down", "queue": "a", "to": unfit}
            said = await cluster.hosts[first].control.do(order)
            told = f"host {unfit} is not fit to lead it: its service is ill"
            assert told in str(said["error"])
            await cluster.kill(first)
            assert await led(cluster, not_by=first) == fit
            elections = cluster.hosts[unfit].elections
            assert elections is not None
            assert elections.queues["a"].last_refusal == "its service is ill"
            assert asked[0] is None
            assert asked[-1] == cluster.hosts[unfit].sink.queues["a"].next_index
        await cluster.kill(fit)
        await cluster.start(first)
        assert await led(cluster, not_by=fit) in (first, unfit)


async def test_one_host_leads_alone_at_once_and_no_other_one_has_a_say(tmp_path: Path) -> None:
    async with electing(tmp_path, members={"a": frozenset({1})}) as cluster:
        await eventually(lambda: cluster.leaders() == [1])
        assert cluster.hosts[1].queue("a").leading.epoch == 1
        assert cluster.hosts[1].queue("a").leading.may_read()
        assert cluster.hosts[2].elections is not None
        assert cluster.hosts[2].elections.queues == {}
