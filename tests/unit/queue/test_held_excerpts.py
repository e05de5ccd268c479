"""Excerpts that are on the disk for certain, and excerpts that a power cut has torn."""

import zlib
from array import array
from pathlib import Path

import pytest

from cqrepl import surroundings as around
from cqrepl.queue import Diverged, ExcerptBatch, Queue
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced, store_synced, this_boot
from cqrepl.queue.format.index import Index
from cqrepl.queue.read.tornsectors import SECTOR_BYTES, first_doubtful, is_torn
from cqrepl.queue.write.heldexcerpts import HeldExcerpts
from cqrepl.surroundings import Surroundings
from tests.support.samples import (
    NOON_MS,
    Excerpts,
    fill,
    layout,
    noon_index,
    noon_path,
    read,
)
from tests.support.tears import tear

SLOT_BYTES = 64


def test_a_mark_and_its_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_synced(tmp_path) is None
    for end in (5, 9, 7):
        store_synced(tmp_path, end)
        mark = load_synced(tmp_path)
        assert mark is not None
        assert (mark.end, mark.boot, mark.is_of_this_boot) == (end, this_boot(), True)
    monkeypatch.setattr(syncedmark, "this_boot", lambda: bytes(16))
    mark = load_synced(tmp_path)
    assert mark is not None
    assert not mark.is_of_this_boot
    assert (tmp_path / SYNCED_FILE_NAME).stat().st_size == 2 * SLOT_BYTES


@pytest.mark.parametrize("told", [b"", b"\n"])
def test_an_empty_file_tells_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bytes
) -> None:
    """Without an id each process counts as another start of the machine: no power cut is
    overlooked."""
    (tmp_path / "boot_id").write_bytes(told)
    monkeypatch.setattr(around, "_BOOT_ID", tmp_path / "boot_id")
    monkeypatch.setattr(around, "_boot_id", around._boot_id.__wrapped__)
    assert Surroundings().boot_id() == b""
    store_synced(tmp_path, 5)
    mark = load_synced(tmp_path)
    assert mark is not None
    assert mark.boot == this_boot()
    monkeypatch.setattr(syncedmark, "_PROCESS", b"the next one")
    assert mark.boot != this_boot()
    assert mark.doubtful_before(7) == range(5, 7)


def test_what_is_doubtful_is_kept_in_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_synced(tmp_path, 20, range(5, 9))
    mark = load_synced(tmp_path)
    assert mark is not None
    assert mark.doubtful_before(30) == range(5, 9)
    assert mark.doubtful_before(7) == range(5, 7)
    assert not mark.doubtful_before(5)
    monkeypatch.setattr(syncedmark, "this_boot", lambda: bytes(16))
    assert mark.doubtful_before(30) == range(5, 30)
    store_synced(tmp_path, 25)
    mark = load_synced(tmp_path)
    assert mark is not None
    assert not mark.doubtful_before(30)
    monkeypatch.undo()
    assert mark.doubtful_before(30) == range(25, 30)
    assert not mark.doubtful_before(25)


def test_the_layout_of_a_slot(tmp_path: Path) -> None:
    store_synced(tmp_path, noon_index(sequence=3), range(5, 9))
    slot = (tmp_path / SYNCED_FILE_NAME).read_bytes()
    assert len(slot) == SLOT_BYTES
    assert slot[:8] == b"cqsynced"
    assert int.from_bytes(slot[8:16], "little") == noon_index(sequence=3)
    assert slot[16:32] == this_boot()
    assert slot[32:40] == bytes(8)
    assert [int.from_bytes(slot[at : at + 8], "little") for at in (40, 48)] == [5, 9]
    assert int.from_bytes(slot[56:], "little") == zlib.crc32(slot[:56])


@pytest.mark.parametrize("nth", range(SLOT_BYTES))
def test_a_slot_that_is_not_whole_counts_no_more(tmp_path: Path, nth: int) -> None:
    """The power went while the newer one was written: the older one says less, and is right."""
    for end in (5, 9):
        store_synced(tmp_path, end)
    path = tmp_path / SYNCED_FILE_NAME
    data = bytearray(path.read_bytes())
    data[SLOT_BYTES + nth] ^= 0xFF
    path.write_bytes(data)
    mark = load_synced(tmp_path)
    assert mark is not None
    assert mark.end == 5
    path.write_bytes(data[: SLOT_BYTES + nth])
    mark = load_synced(tmp_path)
    assert mark is not None
    assert mark.end == 5
    path.write_bytes(bytes(2 * SLOT_BYTES))
    assert load_synced(tmp_path) is None
    store_synced(tmp_path, 11)
    mark = load_synced(tmp_path)
    assert mark is not None
    assert mark.end == 11


COUNT = 40
LONG = 3000  # bytes: no excerpt lies in one sector


def long_payloads() -> list[bytes]:
    return [bytes([1 + n]) * (LONG + n) for n in range(COUNT)]


def fill_long(path: Path) -> Excerpts:
    """A queue of excerpts that a power cut can tear; what is in it."""
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append(long_payloads(), NOON_MS)
    return read(path)


def held(path: Path, proved: int | None) -> HeldExcerpts:
    proved_end = None if proved is None else noon_index(sequence=proved)
    with Queue.open(path) as queue:
        return HeldExcerpts(queue.cycles, noon_index(sequence=4), proved_end)


def sent(stop: int, first: int = 4) -> ExcerptBatch:
    """The batch that a source sends for the queue that `fill_long` makes."""
    return ExcerptBatch.of(noon_index(sequence=first), long_payloads()[first:stop])


def test_what_was_torn_is_mended(tmp_path: Path) -> None:
    written = fill_long(tmp_path)
    assert tear(tmp_path, written[9][0], 1, 4) == 3 * SECTOR_BYTES
    assert tear(tmp_path, written[23][0], 3, None) > 2 * SECTOR_BYTES
    assert read(tmp_path) != written
    comparing = held(tmp_path, 5)
    comparing.compare(sent(20))
    comparing.compare(sent(COUNT, first=20))
    comparing.check_passed()
    comparing.close()
    assert comparing.mended == 2
    assert read(tmp_path) == written


@pytest.mark.parametrize("proved", [None, 10, 40])
def test_what_was_on_the_disk_is_not(tmp_path: Path, proved: int | None) -> None:
    written = fill_long(tmp_path)
    tear(tmp_path, written[9][0], 1, 2)
    torn = noon_path(tmp_path).read_bytes()
    comparing = held(tmp_path, proved)
    with pytest.raises(Diverged, match=f"{written[9][0]:#x}"):
        comparing.compare(sent(COUNT))
    comparing.close()
    assert noon_path(tmp_path).read_bytes() == torn


def test_nothing_is_mended_where_another_excerpt_is_no_tear(tmp_path: Path) -> None:
    """Neither the excerpt that differs otherwise is mended, nor a torn one before it in the same
    batch."""
    written = fill_long(tmp_path)
    tear(tmp_path, written[9][0], 1, 2)
    torn = noon_path(tmp_path).read_bytes()
    others = long_payloads()
    others[17] = b"x" * len(others[17])
    comparing = held(tmp_path, 4)
    with pytest.raises(Diverged, match=f"{written[17][0]:#x}"):
        comparing.compare(ExcerptBatch.of(noon_index(sequence=4), others[4:]))
    comparing.close()
    assert noon_path(tmp_path).read_bytes() == torn


def test_excerpts_that_only_one_has(tmp_path: Path) -> None:
    written = fill(tmp_path, "FAST_DAILY", {0: 6, 1: 3})
    payload = [data for _, data in written]
    beyond, passed = held(tmp_path, 4), held(tmp_path, 4)
    with pytest.raises(Diverged, match=f"{written[5][0] + 1:#x}: stored at {written[6][0]:#x}"):
        beyond.compare(ExcerptBatch.of(written[4][0], [*payload[4:6], b"more"]))
    beyond.close()
    passed.compare(ExcerptBatch.of(written[4][0], payload[4:6]))
    with pytest.raises(Diverged, match=f"{written[6][0]:#x}: stored an excerpt, received nothing"):
        passed.check_passed()
    passed.close()


PAYLOAD = bytes(range(1, 251)) * 8  # 2,000 bytes without a zero


@pytest.mark.parametrize("position", [4, 100, 508, 512, 516, 1024])
def test_what_a_tear_is(position: int) -> None:
    """A tear is whole sectors of zeros, but never the sector that holds the header."""

    def torn(*zeroed: tuple[int, int]) -> bool:
        data = bytearray(PAYLOAD)
        for start, stop in zeroed:
            data[start:stop] = bytes(stop - start)
        return is_torn(memoryview(data), PAYLOAD, position)

    first = -position % SECTOR_BYTES  # where the first sector begins that has no header
    second, third = first + SECTOR_BYTES, first + 2 * SECTOR_BYTES
    assert torn((first, second))
    assert torn((second, third))
    assert torn((third, len(PAYLOAD)))
    assert torn((first, len(PAYLOAD)))
    assert not torn((first, second - 1))
    assert not torn((first + 1, second))
    assert not torn((second, third), (third, third + 7))
    if first:
        assert not torn((0, first))
        assert not torn((first - 1, second))
    assert not is_torn(memoryview(PAYLOAD), PAYLOAD + b"x", position)
    assert not is_torn(memoryview(bytes(40)), b"x" * 40, 8)  # a small one is never torn


@pytest.mark.parametrize("position", [4, 100, 508, 512, 516, 1024])
def test_what_may_be_torn(position: int) -> None:
    """An excerpt may be torn, by its own bytes alone, if it has a sector of zeros behind the
    header's."""
    first = -position % SECTOR_BYTES

    def doubtful(*payloads: bytes) -> int:
        batch = ExcerptBatch.of(0, payloads)
        data = bytes(position) + bytes(batch.data)
        offsets = array("q", [position + offset for offset in batch.offsets])
        return first_doubtful(ExcerptBatch(Index(0), data, offsets, batch.lengths), 0)

    assert doubtful(PAYLOAD) == 1
    assert doubtful(PAYLOAD[: first + 1] + bytes(2 * SECTOR_BYTES)) == 0
    assert doubtful(PAYLOAD[:first] + bytes(SECTOR_BYTES - 1) + b"x") == 1
    assert doubtful(PAYLOAD[:first] + bytes(1)) == 0
    assert doubtful(bytes(first)) == 1
