"""Leases by a clock that no person sets: a wall clock that jumps makes no leader, and ends none."""

from pathlib import Path

import pytest
import trio

from cqrepl.surroundings import Surroundings, within
from tests.net.test_elections import LEASE, electing, led
from tests.support.replicas import eventually


class Jumping(Surroundings):
    """A machine whose wall clock is set back and forth by hours."""

    ahead_ns = 0

    def wall_ns(self) -> int:
        return super().wall_ns() + self.ahead_ns


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_wall_clock_that_jumps_moves_no_lease(tmp_path: Path, hours: int) -> None:
    machine = Jumping()
    with within(machine):
        async with electing(tmp_path) as cluster:
            leader = await led(cluster)
            queue = cluster.hosts[leader].queue("a").leading
            await eventually(queue.may_read)
            machine.ahead_ns = hours * 3_600_000_000_000
            for _ in range(20):
                await trio.sleep(LEASE / 10)
                assert queue.may_read()
            assert cluster.leaders() == [leader]
            assert cluster.hosts[leader].queue("a").leading is queue
            await cluster.kill(leader)
            assert await led(cluster, not_by=leader) != leader
