"""The work of `cqrepl replay`: a range of a queue again, as a new queue.

Theory of operation. Excerpts keep their order, their payloads and their cycles, so times by cycle
stay true; within a cycle they are counted from its first sequence on. What the new queue holds
already is compared, and the rest is appended: a replay that was killed is begun again, and a queue
that holds something else is left as it is.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from cqrepl.console import exitcodes, output
from cqrepl.console.meter import Meter
from cqrepl.console.units import plural
from cqrepl.queue import (
    NEXT_OF_EMPTY,
    Excerpt,
    Queue,
    QueueError,
    cycle_of,
    format_index,
    index_of,
)
from cqrepl.queue.format.index import INDEX_MAX, SEQUENCE_FIRST, Cycle, Index
from cqrepl.queue.format.rollcycle import CYCLE_MAX

_BLOCK: Final = 4096


class ReplayOptions(NamedTuple):
    """The options that the user chose; both ends of a range are included, but `until_ms`."""

    index_first: int
    index_last: int | None
    from_ms: int | None
    until_ms: int | None
    as_json: bool


class _Block(NamedTuple):
    """Consecutive excerpts of one cycle."""

    cycle: Cycle
    first: int
    payloads: list[bytes]


def replay_queue(path: Path, target: Path, options: ReplayOptions) -> int:
    """Copies a range of a queue to a new one; the exit code.

    Raises:
        BadArguments: the range is empty, or of two kinds, or the two queues are one.
        QueueError: a queue cannot be read or written; or the new one holds something else.
    """
    with Queue.open(path) as queue, ExitStack() as stack:
        if target.exists() and target.resolve() == path.resolve():
            raise exitcodes.BadArguments(f"{target}: expected another queue than the replayed one")
        first, last = _range(queue, options)
        blocks = _blocks(queue, first, last)
        begin = next(blocks, None)
        if begin is None:
            raise exitcodes.BadArguments(
                f"{path}: expected excerpts from {format_index(first)} to {format_index(last)},"
                " found none"
            )
        out = stack.enter_context(Queue.open_for_append(target, create=queue.layout))
        meter = stack.enter_context(Meter(str(target)))
        found = _written(queue, out, begin, blocks, meter)
    fields: dict[str, object] = {
        "v": 1,
        "excerpts": found.appended,
        "excerpts_before": found.before,
    }
    fields |= {"first": format_index(begin.first), "last": format_index(found.last)}
    before = f", {plural(found.before, 'excerpt')} were there" if found.before else ""
    line = f"{plural(found.appended, 'excerpt')} replayed{before}, {fields['first']} to"
    text = output.json_line(fields) if options.as_json else f"{line} {fields['last']}\n"
    output.write_text(text)
    output.flush()
    return exitcodes.OK


def _range(queue: Queue, options: ReplayOptions) -> tuple[int, int]:
    """The first and the last index. A time stands for the cycle it lies in.

    Raises:
        BadArguments: indexes and times are given.
    """
    first, last = options.index_first, options.index_last
    begin_ms, end_ms = options.from_ms, options.until_ms
    if (begin_ms, end_ms) != (None, None) and (first > NEXT_OF_EMPTY or last is not None):
        raise exitcodes.BadArguments("expected --from and --until, or times, found both")
    shift, epoch = queue.layout.roll_cycle.shift, queue.layout.epoch

    def cycle_at(ms: int) -> Cycle:
        return Cycle(min(max(0, queue.layout.roll_cycle.cycle_at(ms, epoch)), CYCLE_MAX))

    if begin_ms is not None:
        first = index_of(cycle_at(begin_ms), SEQUENCE_FIRST, shift)
    if end_ms is not None:
        last = ((cycle_at(end_ms - 1) + 1) << shift) - 1
    now = queue.next_index() - 1
    return max(first, queue.first_index() or NEXT_OF_EMPTY), min(
        INDEX_MAX if last is None else last, now
    )


def _blocks(queue: Queue, first: int, last: int) -> Iterator[_Block]:
    shift = queue.layout.roll_cycle.shift
    if first > last:
        return
    tailer = queue.tailer(first)
    while (batch := tailer.next_batch(count_max=_BLOCK)) is not None and batch.index_first <= last:
        payloads = [bytes(data) for index, data in batch if index <= last]
        yield _Block(cycle_of(batch.index_first, shift), batch.index_first, payloads)


class _Written(NamedTuple):
    """The findings: how many were appended, and were there before; the last index replayed."""

    appended: int
    before: int
    last: int


def _written(
    queue: Queue, out: Queue, begin: _Block, rest: Iterator[_Block], meter: Meter
) -> _Written:
    """Appends the blocks, but for what is there already.

    Raises:
        QueueError: something else is there.
    """
    held = iter(out.tailer())
    appended = before = 0
    for block in chain((begin,), rest):
        there = 0 if appended else _there(held, block, queue, out)
        before += there
        new = block.payloads[there:]
        if new:
            began_ms = queue.cycles.ends_ms(block.cycle) - queue.layout.roll_cycle.length_ms
            out.append_many(new, now_ms=began_ms)
            appended += len(new)
        end = block.first + len(block.payloads) - 1
        meter.add(len(block.payloads), sum(map(len, block.payloads)))
    more = None if appended else next(held, None)
    if more is not None:
        raise _other(out, more.index, "the end of what is replayed")
    return _Written(appended, before, end)


def _there(held: Iterator[Excerpt], block: _Block, queue: Queue, out: Queue) -> int:
    """The number of excerpts of a block that the new queue holds.

    Raises:
        QueueError: one of them is another one.
    """
    shift = queue.layout.roll_cycle.shift
    for number, payload in enumerate(block.payloads):
        found = next(held, None)
        if found is None:
            return number
        if cycle_of(Index(found.index), shift) != block.cycle or bytes(found) != payload:
            wanted = f"the excerpt {format_index(block.first + number)} of {queue.path}"
            raise _other(out, found.index, wanted)
    return len(block.payloads)


def _other(out: Queue, index: int, wanted: str) -> QueueError:
    return QueueError(
        f"expected {wanted}, found another one at {format_index(index)}; nothing was changed:"
        " replay into a queue that is not there yet",
        path=out.path,
    )
