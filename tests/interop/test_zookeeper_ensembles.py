"""Three hosts whose candidates stand in a real ensemble of three servers: the ensemble loses its
leader, a majority, all servers. Nothing that was safe is lost, and nothing of an old epoch is
accepted, which `elected_hosts` judges at its end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import pytest
import trio

from cqrepl.surroundings import surroundings
from tests.faults.electedhosts import ElectedHosts, elected_hosts
from tests.faults.test_elected_leaders import SOON_SECONDS, Fault, frozen, killed, rounds
from tests.support.zookeeper import Ensemble, ensemble

SESSION = 6.0
pytestmark = pytest.mark.timeout(400)
lost = pytest.mark.parametrize(
    "first_lost", [0, pytest.param(1, marks=pytest.mark.long)], ids=["all", "a majority"]
)


def boottime() -> float:
    return surroundings().boottime()


@asynccontextmanager
async def candidates(folder: Path) -> AsyncIterator[tuple[Ensemble, ElectedHosts]]:
    folder.joinpath("hosts").mkdir()
    async with ensemble(folder / "zk") as servers:
        async with elected_hosts(folder / "hosts", by(servers)) as cluster:
            yield servers, cluster


def by(servers: Ensemble) -> str:
    """The keys of the hosts' file."""
    hosts = ", ".join(f'"{each}"' for each in servers.addresses)
    return f"zookeeper, zookeeper: {{hosts: [{hosts}], sessionTimeout: {SESSION:g}s}}"


def lead(hosts: ElectedHosts) -> tuple[int, int]:
    """The host that leads, with its epoch; there is one."""
    leading = [(each, epoch) for each, (role, epoch) in hosts.roles.items() if role == "leading"]
    (found,) = leading
    return found


async def test_a_cluster_goes_on_while_its_ensemble_elects(tmp_path: Path) -> None:
    async with candidates(tmp_path) as (servers, hosts):
        leads = lead(hosts)
        for _ in range(2):
            dead = await servers.leader()
            began = boottime()
            await dead.stop()
            await hosts.appends()
            await servers.leader()
            if boottime() - began < SESSION / 2:  # where the machine lets them elect in time
                assert lead(hosts) == leads
            await dead.start()
            await hosts.appends()
        leads = lead(hosts)
        await (await servers.leader()).stop()  # both leaders at once
        await hosts.kill(leads[0])
        await hosts.next_after(leads[0])
        await hosts.start(leads[0])
        await hosts.follows(leads[0])


@lost
async def test_servers_that_are_gone_for_half_a_session_change_nothing(
    tmp_path: Path, first_lost: int
) -> None:
    async with candidates(tmp_path) as (servers, hosts):
        leads = lead(hosts)
        for each in servers.servers[first_lost:]:
            each.freeze()
        await trio.sleep(SESSION / 2)  # as long as they are gone
        await hosts.appends()
        for each in servers.servers[first_lost:]:
            each.thaw()
        await trio.sleep(SESSION)  # what was not read meanwhile would end the session now
        await hosts.appends()
        assert lead(hosts) == leads


@lost
async def test_servers_that_are_gone_for_twice_the_session_end_the_lead(
    tmp_path: Path, first_lost: int
) -> None:
    async with candidates(tmp_path) as (servers, hosts):
        _, epoch = lead(hosts)
        began = boottime()
        for each in servers.servers[first_lost:]:
            await each.stop()
        await hosts.appends()
        await hosts.until(lambda: "leading" not in [role for role, _ in hosts.roles.values()])
        assert boottime() - began >= SESSION / 2
        safe = len(hosts.acked)
        await trio.sleep(max(0.0, began + 2 * SESSION - boottime()))
        assert len(hosts.acked) == safe
        for each in servers.servers[first_lost:]:
            await each.launch()
        await hosts.appends()
        assert lead(hosts)[1] > epoch


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("fault", "count"), [(killed, 100), (frozen, 50)], ids=["killed", "frozen"]
)
async def test_many_leaders_in_turn(tmp_path: Path, fault: Fault, count: int) -> None:
    (tmp_path / "hosts").mkdir()
    async with ensemble(tmp_path / "zk") as servers:
        took = await rounds(tmp_path / "hosts", [fault] * count, seed=3, election=by(servers))
    assert median(took) < SESSION + SOON_SECONDS
