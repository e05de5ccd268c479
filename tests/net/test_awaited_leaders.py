"""Hosts that await a leader: each starts as one that follows, and leads in a new epoch only."""

from pathlib import Path

import pytest

from cqrepl import Queue
from cqrepl.net.errors import Refused
from cqrepl.protocol.messages.fences import FenceBy
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.replicator.queueposition import QueuePosition
from cqrepl.replicator.rolelog import Role
from tests.support.replicas import eventually
from tests.support.samples import read
from tests.support.threehosts import IDS, ThreeHosts, three_hosts


def positions(cluster: ThreeHosts) -> list[QueuePosition]:
    return [cluster.hosts[each].position("q") for each in IDS]


async def led_by(cluster: ThreeHosts, leader: int, epoch: int) -> None:
    """A host leads in an epoch, and all others follow it."""

    def is_so() -> bool:
        found = positions(cluster)
        known = {(each.epoch, each.leader, each.has_begun) for each in found}
        roles = [each.role for each in found]
        follow = [Role.LEADING if each == leader else Role.FOLLOWING for each in IDS]
        return known == {(epoch, leader, True)} and roles == follow

    await eventually(is_so)


def append(cluster: ThreeHosts, leader: int, count: int) -> None:
    cluster.hosts[leader].queue("q").leading.append([b"one"] * count)


async def test_no_host_leads_before_one_is_promoted(tmp_path: Path) -> None:
    """The file names host 1 as the master, which counts for nothing."""
    async with three_hosts(tmp_path, awaits_leader=True) as cluster:
        assert {(each.role, each.leader) for each in positions(cluster)} == {(Role.FOLLOWING, None)}
        assert not any(host.source.queues for host in cluster.hosts.values())
        done = await cluster.hosts[2].leaders.promote("q", by=FenceBy.ELECTION)
        assert (done.epoch, done.was, done.is_risky) == (1, 0, False)
        append(cluster, 2, 3)
        await cluster.follow(2)
        await led_by(cluster, 2, 1)


async def test_two_of_three_find_a_first_leader(tmp_path: Path) -> None:
    """No host has ever led, so nothing can have been safe at the one that is away."""
    async with three_hosts(tmp_path, awaits_leader=True) as cluster:
        await cluster.stop(1, 3)
        with pytest.raises(Refused, match="2 hosts expected to promise, 1 does"):
            await cluster.hosts[2].leaders.promote("q")
        await cluster.start(3)
        await cluster.meet()
        assert (await cluster.hosts[2].leaders.promote("q")).unreached == (1,)
        await cluster.start(1)
        append(cluster, 2, 1)
        await cluster.follow(2)
        await led_by(cluster, 2, 1)


async def test_a_leader_that_starts_again_follows(tmp_path: Path) -> None:
    """Also where no other host leads by then: it leads again in a new epoch, with all it had."""
    async with three_hosts(tmp_path, awaits_leader=True) as cluster:
        await cluster.hosts[2].leaders.promote("q")
        append(cluster, 2, 3)
        await cluster.follow(2)
        await cluster.stop(2)
        with Queue.open_for_append(cluster.at(2)) as queue:
            queue.append(b"kept")
        await cluster.start(2)
        await cluster.meet()
        assert load_epochs(cluster.at(2)).may_lead(2), "as its disk says"
        found = cluster.hosts[2].position("q")
        assert (found.role, found.leader) == (Role.FOLLOWING, None)
        assert (await cluster.hosts[2].leaders.promote("q")).epoch == 2
        await cluster.follow(2)
        await led_by(cluster, 2, 2)
        assert len(read(cluster.at(1))) == 4


class Hears:
    """The elections of a host that hears a leader."""

    def refusal(self, name: str, candidate: int) -> str:
        return f"host 3 hears host 1, and not host {candidate}"

    def hears_leader(self, name: str) -> bool:
        return True

    def promised(self, name: str, leader: int, epoch: int) -> None:
        """Nothing comes of it."""


async def test_a_host_that_hears_its_leader_promises_to_an_operator_alone(tmp_path: Path) -> None:
    async with three_hosts(tmp_path) as cluster:
        cluster.hosts[3].leaders._desk.elections = Hears()
        cluster.hosts[1].leaders._desk.elections = Hears()
        with pytest.raises(Refused, match="queue 'q': host 3 hears host 1, and not host 2"):
            await cluster.hosts[2].leaders.promote("q", by=FenceBy.ELECTION)
        assert [load_epochs(cluster.at(each)).promised for each in (1, 3)] == [0, 0]
        done = await cluster.hosts[2].leaders.promote("q")
        assert (done.fenced, done.epoch) == ((1, 3), 2)


async def test_an_empty_copy_takes_the_identity_of_the_next_leader(tmp_path: Path) -> None:
    """Each of two hosts has made the queue as it was elected, and nothing came to the other one."""
    async with three_hosts(tmp_path, awaits_leader=True, excerpts=0) as cluster:
        await cluster.stop(1, 3)
        await cluster.hosts[2].leaders.promote("q", accept_loss=True)
        await cluster.stop(2)
        with Queue.open_for_append(cluster.at(2)) as queue:
            queue.identity.keep(new_identity)
        await cluster.start(1, 3)
        await cluster.hosts[1].leaders.promote("q", accept_loss=True)
        append(cluster, 1, 2)
        await cluster.start(2)
        await cluster.hosts[1].leaders.promote("q")
        await cluster.follow(1)
        await led_by(cluster, 1, load_epochs(cluster.at(1)).promised)
