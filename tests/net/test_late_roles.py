"""A host that cannot read who leads a queue when it starts finds it out while it runs."""

from pathlib import Path

import pytest

from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME
from tests.support.replicas import eventually, more_excerpts
from tests.support.threehosts import three_hosts


def make_unreadable(path: Path) -> None:
    """As root may read whatever has a mode: a link that leads to itself."""
    (path / EPOCH_FILE_NAME).rename(path / "aside")
    (path / EPOCH_FILE_NAME).symlink_to(EPOCH_FILE_NAME)


def make_readable(path: Path) -> None:
    (path / "aside").replace(path / EPOCH_FILE_NAME)


@pytest.mark.parametrize("host_id", [1, 2, 3])
async def test_it_goes_on_when_it_can_be_read(tmp_path: Path, host_id: int) -> None:
    """The first master follows, the new one leads, and a third one follows that; none is started
    again for it."""
    async with three_hosts(tmp_path, others=("r",)) as cluster:
        await cluster.hosts[2].leaders.promote("q")
        more_excerpts(cluster.at(2), 10, 2)
        await cluster.follow(2)
        await cluster.stop(host_id)
        make_unreadable(cluster.at(host_id))
        await cluster.start(host_id)
        host = cluster.hosts[host_id]
        await cluster.meet()
        assert "q" not in host.source.queues
        make_readable(cluster.at(host_id))
        if host_id == 2:
            await eventually(lambda: "q" in host.source.queues)
        more_excerpts(cluster.at(2), 12, 3)
        await cluster.follow(2)
        assert [each for each, one in cluster.hosts.items() if "q" in one.source.queues] == [2]
        assert not any(one.stops for one in cluster.hosts.values())


async def test_one_that_is_damaged_stops_the_queue(tmp_path: Path) -> None:
    """No host can tell which leader the damaged copy may follow."""
    async with three_hosts(tmp_path, others=("r",)) as cluster:
        await cluster.hosts[2].leaders.promote("q")
        await cluster.follow(2)
        await cluster.stop(2)
        make_unreadable(cluster.at(2))
        await cluster.start(2)
        aside = cluster.at(2) / "aside"
        aside.write_bytes(bytes(aside.stat().st_size))
        make_readable(cluster.at(2))
        host = cluster.hosts[2]
        await eventually(lambda: any(stop.name == "q" for stop in host.stops))
        assert EPOCH_FILE_NAME in host.stops[0].message
