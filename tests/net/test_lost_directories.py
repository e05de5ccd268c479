"""A queue's directory that goes, or becomes another one, while hosts run: both sides are told."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import cqrepl
from cqrepl.protocol import StopReason
from cqrepl.queue import NotAQueue, Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED
from cqrepl.queue.files.maker import precreated_path
from cqrepl.queue.files.mapping import check_name, identity_in
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.settings import SourceSettings
from tests.support.damage import removed
from tests.support.replicas import acked, copied, eventually, joined, more_excerpts, stopped
from tests.support.requirements import require
from tests.support.samples import NOON_MS, fill, layout, noon_index, noon_path, read
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


SAID = "expected a regular file, found a pipe"


@pytest.mark.parametrize("name", [CLOSED_FILE_NAME, SLOTS_FILE_NAME])
@pytest.mark.parametrize("side", ["q", "copy"])
async def test_hosts_go_on_once_it_is_gone(
    tmp_path: Path,
    side: str,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(original, "FAST_DAILY", {0: 5, 1: 30})
    fill(copy, "FAST_DAILY", {0: 5})
    os.mkfifo(tmp_path / side / name)
    async with joined(original, copy) as (source, sink):
        await eventually(lambda: SAID in caplog.text)
        (tmp_path / side / name).unlink()
        await acked(source, written[-1][0])
        await copied(original, copy)
        assert not source.stops + sink.stops
    assert str(tmp_path / side / name) in caplog.text


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.mkdir()


def a_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        require("root", "no device can be made here")


@pytest.mark.parametrize("name", [SLOTS_FILE_NAME, SYNCED_FILE_NAME])
@pytest.mark.parametrize("side", ["q", "copy"])
@pytest.mark.parametrize("made", [a_pipe, a_directory, a_device])
async def test_what_is_in_the_way_of_marks_is_told_and_they_go_on_once_it_is_gone(
    tmp_path: Path,
    side: str,
    made: Callable[[Path], None],
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then nothing is known to be on the disk; the stream goes on."""
    caplog.set_level("INFO")
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 3})
    async with joined(original, copy) as (source, _):
        await eventually(lambda: is_synced(tmp_path / side, 3))
        (tmp_path / side / name).unlink(missing_ok=True)
        made(tmp_path / side / name)
        written = more_excerpts(original, 3, 4)
        await acked(source, written[-1][0])
        kind = made.__name__.replace("_", " ")
        told = f"{tmp_path / side / name}: expected a regular file, found {kind}"
        await eventually(lambda: told.partition(": ")[2] in caplog.text)
        assert not source.stops
        if made is a_directory:
            (tmp_path / side / name).rmdir()
        else:
            (tmp_path / side / name).unlink()
        await eventually(lambda: is_synced(tmp_path / side, 7))
        await eventually(lambda: "it is known to be on the disk again" in caplog.text)
    found = [line for line in caplog.messages if f"found {kind}" in line]
    said = [line for line in found if "the peer says" not in line]  # the source hears it too
    assert len(said) == 1, said
    assert str(tmp_path / side / name) in said[0]
    assert "after a power cut it is compared" in said[0]


def is_synced(path: Path, count: int) -> bool:
    """True when so many excerpts of the first cycle are known to be on the disk."""
    try:
        mark = load_synced(path)
    except OSError:
        return False
    return mark is not None and mark.end >= noon_index(sequence=count)


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_hosts_of_no_other_queue_do_not_begin(tmp_path: Path, side: str) -> None:
    """A mark that cannot be read leaves it unknown what a power cut may have torn."""
    for name in ("q", "copy"):
        fill(tmp_path / name, "FAST_DAILY", {0: 5})
    os.mkfifo(tmp_path / side / SYNCED_FILE_NAME)
    with pytest.RaisesGroup(
        pytest.RaisesExc(OSError, match=SAID), flatten_subgroups=True, allow_unwrapped=True
    ):
        async with joined(tmp_path / "q", tmp_path / "copy"):
            pass


REFUSED: Final = "expected a regular file"
DAY_MS: Final = 86_400_000
Exchange = Callable[[Path, Path], None]  # of a file, or a folder; the second is elsewhere


def moved_away(file: Path, elsewhere: Path) -> None:
    """The link leads to the very file that stood there."""
    file.rename(elsewhere / file.name)
    file.symlink_to(elsewhere / file.name)


def another_one(file: Path, elsewhere: Path) -> None:
    """The link leads to the file of that name in another queue."""
    file.unlink()
    file.symlink_to(elsewhere / "other" / file.name)


def to_nothing(file: Path, elsewhere: Path) -> None:
    """Put a link in place of a file; a process that follows the link makes a file elsewhere."""
    file.unlink()
    file.symlink_to(elsewhere / "made")


def to_a_folder(file: Path, elsewhere: Path) -> None:
    file.unlink()
    file.symlink_to(elsewhere)


def through_another(file: Path, elsewhere: Path) -> None:
    """A link to a link."""
    (elsewhere / "between").symlink_to(elsewhere / "other" / file.name)
    file.unlink()
    file.symlink_to(elsewhere / "between")


LINKS: Final = [moved_away, another_one, to_nothing, to_a_folder, through_another]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with another queue in it."""
    path = tmp_path / "elsewhere"
    fill(path / "other", "FAST_DAILY", {0: 7})
    return path


def contents(path: Path) -> dict[Path, bytes | None]:
    return {each: each.read_bytes() if each.is_file() else None for each in path.rglob("*")}


def file_of(path: Path, which: str) -> Path:
    return path / TABLE if which == "table store" else noon_path(path)


def cause(error: BaseException) -> BaseException:
    """The one error in a group of one."""
    return cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@pytest.mark.parametrize("exchange", LINKS)
@pytest.mark.parametrize("which", ["table store", "store file"])
def test_t2_an_application_writes_through_no_link(
    tmp_path: Path, elsewhere: Path, which: str, exchange: Exchange
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    exchange(file_of(tmp_path / "q", which), elsewhere)
    before = contents(elsewhere)
    with pytest.raises(QueueDamaged, match=REFUSED):
        with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
            queue.append(b"new", now_ms=NOON_MS)
    assert contents(elsewhere) == before


@pytest.mark.parametrize("exchange", [another_one, to_nothing])
@pytest.mark.parametrize("which", ["table store", "store file"])
async def test_t2_a_sink_writes_through_no_link(
    tmp_path: Path, elsewhere: Path, which: str, exchange: Exchange
) -> None:
    """It does not start, or stops that queue; in both cases it says why."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 5})
    exchange(file_of(tmp_path / "copy", which), elsewhere)
    before = contents(elsewhere)
    try:
        async with joined(tmp_path / "q", tmp_path / "copy") as (_, sink):
            await stopped(sink)
            message = sink.stops[0].message
    except* QueueDamaged as errors:
        message = str(cause(errors))
    assert REFUSED in message
    assert str(tmp_path / "copy") in message
    assert contents(elsewhere) == before


@pytest.mark.parametrize("is_link", [True, False])
def test_t2_no_cycle_begins_in_a_folder_that_has_taken_the_place(
    tmp_path: Path, elsewhere: Path, is_link: bool
) -> None:
    """Looked at when a file is made, not only by who watches the names."""
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.append(b"one", now_ms=NOON_MS)
        (tmp_path / "q").rename(tmp_path / "moved")
        if is_link:
            (tmp_path / "q").symlink_to(elsewhere / "other")
        else:
            (elsewhere / "other").rename(tmp_path / "q")
        before = contents(tmp_path / "q"), contents(elsewhere)
        with pytest.raises(QueueDamaged, match="another one has taken its name"):
            queue.append(b"two", now_ms=NOON_MS + DAY_MS)
        assert (contents(tmp_path / "q"), contents(elsewhere)) == before


def test_t2_a_file_made_ahead_is_no_link(tmp_path: Path, elsewhere: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.append(b"one", now_ms=NOON_MS)
        precreated_path(noon_path(tmp_path / "q", ahead=1)).symlink_to(
            noon_path(elsewhere / "other")
        )
        before = contents(elsewhere)
        with pytest.raises(QueueDamaged, match=REFUSED):
            queue.append(b"two", now_ms=NOON_MS + DAY_MS)
        assert contents(elsewhere) == before


def test_t2_a_queue_may_be_reached_through_a_link(tmp_path: Path) -> None:
    """The directory is the operator's to name; only what is in it must be its own."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    (tmp_path / "link").symlink_to(tmp_path / "q")
    with Queue.open_for_append(tmp_path / "link") as queue:
        assert queue.append(b"new", now_ms=NOON_MS) == written[-1][0] + 1
        assert queue.append(b"new", now_ms=NOON_MS + DAY_MS) == noon_index(ahead=1)
        table = tmp_path / "link" / TABLE
        check_name(table, identity_in(os.stat(table)))
