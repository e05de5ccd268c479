"""The hosts whose back copy a source takes, and the limit of how much it takes."""

import logging
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.quarantine import quarantine
from cqrepl.replicator.outgoing import backcopy
from cqrepl.replicator.source import serve_source
from cqrepl.surroundings import Surroundings, within
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.promotions import cluster
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    acked,
    copied,
    eventually,
    joined,
    last_of,
    live_sink,
    more_excerpts,
    stopped,
)
from tests.support.samples import NOON_MS, Excerpts, fill, layout, noon_index, noon_path, read
from tests.support.scripted import scripted
from tests.support.tables import is_fenced, is_free
from tests.support.tears import Restarted


def source_of(path: Path, **more: Any) -> Any:
    """As a user starts one, with no word about what is given back."""
    return serve_source({"q": path}, **({"listen": LOOPBACK} | BEATS | more))


async def followed(original: Path, copy: Path) -> None:
    """The copy's host follows for as long as it takes to have everything."""
    async with source_of(original) as source, live_sink(copy, source.port):
        with Queue.open(original) as queue:
            last = queue.last_index()
        assert last is not None
        await acked(source, last)


def lose(original: Path, copy: Path, *, file_only: bool) -> None:
    """The original loses its store file, or all; then it is there again, and empty."""
    if file_only:
        noon_path(original).unlink()
    else:
        shutil.rmtree(original)
    with Queue.open_for_append(original, create=layout()):
        pass
    assert read(original) == []
    assert len(read(copy)) == 7


async def test_a_host_that_the_queue_was_streamed_to(tmp_path: Path) -> None:
    """The source comes back as a backup has it, a little older: its sink gives back the rest."""
    original, copy, backup = tmp_path / "q", tmp_path / "copy", tmp_path / "backup"
    fill(original, "FAST_DAILY", {0: 5})
    await followed(original, copy)
    shutil.copytree(original, backup)
    more_excerpts(original, 5, 2)
    await followed(original, copy)
    shutil.rmtree(original)
    backup.rename(original)
    async with source_of(original) as source, live_sink(copy, source.port):
        await copied(copy, original)
        assert source.stops == []
    assert_same(original, copy)


async def test_a_queue_that_lost_all_its_files_knows_its_hosts(tmp_path: Path) -> None:
    """Its table store is there: whose marks it holds may give back, after a restart too."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 7})
    await followed(original, copy)
    lose(original, copy, file_only=True)
    async with source_of(original):
        pass  # it has lowered its marks
    async with source_of(original) as source, live_sink(copy, source.port):
        await copied(copy, original)
        assert source.stops == []


async def test_a_host_that_nobody_knows_is_refused_and_both_are_told(tmp_path: Path) -> None:
    """A queue made anew, or a wrong directory: nothing is written to it, or to the copy."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 7})
    await followed(original, copy)
    lose(original, copy, file_only=False)
    async with source_of(original) as source, live_sink(copy, source.port) as sink:
        await eventually(lambda: bool(sink.stops))
        (here,), (there,) = source.stops, sink.stops
    assert here.reason is there.reason is StopReason.REFUSED
    for text in ("host 2", hex(noon_index(sequence=7)), "never streamed", "--accept-returns 2"):
        assert text in here.message
        assert text in there.message
    assert read(original) == []
    assert is_free(original)
    async with source_of(original, accept_returns=[2]) as source, live_sink(copy, source.port):
        await copied(copy, original)


async def test_nobody(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 7})
    await followed(original, copy)
    lose(original, copy, file_only=True)
    async with source_of(original, accept_returns=None) as source:
        async with live_sink(copy, source.port) as sink:
            await eventually(lambda: bool(sink.stops))
            (stop,) = source.stops
    assert stop.reason is StopReason.REFUSED
    assert "--accept-returns none" in stop.message
    assert read(original) == []


async def test_a_peer_that_cannot_compare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As Java's: known or not, it is taken only where it is named, and that is warned of."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    async with source_of(path) as source:
        async with scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(noon_index(sequence=0))
            await sink.send(peer.end_of_stream(cid))
            await sink.hear("re", 5)
        async with scripted(source.port, 2, 1) as sink:
            await sink.answer(noon_index(sequence=6))
            await eventually(lambda: bool(source.stops))
        (stop,) = source.stops
    assert "cannot compare" in stop.message
    assert "--accept-returns 2" in stop.message
    with caplog.at_level(logging.WARNING):
        async with source_of(path, accept_returns=[3, 2]) as source:
            async with scripted(source.port, 2, 1) as sink:
                _, cid = await sink.answer(noon_index(sequence=6))
                await sink.send(
                    peer.excerpts(noon_index(sequence=5), b"5", cid=cid), peer.end_of_stream(cid)
                )
                await eventually(lambda: len(read(path)) == 6)
    assert "on trust" in caplog.text


async def test_no_more_than_the_limit(tmp_path: Path) -> None:
    """The excerpts taken so far stay, and both sides are told where the back copy ended."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 2})
    await followed(original, copy)
    more_excerpts(copy, 2, 9)
    async with source_of(original, return_excerpts_max=8, accept_returns=[2]) as source:
        async with live_sink(copy, source.port) as sink:
            await eventually(lambda: bool(sink.stops))
            (stop,) = source.stops
    assert stop.reason is StopReason.REFUSED
    assert "over 8 excerpts" in stop.message
    assert "--return-excerpts" in stop.message
    assert is_free(original)
    assert read(original) == read(copy)[: len(read(original))]
    taken = source_of(original, return_excerpts_max=9, accept_returns=[2])
    async with taken as source, live_sink(copy, source.port):
        await copied(copy, original)


async def test_no_longer_than_the_limit(tmp_path: Path) -> None:
    """The sink says nothing more: writers get in again, long before it would count as gone."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    limits: dict[str, Any] = {"accept_returns": [2], "return_seconds_max": 0.3}
    async with source_of(path, heartbeat_timeout_ms=60_000, **limits) as source:
        async with scripted(source.port, 2, 1) as sink:
            await sink.answer(noon_index(sequence=7))
            await eventually(lambda: bool(source.stops))
            await eventually(lambda: is_free(path))
            more_excerpts(path, 5, 1)
            (stop,) = source.stops
    assert stop.reason is StopReason.REFUSED
    assert "0.3 s" in stop.message
    assert "--return-seconds" in stop.message


async def test_nothing_of_the_future(tmp_path: Path) -> None:
    """The clock of this host has not come to that cycle: no file is made for it."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    files = sorted(path.iterdir())
    with Queue.open(path) as queue:
        shift = queue.layout.roll_cycle.shift
        far = queue.layout.roll_cycle.cycle_at(4_900_000_000_000, queue.layout.epoch) << shift
    async with source_of(path, accept_returns=[2]) as source:
        async with scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(far + 1)
            await sink.send(peer.excerpts(far, b"of 2125", cid=cid), peer.end_of_stream(cid))
            await eventually(lambda: bool(source.stops))
            (stop,) = source.stops
    assert stop.reason is StopReason.REFUSED
    assert "2125-" in stop.message
    assert sorted(path.iterdir()) == files


async def test_sinks_that_are_ahead_give_back_one_after_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sink has more, and adds that, however long the first one takes."""
    monkeypatch.setattr(backcopy, "LOCK_SECONDS", 0.05)
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    shutil.copytree(path, tmp_path / "more")
    more_excerpts(tmp_path / "more", 5, 9)
    data = [bytes(each) for _, each in read(tmp_path / "more")]
    with caplog.at_level(logging.INFO):
        async with source_of(path, accept_returns=[2, 3]) as source:
            async with scripted(source.port, 2, 1) as first:
                _, cid = await first.answer(noon_index(sequence=7))
                await eventually(lambda: is_fenced(path))
                async with live_sink(tmp_path / "more", source.port, host_id=3) as second:
                    await eventually(lambda: "waits until another one" in caplog.text)
                    await trio.sleep(0.3)
                    assert not source.stops + second.stops
                    await first.send(
                        peer.excerpts(noon_index(sequence=5), *data[5:7], cid=cid),
                        peer.end_of_stream(cid),
                    )
                    await copied(tmp_path / "more", path)
                    await eventually(lambda: is_free(path))
                    more = more_excerpts(path, 14, 3)
                    await acked(source, more[-1][0])
                    await eventually(lambda: len(read(tmp_path / "more")) == 17)
                    assert not source.stops + second.stops
    assert_same(path, tmp_path / "more")


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


def append(path: Path, ahead: int, first: int, payloads: list[bytes]) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append_at(
            ExcerptBatch.of(noon_index(ahead=ahead, sequence=first), payloads)
        )


@pytest.mark.parametrize("loser", ["q", "copy"])
@pytest.mark.parametrize("has_rolled", [False, True])
async def test_the_other_copy_counts(tmp_path: Path, loser: str, has_rolled: bool) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 300})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    append(tmp_path / "q", 0, 300, [b"mine", b"too"])
    append(tmp_path / "copy", 0, 300, [b"theirs", b"as well", b"longer"])
    if has_rolled:
        append(tmp_path / "q", 2, 0, [b"later"])
        append(tmp_path / "copy", 1, 0, [b"sooner", b"and more"])
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        await stopped(sink)
        assert source.stops[0].reason is StopReason.DIVERGED
        told = re.search(r"--quarantine (0x[0-9a-f]+)", sink.stops[0].message)
        assert told is not None, sink.stops[0].message
    index = int(told[1], 16)
    assert index == noon_index(sequence=300)
    winner = read(tmp_path / ("copy" if loser == "q" else "q"))
    lost = [each for each in read(tmp_path / loser) if each[0] >= index]
    done = quarantine(tmp_path / loser, index)
    assert read(done.folder, index) == lost
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        if loser == "copy":
            await acked(source, winner[-1][0])
        else:
            await eventually(lambda: read(tmp_path / "q") == winner)
        assert not source.stops
        assert not sink.stops
    assert read(tmp_path / "q") == read(tmp_path / "copy") == winner
    assert_same(tmp_path / "q", tmp_path / "copy")
