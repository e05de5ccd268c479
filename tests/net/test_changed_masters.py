"""A changed `masterId` of a reloaded file has the old master hand the queue over, by an epoch."""

import itertools
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import Queue, QueueLocked, Refused, SteppedDown
from cqrepl.cluster.fencedesk import FenceDesk
from cqrepl.cluster.fencekind import FenceKind
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.replicator import direction
from cqrepl.replicator.direction import Direction
from cqrepl.replicator.rolelog import Role
from tests.support.promotions import Cluster, cluster, last
from tests.support.replicas import eventually, last_of, more_excerpts
from tests.support.samples import read


def promised(hosts: Cluster) -> set[tuple[int, int]]:
    """The promises of all copies, each an epoch and its leader."""
    found = {load_epochs(hosts.path(each)) for each in hosts.masters}
    return {(each.promised, each.promised_to if each.promised else 0) for each in found}


def leads(hosts: Cluster, host_id: int, epoch: int) -> bool:
    """True where this host leads in this epoch, and all that run follow it there."""
    for each, host in hosts.hosts.items():
        found = host.position("a")
        role = Role.LEADING if each == host_id else Role.FOLLOWING
        if (found.role, found.epoch, found.leader, found.has_begun) != (role, epoch, host_id, True):
            return False
    return True


async def goes_on(hosts: Cluster, host_id: int, epoch: int) -> None:
    """The host leads, and all copies have what it appends."""
    await eventually(partial(leads, hosts, host_id, epoch))
    done = len(read(hosts.path(host_id)))
    more_excerpts(hosts.path(host_id), done, 3, seed=done)
    await hosts.follow(host_id)
    assert not [stop for host in hosts.hosts.values() for stop in host.stops]


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))), ids=str)
async def test_it_is_handed_over_in_whatever_order_hosts_read_the_file(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Back and forth; each time makes one epoch."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        for epoch, master in enumerate((2, 1, 2), start=1):
            for host_id in order:
                await hosts.reload(host_id, master)
            await goes_on(hosts, master, epoch)
        assert [each.leader for each in load_epochs(hosts.path(3)).history] == [2, 1, 2]


async def test_a_host_that_has_read_it_first_follows_the_old_master_until_then(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        for _ in range(2):
            note = await hosts.reload(3, 2)
            says = "'a': host 1 leads it, and hands it over once host 1 or host 2 has read this"
            assert says in note
            more_excerpts(hosts.path(1), len(read(hosts.path(1))), 2)
            await hosts.follow(1)
            await hosts.hosts[3].change(hosts.hosts[3].settings)  # as any later reload
            assert await hosts.reload(3, 1) == ""
        assert await hosts.reload(3, 2)
        await hosts.reload(1, 2)
        await goes_on(hosts, 2, 1)


@pytest.mark.parametrize("host_id", [1, 2])
async def test_one_host_of_the_two_is_enough(tmp_path: Path, host_id: int) -> None:
    """The others tell, when they start or reload, that their files say otherwise."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        await hosts.reload(host_id, 2)
        await goes_on(hosts, 2, 1)
        await hosts.stop(1)
        await hosts.start(1)
        await goes_on(hosts, 2, 1)


async def test_a_file_that_says_otherwise_is_told_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cqrepl.replicator.hostroles")
    says = "queue 'a': the file's masterId is 1, and epoch 1 is promised to host 2"
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        await hosts.hosts[2].leaders.promote("a")
        assert says not in caplog.text
        hosts.hosts[1].tell_other_leaders()
        assert caplog.text.count(says) == 1
        await hosts.stop(1)
        await hosts.start(1)
        assert caplog.text.count(says) == 2
        await goes_on(hosts, 2, 1)
        for each in (1, 2):
            await hosts.reload(each, 2)
        hosts.hosts[1].tell_other_leaders()
        assert caplog.text.count(says) == 2
        assert promised(hosts) == {(1, 2)}


@pytest.mark.parametrize("epoch", [0, 1])
async def test_while_the_other_host_is_away_nothing_changes(
    tmp_path: Path, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        if epoch:
            await hosts.hosts[1].step_down("a", "for another epoch")
            await hosts.hosts[1].leaders.promote("a")
            await eventually(partial(leads, hosts, 1, 2))
        before = promised(hosts)
        monkeypatch.setattr(direction, "HAND_OVER_SECONDS", 0.1)
        await hosts.stop(2)
        with pytest.raises(Refused, match="'a' stays here: host 2 is away"):
            await hosts.reload(1, 2)
        await hosts.hosts[1].queue("a").append(b"it goes on")
        await hosts.follow(1)
        await hosts.stop(1)
        await hosts.start(2)
        with pytest.raises(Refused, match="'a' stays with host 1, which is not connected"):
            await hosts.reload(2, 2)
        assert promised(hosts) == before


async def test_a_copy_that_lacks_something_is_not_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direction, "HAND_OVER_SECONDS", 1.0)
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        await hosts.hosts[2].pause("a")
        more_excerpts(hosts.path(1), 4, 3)
        for host_id in (1, 2):
            with pytest.raises(Refused, match="'a' stays with host 1: host 2 has not all of it"):
                await hosts.reload(host_id, 2)
        await hosts.hosts[1].queue("a").append(b"it goes on")
        assert promised(hosts) == {(0, 0)}


@pytest.mark.parametrize("host_id", [1, 2])
async def test_a_leader_that_cannot_let_go_leads_on_and_nothing_is_promised(
    tmp_path: Path, host_id: int
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        with Queue.open_for_append(hosts.path(1)) as other:
            other.append_lock.acquire()
            with pytest.raises(Refused, match=r"stays here|host 1: "):
                await hosts.reload(host_id, 2)
            other.append_lock.release()
        assert promised(hosts) == {(0, 0)}
        more_excerpts(hosts.path(1), 4, 3)
        await hosts.follow(1)


async def test_what_is_appended_meanwhile_is_in_the_queue(tmp_path: Path) -> None:
    done: list[int] = []
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        queue = hosts.hosts[1].queue("a")

        async def append() -> None:
            while len(done) < 500:
                try:
                    done.append(await queue.append(b"under way"))
                except (SteppedDown, Refused, QueueLocked):
                    if hosts.hosts[1].position("a").role is not Role.LEADING:
                        return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append)
            await eventually(lambda: last_of(hosts.path(1)) != last(4))
            await hosts.reload(1, 2)
        assert done[-1] == last_of(hosts.path(2))
        await hosts.hosts[2].queue("a").append(b"it goes on")
        await hosts.follow(2)


async def test_a_queue_that_is_paused_goes_on_with_the_master_that_it_is_given_to(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        await hosts.hosts[1].pause("a")
        await hosts.reload(1, 2)
        await goes_on(hosts, 2, 1)


@pytest.mark.parametrize("older", [1, 2])
async def test_to_and_from_an_older_host_it_goes_without_an_epoch(
    tmp_path: Path, older: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not at all where there is one."""
    async with cluster(tmp_path, 3) as hosts:
        init = FenceDesk.__init__

        def made(self: FenceDesk, host: Any, *rest: Any) -> None:
            with monkeypatch.context() as patch:
                if host.settings.protocol.host_id == older:
                    patch.setattr(FenceKind, "of_leads", partial(FenceKind, alias="!NoneHandler"))
                init(self, host, *rest)

        def knows(self: FenceDesk, host_id: int) -> bool | None:
            is_older = self._host.settings.protocol.host_id == older
            return False if is_older else knows_leads(self, host_id)

        knows_leads = FenceDesk.knows_leads
        monkeypatch.setattr(FenceDesk, "knows_leads", knows)
        monkeypatch.setattr(FenceDesk, "__init__", made)
        await hosts.followed({2: 4, 3: 4})
        for host_id in (3, 1, 2):
            await hosts.reload(host_id, 2)
        more_excerpts(hosts.path(2), 4, 3)
        await hosts.follow(2)
        assert promised(hosts) == {(0, 0)}
        await hosts.hosts[3].leaders.promote("a")
        await hosts.hosts[2].leaders.promote("a")
        await eventually(partial(leads, hosts, 2, 2))
        with pytest.raises(Refused, match="stays with host 2, which leads it in epoch 2"):
            await hosts.reload(2, 1)
        with pytest.raises(Refused, match="stays with host 2, which leads it in epoch 2"):
            await hosts.reload(1, 1)
        with pytest.raises(Refused, match="stays with host 2, which leads it in epoch 2"):
            await hosts.reload(3, 1)  # and no hand-over is announced that none of the two can do


STEPS: list[tuple[str, type, str, bool]] = [
    ("asked", FenceDesk, "lead", False),
    ("the old master has promised", FenceDesk, "promise", False),
    ("both have promised", FenceDesk, "promise", True),
    ("it begins", Direction, "lead", False),
    ("it has begun", Direction, "lead", True),
]


def held(
    monkeypatch: pytest.MonkeyPatch, what: tuple[str, type, str, bool], host: Any
) -> trio.Event:
    """Has the new master come no further than a step; is set when it is there."""
    _, kind, name, is_after = what
    there = trio.Event()
    owner = host.direction if kind is Direction else host.leaders._desk
    does: Callable[..., Any] = getattr(owner, name)

    async def hold(*args: Any) -> None:
        if is_after:
            await does(*args)
        there.set()
        await trio.sleep_forever()

    monkeypatch.setattr(owner, name, hold)
    return there


@pytest.mark.parametrize("dies", [1, 2])
@pytest.mark.parametrize("step", STEPS, ids=[each[0] for each in STEPS])
async def test_either_host_may_die_at_each_step(
    tmp_path: Path, dies: int, step: tuple[str, type, str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is back, the same reload does it, at either host: what was safe is there."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        async with trio.open_nursery() as nursery:
            with monkeypatch.context() as patch:
                there = held(patch, step, hosts.hosts[2])

                async def reload() -> None:
                    await hosts.reload(1, 2)

                nursery.start_soon(reload)
                await there.wait()
                nursery.cancel_scope.cancel()
        for host_id in {dies, 2}:  # which would stand still for ever
            await hosts.kill(host_id)
        await hosts.start(*{dies, 2})
        await hosts.meet()
        await hosts.reload(1, 2)
        (epoch,) = {each for each, _ in promised(hosts)} if hosts.hosts else {0}
        await goes_on(hosts, 2, epoch)
        assert [payload for _, payload in read(hosts.path(3))][:4] == [
            payload for _, payload in read(hosts.path(1))
        ][:4]
