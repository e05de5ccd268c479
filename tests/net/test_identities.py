"""Identities tell which queue is which, where two sides of one name share nothing."""

import shutil
from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.protocol.capabilities import IDENTITY_CAPABILITY
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.keptidentity import HIGH_KEY, KeptIdentity, new_identity
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.identity import Identity
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.copies import assert_same
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    acked,
    at,
    eventually,
    held_by_another_process,
    joined,
    live_sink,
    live_source,
    sink_stopped,
    stopped,
)
from tests.support.samples import Excerpts, fill, layout, noon_index, read, stored
from tests.support.tables import is_free, keys_of


def empty(path: Path) -> Path:
    Queue.open_for_append(path, create=layout()).close()
    return path


def foreign(path: Path, count: int) -> Excerpts:
    """A queue that holds what no other one here holds."""
    batch = ExcerptBatch.of(noon_index(), [b"foreign %d" % n for n in range(count)])
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append_at(batch)
    return stored(batch)


def identity(path: Path) -> Identity | None:
    return KeptIdentity(path / FILE_NAME).load()


def give(path: Path, given: Identity | None = None) -> Identity:
    given = given or new_identity()
    assert KeptIdentity(path / FILE_NAME).replace(given)
    return given


async def has(path: Path, wanted: Identity | None) -> None:
    assert wanted is not None
    await eventually(lambda: identity(path) == wanted)


async def has_one(path: Path) -> None:
    await eventually(lambda: identity(path) is not None)


def made(path: Path, count: int) -> Path:
    """A queue of so many excerpts, each as any other one has it there."""
    if count:
        fill(path, "FAST_DAILY", {0: count})
        return path
    return empty(path)


@pytest.mark.parametrize("source_dials", [False, True])
@pytest.mark.parametrize(
    ("source", "copy"),
    [
        ((3, False), None),
        ((0, False), None),
        ((3, True), (3, False)),
        ((3, False), (3, True)),
        ((3, False), (5, True)),
    ],
    ids=["new", "empty", "the copy has none", "the source has none", "an older source has none"],
)
async def test_both_sides_have_the_same_one(
    tmp_path: Path,
    source: tuple[int, bool],
    copy: tuple[int, bool] | None,
    source_dials: bool,
) -> None:
    """The one that is there, on proof of equal excerpts, or a new one; an older source gets back
    what it lacks; and it stays over a restart."""
    paths, given = (tmp_path / "q", tmp_path / "copy"), list[Identity | None]()
    for path, side in zip(paths, (source, copy), strict=True):
        if side is not None and made(path, side[0]) and side[1]:
            given.append(give(path))
    for _ in range(2):
        async with joined(*paths, source_dials=source_dials) as (one, other):
            await has_one(paths[0])
            await eventually(lambda: identity(paths[0]) == identity(paths[1]))
            await eventually(
                lambda: is_free(paths[0]) and len(read(paths[0])) >= sizes(source, copy)
            )
            with Queue.open(paths[0]) as queue:
                await acked(one, queue.append(b"more"))
            assert not one.stops + other.stops
    assert {identity(path) for path in paths} == ({*given} or {identity(paths[0])})
    assert_same(*paths)


def sizes(*sides: tuple[int, bool] | None) -> int:
    """The number of excerpts that one side has at the least."""
    return max(side[0] for side in sides if side)


@pytest.mark.parametrize("source_dials", [False, True])
@pytest.mark.parametrize(
    ("mine", "theirs", "more"),
    [
        (0, 0, {}),
        (3, 0, {}),
        (0, 4, {}),
        (3, 3, {}),
        (3, -4, {"on_divergence": "quarantine"}),
    ],
    ids=["both empty", "theirs empty", "mine empty", "equal", "others, that might go aside"],
)
async def test_a_wrong_directory_is_refused_and_nothing_moves(
    tmp_path: Path, mine: int, theirs: int, more: dict[str, str], source_dials: bool
) -> None:
    """Chains cannot tell where nothing is shared; equal ones wait until an identity is adopted."""
    path, wrong = made(tmp_path / "q", mine), tmp_path / "other"
    foreign(wrong, -theirs) if theirs < 0 else made(wrong, theirs)
    one, other, held = give(path), give(wrong), (read(path), read(wrong))
    if not (more and source_dials):
        async with joined(path, wrong, source_dials=source_dials, **more) as (source, sink):
            await refused(source, sink, one, other)
            assert str(wrong) in sink.stops[0].message
    assert (read(path), read(wrong)) == held
    assert (identity(path), identity(wrong)) == (one, other)
    assert not (wrong / "quarantine").exists()
    if mine == theirs == 3:
        give(wrong, one)
        async with joined(path, wrong) as (source, sink):
            with Queue.open(path) as queue:
                await acked(source, queue.append(b"more"))
            assert not sink.stops


async def refused(source: Source, sink: Sink, *named: Identity | None) -> None:
    """Both sides stop, name both queues, and say what mends it; nothing has moved."""
    await stopped(sink)
    await eventually(lambda: bool(source.stops))  # with another sink it may go on
    for side in (source, sink):
        (stop,) = side.stops
        assert stop.reason is StopReason.REFUSED
        for each in named:
            assert str(each) in stop.message
        assert "cqrepl identity adopt" in stop.message
    assert not sink.queues["q"].received_excerpts


# ---------------------------------------------------------------- made, and carried


async def test_a_source_without_a_sink_makes_none(tmp_path: Path) -> None:
    before = (empty(tmp_path / "q") / FILE_NAME).read_bytes()
    async with live_source(tmp_path / "q"):
        pass
    assert identity(tmp_path / "q") is None
    assert HIGH_KEY not in keys_of(tmp_path / "q")
    assert len(before) == (tmp_path / "q" / FILE_NAME).stat().st_size


async def test_what_is_no_copy_takes_none(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    foreign(tmp_path / "copy", 3)
    give(tmp_path / "q")
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        await stopped(sink)
        assert sink.stops[0].reason is StopReason.DIVERGED
    assert identity(tmp_path / "copy") is None


async def test_a_queue_that_another_process_takes_in_gets_none_of_its_own(tmp_path: Path) -> None:
    """It inherits that of its source; what it is streamed to waits for that as well."""
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    with held_by_another_process(tmp_path / "q"):
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
            await acked(source, last)
    assert identity(tmp_path / "q") is identity(tmp_path / "copy") is None


async def test_a_peer_that_knows_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one before this had them: it is streamed to as ever, and nothing is made."""
    known = frozenset({"queues", "ended", "stops", "lineage"})
    assert IDENTITY_CAPABILITY not in known
    monkeypatch.setattr("cqrepl.protocol.greeting.CORE_CAPABILITIES", known)
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
    assert identity(tmp_path / "q") is identity(tmp_path / "copy") is None


# ---------------------------------------------------------------- refused


async def test_copies_that_were_swapped(tmp_path: Path) -> None:
    names = ("a", "b")
    queues = {name: empty(tmp_path / name) for name in names}
    copies = {name: tmp_path / f"copy of {name}" for name in names}
    async with serve_source(queues, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            for name in names:
                await has_one(copies[name])
    assert identity(queues["a"]) != identity(queues["b"])
    swapped = {"a": copies["b"], "b": copies["a"]}
    async with serve_source(queues, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(swapped, connect=at(source.port), **BEATS) as sink:
            await stopped(sink)
            assert {stop.name for stop in sink.stops} == set(names)
            with Queue.open(queues["a"]) as queue:
                queue.append(b"new")
            await eventually(lambda: len(source.stops) == 2)
    assert not read(copies["a"])
    assert not read(copies["b"])


async def test_a_source_that_was_restored_from_its_own(tmp_path: Path) -> None:
    (*_, (first, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, first)
        await has(tmp_path / "copy", identity(tmp_path / "q"))
    shutil.copytree(tmp_path / "q", tmp_path / "backup")
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        with Queue.open(tmp_path / "q") as queue:
            last = queue.append(b"more")
        await acked(source, last)
    shutil.rmtree(tmp_path / "q")
    shutil.copytree(tmp_path / "backup", tmp_path / "q")
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await eventually(lambda: read(tmp_path / "q")[-1][0] == last)
        assert not source.stops
        assert not sink.stops
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_three_hosts_of_which_one_is_wrong(tmp_path: Path) -> None:
    """The right one goes on."""
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    one, other = give(tmp_path / "q"), give(empty(tmp_path / "other"))
    async with (
        live_source(tmp_path / "q") as source,
        live_sink(tmp_path / "other", source.port, host_id=3) as wrong,
        live_sink(tmp_path / "copy", source.port) as right,
    ):
        await sink_stopped(wrong, "q")
        assert str(one) in wrong.stops[0].message
        await acked(source, last)
        with Queue.open(tmp_path / "q") as queue:
            await acked(source, queue.append(b"more"))
        assert not right.stops
        assert right.queues["q"].received_excerpts == 4
    assert identity(tmp_path / "copy") == one
    assert identity(tmp_path / "other") == other


async def test_a_queue_that_got_its_identity_from_another_sink_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was offered without one: then the source refuses."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    one, other = new_identity(), give(empty(tmp_path / "other"))
    keep = KeptIdentity.keep

    def late(self: KeptIdentity, make: object) -> Identity | None:
        give(tmp_path / "q", one)
        return keep(self, lambda: other)

    monkeypatch.setattr(KeptIdentity, "keep", late)
    async with joined(tmp_path / "q", tmp_path / "other") as (source, sink):
        await eventually(lambda: bool(source.stops))
        assert source.stops[0].reason is StopReason.REFUSED
        assert str(one) in source.stops[0].message
        assert "host 2" in source.stops[0].message
        assert not sink.queues["q"].received_excerpts
    assert not read(tmp_path / "other")


# ---------------------------------------------------------------- a power cut


async def test_it_is_on_the_disk_before_a_copy_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So that a power cut cannot leave a copy with one that its source never had."""
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    sync = TableStore.sync
    is_broken = True

    def fails(table: TableStore) -> None:
        if is_broken:
            raise OSError(5, "Input/output error")
        sync(table)

    monkeypatch.setattr(TableStore, "sync", fails)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await eventually(lambda: "pauses" in caplog.text)
        assert identity(tmp_path / "q") is identity(tmp_path / "copy") is None
        is_broken = False
        await acked(source, last)
        await has(tmp_path / "copy", identity(tmp_path / "q"))
