"""Questions between hosts about who is to lead: many of them, about several queues."""

from pathlib import Path

import pytest
import trio

from cqrepl.cluster import fencedesk
from cqrepl.cluster.fencedesk import FenceDesk
from cqrepl.protocol.messages.fences import CopyPosition, FenceRequest, FenceVerb
from cqrepl.protocol.uber import Router
from cqrepl.queue.files.epochfile import load_epochs
from tests.support.replicas import eventually
from tests.support.threehosts import IDS, ThreeHosts, three_hosts


async def test_a_queue_that_is_busy_holds_up_no_other_one(tmp_path: Path) -> None:
    """A promise waits for what else is done about its queue; who asks about another one is
    answered."""
    async with three_hosts(tmp_path, others=("r",)) as cluster:
        leaders = cluster.hosts[2].leaders
        async with trio.open_nursery() as nursery:
            async with cluster.hosts[1].direction.turn("r"):
                nursery.start_soon(leaders.promote, "r")
                await eventually(lambda: load_epochs(tmp_path / "3" / "r").promised == 1)
                plan = await leaders.plan("q", 2)
                assert (plan.fenced, plan.unreached) == ((1, 3), ())
                assert load_epochs(tmp_path / "1" / "r").promised == 0
        assert load_epochs(tmp_path / "1" / "r").promised == 1


async def test_neither_side_keeps_what_was_asked_and_answered(tmp_path: Path) -> None:
    async with three_hosts(tmp_path) as cluster:
        before = handlers(cluster)
        for _ in range(10):
            plan = await cluster.hosts[2].leaders.plan("q", 2)
            assert plan.unreached == ()
        await eventually(lambda: handlers(cluster) == before)


async def test_a_queue_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A host that has it by its file asks one that has not: none of the others is held up."""
    async with three_hosts(tmp_path) as cluster:
        cluster.others = ("r",)
        await cluster.reload(1)
        await cluster.reload(2)
        plan = await cluster.hosts[2].leaders.plan("r", 2)
        assert plan.declined == ((3, "host 3: there is no queue 'r'"),)
        assert (await cluster.hosts[2].leaders.plan("q", 2)).unreached == ()


async def test_a_host_that_is_busy_for_long_promises_the_latest_epoch_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers one request after the other. The latest one is given up before its turn, and comes
    again, with the same connection."""
    ended: list[int] = []  # epochs, of the requests to host 3 that are over
    position = FenceDesk.position

    async def noted(
        self: FenceDesk, host_id: int, name: str, request: FenceRequest
    ) -> CopyPosition:
        try:
            return await position(self, host_id, name, request)
        finally:
            if (host_id, request.verb) == (3, FenceVerb.FENCE):
                ended.append(request.epoch)

    monkeypatch.setattr(FenceDesk, "position", noted)
    async with three_hosts(tmp_path) as cluster:
        async with cluster.hosts[3].direction.turn("q"):
            await cluster.hosts[1].leaders.promote("q")
            monkeypatch.setattr(fencedesk, "ASK_SECONDS", 0.3)
            await cluster.hosts[2].leaders.promote("q")
            by_promotion = ended.count(2)
            await eventually(lambda: ended.count(2) > by_promotion)
        await eventually(lambda: load_epochs(tmp_path / "3" / "q").promised == 2)
        await cluster.follow(2)


def handlers(cluster: ThreeHosts) -> dict[tuple[int, int], int]:
    """The number of handlers on each connection, at either side."""
    found = {}
    for own in IDS:
        for other, (pump, _) in cluster.hosts[own].endpoint.connections.items():
            router = pump.connection.link
            assert isinstance(router, Router)
            found[own, other] = len(router.handlers)
    return found
