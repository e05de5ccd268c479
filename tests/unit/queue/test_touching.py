"""Pages that are brought into memory ahead of a writer."""

import mmap
import os
import resource
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from cqrepl.kernel.memory import page_populator
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.write.pretoucher import PageToucher, page_toucher, usual_ahead_bytes
from tests.support.kernels import kernel_named
from tests.support.nothreads import no_threads
from tests.support.requirements import require
from tests.support.samples import NOON_MS, layout, noon_index, noon_path, read
from tests.support.turns import WAIT_SECONDS, populates, turn_of

PAGE = mmap.PAGESIZE
MIB = 1 << 20


def resident_bytes(path: Path) -> int:
    """The number of bytes of a file that this process has in its page tables."""
    found, is_its = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            is_its = line.endswith(str(path))
        elif is_its and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


def mapped_file(path: Path, size: int) -> Mapping:
    path.write_bytes(bytes(range(256)) * (size // 256))
    return Mapping(path, writable=True)


def toucher_of(path: Path, ahead_bytes: int) -> PageToucher:
    found = page_toucher(Cycles(path, layout().roll_cycle, 0), layout(), ahead_bytes)
    assert found is not None
    return found


# ---------------------------------------------------------------- pages


def test_the_native_kernel_populates_and_the_plain_one_says_that_it_cannot() -> None:
    assert kernel_named("python").populate_pages is None
    populate = kernel_named("native").populate_pages
    noise = bytearray(os.urandom(5 * PAGE))
    before = bytes(noise)
    for start, end in [(0, 0), (0, 1), (5, 4 * PAGE), (PAGE - 1, PAGE + 1), (0, len(noise))]:
        populate(memoryview(noise), start, end)
    assert bytes(noise) == before
    populate(memoryview(bytearray()), 0, 0)


@pytest.mark.parametrize(
    ("start", "end"), [(-1, 1), (0, -1), (2, 1), (0, 101), (101, 101), (100, 1 << 62), (1 << 62, 2)]
)
def test_a_position_outside_is_refused(start: int, end: int) -> None:
    populate = kernel_named("native").populate_pages
    with pytest.raises(ValueError, match="within the buffer"):
        populate(memoryview(bytearray(100)), start, end)


def test_a_buffer_that_may_not_be_written_is_refused() -> None:
    with pytest.raises(TypeError, match="may be written"):
        kernel_named("native").populate_pages(memoryview(bytes(100)), 0, 100)


@populates
def test_a_mapping_populates_what_is_asked_for_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    mapping = mapped_file(path, 64 * PAGE)
    content = path.read_bytes()
    assert resident_bytes(path) == 0
    mapping.populate(0, 16 * PAGE)
    assert 16 * PAGE <= resident_bytes(path) <= 64 * PAGE
    mapping.populate(0, 1000 * PAGE)  # no further than what is mapped
    assert resident_bytes(path) == 64 * PAGE
    mapping.populate(1000 * PAGE, 1001 * PAGE)
    assert path.read_bytes() == content
    mapping.close()
    mapping.populate(0, PAGE)
    assert not mapping.allocate_ahead(0, PAGE)


@populates
def test_a_file_that_was_cut_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "file"
    mapping = mapped_file(path, 64 * PAGE)
    os.truncate(path, 10 * PAGE)
    mapping.populate(0, 10 * PAGE)
    with pytest.raises(OSError, match="Bad address"):
        mapping.populate(9 * PAGE, 12 * PAGE)
    mapping.close()


@populates
def test_allocating_ahead_maps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    mapping = mapped_file(path, PAGE)
    assert mapping.allocate_ahead(0, 100 * PAGE)
    assert path.stat().st_size == 100 * PAGE
    assert path.stat().st_blocks * 512 >= 100 * PAGE
    assert mapping.length == PAGE
    mapping.close()


@populates
def test_a_mapping_may_be_renewed_and_closed_while_it_is_populated(tmp_path: Path) -> None:
    """The last holder of an old one closes it; none is left over."""
    path = tmp_path / "file"
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        mapping = mapped_file(path, 16 * PAGE)
        has_begun = threading.Event()
        is_over = threading.Event()

        def touch(mapping: Mapping, has_begun: threading.Event, is_over: threading.Event) -> None:
            while not is_over.is_set():
                mapping.populate(0, MIB)
                has_begun.set()

        thread = threading.Thread(target=touch, args=(mapping, has_begun, is_over))
        thread.start()
        assert has_begun.wait(WAIT_SECONDS)
        for end in range(20 * PAGE, 200 * PAGE, 20 * PAGE):
            mapping.reserve(0, end)
        mapping.close()
        is_over.set()
        thread.join()
        path.unlink()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert str(path) not in Path("/proc/self/maps").read_text()


# ---------------------------------------------------------------- the helper


@populates
def test_it_touches_and_allocates_what_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    mapping = mapped_file(path, 4 * MIB)
    toucher = toucher_of(tmp_path, MIB)
    turn = turn_of(toucher)
    assert not toucher.is_ready(mapping, MIB)
    toucher.follow(mapping, Cycle(0), 0, MIB)
    turn.settle()
    assert toucher.is_ready(mapping, MIB)
    assert MIB <= resident_bytes(path) < 4 * MIB
    # more than is mapped: allocated now, and touched once it is mapped
    toucher.follow(mapping, Cycle(0), MIB, 6 * MIB)
    turn.settle()
    assert path.stat().st_size > 6 * MIB
    assert not toucher.is_ready(mapping, 5 * MIB)
    mapping.cover(6 * MIB)
    toucher.follow(mapping, Cycle(0), MIB, 6 * MIB)
    turn.settle()
    assert resident_bytes(path) >= 5 * MIB
    assert toucher.is_ready(mapping, 6 * MIB)
    toucher.close()
    mapping.close()


def touching() -> int:
    """The number of threads that touch ahead; other threads of this process come and go."""
    return [each.name for each in threading.enumerate()].count("touch-ahead")


@populates
def test_without_a_thread_the_writer_goes_on_and_the_next_order_tries_again(tmp_path: Path) -> None:
    with Queue.open(tmp_path, create=layout()) as queue:
        never = toucher_of(tmp_path, 8 * MIB)
        with no_threads():
            index = queue.appender(toucher=never).append([bytes(3 * MIB)], NOON_MS)
        never.close()
        assert read(tmp_path)[-1] == (index, bytes(3 * MIB))
    mapping = mapped_file(tmp_path / "file", MIB)
    toucher = toucher_of(tmp_path, 8 * MIB)
    turn = turn_of(toucher)
    with no_threads():
        toucher.follow(mapping, Cycle(0), 0, MIB)
    assert not mapping.unmaps_later
    toucher.follow(mapping, Cycle(0), 0, MIB)
    turn.settle()
    assert toucher.is_ready(mapping, MIB)
    toucher.close()
    mapping.close()


@populates
def test_it_ends_whether_mappings_are_closed_before_or_after(tmp_path: Path) -> None:
    threads = touching()
    for mapping_first in (True, False):
        mapping = mapped_file(tmp_path / "file", 64 * MIB)
        toucher = toucher_of(tmp_path, 8 * MIB)
        toucher.follow(mapping, Cycle(0), 0, 64 * MIB)
        assert touching() == threads + 1
        closing = [mapping.close, toucher.close]
        for close in closing if mapping_first else reversed(closing):
            close()
        toucher.follow(mapping, Cycle(0), 0, 1)  # too late: nothing
        toucher.close()
        assert str(tmp_path / "file") not in Path("/proc/self/maps").read_text()
    assert touching() == threads


@populates
def test_it_sleeps_while_nobody_asks(tmp_path: Path) -> None:
    """No clock wakes it, and appends within what is reserved do not."""
    with Queue.open_for_append(tmp_path, create=layout()) as queue:
        toucher = toucher_of(tmp_path, 8 * MIB)
        turn = turn_of(toucher)
        appender = queue.appender(toucher=toucher)
        index = appender.append([bytes(100)], NOON_MS)
        turn.settle()
        before = turn.waits
        for _ in range(100):
            index = appender.append([bytes(100)], NOON_MS)
        turn.settle()
        assert turn.waits == before
        toucher.close()
    assert read(tmp_path)[-1] == (index, bytes(100))


@populates
def test_a_writer_finds_its_space_ready(tmp_path: Path) -> None:
    """Only when the file is small, and when it is mapped anew, is there something to be done."""
    with Queue.open_for_append(tmp_path, create=layout()) as queue:
        toucher = toucher_of(tmp_path, 2 * MIB)
        turn = turn_of(toucher)
        appender = queue.appender(toucher=toucher)
        waits = 0
        for nth in range(60):
            batch = ExcerptBatch.of(noon_index(sequence=500 * nth), [bytes([nth]) * 1000] * 500)
            waits += appender.space_needed(batch)
            appender.append_at(batch)
            writer = appender._end.writer
            assert writer is not None
            turn.settle()
            assert toucher.is_ready(writer.store.mapping, writer.place.position)
        assert waits < 12
        toucher.close()
    assert [payload[:1] for _, payload in read(tmp_path)] == [
        bytes([nth]) for nth in range(60) for _ in range(500)
    ]


@populates
def test_the_bytes_are_the_same_with_and_without(tmp_path: Path) -> None:
    for name, ahead in (("with", MIB), ("without", 0)):
        with Queue.open_for_append(tmp_path / name, create=layout()) as queue:
            toucher = page_toucher(queue.cycles, queue.layout, ahead)
            assert (toucher is None) == (ahead == 0)
            appender = queue.appender(toucher=toucher)
            for nth in range(20):
                appender.append([bytes([nth]) * 997] * 300, NOON_MS)
            appender.append([b"next"], NOON_MS + 86_400_000)
            if toucher is not None:
                toucher.close()
    for cycle in (0, 1):
        one, other = (
            noon_path(tmp_path / name, ahead=cycle).read_bytes() for name in ("with", "without")
        )
        assert one.rstrip(b"\0") == other.rstrip(b"\0")


@populates
def test_a_full_disk_is_the_writers_error_alone(tmp_path: Path) -> None:
    """The helper says nothing, touches nothing more, and goes on when there is space again."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Queue.open_for_append(tmp_path, create=layout()) as queue:
        toucher = toucher_of(tmp_path, MIB)
        turn = turn_of(toucher)
        appender = queue.appender(toucher=toucher)
        index = appender.append([b"first"], NOON_MS)
        writer = appender._end.writer
        assert writer is not None
        mapping = writer.store.mapping
        turn.settle()
        assert toucher.is_ready(mapping, MIB)
        resource.setrlimit(resource.RLIMIT_FSIZE, (mapping.file_size(), hard))
        try:
            with suppress(OSError):
                while True:
                    index = appender.append([bytes(100_000)], NOON_MS)
            with pytest.raises(OSError, match="File too large"):
                appender.append([bytes(10 * MIB)], NOON_MS)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert read(tmp_path)[-1][0] == index
        thread = toucher._thread
        assert thread is not None
        assert thread.is_alive()
        for _ in range(30):
            index = appender.append([bytes(100_000)], NOON_MS)
        turn.settle()
        assert toucher.is_ready(mapping, writer.place.position)
        toucher.close()
    assert read(tmp_path)[-1][0] == index


@pytest.mark.parametrize(("processors", "mib"), [(1, 0), (2, 0), (3, 8), (64, 8)])
def test_it_is_usual_where_a_processor_is_left_for_it(
    monkeypatch: pytest.MonkeyPatch, processors: int, mib: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert usual_ahead_bytes() == mib * MIB


def test_the_plain_kernel_has_no_helper(tmp_path: Path) -> None:
    if page_populator() is not None:
        require("plain", "the native kernel is in use")
    assert page_toucher(Cycles(tmp_path, layout().roll_cycle, 0), layout(), MIB) is None
