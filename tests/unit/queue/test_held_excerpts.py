"""What is on the disk for certain, and what a power cut has torn."""

import zlib
from pathlib import Path

import pytest

from cqrepl.queue import Diverged, ExcerptBatch, Queue
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced, store_synced, this_boot
from cqrepl.queue.write.heldexcerpts import HeldExcerpts, is_torn
from tests.support.samples import fill, noon_index, noon_path, payloads, read

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


def test_the_layout_of_a_slot(tmp_path: Path) -> None:
    """As the head of the module gives it."""
    store_synced(tmp_path, noon_index(sequence=3))
    slot = (tmp_path / SYNCED_FILE_NAME).read_bytes()
    assert len(slot) == SLOT_BYTES
    assert slot[:8] == b"cqsynced"
    assert int.from_bytes(slot[8:16], "little") == noon_index(sequence=3)
    assert slot[16:32] == this_boot()
    assert slot[32:56] == bytes(24)
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


def zero(path: Path, index: int, start: int, stop: int) -> None:
    """A power cut takes some bytes of an excerpt's payload."""
    with Queue.open(path) as queue:
        batch = queue.tailer(index).next_batch(count_max=1)
        assert batch is not None
        offset, length = batch.offsets[0], batch.lengths[0]
    assert stop <= length
    with noon_path(path).open("r+b") as file:
        file.seek(offset + start)
        file.write(bytes(stop - start))


def held(path: Path, proved: int | None) -> HeldExcerpts:
    proved_end = None if proved is None else noon_index(sequence=proved)
    with Queue.open(path) as queue:
        return HeldExcerpts(queue.cycles, noon_index(sequence=4), proved_end)


def sent(count: int, first: int = 4) -> ExcerptBatch:
    """As it comes for the queues that `fill` makes."""
    return ExcerptBatch.of(noon_index(sequence=first), payloads(first + count)[first:])


def test_what_was_torn_is_mended(tmp_path: Path) -> None:
    written = fill(tmp_path, "FAST_DAILY", {0: 40})
    lengths = [len(data) for _, data in written]
    for sequence in (9, 23):
        zero(tmp_path, written[sequence][0], lengths[sequence] // 3, lengths[sequence])
    assert read(tmp_path) != written
    comparing = held(tmp_path, 5)
    comparing.compare(sent(16))
    comparing.compare(sent(20, first=20))
    comparing.check_passed()
    comparing.close()
    assert comparing.mended == 2
    assert read(tmp_path) == written


@pytest.mark.parametrize("proved", [None, 10, 40])
def test_what_was_on_the_disk_is_not(tmp_path: Path, proved: int | None) -> None:
    written = fill(tmp_path, "FAST_DAILY", {0: 40})
    zero(tmp_path, written[9][0], 0, 3)
    torn = noon_path(tmp_path).read_bytes()
    comparing = held(tmp_path, proved)
    with pytest.raises(Diverged, match=f"{written[9][0]:#x}"):
        comparing.compare(sent(36))
    comparing.close()
    assert noon_path(tmp_path).read_bytes() == torn


def test_nothing_is_mended_where_another_excerpt_is_no_tear(tmp_path: Path) -> None:
    """Neither what differs otherwise, nor what came before it in the same batch."""
    written = fill(tmp_path, "FAST_DAILY", {0: 40})
    zero(tmp_path, written[9][0], 0, 3)
    torn = noon_path(tmp_path).read_bytes()
    others = payloads(40)
    others[17] = b"x" * len(others[17])
    comparing = held(tmp_path, 4)
    with pytest.raises(Diverged, match=f"{written[17][0]:#x}"):
        comparing.compare(ExcerptBatch.of(noon_index(sequence=4), others[4:]))
    comparing.close()
    assert noon_path(tmp_path).read_bytes() == torn


def test_excerpts_that_only_one_has(tmp_path: Path) -> None:
    written = fill(tmp_path, "FAST_DAILY", {0: 6, 1: 3})
    beyond = held(tmp_path, 4)
    with pytest.raises(Diverged, match=f"{written[5][0] + 1:#x}: stored at {written[6][0]:#x}"):
        beyond.compare(sent(3))
    beyond.close()
    passed = held(tmp_path, 4)
    passed.compare(sent(2))
    with pytest.raises(Diverged, match=f"{written[6][0]:#x}: stored an excerpt, received nothing"):
        passed.check_passed()
    passed.close()


def test_what_a_tear_is() -> None:
    assert is_torn(memoryview(b"ab\0\0"), b"abcd")
    assert is_torn(memoryview(bytes(4)), b"abcd")
    assert is_torn(memoryview(b"\0bc\0"), b"abcd")
    assert not is_torn(memoryview(b"abc\0"), b"abxd")
    assert not is_torn(memoryview(b"abc"), b"abcd")
    assert not is_torn(memoryview(b"abcd"), b"ab\0\0")
