"""Hosts that stand as candidates in a real ZooKeeper: the first one leads, another one after it;
without a server a leader goes on for a session, and no longer."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import SteppedDown
from cqrepl.cluster.election.zookeepercandidates import ZooKeeperCandidates
from cqrepl.net.errors import Refused
from cqrepl.queue import QueueLocked
from cqrepl.replicator.electionsettings import ElectionKind, ZooKeeperSettings
from cqrepl.replicator.hostqueue import HostQueue
from cqrepl.surroundings import surroundings
from tests.net.test_elections import POLICY, Electing, electing, led
from tests.support.replicas import eventually
from tests.support.zookeeper import ZooKeeper, zookeeper

SESSION = 4.0


def by(server: ZooKeeper) -> dict[str, Any]:
    settings = ZooKeeperSettings(hosts=(server.address,), session_seconds=SESSION)
    return {"kind": ElectionKind.ZOOKEEPER, "zookeeper": settings}


async def epochs_noted(server: ZooKeeper) -> list[list[int]]:
    from kazoo.client import KazooClient

    def read() -> Any:
        client = KazooClient(server.address)
        client.start()
        try:
            return json.loads(client.get("/cqrepl/a/epochs")[0])
        finally:
            client.stop()
            client.close()

    found: list[list[int]] = await trio.to_thread.run_sync(read)
    return found


async def test_the_first_candidate_leads_and_the_next_one_after_it(tmp_path: Path) -> None:
    async with zookeeper(tmp_path / "zk") as server, electing(tmp_path, **by(server)) as cluster:
        first = await led(cluster)
        index = await cluster.hosts[first].queue("a").append(b"one", policy=POLICY)
        await cluster.kill(first)
        second = await led(cluster, not_by=first)
        assert await cluster.hosts[second].queue("a").append(b"two", policy=POLICY) > index
        await cluster.start(first)
        assert await led(cluster) == second
        await cluster.follow(second)
        epoch = cluster.hosts[second].queue("a").leading.epoch
        with trio.fail_after(30):
            while [each[:2] for each in await epochs_noted(server)][-1] != [epoch, second]:
                await trio.sleep(0.1)


async def test_without_a_server_a_leader_goes_on_for_a_session_and_no_longer(
    tmp_path: Path,
) -> None:
    async with zookeeper(tmp_path / "zk") as server, electing(tmp_path, **by(server)) as cluster:
        leader = await led(cluster)
        queue = cluster.hosts[leader].queue("a")
        server.freeze()  # a server that starts again could take longer than what is left
        await trio.sleep(SESSION / 2)  # as long as it takes
        await queue.append(b"meanwhile", policy=POLICY)
        since = surroundings().boottime()
        server.thaw()
        await eventually(lambda: _has_read(cluster, leader, since))
        await queue.append(b"again", policy=POLICY)
        await server.stop()
        # an append that begins behind the end of the lead is refused
        ended = "its session with ZooKeeper is over|only the host that streams it|append lock"
        with pytest.raises((SteppedDown, Refused, QueueLocked), match=ended):
            await _append_all(queue)
        assert cluster.leaders() == []
        await server.start()
        again = await led(cluster)
        await cluster.hosts[again].queue("a").append(b"led again", policy=POLICY)


async def _append_all(queue: HostQueue) -> None:
    while True:
        await queue.append(b"more", policy=POLICY)
        await trio.sleep(0.05)


def _has_read(cluster: Electing, host_id: int, since: float) -> bool:
    """A server that starts slowly may have ended the session of its node: that need not be first
    then, and the leader leads on."""
    elections = cluster.hosts[host_id].elections
    assert elections is not None
    assert isinstance(elections._candidates, ZooKeeperCandidates)
    read_at = elections._candidates._read_at
    return read_at is not None and read_at > since
