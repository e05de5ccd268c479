"""An operator's verbs for queues of a running host: pause, resume, quarantine, forget."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from cqrepl import Host, HostSettings, NetSettings, ProtocolSettings, Queue, serve_host
from cqrepl.net.address import Address
from cqrepl.net.errors import Refused
from cqrepl.protocol import StopReason
from cqrepl.protocol.events import LineageProved
from cqrepl.queue import QueueLocked
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.replicator.incoming.epochdesk import EpochDesk
from cqrepl.status.snapshot import snapshot_of
from tests.support.copies import assert_same
from tests.support.replicas import (
    LOOPBACK,
    SECONDS,
    at,
    copied,
    eventually,
    last_of,
    more_excerpts,
    opened_by_another_process,
)
from tests.support.samples import fill

NAMES = ("a", "b")


def settings(host_id: int, net: NetSettings) -> HostSettings:
    ids = frozenset({1, 2, 3} - {host_id})
    return HostSettings(net=net, protocol=ProtocolSettings(host_id=host_id, remote_ids=ids))


@asynccontextmanager
async def two_hosts(folder: Path) -> AsyncIterator[tuple[Host, Host]]:
    """Host 1 streams "a" and "b" to host 2, which dials."""
    async with host_1(folder) as one, host_2(folder, one) as two:
        yield one, two


def host_1(folder: Path) -> AbstractAsyncContextManager[Host]:
    """Has "a" and "b", and listens."""
    for name in NAMES:
        if not (folder / name).exists():
            fill(folder / name, "FAST_DAILY", {0: 10})
    paths = {name: folder / name for name in NAMES}
    net = NetSettings(listen=Address.parse(LOOPBACK))
    return serve_host(settings(1, net), sources=paths, sinks={})


def host_2(folder: Path, one: Host) -> AbstractAsyncContextManager[Host]:
    """Has the copies, and dials host 1."""
    copies = {name: folder / f"{name}-copy" for name in NAMES}
    net = NetSettings(peers={1: Address.parse(at(one.port))})
    return serve_host(settings(2, net), sources={}, sinks=copies)


def state(host: Host, name: str) -> tuple[str, list[str]]:
    """The state of a queue by its host, and the states of its sinks on host 2."""
    queues: Any = snapshot_of(host)["queues"]
    (found,) = [queue for queue in queues if queue["name"] == name]
    return found["state"], [sink["state"] for sink in found.get("sinks", []) if sink["host"] == 2]


async def both_copied(folder: Path) -> None:
    for name in NAMES:
        await copied(folder / name, folder / f"{name}-copy")


@pytest.mark.parametrize("side", ["source", "sink"])
async def test_a_queue_is_paused_and_the_others_go_on(tmp_path: Path, side: str) -> None:
    async with two_hosts(tmp_path) as (one, two):
        await both_copied(tmp_path)
        host, other = (one, two) if side == "source" else (two, one)
        connection = other.endpoint.sessions
        await host.pause("a")
        assert state(host, "a")[0] == "paused: by operator"
        told = "paused: the peer says: paused by operator"
        await eventually(lambda: told in (state(other, "a")[0], *state(other, "a")[1]))
        end = last_of(tmp_path / "a")
        for name in NAMES:
            more_excerpts(tmp_path / name, 10, 20)
        await copied(tmp_path / "b", tmp_path / "b-copy")
        assert last_of(tmp_path / "a-copy") == end
        await host.resume("a")
        await both_copied(tmp_path)
        await eventually(lambda: state(host, "a")[0] == state(other, "a")[0] == "live")
        assert other.endpoint.sessions == connection  # it is the same one all the time


@pytest.mark.parametrize("side", ["source", "sink"])
async def test_a_pause_outlasts_connections(tmp_path: Path, side: str) -> None:
    async with two_hosts(tmp_path) as (one, two):
        await both_copied(tmp_path)
        host = one if side == "source" else two
        await host.pause("a")
        (pump, _) = two.endpoint.connections[1]
        pump.fail("for a test")
        await eventually(lambda: 1 in two.endpoint.connections)
        more_excerpts(tmp_path / "a", 10, 20)
        more_excerpts(tmp_path / "b", 10, 20)
        await copied(tmp_path / "b", tmp_path / "b-copy")
        assert last_of(tmp_path / "a-copy") != last_of(tmp_path / "a")
        await host.resume("a")
        await both_copied(tmp_path)


@pytest.mark.parametrize("side", ["source", "sink"])
async def test_pauses_under_load_lose_nothing(tmp_path: Path, side: str) -> None:
    async with two_hosts(tmp_path) as (one, two):
        host, gaps = (one if side == "source" else two), Random(side)

        async def write() -> None:
            for nth in range(100):
                more_excerpts(tmp_path / "a", 10 + 50 * nth, 50, seed=nth)
                await trio.sleep(0.005)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for _ in range(40):
                await host.pause("a")
                await trio.sleep(gaps.random() * 0.02)
                await host.resume("a")
                await trio.sleep(gaps.random() * 0.02)
        with trio.fail_after(SECONDS):
            await both_copied(tmp_path)
        assert not one.stops + two.stops


async def test_a_pause_ends_though_the_connection_ends_in_the_middle_of_a_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until nothing is done for the queue any more; that may never be done."""
    begun, follow = trio.Event(), EpochDesk.follow

    async def hang(desk: EpochDesk, event: LineageProved, *given: Any) -> bool:
        if event.name == "a":
            begun.set()
        await trio.sleep_forever()

    monkeypatch.setattr(EpochDesk, "follow", hang)  # as the disk may, for long
    async with two_hosts(tmp_path) as (_, two):
        with trio.fail_after(SECONDS):
            await begun.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(two.pause, "a")
                await trio.sleep(0.1)
                assert nursery.child_tasks  # it waits for the proof
                two.endpoint.renew("a test")
        assert state(two, "a")[0].startswith("paused")
        monkeypatch.setattr(EpochDesk, "follow", follow)
        await two.resume("a")
        await copied(tmp_path / "a", tmp_path / "a-copy")


async def test_a_stop_ends_when_it_is_told_to_go_on(tmp_path: Path) -> None:
    """A copy with another identity: adopted, it goes on without a restart of either side."""
    async with two_hosts(tmp_path):
        await both_copied(tmp_path)
    with Queue.open(tmp_path / "a") as queue:
        wanted = queue.identity.load()
    assert wanted is not None
    with Queue.open(tmp_path / "a-copy") as queue:
        assert queue.identity.replace(new_identity())
    async with two_hosts(tmp_path) as (one, two):
        await eventually(lambda: bool(two.stops and one.stops))
        assert {stop.reason for stop in two.stops} == {StopReason.REFUSED}
        with pytest.raises(Refused, match="stopped"):
            await two.pause("a")
        await two.resume("a")  # nothing has changed: it stops again
        await eventually(lambda: state(two, "a")[0].startswith("stopped"))
        with Queue.open(tmp_path / "a-copy") as queue:
            assert queue.identity.replace(wanted)
        more_excerpts(tmp_path / "a", 10, 20)
        await two.resume("a")
        await both_copied(tmp_path)
        await eventually(lambda: state(one, "a") == ("live", ["live"]))
        assert not one.stops + two.stops


async def diverged(folder: Path) -> None:
    fill(folder / "a", "FAST_DAILY", {0: 10})
    fill(folder / "a-copy", "FAST_DAILY", {0: 5})
    more_excerpts(folder / "a-copy", 5, 5, seed=77)


async def test_what_differs_is_put_aside(tmp_path: Path) -> None:
    await diverged(tmp_path)
    async with two_hosts(tmp_path) as (one, two):
        await copied(tmp_path / "b", tmp_path / "b-copy")
        await eventually(lambda: bool(two.stops and one.stops))
        with pytest.raises(Refused, match="streamed from here"):
            await one.quarantine("a")
        with pytest.raises(Refused, match="has not stopped as diverged"):
            await two.quarantine("b")
        with opened_by_another_process(tmp_path / "a-copy") as process:
            with pytest.raises(QueueLocked, match=str(process)):
                await two.quarantine("a")
        assert two.stops
        gone = await two.quarantine("a")
        assert gone.excerpts == 5
        await both_copied(tmp_path)
        assert last_of(gone.folder) is not None
        await eventually(lambda: state(one, "a") == ("live", ["live"]))
        assert not one.stops + two.stops
        assert_same(tmp_path / "a", tmp_path / "a-copy")


async def test_a_host_is_forgotten_once_it_has_gone(tmp_path: Path) -> None:
    async with host_1(tmp_path) as one:
        async with host_2(tmp_path, one):
            await both_copied(tmp_path)
            await eventually(lambda: 2 in one.source.queues["a"].marks)
            with pytest.raises(Refused, match="host 2 is connected"):
                one.forget(2)
            with pytest.raises(ValueError, match=r"a known host expected to be forgotten \(2\), 3"):
                one.forget(3)
        await eventually(lambda: 2 not in one.endpoint.connections)
        assert one.forget(2) == ["a", "b"]
        with Queue.open(tmp_path / "a") as queue:
            assert 2 not in queue.host_marks.load()
        more_excerpts(tmp_path / "a", 10, 5)
        async with host_2(tmp_path, one):  # it comes again, and is known again
            await both_copied(tmp_path)
            await eventually(lambda: 2 in one.source.queues["a"].marks)


async def test_an_unknown_name_is_told(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (one, _):
        for work in (one.pause, one.resume, one.quarantine):
            with pytest.raises(ValueError, match="expected one of the queues a, b, got 'c'"):
                await work("c")
