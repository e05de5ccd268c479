"""Wishes for another leader of a queue that meet at one host."""

from functools import partial
from pathlib import Path

import trio

from cqrepl import Host, Refused
from cqrepl.cluster.promotion import Promotion
from tests.support.promotions import Cluster, cluster
from tests.support.replicas import eventually, more_excerpts
from tests.support.samples import read


def leads(hosts: Cluster, host_id: int, epoch: int) -> bool:
    """True where all hosts that run know that this one leads in this epoch."""
    found = [host.position("a") for host in hosts.hosts.values()]
    return all((each.leader, each.epoch) == (host_id, epoch) for each in found)


async def goes_on(hosts: Cluster, host_id: int, epoch: int) -> None:
    """The host leads, and all copies have what is appended there."""
    await eventually(partial(leads, hosts, host_id, epoch))
    more_excerpts(hosts.path(host_id), len(read(hosts.path(host_id))), 3)
    await hosts.follow(host_id)


async def promoted(host: Host, into: list[Promotion | Refused]) -> None:
    try:
        into.append(await host.leaders.promote("a"))
    except Refused as error:
        into.append(error)


async def test_of_two_promotions_of_one_host_the_second_finds_it_done(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        found: list[Promotion | Refused] = []
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(promoted, hosts.hosts[2], found)
        done, refused = sorted(found, key=lambda each: isinstance(each, Refused))
        assert isinstance(done, Promotion)
        assert done.epoch == 1
        assert "host 2 leads it already" in str(refused)
        await goes_on(hosts, 2, 1)


async def test_a_reload_that_meets_a_promotion_finds_it_done(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        found: list[Promotion | Refused] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(promoted, hosts.hosts[2], found)
            nursery.start_soon(hosts.reload, 1, 2)
            nursery.start_soon(hosts.reload, 2, 2)
        await goes_on(hosts, 2, 1)
