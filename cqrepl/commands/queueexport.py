"""The work of `cqrepl export`: documents of a queue as files of rows.

A directory takes parts, and an export goes on behind the last whole one; a file is written anew,
under another name, and replaces the one that is there at the end.
"""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from cqrepl.commands.chosenschema import chosen_schema
from cqrepl.console import exitcodes, output
from cqrepl.console.meter import Meter
from cqrepl.console.units import plural
from cqrepl.queue import NEXT_OF_EMPTY, Queue, format_index
from cqrepl.queue.read.columns import MAX_ROWS
from cqrepl.typed.condition import Condition
from cqrepl.typed.exportmanifest import PART_SUFFIX, ExportManifest, ExportTerms, rename_synced
from cqrepl.typed.schemafile import json_schema
from cqrepl.typed.textrows import Counted, Paths, RowChoice, TextRows

FORMS: Final = ("csv", "jsonl", "arrow", "parquet")
ARROW_FORMS: Final = ("arrow", "parquet")


class ExportOptions(NamedTuple):
    """The options that the user chose."""

    target: Path
    form: str | None
    schema: Path | None
    event: str | None
    paths: Paths
    index_first: int
    index_last: int
    part_rows: int
    as_json: bool


class RowWriter(Protocol):
    """Writes the rows of a queue to one file after the other."""

    next_index: int
    counted: Counted
    paths: Paths

    def begin(self, file: BinaryIO) -> None: ...
    def step(self) -> bool: ...
    def finish(self) -> None: ...


def export_queue(path: Path, options: ExportOptions, condition: Condition | None) -> int:
    """Exports what the queue holds now; the exit code."""
    form, is_folder = _form_of(options)
    with Queue.open(path) as queue:
        kind = chosen_schema(path, options.schema, options.event)
        if kind is None and form in ARROW_FORMS:
            raise exitcodes.BadArguments(
                f"--to {form}: expected a schema, {path} keeps none: --schema FILE, which"
                " `cqrepl schema --as json` prints"
            )
        step_rows = min(MAX_ROWS, options.part_rows)
        choice = RowChoice(kind, options.paths, condition, options.index_last, step_rows)
        first = max(options.index_first, queue.first_index() or NEXT_OF_EMPTY)
        options = options._replace(index_first=first)
        make = _maker(queue, form, choice)
        with Meter(str(path)) as meter:
            work = _Export(options, choice, form, meter, make)
            writer = work.into_folder() if is_folder else work.into_file()
    return _told(writer.counted, condition, options, work)


def _form_of(options: ExportOptions) -> tuple[str, bool]:
    """The form, and whether the target is a directory of parts.

    Raises:
        BadArguments: nothing says which form it is.
    """
    suffix = options.target.suffix.removeprefix(".")
    if suffix in FORMS and not options.target.is_dir():
        if options.form not in (None, suffix):
            raise exitcodes.BadArguments(f"--to {options.target}: its name says {suffix}")
        return suffix, False
    if options.form is None:
        raise exitcodes.BadArguments(
            f"--to {options.target}: expected a file .csv, .jsonl, .arrow or .parquet, or a"
            " directory and --format"
        )
    return options.form, True


def _maker(queue: Queue, form: str, choice: RowChoice) -> Callable[[int, Paths], RowWriter]:
    if form not in ARROW_FORMS:
        return lambda next_index, paths: TextRows(queue, form, choice, next_index, paths=paths)
    try:
        from cqrepl.arrow.arrowfiles import ArrowRows  # an extra, loaded by those that have it
    except ImportError as error:
        wanted = f"--to {form} needs pyarrow: pip install cqrepl[arrow]"
        raise exitcodes.BadArguments(wanted) from error
    return lambda next_index, paths: ArrowRows(queue, form, choice, next_index, paths=paths)


class _Export:
    """One run of the command."""

    def __init__(
        self,
        options: ExportOptions,
        choice: RowChoice,
        form: str,
        meter: Meter,
        make: Callable[[int, Paths], RowWriter],
    ) -> None:
        self._options = options
        self._choice = choice
        self._form = form
        self._meter = meter
        self._make = make
        self.parts: list[str] = []
        self.next_index = options.index_first

    def into_file(self) -> RowWriter:
        """Writes one file, which replaces the one of its name at the end."""
        target = self._options.target
        written = target.with_name(f".{target.name}{PART_SUFFIX}")
        writer = self._make(self._options.index_first, ())
        try:
            with written.open("wb") as file:
                self._write(writer, file, None)
            rename_synced(written, target)
        except BaseException:
            written.unlink(missing_ok=True)
            raise
        self.parts.append(target.name)
        self.next_index = writer.next_index
        return writer

    def into_folder(self) -> RowWriter:
        """Writes parts behind those that are whole."""
        options, folder = self._options, self._options.target
        manifest = ExportManifest.opened(folder, self._terms())
        begin = options.index_first if manifest.next_index is None else manifest.next_index
        paths = tuple(tuple(each.split(".")) for each in manifest.columns)
        writer = self._make(begin, paths)
        is_more = True
        while is_more:
            first, rows = writer.next_index, writer.counted.rows
            written = folder / f"part{PART_SUFFIX}"
            with written.open("wb") as file:
                is_more = self._write(writer, file, options.part_rows)
            if writer.next_index == first:
                written.unlink()  # nothing followed
                break
            name = folder / f"part-{first:016x}.{self._form}"
            rename_synced(written, name)
            manifest.columns = tuple(".".join(path) for path in writer.paths)
            manifest.add(name, first, writer.next_index, writer.counted.rows - rows)
            self.parts.append(name.name)
        self.next_index = writer.next_index
        return writer

    def _write(self, writer: RowWriter, file: BinaryIO, rows_max: int | None) -> bool:
        """Writes one file; true where it ended as it has as many rows as it may."""
        writer.begin(file)
        begun, before = writer.counted.rows, writer.counted.rows
        is_more = True
        while is_more and (rows_max is None or writer.counted.rows - begun < rows_max):
            is_more = writer.step()
            self._meter.add(writer.counted.rows - before, 0)
            before = writer.counted.rows
        writer.finish()
        return is_more

    def _terms(self) -> ExportTerms:
        kind, paths, condition, *_ = self._choice
        return ExportTerms(
            self._form,
            None if kind is None else json_schema(kind),
            tuple(".".join(path) for path in paths),
            None if condition is None else condition.text,
        )


def _told(
    counted: Counted, condition: Condition | None, options: ExportOptions, work: _Export
) -> int:
    """Says what was exported and what was not; the exit code."""
    fields: dict[str, object]
    fields = {"v": 1, "rows": counted.rows, "passed": counted.passed, "misfits": counted.misfits}
    if options.as_json:
        more = {"parts": work.parts, "next_index": format_index(work.next_index)}
        output.write_text(output.json_line(fields | more))
    else:
        passed = f", {plural(counted.passed, 'other call')}" if counted.passed else ""
        rows, parts = plural(counted.rows, "row"), plural(len(work.parts), "file")
        output.write_text(f"{rows} in {parts}{passed}\n")
    output.flush()
    for note in [] if condition is None else condition.notes():
        output.write_error(f"cqrepl export: {note}")
    if not counted.misfits:
        return exitcodes.OK
    count = plural(counted.misfits, "excerpt")
    output.write_error(f"cqrepl export: {count} left out, the first: {counted.first_misfit}")
    return exitcodes.DAMAGED
