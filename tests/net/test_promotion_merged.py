"""Promotions where the last epoch that two copies have in common is one that others merged into."""

from pathlib import Path

import pytest

from cqrepl.net.errors import Refused
from cqrepl.protocol import greeting, uber
from cqrepl.protocol.capabilities import MERGED_CAPABILITY
from cqrepl.queue.files.epochfile import load_epochs, store_epochs
from cqrepl.queue.format.epochs import EPOCHS_MAX, Epochs, has_merged
from tests.support.copies import assert_same
from tests.support.promotions import Cluster, cluster, last
from tests.support.replicas import copied, eventually, last_of, more_excerpts
from tests.support.samples import noon_index, read

COUNT = 70


def quarantines(hosts: Cluster) -> list[Path]:
    return [each for host_id in (1, 2, 3) for each in hosts.path(host_id).glob("quarantine/*")]


async def away_for_many(hosts: Cluster, *, own: bool) -> None:
    """Hosts 1 and 2 run, of which host 2 was away for all epochs but one. Host 3, which led in the
    last one, is away. The copies are as long as each other, where host 2 has one of its `own`."""
    await hosts.uneven({2: 15, 3: 15})
    for host_id in (1, 2, 3):
        await hosts.stop(host_id)
    for host_id in (1, 2):
        more_excerpts(hosts.path(host_id), 15, 1, seed=host_id if own else 1)
    epochs = Epochs()
    for number in range(1, COUNT + 1):
        epochs = epochs.promise(number, 3).opened(noon_index(sequence=min(2 + number, 16)))
    store_epochs(hosts.path(1), epochs)
    first = Epochs().promise(1, 3).opened(noon_index(sequence=3))
    store_epochs(hosts.path(2), first.promise(2, 2).opened(noon_index(sequence=4)))
    await hosts.start(1, 2)
    await hosts.meet()


async def test_who_was_away_for_many_epochs_leads_where_it_holds_the_same(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await away_for_many(hosts, own=False)
        plan = await hosts.hosts[2].leaders.plan("a", 2)
        assert (plan.farthest, plan.uncompared, plan.is_risky) == (1, (), False)
        done = await hosts.hosts[2].leaders.promote("a")
        assert done == plan
        await hosts.follow(2)
        epochs = load_epochs(hosts.path(1))
        await eventually(lambda: load_epochs(hosts.path(1)) == load_epochs(hosts.path(2)))
        epochs = load_epochs(hosts.path(2))
        assert (epochs.number, epochs.history[0].last) == (COUNT + 1, COUNT + 2 - EPOCHS_MAX)
        assert not quarantines(hosts)


async def test_one_that_holds_something_else_does_not_lead(tmp_path: Path) -> None:
    """It would have all others put aside what was safe."""
    async with cluster(tmp_path, 3) as hosts:
        await away_for_many(hosts, own=True)
        why = "host 2 and host 1 hold other excerpts before 0x[0-9a-f]+: promote host 1"
        with pytest.raises(Refused, match=why):
            await hosts.hosts[2].leaders.promote("a", accept_loss=True)
        assert load_epochs(hosts.path(1)).promised == COUNT
        await hosts.hosts[1].leaders.promote("a")
        await copied(hosts.path(1), hosts.path(2))
        (folder,) = quarantines(hosts)
        assert read(folder, noon_index(sequence=15))
        assert folder.name.startswith(f"{noon_index(sequence=15):#x}")


async def test_where_no_chain_tells_an_operator_accepts_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the library for hashes is missing at one of them."""
    async with cluster(tmp_path, 3) as hosts:
        await away_for_many(hosts, own=False)
        monkeypatch.setattr("cqrepl.cluster.fencedesk.has_chains", lambda: False)
        leaders = hosts.hosts[2].leaders
        with pytest.raises(Refused, match=r"not compared with host 1: 0x.* of host 2: .*--accept"):
            await leaders.promote("a")
        assert load_epochs(hosts.path(1)).promised == COUNT
        done = await leaders.promote("a", accept_loss=True)
        assert done.fields()["lost_from"] == f"{noon_index(sequence=3):#x}"
        await hosts.follow(2)


async def test_hosts_of_which_one_knows_of_no_merged_epochs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        for module in (greeting, uber):
            known = module.CORE_CAPABILITIES - {MERGED_CAPABILITY}
            monkeypatch.setattr(module, "CORE_CAPABILITIES", known)
        await away_for_many(hosts, own=False)
        await hosts.hosts[1].leaders.promote("a")
        await hosts.follow(1)
        assert has_merged(load_epochs(hosts.path(1)).history)
        await eventually(lambda: load_epochs(hosts.path(2)).number == COUNT + 1)
        assert len(load_epochs(hosts.path(2)).history) == EPOCHS_MAX
        assert not has_merged(load_epochs(hosts.path(2)).history)
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 16, 2)
        await hosts.follow(2)
        assert not quarantines(hosts)


@pytest.mark.parametrize("own", [0, 1])
async def test_a_host_that_was_away_while_the_epochs_merged_comes_back(
    tmp_path: Path, own: int
) -> None:
    """Two hosts promote each other from the 62nd epoch on to the 67th. Excerpts of its own of the
    third one go to quarantine, and nothing else."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 5, 3: 5})
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 5, 2)
        await hosts.follow(2)
        await hosts.stop_all()
        epochs = load_epochs(hosts.path(3))
        for number in range(2, EPOCHS_MAX - 1):
            epochs = epochs.promise(number, 1 + number % 2).opened(noon_index(sequence=7))
        for host_id in (1, 2):
            store_epochs(hosts.path(host_id), epochs)
        await hosts.start(1, 2)
        await hosts.meet()
        for number in range(EPOCHS_MAX - 1, EPOCHS_MAX + 4):
            leader = hosts.hosts[1 + number % 2]
            await leader.leaders.promote("a")
            more_excerpts(hosts.path(1 + number % 2), number - EPOCHS_MAX + 8, 1)
            await hosts.follow(1 + number % 2)
        assert load_epochs(hosts.path(1)).history[0] == (1, 2, noon_index(sequence=5), 4)
        if own:
            more_excerpts(hosts.path(3), 7, own, seed=3)
        await hosts.start(3)
        await eventually(lambda: last_of(hosts.path(3)) == last(12))
        await hosts.follow(2)
        assert_same(hosts.path(2), hosts.path(3))
        assert [len(read(each, noon_index(sequence=7))) for each in quarantines(hosts)] == (
            [own] if own else []
        )
