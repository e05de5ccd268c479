"""Cycles that no writer closes, and files and directories that go or change behind a tailer."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqrepl.queue import IndexGap, LayoutMismatch, NotAQueue, Queue, QueueDamaged, Tailer
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


def test_a_tailer_waits_as_javas_does_and_tells_why(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    image = noon_path(path).read_bytes()
    tailer = Tailer(cycles_of(path), 0, clock)
    assert wait_on(tailer, clock) == written[:3]
    stall = tailer.stalled
    assert stall is not None
    assert (stall.path, stall.cycle + 1) == (noon_path(path), stall.cycle_next)
    assert stall.since_s < 0.3
    assert "no end-of-file mark" in str(stall)
    assert noon_path(path).read_bytes() == image
    tailer.close()


def test_with_permission_it_goes_on_within_a_second(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    assert wait_on(tailer, clock, 0.99) == written
    assert tailer.stalled is None
    tailer.close()
    assert read(path) == written


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
    (path / noon_path(path, ahead=1).name).write_bytes(b"")
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    assert len(wait_on(tailer, clock)) == 3
    assert tailer.stalled is None
    tailer.close()


def test_a_file_whose_creator_died_is_put_aside(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 2, 2: 2})
    noon_path(path, ahead=1).write_bytes(b"\0\0\0\x80" + bytes(4092))
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock)
    assert wait_on(tailer, clock) == written[:2]
    assert tailer.stalled is not None
    assert tailer.stalled.path == noon_path(path, ahead=1)
    tailer.close()
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    assert wait_on(tailer, clock, 0.99) == written
    tailer.close()
    assert len(list(path.glob("*.discard"))) == 1


@pytest.mark.parametrize("key", [WRITE_LOCK_KEY, APPEND_LOCK_KEY])
def test_a_living_holder_of_a_lock_is_left_alone(path: Path, clock: Clock, key: str) -> None:
    """The write lock: it may be about to close the cycle. The append lock: it is a sink."""
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    with lock_word(path, key, os.getppid()):
        assert wait_on(tailer, clock) == written[:3]
        assert (tailer.stalled is None) == (key == WRITE_LOCK_KEY)
    assert wait_on(tailer, clock, 0.99) == written[3:]
    tailer.close()


def test_a_busy_writer_above_does_not_keep_it_waiting(path: Path, clock: Clock) -> None:
    """Its lock is seen held now and then; the writer of the open cycle is gone all the same."""
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    found: Excerpts = []
    for turn in range(9):
        with lock_word(path, WRITE_LOCK_KEY, UNLOCKED if turn % 2 else os.getppid()):
            found += wait_on(tailer, clock, 0.1)
    assert found == written
    tailer.close()


def test_a_dead_holder_is_no_holder(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    with lock_word(path, WRITE_LOCK_KEY, NO_PROCESS):
        assert wait_on(tailer, clock, 0.99) == written
    tailer.close()


def test_without_a_table_store_nothing_can_be_repaired(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    (path / FILE_NAME).unlink()
    cycles = cycles_of(path)
    tailer = Tailer(cycles, 0, clock, repair=EndRepair(cycles))
    assert wait_on(tailer, clock) == written[:3]
    assert tailer.stalled is not None
    tailer.close()


def test_a_writer_that_comes_after_all_ends_the_stall(path: Path, clock: Clock) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    tailer = Tailer(cycles_of(path), 0, clock)
    assert wait_on(tailer, clock) == written[:3]
    store = StoreFile.open(noon_path(path), 0, writable=True)
    assert store is not None
    store.write_end_mark(store.walk(START).place.position)
    store.close()
    assert wait_on(tailer, clock) == written[3:]
    assert tailer.stalled is None
    tailer.close()


def test_a_file_removed_before_its_end_is_a_gap(path: Path, clock: Clock) -> None:
    fill(path, "FAST_DAILY", {0: 3, 1: 2})
    without_end_mark(path)
    tailer = Tailer(cycles_of(path), 0, clock)
    assert len(rest_of(tailer)) == 3
    noon_path(path).unlink()
    with pytest.raises(IndexGap, match="removed before its end") as gap:
        wait_on(tailer, clock)
    assert (gap.value.expected, gap.value.found) == (noon_index(sequence=3), noon_index(ahead=1))
    tailer.close()


def test_the_last_file_removed_is_a_gap_to_nothing(path: Path, clock: Clock) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    tailer = Tailer(cycles_of(path), 0, clock)
    assert len(rest_of(tailer)) == 3
    noon_path(path).unlink()
    with pytest.raises(IndexGap) as gap:
        wait_on(tailer, clock)
    assert gap.value.found == 0
    tailer.close()


def test_the_directory_removed_is_no_queue_any_more(path: Path, clock: Clock) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    tailer = Tailer(cycles_of(path), 0, clock)
    assert len(rest_of(tailer)) == 3
    shutil.rmtree(path)
    with pytest.raises(NotAQueue):
        wait_on(tailer, clock)
    tailer.close()


def test_another_file_under_the_same_name_is_not_taken_for_it(path: Path, clock: Clock) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    tailer = Tailer(cycles_of(path), 0, clock)
    assert len(rest_of(tailer)) == 3
    shutil.rmtree(path)
    fill(path, "FAST_DAILY", {0: 9})
    with pytest.raises(QueueDamaged, match="another has taken its name"):
        wait_on(tailer, clock)
    tailer.close()


@pytest.mark.parametrize("name", ["FAST_HOURLY", "LARGE_DAILY"])
@pytest.mark.parametrize("read_first", [True, False])
def test_a_queue_made_anew_with_another_roll_cycle(
    path: Path, clock: Clock, name: str, read_first: bool
) -> None:
    if read_first:
        fill(path, "FAST_DAILY", {0: 3})
    else:
        Queue.open_for_append(path, create=layout()).close()
    tailer = Tailer(cycles_of(path), 0, clock)
    assert len(rest_of(tailer)) == (3 if read_first else 0)
    shutil.rmtree(path)
    fill(path, name, {0: 3})
    with pytest.raises((LayoutMismatch, NotAQueue)):
        wait_on(tailer, clock)
    tailer.close()


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
