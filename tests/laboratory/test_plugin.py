"""The fixtures for programs that use cqrepl, used as such a program would."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cqrepl.queue import Queue


def test_a_queue(cq_queue: Queue) -> None:
    index = cq_queue.append(b"hello")
    assert cq_queue.last_index() == index


async def test_a_pair(cq_pair: Callable[..., Any], autojump_clock: MockClock) -> None:
    async with cq_pair() as cluster:
        cluster.append(b"one", b"two")
        await cluster.settled()
        assert cluster.content(1) == cluster.content(2)
        assert len(cluster.content(2)) >= 2


async def test_a_cluster_through_faults(
    cq_cluster: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with cq_cluster(3, seed=7) as cluster:
        await cluster.settled()
        cluster.hosts[2].kill()
        cluster.network.weather(3, 1).stall()
        cluster.append(b"while one is dead and the other cannot answer")
        with pytest.raises(trio.TooSlowError):
            await cluster.settled(10)
        cluster.network.weather(3, 1).clear()
        cluster.hosts[2].start()
        await cluster.settled()
        assert cluster.content(1) == cluster.content(2) == cluster.content(3)
    said = [entry.text for entry in cluster.story.entries]
    assert "replication is killed" in said


async def test_a_cluster_whose_hosts_stream_to_each_other(
    cq_cluster: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with cq_cluster(3, both_ways=True) as cluster:
        for master in (1, 2, 3):
            cluster.append(b"from host %d" % master, master=master)
        await cluster.settled()
        for master in (1, 2, 3):
            [own, one, other] = [cluster.content(host, master) for host in (1, 2, 3)]
            assert own == one == other
            assert len(own) >= 2
        assert len(cluster.network.links) == 3  # one for two of them
