"""A mapped file that grows: what is mapped stays where it is, if the system has the addresses."""

import mmap
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.kernel.memory import file_map
from cqrepl.queue import Queue, Tailer
from cqrepl.queue.files.atomics import Words
from cqrepl.queue.files.mapping import Mapping
from tests.support.samples import NOON_MS, fill, noon_path, rest_of

MIB = 1 << 20


def grow(path: Path, mib: int) -> None:
    """Makes a file so long; each MiB begins with its number."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        for number in range(mib):
            file.seek(number * MIB)
            file.write(number.to_bytes(8, "little"))
        file.truncate(mib * MIB)


def numbers(data: memoryview) -> list[int]:
    starts = range(0, len(data), MIB)
    return [int.from_bytes(data[start : start + 8], "little") for start in starts]


def address(data: memoryview) -> int:
    found = Words(data)
    try:
        assert found.address is not None
        return found.address
    finally:
        found.release()


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("keeps_views", [False, True])
def test_all_that_a_file_has_grown_by_is_there_and_older_views_are_good(
    tmp_path: Path, *, keeps_views: bool
) -> None:
    path = tmp_path / "file"
    grow(path, 1)
    mapping = Mapping(path, writable=True, keeps_views=keeps_views)
    views = [mapping.data[:]]
    for mib in (2, 3, 9, 40):
        grow(path, mib)
        assert mapping.cover(mib * MIB)
        assert not mapping.cover(mib * MIB + 1)
        assert mapping.length == mib * MIB
        views.append(mapping.data[:])
        assert mapping.words.load_8((mib - 1) * MIB) == mib - 1
    mapping.words.store_4(0, 77)
    for view, mib in zip(views, (1, 2, 3, 9, 40), strict=True):
        assert numbers(view) == [77, *range(1, mib)]
        assert view.readonly is False
    mapping.close()
    assert numbers(views[-1])[-1] == 39  # who holds a view holds the pages
    assert path.read_bytes()[:4] == (77).to_bytes(4, "little")


@pytest.mark.skipif(file_map() is None, reason="the plain kernel maps it anew")
def test_a_file_that_has_grown_once_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    grow(path, 1)
    mapping = Mapping(path, writable=True)
    places = []
    for mib in (2, 3, 40, 41):
        grow(path, mib)
        assert mapping.cover(mib * MIB)
        places.append(address(mapping.data))
    assert len(set(places)) == 1
    held = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
    assert len(held) == 2  # what it has grown by is one mapping to the system
    mapping.close()
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_the_native_map_says_what_is_wrong(tmp_path: Path) -> None:
    kind = file_map()
    if kind is None:
        pytest.skip("the plain kernel has no such map")
    path = tmp_path / "file"
    grow(path, 1)
    descriptor = os.open(path, os.O_RDWR)
    try:
        for length, room in ((0, 0), (0, MIB)):
            with pytest.raises(OSError, match="invalid"):
                kind(descriptor, length, room, True)
        with pytest.raises(OSError, match="invalid"):
            kind(-1, MIB, 0, True)
        with pytest.raises(OverflowError):
            kind(descriptor, -1, 0, True)
        mapped = kind(descriptor, MIB, 2 * MIB, True)
    finally:
        os.close(descriptor)
    view = mapped.view()
    with pytest.raises(BufferError, match="no view is held"):
        mapped.close()
    assert not mapped.extend(-1, 2 * MIB)  # what is mapped needs no descriptor, more of it does
    assert numbers(view) == [0]
    view.release()
    mapped.close()
    mapped.close()
    with pytest.raises(ValueError, match="not closed"):
        mapped.view()
    with pytest.raises(ValueError, match="not closed"):
        mapped.extend(0, MIB)


@pytest.fixture
def limited() -> Iterator[None]:
    """The addresses of this process are limited, to more than it will ever use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("limited")
def test_where_addresses_are_limited_none_are_reserved(tmp_path: Path) -> None:
    path = tmp_path / "file"
    grow(path, 1)
    mapping = Mapping(path, writable=True)
    for mib in (2, 40):
        before = reserved_kib()
        grow(path, mib)
        assert mapping.cover(mib * MIB)
        assert numbers(mapping.data) == list(range(mib))
        assert reserved_kib() - before < 1 << 20
    mapping.close()


def reserved_kib() -> int:
    """The size of the address space of this process, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmSize:")[2].split()[0])


def read_ahead(path: Path) -> list[tuple[int, bool]]:
    """The pieces of a file that this process maps: for each the byte where it begins, and whether
    the system reads ahead there."""
    found, start = [], -1
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and ":" not in words[0]:
            start = int(words[2], 16) if line.endswith(str(path)) else -1
        elif words[0] == "VmFlags:" and start >= 0:
            found.append((start, "rr" not in words))
    return sorted(found)


def read_through(queue: Queue) -> tuple[Tailer, int]:
    """A reader at the end, and at which byte of its file that is."""
    tailer = queue.tailer()
    rest_of(tailer)
    stand = tailer.stand()
    assert stand is not None
    return tailer, stand.position


@pytest.mark.usefixtures("each_kernel")
def test_nothing_is_read_ahead_where_a_writer_is_still_to_write(tmp_path: Path) -> None:
    """A page that is not in memory there would bring up to 8 MiB of zeros with it."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 100})
    file = noon_path(tmp_path / "q")
    with Queue.open(tmp_path / "q") as queue:
        _, end = read_through(queue)
    with Queue.open_for_append(tmp_path / "q") as queue:
        queue.append(b"x", now_ms=NOON_MS)
        pieces = read_ahead(file)
    assert [ahead for _, ahead in pieces] == [True, False]
    assert pieces[1][0] == end // mmap.PAGESIZE * mmap.PAGESIZE


@pytest.mark.usefixtures("each_kernel")
def test_nor_where_a_reader_has_come_to_the_end(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 100})
    file = noon_path(tmp_path / "q")
    with Queue.open(tmp_path / "q") as queue:
        tailer = queue.tailer()
        assert tailer.next_batch(count_max=5)
        assert read_ahead(file) == [(0, True)]
        tailer.close()
        _, end = read_through(queue)
        pieces = read_ahead(file)
    assert [ahead for _, ahead in pieces] == [True, False]
    assert pieces[1][0] == end // mmap.PAGESIZE * mmap.PAGESIZE
