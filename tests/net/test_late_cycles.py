"""A store file of a cycle that streams have passed, as of a writer whose clock was set back."""

from pathlib import Path

import pytest
import trio

from cqrepl import WaitEnded
from cqrepl.protocol import StopReason
from cqrepl.queue import Queue
from cqrepl.queue.files.closedcycles import UNKNOWN_CHAIN, ClosedCycle
from cqrepl.queue.format.index import Cycle, Index, cycle_of, format_index
from cqrepl.replicator.safereader import SafeReader
from cqrepl.replicator.source import Source
from tests.net.test_passed_on import three
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.invoke import Invoke, invoke
from tests.support.replicas import acked, copied, eventually, joined, live_source, stopped
from tests.support.samples import Excerpts, fill, may_go, noon_index, noon_path, read, stored
from tests.support.scripted import scripted

__all__ = ["invoke"]
LATE = {"before the others": 0, "between them": 4}
EARLY, LAST = 3, 5  # the cycles that are streamed


@pytest.fixture(params=[True, False], ids=["closed", "open"])
def is_closed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def written(tmp_path: Path) -> Excerpts:
    return fill(tmp_path / "q", "FAST_DAILY", {EARLY: 3, LAST: 2})


def comes_late(path: Path, ahead: int, *, is_closed: bool = True) -> int:
    """A store file of three excerpts; the index of the last."""
    made = path.with_name(f"late{ahead}")
    fill(made, "FAST_DAILY", {ahead: 3, ahead + 1: 1} if is_closed else {ahead: 3})
    noon_path(made, ahead=ahead).rename(noon_path(path, ahead=ahead))
    return noon_index(ahead=ahead, sequence=2)


def noted(path: Path) -> list[int]:
    """The closed cycles that are noted, counted as `noon_path` does."""
    with Queue.open(path) as queue:
        first = noon_index() >> queue.cycles.shift
        return [cycle - first for cycle in queue.cycles.closed.load()]


def said_to_be_safe(path: Path) -> Excerpts:
    with Queue.open(path) as queue, SafeReader(queue) as reader:
        found: Excerpts = []
        while (batch := reader.next_batch()) is not None:
            found += stored(batch)
        return found


async def check_uncovered(path: Path, source: Source, late: int) -> None:
    """No mark is at or behind an index."""
    queue = source.queues["q"]
    assert max(queue.acknowledged, queue.leading.safe_index()) < late
    assert all(mark < late for mark in source.board("q").marks.values())
    assert all(max(each.sent, each.acknowledged) < late for each in queue.marks.values())
    with pytest.raises((WaitEnded, trio.TooSlowError)), trio.fail_after(0.1):
        await source.wait_acked(late)
    check_kept(path, late)


def check_kept(path: Path, late: int) -> None:
    with Queue.open(path) as kept:
        levels = kept.host_marks.load().values()
        assert all(at < late for marks in levels for at in marks.values())
        assert max(kept.acknowledged_index, kept.sent_index) < late
        late_cycle = cycle_of(Index(late), kept.layout.roll_cycle.shift)
        nth = kept.cycles.listing().index(late_cycle)
    assert not may_go(path)[nth]
    assert all(index < late for index, _ in said_to_be_safe(path))


@pytest.mark.parametrize("ahead", LATE.values(), ids=LATE)
async def test_a_queue_stops_where_a_cycle_comes_that_was_passed(
    tmp_path: Path, written: Excerpts, ahead: int, is_closed: bool
) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    async with joined(path, copy) as (source, sink):
        await acked(source, written[-1][0])
        late = comes_late(path, ahead, is_closed=is_closed)
        await stopped(source)
        assert {each.reason for each in source.stops} == {StopReason.DIVERGED}
        (stop,) = source.stops
        assert f"diverged at {format_index(noon_index(ahead=ahead))}" in stop.message
        mended = "--accept-begin" if ahead == 0 else "--quarantine"
        assert mended in stop.message
        await check_uncovered(path, source, late)
        assert "q" in sink.queues
    assert read(copy) == written
    check_kept(path, late)
    async with joined(path, copy) as (source, sink):  # found by comparing
        await stopped(source)
        await stopped(sink)
        assert {each.reason for each in source.stops} == {StopReason.DIVERGED}
        await check_uncovered(path, source, late)
    check_kept(path, late)
    async with joined(path, tmp_path / "new") as (source, _):
        if is_closed or ahead == 0:
            await acked(source, written[-1][0] if is_closed else late)
    if is_closed:
        assert_same(path, tmp_path / "new")


@pytest.mark.parametrize("ahead", LATE.values(), ids=LATE)
async def test_marks_that_are_kept_do_not_cover_what_came_while_no_source_ran(
    tmp_path: Path, ahead: int
) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {EARLY: 3, LAST: 2, LAST + 1: 1})
    async with joined(path, tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
        await eventually(lambda: LAST in noted(path) and may_go(path)[0])
    late = comes_late(path, ahead)
    assert not may_go(path)[ahead != 0]  # before a source has seen it
    if ahead == 0:
        async with live_source(path) as source:
            await check_uncovered(path, source, late)
        check_kept(path, late)


async def test_a_peer_that_proves_nothing_stops_and_then_only_claims(
    tmp_path: Path, written: Excerpts
) -> None:
    """As Java's."""
    path = tmp_path / "q"
    async with live_source(path) as source:
        async with scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(0)
            await sink.send(peer.end_of_stream(cid))
            await sink.hear("re", len(written))
            await sink.send(peer.acknowledgement(written[-1][0], cid=cid))
            await acked(source, written[-1][0])
            late = comes_late(path, 0)
            await stopped(source)
            assert {each.reason for each in source.stops} == {StopReason.DIVERGED}
            await sink.send(peer.acknowledgement(written[-1][0], cid=cid))
            await check_uncovered(path, source, late)
        async with scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(written[-1][0] + 1)
            await sink.send(peer.end_of_stream(cid))
            await eventually(lambda: bool(source.queues["q"].streams))
            await check_uncovered(path, source, late)
    check_kept(path, late)


async def test_a_copy_without_the_begin_goes_on_where_that_is_accepted(
    tmp_path: Path, invoke: Invoke
) -> None:
    """A copy from a backup of the later store files alone."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 3, EARLY: 3, LAST: 2})
    fill(copy, "FAST_DAILY", {0: 3, EARLY: 3, LAST: 2})
    noon_path(copy).unlink()
    before = read(copy)
    async with joined(path, copy, on_divergence="quarantine") as (source, sink):
        await stopped(source)
        await stopped(sink)
        (stop,) = sink.stops
        assert stop.reason is StopReason.DIVERGED
        assert "cqrepl repair COPY --accept-begin --apply" in stop.message
        assert "--quarantine" not in stop.message
    assert read(copy) == before == written[3:]
    assert not (copy / "quarantine").exists()
    said = invoke("repair", copy, "--accept-begin")
    first = format_index(noon_index(ahead=EARLY))
    assert said.stdout == (
        f"{copy}: what its source has before {first} is to count as taken off, nothing was changed:"
        " --apply does it\n"
    )
    async with joined(path, copy) as (source, _):
        await stopped(source)
    said = invoke("repair", copy, "--accept-begin", "--apply")
    assert said.stdout == f"{copy}: what its source has before {first} counts as taken off\n"
    async with joined(path, copy) as (source, sink):
        await acked(source, written[-1][0])
        assert not source.stops
    said = invoke("repair", copy, "--accept-begin", "--apply")
    assert said.stdout == f"{copy}: nothing is to be accepted below its first excerpt\n"
    assert invoke("verify", copy).exit_code == 0


async def test_a_host_that_passes_a_queue_on_says_why_it_goes_no_further(tmp_path: Path) -> None:
    """Its copy is whole, and so is the one behind: those two go on to agree."""
    async with three(tmp_path) as (chain, hosts):
        await copied(chain.at(1), chain.at(3))
        made = tmp_path / "late"
        fill(made, "FAST_DAILY", {-1: 3, 0: 1})
        noon_path(made, ahead=-1).rename(noon_path(chain.at(1), ahead=-1))
        await eventually(lambda: any("--accept-begin" in str(each) for each in hosts[1].stops))
        assert {each.reason for each in hosts[1].stops} == {StopReason.DIVERGED}
        late = noon_index(ahead=-1, sequence=2)
        check_kept(chain.at(1), late)
        assert read(chain.at(2)) == read(chain.at(3)) == read(chain.at(1))[3:]


async def test_no_good_copy_goes_to_quarantine(tmp_path: Path, written: Excerpts) -> None:
    """One that begins behind what came late between others, as it was begun from later files."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(copy, "FAST_DAILY", {EARLY: 3, LAST: 2})
    noon_path(copy, ahead=EARLY).unlink()
    with Queue.open(copy) as queue:
        below = Cycle(queue.cycles.listing()[0] - 1)
        queue.cycles.closed.remember(ClosedCycle(below, 0, UNKNOWN_CHAIN))
        queue.cycles.closed.note_below(queue.cycles.listing()[0])
    async with joined(path, copy, on_divergence="quarantine") as (source, sink):
        await acked(source, written[-1][0])
        comes_late(path, LATE["between them"])
        await eventually(lambda: bool(source.stops) and bool(sink.stops))
    assert read(copy) == written[3:]
    assert not (copy / "quarantine").exists()
