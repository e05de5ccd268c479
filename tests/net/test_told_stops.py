"""A stop on one side is told to the other, with its reason."""

from pathlib import Path

import pytest
import trio

from cqrepl.protocol import StopReason
from cqrepl.protocol.messages.excerpts import write_stopped
from cqrepl.protocol.queuelife import CopyState
from tests.net.test_withdrawals import scripted
from tests.support.peer import data, register, select, sink_handler
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


@pytest.mark.parametrize("said", ["stopped", "ended"])
async def test_a_word_of_another_source_changes_nothing_for_a_queue_that_streams(
    said: str, tmp_path: Path
) -> None:
    """It offers the queue, and says in the same breath that it goes no further, or not now."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    words = {
        "stopped": select(5) + write_stopped("damaged", "my own copy is damaged"),
        "ended": select(5) + data(ended="my own copy cannot be read now"),
    }
    async with joined(tmp_path / "q", tmp_path / "copy", source_dials=True) as (source, sink):
        await acked(source, written[-1][0])
        queue = sink.queues["q"]
        assert queue.life.state is CopyState.LIVE
        first = register("/replication/q/3", 5, sink_handler(0, name="q"))
        async with scripted(sink.port, 2, 3, first + words[said]) as (_, heard):
            await eventually(lambda: len(sink.endpoint.sessions) == 2)
            await eventually(lambda: b"QueuesHandler" in heard)
            await trio.sleep(0.2)  # what it would do with such a word it has done by then
            assert queue.life.state is CopyState.LIVE
            assert not sink.stops
