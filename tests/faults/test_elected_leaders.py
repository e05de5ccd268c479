"""Leaders that are killed, frozen and cut off, one way and both: hosts that elect go on by
themselves, nothing that was safe is lost, and nothing of an old epoch is accepted."""

import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import pytest
import trio

from tests.faults.electedhosts import LEASE_SECONDS, ElectedHosts, elected_hosts, shown

# an upper limit of waiting, ten times what is usual: a lease and a second
SOON_SECONDS = 10 * (LEASE_SECONDS + 1)


async def killed(hosts: ElectedHosts, leader: int) -> float:
    await hosts.kill(leader)
    took = await hosts.next_after(leader)
    await hosts.start(leader)
    await hosts.follows(leader)
    return took


async def frozen(hosts: ElectedHosts, leader: int) -> float:
    hosts.signal(leader, signal.SIGSTOP)
    took = await hosts.next_after(leader)
    hosts.signal(leader, signal.SIGCONT)
    return took


async def cut_off(hosts: ElectedHosts, leader: int) -> float:
    return await _cut(hosts, leader, out=True, into=True)


async def mute(hosts: ElectedHosts, leader: int) -> float:
    return await _cut(hosts, leader, out=True, into=False)


async def deaf(hosts: ElectedHosts, leader: int) -> float:
    return await _cut(hosts, leader, out=False, into=True)


async def _cut(hosts: ElectedHosts, leader: int, *, out: bool, into: bool) -> float:
    hosts.cut(leader, out=out, into=into)
    took = await hosts.next_after(leader)
    hosts.cut(leader, out=False, into=False)
    return took


Fault = Callable[[ElectedHosts, int], Awaitable[float]]


async def rounds(
    folder: Path, faults: list[Fault], seed: int, election: str = "majority"
) -> list[float]:
    """The seconds from each fault to the next excerpt that is safe."""
    took = []
    rng = random.Random(seed)
    async with elected_hosts(folder, election) as hosts:
        for fault in faults:
            took.append(await fault(hosts, hosts.acked_by))
            await hosts.appends(20)
            await trio.sleep(rng.uniform(0, LEASE_SECONDS))  # at any moment of a lease
    print("next safe excerpt after", shown(took))
    return took


async def test_a_leader_that_is_killed_frozen_or_cut_off_is_replaced(tmp_path: Path) -> None:
    took = await rounds(tmp_path, [killed, frozen, cut_off, mute, deaf], seed=1)
    assert max(took) < SOON_SECONDS


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("fault", "count"),
    [(killed, 100), (frozen, 50), (cut_off, 50), (mute, 50), (deaf, 50)],
    ids=["killed", "frozen", "cut off", "mute", "deaf"],
)
async def test_many_leaders_in_turn(tmp_path: Path, fault: Fault, count: int) -> None:
    took = await rounds(tmp_path, [fault] * count, seed=2)
    assert median(took) < SOON_SECONDS
