"""A first index that is of a day far from the sink's clock stops the queue, before a file is made.

A Java source does not say how its queue rolls: `tests/interop/test_network_java.py` has a real one.
"""

from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import LayoutMismatch, Queue, QueueLayout
from cqrepl.queue.format.index import Cycle, Index, Sequence, index_of
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.agreement.firstindex import (
    AHEAD_FILES_MAX,
    ClockBehind,
    CyclesAhead,
    check_first_index,
)
from cqrepl.replicator.sink import serve_sink
from cqrepl.surroundings import surroundings
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.replicas import acked, eventually, live_sink, live_source, stopped
from tests.support.samples import NOON_MS, layout
from tests.support.scripted import scripted

CID = 901
LOOPBACK = "127.0.0.1:0"
_DAY_MS = 86_400_000


def index_in(name: str, ms: int) -> Index:
    """The first index of the cycle of a moment."""
    roll_cycle = by_name(name)
    return index_of(roll_cycle.cycle_at(ms, 0), Sequence(0), roll_cycle.shift)


@pytest.mark.parametrize(
    ("name", "cycles_ahead", "is_taken"),
    [
        ("FAST_DAILY", 1, True),
        ("FAST_DAILY", 2, False),
        ("FAST_HOURLY", 1, True),
        ("FAST_HOURLY", 2, False),
        ("MINUTELY", 55, True),  # clocks of two hosts differ
        ("MINUTELY", 65, False),
        ("FAST_DAILY", -3650, True),
        ("FAST_DAILY", -3655, False),
    ],
)
def test_how_far_it_may_be(tmp_path: Path, name: str, cycles_ahead: int, is_taken: bool) -> None:
    layout = QueueLayout.of(by_name(name))
    index = index_in(name, NOON_MS + cycles_ahead * layout.roll_cycle.length_ms)
    if is_taken:
        check_first_index(index, layout, NOON_MS, tmp_path)
    else:
        with pytest.raises(ClockBehind if cycles_ahead > 0 else LayoutMismatch):
            check_first_index(index, layout, NOON_MS, tmp_path)


def test_a_queue_that_has_excerpts_is_of_the_roll_cycle_that_it_has(tmp_path: Path) -> None:
    """So an index of times to come tells of a clock, also where it would fit another roll cycle."""
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    index = index_in("FAST_HOURLY", NOON_MS)
    with pytest.raises(ClockBehind, match="is wrong"):
        check_first_index(index, layout, NOON_MS, tmp_path, is_known=True)


def test_the_readings_under_other_roll_cycles(tmp_path: Path) -> None:
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    with pytest.raises(LayoutMismatch) as caught:
        check_first_index(index_in("FAST_HOURLY", NOON_MS), layout, NOON_MS, tmp_path)
    text = str(caught.value)
    assert "FAST_HOURLY (2024-03-05 12:00)" in text
    assert "under FAST_DAILY" in text
    assert str(tmp_path) in text


def test_an_index_of_no_time_at_all(tmp_path: Path) -> None:
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    index = index_of(Cycle((1 << 31) - 1), Sequence(0), layout.roll_cycle.shift)
    with pytest.raises(LayoutMismatch, match="after the year 9999"):
        check_first_index(index, layout, NOON_MS, tmp_path)


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_source_that_says_no_roll_cycle(tmp_path: Path, is_allowed: bool) -> None:
    index = index_in("FAST_HOURLY", NOON_MS)
    copy = tmp_path / "q"
    async with serve_sink([copy], listen=LOOPBACK, any_cycle=is_allowed) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await source.offer("q", CID, cqrepl={})
            await source.send(peer.excerpts(index, b"one", cid=CID))
            if is_allowed:
                await source.hear("idx")
            else:
                await stopped(sink)
                (stop,) = sink.stops
                assert stop.reason is StopReason.REFUSED
                assert "FAST_HOURLY" in stop.message
    assert bool(list(copy.glob("*.cq4"))) == is_allowed


async def test_a_later_index_may_jump(tmp_path: Path) -> None:
    """Excerpts behind the first one keep the indexes that they have at the source."""
    async with serve_sink([tmp_path / "q"], listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await source.offer("q", CID)
            for ms in (NOON_MS, NOON_MS + 40_000 * _DAY_MS):
                index = index_in("FAST_DAILY", ms)
                await source.send(peer.excerpts(index, b"x", cid=CID))
            await source.hear("idx", 2)
        assert not sink.stops


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_t14_thousands_of_files_of_times_to_come(tmp_path: Path, is_allowed: bool) -> None:
    """Each excerpt is of the day after the one before: a few are taken, and then no more."""
    copy, wanted = tmp_path / "q", 3 * AHEAD_FILES_MAX
    now_ms = surroundings().wall_ms()
    async with serve_sink([copy], listen=LOOPBACK, any_cycle=is_allowed) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await source.offer("q", CID)
            for day in range(wanted):
                index = index_in("FAST_DAILY", now_ms + day * _DAY_MS)
                await source.send(peer.excerpts(index, b"x", cid=CID))
            if is_allowed:
                await eventually(lambda: sink.queues["q"].received_excerpts == wanted)
            else:
                await stopped(sink)
                assert "cycles of times to come within 60 s expected" in sink.stops[0].message
    files = len(list(copy.glob("*.cq4")))
    # today's and tomorrow's are not of times to come
    assert files == wanted if is_allowed else files <= AHEAD_FILES_MAX + 3


async def test_t14_short_cycles_go_on(tmp_path: Path) -> None:
    """Hundreds of cycles of a second that are past, and those that come just now."""
    now_ms, original = surroundings().wall_ms(), tmp_path / "q"
    with Queue.open_for_append(original, create=layout("TEST_SECONDLY")) as queue:
        for second in range(-200, 0):
            queue.append(b"past", now_ms=now_ms + second * 1000)
        async with live_source(original) as source, live_sink(tmp_path / "copy", source.port):
            for second in range(30):
                last = queue.append(b"now", now_ms=now_ms + second * 1000)
            await acked(source, last)
    assert_same(original, tmp_path / "copy")


def test_t14_the_limit_is_of_a_minute(tmp_path: Path) -> None:
    ahead, layout_ = CyclesAhead(), QueueLayout.of(by_name("FAST_DAILY"))
    for nth in range(30):
        index = index_in("FAST_DAILY", NOON_MS + (2 + nth) * _DAY_MS)
        now_s = nth // AHEAD_FILES_MAX * 60.0
        ahead.check(index, layout_, NOON_MS, now_s, tmp_path)
    for now_s in (121.0, 179.0):
        with pytest.raises(LayoutMismatch):
            ahead.check(index, layout_, NOON_MS, now_s, tmp_path)
    ahead.check(index_in("FAST_DAILY", NOON_MS), layout_, NOON_MS, 121.0, tmp_path)
