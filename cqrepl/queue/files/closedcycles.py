"""The side file `closed.cqmanifest`: how many excerpts each closed cycle had, and its chain.

Theory of operation. Cycles without a store file are normal, and so is a short one. So nothing in a
directory tells that a file in the middle was removed, or replaced by an older one. A source or a
sink notes here what a cycle held, once its store file is closed and on the disk; from then on
neither changes any more. A file that is missing between others, or that has fewer excerpts than
noted, is damage. Files that are missing below the lowest one were deleted by retention. A file
without a header, cut to nothing or overwritten with zeros, looks like one that is being made: where
a note says that it held excerpts, it is damage.

The file is a row of records of 48 bytes, in any order, the last one of a cycle counts. All numbers
are little-endian.

    position  bytes
           0      8   "cqclosed"
           8      8   the cycle
          16      8   number of its excerpts
          24     16   the chain behind the last one (see `kernel.chain`); zeros while a power cut
                      may have torn what is there
          40      8   CRC-32 of the 40 bytes before

Behind it, later, there are two records of the same layout, "cqsha-lo" and "cqsha-hi": they have the
first and the last 16 bytes of the SHA-256 (`read.closeddigest`) in the place of the chain. They
count where they follow the record of their cycle, with as many excerpts.

Records are only ever appended, by one thread of one process at a time (a file lock), and a record
that a kill or a power cut has left in part is written over by the next one. `cqrepl repair
--accept-missing` takes off the records of files that no copy has any more. The whole file is
written anew then, under the same lock; a process that waited for the old one takes the new one.

The name is none that Java takes for a store file.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from cqrepl.queue.files.sidefile import open_side_file, read_side_file, replace_side_file
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.index import Cycle
from cqrepl.surroundings import surroundings

FETCH: Final = "cqrepl repair QUEUE --from HOST:PORT --apply"  # what mends a closed store file
LET_GO: Final = "if no copy has it any more: cqrepl repair QUEUE --accept-missing --apply"
PUT_BACK: Final = f"put it back, from a backup or a copy: {FETCH}; {LET_GO}"
CLOSED_FILE_NAME: Final = "closed.cqmanifest"
_MAGIC: Final = b"cqclosed"
_DIGEST_HALVES: Final = (b"cqsha-lo", b"cqsha-hi")
DIGEST_BYTES: Final = 32
_RECORD: Final = struct.Struct("<8sqq16s")
_SUM: Final = struct.Struct("<Q")
UNKNOWN_CHAIN: Final = bytes(16)
RECORD_BYTES: Final = _RECORD.size + _SUM.size


class ClosedCycle(NamedTuple):
    """The record of what a closed cycle held; `sha256` is empty until it has been reckoned."""

    cycle: Cycle
    excerpts: int
    chain: bytes
    sha256: bytes = b""


class ClosedCycles:
    """The records of one queue; read again when the file has changed. Any thread may ask: what was
    given out is never changed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / CLOSED_FILE_NAME
        self._turn = Lock()  # of who sets one of the next three
        self._seen: tuple[int, ...] | None = None
        self._found: Mapping[Cycle, ClosedCycle] = {}
        self._remembered: Mapping[Cycle, ClosedCycle] = {}  # and not in the file
        self._digested: Mapping[Cycle, ClosedCycle] | None = None  # what was found, if it has all

    def load(self) -> Mapping[Cycle, ClosedCycle]:
        """The records by cycle, those that are only remembered included.

        Raises:
            OSError: it cannot be read.
        """
        with self._turn:
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                self._seen, self._found = None, {}
                return self._remembered
            seen = status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
            if seen != self._seen:
                self._found = _records(read_side_file(self.path))
                self._seen = seen
            return {**self._found, **self._remembered} if self._remembered else self._found

    def check_unready(self, cycle: Cycle, path: Path) -> None:
        """Called when the store file of a cycle has no header: does nothing where it may be one
        that is being made.

        Raises:
            QueueDamaged: it is known to have held excerpts.
            OSError: what is known cannot be read.
        """
        noted = self.load().get(cycle)
        if noted is not None and noted.excerpts:
            raise QueueDamaged(f"{lost_header(noted)}; {PUT_BACK}", path=path)

    @property
    def known(self) -> Mapping[Cycle, ClosedCycle]:
        """The records that this process knows without a look at the file, those included that are
        not in it yet."""
        with self._turn:
            return {**self._found, **self._remembered}

    def remember(self, record: ClosedCycle) -> None:
        """Keeps a record for as long as this object is there: its store file is closed, but may not
        be on the disk."""
        self._set_remembered(add=[record])

    @property
    def is_ahead(self) -> bool:
        """True while something is remembered that is not in the file."""
        return bool(self._remembered)

    def note_below(self, cycle: Cycle) -> None:
        """Appends what is remembered of lower cycles, and returns when it is on the disk.

        Raises:
            OSError: it may not be.
        """
        records = [each for each in self._remembered.values() if each.cycle < cycle]
        if records:
            self._append(b"".join(map(_packed, records)))
            self._set_remembered(drop={each.cycle for each in records})

    def undigested(self, gone: Container[Cycle]) -> ClosedCycle | None:
        """The lowest cycle whose SHA-256 is not in the file as it was loaded, and could be; None
        where there is none.

        Args:
            gone: cycles that are passed over.
        """
        found = self._found
        if found is self._digested:
            return None
        wanted = [
            each
            for each in found.values()
            if not each.sha256 and each.chain != UNKNOWN_CHAIN and each.cycle not in gone
        ]
        if not wanted:
            self._digested = found
        return min(wanted, default=None)

    def note_digest(self, record: ClosedCycle) -> None:
        """Appends the SHA-256 of a record that is in the file, and returns when that is on the
        disk.

        Raises:
            OSError: it may not be.
        """
        self._append(_packed_digest(record))

    def forget_below(self, cycle: Cycle) -> None:
        """Writes the file anew without the records of lower cycles, whose files retention has
        taken. The highest of them stays: it tells how far retention has come.

        Raises:
            OSError: it cannot be written. The old one stays.
        """
        self._keep(lambda each: each >= cycle, keeps_highest=True)

    def holds_from(self, first: Cycle) -> Cycle:
        """The cycle from which on nothing was taken off a queue; 0 where nothing was at all.

        Args:
            first: the first cycle of the queue.

        Raises:
            OSError: what is known cannot be read.
        """
        return Cycle(max((each + 1 for each in self.load() if each < first), default=0))

    def forget_from(self, cycle: Cycle) -> None:
        """Writes the file anew without the records of this cycle and those above: their files were
        taken away on purpose.

        Raises:
            OSError: it cannot be read or written. The old one stays.
        """
        known = self.load()
        if any(each >= cycle for each in known):
            self._set_remembered(drop=[each for each in known if each >= cycle])
            self._keep(lambda each: each < cycle)

    def forget(self, cycles: Collection[Cycle]) -> None:
        """Writes the file anew without the records of these cycles: what their store files held is
        gone for good.

        Raises:
            OSError: it cannot be read or written. The old one stays.
        """
        self._set_remembered(drop=cycles)
        self._keep(lambda each: each not in cycles)

    def _keep(self, is_kept: Callable[[Cycle], bool], *, keeps_highest: bool = False) -> None:
        with self._opened():  # no process appends to a file that is going
            records = _records(read_side_file(self.path))
            cycles = {each for each in records if is_kept(each)}
            if keeps_highest:
                cycles.update(sorted(records.keys() - cycles)[-1:])
            kept = b"".join(_packed(each) for each in records.values() if each.cycle in cycles)
            replace_side_file(self.path, kept, is_synced=True)

    def _append(self, data: bytes) -> None:
        with self._opened() as descriptor:
            end = os.fstat(descriptor).st_size
            surroundings().write(descriptor, data, end - end % RECORD_BYTES)
            surroundings().sync(descriptor)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the file, which is made if it is missing. No other thread or process has
        it for the length of the block."""
        while True:
            descriptor = open_side_file(self.path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._is_there(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def _is_there(self, descriptor: int) -> bool:
        """False when the file was replaced or removed while its lock was waited for."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _set_remembered(
        self, *, add: Iterable[ClosedCycle] = (), drop: Collection[Cycle] = ()
    ) -> None:
        with self._turn:
            kept = {key: each for key, each in self._remembered.items() if key not in drop}
            self._remembered = kept | {each.cycle: each for each in add}


def lost_header(noted: ClosedCycle) -> str:
    """The message about a store file that has no header, and held excerpts."""
    return (
        f"expected {noted.excerpts} excerpts, found a file without a header, as when it is cut or"
        " overwritten"
    )


def altered(record: ClosedCycle) -> str:
    """The message about a store file that holds other excerpts than it did."""
    return (
        f"expected {record.excerpts} excerpts as they were when it was closed, found at least one"
        f" altered; put the right file back, from a backup or a copy: {FETCH}; {LET_GO}"
    )


def _packed(closed: ClosedCycle) -> bytes:
    record = _row(_MAGIC, closed, closed.chain)
    return record + _packed_digest(closed) if closed.sha256 else record


def _packed_digest(closed: ClosedCycle) -> bytes:
    half = DIGEST_BYTES // 2
    parts = closed.sha256[:half], closed.sha256[half:]
    rows = zip(_DIGEST_HALVES, parts, strict=True)
    return b"".join(_row(magic, closed, part) for magic, part in rows)


def _row(magic: bytes, closed: ClosedCycle, value: bytes) -> bytes:
    record = _RECORD.pack(magic, closed.cycle, closed.excerpts, value)
    return record + _SUM.pack(zlib.crc32(record))


def _records(data: bytes) -> dict[Cycle, ClosedCycle]:
    found: dict[Cycle, ClosedCycle] = {}
    halves: dict[Cycle, bytes] = {}
    for position in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        record = data[position : position + _RECORD.size]
        magic, cycle, count, value = _RECORD.unpack(record)
        if _SUM.unpack_from(data, position + _RECORD.size)[0] != zlib.crc32(record):
            continue
        cycle = Cycle(cycle)
        known = found.get(cycle)
        if magic == _MAGIC:
            found[cycle] = ClosedCycle(cycle, count, value)
        elif known is None or known.excerpts != count:
            continue
        elif magic == _DIGEST_HALVES[0]:
            halves[cycle] = value
        elif magic == _DIGEST_HALVES[1] and cycle in halves:
            found[cycle] = known._replace(sha256=halves.pop(cycle) + value)
    return found
