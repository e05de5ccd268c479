"""The counters of a role: one place for a queue, whichever way the excerpts went."""

from pathlib import Path

import pytest

from cqrepl.net import sharedsocket
from cqrepl.queue import Queue
from cqrepl.replicator.marks.counters import NOTHING, Tally
from tests.support.replicas import acked, eventually, live_sink, live_source, more_excerpts
from tests.support.samples import Excerpts, fill


def tally(written: Excerpts, times: int = 1) -> Tally:
    """The counters after so many transfers of these excerpts."""
    return Tally(times * len(written), times * sum(len(data) for _, data in written))


@pytest.mark.parametrize("has_pump", [True, False], ids=["usual", "without a live pump"])
async def test_all_numbers_agree_with_what_is_in_the_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pump: bool
) -> None:
    if not has_pump:
        monkeypatch.setattr(sharedsocket, "pump_for", lambda *_: None)
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 700, 1: 40})
    async with live_source(path) as source, live_sink(tmp_path / "copy", source.port) as sink:
        await acked(source, written[-1][0])
        sent = source.queues["q"].counters.drained()
        assert sent.sent == sent.acknowledged == tally(written)
        assert sent.index_sent == sent.index_acknowledged == written[-1][0]
        assert sink.queues["q"].counters.drained().received == tally(written)
        with Queue.open(path) as queue:
            assert queue.sent_index == sent.index_sent
            assert queue.acknowledged_index == sent.index_acknowledged


async def test_two_sinks_count_together(tmp_path: Path) -> None:
    """The mark is that of the sink that is further; the sums are of both."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 300})
    async with live_source(path) as source:
        counters = source.queues["q"].counters
        assert (counters.index_sent, counters.index_acknowledged) == (NOTHING, NOTHING)
        async with (
            live_sink(tmp_path / "one", source.port, host_id=2),
            live_sink(tmp_path / "other", source.port, host_id=3),
        ):
            await eventually(lambda: counters.drained().acknowledged == tally(written, times=2))
            assert counters.sent == tally(written, times=2)
            assert counters.index_acknowledged == written[-1][0]


async def test_what_a_sink_had_before_moves_the_mark_alone(tmp_path: Path) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 100})
    assert fill(copy, "FAST_DAILY", {0: 100}) == written
    async with live_source(path) as source, live_sink(copy, source.port) as sink:
        await acked(source, written[-1][0])
        counters = source.queues["q"].counters.drained()
        assert counters.acknowledged == counters.sent == Tally()
        more = more_excerpts(path, 100, 20)
        await acked(source, more[-1][0])
        assert counters.drained().acknowledged == tally(more)
        assert sink.queues["q"].counters.drained().received == tally(more)
