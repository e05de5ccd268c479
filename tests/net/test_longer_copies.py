"""A copy that is longer than a leader which has lost nothing: nothing of it is taken unasked."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import Host, HostSettings
from cqrepl.commands.statuspage import page
from cqrepl.protocol import StopReason
from cqrepl.queue import Queue
from cqrepl.replicator.source import serve_source
from cqrepl.status.snapshot import snapshot_of
from cqrepl.surroundings import Surroundings, within
from tests.support.copies import assert_same
from tests.support.promotions import cluster
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    acked,
    eventually,
    last_of,
    live_sink,
    more_excerpts,
)
from tests.support.samples import NOON_MS, Excerpts, fill, noon_index, noon_path, read


def source_of(path: Path, **more: Any) -> Any:
    """As a user starts one, with no word about what is given back."""
    return serve_source({"q": path}, **({"listen": LOOPBACK} | BEATS | more))


@pytest.fixture
async def replicated(tmp_path: Path) -> Excerpts:
    """The queue "q" of three excerpts and its copy; then two more were appended to the copy."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with source_of(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0])
    return written + more_excerpts(tmp_path / "copy", 3, 2)


async def assert_refused(tmp_path: Path, replicated: Excerpts) -> None:
    async with source_of(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await eventually(lambda: bool(sink.stops and source.stops))
            for stop in (source.stops[0], sink.stops[0]):
                assert stop.reason is StopReason.REFUSED
                assert "longer than its leader" in stop.message
                assert f"next index {noon_index(sequence=5):#x}" in stop.message
                assert f"here {noon_index(sequence=3):#x}" in stop.message
            assert source.queues["q"].returned_excerpts == 0
    assert read(tmp_path / "q") == replicated[:3]
    assert read(tmp_path / "copy") == replicated, "nothing is cut"


async def test_both_sides_stop_and_nothing_is_cut(tmp_path: Path, replicated: Excerpts) -> None:
    for _ in range(2):
        await assert_refused(tmp_path, replicated)


async def test_also_where_the_leader_runs_on(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with source_of(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0])
        more_excerpts(tmp_path / "copy", 3, 2)
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await eventually(lambda: bool(sink.stops))
            assert "longer than its leader" in sink.stops[0].message
    assert read(tmp_path / "q") == written


async def test_a_leader_that_went_on_to_a_later_cycle(tmp_path: Path, replicated: Excerpts) -> None:
    """Its copy differs then: the cycle was closed without what the copy has."""
    with Queue.open(tmp_path / "q") as queue:
        queue.append(b"later", now_ms=NOON_MS + 86_400_000)
    async with source_of(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port):
            await eventually(lambda: bool(source.stops))
            assert source.stops[0].reason in (StopReason.GAP, StopReason.DIVERGED)
    assert read(tmp_path / "copy") == replicated


async def test_it_is_taken_where_the_operator_says_so(tmp_path: Path, replicated: Excerpts) -> None:
    async with source_of(tmp_path / "q", accept_returns=(2,)) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, replicated[-1][0])
            assert source.queues["q"].returned_excerpts == 2
    assert read(tmp_path / "q") == replicated
    assert_same(tmp_path / "q", tmp_path / "copy")


@pytest.mark.parametrize(
    "how", ["another file", "no marks", "another start", "a mark above the end"]
)
async def test_what_may_have_been_lost_comes_back_with_a_count(
    tmp_path: Path,
    replicated: Excerpts,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "q"
    around = Surroundings()
    if how == "another file":
        copied = noon_path(path).read_bytes()
        noon_path(path).unlink()
        noon_path(path).with_suffix(".new").write_bytes(b"")  # takes the number of the old one
        noon_path(path).write_bytes(copied)
    elif how == "another start":
        around = Restarted()
    elif how == "no marks":
        with Queue.open(path) as queue:
            queue.begin_following(5.0)
            queue.note_follower(is_follower=False)
    else:
        fill(tmp_path / "less", "FAST_DAILY", {0: 2})
        os.replace(noon_path(tmp_path / "less"), noon_path(path))
    with within(around):
        async with source_of(path, wait_for_seconds=0) as source:
            async with live_sink(tmp_path / "copy", source.port):
                await eventually(lambda: last_of(path) == replicated[-1][0])
                count = 3 if how == "a mark above the end" else 2
                await eventually(lambda: source.queues["q"].returned_excerpts == count)
    assert f"host 2 gave back {count} excerpts" in caplog.text
    assert read(path) == replicated
    await trio.lowlevel.checkpoint()


async def test_status_tells_how_much_came_back(tmp_path: Path, replicated: Excerpts) -> None:
    path = tmp_path / "q"
    noon_path(path).unlink()
    async with Host(HostSettings.of(listen=LOOPBACK, host_id=1, sources={"q": path})) as host:
        async with live_sink(tmp_path / "copy", host.port):
            await eventually(lambda: host.source.queues["q"].returned_excerpts == 5)
            told = snapshot_of(host)
    assert "queue q: 5 excerpts that it lacked came back from its copies" in list(page(told))
    assert read(path) == replicated


class Restarted(Surroundings):
    def boot_id(self) -> bytes:
        return b"another start of the machine"


async def test_a_promotion_takes_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 3})
        await hosts.stop(2)
        await eventually(lambda: 2 not in hosts.hosts)
        more = more_excerpts(hosts.path(2), 3, 2)
        await hosts.start(2)
        await eventually(lambda: bool(hosts.hosts[2].sink.stops))
        assert "longer than its leader" in hosts.hosts[2].sink.stops[0].message
        await hosts.hosts[2].leaders.promote("a")
        await hosts.follow(2)
        assert read(hosts.path(1))[3:] == more
