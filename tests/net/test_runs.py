"""Runs between a source and a sink: what goes as a run, and that copies are the same."""

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from tests.support.copies import assert_same
from tests.support.relay import Relay, forward_all
from tests.support.replicas import (
    acked,
    copied,
    live_sink,
    live_source,
    received,
)
from tests.support.samples import fill, noon_index, read
from wire import Reader, WireError

RUNS: dict[str, Any] = {"runs": True}


def names(relay: Relay, sender: str) -> Counter[str]:
    """The number of data documents of each name that one side has sent."""
    found: Counter[str] = Counter()
    for entry in relay.entries:
        if entry.direction.startswith(sender) and entry.kind == "data":
            try:
                found[Reader(entry.raw[4:]).read_name() or ""] += 1
            except WireError:
                found["?"] += 1
    return found


def written(path: Path, payloads: list[bytes]) -> int:
    """A new queue; the index of the last excerpt."""
    batch = ExcerptBatch.of(noon_index(), payloads)
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        queue.appender().append_at(batch)
    return batch.index_last


@pytest.mark.parametrize("source_runs", [True, False])
@pytest.mark.parametrize("sink_runs", [True, False])
async def test_only_between_peers_that_both_have_them(
    tmp_path: Path, source_runs: bool, sink_runs: bool
) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    last = fill(original, "FAST_DAILY", {0: 3000, 2: 40})[-1][0]
    async with live_source(original, runs=source_runs) as source:
        async with Relay(source.port, on_document=forward_all).running() as relay:
            async with live_sink(copy, relay.port, runs=sink_runs) as sink:
                await acked(source, last)
                await received(sink, 3040)
    said = names(relay, "source")
    if source_runs and sink_runs:
        assert said["run"] > 0
        assert said["re"] < 100
    else:
        assert (said["run"], said["re"]) == (0, 3040)
    assert read(copy) == read(original)
    assert_same(original, copy)


async def test_excerpts_of_all_lengths(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    lengths = [1, 2, 3, 4, 5, 0, 300_000, 70_000, 7, 8, 65_535, 65_536, *range(1, 600)]
    last = written(original, [bytes([1 + at % 251]) * each for at, each in enumerate(lengths)])
    async with live_source(original, **RUNS) as source:
        async with live_sink(copy, source.port, **RUNS):
            await acked(source, last)
    assert read(copy) == read(original)
    assert_same(original, copy)


async def test_across_index_pages_and_what_comes_later(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    last = fill(original, "TEST2_DAILY", {0: 150, 1: 30})[-1][0]
    async with live_source(original, **RUNS) as source:
        async with live_sink(copy, source.port, **RUNS):
            await acked(source, last)
            for _ in range(5):
                last = more(original, 50)
                await acked(source, last)
    assert read(copy) == read(original)
    assert_same(original, copy)


async def test_several_sinks_of_which_one_begins_in_the_middle(tmp_path: Path) -> None:
    original, copies = tmp_path / "q", [tmp_path / f"copy{number}" for number in range(4)]
    last = fill(original, "FAST_DAILY", {0: 30_000, 1: 700})[-1][0]
    with Queue.open(original) as queue:
        begin = queue.tailer().next_batch(count_max=1501)
        assert begin is not None
        with Queue.open_for_append(copies[0], create=queue.layout) as begun:
            begun.appender().append_at(begin)
    async with live_source(original, **RUNS) as source, AsyncExitStack() as sinks:
        for number, copy in enumerate(copies):
            sink = live_sink(copy, source.port, host_id=2 + number, **RUNS)
            await sinks.enter_async_context(sink)
        for copy in copies:
            await copied(original, copy)
        last = more(original, 5000)
        await acked(source, last)
        for copy in copies:
            await copied(original, copy)
    for copy in copies:
        assert read(copy) == read(original)
        assert_same(original, copy)


def more(path: Path, count: int) -> int:
    """Excerpts behind those that are there; the index of the last one."""
    with Queue.open_for_append(path) as queue:
        batch = ExcerptBatch.of(queue.next_index(), [b"%d" % at for at in range(count)])
        queue.appender().append_at(batch)
    return batch.index_last
