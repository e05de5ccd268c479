"""A closed store file that goes, or becomes an older one, while hosts run: it comes back from the
other side; where that has none, both are told."""

import threading
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.protocol import StopReason
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.subhandler import LinkView, SubHandler
from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import ClosedCycles
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.replicator.disk import diskend, syncer
from cqrepl.replicator.lostcycles import fetcher, fetchkind, lostfiles
from cqrepl.replicator.lostcycles.fetchkind import FetchKind, _Giver
from cqrepl.replicator.lostcycles.lostfiles import LostFiles
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.copies import assert_same
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    TAKEN,
    acked,
    at,
    eventually,
    joined,
    live_sink,
    live_source,
    received,
    stopped,
)
from tests.support.samples import Excerpts, fill, flip_byte, noon_index, noon_path, read

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 30, 2: 7, 3: 2}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(diskend, "FULL_LOOK_SECONDS", 0.5)


def lose(path: Path, how: str, ahead: int = 1) -> Path:
    """A file in the middle; its path."""
    file = noon_path(path, ROLL, ahead=ahead)
    if how == "cut":
        file.write_bytes(b"")
    elif how == "zeros":
        file.write_bytes(bytes(file.stat().st_size))
    else:
        file.unlink()
    if how == "older":
        fill(path.parent / "older", ROLL, {1: 9})
        noon_path(path.parent / "older", ROLL, ahead=1).rename(file)
    return file


def holds(file: Path, count: int) -> bool:
    """True when a store file is there and has so many excerpts."""
    files = inspect_queue(file.parent).files
    return count in [each.count for each in files if each.path == file]


async def until_noted(*sides: Source | Sink) -> None:
    for side in sides:
        closed = side.queues["q"].queue.cycles.closed
        await eventually(partial(has_all, closed))


def has_all(closed: ClosedCycles) -> bool:
    return len(closed.load()) == len(COUNTS) - 1


@pytest.fixture
async def written(tmp_path: Path) -> Excerpts:
    """The excerpts of a queue and its copy, of which both hosts had noted the closed cycles."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as sides:
        await acked(sides[0], written[-1][0])
        await until_noted(*sides)
    return written


@pytest.mark.parametrize(
    ("side", "how"), [("q", "gone"), ("copy", "older"), ("q", "cut"), ("copy", "zeros")]
)
async def test_it_comes_back(
    tmp_path: Path, side: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        await until_noted(source, sink)
        file = lose(tmp_path / side, how)
        await eventually(lambda: "gave back" in caplog.text)
        await eventually(lambda: not source.stops and not sink.stops)
        with Queue.open_for_append(tmp_path / "q") as queue:
            last = queue.append(b"more")
        await acked(source, last)
    assert f"{file}: expected 30 excerpts" in caplog.text  # it was said
    came = f"queue 'q': host {2 if side == 'q' else 1} gave back {file.name} (30 excerpts)"
    assert caplog.messages.count(f"{came}; it is whole again") == 1
    assert_same(tmp_path / "q", tmp_path / "copy")
    aside = list((tmp_path / side).glob("quarantine/*/*.cq4"))
    assert len(aside) == (how != "gone")


@pytest.mark.parametrize(
    ("side", "how"), [("q", "gone"), ("copy", "older"), ("q", "cut"), ("copy", "zeros")]
)
async def test_it_comes_back_at_the_start(
    tmp_path: Path, written: Excerpts, side: str, how: str
) -> None:
    file = lose(tmp_path / side, how)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await eventually(lambda: holds(file, 30))
        with Queue.open_for_append(tmp_path / "q") as queue:
            last = queue.append(b"more")
        await acked(source, last)  # on it goes, also where it could not even be offered
    assert_same(tmp_path / "q", tmp_path / "copy")


@pytest.mark.parametrize(("how", "ahead"), [("gone", 1), ("zeros", 2)])
async def test_a_queue_that_is_known_as_damaged_goes_on(
    tmp_path: Path, written: Excerpts, how: str, ahead: int
) -> None:
    """Before its sink connects: what was not even offered is offered then."""
    file = lose(tmp_path / "q", how, ahead)
    async with live_source(tmp_path / "q") as source:
        await eventually(lambda: bool(source.stops))
        async with live_sink(tmp_path / "copy", source.port):
            await eventually(lambda: holds(file, COUNTS[ahead]))
            with Queue.open_for_append(tmp_path / "q") as queue:
                last = queue.append(b"more")
            await acked(source, last)
    assert_same(tmp_path / "q", tmp_path / "copy")


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_a_look_that_began_before_it_came_back_stops_nothing_for_good(
    tmp_path: Path, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells of the hole when the file is there again."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    file, look = noon_path(tmp_path / side, ROLL, ahead=1), ClosedFiles.look
    take_file, looks, goes_on = LostFiles._take, list[str](), threading.Event()

    def late(closed: ClosedFiles, synced: Index, doubtful: range, seconds: float) -> bool:
        try:
            return look(closed, synced, doubtful, seconds)
        except QueueDamaged as error:
            looks.append(str(error))
            if len(looks) == 2:
                assert goes_on.wait(SECONDS)
            raise

    async def take(lost: LostFiles, name: str, link: LinkView) -> None:
        await eventually(lambda: len(looks) == 2)
        await take_file(lost, name, link)
        goes_on.set()

    async with joined(tmp_path / "q", tmp_path / "copy") as sides:
        await acked(sides[0], written[-1][0])
        await until_noted(*sides)
        monkeypatch.setattr(ClosedFiles, "look", late)
        monkeypatch.setattr(LostFiles, "_take", take)
        lose(tmp_path / side, "gone")
        await eventually(goes_on.is_set)
        assert holds(file, 30)
        with Queue.open_for_append(tmp_path / "q") as queue:
            last = queue.append(b"more")
        await acked(sides[0], last)
    assert_same(tmp_path / "q", tmp_path / "copy")


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_so_does_the_lowest_one_while_it_has_a_name(
    tmp_path: Path, written: Excerpts, side: str
) -> None:
    """Gone, it would be what retention took."""
    file = lose(tmp_path / side, "cut", ahead=0)
    async with joined(tmp_path / "q", tmp_path / "copy"):
        await eventually(lambda: holds(file, 5))
    assert_same(tmp_path / "q", tmp_path / "copy")


@pytest.mark.parametrize(("side", "nth"), [("q", 3), ("copy", 28)])
async def test_so_does_one_that_was_altered_between_two_runs(
    tmp_path: Path, written: Excerpts, side: str, nth: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The note from when it was closed tells which side is wrong: no copy is blamed."""
    payload = next(data for index, data in written if index == noon_index(ROLL, ahead=1) + nth)
    flip_byte(noon_path(tmp_path / side, ROLL, ahead=1), payload, len(payload) // 2)
    async with joined(tmp_path / "q", tmp_path / "copy"):
        await eventually(lambda: "gave back" in caplog.text)
    assert "diverged" not in caplog.text
    assert read(tmp_path / "q") == read(tmp_path / "copy") == written


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_so_does_one_that_is_altered_while_hosts_run(
    tmp_path: Path, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as sides:
        await acked(sides[0], written[-1][0])
        await until_noted(*sides)
        await trio.sleep(4 * syncer.LOOK_SECONDS)  # it was looked at as it is
        flip_byte(noon_path(tmp_path / side, ROLL, ahead=1), written[7][1], 2)
        await eventually(lambda: "gave back" in caplog.text)
    assert "diverged" not in caplog.text
    assert read(tmp_path / "q") == read(tmp_path / "copy") == written


async def test_another_host_has_it(tmp_path: Path) -> None:
    """The source's own sink has lost it too; a second sink has not."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await acked(source, written[-1][0])
            async with live_sink(tmp_path / "other", source.port, host_id=3) as other:
                await received(other, len(written))
                await until_noted(source, sink, other)
        lose(tmp_path / "copy", "gone")
        file = lose(tmp_path / "q", "gone")
        async with live_sink(tmp_path / "copy", source.port):
            await eventually(lambda: bool(source.stops))
            assert not file.exists()
            async with live_sink(tmp_path / "other", source.port, host_id=3):
                await eventually(file.exists)
                await eventually(noon_path(tmp_path / "copy", ROLL, ahead=1).exists)
    for copy in ("copy", "other"):
        assert_same(tmp_path / "q", tmp_path / copy)


async def test_a_host_that_was_given_up_and_goes_on_gives_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that it sends then go into no file that another host gives."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    accept, produce = FetchKind.accept, _Giver.produce
    asked: list[tuple[LinkView, Cid]] = []
    givers: list[object] = []
    begun: list[object] = []  # a part of it is given at once
    giving: list[object] = []

    def noted(
        kind: FetchKind, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler:
        giver = accept(kind, csp, cid, body, link, now)
        assert isinstance(giver, _Giver)
        asked.append((link, cid))
        givers.append(giver)
        return giver

    def late(giver: _Giver, room: int) -> bytes:
        is_first = giver is givers[0] and not begun
        if is_first:
            begun.append(giver)
        return produce(giver, room) if is_first or giver in giving else b""

    def give(nth: int) -> None:
        giving.append(givers[nth])
        link, cid = asked[nth]
        link.wake(cid)

    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            async with live_sink(tmp_path / "other", source.port, host_id=3) as other:
                await acked(source, written[-1][0])
                await received(other, len(written))
                await until_noted(source, sink, other)
                monkeypatch.setattr(fetcher, "SILENCE_SECONDS", 1.0)
                monkeypatch.setattr(fetchkind, "COUNT_MAX", 10)
                monkeypatch.setattr(FetchKind, "accept", noted)
                monkeypatch.setattr(_Giver, "produce", late)
                file = lose(tmp_path / "q", "gone")
                await eventually(lambda: len(asked) == 2)
                give(0)
                await trio.sleep(0.3)
                give(1)
                await eventually(lambda: holds(file, 30))
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_a_host_that_was_silent_is_asked_again_over_the_same_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fill(tmp_path / "q", ROLL, COUNTS)
    produce = _Giver.produce
    silent: list[_Giver] = []

    def late(giver: _Giver, room: int) -> bytes:
        if not silent:
            silent.append(giver)
        return b"" if giver is silent[0] else produce(giver, room)

    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await acked(source, written[-1][0])
            await until_noted(source, sink)
            monkeypatch.setattr(fetcher, "SILENCE_SECONDS", 0.3)
            monkeypatch.setattr(lostfiles, "AGAIN_SECONDS", 0.3)
            monkeypatch.setattr(_Giver, "produce", late)
            file = lose(tmp_path / "q", "gone")
            await eventually(lambda: holds(file, 30))
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_a_queue_may_be_removed_while_another_one_gets_its_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And comes back: it is damaged still."""
    names, take_file = ("a", "b"), LostFiles._take
    paths = {name: tmp_path / name for name in names}
    copies = {name: tmp_path / f"copy-{name}" for name in names}
    for path in paths.values():
        fill(path, ROLL, COUNTS)
    files = [noon_path(path, ROLL, ahead=1) for path in paths.values()]
    was_removed = trio.Event()

    async def take(lost: LostFiles, name: str, link: LinkView) -> None:
        other = "b" if name == "a" else "a"
        if not was_removed.is_set():
            if not lost._lost.get(other):
                await eventually(lambda: bool(lost._lost.get(other)))
                lost._lost[name].append(link)
                return  # both are looked at together then
            lost.forget(other)
            was_removed.set()
        await take_file(lost, name, link)

    async with serve_source(paths, listen=LOOPBACK, **BEATS, **TAKEN) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS) as sink:
            for name in names:
                await received(sink, sum(COUNTS.values()), name)
                await eventually(partial(has_all, source.queues[name].queue.cycles.closed))
            monkeypatch.setattr(LostFiles, "_take", take)
            for path in paths.values():
                lose(path, "gone")
            await eventually(lambda: all(holds(file, 30) for file in files))
            assert was_removed.is_set()
    for name in names:
        assert_same(paths[name], copies[name])


@pytest.fixture
def nobody_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a peer that has not announced that it gives store files."""
    monkeypatch.setattr(lostfiles, "FETCH_CAPABILITY", "no such thing")


@pytest.mark.usefixtures("nobody_gives")
@pytest.mark.parametrize(("side", "how"), [("q", "gone"), ("copy", "older")])
async def test_where_none_gives_it_both_sides_stop_and_name_it(
    tmp_path: Path, side: str, how: str
) -> None:
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        await until_noted(source, sink)
        file = lose(tmp_path / side, how)
        await eventually(lambda: bool(source.stops and sink.stops))
        (ours,), (told,) = (source.stops, sink.stops)[:: 1 if side == "q" else -1]
        assert ours.reason is told.reason is StopReason.DAMAGED
        assert f"{file}: expected 30 excerpts" in ours.message
        assert ours.message in told.message
        # another source may have it all
        assert (sink.queues["q"].life.stop is None) == (side == "q")


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
