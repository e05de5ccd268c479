"""A queue that names its members: they alone have copies, promise, and may lead."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cqrepl.net.errors import Refused
from cqrepl.protocol import capabilities
from cqrepl.queue.files.epochfile import load_epochs, store_epochs
from tests.support.replicas import copied, eventually, more_excerpts
from tests.support.threehosts import ThreeHosts, three_hosts

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
    async with three_hosts(tmp_path, TWO, others=("r",), excerpts=0) as cluster:
        await filled(cluster)
        await cluster.hosts[2].leaders.promote("q")
        await eventually(partial(is_begun, cluster.at(1)))
        await cluster.stop(1)
        epochs = load_epochs(cluster.at(1))
        store_epochs(cluster.at(1), replace(epochs, members=frozenset({1, 3})))
        await cluster.start(1)
        await cluster.meet()
        with pytest.raises(Refused, match="members differ: host 1 names 1, 3 in epoch 1, host 2"):
            await cluster.hosts[1].leaders.promote("q")


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
