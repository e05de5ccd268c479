"""Another host becomes the master of a queue, between hosts that hand it over without an epoch, as
older ones do."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cqrepl import Host, HostSettings, NetSettings, ProtocolSettings, Queue, serve_host
from cqrepl.net.address import Address
from cqrepl.net.errors import Refused
from cqrepl.replicator import direction
from cqrepl.replicator.settings import SinkSettings
from tests.support.copies import assert_same
from tests.support.replicas import LOOPBACK, at, copied, eventually, last_of, more_excerpts
from tests.support.samples import fill

HOSTS = (1, 2, 3)

pytestmark = pytest.mark.usefixtures("older_hosts")


def settings(host_id: int, net: NetSettings, masters: dict[str, int]) -> HostSettings:
    ids = frozenset(HOSTS) - {host_id}
    protocol = ProtocolSettings(host_id=host_id, remote_ids=ids)
    return HostSettings(net=net, protocol=protocol, sink=SinkSettings(masters=masters))


def place(folder: Path, host: int, name: str) -> Path:
    return folder / str(host) / name


def roles(folder: Path, host: int, masters: dict[str, int]) -> dict[str, dict[str, Path]]:
    paths = {name: place(folder, host, name) for name in masters}
    return {
        "sources": {name: path for name, path in paths.items() if masters[name] == host},
        "sinks": {name: path for name, path in paths.items() if masters[name] != host},
    }


@asynccontextmanager
async def mesh(folder: Path, masters: dict[str, int]) -> AsyncIterator[dict[int, Host]]:
    """Three hosts; the higher id dials."""
    for name, master in masters.items():
        fill(place(folder, master, name), "FAST_DAILY", {0: 10})
    running: dict[int, Host] = {}

    def host(host_id: int) -> Host:
        peers = {each: Address.parse(at(one.port)) for each, one in running.items()}
        net = NetSettings(listen=Address.parse(LOOPBACK), peers=peers)
        of_it = roles(folder, host_id, masters)
        return serve_host(
            settings(host_id, net, masters), sources=of_it["sources"], sinks=of_it["sinks"]
        )

    async with host(1) as running[1], host(2) as running[2], host(3) as running[3]:
        yield running


async def give(folder: Path, host: Host, name: str, master: int) -> None:
    """Change the master of a queue at one host, as a reload does."""
    old = host.settings
    masters = dict(old.sink.masters) | {name: master}
    sink = replace(old.sink, masters=masters)
    of_it: Any = roles(folder, old.protocol.host_id, masters)
    await host.change_master(name, replace(old, sink=sink, **of_it))


async def all_same(folder: Path, name: str, master: int) -> None:
    for host in HOSTS:
        if host != master:
            await copied(place(folder, master, name), place(folder, host, name))


@pytest.mark.parametrize("third", ["before", "after"])
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
async def test_a_queue_goes_to_another_master_and_back(
    tmp_path: Path, names: tuple[str, ...], third: str
) -> None:
    """It goes on there, in the order that an operator has reloaded, and all copies follow."""
    async with mesh(tmp_path, dict.fromkeys(names, 1)) as hosts:
        count = 10
        for old, new in ((1, 2), (2, 1)):
            await all_same(tmp_path, "a", old)
            if third == "before":
                await give(tmp_path, hosts[3], "a", new)
            await give(tmp_path, hosts[old], "a", new)
            with Queue.open(place(tmp_path, old, "a")) as queue:
                assert queue.is_follower
            await give(tmp_path, hosts[new], "a", new)
            if third == "after":
                await give(tmp_path, hosts[3], "a", new)
            more_excerpts(place(tmp_path, new, "a"), count, 10, seed=count)
            count += 10
            await all_same(tmp_path, "a", new)
            for name in names[1:]:
                more_excerpts(place(tmp_path, 1, name), count - 10, 10)
                await all_same(tmp_path, name, 1)
        assert not any(host.stops for host in hosts.values())


async def test_who_is_not_given_it_does_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direction, "HAND_OVER_SECONDS", 0.1)
    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        with pytest.raises(Refused, match="stays with host 1, which has not given it back"):
            await give(tmp_path, hosts[2], "a", 2)
        await hosts[2].pause("a")
        more_excerpts(place(tmp_path, 1, "a"), 10, 10)
        with pytest.raises(Refused, match="stays here: host 2 has not all of it"):
            await give(tmp_path, hosts[1], "a", 2)
        await hosts[2].resume("a")
        await all_same(tmp_path, "a", 1)
        more_excerpts(place(tmp_path, 1, "a"), 20, 10)  # the locks were given back
        await all_same(tmp_path, "a", 1)
        assert set(hosts[1].source.names) == set(hosts[2].sink.queues) == {"a", "b"}


async def test_writers_are_kept_out_from_the_first_moment(tmp_path: Path) -> None:
    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        await give(tmp_path, hosts[1], "a", 2)
        end = last_of(place(tmp_path, 1, "a"))
        await give(tmp_path, hosts[2], "a", 2)
        more_excerpts(place(tmp_path, 2, "a"), 10, 10)
        await copied(place(tmp_path, 2, "a"), place(tmp_path, 1, "a"))
        assert last_of(place(tmp_path, 1, "a")) != end
        await eventually(lambda: not hosts[2].stops)
        assert_same(place(tmp_path, 2, "a"), place(tmp_path, 1, "a"))


async def test_a_paused_queue_goes_on_with_its_new_master(tmp_path: Path) -> None:
    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        last = last_of(place(tmp_path, 1, "a"))
        assert last is not None
        await hosts[1].queue("a").wait_acked(last, 2)  # a pause may cut off what is on its way
        await hosts[1].pause("a")
        for host in (1, 2, 3):
            await give(tmp_path, hosts[host], "a", 2)
        more_excerpts(place(tmp_path, 2, "a"), 10, 10)
        await all_same(tmp_path, "a", 2)


async def test_a_queue_that_cannot_be_taken_over_is_taken_from_its_old_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        await give(tmp_path, hosts[1], "a", 2)
        with monkeypatch.context() as patch:
            patch.setattr(hosts[2].source, "open", fails)
            with pytest.raises(OSError, match="too many open files"):
                await give(tmp_path, hosts[2], "a", 2)
        await give(tmp_path, hosts[1], "a", 1)
        more_excerpts(place(tmp_path, 1, "a"), 10, 10)
        await all_same(tmp_path, "a", 1)


async def test_a_writer_that_cannot_be_closed_keeps_no_queue_at_its_old_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise OSError(errno.EAGAIN, "no thread can be started")

    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        with monkeypatch.context() as patch:
            patch.setattr(hosts[1].direction, "close_writer", fails)
            await give(tmp_path, hosts[1], "a", 2)
        assert "a" not in hosts[1].source.queues
        assert "a" in hosts[1].sink.queues
        await give(tmp_path, hosts[2], "a", 2)
        await all_same(tmp_path, "a", 2)
