"""A closed store file that goes, or becomes an older one, while hosts run: both sides are told."""

from functools import partial
from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue.files.closedcycles import ClosedCycles
from cqrepl.replicator import syncer
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from tests.support.replicas import acked, eventually, joined, stopped
from tests.support.samples import fill, noon_path, read

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 30, 2: 7, 3: 2}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)


def lose(path: Path, how: str) -> Path:
    """A file in the middle; its path."""
    file = noon_path(path, ROLL, ahead=1)
    file.unlink()
    if how == "older":
        fill(path.parent / "older", ROLL, {1: 9})
        noon_path(path.parent / "older", ROLL, ahead=1).rename(file)
    return file


async def until_noted(*sides: Source | Sink) -> None:
    for side in sides:
        closed = side.queues["q"].queue.cycles.closed
        await eventually(partial(has_all, closed))


def has_all(closed: ClosedCycles) -> bool:
    return len(closed.load()) == len(COUNTS) - 1


@pytest.mark.parametrize("how", ["gone", "older"])
async def test_of_the_source(tmp_path: Path, how: str) -> None:
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        await until_noted(source)
        file = lose(tmp_path / "q", how)
        await stopped(source)
        await eventually(lambda: bool(sink.stops))
        (ours,), (told,) = source.stops, sink.stops
        assert ours.reason is told.reason is StopReason.DAMAGED
        assert f"{file}: expected 30 excerpts" in ours.message
        assert ours.message in told.message
        assert sink.queues["q"].stop is None  # another source may have it all


@pytest.mark.parametrize("how", ["gone", "older"])
async def test_of_a_copy(tmp_path: Path, how: str) -> None:
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        await until_noted(sink)
        file = lose(tmp_path / "copy", how)
        await stopped(sink)
        await eventually(lambda: bool(source.stops))
        (ours,), (told,) = sink.stops, source.stops
        assert ours.reason is told.reason is StopReason.DAMAGED
        assert f"{file}: expected 30 excerpts" in ours.message
        assert ours.message in told.message


async def test_a_new_copy_gets_nothing_from_behind_the_hole(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
        await until_noted(source)
    lose(tmp_path / "q", "gone")
    async with joined(tmp_path / "q", tmp_path / "new") as (source, sink):
        await stopped(source)
        await eventually(lambda: bool(sink.stops))
        assert sink.stops[0].reason is StopReason.DAMAGED
    if any((tmp_path / "new").glob("*.cq4")):  # else the source had looked before it was asked
        got = read(tmp_path / "new")
        assert got == written[: min(len(got), 5)]


async def test_the_queue_goes_on_when_the_file_is_back(tmp_path: Path) -> None:
    """Any copy's file will do: it holds the same excerpts."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
        await until_noted(source)
    file = lose(tmp_path / "q", "gone")
    file.write_bytes(noon_path(tmp_path / "copy", ROLL, ahead=1).read_bytes())
    async with joined(tmp_path / "q", tmp_path / "new") as (source, _):
        await acked(source, written[-1][0])
        assert not source.stops
