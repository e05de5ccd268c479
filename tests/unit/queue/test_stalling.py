"""Cycles that no writer closes, and files and directories that go or change behind a tailer."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqrepl.queue import (
    IndexGap,
    LayoutMismatch,
    NotAQueue,
    Queue,
    QueueDamaged,
    QueueError,
    Tailer,
)
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED, WRITE_LOCK_KEY
from cqrepl.queue.files.storefile import START, StoreFile
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.write.endrepair import EndRepair
from tests.support.goldens import manifest, unpack
from tests.support.reading import Clock, cycles_of
from tests.support.samples import (
    NOON_MS,
    Excerpts,
    digests,
    fill,
    layout,
    noon_index,
    noon_path,
    read,
    rest_of,
    without_end_mark,
)
from tests.support.tables import set_word

NO_PROCESS = (1 << 31) - 2  # no process has this id
GOLDEN_STALLED = ["backfilled_no_eof", "misplaced_eof", "missing_eof_middle"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def lock_word(path: Path, key: str, holder: int) -> Iterator[None]:
    """A process of this id holds a lock."""
    set_word(path, key, holder)
    yield
    set_word(path, key, UNLOCKED)


def wait_on(tailer: Tailer, clock: Clock, seconds: float = 2.0) -> Excerpts:
    """The excerpts of a tailer that is asked every 10 ms for so many seconds."""
    found: Excerpts = []
    end = clock.now + seconds
    while clock.now < end:
        found += rest_of(tailer)
        clock.now += 0.01
    return found


@contextmanager
def tailing(path: Path, clock: Clock, *, repairs: bool = False) -> Iterator[Tailer]:
    """A tailer of the whole queue, which may write what is missing, and is closed in the end."""
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles) if repairs else None)
    yield tailer
    tailer.close()


@pytest.fixture
def unclosed(path: Path) -> Excerpts:
    """A queue of two cycles, three excerpts and two; the writer of the first has not closed it."""
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    return written


def test_a_tailer_waits_as_javas_does_and_tells_why(
    path: Path, clock: Clock, unclosed: Excerpts
) -> None:
    image = noon_path(path).read_bytes()
    with tailing(path, clock) as tailer:
        assert wait_on(tailer, clock) == unclosed[:3]
        stall = tailer.stalled
    assert stall is not None
    assert (stall.path, stall.cycle + 1) == (noon_path(path), stall.cycle_next)
    assert stall.since_s < 0.3
    assert "no end-of-file mark" in str(stall)
    assert noon_path(path).read_bytes() == image


@pytest.mark.parametrize("holder", [UNLOCKED, NO_PROCESS])
def test_with_permission_it_goes_on_within_a_second(
    path: Path, clock: Clock, unclosed: Excerpts, holder: int
) -> None:
    """A dead holder of the write lock is none."""
    with lock_word(path, WRITE_LOCK_KEY, holder), tailing(path, clock, repairs=True) as tailer:
        assert wait_on(tailer, clock, 0.99) == unclosed
        assert tailer.stalled is None
    assert read(path) == unclosed


@pytest.mark.parametrize("name", GOLDEN_STALLED)
def test_golden_queues_that_stop_java_are_read_in_full(name: str, tmp_path: Path) -> None:
    path, found, clock = unpack(name, tmp_path), manifest(name), Clock()
    cycles = cycles_of(path, found.roll_cycle_name, found.epoch)
    tailer = Tailer(cycles, 0, clock)
    excerpts = wait_on(tailer, clock)
    assert digests(excerpts) == found.digests[: found.java_reads]
    assert tailer.stalled is not None
    tailer.close()
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    assert digests(wait_on(tailer, clock, 5.0)) == found.digests
    tailer.close()


def test_a_newer_cycle_without_excerpts_is_no_stall(path: Path, clock: Clock) -> None:
    """A writer may just be rolling, or its roll may have failed."""
    fill(path, "FAST_DAILY", {0: 3})
    noon_path(path, ahead=1).write_bytes(b"")
    with tailing(path, clock, repairs=True) as tailer:
        assert len(wait_on(tailer, clock)) == 3
        assert tailer.stalled is None


def test_a_file_whose_creator_died_is_put_aside(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 2, 2: 2})
    noon_path(path, ahead=1).write_bytes(b"\0\0\0\x80" + bytes(4092))
    with tailing(path, clock) as tailer:
        assert wait_on(tailer, clock) == written[:2]
        assert tailer.stalled is not None
        assert tailer.stalled.path == noon_path(path, ahead=1)
    with tailing(path, clock, repairs=True) as tailer:
        assert wait_on(tailer, clock, 0.99) == written
    assert len(list(path.glob("*.discard"))) == 1


@pytest.mark.parametrize("key", [WRITE_LOCK_KEY, APPEND_LOCK_KEY])
def test_a_living_holder_of_a_lock_is_left_alone(
    path: Path, clock: Clock, unclosed: Excerpts, key: str
) -> None:
    """The write lock: it may be about to close the cycle. The append lock: it is a sink."""
    with tailing(path, clock, repairs=True) as tailer:
        with lock_word(path, key, os.getppid()):
            assert wait_on(tailer, clock) == unclosed[:3]
            assert (tailer.stalled is None) == (key == WRITE_LOCK_KEY)
        assert wait_on(tailer, clock, 0.99) == unclosed[3:]


def test_a_busy_writer_above_does_not_keep_it_waiting(
    path: Path, clock: Clock, unclosed: Excerpts
) -> None:
    """Its lock is seen held now and then; the writer of the open cycle is gone all the same."""
    found: Excerpts = []
    with tailing(path, clock, repairs=True) as tailer:
        for turn in range(9):
            with lock_word(path, WRITE_LOCK_KEY, UNLOCKED if turn % 2 else os.getppid()):
                found += wait_on(tailer, clock, 0.1)
    assert found == unclosed


def test_without_a_table_store_nothing_can_be_repaired(
    path: Path, clock: Clock, unclosed: Excerpts
) -> None:
    (path / FILE_NAME).unlink()
    with tailing(path, clock, repairs=True) as tailer:
        assert wait_on(tailer, clock) == unclosed[:3]
        assert tailer.stalled is not None


def test_a_writer_that_comes_after_all_ends_the_stall(
    path: Path, clock: Clock, unclosed: Excerpts
) -> None:
    with tailing(path, clock) as tailer:
        assert wait_on(tailer, clock) == unclosed[:3]
        store = StoreFile.open(noon_path(path), 0, writable=True)
        assert store is not None
        store.write_end_mark(store.walk(START).place.position)
        store.close()
        assert wait_on(tailer, clock) == unclosed[3:]
        assert tailer.stalled is None


@pytest.mark.usefixtures("unclosed")
def test_a_file_removed_before_its_end_is_a_gap(path: Path, clock: Clock) -> None:
    with tailing(path, clock) as tailer:
        assert len(rest_of(tailer)) == 3
        noon_path(path).unlink()
        with pytest.raises(IndexGap, match="removed before its end") as gap:
            wait_on(tailer, clock)
    assert (gap.value.expected, gap.value.found) == (noon_index(sequence=3), noon_index(ahead=1))


def filled_anew(path: Path, name: str = "FAST_DAILY") -> None:
    shutil.rmtree(path)
    fill(path, name, {0: 9})


CHANGES: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "file gone": (lambda path: noon_path(path).unlink(), IndexGap, "found 0x0"),
    "all gone": (shutil.rmtree, NotAQueue, ""),
    "another file": (filled_anew, QueueDamaged, "another has taken its name"),
    "by the hour": (lambda path: filled_anew(path, "FAST_HOURLY"), QueueError, ""),
    "large": (lambda path: filled_anew(path, "LARGE_DAILY"), QueueError, ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_taken_away_or_changed_behind_a_tailer_is_told(
    path: Path, clock: Clock, change: str
) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    act, error, says = CHANGES[change]
    with tailing(path, clock) as tailer:
        assert len(rest_of(tailer)) == 3
        act(path)
        with pytest.raises(error, match=says or None) as told:
            wait_on(tailer, clock)
    if error is QueueError:
        assert isinstance(told.value, LayoutMismatch | NotAQueue)


@pytest.mark.parametrize("name", ["FAST_HOURLY", "LARGE_DAILY"])
def test_an_empty_queue_made_anew_with_another_roll_cycle(
    path: Path, clock: Clock, name: str
) -> None:
    Queue.open_for_append(path, create=layout()).close()
    with tailing(path, clock) as tailer:
        assert rest_of(tailer) == []
        filled_anew(path, name)
        with pytest.raises((LayoutMismatch, NotAQueue)):
            wait_on(tailer, clock)


def test_a_queue_made_anew_with_another_epoch(path: Path, clock: Clock) -> None:
    """Its names are as before; only the table store tells."""
    Queue.open_for_append(path, create=layout()).close()
    tailer = Tailer(cycles_of(path), 0, clock)
    assert rest_of(tailer) == []
    shutil.rmtree(path)
    with Queue.open_for_append(
        path, create=type(layout())(layout().roll_cycle, 18_000_000, 4096, 256)
    ) as queue:
        queue.appender().append([b"one"], NOON_MS)
    with pytest.raises(LayoutMismatch, match="expected FAST_DAILY epoch 0"):
        wait_on(tailer, clock)
    tailer.close()


def test_a_table_store_that_is_only_written_to_is_the_same(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 3})
    tailer = Tailer(cycles_of(path), 0, clock)
    assert rest_of(tailer) == written
    os.utime(path / FILE_NAME)
    assert wait_on(tailer, clock) == []
    tailer.close()


def test_a_table_store_that_another_one_is_written_over(path: Path, clock: Clock) -> None:
    """It is the same file, which was looked at, and says something else now."""
    fill(path, "FAST_DAILY", {0: 3})
    other = path.with_name("other")
    fill(other, "FAST_HOURLY", {0: 3})
    tailer = Tailer(cycles_of(path), 0, clock)
    rest_of(tailer)
    for ns in range(2):
        os.utime(path / FILE_NAME, ns=(ns, ns))
        assert wait_on(tailer, clock) == []
    (path / FILE_NAME).write_bytes((other / FILE_NAME).read_bytes())
    with pytest.raises(LayoutMismatch, match="found FAST_HOURLY"):
        wait_on(tailer, clock)
    tailer.close()


def test_a_stall_that_is_over_is_not_repaired(path: Path, clock: Clock) -> None:
    fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock)
    wait_on(tailer, clock)
    stall = tailer.stalled
    tailer.close()
    assert stall is not None
    noon_path(path, ahead=1).unlink()
    assert not EndRepair(cycles)(stall)
    image = noon_path(path).read_bytes()
    noon_path(path).unlink()
    noon_path(path, ahead=1).write_bytes(image)
    assert not EndRepair(cycles)(stall)
