"""Wishes for another leader of a queue that meet: at one host, or by files of several versions."""

from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl import Host, Refused
from cqrepl.cluster import masterchange
from cqrepl.cluster.fencedesk import FenceDesk
from cqrepl.cluster.promotion import Promotion
from cqrepl.replicator import direction
from tests.support.promotions import Cluster, cluster
from tests.support.replicas import SECONDS, eventually, more_excerpts
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


async def test_two_masters_by_two_files_become_one_that_leads_by_an_epoch(tmp_path: Path) -> None:
    """One host reads the new file at its start, so both stream the queue until the other one
    reads it too."""
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        await hosts.stop(2)
        hosts.masters[2] = 2
        await hosts.start(2)
        await hosts.meet()
        await hosts.reload(1, 2)
        await goes_on(hosts, 2, 1)


async def test_of_two_masters_by_two_files_none_lets_go_while_the_other_lacks_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direction, "HAND_OVER_SECONDS", 1.0)
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        await hosts.stop(2)
        more_excerpts(hosts.path(1), 4, 3)
        hosts.masters[2] = 2
        await hosts.start(2)
        await hosts.meet()
        with pytest.raises(Refused, match="'a' stays with host 1: host 2 has not all of it"):
            await hosts.reload(1, 2)
        await hosts.hosts[1].queue("a").append(b"it goes on")


async def test_an_old_master_waits_for_a_host_that_never_says_whether_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads on, and the one who reloads it hears so."""

    async def says_nothing(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(masterchange, "LEADS_SECONDS", 0.5)
    monkeypatch.setattr(FenceDesk, "_answer_lead", says_nothing)
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        with (
            trio.fail_after(SECONDS),
            pytest.raises(Refused, match=r"stays here: host 2 has not said within 0.5 s that it"),
        ):
            await hosts.reload(1, 2)
        await hosts.hosts[1].queue("a").append(b"it goes on")


async def test_an_old_master_that_reads_the_file_at_its_start_gives_the_queue_too(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        await hosts.stop(1)
        more_excerpts(hosts.path(1), 4, 3)
        hosts.masters[1] = 2
        await hosts.start(1)
        await hosts.meet()
        await hosts.reload(2, 2)
        await goes_on(hosts, 2, 1)


async def test_a_host_follows_the_master_of_its_file_once_that_streams_by_the_file(
    tmp_path: Path,
) -> None:
    """It has read the file first, and waits for an epoch, which two restarts do not make."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        assert "host 1 leads it" in await hosts.reload(3, 2)
        for host_id in (1, 2):
            await hosts.stop(host_id)
            hosts.masters[host_id] = 2
        await hosts.start(1, 2)
        await hosts.meet()
        more_excerpts(hosts.path(2), 4, 3)
        await hosts.follow(2)
