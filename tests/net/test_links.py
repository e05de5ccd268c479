"""Threat T2: a link, or another folder, in the place of what a queue writes to."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.maker import precreated_path
from cqrepl.queue.files.mapping import check_name, identity_in
from tests.support.replicas import acked, eventually, joined, stopped
from tests.support.samples import NOON_MS, fill, layout, noon_index, noon_path

TABLE: Final = "metadata.cq4t"
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


@pytest.mark.parametrize("exchange", LINKS)
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


@pytest.mark.parametrize("which", ["table store", "store file"])
async def test_t2_a_link_that_takes_a_name_while_a_sink_runs(
    tmp_path: Path, elsewhere: Path, which: str
) -> None:
    """It leads to the very file that the sink has open: the next start would write there."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        moved_away(file_of(tmp_path / "copy", which), elsewhere)
        await stopped(sink)
        await eventually(lambda: bool(source.stops))
        assert "a symbolic link has taken its name" in sink.stops[0].message


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
