"""Finds the excerpts that `cqrepl tail` shall print, and prints them."""

import re
import sys
from contextlib import closing
from datetime import tzinfo
from pathlib import Path
from typing import Final, TypedDict

from cqrepl.commands.excerptlines import Lines, Paths
from cqrepl.commands.fieldrows import FieldRows
from cqrepl.commands.spot import Spot
from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.queue import Excerpt, NamedPosition, Queue, Tailer, format_index
from cqrepl.queue.format.index import INDEX_MAX, NEXT_OF_EMPTY
from cqrepl.queue.read import count as counting
from cqrepl.typed.condition import Condition
from cqrepl.typed.documentfields import fields_of, is_malformed
from cqrepl.typed.instants import time_reader
from cqrepl.typed.schemafile import kept_schema, paths_of
from wire.errors import WireError

ROW_FORMS: Final = ("csv", "table")
_COUNT_DEFAULT: Final = 10
_STALL_PATIENCE_S: Final = 0.6  # to see whether the writer of an open cycle is really gone


class GivenOptions(TypedDict):
    """The options that the user chose, but for the condition."""

    follow: bool
    count: int | None
    index_from: Spot | None
    index_to: Spot | None
    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    reverse: bool
    named: str | None
    count_max: int | None
    form: str | None
    template: str | None
    time_field: str | None
    as_json: bool
    repair: bool
    paths: Paths | None
    only_count: bool
    zone: tzinfo


class TailOptions(GivenOptions):
    """All options."""

    where: Condition | None


def print_excerpts(path: Path, options: TailOptions) -> int:
    """Prints what the options ask for; the exit code."""
    with Queue.open(path) as queue:
        lines = Lines(
            shift=queue.layout.roll_cycle.shift,
            form=options["form"],
            template=options["template"],
            time_field=options["time_field"],
            as_json=options["as_json"],
            zone=options["zone"],
            paths=options["paths"] or (),
        )
        form = options["form"]
        paths = options["paths"] or paths_of(kept_schema(path))
        rows = FieldRows(form, paths) if form in ROW_FORMS else None
        printing = _Printing(queue, lines, options, rows)
        code = printing.run()
        printing.end()
        output.flush()
        return printing.code(code)


class _Printing:
    """One run of the command."""

    def __init__(
        self, queue: Queue, lines: Lines, options: TailOptions, rows: FieldRows | None
    ) -> None:
        self._queue = queue
        self._lines = lines
        self._rows = rows
        self._options = options
        self._count = 0  # of excerpts that are to be shown
        self._malformed = 0  # that a condition could not be asked of
        self._malformed_first = 0
        limits = [options["count_max"]]
        if options["index_from"] is not None:
            limits.append(options["count"])
        self._left = min((each for each in limits if each is not None), default=sys.maxsize)
        wanted = options["index_to"]
        self._index_to = INDEX_MAX if wanted is None else self._end_of(wanted)

    def run(self) -> int:
        """Prints upwards, or downwards; the exit code."""
        if self._left == 0:
            return exitcodes.OK
        return self._down() if self._options["reverse"] else self._up()

    def end(self) -> None:
        """Prints what is left, and says what was not shown."""
        if self._options["only_count"]:
            fields = {"v": 1, "count": self._count}
            as_json = self._options["as_json"]
            output.write_text(output.json_line(fields) if as_json else f"{self._count}\n")
        self._flush()
        where = self._options["where"]
        notes = [] if where is None else where.notes()
        notes += [] if self._rows is None else self._rows.notes()
        if self._malformed:
            first = format_index(self._malformed_first)
            count = plural(self._malformed, "excerpt")
            notes.append(f"{count} that cannot be read as documents, the first at {first}")
        for note in notes:
            output.write_error(f"cqrepl tail: {note}")

    def code(self, code: int) -> int:
        """The exit code, where `code` says all else."""
        return exitcodes.DAMAGED if self._malformed and code == exitcodes.OK else code

    def _flush(self) -> None:
        if self._rows is not None:
            self._rows.flush()
        output.flush()

    def _down(self) -> int:
        """Prints from the end downwards."""
        start = self._start()
        tailer = self._queue.backward(None if self._index_to == INDEX_MAX else self._index_to)
        for excerpt in tailer:
            if excerpt.index < start or not self._print(excerpt):
                break
        return exitcodes.OK

    def _up(self) -> int:
        """Prints upwards, and follows if that is asked for."""
        name, repair = self._options["named"], self._options["repair"]
        if name is None:
            return self._print_up(self._queue.tailer(self._start(), repair=repair), None)
        with closing(self._queue.named_position(name)) as named:
            return self._print_up(self._queue.tailer(named.load(), repair=repair), named)

    def _print_up(self, tailer: Tailer, named: NamedPosition | None) -> int:
        follow, is_reported = self._options["follow"], False
        while self._print_there(tailer, named):
            if tailer.stalled is not None and not tailer.wait(_STALL_PATIENCE_S):
                if not is_reported and tailer.stalled is not None:
                    is_reported = True
                    output.write_error(f"cqrepl tail: {tailer.stalled} (see cqrepl repair)")
                if not follow:
                    return exitcodes.DAMAGED
            elif not follow and not tailer.has_next():
                return exitcodes.OK
            elif follow:
                tailer.wait()
        return exitcodes.OK

    def _print_there(self, tailer: Tailer, named: NamedPosition | None) -> bool:
        """Prints what the queue holds now; false when no more is wanted."""
        goes_on = True
        next_index: int = tailer.next_index
        for excerpt in tailer:
            if excerpt.index > self._index_to:
                goes_on = False
                break
            next_index = excerpt.index + 1
            if not self._print(excerpt):
                goes_on = False
                break
        self._flush()
        if named is not None and next_index != named.load():
            named.move(next_index)  # what was printed has left this process
        return goes_on and next_index <= self._index_to

    def _print(self, excerpt: Excerpt) -> bool:
        """Prints an excerpt if it is to be shown; false when no more is wanted."""
        if self._matches(excerpt):
            self._count += 1
            if self._options["only_count"]:
                pass
            elif self._rows is not None:
                self._rows.add(excerpt)
            elif self._options["form"] == "raw":
                output.write_bytes(excerpt.data)
            else:
                output.write_text(self._lines.line(excerpt))
            self._left -= 1
        return self._left > 0

    def _matches(self, excerpt: Excerpt) -> bool:
        if not self._fulfils(excerpt):
            return False
        include, exclude = self._options["include"], self._options["exclude"]
        if not include and not exclude:
            return True  # no pattern needs the text, so none is made
        text = self._lines.text(excerpt)
        return all(one.search(text) for one in include) and not any(
            one.search(text) for one in exclude
        )

    def _fulfils(self, excerpt: Excerpt) -> bool:
        """True where the condition holds, or there is none."""
        where = self._options["where"]
        if where is None:
            return True
        try:
            fields = fields_of(excerpt.data)
        except WireError:
            if is_malformed(excerpt.data):
                self._malformed += 1
                self._malformed_first = self._malformed_first or excerpt.index
            return False
        return fields is not None and where.holds(fields)

    def _start(self) -> int:
        """The index to begin with; for --reverse, to end with."""
        options = self._options
        if options["index_from"] is not None:
            return self._index_of(options["index_from"])
        if options["count"] is not None:
            return self._of_last(options["count"])
        begins = ("index_to", "include", "exclude", "count_max", "reverse", "where", "only_count")
        if any(dict(options)[name] for name in begins):
            return NEXT_OF_EMPTY
        return self._of_last(_COUNT_DEFAULT)

    def _index_of(self, spot: Spot) -> int:
        if spot.time_ns is not None:
            field = self._options["time_field"]
            assert field is not None
            return self._queue.seek_time(spot.time_ns, time_reader(field))
        return spot.at if spot.counted is None else self._of_last(spot.counted + 1)

    def _end_of(self, spot: Spot) -> int:
        """The last index to print: `first` names the first excerpt, whatever its index."""
        if spot != Spot():
            return self._index_of(spot)
        first = self._queue.first_index()
        return NEXT_OF_EMPTY if first is None else first

    def _of_last(self, count: int) -> int:
        """The index of the first of the last `count` excerpts."""
        if count == 0:
            return self._queue.next_index()
        index = counting.nth_last_index(self._queue.cycles, count)
        return NEXT_OF_EMPTY if index is None else index
