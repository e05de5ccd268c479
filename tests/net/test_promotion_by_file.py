"""Promotions while a queue goes to another master by the file of the cluster, without an epoch."""

from pathlib import Path

import pytest

from cqrepl.net.errors import Refused
from cqrepl.queue.files.epochfile import load_epochs
from tests.support.promotions import Cluster, cluster
from tests.support.replicas import eventually, more_excerpts

pytestmark = pytest.mark.usefixtures("older_hosts")


async def begun(hosts: Cluster) -> None:
    """All follow host 1."""
    await hosts.followed(dict.fromkeys(hosts.masters.keys() - {1}, 4))


def streamed_by(hosts: Cluster) -> dict[int, int]:
    """The host that each that runs knows to have streamed it last."""
    found = {}
    for host_id, host in hosts.hosts.items():
        queue = host.source.queues.get("a") or host.sink.queues["a"]
        found[host_id] = queue.epochs.now.streamed_by
    return found


@pytest.mark.parametrize("ends", [False, True])
async def test_of_two_that_hand_over_one_at_most_leads_alone(tmp_path: Path, ends: bool) -> None:
    """The old master has given it up, and the next one does not know: each has a file by which the
    other one is the master, also when it starts anew."""
    async with cluster(tmp_path, 2) as hosts:
        await begun(hosts)
        await hosts.reload(1, 2)
        await hosts.stop(2)
        if ends:
            await hosts.stop(1)
            await hosts.start(1)
        with pytest.raises(Refused, match="may be led by two hosts in epoch 1: 2 hosts expected"):
            await hosts.hosts[1].leaders.promote("a")
        assert load_epochs(hosts.path(1)).promised == 0
        await hosts.stop(1)
        await hosts.start(2)
        done = await hosts.hosts[2].leaders.promote("a")
        assert (done.was, done.unreached, done.is_risky) == (1, (1,), False)
        await hosts.start(1)
        more_excerpts(hosts.path(2), 4, 3)
        await hosts.follow(2)


async def test_once_it_has_come_from_the_new_master_the_old_one_leads_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await begun(hosts)
        assert streamed_by(hosts) == {1: 1, 2: 1}
        for each in (1, 2):
            await hosts.reload(each, 2)
        more_excerpts(hosts.path(2), 4, 3)
        await hosts.follow(2)
        assert streamed_by(hosts) == {1: 2, 2: 2}
        await hosts.stop(2)
        done = await hosts.hosts[1].leaders.promote("a")
        assert (done.was, done.unreached, done.is_risky) == (2, (2,), False)


async def test_who_has_a_newer_file_does_not_leave_out_a_master_to_come(tmp_path: Path) -> None:
    """Hosts may read it in any order. Two halves of four, whose writes wait for two."""
    async with cluster(tmp_path, 4) as hosts:
        await begun(hosts)
        await hosts.reload(3, 2)
        plan = await hosts.hosts[3].leaders.plan("a", 3)
        assert (plan.was, plan.last) == (1, 1)
        assert streamed_by(hosts) == {1: 1, 2: 1, 3: 1, 4: 1}
        for each in (1, 2):
            await hosts.reload(each, 2)
        await eventually(lambda: streamed_by(hosts) == {1: 2, 2: 2, 3: 2, 4: 1})
        await hosts.meet()
        assert (await hosts.hosts[3].leaders.plan("a", 3)).last == 2  # as host 1 says too
        await hosts.stop(1)
        plan = await hosts.hosts[3].leaders.plan("a", 3)
        assert (plan.last, plan.majority) == (0, 3)  # host 4 has followed host 1 only
        await hosts.reload(4, 2)
        await eventually(lambda: streamed_by(hosts)[4] == 2)
        await hosts.meet()
        assert (await hosts.hosts[4].leaders.plan("a", 3)).last == 2
