"""A host reads behind the stream what is in its files, and holds each copy against its source."""

from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.chainfile import CHAIN_SUFFIX, load_chain_file
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME, ClosedCycles
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME
from cqrepl.queue.format.index import format_index
from cqrepl.queue.read import chains
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import serve_source
from tests.support.replicas import (
    acked,
    copied,
    eventually,
    gated_audits,
    joined,
    live_sink,
    stopped,
)
from tests.support.samples import flip_byte, layout, noon_index, noon_path

COUNT = 3000


def append(path: Path, first: int, count: int, *, ahead: int = 0) -> int:
    """Excerpts that no two are alike of; the last index."""
    data = [b"<%d of %d>" % (n, ahead) for n in range(first, first + count)]
    with Queue.open_for_append(path, create=layout()) as queue:
        index = noon_index(ahead=ahead, sequence=first)
        queue.appender().append_at(ExcerptBatch.of(index, data))
    return index + count - 1


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_what_is_stored_otherwise_than_it_was_sent_is_named(
    tmp_path: Path, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered = gated_audits(monkeypatch)
    append(tmp_path / "q", 0, COUNT)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        for path in ("q", "copy"):
            await eventually((tmp_path / path / SYNCED_FILE_NAME).exists)
        last = append(tmp_path / "q", COUNT, 5)
        await acked(source, last)
        flip_byte(noon_path(tmp_path / side), b"<%d of 0>" % (COUNT + 2), 2)
        altered.set()
        await stopped(source)
        await stopped(sink)
        where = format_index(noon_index(sequence=COUNT + 2))
        for stop in (*source.stops, *sink.stops):
            assert stop.reason is StopReason.DIVERGED
            assert f"diverged at {where}: stored " in stop.message
        # what it has acknowledged it does not hold: gc keeps that at the source
        await eventually(lambda: source.queues["q"].marks[2].acknowledged < last)


async def test_so_is_what_is_in_a_cycle_that_has_ended_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered = gated_audits(monkeypatch)
    append(tmp_path / "q", 0, 5)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await eventually((tmp_path / "copy" / SYNCED_FILE_NAME).exists)
        append(tmp_path / "q", 0, 3, ahead=1)
        await acked(source, append(tmp_path / "q", 0, 4, ahead=3))
        flip_byte(noon_path(tmp_path / "copy", ahead=1), b"<1 of 1>", 1)
        altered.set()
        await stopped(source)
        where = format_index(noon_index(ahead=1, sequence=1))
        assert f"diverged at {where}: stored " in source.stops[0].message


def has_read(sink: Sink, last: int) -> bool:
    """True when a sink has read what it has stored, up to an index."""
    return sink.queues["q"].disk.audited > last


async def test_what_is_as_it_was_sent_goes_on(tmp_path: Path) -> None:
    append(tmp_path / "q", 0, 50)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        for first in range(50, 100, 10):
            last = append(tmp_path / "q", first, 10)
            await acked(source, last)
            await eventually(partial(has_read, sink, last))
        await acked(source, append(tmp_path / "q", 0, 10, ahead=1))
        assert not source.stops
        assert not sink.stops


def is_noted_behind(path: Path, sequence: int) -> bool:
    """True when a chain file reaches beyond an excerpt of the first cycle."""
    found = load_chain_file(noon_path(path).with_suffix(CHAIN_SUFFIX))
    return found is not None and any(at > sequence for at, _ in found.points)


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_what_was_altered_between_two_runs_is_found_beside_the_stream(
    tmp_path: Path, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last stretch is read before a stream begins, however much there is."""
    monkeypatch.setattr(chains, "BATCH_BYTES", 2000)
    append(tmp_path / "q", 0, COUNT)
    with monkeypatch.context() as patch:
        patch.setattr(syncer, "LOOK_SECONDS", 0.1)
        async with joined(tmp_path / "q", tmp_path / "copy"):
            await copied(tmp_path / "q", tmp_path / "copy")
            for path in (tmp_path / "q", tmp_path / "copy"):
                await eventually(partial(is_noted_behind, path, 700))
    flip_byte(noon_path(tmp_path / side), b"<700 of 0>", 2)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await eventually(lambda: bool(source.stops and sink.stops))
        for stop in (*source.stops, *sink.stops):
            assert stop.reason is StopReason.DAMAGED
            assert "at least one altered" in stop.message


async def noted(tmp_path: Path) -> None:
    """A source of three cycles and its copy, which have both noted what is closed."""
    append(tmp_path / "q", 0, COUNT)
    append(tmp_path / "q", 0, 50, ahead=1)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, append(tmp_path / "q", 0, 4, ahead=3))
        for path in ("q", "copy"):
            await eventually((tmp_path / path / CLOSED_FILE_NAME).exists)


def digests(path: Path) -> list[bytes]:
    """The digests that are noted of closed cycles, the lowest cycle first."""
    return [record.sha256 for _, record in sorted(ClosedCycles(path).load().items())]


async def test_both_sides_note_a_digest_of_what_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same one, as the copies are the same."""
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.1)
    await noted(tmp_path)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await eventually(lambda: all(digests(tmp_path / "q") + digests(tmp_path / "copy")))
        assert not source.stops + sink.stops
    assert len(digests(tmp_path / "q")) == 2
    assert digests(tmp_path / "q") == digests(tmp_path / "copy")


@pytest.mark.parametrize("side", ["q", "copy"])
@pytest.mark.parametrize("has_points", [True, False], ids=["known places", "the end alone"])
async def test_closed_store_files_are_read_again_and_again(
    tmp_path: Path, side: str, has_points: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On request: what is changed while a host runs is found while it runs."""
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)
    await noted(tmp_path)
    if not has_points:
        for file in tmp_path.glob(f"*/*{CHAIN_SUFFIX}"):
            file.unlink()
    async with serve_source(
        {"q": tmp_path / "q"}, listen="127.0.0.1:0", scrub_bytes_per_s=10**9
    ) as source:
        async with live_sink(tmp_path / "copy", source.port, scrub_bytes_per_s=10**9) as sink:
            await acked(source, append(tmp_path / "q", 4, 4, ahead=3))
            await trio.sleep(0.5)
            assert not (source.stops)
            assert not (sink.stops)
            flip_byte(noon_path(tmp_path / side, ahead=1), b"<33 of 1>", 2)
            await eventually(lambda: bool(source.stops and sink.stops))
            for stop in (*source.stops, *sink.stops):
                assert stop.reason is StopReason.DAMAGED
                assert "at least one altered" in stop.message
                assert noon_path(tmp_path / side, ahead=1).name in stop.message


@pytest.mark.parametrize("nth", [5, COUNT - 1], ids=["early", "the last"])
@pytest.mark.parametrize("is_new", [True, False], ids=["a new sink", "its sink"])
async def test_the_side_that_was_altered_is_named_not_its_copy(
    tmp_path: Path, nth: int, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word of a side file is no reason to blame a copy of what is there."""
    monkeypatch.setattr(chains, "BATCH_BYTES", 2000)
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.5)
    await noted(tmp_path)
    flip_byte(noon_path(tmp_path / "q"), b"<%d of 0>" % nth, 2)
    copy = tmp_path / ("new" if is_new else "copy")
    async with joined(tmp_path / "q", copy) as (source, sink):
        await eventually(lambda: bool(source.stops and sink.stops))
        if is_new:  # it holds what is there; who was altered is said
            assert {each.reason for each in source.stops} == {StopReason.DAMAGED}
            assert noon_path(tmp_path / "q").name in source.stops[0].message
        else:
            wanted = {StopReason.DAMAGED, StopReason.DIVERGED}
            assert {each.reason for each in source.stops} <= wanted


@pytest.mark.parametrize("nth", [5, 49], ids=["early", "the last"])
async def test_both_copies_altered_alike_are_not_taken_for_good(tmp_path: Path, nth: int) -> None:
    """They hold the same, and neither holds what it was."""
    await noted(tmp_path)
    for side in ("q", "copy"):
        flip_byte(noon_path(tmp_path / side, ahead=1), b"<%d of 1>" % nth, 2)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await eventually(lambda: bool(source.stops and sink.stops))
        assert {each.reason for each in (*source.stops, *sink.stops)} == {StopReason.DAMAGED}
