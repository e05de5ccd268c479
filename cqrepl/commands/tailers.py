"""Prints where the named tailers of a queue stand, and moves them."""

from pathlib import Path

from cqrepl.commands.spot import Spot
from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import Queue
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of, format_index
from cqrepl.queue.read.count import nth_last_index
from cqrepl.queue.read.namedtailer import named_tailers
from cqrepl.typed.instants import time_reader


def print_tailers(path: Path, *, as_json: bool) -> int:
    """Prints a line for each; the exit code."""
    with Queue.open(path) as queue:
        for name, at in sorted(_known(queue).items()):
            lag = _lag(queue, at)
            fields = {"v": 1, "name": name, "next": format_index(at), "lag": lag}
            where = "the start" if at == NEXT_OF_EMPTY else format_index(at)
            behind = "in an earlier cycle" if lag is None else f"{lag:,} behind"
            text = f"{name}  next {where}  {behind}\n"
            output.write_text(output.json_line(fields) if as_json else text)
    output.flush()
    return exitcodes.OK


def move_tailer(path: Path, name: str, spot: Spot, field: str | None) -> int:
    """Has a named tailer go on at a place; the exit code."""
    with Queue.open(path) as queue:
        if spot.time_ns is not None:
            if field is None:
                raise BadArguments("expected --time-field beside a time, got none")
            index = queue.seek_time(spot.time_ns, time_reader(field))
        elif spot.counted is not None:
            index = nth_last_index(queue.cycles, spot.counted + 1) or NEXT_OF_EMPTY
        else:
            index = spot.at
        return _move(queue, name, index)


def forget_tailer(path: Path, name: str) -> int:
    """Has a named tailer hold nothing of what there is; the exit code.

    A key of a table store is never freed, Java's neither: it stands at the end from now on.
    """
    with Queue.open(path) as queue:
        if name not in _known(queue):
            names = ", ".join(sorted(_known(queue))) or "none"
            raise BadArguments(f"expected a named tailer ({names}), got {name!r}")
        return _move(queue, name, queue.next_index())


def _move(queue: Queue, name: str, index: int) -> int:
    position = queue.named_position(name)
    try:
        before = position.load()
        position.move(index)
    finally:
        position.close()
    shown = [format_index(each) for each in (before, index)]
    output.write_text(f"{name}: next {shown[1]}, was {shown[0]}\n")
    output.flush()
    return exitcodes.OK


def _known(queue: Queue) -> dict[str, int]:
    try:
        table = TableStore(queue.cycles.table_path, writable=False)
    except FileNotFoundError:
        return {}
    try:
        return named_tailers(table)
    finally:
        table.close()


def _lag(queue: Queue, at: int) -> int | None:
    """Excerpts that a tailer has not read; None where they span cycles."""
    end, first = queue.next_index(), queue.first_index()
    if at == NEXT_OF_EMPTY:
        at = first or end
    if at >= end:
        return 0
    shift = queue.layout.roll_cycle.shift
    is_one_cycle = cycle_of(Index(at), shift) == cycle_of(Index(end), shift)
    return end - at if is_one_cycle else None
