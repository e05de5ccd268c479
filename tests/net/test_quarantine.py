"""Two copies that diverged, and one of them is told to be wrong: they are equal again."""

import re
from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.quarantine import quarantine
from tests.support.copies import assert_same
from tests.support.replicas import acked, eventually, joined, stopped
from tests.support.samples import fill, layout, noon_index, read


def append(path: Path, ahead: int, first: int, payloads: list[bytes]) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append_at(
            ExcerptBatch.of(noon_index(ahead=ahead, sequence=first), payloads)
        )


@pytest.mark.parametrize("loser", ["q", "copy"])
@pytest.mark.parametrize("has_rolled", [False, True])
async def test_the_other_copy_counts(tmp_path: Path, loser: str, has_rolled: bool) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 300})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    append(tmp_path / "q", 0, 300, [b"mine", b"too"])
    append(tmp_path / "copy", 0, 300, [b"theirs", b"as well", b"longer"])
    if has_rolled:
        append(tmp_path / "q", 2, 0, [b"later"])
        append(tmp_path / "copy", 1, 0, [b"sooner", b"and more"])
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        await stopped(sink)
        assert source.stops[0].reason is StopReason.DIVERGED
        told = re.search(r"--quarantine (0x[0-9a-f]+)", sink.stops[0].message)
        assert told is not None, sink.stops[0].message
    index = int(told[1], 16)
    assert index == noon_index(sequence=300)
    winner = read(tmp_path / ("copy" if loser == "q" else "q"))
    lost = [each for each in read(tmp_path / loser) if each[0] >= index]
    done = quarantine(tmp_path / loser, index)
    assert read(done.folder, index) == lost
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        if loser == "copy":
            await acked(source, winner[-1][0])
        else:
            await eventually(lambda: read(tmp_path / "q") == winner)
        assert not source.stops
        assert not sink.stops
    assert read(tmp_path / "q") == read(tmp_path / "copy") == winner
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_a_copy_is_taken_anew(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 300, 1: 4})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 20, 3: 4})
    quarantine(tmp_path / "copy", None)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    assert read(tmp_path / "copy") == written
