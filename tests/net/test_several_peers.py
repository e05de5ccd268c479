"""Several peers that are dialled, and several addresses that are listened on, in a program."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cqrepl import Host, HostSettings
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.status.snapshot import snapshot_of
from tests.support.ports import reserved_port
from tests.support.replicas import BEATS, LOOPBACK, at, copied, live_sink, live_source
from tests.support.samples import fill


async def test_one_that_is_away_holds_up_no_other(tmp_path: Path) -> None:
    path, copies = tmp_path / "q", [tmp_path / "2", tmp_path / "3"]
    fill(path, "FAST_DAILY", {0: 30})
    listens: Any = {"listen": LOOPBACK} | BEATS
    async with serve_sink({"q": copies[0]}, **listens, host_id=2) as second:
        async with serve_sink({"q": copies[1]}, **listens, host_id=3) as third:
            connect = {9: at(reserved_port()), 2: at(second.port), 3: at(third.port)}
            async with serve_source({"q": path}, connect=connect, **BEATS) as source:
                for each in copies:
                    await copied(path, each)
                assert source.endpoint.connections.keys() == {2, 3}
                assert source.port is None


async def test_a_host_is_taken_at_its_own_address_only(tmp_path: Path) -> None:
    """Two addresses that were exchanged feed no sink, as each peer says who it is."""
    path, copies = tmp_path / "q", [tmp_path / "2", tmp_path / "3"]
    fill(path, "FAST_DAILY", {0: 3})
    listens: Any = {"listen": LOOPBACK} | BEATS
    async with serve_sink({"q": copies[0]}, **listens, host_id=2) as second:
        async with serve_sink({"q": copies[1]}, **listens, host_id=3) as third:
            connect = {3: at(second.port), 4: at(third.port)}
            async with serve_source({"q": path}, connect=connect, **BEATS):
                right: Any = {"connect": {3: at(third.port)}, "host_id": 5} | BEATS
                async with serve_source({"q": path}, **right):
                    await copied(path, copies[1])
    assert not copies[0].exists()


async def test_a_sink_takes_from_two_sources(tmp_path: Path) -> None:
    for name in "ab":
        fill(tmp_path / name, "FAST_DAILY", {ord(name) - ord("a"): 30})
    listens: Any = {"listen": LOOPBACK} | BEATS
    async with serve_source({"a": tmp_path / "a"}, **listens, host_id=3) as third:
        async with serve_source({"b": tmp_path / "b"}, **listens, host_id=4) as fourth:
            takes = {name: tmp_path / f"{name}-copy" for name in "ab"}
            connect = {3: at(third.port), 4: at(fourth.port)}
            async with serve_sink(takes, connect=connect, **BEATS):
                for name in "ab":
                    await copied(tmp_path / name, takes[name])


async def test_each_address_can_be_dialled(tmp_path: Path) -> None:
    path, copies = tmp_path / "q", {2: tmp_path / "2", 3: tmp_path / "3"}
    fill(path, "FAST_DAILY", {0: 30})
    async with live_source(path, listen=[LOOPBACK, LOOPBACK]) as source:
        first, second = source.endpoint.ports
        assert source.port == first != second
        async with live_sink(copies[2], first), live_sink(copies[3], second, host_id=3):
            for each in copies.values():
                await copied(path, each)


async def test_a_host_shows_all_its_addresses(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 1})
    settings = HostSettings.of(sources={"q": tmp_path / "q"}, listen=[LOOPBACK, LOOPBACK])
    async with Host(settings) as host:
        first, second = host.endpoint.ports
        assert snapshot_of(host)["listens"] == f"127.0.0.1:{first}, 127.0.0.1:{second}"


@pytest.mark.parametrize(
    ("listen", "connect", "ids", "says"),
    [
        ("h:1", {2: "h:2"}, (), "to listen on or to connect to expected, both came"),
        (["h:1"], "h:2", (), "expected, both came"),
        ([], None, (), "expected, none came"),
        (None, {}, (), "expected, none came"),
        (None, {2: "h:2", 3: "h:2"}, (), "an address for each host expected, h:2 came twice"),
        (None, {2: "h:2"}, (2,), "no remote ids expected beside"),
        (None, {0: "h:2"}, (), "a host id from 1 to 127 expected, 0 came"),
        (None, {2: "h"}, (), "HOST:PORT expected, 'h' came"),
        (["h:1", "h"], None, (), "HOST:PORT expected, 'h' came"),
    ],
)
def test_what_does_not_fit_is_refused(
    listen: str | Sequence[str] | None,
    connect: str | Mapping[int, str] | None,
    ids: tuple[int, ...],
    says: str,
) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        HostSettings.of(listen=listen, connect=connect, remote_ids=ids)
    assert says in str(caught.value)
