"""Queues as streams: which offsets there are, and what tasks read between two of them.

Theory of operation. One object lives as long as a query runs and is asked for offsets; another one
is pickled, and its `read` runs in the tasks. An offset names what the queues held when it was told,
and never anything that a tailer would not have reached: a cycle is left only when it has ended.

What lies between two offsets is a function of these alone, however the queues have grown, because
Spark plans a batch once more after a failure and must get the same excerpts. If some of them are
not there any more, retention was faster than the query: an error, unless `failOnDataLoss` is false.

`commit` comes when the next batch has been planned, and not at all for the last one of a run. So it
only tells retention what will not be asked for again (option `reader`).
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cqrepl.queue import IndexGap, NotAQueue, Queue, QueueError, format_index
from cqrepl.queue.format.index import INDEX_MAX, NEXT_OF_EMPTY, Index, cycle_of
from cqrepl.queue.read.registration import Readers
from cqrepl.queue.read.stall import with_excerpts_above
from cqrepl.spark.lostends import check_end
from cqrepl.spark.offsets import (
    NO_LIMITS,
    Limits,
    advanced,
    as_offset,
    capped,
    end_of,
    filled_by,
    positions_of,
)
from cqrepl.spark.partitions import SplitPartition, partitions_of
from cqrepl.spark.queuefinder import Finder
from cqrepl.spark.ranges import IndexRange, check_held, followed, present
from cqrepl.spark.reasons import reason_only
from cqrepl.spark.streammarks import Mark, check_mark, mark_of, marks_of
from cqrepl.spark.streamstalls import confirmed_stall
from cqrepl.spark.tableoptions import (
    OTHERS,
    Bounds,
    OptionError,
    ReadOptions,
    StreamOptions,
    TableError,
    check_known,
)
from cqrepl.spark.taskreader import read_split

_CLOSING_S: Final = 10.0  # in which a living writer sets the end of a cycle that it has left
_WITHHELD_S: Final = 600.0  # in which it sets that while a query only waits
_LOOK_PAUSE_S: Final = 0.1
_LOOK_S: Final = 0.1  # a look at how far it is behind that takes longer is made seldom
_LOOK_SHARE: Final = 20
_logger = logging.getLogger(__name__)


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be, which says why when it is asked for its first offset.

    What is raised where a reader is made is not told by Spark 4.2 and 4.3: they go on to stop the
    reader, and say that there is none.
    """

    def __init__(self, error: TableError) -> None:
        self._error = error

    @reason_only()
    def initialOffset(self) -> dict[str, object]:
        """Raises the reason."""
        raise self._error

    @reason_only()
    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, object]:
        """Raises the reason."""
        raise self._error

    @reason_only()
    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> Sequence[InputPartition]:
        """Raises the reason."""
        raise self._error

    @reason_only()
    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises the reason."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Raises the reason."""
        raise self._error


class ChronicleStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets of a stream, and what its tasks read."""

    def __init__(
        self, options: ReadOptions, stream: StreamOptions, schema: "pa.Schema | None"
    ) -> None:
        """Args: schema: of what tasks read here; None where others read."""
        self._options = options
        self._stream = stream
        self._schema = schema
        self._finder = Finder(options.finding)
        self._initial: dict[str, object] | None = None
        self._targets: dict[str, int] | None = None  # where a run ends that takes what exists now
        self._batch_at = time.monotonic()  # the last batch, or the start of this run
        self._behind: dict[str, str] = {}
        self._behind_again_at = 0.0
        self._withheld = ""  # why a batch does not come, though there are excerpts
        self._open_since: dict[str, float] = {}  # queues that wait for the end of a cycle
        self._limits = Limits(
            excerpts=stream.excerpts_max, size_bytes=stream.bytes_max, cycles=stream.cycles_max
        )

    @reason_only()
    def initialOffset(self) -> dict[str, object]:
        """The offset where a query without a checkpoint begins. It is the same at each call, as
        Spark asks twice."""
        if self._initial is None:
            found = self._finder.find()
            named = [name for name in self._stream.starting if name != OTHERS]
            check_known("startingIndex", named, found)
            starts = {name: self._start_of(name, path) for name, path in found.items()}
            self._initial = as_offset(starts, self._marks(starts, starts))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the limits that were set; it only tells Spark that there is one."""
        if self._limits.excerpts is not None:
            return ReadMaxRows(self._limits.excerpts)
        if self._limits.size_bytes is not None:
            return ReadMaxBytes(self._limits.size_bytes)
        if self._limits.cycles is not None:
            return ReadMaxFiles(self._limits.cycles)
        if self._stream.excerpts_min is not None:
            return ReadMaxRows(INDEX_MAX)  # no limit; but one that may be waited for
        return ReadAllAvailable()

    @reason_only()
    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, object]:
        """The offset where the batch that begins at `start` ends; `start` itself while there is
        nothing to read.

        Raises:
            IndexGap: the excerpts that follow `start` are not there any more.
            OptionError: the checkpoint is about a queue that no path stands for.
            QueueError: a queue is another one than that of the checkpoint; or no writer has closed
                a cycle, and later ones hold excerpts.
        """
        positions = positions_of(start)
        limits = NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._limits
        marks = marks_of(start)
        pending = self._pending(positions, marks, limits)
        if self._targets is not None:
            pending = {
                name: capped(ranges, self._targets.get(name, 0)) for name, ranges in pending.items()
            }
        self._register(positions)
        may_wait = not isinstance(limit, ReadAllAvailable) and self._targets is None
        if may_wait and self._is_withheld(pending):
            return dict(start)
        ends = advanced(positions, pending, limits)
        moved = [name for name, index in ends.items() if positions.get(name) != index]
        return as_offset(ends, marks | self._marks(ends, moved))

    def _is_withheld(self, pending: Mapping[str, Sequence[IndexRange]]) -> bool:
        """True while a batch waits for more excerpts, which the progress of the query tells."""
        self._withheld = ""
        count = sum(one.count for ranges in pending.values() for one in ranges)
        least, now = self._stream.excerpts_min, time.monotonic()
        if least is None or count >= least or not count:
            self._batch_at = now if count else self._batch_at
            return False
        left = self._batch_at + self._stream.delay_s - now
        if left <= 0:
            self._batch_at = now
            return False
        self._withheld = f"{count} of {least} excerpts are there; {left:.0f} s until they are taken"
        return True

    @reason_only()
    def prepareForTriggerAvailableNow(self) -> None:
        """Remembers where the queues end: this run goes no further, nor into later queues."""
        self._targets = self._ends()

    @reason_only()
    def reportLatestOffset(self) -> dict[str, object]:
        """The offset where the queues end now, for the progress that Spark shows."""
        return as_offset(self._ends())

    @reason_only()
    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> Sequence[InputPartition]:
        """The splits that the tasks of one batch read.

        Raises:
            IndexGap, OptionError: as `latestOffset`.
        """
        return partitions_of(*self.ranges_between(start, end), self._options)

    def ranges_between(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> tuple[list[IndexRange], dict[str, Path]]:
        """The ranges that one batch reads, and the queues by name.

        Raises:
            IndexGap, OptionError: as `latestOffset`.
        """
        begins, paths = positions_of(start), {}
        ranges: list[IndexRange] = []
        marks, end_marks = marks_of(start), marks_of(end)
        for name, index_end in positions_of(end).items():
            index = begins.get(name, 0)
            if index_end > index:
                paths[name] = self._path_of(name)
                told = {index: marks.get(name, {}), index_end: end_marks[name]}
                ranges += self._between(paths[name], index, index_end, told)
        return ranges, paths

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The record batches of one task."""
        if isinstance(partition, SplitPartition):
            assert self._schema is not None
            may_be_lost = not self._stream.fail_on_data_loss
            with reason_only():
                yield from read_split(
                    partition, self._schema, self._options, may_be_lost=may_be_lost
                )

    @reason_only()
    def commit(self, end: Mapping[str, object]) -> None:
        """Tells retention that nothing before `end` will be read again, where it was asked to."""
        if self._stream.reader is not None:
            for name, index in positions_of(end).items():
                with Queue.open(self._path_of(name)) as queue:
                    Readers(queue.cycles).advance(self._stream.reader, index)

    def behind(self, offset: Mapping[str, object]) -> dict[str, str]:
        """The distance of an offset from the ends of its queues, in excerpts and bytes of store
        files; and when the cycle of the oldest of them began."""
        began_at = time.monotonic()
        if began_at < self._behind_again_at:
            return self._behind
        count = size_bytes = 0
        oldest: list[int] = []
        positions = positions_of(offset)
        for name, queue in self._opened():
            ranges = present(queue, positions.get(name, NEXT_OF_EMPTY))
            count += sum(one.count for one in ranges)
            size_bytes += sum(one.size_bytes for one in ranges)
            if ranges:
                cycle = cycle_of(Index(ranges[0].index_first), queue.cycles.shift)
                oldest.append(queue.cycles.ends_ms(cycle) - queue.cycles.roll_cycle.length_ms)
        told = {"excerptsBehind": str(count), "bytesBehind": str(size_bytes)}
        for name, since in self._open_since.items():
            waited_s = time.monotonic() - since
            self._withheld = f"{name}: waits {waited_s:.0f} s for the end of a cycle"
        if self._withheld:
            told["withheld"] = self._withheld
        if oldest:
            began = datetime.fromtimestamp(min(oldest) / 1000, UTC)
            told["oldestCycleBehind"] = began.isoformat(timespec="milliseconds")
        took_s = time.monotonic() - began_at
        if took_s > _LOOK_S:  # far behind, over thousands of cycles: it must not hold batches up
            self._behind_again_at = began_at + _LOOK_SHARE * took_s
        self._behind = told
        return told

    def _start_of(self, name: str, path: Path) -> int:
        with Queue.open(path) as queue:
            end = queue.next_index()
            starting = self._stream.starting.get(name, self._stream.starting[OTHERS])
            if self._stream.starting_ms is not None:
                bounds = Bounds(ms_from=self._stream.starting_ms)
                following = present(queue, bounds.indexes(queue.layout, name)[0])
                return following[0].index_first if following else end
            if starting == "latest":
                return end
            if isinstance(starting, str):
                return queue.first_index() or end
            if starting > end:
                reached = f"an index that {path} has reached, up to {format_index(end)}"
                raise OptionError("startingIndex", reached, format_index(starting))
            following = present(queue, starting)
            return following[0].index_first if following else end

    def _marks(self, positions: Mapping[str, int], names: Iterable[str]) -> dict[str, Mark]:
        """The marks of some queues at their positions; none of a queue that has just gone."""
        found: dict[str, Mark] = {}
        for name in names:
            with suppress(NotAQueue), Queue.open(self._path_of(name)) as queue:
                found[name] = mark_of(queue, positions[name])
        return found

    def _pending(
        self, positions: Mapping[str, int], marks: Mapping[str, Mark], limits: Limits
    ) -> dict[str, list[IndexRange]]:
        """The ranges that a batch could hold of each queue, by name. New queues that have come
        since the last batch are among them."""

        def wanted(name: str) -> Callable[[IndexRange], bool]:
            return filled_by(limits, None if self._targets is None else self._targets.get(name, 0))

        pending: dict[str, list[IndexRange]] = {}
        for name, index in positions.items():
            try:
                with Queue.open(self._path_of(name)) as queue:
                    check_mark(queue, index, marks[name])
                    try:
                        pending[name] = self._followed(queue, name, index, wanted)
                        if not pending[name] and self._stream.fail_on_data_loss:
                            check_end(queue)  # else one of it would wait here for ever
                    except IndexGap as gap:
                        self._check_loss(gap)
                        pending[name] = followed(
                            queue, index, may_be_lost=True, is_enough=wanted(name)
                        )
            except NotAQueue as error:
                self._check_loss(error)
        for name, queue in self._opened():
            if name not in positions:
                pending[name] = self._followed(queue, name, NEXT_OF_EMPTY, wanted)
        return pending

    def _followed(
        self,
        queue: Queue,
        name: str,
        index: int,
        wanted: Callable[[str], Callable[[IndexRange], bool]],
    ) -> list[IndexRange]:
        """As `followed`; where a cycle that no writer has closed is in the way, that is told.

        Raises:
            IndexGap: as `followed`.
            QueueError: a cycle has no end, and is not going to have one; or this run, which takes
                what exists, has waited for that in vain.
        """
        deadline = time.monotonic() + _CLOSING_S
        while True:
            found = followed(queue, index, is_enough=wanted(name))
            if found:
                self._open_since.pop(name, None)
                return found
            stall = confirmed_stall(queue.cycles, index)
            if stall is not None:
                break
            cycle = cycle_of(Index(index), queue.cycles.shift)
            is_short = self._targets is not None and index < self._targets.get(name, 0)
            now = time.monotonic()
            if with_excerpts_above(queue.cycles, cycle) is None:
                self._open_since.pop(name, None)
                return []
            patience_s = _CLOSING_S if is_short else _WITHHELD_S
            since = now if is_short else self._open_since.setdefault(name, now)
            if now >= (deadline if is_short else since + patience_s):
                raise QueueError(
                    f"expected an end of cycle {cycle}, which a process with the write lock has"
                    f" not set for {patience_s:g} s; later cycles hold excerpts",
                    path=queue.path,
                )
            if not is_short:
                return []
            time.sleep(_LOOK_PAUSE_S)
        error = QueueError(f"{stall}; cqrepl repair QUEUE --apply closes it")
        self._check_loss(error)
        return followed(
            queue, index, may_be_lost=True, open_below=stall.cycle_next, is_enough=wanted(name)
        )

    def _between(
        self, path: Path, index: int, index_end: int, marks: Mapping[int, Mark]
    ) -> list[IndexRange]:
        ranges: list[IndexRange] = []
        try:
            with Queue.open(path) as queue:
                for at, mark in marks.items():
                    check_mark(queue, at, mark)
                ranges = present(queue, index, index_end - 1)
                check_held(queue, Index(index))
                if end_of(ranges) != index_end:
                    reason = "it was there when the batch was planned"
                    raise IndexGap(index_end - 1, end_of(ranges), reason, path=path)
        except (IndexGap, NotAQueue) as error:
            self._check_loss(error)
        return ranges

    def _check_loss(self, error: QueueError) -> None:
        if self._stream.fail_on_data_loss:
            raise error
        _logger.warning("went on behind what is lost: %s", error)

    def _ends(self) -> dict[str, int]:
        return {name: queue.next_index() for name, queue in self._opened()}

    def _opened(self) -> Iterator[tuple[str, Queue]]:
        """The queues there are now, each open until the next one is asked for."""
        for name, path in self._finder.find().items():
            try:
                queue = Queue.open(path)
            except NotAQueue as error:  # one is just being made
                _logger.info("passed over: %s", error)
                continue
            with queue:
                yield name, queue

    def _path_of(self, name: str) -> Path:
        path = self._finder.path_of(name)
        if path is None:
            paths = ", ".join(self._options.finding.paths)
            raise OptionError("path", f"one for queue {name!r} of the checkpoint", repr(paths))
        return path

    def _register(self, positions: Mapping[str, int]) -> None:
        """Makes the query known to retention in each of its queues."""
        if self._stream.reader is not None:
            for name, index in positions.items():
                with Queue.open(self._path_of(name)) as queue:
                    Readers(queue.cycles).register(self._stream.reader, index)
