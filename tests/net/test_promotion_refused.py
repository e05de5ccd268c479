"""A promotion that could not be done is refused before any host is asked for a promise."""

import math
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.cluster import fencedesk, promoter
from cqrepl.cluster.fencedesk import FenceDesk
from cqrepl.cluster.promotion import Promotion
from cqrepl.net.errors import Refused
from cqrepl.queue import Queue
from cqrepl.queue.files.epochfile import load_epochs
from tests.net.test_disk_full import make_queue, small_file_system
from tests.support.replicas import copied, eventually, more_excerpts
from tests.support.threehosts import IDS, ThreeHosts, three_hosts

ROUTES = "  routes: {q: {3: 2}}"
WAITS_FOR_ALL = "  ack: {q: {level: appended, from: all}}"


async def is_refused(cluster: ThreeHosts, to: int, why: str) -> None:
    """The plan says so at each host, the promotion does, and nothing is changed by it."""
    for host in cluster.hosts.values():
        assert why in (await host.leaders.plan("q", to)).refusal
    with pytest.raises(Refused) as caught:
        await cluster.hosts[to].leaders.promote("q")
    assert why in str(caught.value)
    there = [each for each in IDS if cluster.at(each).exists()]
    assert [load_epochs(cluster.at(each)).promised for each in there] == [0] * len(there)


@pytest.mark.parametrize("leader", [2, 3])
async def test_routes_of_a_queue_that_has_had_a_promotion(tmp_path: Path, leader: int) -> None:
    """A host takes on nothing of such a file, and all goes on as before."""
    async with three_hosts(tmp_path) as cluster:
        await cluster.hosts[leader].leaders.promote("q")
        await cluster.follow(leader)
        cluster.more = ROUTES + "\n  limitRate: 1GiB"
        for host_id in IDS:
            before = cluster.hosts[host_id].settings
            with pytest.raises(Refused, match=f"epoch 1 is promised to host {leader}"):
                await cluster.reload(host_id)
            assert cluster.hosts[host_id].settings == before
        with Queue.open(cluster.at(leader)) as queue:
            end = queue.next_index()
        cluster.more = "  limitRate: 1GiB"
        for host_id in IDS:
            said = (await cluster.reload(host_id))["said"]
            assert said == ["cqrepl.limitRate is others=1073741824, was unset"]
        more_excerpts(cluster.at(leader), end & 0xFFFFFFFF, 5)
        await cluster.follow(leader)


def fill_disk(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


async def test_a_queue_with_routes(tmp_path: Path) -> None:
    """It gets another leader once they are out of the file."""
    async with three_hosts(tmp_path, ROUTES) as cluster:
        for to in (2, 3):
            await is_refused(cluster, to, "host 3 takes it from host 2 by 'routes'")
        more_excerpts(cluster.at(1), 10, 5)
        await cluster.follow(1)
        cluster.more = ""
        for host_id in IDS:
            await cluster.reload(host_id)
        await cluster.meet()
        done = await cluster.hosts[3].leaders.promote("q")
        assert (done.fenced, done.unreached, done.declined) == ((1, 2), (), ())
        more_excerpts(cluster.at(3), 15, 5)
        await cluster.follow(3)


async def test_two_copies_that_do_not_see_each_other_are_not_both_promoted(tmp_path: Path) -> None:
    """Of a queue whose writes wait for all hosts: each of them has all that was safe."""
    async with three_hosts(tmp_path, WAITS_FOR_ALL) as cluster:
        await cluster.stop(*IDS)
        for own in (2, 3):
            await cluster.start(own)
            plan = await cluster.hosts[own].leaders.plan("q", own)
            assert (plan.may_lose, plan.may_split) == (False, True)
            with pytest.raises(Refused, match="led by two hosts in epoch 1: 2 hosts expected to"):
                await cluster.hosts[own].leaders.promote("q")
            assert load_epochs(cluster.at(own)).promised == 0
            await cluster.stop(own)
        await cluster.start(2, 3)
        await cluster.meet()
        done = await cluster.hosts[3].leaders.promote("q")
        assert (done.fenced, done.unreached, done.may_split) == ((2,), (1,), False)
        more_excerpts(cluster.at(3), 10, 5)
        await cluster.start(1)
        await cluster.follow(3)


async def test_a_host_that_is_there_and_declines_is_not_called_unreached(tmp_path: Path) -> None:
    """Its file has routes, that of the others has none."""
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(2)
        cluster.more = ROUTES
        await cluster.start(2)
        await cluster.meet()
        await eventually(lambda: "q" in cluster.hosts[2].source.queues)
        done = await cluster.hosts[3].leaders.promote("q")
        assert (done.fenced, done.unreached) == ((1,), ())
        ((host_id, why),) = done.declined
        assert host_id == 2
        assert "host 2: queue 'q' is passed on from here" in why
        assert f"does not promise: {why}" in "\n".join(done.lines(is_done=True))


async def test_a_copy_on_a_full_disk(tmp_path: Path) -> None:
    """The leader goes on; once there is room, it can be done."""
    with small_file_system(tmp_path / "2") as enlarge:
        make_queue(tmp_path / "1" / "q")
        async with three_hosts(tmp_path, excerpts=0) as cluster:
            two = cluster.hosts[2].sink.queues["q"]
            await eventually(lambda: two.life.trouble is not None, 60)
            await is_refused(cluster, 2, "host 2 cannot write its copy: ")
            assert "q" in cluster.hosts[1].source.queues
            enlarge()
            await copied(cluster.at(1), cluster.at(2))
            await eventually(lambda: two.life.trouble is None, 60)
            done = await cluster.hosts[2].leaders.promote("q")
            assert done.fenced == (1, 3)


async def test_a_full_disk_that_nothing_was_written_to_yet(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "2"):
        async with three_hosts(tmp_path) as cluster:
            filler = tmp_path / "2" / "filler"
            fill_disk(filler)
            await is_refused(cluster, 2, "host 2 can note no promise: [Errno 28] No space left")
            plan = await cluster.hosts[1].leaders.plan("q", 3)
            done = await cluster.hosts[3].leaders.promote("q")
            assert plan.declined == done.declined
            assert [host_id for host_id, _ in done.declined] == [2]
            assert plan.fenced == done.fenced == (1,)
            filler.unlink()
            await eventually(lambda: load_epochs(cluster.at(2)).promised == 1, 60)
            await cluster.hosts[2].leaders.promote("q")


async def test_a_disk_with_too_little_room_to_lead(tmp_path: Path) -> None:
    """A promise could be noted, and not much more."""
    with small_file_system(tmp_path / "2"):
        async with three_hosts(tmp_path) as cluster:
            filler = tmp_path / "2" / "filler"
            fill_disk(filler)
            os.truncate(filler, filler.stat().st_size - (1 << 16))
            with pytest.raises(Refused, match=r"nothing can be written to .*: No space left"):
                await cluster.hosts[2].leaders.promote("q")
            assert [load_epochs(cluster.at(each)).promised for each in IDS] == [0, 0, 0]
            filler.unlink()
            await cluster.hosts[2].leaders.promote("q")


async def test_a_copy_that_was_never_taken_in(tmp_path: Path) -> None:
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(1, 2)
        shutil.rmtree(cluster.at(2))
        await cluster.start(2)
        await cluster.meet()
        await is_refused(cluster, 2, "host 2: it was never taken in there: it follows first")


async def test_a_copy_that_is_paused_by_hand_is_named_at_each_host(tmp_path: Path) -> None:
    async with three_hosts(tmp_path) as cluster:
        await cluster.hosts[2].pause("q")
        await is_refused(cluster, 2, "host 2: it is paused by operator: resume it first")


async def test_a_host_whose_connection_has_just_gone_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, and dials again; and so is each other one for a host that has just begun. One
    that has ended in order is not."""
    monkeypatch.setattr(promoter, "COMES_SECONDS", 2.0)
    async with three_hosts(tmp_path) as cluster:
        await cluster.stop(1)
        cluster.hosts[3].endpoint.renew("for a test")
        await eventually(lambda: 3 not in cluster.hosts[2].endpoint.connections)
        plan = await cluster.hosts[2].leaders.plan("q", 2)
        assert (plan.fenced, plan.unreached) == ((3,), (1,))
        await cluster.stop(2)
        await cluster.start(2)
        plan = await cluster.hosts[2].leaders.plan("q", 2)
        assert (plan.fenced, plan.unreached) == ((3,), (1,))
        await cluster.stop(3)
        await eventually(lambda: 3 not in cluster.hosts[2].endpoint.connections)
        plan = await cluster.hosts[2].leaders.plan("q", 2)
        assert (plan.fenced, plan.unreached, plan.is_risky) == ((), (1, 3), True)


async def test_a_host_that_is_not_needed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen one: it stays connected, and answers neither the plan nor the promotion. It is
    announced to, and follows once it goes on."""
    monkeypatch.setattr(promoter, "GRACE_SECONDS", 0.2)
    tried, promise = FenceDesk.tried_position, FenceDesk.promise
    goes_on = trio.Event()

    async def frozen(desk: FenceDesk, *given: Any) -> Any:
        if desk in frozen_desks:
            await goes_on.wait()
        return await tried(desk, *given)

    async def frozen_promise(desk: FenceDesk, *given: Any) -> None:
        if desk in frozen_desks:
            await goes_on.wait()
        await promise(desk, *given)

    monkeypatch.setattr(FenceDesk, "tried_position", frozen)
    monkeypatch.setattr(FenceDesk, "promise", frozen_promise)
    monkeypatch.setattr(fencedesk, "ASK_SECONDS", math.inf)
    async with three_hosts(tmp_path) as cluster:
        frozen_desks = {cluster.hosts[3].leaders._desk}
        plan = await cluster.hosts[2].leaders.plan("q", 2)
        assert (plan.fenced, plan.unreached, plan.is_risky) == ((1,), (3,), False)
        done = await cluster.hosts[2].leaders.promote("q")
        assert (done.fenced, done.unreached) == ((1,), (3,))
        assert load_epochs(cluster.at(3)).promised == 0
        goes_on.set()
        await eventually(lambda: load_epochs(cluster.at(3)).promised == 1)
        more_excerpts(cluster.at(2), 10, 2)
        await cluster.follow(2)


async def test_many_plans_at_once_each_find_a_disk_that_takes_a_promise(tmp_path: Path) -> None:
    """The trial by one plan is in the way of no other plan, and leaves nothing behind."""
    async with three_hosts(tmp_path) as cluster:
        files = {each: set(cluster.at(each).iterdir()) for each in IDS}
        plans: list[Promotion] = []

        async def plan() -> None:
            plans.append(await cluster.hosts[1].leaders.plan("q", 3))

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(plan)
        assert {(each.fenced, each.declined, each.refusal) for each in plans} == {((1, 2), (), "")}
        found = {path for each in IDS for path in set(cluster.at(each).iterdir()) - files[each]}
        assert not [path for path in found if "epoch" in path.name]
