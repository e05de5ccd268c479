"""The chains of one queue: what two copies compare before anything moves between them.

Theory of operation. A cycle's chain at a sequence is a hash over all its excerpts before it
(`kernel.chain`), and is made by reading them. On the way the chain is noted at points, so that
asking again, at the same place or further on, costs only what lies behind the last point. Points
belong to one store file: another one under its name starts anew. What stands before a published
header never changes, so points of a file never have to be taken back. Those of the last few cycles
are kept in memory, and all of them, once they are on the disk, in side files (`files.chainfile`),
which are believed when the first excerpt and the last stretch between two points are as they say.

All cycles up to one are told by a chain as well, over a record for each: cycle, number of excerpts
and chain at its end, 32 bytes, little-endian. A cycle without excerpts has no record.
"""

import logging
import os
import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.kernel.chain import CHAIN_START, extend_chain
from cqrepl.queue.files.chainfile import (
    CHAIN_SUFFIX,
    ChainFile,
    Point,
    StoreState,
    load_chain_file,
    store_chain_file,
)
from cqrepl.queue.files.closedcycles import FETCH, UNKNOWN_CHAIN, ClosedCycle, altered
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.storefile import SUFFIX
from cqrepl.queue.format.errors import IndexGap, QueueDamaged, QueueError
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Sequence,
    cycle_of,
    format_index,
    index_of,
    sequence_of,
)
from cqrepl.queue.read.chainpoints import START, ChainPoints
from cqrepl.queue.read.count import count_in, first_index, last_index
from cqrepl.queue.read.tailer import Tailer
from cqrepl.surroundings import monotonic, surroundings

BATCH_BYTES: Final = 1 << 20
CYCLES_MAX: Final = 64  # whose points are kept in memory
_ONE: Final = Sequence(1)
_logger: Final = logging.getLogger(__name__)
_RECORD: Final = struct.Struct("<qq16s")  # cycle, number of excerpts, chain at its end


class Chains:
    """Reads the chains of a queue. Any thread may ask; one reads at a time."""

    def __init__(self, cycles: Cycles) -> None:
        self._cycles = cycles
        self._cached: dict[Cycle, ChainPoints] = {}  # the one that was asked for last is the last
        self._to_reread: set[Cycle] = set()
        self._to_check: set[Cycle] = set()  # closed, and no side file tells of them
        self._believed: set[Cycle] = set()  # for what their side files say, and not read since
        self._bytes_read = 0
        self._is_unsaved = True  # there may be points that no side file has
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

    def at_within(self, index: Index, seconds: float) -> bytes | None:
        """As `at`, read for so many seconds, but one batch at least; None where there is more to be
        read: the next call goes on from there.

        Raises:
            IndexGap, QueueError: as `at`.
        """
        shift, until = self._cycles.shift, monotonic() + seconds
        cycle, target = cycle_of(index, shift), sequence_of(index, shift)
        with self._turn:
            sequence, chain = self._read_to(cycle, target, lambda: monotonic() > until)
        return chain if sequence == target else None

    def read_at(self, index: Index) -> bytes:
        """The same, read from the first excerpt on, whatever is known.

        Raises:
            IndexGap, QueueError: as `at`.
        """
        shift = self._cycles.shift
        cycle, sequence = cycle_of(index, shift), sequence_of(index, shift)
        with self._turn:
            return self._extended(cycle, START, sequence)[1]

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
            QueueDamaged: a closed store file is missing between them.
            QueueError: a store file cannot be read.
        """
        listed = self._cycles.listing()
        while True:
            there = [cycle for cycle in listed if first <= cycle < end]
            found = [(cycle, n) for cycle in there if (n := count_in(self._cycles, cycle))]
            if listed:  # the file right below the end is between others where the end has one
                self._cycles.check_between(Cycle(first - 1), min(end, listed[-1]))
            seen, listed = listed, self._cycles.listing()
            if seen == listed:  # else one came back meanwhile, or was removed
                return found

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

    def follow(self, start: Index, end: Index, seconds: float) -> list[tuple[Index, bytes]]:
        """Reads on from `start` to `end`, for so many seconds, but one batch at least: the chains
        on the way.

        Returns:
            An index behind the last excerpt of each cycle on the way, and how far it was read in
            the last one, each with the chain over all before it in its cycle.

        Raises:
            QueueError: a store file cannot be read.
        """
        shift = self._cycles.shift
        until = monotonic() + seconds
        first, last = cycle_of(start, shift), cycle_of(end, shift)
        way = [(last, int(sequence_of(end, shift)))]
        if first < last:
            way = [*self.counts(first, last), *way]
        found = []
        with self._turn:
            for cycle, count in way:
                sequence, chain = self._read_to(cycle, Sequence(count), lambda: monotonic() > until)
                place = index_of(cycle, sequence, shift)
                found.append((place, chain))
                # at the end of a cycle nothing was read yet: however late it is, the next one is
                if sequence < count or (place != start and monotonic() > until):
                    break
        return found

    def save(self, end: Index) -> None:
        """Writes the points into the side files, and removes those whose store files have gone.

        Args:
            end: what comes before it is on the disk, as it was appended.

        Raises:
            QueueError: a store file cannot be read.
            OSError: a side file cannot be written.
        """
        if not self._is_unsaved:
            return
        shift = self._cycles.shift
        with self._turn:
            for cycle, known in self._cached.items():
                limit = sequence_of(end, shift) if cycle == cycle_of(end, shift) else NO_LIMIT
                if cycle <= cycle_of(end, shift):
                    self._save(cycle, known, limit)
            self._is_unsaved = any(each.last[0] > each.saved for each in self._cached.values())
        for name in os.listdir(self._cycles.path):
            stem, found, rest = name.partition(CHAIN_SUFFIX)
            path = self._cycles.path / name
            if found and (rest or not path.with_name(stem + SUFFIX).exists()):
                # a kill has left it, or its store file has gone
                surroundings().unlink(path, missing_ok=True)

    @property
    def has_to_save(self) -> bool:
        """True while there may be points that no side file has."""
        return self._is_unsaved

    @property
    def has_to_reread(self) -> bool:
        """True while something is to be read once more."""
        return bool(self._to_reread or self._to_check)

    @property
    def to_reread(self) -> Cycle | None:
        """A cycle whose store file was written to since its points were saved: by its appender,
        or by another program; None when there is none."""
        return min(self._to_reread, default=None)

    @property
    def to_check(self) -> Cycle | None:
        """A closed cycle that was read anew, and is to be held against what was noted when it was
        closed; None when there is none."""
        return min(self._to_check, default=None)

    def doubt(self, cycle: Cycle) -> None:
        """A closed store file was written to: what is known of it is believed, and read again."""
        with self._turn:
            self._points(cycle)
            self._to_reread.add(cycle)
            self._believed.add(cycle)

    def reread(self, cycle: Cycle, start: Point) -> tuple[Point | None, int]:
        """Reads once more what lies between a place and the next point, and compares the chains.

        Args:
            start: a place, and the chain there.

        Returns:
            The next point, None behind the last; and how many bytes of payload were read.

        Raises:
            QueueDamaged: the excerpts are not what they were.
            QueueError: the store file cannot be read.
        """
        with self._turn:
            points = iter(self._points(cycle))
            place = next((point for point in points if point[0] > start[0]), None)
            if place is None:
                self._to_reread.discard(cycle)
                self._believed.discard(cycle)
                return None, 0
            self._bytes_read = 0
            if self._extended(cycle, start, place[0]) == place:
                return place, self._bytes_read
        shift = self._cycles.shift
        first, last = (index_of(cycle, Sequence(n), shift) for n in (start[0], place[0] - 1))
        raise QueueDamaged(
            f"expected the excerpts {format_index(first)} to {format_index(last)} as they were"
            " appended, found at least one altered; this compares the queue with a copy: cqrepl"
            f" verify; and where its cycle is closed, this mends it: {FETCH}",
            path=self._cycles.path_of(cycle),
        )

    def check_believed(self) -> None:
        """Reads once more as a whole what was believed for what its side file says, and holds what
        was read anew against what was noted when it was closed: before another copy is blamed.

        Raises:
            QueueDamaged: the excerpts are not what they were.
            QueueError: a store file cannot be read.
        """
        for cycle in sorted(self._believed):
            place: Point | None = START
            while place is not None:
                place, _ = self.reread(cycle, place)
        noted = self._cycles.closed.load()
        for cycle in sorted(self._to_check & noted.keys()):
            self.check_closed(noted[cycle])

    def check_closed(self, record: ClosedCycle) -> None:
        """Does nothing when a closed store file holds what it is known to have held.

        Raises:
            QueueDamaged: it does not.
            QueueError: it cannot be read.
        """
        self._to_check.discard(record.cycle)
        if record.chain == UNKNOWN_CHAIN:
            return
        with self._turn:
            chain = self._at(record.cycle, Sequence(record.excerpts))
        if chain != record.chain:
            raise QueueDamaged(altered(record), path=self._cycles.path_of(record.cycle))

    def _at(self, cycle: Cycle, target: Sequence) -> bytes:
        sequence, chain = self._read_to(cycle, target, lambda: False)
        assert sequence == target
        return chain

    def _read_to(self, cycle: Cycle, target: Sequence, is_over: Callable[[], bool]) -> Point:
        """Reads from the last point to a place, or until the time is over."""
        if target == SEQUENCE_FIRST:
            return START
        known = self._points(cycle)
        return self._extended(cycle, known.last_before(target), target, known, is_over)

    def _extended(
        self,
        cycle: Cycle,
        start: Point,
        target: Sequence,
        known: ChainPoints | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Point:
        """The chain at a place, read from another one; points on the way are noted."""
        sequence, chain = start
        if sequence == target:
            return start
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
                self._bytes_read += batch.offsets[-1] + batch.lengths[-1] - batch.offsets[0]
                if known is not None:
                    known.note(sequence, chain)
                    self._is_unsaved = True
                if is_over():
                    break
        finally:
            tailer.close()
        return sequence, chain

    def _points(self, cycle: Cycle) -> ChainPoints:
        store = StoreState.of(self._cycles.path_of(cycle))
        file = None if store is None else store.number
        known = self._cached.pop(cycle, None)
        if known is None or known.file != file:
            for cycles in (self._to_reread, self._to_check, self._believed):
                cycles.discard(cycle)
            known = None if store is None else self._loaded(cycle, store)
            if known is None:
                known = ChainPoints(file)
                if cycle in self._cycles.closed.load():
                    self._to_check.add(cycle)
            else:
                self._believed.add(cycle)
        self._cached[cycle] = known
        if len(self._cached) > CYCLES_MAX:
            del self._cached[next(iter(self._cached))]
        return known

    def _loaded(self, cycle: Cycle, store: StoreState) -> ChainPoints | None:
        """The points of a store file as its side file has them; None where they cannot be."""
        try:
            found = load_chain_file(self._side_file(cycle))
            if found is None or (found.cycle, found.store.number) != (cycle, store.number):
                return None
            known = ChainPoints(store.number)
            known.take(found.points)
            *_, before, last = known
            if self._extended(cycle, before, last[0]) != last:
                _logger.warning(
                    "%s: the last excerpts that were read of it before are not what they were then:"
                    " all of it is read anew",
                    self._cycles.path_of(cycle),
                )
                return None
            if before != START and self._extended(cycle, START, _ONE)[1] != found.chain_first:
                return None
        except (QueueError, OSError, ValueError):
            return None  # reading it as a whole tells
        known.chain_first = found.chain_first
        if found.store != store:
            self._to_reread.add(cycle)
        return known

    def _save(self, cycle: Cycle, known: ChainPoints, limit: int) -> None:
        points = [point for point in known if SEQUENCE_FIRST < point[0] <= limit]
        is_good = cycle not in self._to_reread and cycle not in self._to_check
        if not points or points[-1][0] <= known.saved or not is_good:
            return
        store = StoreState.of(self._cycles.path_of(cycle))
        if store is None or store.number != known.file:
            return
        if known.chain_first is None:
            known.chain_first = self._extended(cycle, START, _ONE)[1]
        what = ChainFile(cycle=cycle, store=store, chain_first=known.chain_first, points=points)
        store_chain_file(self._side_file(cycle), what)
        known.saved = points[-1][0]

    def _side_file(self, cycle: Cycle) -> Path:
        return self._cycles.path_of(cycle).with_suffix(CHAIN_SUFFIX)
