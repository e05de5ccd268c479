"""A queue's directory that goes, or becomes another one, while hosts run: both sides are told."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cqrepl
from cqrepl.protocol import StopReason
from cqrepl.queue import NotAQueue, Queue, QueueDamaged
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED
from cqrepl.replicator.settings import SourceSettings
from tests.support.damage import removed
from tests.support.replicas import acked, copied, eventually, joined, more_excerpts, stopped
from tests.support.samples import NOON_MS, fill, layout, noon_path, read
from tests.support.tables import set_word

TABLE = "metadata.cq4t"


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def made_anew(path: Path) -> None:
    moved(path)
    fill(path, "FAST_DAILY", {0: 3})


def without_table_store(path: Path) -> None:
    (path / TABLE).unlink()


def without_store_file(path: Path) -> None:
    noon_path(path).unlink()


LOSSES = [removed, moved, made_anew, without_table_store]


@pytest.mark.parametrize("lose", [*LOSSES, without_store_file])
async def test_of_a_copy(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    """No application appends: who watches the names finds it."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        lose(tmp_path / "copy")
        await stopped(sink)
        await eventually(lambda: bool(source.stops))
        (ours,), (told,) = sink.stops, source.stops
        assert ours.reason is told.reason is StopReason.DAMAGED
        assert str(tmp_path / "copy") in ours.message
        assert ours.message in told.message


@pytest.mark.parametrize("lose", LOSSES)
async def test_of_a_source(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        lose(tmp_path / "q")
        await stopped(source)
        await eventually(lambda: bool(sink.stops))
        assert source.stops[0].reason is StopReason.DAMAGED
        assert sink.stops[0].reason is StopReason.DAMAGED
        assert str(tmp_path / "q") in source.stops[0].message
        assert sink.queues["q"].life.stop is None  # another source may have it all


async def test_nothing_in_a_removed_directory_is_acknowledged(tmp_path: Path) -> None:
    """From the moment of the removal on, not only after the next look at the names."""
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        last = queue.append(b"kept", now_ms=NOON_MS)
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
            await acked(source, last)
            removed(tmp_path / "copy")
            for _ in range(5):
                queue.append(b"lost", now_ms=NOON_MS)
            await stopped(sink)
            await eventually(lambda: bool(source.stops))
            assert "it was removed" in sink.stops[0].message
            assert source.queues["q"].acknowledged == last


@pytest.mark.parametrize("is_small", [True, False])
def test_an_application_hears_of_it(tmp_path: Path, is_small: bool) -> None:
    payload = b"x" * (10 if is_small else 100_000)
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.append(payload, now_ms=NOON_MS)
        queue.append(payload, now_ms=NOON_MS)
        shutil.rmtree(tmp_path / "q")
        for _ in range(2):
            with pytest.raises(QueueDamaged, match="it was removed"):
                queue.append(payload, now_ms=NOON_MS)


@pytest.mark.parametrize("is_source", [True, False])
async def test_a_queue_that_is_resumed_is_the_one_that_is_there_now(
    tmp_path: Path, is_source: bool
) -> None:
    """A copy of its directory was put in its place, and is written to."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 5})
    here = cqrepl.HostSettings.of(listen="127.0.0.1:0", host_id=1, sources={"q": original})
    async with cqrepl.Host(here) as source:
        there = cqrepl.HostSettings.of(
            connect=f"127.0.0.1:{source.port}", host_id=2, sinks={"q": copy}
        )
        async with cqrepl.Host(there) as sink:
            await copied(original, copy)
            ours, path = (source, original) if is_source else (sink, copy)
            moved(path)
            shutil.copytree(path.with_name("elsewhere"), path)
            await eventually(lambda: bool(source.stops and sink.stops))
            more_excerpts(original, 5, 3)
            await ours.resume("q")
            await copied(original, copy)
            await eventually(lambda: not source.stops and not sink.stops)
            more_excerpts(original, 8, 3)
            await copied(original, copy)


async def test_a_queue_that_is_gone_is_not_made_anew_when_it_is_resumed(tmp_path: Path) -> None:
    """As at a master whose disk is not mounted any more: it makes its queue at a start only."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    made_with = SourceSettings(made_with={"q": "FAST_DAILY"})
    here = cqrepl.HostSettings.of(
        listen="127.0.0.1:0", host_id=1, sources={"q": original}, source=made_with
    )
    async with cqrepl.Host(here) as source:
        there = cqrepl.HostSettings.of(
            connect=f"127.0.0.1:{source.port}", host_id=2, sinks={"q": copy}
        )
        async with cqrepl.Host(there):
            more_excerpts(original, 0, 5)
            await copied(original, copy)
            moved(original)
            await eventually(lambda: bool(source.stops))
            with pytest.raises(NotAQueue, match="found none"):
                await source.resume("q")
            assert not original.exists()
            original.with_name("elsewhere").rename(original)
            more_excerpts(original, 5, 3)
            await source.resume("q")
            await copied(original, copy)


@pytest.mark.parametrize("holder", [UNLOCKED, 1])
async def test_an_append_lock_that_was_taken_away_by_force_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, holder: int
) -> None:
    """As by `cqrepl unlock --force`: it is said when the copy is closed, which it is then."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 5})
    async with joined(path, copy) as (source, sink):
        await acked(source, written[-1][0])
        set_word(copy, APPEND_LOCK_KEY, holder)
    assert not sink.stops
    assert not sink.queues["q"].is_open
    assert [each for each in caplog.messages if "queue 'q'" in each and "by force" in each]
    assert read(copy) == read(path)
