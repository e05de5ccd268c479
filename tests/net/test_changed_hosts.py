"""Queues that come and go while a host runs, and limits that change."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cqrepl import Host, HostSettings, NetSettings, ProtocolSettings, serve_host
from cqrepl.net.address import Address
from cqrepl.net.errors import Refused
from cqrepl.queue import Queue, QueueLocked
from cqrepl.queue.format.errors import QueueError
from cqrepl.replicator.agreement.consent import ReturnSettings
from cqrepl.replicator.settings import SinkSettings, SourceSettings
from cqrepl.status.snapshot import snapshot_of
from tests.support.replicas import (
    LOOPBACK,
    at,
    copied,
    eventually,
    held_by_another_process,
    last_of,
    live_source,
    more_excerpts,
)
from tests.support.samples import fill


def settings(host_id: int, net: NetSettings, **more: Any) -> HostSettings:
    ids = frozenset({1, 2, 3} - {host_id})
    protocol = ProtocolSettings(host_id=host_id, remote_ids=ids)
    return HostSettings(net=net, protocol=protocol, **more)


@asynccontextmanager
async def two_hosts(
    folder: Path, *, ours: Mapping[str, str], theirs: Mapping[str, str]
) -> AsyncIterator[tuple[Host, Host]]:
    """Host 1 and host 2, which dials; each has queues as `source` or `sink`, by name."""

    def paths(host: int, roles: Mapping[str, str], role: str) -> dict[str, Path]:
        return {name: place(folder, host, name) for name, each in roles.items() if each == role}

    net = NetSettings(listen=Address.parse(LOOPBACK))
    streamed, taken = (paths(1, ours, role) for role in ("source", "sink"))
    async with serve_host(settings(1, net), sources=streamed, sinks=taken) as one:
        net = NetSettings(peers={1: Address.parse(at(one.port))})
        streamed, taken = (paths(2, theirs, role) for role in ("source", "sink"))
        async with serve_host(settings(2, net), sources=streamed, sinks=taken) as two:
            yield one, two


def place(folder: Path, host: int, name: str) -> Path:
    return folder / str(host) / name


async def change(
    host: Host,
    *,
    sources: Mapping[str, Path] | None = None,
    sinks: Mapping[str, Path] | None = None,
    removed: tuple[str, ...] = (),
    settings: HostSettings | None = None,
) -> None:
    settings = settings or host.settings
    roles = (dict(settings.sources) | dict(sources or {}), dict(settings.sinks) | dict(sinks or {}))
    streamed, taken = ({n: p for n, p in role.items() if n not in removed} for role in roles)
    await host.change(replace(settings, sources=streamed, sinks=taken))


def names_of(host: Host) -> list[str]:
    queues: Any = snapshot_of(host)["queues"]
    return [each["name"] for each in queues]


@pytest.mark.parametrize("source_first", [True, False])
async def test_a_queue_is_added_at_both_sides(tmp_path: Path, source_first: bool) -> None:
    """In either order; the one that is there goes on, on the same connection."""
    for name in ("a", "b"):
        fill(place(tmp_path, 1, name), "FAST_DAILY", {0: 10})
    async with two_hosts(tmp_path, ours={"a": "source"}, theirs={"a": "sink"}) as (one, two):
        await copied(place(tmp_path, 1, "a"), place(tmp_path, 2, "a"))
        sessions = two.endpoint.sessions
        for is_source in (source_first, not source_first):
            if is_source:
                await change(one, sources={"b": place(tmp_path, 1, "b")})
            else:
                await change(two, sinks={"b": place(tmp_path, 2, "b")})
        assert names_of(one) == names_of(two) == ["a", "b"]
        for name in ("a", "b"):
            more_excerpts(place(tmp_path, 1, name), 10, 10)
            await copied(place(tmp_path, 1, name), place(tmp_path, 2, name))
        assert two.endpoint.sessions == sessions
        assert not one.stops + two.stops


@pytest.mark.parametrize("side", [1, 2])
async def test_a_queue_is_removed_and_comes_again(tmp_path: Path, side: int) -> None:
    for name in ("a", "b"):
        fill(place(tmp_path, 1, name), "FAST_DAILY", {0: 10})
    roles = {"ours": {"a": "source", "b": "source"}, "theirs": {"a": "sink", "b": "sink"}}
    async with two_hosts(tmp_path, **roles) as hosts:
        host = hosts[side - 1]
        for name in ("a", "b"):
            await copied(place(tmp_path, 1, name), place(tmp_path, 2, name))
        sessions = hosts[1].endpoint.sessions
        for nth in (1, 2):
            await change(host, removed=("a",))
            assert names_of(host) == ["b"]
            with Queue.open_for_append(place(tmp_path, side, "a")) as queue:
                queue.append_lock.acquire()  # it was given back
                assert not queue.is_follower or side == 2
            more_excerpts(place(tmp_path, 1, "b"), 10 * nth, 10)
            more_excerpts(place(tmp_path, 1, "a"), 10 * nth, 10)
            await copied(place(tmp_path, 1, "b"), place(tmp_path, 2, "b"))
            assert last_of(place(tmp_path, 2, "a")) != last_of(place(tmp_path, 1, "a"))
            again = {"a": place(tmp_path, side, "a")}
            if side == 1:
                await change(host, sources=again)
            else:
                await change(host, sinks=again)
            await copied(place(tmp_path, 1, "a"), place(tmp_path, 2, "a"))
        assert hosts[1].endpoint.sessions == sessions
        assert not hosts[0].stops + hosts[1].stops


async def test_what_a_program_has_of_a_queue_that_was_removed_says_so(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(place(tmp_path, 1, name), "FAST_DAILY", {0: 10})
    ours = {"a": "source", "b": "source"}
    async with two_hosts(tmp_path, ours=ours, theirs={"b": "sink"}) as (one, _):
        queue = one.queue("a")
        assert queue.path == place(tmp_path, 1, "a")
        await change(one, removed=("a",))
        with pytest.raises(Refused, match="'a' is neither streamed from here nor taken in"):
            await queue.append(b"more")
        with pytest.raises(Refused, match="'a' is neither streamed from here nor taken in"):
            queue.open()


async def test_a_host_that_only_streamed_takes_in_too(tmp_path: Path) -> None:
    fill(place(tmp_path, 1, "a"), "FAST_DAILY", {0: 10})
    fill(place(tmp_path, 2, "b"), "FAST_DAILY", {0: 10})
    async with two_hosts(tmp_path, ours={"a": "source"}, theirs={"a": "sink"}) as (one, two):
        await copied(place(tmp_path, 1, "a"), place(tmp_path, 2, "a"))
        await change(two, sources={"b": place(tmp_path, 2, "b")})
        await change(one, sinks={"b": place(tmp_path, 1, "b")})
        await copied(place(tmp_path, 2, "b"), place(tmp_path, 1, "b"))
        more_excerpts(place(tmp_path, 1, "a"), 10, 10)
        await copied(place(tmp_path, 1, "a"), place(tmp_path, 2, "a"))
        await change(two, removed=("a",))
        await change(one, removed=("a",))
        more_excerpts(place(tmp_path, 2, "b"), 10, 10)
        await copied(place(tmp_path, 2, "b"), place(tmp_path, 1, "b"))


async def test_what_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fill(place(tmp_path, 1, name), "FAST_DAILY", {0: 10})
    fill(place(tmp_path, 2, "c"), "FAST_DAILY", {0: 10})
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "notes").write_text("no queue")
    async with two_hosts(tmp_path, ours={"a": "source"}, theirs={"a": "sink"}) as (one, two):
        with pytest.raises(QueueError):
            await change(
                one,
                sources={"b": place(tmp_path, 1, "b"), "none": tmp_path / "none"},
                removed=("a",),
            )
        with held_by_another_process(place(tmp_path, 2, "c")) as process:
            with pytest.raises(QueueLocked, match=str(process)):
                await change(two, sinks={"d": tmp_path / "d", "c": place(tmp_path, 2, "c")})
        with pytest.raises(Refused, match="queue 'a' is taken into it"):
            await change(two, sinks={"b": place(tmp_path, 2, "a")})
        assert (names_of(one), names_of(two)) == (["a"], ["a"])
        await copied(place(tmp_path, 1, "a"), place(tmp_path, 2, "a"))


async def test_a_removed_queue_is_no_more_offered_by_an_old_peer(tmp_path: Path) -> None:
    """A source that names no queues, as Java's, offers what it has with each connection."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    fill(tmp_path / "other", "FAST_DAILY", {0: 10})
    async with live_source(tmp_path / "q", host_id=1) as source:
        net = NetSettings(peers={1: Address.parse(at(source.port))})
        sinks = {"q": tmp_path / "copy", "other": tmp_path / "other-copy"}
        async with serve_host(settings(2, net), sources={}, sinks=sinks) as two:
            await copied(tmp_path / "q", tmp_path / "copy")
            await change(two, removed=("q",))
            two.endpoint.connections[1][0].fail("for a test")
            await eventually(lambda: 1 in two.endpoint.connections)
            more_excerpts(tmp_path / "q", 10, 10)
            await change(two, sinks={"q": tmp_path / "copy"})
            await copied(tmp_path / "q", tmp_path / "copy")


async def test_limits_count_from_the_next_connection_on(tmp_path: Path) -> None:
    fill(place(tmp_path, 1, "a"), "FAST_DAILY", {0: 10})
    async with two_hosts(tmp_path, ours={"a": "source"}, theirs={"a": "sink"}) as (one, two):
        await copied(place(tmp_path, 1, "a"), place(tmp_path, 2, "a"))
        with Queue.open_for_append(place(tmp_path, 1, "a")) as queue:
            queue.appender(payload_max=1 << 30).append([bytes(20 << 20)])
        await eventually(lambda: bool(one.stops))
        for host in (one, two):
            old = host.settings
            more = replace(old.protocol, payload_max=32 << 20)
            net = replace(old.net, guests_max=0)
            returns = ReturnSettings(hosts=frozenset({2}))
            await change(
                host,
                settings=replace(
                    old,
                    net=net,
                    protocol=more,
                    source=SourceSettings(returns=returns),
                    sink=SinkSettings(puts_aside=True),
                    scrub_bytes_per_s=1 << 20,
                ),
            )
        await one.resume("a")
        await copied(place(tmp_path, 1, "a"), place(tmp_path, 2, "a"))
        assert not one.stops
