"""Plans what the scan in Java reads: pieces of store files, each with places that were checked.

Theory of operation. The scan in Java walks headers and copies payloads, and decides nothing. What
is read, and whether it may be, is decided here, by the same code that plans the source in Python. A
piece names the place where a walk begins, which was checked, and the position of its last excerpt,
where the walk has to arrive. Between them the walk compares each index slot.

A filter narrows the ranges before they are cut. Its bounds are exact, as `index`, `cycle`,
`timestamp` and `queue` are the same for all excerpts of a range or follow each other. So Spark does
not look at them again. Counts, least and greatest ones come from the ranges alone: no excerpt is
read for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cqrepl.queue import (
    NEXT_OF_EMPTY,
    Queue,
    QueueDamaged,
    QueueError,
    cycle_of,
    index_of,
    sequence_of,
)
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.keptidentity import HIGH_KEY, LOW_KEY
from cqrepl.queue.files.storefile import Place, StoreFile
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index
from cqrepl.queue.format.index import Sequence as Seq
from cqrepl.queue.format.rollcycle import CYCLE_MAX
from cqrepl.queue.format.storeimage import ARRAY_HEAD_BYTES
from cqrepl.queue.read.agreement import Agreement
from cqrepl.spark.lostends import check_end
from cqrepl.spark.offsets import capped
from cqrepl.spark.queuefinder import Finder
from cqrepl.spark.ranges import IndexRange, Split, present, split
from cqrepl.spark.tableoptions import Bounds, OptionError, ReadOptions
from cqrepl.spark.unknownholes import told_of_holes
from cqrepl.spark.witness import Witness, opened_queues, witnesses_of

_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_ALL: Final = (_LONG_MIN, _LONG_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """The rows that a filter and a limit leave; each pair is included at both ends.

    Args:
        timestamp: in microseconds since 1970.
        queues: names; None is no filter.
        limit: so many rows are enough.
    """

    index: tuple[int, int] = _ALL
    cycle: tuple[int, int] = _ALL
    timestamp: tuple[int, int] = _ALL
    queues: frozenset[str] | None = None
    limit: int | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Narrowed":
        """The filter that the scan in Java tells."""
        pairs = {name: (low, high) for name, (low, high) in told.get("bounds", {}).items()}
        queues = told.get("queues")
        return cls(
            **pairs,
            queues=None if queues is None else frozenset(queues),
            limit=told.get("limit"),
        )

    def within(self, cycles: Cycles, first: int, last: int) -> tuple[int, int] | None:
        """The indexes of a queue from `first` to `last` that are wanted; None: there are none."""
        first, last = max(first, self.index[0]), min(last, self.index[1])
        low, high = max(self.cycle[0], 0), min(self.cycle[1], CYCLE_MAX)
        if self.timestamp != _ALL:
            of_time = _cycles_between(cycles, *self.timestamp)
            low, high = max(low, of_time[0]), min(high, of_time[1])
        if low > high:
            return None
        shift = cycles.shift
        first = max(first, index_of(Cycle(low), SEQUENCE_FIRST, shift))
        last = min(last, ((high + 1) << shift) - 1)
        return (max(first, NEXT_OF_EMPTY), last) if last >= max(first, 0) else None


def _cycles_between(cycles: Cycles, low_us: int, high_us: int) -> tuple[int, int]:
    """The cycles that begin between two times, both included."""
    length_us = cycles.roll_cycle.length_ms * 1000
    epoch_us = cycles.ends_ms(Cycle(0)) * 1000 - length_us
    return -((epoch_us - low_us) // length_us), (high_us - epoch_us) // length_us


def ends_now(options: ReadOptions) -> dict[str, int]:
    """One past the last excerpt of each queue, by its directory; 0 where there is none yet."""
    ends: dict[str, int] = {}
    for path in Finder(options.finding).find().values():
        try:
            with Queue.open(path) as queue:
                ends[str(path)] = queue.next_index()
        except QueueError:  # the reading tells what is wrong
            ends[str(path)] = NEXT_OF_EMPTY
    return ends


def batch_ranges(
    options: ReadOptions, bounds: Bounds, wanted: Narrowed, ends: Mapping[str, int] | None
) -> tuple[list[IndexRange], dict[str, Path], dict[str, int]]:
    """The ranges of a batch, the queues by name, and where each ended.

    Args:
        ends: reads no further, and of no other queue up to anywhere; None: where they end now.

    Raises:
        OptionError: there is no queue.
        QueueError: one cannot be read.
    """
    found = Finder(options.finding).find()
    if not found:
        paths = ", ".join(options.finding.paths)
        raise OptionError("path", "a pattern that a queue matches", repr(paths))
    bounds.check_names(found)
    ranges: list[IndexRange] = []
    seen: dict[str, int] = {}
    left = wanted.limit
    for name, path in found.items():
        with Queue.open(path) as queue:
            first, last = bounds.indexes(queue.layout, name)
            check_end(queue, last)
            seen[str(path)] = (
                queue.next_index() if ends is None else ends.get(str(path), NEXT_OF_EMPTY)
            )
            span = wanted.within(queue.cycles, first, last)
            is_chosen = wanted.queues is None or name in wanted.queues
            if span is None or not is_chosen:
                continue
            # up to where it ends now, which is looked at; then cut to the snapshot
            of_queue = capped(present(queue, *span), seen[str(path)])
            if of_queue:
                _certify(queue.cycles, of_queue[-1])
            for one in of_queue:
                if left is None:
                    ranges.append(one)
                elif left > 0:
                    ranges.append(one.until(one.index_first + min(left, one.count) - 1))
                    left -= ranges[-1].count
    return ranges, found, seen


def _certify(cycles: Cycles, one: IndexRange) -> None:
    """Does nothing where what writers recorded agrees with the last excerpt of a range, as for a
    reader that has come there.

    Raises:
        QueueDamaged: it does not.
    """
    store = cycles.open(cycle_of(Index(one.index_last), cycles.shift))
    if store is not None:
        try:
            _places(store, sequence_of(Index(one.index_last), cycles.shift), 1)
        finally:
            store.close()


def split_plan(
    ranges: Sequence[IndexRange], paths: Mapping[str, Path], options: ReadOptions
) -> dict[str, Any]:
    """The tasks of a scan, as the scan in Java takes them; and what is to be said in the log.

    Raises:
        QueueError: a queue cannot be read.
    """
    splits = split(
        ranges,
        split_bytes=options.split_bytes,
        split_excerpts=options.split_excerpts,
        splits_max=options.splits_max,
    )
    names = {path: name for name, path in paths.items()}
    with opened_queues() as opened:
        tasks = []
        for each in splits:
            witnesses = witnesses_of(each, opened)
            tasks.append(
                {
                    "pieces": _pieces(each, names, opened),
                    "witnesses": [_witness(one, opened[one.queue]) for one in witnesses],
                }
            )
        holes = [told_of_holes(queue, ranges) for queue in opened.values()]
    return {"tasks": tasks, "said": [line for line in holes if line is not None]}


def totals(ranges: Iterable[IndexRange], paths: Mapping[str, Path]) -> dict[str, Any]:
    """The number of excerpts of some ranges, and the least and greatest value of each column."""
    names = {path: name for name, path in paths.items()}
    found: dict[str, list[Any]] = {}
    count = size = 0
    opened: dict[Path, Cycles] = {}
    for one in ranges:
        count, size = count + one.count, size + one.size_bytes
        if one.queue not in opened:
            with Queue.open(one.queue) as queue:
                opened[one.queue] = queue.cycles
        cycles = opened[one.queue]
        cycle = cycle_of(Index(one.index_first), cycles.shift)
        first, last = (
            sequence_of(Index(each), cycles.shift) for each in (one.index_first, one.index_last)
        )
        values = {
            "queue": (names[one.queue],) * 2,
            "index": (one.index_first, one.index_last),
            "cycle": (cycle, cycle),
            "sequence": (first, last),
            "timestamp": (_start_us(cycles, cycle),) * 2,
        }
        for column, (low, high) in values.items():
            known = found.setdefault(column, [low, high])
            known[:] = [min(known[0], low), max(known[1], high)]
    return {"count": count, "bytes": size, "columns": found}


def _start_us(cycles: Cycles, cycle: Cycle) -> int:
    return (cycles.ends_ms(cycle) - cycles.roll_cycle.length_ms) * 1000


def _pieces(
    each: Split, names: Mapping[Path, str], opened: Mapping[Path, Queue]
) -> list[dict[str, Any]]:
    found = []
    for one in each:
        cycles = opened[one.queue].cycles
        cycle = cycle_of(Index(one.index_first), cycles.shift)
        first = sequence_of(Index(one.index_first), cycles.shift)
        piece: dict[str, Any] = {
            "queue": names[one.queue],
            "directory": str(one.queue),
            "file": cycles.path_of(cycle).name,
            "cycle": cycle,
            "startMicros": _start_us(cycles, cycle),
            "indexFirst": one.index_first,
            "sequenceFirst": first,
            "count": one.count,
        }
        store = cycles.open(cycle)
        if store is None:  # gone meanwhile: the task will say so
            piece |= {"alignment": 4, "spacing": 0, "slots": [], "slotCount": 0, "pageFirst": 0}
            piece |= {"beginSequence": 0, "beginPosition": 0, "lastPosition": -1}
        else:
            try:
                piece |= _places(store, first, one.count)
            finally:
                store.close()
        found.append(piece)
    return found


def _places(store: StoreFile, first: Seq, count: int) -> dict[str, Any]:
    """The place where a walk to some excerpts begins, the position of the last one, and where the
    index pages are that the walk is held against.

    Raises:
        QueueDamaged: what writers recorded does not agree with the last one.
    """
    indexing = Indexing(store)
    last = Seq(first + count - 1)
    begin = indexing.place_before(first)
    before = indexing.place_before(last)
    walked = store.walk(before, last + 1)
    is_there = walked.place.sequence == last + 1
    if is_there:
        found = store.find(walked.position_last, count_max=1)
        Agreement(store, indexing).certain_count(Place(last, walked.position_last), found)
    pages = range(indexing.page_of(first), indexing.page_of(last) + 1)
    arrays = [_array_of(indexing, page) for page in pages]
    header = store.header
    return {
        "beginSequence": begin.sequence,
        "beginPosition": begin.position,
        # what the walk does not find any more, the task will not find either, and tells
        "lastPosition": walked.position_last if is_there else -1,
        "alignment": header.alignment,
        "spacing": header.index_spacing,
        "slotCount": header.index_count,
        "pageFirst": pages[0],
        "slots": [-1 if array is None else array + ARRAY_HEAD_BYTES for array in arrays],
    }


def _array_of(indexing: Indexing, page: int) -> int | None:
    """The position of an index page's array; None where it is damaged: it then says nothing."""
    try:
        return indexing.array_of(page)
    except QueueDamaged:
        return None


def _witness(one: Witness, queue: Queue) -> dict[str, Any]:
    return {
        "directory": str(one.queue),
        "excerpts": [[index, digest.hex()] for index, digest in one.excerpts],
        "files": [[path.name, length, changed_ns] for path, length, changed_ns in one.files],
        "longs": _identity_longs(queue) if one.identity is not None else [],
        "table": queue.cycles.table_path.name,
    }


def _identity_longs(queue: Queue) -> list[list[int]]:
    """The positions of the two halves of the identity in the table store, with their values."""
    try:
        table = TableStore(queue.cycles.table_path, writable=False)
    except (OSError, QueueError):
        return []
    try:
        values = [table.find(key) for key in (HIGH_KEY, LOW_KEY)]
        return [[each.position, each.load()] for each in values if each is not None]
    finally:
        table.close()
