"""A sink that may: what it has otherwise than its source goes to quarantine, and comes again."""

from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME
from cqrepl.queue.format.index import format_index
from tests.support.copies import assert_same
from tests.support.replicas import (
    acked,
    copied,
    eventually,
    gated_audits,
    joined,
    last_of,
    live_sink,
    live_source,
    more_excerpts,
    opened_by_another_process,
    stopped,
)
from tests.support.samples import fill, flip_byte, noon_index, noon_path, read


@pytest.fixture
def histories(tmp_path: Path) -> tuple[Path, Path]:
    """A queue of 70 excerpts and one of 60, which differ from the 51st on."""
    for name, count in (("q", 20), ("copy", 10)):
        fill(tmp_path / name, "FAST_DAILY", {0: 50})
        more_excerpts(tmp_path / name, 50, count, seed=count)
    return tmp_path / "q", tmp_path / "copy"


async def test_the_other_history_is_put_aside(histories: tuple[Path, Path]) -> None:
    path, copy = histories
    before = read(copy)
    async with live_source(path) as source:
        async with live_sink(copy, source.port, on_divergence="quarantine") as sink:
            await copied(path, copy)
            more_excerpts(path, 70, 5)
            await acked(source, last_of(path) or 0)
            assert (source.stops, sink.stops) == ([], [])
    assert_same(path, copy)
    (folder,) = (copy / "quarantine").iterdir()
    assert folder.name == f"{format_index(noon_index(sequence=50))}-1"
    assert read(folder)[-10:] == before[-10:]


async def test_without_the_word_both_stop(histories: tuple[Path, Path]) -> None:
    path, copy = histories
    before = read(copy)
    async with live_source(path) as source, live_sink(copy, source.port) as sink:
        await stopped(source)
        await stopped(sink)
        assert {stop.reason for stop in (*source.stops, *sink.stops)} == {StopReason.DIVERGED}
    assert read(copy) == before
    assert not (copy / "quarantine").exists()


async def test_what_is_stored_otherwise_than_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 50})
    altered = gated_audits(monkeypatch)
    async with joined(path, copy, on_divergence="quarantine") as (source, sink):
        for each in (path, copy):
            await eventually((each / SYNCED_FILE_NAME).exists)
        word = b"a payload like no other"
        with Queue.open_for_append(path) as queue:
            queue.appender().append_at(ExcerptBatch.of(noon_index(sequence=50), [word]))
        await acked(source, noon_index(sequence=50))
        flip_byte(noon_path(copy), word, 2)
        altered.set()
        await eventually((copy / "quarantine").exists)
        await eventually(lambda: not source.stops)
        await copied(path, copy)
        assert not sink.stops


async def test_another_process_that_reads_it_is_waited_for(
    histories: tuple[Path, Path],
) -> None:
    path, copy = histories
    async with live_source(path) as source:
        with opened_by_another_process(copy, "queue.next_index()") as pid:
            async with live_sink(copy, source.port, on_divergence="quarantine") as sink:
                await eventually(lambda: sink.queues["q"].is_waiting_for_quarantine)
                await eventually(lambda: str(pid) in str(sink.queues["q"].life.trouble))
                assert not (copy / "quarantine").exists()
        async with live_sink(copy, source.port, on_divergence="quarantine"):
            await copied(path, copy)
