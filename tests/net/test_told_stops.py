"""A stop on one side is told to the other, with its reason."""

from pathlib import Path

import pytest
import trio

from cqrepl.protocol import StopReason
from tests.support.replicas import acked, eventually, joined, stopped
from tests.support.samples import fill, noon_path


async def test_a_sink_that_refuses_says_so_at_once(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    fill(tmp_path / "copy", "FAST_HOURLY", {0: 1})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(sink)
        await eventually(lambda: bool(source.stops))
        (told,) = source.stops
        assert told.reason is StopReason.REFUSED
        assert told.message.startswith("the peer says: ")
        assert sink.stops[0].message in told.message
        with trio.move_on_after(0.2):  # another sink may do better
            await source.wait_stopped()
            raise AssertionError


async def test_a_source_that_cannot_read_on_says_so(tmp_path: Path) -> None:
    """Excerpts sent before are acknowledged; the sink waits for a source that can read on."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        file = noon_path(tmp_path / "q")
        with file.open("r+b") as damaged:
            content = file.read_bytes()
            at_end = content.rindex(written[-1][1]) + len(written[-1][1])
            damaged.seek(at_end + -at_end % 4)
            damaged.write((0x3FFFFFFE).to_bytes(4, "little"))
        await stopped(source)
        await eventually(lambda: bool(sink.stops))
        (told,) = sink.stops
        assert told.reason is source.stops[0].reason is StopReason.DAMAGED
        assert str(file) in told.message
        assert sink.queues["q"].life.stop is None


@pytest.mark.parametrize("reason", ["gap", "no such reason"])
def test_reasons_from_the_wire(reason: str) -> None:
    expected = StopReason.GAP if reason == "gap" else StopReason.FAILED
    assert StopReason.said(reason) is expected
