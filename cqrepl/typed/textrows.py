"""Documents as lines of a file: CSV, or JSON with one object a line.

Without a class the fields of a document are its own, as its codes say them; with one they are those
of the class, and a document that does not fit is no row.
"""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, BinaryIO, Final, NamedTuple

from cqrepl.console.payload import cell_text, json_text, plain_json
from cqrepl.queue import Queue
from cqrepl.queue.read.columns import MAX_BYTES, MAX_ROWS
from cqrepl.typed.condition import Condition
from cqrepl.typed.documentfields import ABSENT, document_json, field_at, fields_of, leaves_of
from cqrepl.typed.messagefields import message_fields
from wire.errors import FieldError, WireError
from wire.objects.messages import Messages
from wire.objects.shapes import shape_of

INDEX: Final = "index"
Paths = tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Counted:
    """The excerpts that were read: rows, calls of other methods, what does not fit and why."""

    rows: int = 0
    passed: int = 0
    misfits: int = 0
    first_misfit: str = ""

    def note_misfit(self, reason: str) -> None:
        """One more does not fit."""
        self.misfits += 1
        self.first_misfit = self.first_misfit or reason


class RowChoice(NamedTuple):
    """The rows and columns that are wanted."""

    kind: type | None
    paths: Paths
    condition: Condition | None
    index_last: int
    step_rows: int = MAX_ROWS


@dataclass(slots=True)
class TextRows:
    """Writes rows as text, step by step.

    Args:
        next_index: where to read on.
        paths: of the columns of CSV; where none are chosen, those of the first row.
    """

    queue: Queue
    form: str
    choice: RowChoice
    next_index: int
    counted: Counted = field(default_factory=Counted)
    paths: Paths = ()
    _file: BinaryIO | None = None
    _read: Callable[[memoryview], Any] | None = None
    _has_whole_rows: bool = False

    def __post_init__(self) -> None:
        self.paths = self.paths or self.choice.paths
        kind = self.choice.kind
        if kind is not None:
            messages, shape = Messages[Any]((kind,)), shape_of(kind)
            self.paths = self.paths or tuple((each.name,) for each in shape.members)

            def read(data: memoryview) -> Any:
                message = messages.read(data)
                return None if message is None else message_fields(message, shape)

            self._read = read

        # a row is all of its document: the native codec prints it as it stands
        self._has_whole_rows = (
            self.form == "jsonl"
            and kind is None
            and self.choice.condition is None
            and not self.choice.paths
        )

    def begin(self, file: BinaryIO) -> None:
        """Writes to this file from now on."""
        self._file = file
        if self.form == "csv" and self.paths:
            self._write_header()

    def step(self) -> bool:
        """Writes the rows that follow; false at the end."""
        columns = self.queue.read_columns(
            self.next_index, self.choice.index_last, self.choice.step_rows, MAX_BYTES
        )
        if not columns.rows:
            return False
        payload = memoryview(columns.payload)
        for at, index in enumerate(columns.indexes):
            self._add(index, payload[columns.offsets[at] : columns.offsets[at + 1]])
        self.next_index = columns.next_index
        return True

    def finish(self) -> None:
        """Nothing is held back in text."""

    def _add(self, index: int, data: memoryview) -> None:
        if self._has_whole_rows and (text := document_json(data)) is not None:
            self._write(f'{{"{INDEX}": {index}, {text[1:]}\n')
            self.counted.rows += 1
            return
        try:
            fields = fields_of(data) if self._read is None else self._read(data)
        except FieldError as error:
            self.counted.note_misfit(str(error.at(index)))
            return
        except WireError as error:
            self.counted.note_misfit(f"excerpt 0x{index:x}: {error}")
            return
        if fields is None and self._read is None:
            self.counted.note_misfit(f"excerpt 0x{index:x}: a document with fields was expected")
        elif fields is None:
            self.counted.passed += 1
        elif self.choice.condition is None or self.choice.condition.holds(fields):
            self._write(self._line(index, fields))
            self.counted.rows += 1

    def _line(self, index: int, fields: Mapping[Any, object]) -> str:
        if self.form == "csv":
            if not self.paths:
                self.paths = tuple(tuple(path.split(".")) for path, _ in leaves_of(fields))
                self._write_header()
            values = (field_at(fields, path) for path in self.paths)
            cells = ("" if each is ABSENT else cell_text(_plain(each)) for each in values)
            return _csv_line([str(index), *cells])
        if self.choice.paths:
            found = ((".".join(path), field_at(fields, path)) for path in self.choice.paths)
            fields = {name: value for name, value in found if value is not ABSENT}
        plain = plain_json(_plain(dict(fields)))
        assert isinstance(plain, dict)
        return json_text({INDEX: index} | plain) + "\n"

    def _write_header(self) -> None:
        self._write(_csv_line([INDEX, *(".".join(path) for path in self.paths)]))

    def _write(self, line: str) -> None:
        assert self._file is not None
        self._file.write(line.encode("utf-8", "surrogatepass"))


def _plain(value: object) -> object:
    """A value of a message as one that was read from wire: enums and decimals as their texts."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if not hasattr(value, "__dataclass_fields__") else _message(value)


def _message(value: Any) -> object:
    """A message in a list, or one of the wire's own marked values, which stays as it is."""
    if type(value).__module__ == "wire.objects.values":
        return value
    return _plain(message_fields(value, shape_of(type(value))))


def _csv_line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
