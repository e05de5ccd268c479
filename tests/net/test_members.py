"""A queue that names its members: they alone have copies, promise, and may lead."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cqrepl.net.errors import Refused
from cqrepl.protocol import capabilities
from cqrepl.queue.files.epochfile import load_epochs, store_epochs
from cqrepl.replicator import direction
from tests.support.replicas import copied, eventually, more_excerpts
from tests.support.samples import read
from tests.support.threehosts import IDS, ThreeHosts, three_hosts

BOTH = frozenset({1, 2})
TWO = "  queues: {q: {members: [1, 2]}}"


def is_begun(path: Path) -> bool:
    return load_epochs(path).is_begun


async def filled(cluster: ThreeHosts) -> None:
    more_excerpts(cluster.at(1), 0, 5)
    await copied(cluster.at(1), cluster.at(2))


async def test_members_are_promised_with_an_epoch(tmp_path: Path) -> None:
    """A host that is none has no copy, and is not asked."""
    async with three_hosts(tmp_path, TWO, others=("r",), excerpts=0) as cluster:
        assert not cluster.hosts[3].has_queue("q")
        await filled(cluster)
        done = await cluster.hosts[2].leaders.promote("q")
        assert (done.fenced, done.unreached, done.members) == ((1,), (), BOTH)
        for host_id in (1, 2):
            await eventually(partial(is_begun, cluster.at(host_id)))
            epochs = load_epochs(cluster.at(host_id))
            assert (epochs.members, epochs.listed) == (BOTH, 1)
        assert not cluster.at(3).exists()
        with pytest.raises(ValueError, match=r"the id of a host \(1, 2\) expected, 3 came"):
            await cluster.hosts[1].leaders.plan("q", 3)


async def test_copies_that_name_different_members_have_no_leader(tmp_path: Path) -> None:
    """Each could be a majority with a host of its own list."""
    async with three_hosts(tmp_path, "  queues: {q: {members: [1, 2, 3]}}") as cluster:
        await cluster.hosts[2].leaders.promote("q")
        for host_id in (1, 3):
            await eventually(partial(is_begun, cluster.at(host_id)))
        await cluster.stop_all()
        epochs = load_epochs(cluster.at(1))
        store_epochs(cluster.at(1), replace(epochs, members=frozenset({1, 4, 5})))
        await cluster.start(1, 3)
        await cluster.meet()
        why = "members differ: host 1 names 1, 4, 5 in epoch 1, host 3 names 1, 2, 3"
        with pytest.raises(Refused, match=why):
            await cluster.hosts[3].leaders.promote("q")


async def test_a_host_that_knows_no_members_does_not_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not keep them; so the new leader has to do without it."""
    older = capabilities.CORE_CAPABILITIES - {capabilities.MEMBERS_CAPABILITY}
    monkeypatch.setattr("cqrepl.protocol.greeting.CORE_CAPABILITIES", older)
    async with three_hosts(tmp_path, TWO, others=("r",), excerpts=0) as cluster:
        await filled(cluster)
        done = await cluster.hosts[2].leaders.promote("q")
        assert done.declined == ((1, "host 1 is too old to know members of a queue"),)
        assert load_epochs(cluster.at(1)).promised == 0


def members(cluster: ThreeHosts, *hosts: int) -> None:
    """The file names these members from now on."""
    cluster.more = f"  queues: {{q: {{members: {list(hosts)}}}}}"


@pytest.mark.parametrize("has_epoch", [False, True])
async def test_a_host_comes_in_and_one_goes_in_new_epochs(tmp_path: Path, has_epoch: bool) -> None:
    """The host that leads begins each once it has read the file; what it has is nowhere lost."""
    async with three_hosts(tmp_path, TWO, others=("r",), excerpts=0) as cluster:
        await filled(cluster)
        leader = cluster.hosts[1]
        if has_epoch:
            await leader.leaders.promote("q")
        members(cluster, 1, 2, 3)
        assert "queue 'q' is added: sink" in str((await cluster.reload(3))["said"])
        assert (await cluster.reload(1))["said"][-1] == "queue 'q' has other members"
        told = "queue 'q': the host that leads it begins an epoch with other members"
        assert (await cluster.reload(2))["said"][-1] == told
        assert leader.position("q").epoch == 1 + has_epoch
        leader.queue("q").leading.append([b"three"])
        await cluster.follow(1)
        await eventually(lambda: load_epochs(cluster.at(3)).members == frozenset(IDS))
        members(cluster, 1, 3)
        assert (await cluster.reload(1))["said"][-1] == "queue 'q' has other members"
        assert (await cluster.reload(2))["removed"] == ["q"]
        await cluster.reload(3)
        done = await cluster.hosts[3].leaders.promote("q")
        assert (done.epoch, done.members) == (3 + has_epoch, frozenset({1, 3}))
        assert len(read(cluster.at(3))) == 6
        assert load_epochs(cluster.at(1)).members == frozenset({1, 3})


async def test_two_hosts_at_a_time_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is one that has not come; then all is as before."""
    monkeypatch.setattr(direction, "HAND_OVER_SECONDS", 0.1)
    async with three_hosts(tmp_path, TWO, others=("r",), excerpts=0) as cluster:
        await filled(cluster)
        await cluster.hosts[1].leaders.promote("q")
        members(cluster, 1, 3)
        answer = await cluster.reload(1)
        assert "members change one host at a time: expected 1, 2 and" in answer["refused"]["q"]
        members(cluster, 1, 2, 3)
        await cluster.stop(3)
        answer = await cluster.reload(1)
        assert answer["refused"] == {"q": "queue 'q': host 3 has not all of it"}
        assert cluster.hosts[1].position("q").epoch == 1
        cluster.hosts[1].queue("q").leading.append([b"on"])
        await copied(cluster.at(1), cluster.at(2))
