"""The side file `synced.cqmark`: up to where a queue is on the disk, whatever the power does.

Theory of operation. The system writes pages back in any order. So after a power cut a published
header may stand before a payload that reads as zeros, in whole or in part. A process that has
synced the files notes here up to where: an excerpt before the mark is as it was appended. One
behind it, after a start of the machine that is not the one in the mark, is doubtful until another
copy has been compared. The mark goes on rising meanwhile, and says which ones are doubtful: they
are on the disk as they are, torn or not.

Where a sync of the files fails, the system may drop what was to be written, and tells of that once:
the next process finds all in memory as it was, and its syncs, which have nothing to write, succeed.
So the process that was told notes it here: a host, an appender that syncs, a command. In the same
start of the machine no process raises the mark any more; what is behind it is doubtful, in this
start and the next one.

The file has three slots of 64 bytes. All numbers are little-endian.

    position  bytes
           0      8   "cqsynced"
           8      8   the next index: everything before it is on the disk
          16     16   digest of the machine's start in which that was so; where a sync has failed
                      since, of that and of some words
          32      8   counter: of two slots that are whole, the one with the greater counts
          40      8   the first index that is doubtful
          48      8   the next index behind those; both 0 where none is
          56      8   CRC-32 of the 56 bytes before

The first two are written in turn, each after the files were synced, and then synced itself. So a
power cut takes at most the slot that is being written, and the other one says less, but nothing
wrong. One process at a time does so, for one queue. The third one tells of a failed sync, and any
process may write it at any time: it is not in the way of the others. It is not synced: in another
start of the machine it tells nothing that the others do not.

The name is none that Java takes for a store file.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple, Self

from cqrepl.queue.files.sidefile import open_side_file, read_side_file
from cqrepl.queue.format.errors import DurabilityLost
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from cqrepl.surroundings import surroundings

SYNCED_FILE_NAME: Final = "synced.cqmark"
HAS_FAILED: Final = (
    "a sync failed: what is there may be in memory alone, until the machine is started again"
)
ACCEPT: Final = "cqrepl repair QUEUE --accept-unproved --apply"  # declares that all of it is good
_SLOT: Final = struct.Struct("<8sq16sqqq")
_SUM: Final = struct.Struct("<Q")
_SLOT_BYTES: Final = _SLOT.size + _SUM.size
_SLOTS: Final = 2
_FAILED_AT: Final = _SLOTS * _SLOT_BYTES  # the position of the third one
_FILE_BYTES: Final = _FAILED_AT + _SLOT_BYTES
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

    def lowered(self, end: Index) -> Self:
        """The mark of a queue that has lost its end, as one from a backup, and has this next index.
        It keeps the start of the machine: that tells whether a power cut may have taken the end."""
        doubtful = range(self.doubtful.start, min(self.doubtful.stop, end)) or NOTHING_DOUBTFUL
        return self._replace(end=end, doubtful=doubtful)


def this_boot() -> bytes:
    """A digest of the machine's present start, 16 bytes. Where that is not told, a number of this
    process: to each other one it is another start. The time of the start would not do, as clocks
    are set, and some machines begin with the same time each time."""
    return hashlib.sha256(surroundings().boot_id() or _PROCESS).digest()[:16]


def failed_boot() -> bytes:
    """The digest that a mark has in the place of `this_boot` where a sync has failed, 16 bytes."""
    return hashlib.sha256(b"a sync has failed in " + this_boot()).digest()[:16]


def load_synced(path: Path) -> SyncedMark | None:
    """The mark of the queue in a directory; None where there is none that is whole.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return _latest(read_side_file(path / SYNCED_FILE_NAME, _FILE_BYTES))
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
        DurabilityLost: a sync has failed in this start of the machine, and the mark would be of
            that. It stays as it is.
        OSError: it may not be written, or never get to the disk.
    """
    descriptor = open_side_file(path / SYNCED_FILE_NAME, os.O_RDWR | os.O_CREAT)
    try:
        with while_wanted() as is_wanted:
            if is_wanted:
                last = _latest(os.pread(descriptor, _FILE_BYTES, 0))
                if boot is None and last is not None and last.has_failed:
                    raise DurabilityLost(HAS_FAILED, path=path)
                counter = 0 if last is None else last.counter + 1
                slot = _slot(end, this_boot() if boot is None else boot, counter, doubtful)
                surroundings().write(descriptor, slot, counter % _SLOTS * _SLOT_BYTES)
        if is_wanted:
            surroundings().sync(descriptor)
    finally:
        os.close(descriptor)
    return is_wanted


def lower_synced(path: Path, mark: SyncedMark, end: Index) -> None:
    """Writes the mark of a queue that has lost its end as one that was lowered to there.

    Raises:
        OSError: as `store_synced`.
    """
    lowered = mark.lowered(end)
    store_synced(path, lowered.end, lowered.doubtful, boot=lowered.boot)


def note_failed_sync(path: Path, end: int = NEXT_OF_EMPTY) -> None:
    """Notes that a sync of a queue's files has failed. Any process may do so at any time.

    Args:
        end: everything before this next index is on the disk all the same; where there is a mark,
            what that says counts.

    Raises:
        OSError: it may not be written.
    """
    descriptor = open_side_file(path / SYNCED_FILE_NAME, os.O_RDWR | os.O_CREAT)
    try:
        last = _latest(os.pread(descriptor, _FILE_BYTES, 0))
        doubtful = NOTHING_DOUBTFUL if last is None else last.doubtful
        slot = _slot(end if last is None else last.end, failed_boot(), 0, doubtful)
        surroundings().write(descriptor, slot, _FAILED_AT)
    finally:
        os.close(descriptor)


def _slot(end: int, boot: bytes, counter: int, doubtful: range) -> bytes:
    slot = _SLOT.pack(_MAGIC, end, boot, counter, doubtful.start, doubtful.stop)
    return slot + _SUM.pack(zlib.crc32(slot))


def _latest(data: bytes) -> SyncedMark | None:
    *marks, failed = (
        _read(data[at : at + _SLOT_BYTES]) for at in range(0, _FILE_BYTES, _SLOT_BYTES)
    )
    last = max((mark for mark in marks if mark), key=lambda mark: mark.counter, default=failed)
    if last is None or failed is None or not failed.has_failed:
        return last  # none has failed, or in another start of the machine
    return last._replace(boot=failed.boot)


def _read(slot: bytes) -> SyncedMark | None:
    if len(slot) < _SLOT_BYTES or _SUM.unpack_from(slot, _SLOT.size)[0] != zlib.crc32(
        slot[: _SLOT.size]
    ):
        return None
    magic, end, boot, counter, start, stop = _SLOT.unpack_from(slot)
    return SyncedMark(Index(end), boot, counter, range(start, stop)) if magic == _MAGIC else None
