"""Closed cycles that are lost or damaged come from another host, and nothing else does."""

import os
import random
from functools import partial
from pathlib import Path

import pytest

from cqrepl.commands.guestfetch import fetch
from cqrepl.net.address import Address
from cqrepl.net.errors import Refused, Unreachable
from cqrepl.queue import ExcerptBatch, Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import ClosedCycles
from cqrepl.queue.inspection.closedfiles import wanting
from cqrepl.replicator.lostcycles import fetcher, fetchkind
from cqrepl.replicator.lostcycles.fetcher import FOLDER_PREFIX
from cqrepl.replicator.source import Source
from tests.support.copies import assert_same
from tests.support.replicas import acked, eventually, joined, live_sink, live_source
from tests.support.samples import flip_byte, layout, noon_index, noon_path

COUNTS = {0: 300, 1: 40, 2: 3, 3: 4}


def append(path: Path, counts: dict[int, int], word: bytes = b"of") -> int:
    """Excerpts that no two are alike of, some of them long; the last index."""
    rng = random.Random(1)
    with Queue.open_for_append(path, create=layout()) as queue:
        for ahead, count in counts.items():
            data = [b"<%d %s %d>" % (n, word, ahead) for n in range(count)]
            data[0] += rng.randbytes(200_000)
            data[-1] = b""
            index = noon_index(ahead=ahead)
            queue.appender().append_at(ExcerptBatch.of(index, data))
    return index + count - 1


def has_noted(closed: ClosedCycles, count: int) -> bool:
    """True when so many cycles are noted."""
    return len(closed.load()) == count


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Of a copy whose source is in `q`; both have noted their closed cycles."""
    last = append(tmp_path / "q", COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
        for side in ("q", "copy"):
            await eventually(partial(has_noted, ClosedCycles(tmp_path / side), 3))
    return tmp_path / "copy"


def wanted(path: Path) -> list[int]:
    with Queue.open(path) as queue:
        first = queue.cycles.listing()[0]
        return [record.cycle - first for record in wanting(queue.cycles)]


async def fetched(path: Path, source: Source, name: str = "q", host_id: int = 1) -> None:
    assert source.port is not None
    with Queue.open(path) as queue:
        await fetch(queue, wanting(queue.cycles), name, Address("127.0.0.1", source.port), host_id)


def damage(path: Path, how: str) -> None:
    file = noon_path(path, ahead=1)
    match how:
        case "gone":
            file.unlink()
        case "shorter":
            append(path.parent / "less", {1: 20})
            noon_path(path.parent / "less", ahead=1).replace(file)
        case "altered":
            flip_byte(file, b"<7 of 1>", 2)
        case "no store file":
            file.write_bytes(b"nothing of the kind" * 1000)


@pytest.mark.parametrize("how", ["gone", "shorter", "altered", "no store file"])
async def test_what_is_lost_comes_back(tmp_path: Path, path: Path, how: str) -> None:
    assert wanted(path) == []
    damage(path, how)
    assert wanted(path) == [1]
    async with live_source(tmp_path / "q") as source:
        await fetched(path, source)
        assert wanted(path) == []
        assert_same(tmp_path / "q", path)
        assert not any(path.glob(f"{FOLDER_PREFIX}*"))
        assert (path / "quarantine").exists() == (how != "gone")
        # it is a copy as before
        async with live_sink(path, source.port) as sink:
            with Queue.open_for_append(tmp_path / "q") as queue:
                index = queue.append(b"more")
            await acked(source, index)
            assert not sink.stops


async def test_what_a_killed_one_left_goes(tmp_path: Path, path: Path) -> None:
    damage(path, "gone")
    left, at_work, users = (
        path / name for name in (f"{FOLDER_PREFIX}a", f"{FOLDER_PREFIX}b", "fetched")
    )
    for folder in (left, at_work, users):
        folder.mkdir()
        (folder / "note.txt").write_text("x")
    held = fetcher._hold(at_work)
    async with live_source(tmp_path / "q") as source:
        await fetched(path, source)
    os.close(held)
    assert wanted(path) == []
    assert [folder.exists() for folder in (left, at_work, users)] == [False, True, True]


async def test_a_sink_gives_too(tmp_path: Path, path: Path) -> None:
    damage(tmp_path / "q", "gone")
    async with live_source(tmp_path / "q") as source:  # it has nothing to give of its own
        assert source.port is not None
    from cqrepl.replicator.sink import serve_sink

    async with serve_sink({"q": path}, listen="127.0.0.1:0") as sink:
        assert sink.port is not None
        with Queue.open(tmp_path / "q") as queue:
            await fetch(queue, wanting(queue.cycles), "q", Address("127.0.0.1", sink.port), 2)
    assert_same(tmp_path / "q", path)


@pytest.mark.parametrize(
    ("name", "lost_there", "why"),
    [
        ("other", False, "there is no queue of this name here"),
        ("q", True, "it has no store file of this cycle"),
    ],
)
async def test_what_is_not_there_is_refused(
    tmp_path: Path, path: Path, name: str, lost_there: bool, why: str
) -> None:
    damage(path, "gone")
    async with live_source(tmp_path / "q") as source:
        if lost_there:
            noon_path(tmp_path / "q", ahead=1).unlink()
        with pytest.raises(Refused, match=why):
            await fetched(path, source, name)
    assert not any(path.glob(f"{FOLDER_PREFIX}*"))
    assert wanted(path) == [1]


async def test_a_store_file_that_is_still_written_to_is_refused(tmp_path: Path, path: Path) -> None:
    """More of it may come: the asking host would have closed what its source has not."""
    damage(path, "gone")
    less = tmp_path / "less" / "q"
    append(less, {0: 300, 1: 40})
    async with live_source(less) as source:
        with pytest.raises(Refused, match="its store file is still written to"):
            await fetched(path, source)
    assert wanted(path) == [1]


async def test_what_is_something_else_is_not_taken(tmp_path: Path, path: Path) -> None:
    damage(path, "altered")
    before = noon_path(path, ahead=1).read_bytes()
    append(tmp_path / "unlike" / "q", COUNTS, b"unlike")
    async with live_source(tmp_path / "unlike" / "q") as source:
        with pytest.raises(QueueDamaged, match="expected the 40 excerpts that were noted"):
            await fetched(path, source)
    assert noon_path(path, ahead=1).read_bytes() == before
    assert not any(path.glob(f"{FOLDER_PREFIX}*"))


async def test_a_host_that_gives_more_is_not_listened_to(tmp_path: Path, path: Path) -> None:
    damage(path, "gone")
    append(tmp_path / "more" / "q", COUNTS | {1: 41})
    async with live_source(tmp_path / "more" / "q") as source:
        with pytest.raises(QueueDamaged, match="the other host gives more"):
            await fetched(path, source)
    assert not any(path.glob(f"{FOLDER_PREFIX}*"))


async def test_a_host_that_says_nothing_is_not_waited_for(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(path, "gone")
    monkeypatch.setattr(fetcher, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(fetchkind._Giver, "produce", lambda *_: b"")
    async with live_source(tmp_path / "q") as source:
        with pytest.raises(Unreachable, match="nothing of a store file came"):
            await fetched(path, source)
    assert not any(path.glob(f"{FOLDER_PREFIX}*"))
