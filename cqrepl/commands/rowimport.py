"""The work of `cqrepl import`: rows of a file, appended as documents."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from cqrepl.commands.chosenschema import chosen_schema
from cqrepl.console import exitcodes, output
from cqrepl.console.meter import Meter
from cqrepl.console.units import plural
from cqrepl.queue import NotAQueue, Queue
from cqrepl.typed.importnotes import ImportNote, found_behind
from cqrepl.typed.plainvalues import NoPlainValue, message_of
from wire.objects.documents import encode
from wire.objects.shapes import shape_of

FORMS: Final = ("csv", "jsonl", "arrow", "parquet")
BLOCK_ROWS: Final = 4096
_NO_FIELDS: Final = ("index", "_misfit", "_error")


class ImportOptions(NamedTuple):
    """The options that the user chose."""

    source: Path
    form: str | None
    schema: Path | None
    event: str | None
    create: str | None
    as_json: bool


def import_rows(path: Path, options: ImportOptions) -> int:
    """Appends the rows of a file that are not in the queue yet; the exit code."""
    form = options.form or options.source.suffix.removeprefix(".")
    if form not in FORMS:
        raise exitcodes.BadArguments(
            f"{options.source}: expected a file .csv, .jsonl, .arrow or .parquet, or --format"
        )
    kind = chosen_schema(path, options.schema, options.event)
    if kind is None and form == "csv":
        raise exitcodes.BadArguments("csv: expected --schema FILE: a cell of it is only text")
    payloads = _payloads(_rows(options.source, form), _encoder(kind, form))
    with _opened(path, options) as queue, Meter(str(path)) as meter:
        note = ImportNote.of(path, _digest(options.source), options.source.name)
        began_at = note.rows
        appended = 0 if note.is_whole else _append(queue, note, payloads, meter)
    fields = {"v": 1, "rows": appended, "rows_before": began_at}
    rows = f"{plural(appended, 'row')} appended"
    before = (
        f", {plural(note.rows - appended, 'row')} were in the queue" if note.rows > appended else ""
    )
    line = output.json_line(fields) if options.as_json else f"{rows}{before}\n"
    output.write_text(line)
    output.flush()
    return exitcodes.OK


def _opened(path: Path, options: ImportOptions) -> Queue:
    try:
        return Queue.open(path, create=options.create)
    except ValueError as error:
        raise exitcodes.BadArguments(str(error)) from error
    except NotAQueue as error:
        if options.create is None and not path.exists():
            raise exitcodes.BadArguments(f"{error}; --create ROLL_CYCLE makes one") from error
        raise


def _append(queue: Queue, note: ImportNote, payloads: Iterator[bytes], meter: Meter) -> int:
    """Appends what is not in the queue yet; how many rows."""
    appended = 0
    rows = islice(payloads, note.rows, None)
    is_first = True
    while block := list(islice(rows, BLOCK_ROWS)):
        begun = note.next_index if is_first else None
        there = 0 if begun is None else found_behind(queue, begun, block)
        is_first = False
        if there < len(block):
            note.rows += there
            note.next_index = queue.next_index()
            note.write()
            queue.append_many(block[there:])
        note.rows += len(block) - (there if there < len(block) else 0)
        appended += len(block) - there
        meter.add(len(block) - there, sum(map(len, block[there:])))
    note.is_whole = True
    note.write()
    return appended


def _payloads(
    rows: Iterator[Mapping[str, Any]], make: Callable[[Mapping[str, Any]], bytes]
) -> Iterator[bytes]:
    for number, row in enumerate(rows, 1):
        try:
            yield make({name: value for name, value in row.items() if name not in _NO_FIELDS})
        except (NoPlainValue, TypeError, ValueError) as error:
            raise exitcodes.BadArguments(f"row {number}: {error}") from error


def _encoder(kind: type | None, form: str) -> Callable[[Mapping[str, Any]], bytes]:
    if kind is None:
        return lambda row: encode(dict(row))
    shape = shape_of(kind)
    return lambda row: encode(message_of(shape, row, is_text=form == "csv"))


def _rows(source: Path, form: str) -> Iterator[Mapping[str, Any]]:
    if form in ("arrow", "parquet"):
        try:
            from cqrepl.arrow.arrowfiles import rows_of_file  # an extra
        except ImportError as error:
            raise exitcodes.BadArguments(f"{form} needs pyarrow: install cqrepl[arrow]") from error
        return _told(rows_of_file(source, form), source)
    return _told(_csv_rows(source) if form == "csv" else _json_rows(source), source)


def _told(rows: Iterator[Mapping[str, Any]], source: Path) -> Iterator[Mapping[str, Any]]:
    """The rows; a file that is not of its form is the user's mistake."""
    try:
        yield from rows
    except ValueError as error:
        raise exitcodes.BadArguments(f"{source}: {error}") from error


def _csv_rows(source: Path) -> Iterator[Mapping[str, Any]]:
    with source.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            names = next(reader, [])
            for cells in reader:
                if len(cells) != len(names):
                    wanted = plural(len(names), "cell")
                    raise ValueError(
                        f"line {reader.line_num}: {wanted} expected, {len(cells)} came"
                    )
                yield dict(zip(names, cells, strict=True))
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num}: {error}") from error


def _json_rows(source: Path) -> Iterator[Mapping[str, Any]]:
    with source.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number}: JSON expected: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"line {number}: an object expected, {row!r:.40} came")
            yield row


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
