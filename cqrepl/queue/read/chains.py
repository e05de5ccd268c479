"""The chains of one queue: what two copies compare before anything moves between them.

Theory of operation. A cycle's chain at a sequence is a hash over all its excerpts before it
(`kernel.chain`), and is made by reading them. On the way the chain is noted at points, so that
asking again, at the same place or further on, costs only what lies behind the last point. Points
are kept in memory, and belong to one file: another one under its name starts anew. What stands
before a published header never changes, so points of a file never have to be taken back.

All cycles up to one are told by a chain as well, over a record for each: cycle, number of excerpts
and chain at its end, 32 bytes, little-endian. A cycle without excerpts has no record.
"""

import os
import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from threading import Lock
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.kernel.chain import CHAIN_START, extend_chain
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.format.errors import IndexGap, QueueDamaged
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Sequence,
    cycle_of,
    index_of,
    sequence_of,
)
from cqrepl.queue.read.count import count_in, first_index, last_index
from cqrepl.queue.read.tailer import Tailer

BATCH_BYTES: Final = 1 << 20
POINTS_MAX: Final = 1024  # of a cycle: then every other one is forgotten
_RECORD: Final = struct.Struct("<qq16s")  # cycle, number of excerpts, chain at its end


@dataclass(slots=True)
class _Points:
    """Of one store file: sequences that rise, each with the chain there."""

    file: tuple[int, int]  # device and inode
    points: list[tuple[Sequence, bytes]] = field(
        default_factory=lambda: [(SEQUENCE_FIRST, CHAIN_START)]
    )

    def last_before(self, sequence: Sequence) -> tuple[Sequence, bytes]:
        """The last point at or before a sequence."""
        return self.points[bisect_right(self.points, sequence, key=itemgetter(0)) - 1]

    def note(self, sequence: Sequence, chain: bytes) -> None:
        if sequence > self.points[-1][0]:
            self.points.append((sequence, chain))
            if len(self.points) > POINTS_MAX:
                del self.points[1:-1:2]


class Chains:
    """Reads the chains of a queue. Any thread may ask; one reads at a time."""

    def __init__(self, cycles: Cycles) -> None:
        self._cycles = cycles
        self._cached: dict[Cycle, _Points] = {}
        self._turn = Lock()

    def first_cycle(self) -> Cycle | None:
        """The first cycle with a store file; None when there are no excerpts.

        One that has lost its excerpts, in a power cut, was not removed by retention: it counts.

        Raises:
            QueueError: a store file cannot be read.
        """
        if first_index(self._cycles) is None:
            return None
        return min(self._cycles.listing())

    def at(self, index: Index) -> bytes:
        """The chain over all excerpts before `index` in its cycle, 16 bytes.

        Raises:
            IndexGap: the cycle has fewer excerpts than that.
            QueueError: the store file cannot be read.
        """
        if index == NEXT_OF_EMPTY:
            return CHAIN_START
        shift = self._cycles.shift
        with self._turn:
            return self._at(cycle_of(index, shift), sequence_of(index, shift))

    def over_cycles(self, first: Cycle, end: Cycle) -> bytes:
        """The chain over the records of all cycles from `first` to the one before `end`, 16 bytes.

        Raises:
            QueueError: a store file cannot be read.
        """
        records = bytearray()
        with self._turn:
            for cycle, in_cycle in self.counts(first, end):
                chain = self._at(cycle, Sequence(in_cycle))
                records += _RECORD.pack(cycle, in_cycle, chain)
        count = len(records) // _RECORD.size
        offsets = array("q", range(0, len(records), _RECORD.size))
        return extend_chain(
            bytes(records), offsets, array("q", [_RECORD.size]) * count, 0, CHAIN_START
        )

    def counts(self, first: Cycle, end: Cycle) -> list[tuple[Cycle, int]]:
        """The cycles with excerpts from `first` to the one before `end`, each with their number.

        Raises:
            QueueError: a store file cannot be read.
        """
        return [
            (cycle, count)
            for cycle in self._cycles.listing()
            if first <= cycle < end and (count := count_in(self._cycles, cycle))
        ]

    def readable_end(self) -> Index:
        """One past the last excerpt that can be reached by reading its cycle from the start.

        After a power cut that may be less than what index and recorded ends tell.

        Raises:
            QueueError: a store file cannot be opened.
        """
        last = last_index(self._cycles)
        if last is None:
            return NEXT_OF_EMPTY
        shift = self._cycles.shift
        end = index_of(cycle_of(last, shift), SEQUENCE_FIRST, shift)
        tailer = Tailer(self._cycles, end)
        try:
            while (
                batch := tailer.next_batch(bytes_max=BATCH_BYTES, payload_max=NO_LIMIT)
            ) is not None:
                end = Index(batch.index_last + 1)
        except QueueDamaged:
            pass  # this far
        finally:
            tailer.close()
        return end

    def _at(self, cycle: Cycle, target: Sequence) -> bytes:
        if target == SEQUENCE_FIRST:
            return CHAIN_START
        points = self._points(cycle)
        sequence, chain = points.last_before(target)
        if sequence == target:
            return chain
        shift = self._cycles.shift
        tailer = Tailer(self._cycles, index_of(cycle, sequence, shift))
        try:
            while sequence < target:
                batch = tailer.next_batch(
                    count_max=target - sequence, bytes_max=BATCH_BYTES, payload_max=NO_LIMIT
                )
                if batch is None or batch.index_first != index_of(cycle, sequence, shift):
                    found = tailer.next_index if batch is None else batch.index_first
                    path = self._cycles.path_of(cycle)
                    wanted = index_of(cycle, sequence, shift)
                    raise IndexGap(wanted, found, "its cycle ends before", path=path)
                chain = extend_chain(batch.data, batch.offsets, batch.lengths, sequence, chain)
                sequence = Sequence(sequence + len(batch))
                points.note(sequence, chain)
        finally:
            tailer.close()
        return chain

    def _points(self, cycle: Cycle) -> _Points:
        try:
            status = os.stat(self._cycles.path_of(cycle))
        except FileNotFoundError:
            status = None
        file = (0, 0) if status is None else (status.st_dev, status.st_ino)
        points = self._cached.get(cycle)
        if points is None or points.file != file:
            points = self._cached[cycle] = _Points(file)
        return points
