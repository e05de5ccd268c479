"""A reader with a name goes on where it stood, on whichever host leads after the old one died."""

from functools import partial
from pathlib import Path

import pytest

from cqrepl.replicator.settings import SourceSettings
from tests.net.test_tailers import take
from tests.support.promotions import Cluster, cluster
from tests.support.replicas import eventually, more_excerpts
from tests.support.samples import Excerpts, noon_index, read
from tests.support.tables import keys_of

REPLICATED = "replicated:orders"


def position(path: Path, name: str) -> int | None:
    return keys_of(path).get(f"index.{name}") if (path / "metadata.cq4t").exists() else None


def stands_at(path: Path, name: str, index: int) -> bool:
    return position(path, name) == index


def is_gone(hosts: Cluster, host_id: int) -> bool:
    """No host has a connection with it any more."""
    return all(host_id not in each.endpoint.connections for each in hosts.hosts.values())


async def lose_the_leader(hosts: Cluster, name: str) -> Excerpts:
    """The tailer of a name reads 20 of 40 on host 1, which dies; host 2 leads. What was written."""
    await hosts.followed({2: 40, 3: 40})
    written = read(hosts.path(1))
    assert take(hosts.path(1), name, 20) == written[:20]
    for copy in (2, 3):
        await eventually(partial(stands_at, hosts.path(copy), name, written[20][0]))
    await hosts.kill(1)
    await eventually(partial(is_gone, hosts, 1))
    await hosts.hosts[2].leaders.promote("a")
    await hosts.follow(2)
    return written


@pytest.mark.parametrize("name", [REPLICATED, "plain"])
async def test_a_reader_goes_on_where_it_stood_on_the_new_leader(tmp_path: Path, name: str) -> None:
    async with cluster(tmp_path, 3, source=SourceSettings(all_tailers=name == "plain")) as hosts:
        written = await lose_the_leader(hosts, name)
        assert written[20][0] == noon_index(sequence=20)
        assert take(hosts.path(2), name, 5) == written[20:25]
        later = more_excerpts(hosts.path(2), 40, 3)
        assert take(hosts.path(2), name, 99) == written[25:] + later
        await hosts.follow(2)
        end = noon_index(sequence=43)
        await eventually(lambda: position(hosts.path(3), name) == end)


@pytest.mark.parametrize("name", [REPLICATED, "plain"])
async def test_the_old_leader_takes_on_where_its_reader_stands_now(
    tmp_path: Path, name: str
) -> None:
    """It comes back with the old place, and a second promotion leads the reader to it."""
    async with cluster(tmp_path, 3, source=SourceSettings(all_tailers=name == "plain")) as hosts:
        written = await lose_the_leader(hosts, name)
        assert take(hosts.path(2), name, 5) == written[20:25]
        await hosts.start(1)
        await hosts.meet()
        await hosts.follow(2)
        await eventually(lambda: position(hosts.path(1), name) == written[25][0])
        await hosts.kill(2)
        await eventually(partial(is_gone, hosts, 2))
        await hosts.hosts[1].leaders.promote("a")
        await hosts.follow(1)
        assert take(hosts.path(1), name, 5) == written[25:30]


async def test_without_that_other_readers_begin_anew(tmp_path: Path) -> None:
    """Only where nothing else is said: the copy knows nothing of their place."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 40, 3: 40})
        written = read(hosts.path(1))
        take(hosts.path(1), "plain", 20)
        take(hosts.path(1), REPLICATED, 20)
        await eventually(lambda: position(hosts.path(2), REPLICATED) == written[20][0])
        assert position(hosts.path(2), "plain") is None
        await hosts.kill(1)
        await eventually(partial(is_gone, hosts, 1))
        await hosts.hosts[2].leaders.promote("a")
        await hosts.follow(2)
        assert take(hosts.path(2), "plain", 1) == written[:1]
        assert take(hosts.path(2), REPLICATED, 1) == written[20:21]
