"""A first index that is of a day far from the sink's clock stops the queue, before a file is made.

A Java source does not say how its queue rolls: `tests/interop/test_network_java.py` has a real one.
"""

from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import LayoutMismatch, QueueLayout
from cqrepl.queue.format.index import Cycle, Index, Sequence, index_of
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.firstindex import check_first_index
from cqrepl.replicator.sink import serve_sink
from tests.support import peer
from tests.support.replicas import stopped
from tests.support.samples import NOON_MS
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
        with pytest.raises(LayoutMismatch):
            check_first_index(index, layout, NOON_MS, tmp_path)


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


async def test_a_later_index_is_not_asked(tmp_path: Path) -> None:
    """What comes behind the first may jump: the source has it so."""
    async with serve_sink([tmp_path / "q"], listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await source.offer("q", CID)
            for ms in (NOON_MS, NOON_MS + 40_000 * _DAY_MS):
                index = index_in("FAST_DAILY", ms)
                await source.send(peer.excerpts(index, b"x", cid=CID))
            await source.hear("idx", 2)
        assert not sink.stops


async def test_a_file_that_is_there_is_filled_on(tmp_path: Path) -> None:
    copy = tmp_path / "q"
    first = index_in("FAST_HOURLY", NOON_MS)
    for any_cycle, sequence in ((True, 0), (False, 1)):
        async with serve_sink([copy], listen=LOOPBACK, any_cycle=any_cycle) as sink:
            async with scripted(sink.port, 1, 2) as source:
                await source.offer("q", CID, first + sequence if sequence else 0)
                await source.send(peer.excerpts(first + sequence, b"x", cid=CID))
                await source.hear("idx")
