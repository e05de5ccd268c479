"""A host that was made the leader waits for those that take the queue from it, and shows them."""

from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index
from cqrepl.replicator.leadership import AckOutcome
from cqrepl.replicator.safereader import SafeReader
from tests.support.replicas import eventually, more_excerpts
from tests.support.samples import noon_index
from tests.support.threehosts import ThreeHosts, three_hosts

ALL = "  ack: {q: {level: appended, from: all, timeout: 60s, on_timeout: fail}}"
TWO = "  ack: {q: {level: appended, from: 2, timeout: 60s, on_timeout: step_down}}"
NAMED = "  ack: {q: {from: all, hosts: [2, 3], timeout: 60s, on_timeout: fail}}"


async def is_safe(cluster: ThreeHosts, leader: int, others: set[int], held: int) -> int:
    """The leader holds so many excerpts. What it appends is safe once those hosts have it, and no
    others are counted; how many it holds then."""
    leading = cluster.hosts[leader].source.queues["q"].leading
    assert leading.policy.hosts == frozenset(others)
    more_excerpts(cluster.at(leader), held, 3)
    last = noon_index(sequence=held + 2)
    with trio.fail_after(30):
        assert await leading.wait_acked(last) is AckOutcome.ACKED
    assert leading.commit_index() == last
    assert not leading.has_stepped_down
    with Queue.open(cluster.at(leader)) as queue:
        with SafeReader(queue, Index(last - 2), leading.commit_index) as reader:
            batch = reader.next_batch()
            assert batch is not None
            assert batch.index_last == last
    return held + 3


@pytest.mark.parametrize("ack", [ALL, TWO, NAMED])
async def test_a_leader_by_promotion_waits_for_all_others(tmp_path: Path, ack: str) -> None:
    """The old leader is one of them, and the new one is not: again and again, and back."""
    async with three_hosts(tmp_path, ack) as cluster:
        held = await is_safe(cluster, 1, {2, 3}, 10)
        await cluster.follow(1)
        await cluster.hosts[2].leaders.promote("q")
        held = await is_safe(cluster, 2, {1, 3}, held)
        await cluster.follow(2)
        await cluster.stop_all()
        await cluster.start(1, 2, 3)
        await cluster.meet()
        held = await is_safe(cluster, 2, {1, 3}, held)
        await cluster.follow(2)
        await cluster.hosts[3].leaders.promote("q")
        held = await is_safe(cluster, 3, {1, 2}, held)
        await cluster.follow(3)
        await cluster.hosts[1].leaders.promote("q")
        await is_safe(cluster, 1, {2, 3}, held)


async def test_named_hosts_without_the_new_leader_stay_as_they_are(tmp_path: Path) -> None:
    async with three_hosts(
        tmp_path, "  ack: {q: {from: all, hosts: [3], timeout: 60s}}"
    ) as cluster:
        await cluster.hosts[2].leaders.promote("q")
        await is_safe(cluster, 2, {3}, 10)


@pytest.mark.parametrize("ack", [ALL, TWO])
async def test_another_master_by_reload_waits_for_all_others(tmp_path: Path, ack: str) -> None:
    async with three_hosts(tmp_path, ack) as cluster:
        held = await is_safe(cluster, 1, {2, 3}, 10)
        await cluster.follow(1)
        for master, before in ((2, 1), (1, 2)):
            cluster.master = master
            async with trio.open_nursery() as nursery:
                for host_id in (before, master, 3):
                    nursery.start_soon(cluster.reload, host_id)
            held = await is_safe(cluster, master, {1, 2, 3} - {master}, held)
            await cluster.follow(master)


async def test_a_leader_shows_who_takes_the_queue_from_it(tmp_path: Path) -> None:
    """Those that are away too, with how much they lack; after restarts too."""
    async with three_hosts(tmp_path) as cluster:
        await cluster.hosts[2].leaders.promote("q")

        def all_live() -> bool:
            sinks = cluster.said(2)["sinks"]
            return [(each["host"], each["state"], each["lag"]) for each in sinks] == [
                (1, "live", 0),
                (3, "live", 0),
            ]

        await eventually(all_live)
        await cluster.stop(3)
        more_excerpts(cluster.at(2), 10, 50)

        def third_is_behind() -> bool:
            sinks = {each["host"]: each for each in cluster.said(2)["sinks"]}
            behind = (sinks[3]["state"], sinks[3]["lag"])
            return (behind, sinks[1]["lag"]) == (("away", 50), 0)

        await eventually(third_is_behind)
        await cluster.stop_all()
        await cluster.start(1, 2)
        await eventually(third_is_behind)
        await cluster.start(3)
        await eventually(all_live)
