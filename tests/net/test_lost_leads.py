"""A program hears the same of a lost lead, whether a file or a promotion gave it away."""

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from cqrepl import AckPolicy, HostQueue, OnTimeout, Refused, SteppedDown
from cqrepl.replicator.leadership import AckOutcome, Leading
from tests.support.promotions import Cluster, cluster, last
from tests.support.replicas import eventually, more_excerpts

NEVER = AckPolicy(hosts=frozenset({9}))
WAYS = ["reload", "promotion"]


async def give_away(hosts: Cluster, way: str) -> None:
    """Host 2 leads instead of host 1."""
    if way == "reload":
        await hosts.reload(1, 2)
        await hosts.reload(2, 2)
    else:
        await hosts.hosts[2].leaders.promote("a")


async def is_refused(queue: HostQueue, leading: Leading) -> bool:
    """True where both ways to append, and what asks for what is safe, say that it has stepped
    down, and that this stays so."""
    with pytest.raises(SteppedDown, match="host 2"):
        await trio.to_thread.run_sync(leading.append, [b"no"])
    with pytest.raises(SteppedDown, match="host 2"):
        leading.commit_index()
    with pytest.raises(SteppedDown, match="host 2"):
        leading.lead_again()
    with pytest.raises(Refused, match="'a' is taken in here"):
        await queue.append(b"no")
    return leading.has_stepped_down


@pytest.mark.parametrize("way", WAYS)
async def test_all_waits_end_as_stepped_down_and_the_program_is_called(
    tmp_path: Path, way: str
) -> None:
    outcomes: dict[str, AckOutcome] = {}
    calls: list[int] = []
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        queue = hosts.hosts[1].queue("a")
        leading = queue.leading
        leading.on_step_down = lambda: calls.append(threading.get_ident())

        async def wait(name: str, waiting: Any) -> None:
            outcomes[name] = await waiting()

        async with trio.open_nursery() as nursery:
            in_thread = partial(trio.to_thread.run_sync, partial(leading.wait, last(4), NEVER))
            by_hosts = partial(queue.wait_acked, last(4), hosts=[9])
            nursery.start_soon(wait, "thread", in_thread)
            nursery.start_soon(wait, "task", partial(leading.wait_acked, last(4), NEVER))
            nursery.start_soon(wait, "hosts", by_hosts)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await give_away(hosts, way)
        assert outcomes == dict.fromkeys(("thread", "task", "hosts"), AckOutcome.STEPPED_DOWN)
        await eventually(lambda: len(calls) == 1)
        assert calls != [threading.get_ident()]
        assert await is_refused(queue, leading)
        more_excerpts(hosts.path(2), 4, 2)
        await hosts.follow(2)


@pytest.mark.parametrize("way", WAYS)
async def test_a_queue_is_there_on_its_way(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends meanwhile are refused, and no error says that the host has ended."""
    told: list[str] = []
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        host = hosts.hosts[1]
        leading = host.queue("a").leading
        writer = host.writer("a", lambda: None)
        await host.queue("a").append(b"opens the writer")
        remove, take_in = host.source.remove, host.sink.take_in_again

        async def removing(name: str, why: str) -> None:
            with pytest.raises(SteppedDown, match="host 2"):
                await host.queue(name).append(b"no")
            with pytest.raises(Refused, match="'a': host 2"):
                writer.append([b"no"], None)
            with pytest.raises(SteppedDown, match="host 2"):
                await trio.to_thread.run_sync(leading.append, [b"no"])
            told.append(why)
            await remove(name, why)

        async def taking_in(name: str, *rest: Any) -> Any:
            assert host.queue().path == host.queue(name).path == hosts.path(1)
            with pytest.raises(Refused, match="'a' is on its way to go another way"):
                await host.queue(name).append(b"no")
            told.append(name)
            return await take_in(name, *rest)

        monkeypatch.setattr(host.source, "remove", removing)
        monkeypatch.setattr(host.sink, "take_in_again", taking_in)
        await give_away(hosts, way)
        assert told[1:] == ["a"]
        assert "host 2" in told[0]


async def test_a_fault_of_the_program_is_logged_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a mistake of the program")

    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        hosts.hosts[1].queue("a").leading.on_step_down = fail
        await give_away(hosts, "promotion")
        await eventually(lambda: "failed in on_step_down" in caplog.text)
        more_excerpts(hosts.path(2), 4, 2)
        await hosts.follow(2)


async def test_the_program_is_called_once_for_each_lost_lead(tmp_path: Path) -> None:
    """By whatever it is lost, and however many waits end by that."""
    calls: list[str] = []
    hasty = replace(NEVER, timeout_seconds=0.01, on_timeout=OnTimeout.STEP_DOWN)
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        leading = hosts.hosts[1].queue("a").leading
        leading.on_step_down = lambda: calls.append("called")
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(leading.wait_acked, last(4), hasty)
            leading.lead_again()
        assert len(calls) == 2
        await leading.wait_acked(last(4), hasty)
        assert len(calls) == 3
        await give_away(hosts, "promotion")  # it has been lost already
        await hosts.follow(2)
        again = hosts.hosts[2].queue("a").leading
        again.on_step_down = lambda: calls.append("called again")
        await hosts.hosts[2].step_down("a", "a test")
        await eventually(lambda: "called again" in calls)
        assert calls == ["called"] * 3 + ["called again"]
