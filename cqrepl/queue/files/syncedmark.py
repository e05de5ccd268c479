"""The side file `synced.cqmark`: up to where a queue is on the disk, whatever the power does.

Theory of operation. The system writes pages back in any order. So after a power cut a published
header may stand before a payload that reads as zeros, in whole or in part. Somebody who has synced
the files notes here what came before: an excerpt before the mark is as it was appended. One behind
it, after a start of the machine that is not the one in the mark, is doubtful until another copy has
been compared. The mark goes on rising meanwhile, and says which ones are doubtful: they are on the
disk as they are, torn or not.

Where a sync of the files fails, the system may drop what was to be written, and tells of that once:
the next process finds all in memory as it was, and its syncs, which have nothing to write, succeed.
So a mark is written then that says so. In the same start of the machine no mark rises any more, in
whichever process; what is behind it is doubtful, in this start and the next one.

The file has two slots of 64 bytes. All numbers are little-endian.

    position  bytes
           0      8   "cqsynced"
           8      8   the next index: everything before it is on the disk
          16     16   digest of the machine's start in which that was so; where a sync has failed
                      since, of that and of some words
          32      8   counter: of two slots that are whole, the one with the greater counts
          40      8   the first index that is doubtful
          48      8   the next index behind those; both 0 where none is
          56      8   CRC-32 of the 56 bytes before

They are written in turn, each after the files were synced, and then synced itself. So a power cut
takes at most the slot that is being written, and the other one says less, but nothing wrong.

The name is none that Java takes for a store file.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from cqrepl.queue.files.sidefile import open_side_file, read_side_file
from cqrepl.queue.format.index import Index
from cqrepl.surroundings import surroundings

SYNCED_FILE_NAME: Final = "synced.cqmark"
ACCEPT: Final = "cqrepl repair QUEUE --accept-unproved --apply"  # declares that all of it is good
_SLOT: Final = struct.Struct("<8sq16sqqq")
_SUM: Final = struct.Struct("<Q")
_SLOT_BYTES: Final = _SLOT.size + _SUM.size
_SLOTS: Final = 2
_MAGIC: Final = b"cqsynced"
NOTHING_DOUBTFUL: Final = range(0)
_PROCESS: Final = os.urandom(16)


class SyncedMark(NamedTuple):
    """Everything before `end`, a next index, was on the disk in the start `boot` of a machine; the
    indexes in `doubtful` as an earlier power cut had left them."""

    end: Index
    boot: bytes
    counter: int
    doubtful: range

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot == this_boot()

    @property
    def has_failed(self) -> bool:
        """A sync has failed since, in this start of the machine."""
        return self.boot == failed_boot()

    def doubtful_before(self, end: int) -> range:
        """The indexes that a power cut may have torn, in a queue whose next index is `end`."""
        start, stop = self.doubtful.start, self.doubtful.stop
        if not self.is_of_this_boot:
            start, stop = start if self.doubtful else self.end, end
        return range(start, min(stop, end)) or NOTHING_DOUBTFUL


def this_boot() -> bytes:
    """A digest of the machine's present start, 16 bytes. Where that is not told, a number of this
    process: to each other one it is another start. The time of the start would not do, as clocks
    are set, and some machines begin with the same time each time."""
    return hashlib.sha256(surroundings().boot_id() or _PROCESS).digest()[:16]


def failed_boot() -> bytes:
    """What a mark has in the place of that where a sync has failed."""
    return hashlib.sha256(b"a sync has failed in " + this_boot()).digest()[:16]


def load_synced(path: Path) -> SyncedMark | None:
    """The mark of the queue in a directory; None where there is none that is whole.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return _latest(read_side_file(path / SYNCED_FILE_NAME, _SLOTS * _SLOT_BYTES))
    except FileNotFoundError:
        return None


def store_synced(
    path: Path,
    end: int,
    doubtful: range = NOTHING_DOUBTFUL,
    while_wanted: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True),
    *,
    boot: bytes | None = None,
) -> bool:
    """Notes that everything before `end` is on the disk, and returns when that is, too; false where
    it was not wanted any more.

    One process at a time may do so, for one queue.

    Args:
        doubtful: indexes that may be torn all the same, by an earlier power cut.
        while_wanted: the mark is written within it, if it says so.
        boot: the machine's start in which that was so, or `failed_boot`; None: the present one.

    Raises:
        OSError: it may not be written, or never get to the disk.
    """
    descriptor = open_side_file(path / SYNCED_FILE_NAME, os.O_RDWR | os.O_CREAT)
    try:
        with while_wanted() as is_wanted:
            if is_wanted:
                _write(descriptor, end, this_boot() if boot is None else boot, doubtful)
        if is_wanted:
            surroundings().sync(descriptor)
    finally:
        os.close(descriptor)
    return is_wanted


def _write(descriptor: int, end: int, boot: bytes, doubtful: range) -> None:
    last = _latest(os.pread(descriptor, _SLOTS * _SLOT_BYTES, 0))
    counter = 0 if last is None else last.counter + 1
    slot = _SLOT.pack(_MAGIC, end, boot, counter, doubtful.start, doubtful.stop)
    data = slot + _SUM.pack(zlib.crc32(slot))
    surroundings().write(descriptor, data, counter % _SLOTS * _SLOT_BYTES)


def _latest(data: bytes) -> SyncedMark | None:
    slots = (data[nth * _SLOT_BYTES :][:_SLOT_BYTES] for nth in range(_SLOTS))
    found = [mark for mark in map(_read, slots) if mark is not None]
    return max(found, key=lambda mark: mark.counter, default=None)


def _read(slot: bytes) -> SyncedMark | None:
    if len(slot) < _SLOT_BYTES or _SUM.unpack_from(slot, _SLOT.size)[0] != zlib.crc32(
        slot[: _SLOT.size]
    ):
        return None
    magic, end, boot, counter, start, stop = _SLOT.unpack_from(slot)
    return SyncedMark(Index(end), boot, counter, range(start, stop)) if magic == _MAGIC else None
