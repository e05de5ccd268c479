"""A host gives up the lead of a queue by itself, and tells how far its copy is in each role."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import cqrepl
from cqrepl import AckOutcome, AckPolicy, Host, HostSettings, QueueLocked, Refused, SteppedDown
from cqrepl.queue import Queue
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.replicator.rolelog import Role
from tests.support.promotions import Cluster, cluster, last
from tests.support.replicas import eventually, last_of, more_excerpts
from tests.support.samples import fill, noon_index

NEVER = AckPolicy(hosts=frozenset({9}))


def said(host: Host) -> tuple[Role, int, int | None, bool]:
    """The role, the epoch, the leader, and whether that has begun, as a host knows."""
    found = host.position("a")
    return found.role, found.epoch, found.leader, found.has_begun


async def test_each_host_tells_how_far_it_is_and_who_leads(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        first, second = hosts.hosts[1], hosts.hosts[2]
        assert first.position("a") == cqrepl.QueuePosition(
            queue="a",
            role=Role.LEADING,
            next_index=cqrepl.Index(last(4) + 1),
            epoch=0,
            leader=1,
            has_begun=True,
        )
        assert said(second) == (Role.FOLLOWING, 0, 1, True)
        assert second.position("a").last_index == last(4)
        await second.leaders.promote("a")
        await hosts.stop(1)
        assert said(second) == (Role.LEADING, 1, 2, True)
        with pytest.raises(ValueError, match="expected one of the queues a, got 'b'"):
            second.position("b")


DIES_WITH_LOCK = """
import os, sys
from cqrepl.queue import Queue
queue = Queue.open_for_append(sys.argv[1])
queue.append_lock.acquire()
os._exit(0)
"""


@pytest.mark.parametrize("leader", [1, 2], ids=["by the file", "by an epoch"])
async def test_a_host_that_leads_frees_the_lock_of_a_process_that_died_with_it(
    tmp_path: Path, leader: int
) -> None:
    """It was killed as it gave up the lead; or it was a copy, and a power cut has brought back the
    page that has the lock."""
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        if leader == 2:
            await hosts.hosts[2].leaders.promote("a")
        await hosts.stop(leader)
        died = [sys.executable, "-c", DIES_WITH_LOCK, str(hosts.path(leader))]
        await trio.run_process(died)
        await hosts.start(leader)
        queue = hosts.hosts[leader].queue("a")
        assert await queue.append(b"more") > last(4)
        with pytest.raises(QueueLocked):
            Queue.open_for_append(hosts.path(3 - leader)).append(b"this is a copy")


async def test_a_position_is_told_of_a_copy_that_is_not_there_yet(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.start(2)
        found = hosts.hosts[2].position("a")
        assert (found.role, found.next_index, found.last_index) == (Role.FOLLOWING, 0, None)
        assert found.leader == 1


async def test_a_position_is_told_in_the_middle_of_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        host, seen = hosts.hosts[1], []
        take_in = host.sink.take_in_again

        async def taking_in(name: str, *rest: Any) -> Any:
            seen.append(host.position(name))
            return await take_in(name, *rest)

        monkeypatch.setattr(host.sink, "take_in_again", taking_in)
        await host.step_down("a", "to be repaired")
        (found,) = seen
        assert (found.role, found.last_index, found.leader) == (Role.IDLE, last(4), None)


async def test_waits_and_appends_end_with_the_epoch_and_the_reason(tmp_path: Path) -> None:
    """Those in threads and tasks, and one that has written while the lead is given up."""
    outcomes: dict[str, AckOutcome] = {}
    calls: list[str] = []
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        await hosts.hosts[2].leaders.promote("a")
        host = hosts.hosts[2]
        leading = host.queue("a").leading
        leading.on_step_down = lambda: calls.append("called")

        async def wait(name: str, waiting: Any) -> None:
            outcomes[name] = await waiting()

        async def append() -> None:
            with pytest.raises(SteppedDown, match="in epoch 1: to be repaired; it is not known"):
                await host.queue("a").append(b"is written", policy=NEVER)
            outcomes["append"] = AckOutcome.STEPPED_DOWN

        async with trio.open_nursery() as nursery:
            in_thread = partial(trio.to_thread.run_sync, partial(leading.wait, last(4), NEVER))
            nursery.start_soon(wait, "thread", in_thread)
            nursery.start_soon(wait, "task", partial(leading.wait_acked, last(4), NEVER))
            nursery.start_soon(append)
            await eventually(lambda: last_of(hosts.path(2)) != last(4))
            await trio.testing.wait_all_tasks_blocked(0.05)
            await host.step_down("a", "to be repaired")
        assert set(outcomes.values()) == {AckOutcome.STEPPED_DOWN}
        assert len(outcomes) == 3
        with pytest.raises(SteppedDown, match="'a': this host has stepped down: it gave up") as no:
            await trio.to_thread.run_sync(leading.append, [b"no"])
        why = "it gave up the lead, in epoch 1: to be repaired"
        assert (no.value.queue, no.value.epoch, no.value.why) == ("a", 1, why)
        with pytest.raises(SteppedDown):
            leading.lead_again()
        with pytest.raises(QueueLocked), cqrepl.Queue.open(hosts.path(2)) as queue:
            queue.append(b"no")
        await eventually(lambda: calls == ["called"])
        assert said(host) == (Role.FOLLOWING, 2, None, False)


async def append_until_refused(host: Host) -> list[int]:
    """Appends as fast as it can; the indexes of what was written."""
    done: list[int] = []
    queue = host.queue("a")
    while True:
        try:
            done.append(await queue.append(b"under way"))
        except (SteppedDown, Refused, QueueLocked):
            if host.position("a").role is not Role.LEADING:
                return done


async def test_what_was_appended_meanwhile_is_in_the_queue_of_the_next_leader(
    tmp_path: Path,
) -> None:
    done: list[int] = []
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        async with trio.open_nursery() as nursery:

            async def append() -> None:
                done.extend(await append_until_refused(hosts.hosts[1]))

            nursery.start_soon(append)
            await eventually(lambda: last_of(hosts.path(1)) != last(4))
            await hosts.hosts[1].step_down("a", "a test")
        assert done[-1] == last_of(hosts.path(1))
        begun = await hosts.hosts[3].leaders.promote("a")
        assert (begun.epoch, begun.is_risky, begun.quarantined) == (2, False, ())
        await hosts.follow(3)
        assert last_of(hosts.path(3)) == done[-1]


async def test_a_second_time_it_leads_nothing(tmp_path: Path) -> None:
    """Of two at once one is refused, and one that comes later; nothing is promised by that."""
    refusals: list[str] = []
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})

        async def give_up() -> None:
            try:
                await hosts.hosts[1].step_down("a", "twice")
            except Refused as error:
                refusals.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            nursery.start_soon(give_up)
        await give_up()
        assert refusals == ["queue 'a': this host does not lead it"] * 2
        assert load_epochs(hosts.path(1)).promised == 1


async def test_who_leads_nothing_gives_nothing_up(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        with pytest.raises(Refused, match="'a': this host does not lead it: host 1 leads it"):
            await hosts.hosts[2].step_down("a", "no")
        await hosts.hosts[2].leaders.promote("a")
        with pytest.raises(Refused, match="does not lead it: host 2 leads it in epoch 1"):
            await hosts.hosts[1].step_down("a", "no")
        with pytest.raises(ValueError, match="expected one of the queues a, got 'b'"):
            await hosts.hosts[1].step_down("b", "no")
    fill(tmp_path / "alone", "FAST_DAILY", {0: 1})
    alone = HostSettings.of(
        sources={"a": tmp_path / "alone"}, host_id=1, remote_ids={2}, listen="127.0.0.1:0"
    )
    async with Host(alone) as host:
        with pytest.raises(Refused, match="expected a host of a cluster"):
            await host.step_down("a", "no")
        assert host.position("a").leader == 1


async def test_writers_that_cannot_be_kept_out_keep_the_lead_here(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        with cqrepl.Queue.open_for_append(hosts.path(1)) as other:
            other.append_lock.acquire()
            with pytest.raises(QueueLocked):
                await hosts.hosts[1].step_down("a", "no")
            other.append_lock.release()
        assert said(hosts.hosts[1]) == (Role.LEADING, 0, 1, True)
        await hosts.hosts[1].queue("a").append(b"it goes on")
        await hosts.follow(1)


async def again(hosts: Cluster, host_id: int, how: str) -> None:
    """Ends a host, in order or not, and starts it again."""
    await (hosts.kill if how == "kill" else hosts.stop)(host_id)
    await hosts.start(host_id)


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("to", [1, 2, 3])
async def test_after_a_restart_it_leads_only_by_a_promotion(
    tmp_path: Path, how: str, to: int
) -> None:
    """Any host can be promoted, also the one that has given it up."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        await hosts.hosts[1].step_down("a", "a test")
        await again(hosts, 1, how)
        assert said(hosts.hosts[1]) == (Role.FOLLOWING, 1, None, False)
        await hosts.meet()
        begun = await hosts.hosts[to].leaders.promote("a")
        assert (begun.epoch, begun.is_risky) == (2, False)
        more_excerpts(hosts.path(to), 4, 3)
        await hosts.follow(to)
        for host_id, host in hosts.hosts.items():
            role = Role.LEADING if host_id == to else Role.FOLLOWING
            await eventually(
                partial(lambda host, role: said(host) == (role, 2, to, True), host, role)
            )
            assert not host.stops


async def test_who_was_away_with_its_promise_follows_an_epoch_of_the_same_number(
    tmp_path: Path,
) -> None:
    """The others never heard of the number that it gave up, and have one of them lead with it."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        await hosts.hosts[1].step_down("a", "it is cut off")
        await hosts.kill(1)
        begun = await hosts.hosts[2].leaders.promote("a")
        assert (begun.epoch, begun.unreached) == (1, (1,))
        more_excerpts(hosts.path(2), 4, 3)
        await hosts.start(1)
        await hosts.follow(2)
        assert said(hosts.hosts[1]) == (Role.FOLLOWING, 1, 2, True)
        assert said(hosts.hosts[2]) == (Role.LEADING, 1, 2, True)
        more_excerpts(hosts.path(2), 7, 3)
        await hosts.follow(2)
        assert not hosts.hosts[1].stops
        assert not hosts.hosts[2].stops


async def test_alone_it_is_not_promoted_again(tmp_path: Path) -> None:
    """Another host may have been, which did not hear of its promise."""
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        await hosts.hosts[1].step_down("a", "a test")
        await hosts.kill(2)
        with pytest.raises(Refused, match="2 hosts expected to promise, 1 does"):
            await hosts.hosts[1].leaders.promote("a")
        assert noon_index(sequence=3) == last_of(hosts.path(1))
