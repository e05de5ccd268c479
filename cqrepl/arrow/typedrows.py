"""Record batches of typed columns, made of excerpts that were read together.

Theory of operation. The native codec makes columns of rows in one call, and stops at an excerpt
that it finds unusual: that one the plain codec reads, or says why it does not fit. An excerpt that
does not fit is counted; the first of them are kept with their bytes and the reason; with
`keep_misfits` it is a row, whose fields are null, and which has its bytes in the column `_misfit`
and the reason in `_error`. Calls of other methods than that of the class are passed by and counted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cqrepl.arrow.columntypes import NoColumnValue, arrow_field, converter
from cqrepl.arrow.messagecolumns import MessageColumns
from cqrepl.queue.read.columns import Columns
from cqrepl.typed.condition import Condition
from cqrepl.typed.messagefields import message_fields
from wire.errors import FieldError
from wire.objects.messages import Messages
from wire.objects.shapes import ShapeMember, shape_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MISFITS_KEPT: Final = 1000
MISFIT_BYTES_KEPT: Final = 16 << 20  # of all of them; the first one is kept at any size
INDEX: Final = "index"
MISFIT: Final = "_misfit"
ERROR: Final = "_error"


@dataclass(frozen=True, slots=True)
class Misfit:
    """An excerpt that does not fit the schema."""

    index: int
    payload: bytes
    error: FieldError


class TypedRows:
    """Makes record batches of the fields of a class.

    Args:
        members: its fields that become columns, see `chosen_members`.
        has_index: whether `index` is a column, before them.
        condition: of rows.
        keep_misfits: those are rows, too.
        tells_index: errors name the excerpt; False: the indexes are none of a queue.

    Attributes:
        schema: of Arrow.
        misfits: excerpts that do not fit; `kept_misfits` has the first `MISFITS_KEPT` of them, up
            to `MISFIT_BYTES_KEPT` together.
        passed: calls of other methods.

    Raises:
        TypeError: the class cannot be read.
    """

    def __init__(
        self,
        kind: "type[DataclassInstance]",
        members: Sequence[ShapeMember],
        *,
        has_index: bool = True,
        condition: Condition | None = None,
        keep_misfits: bool = False,
        tells_index: bool = True,
    ) -> None:
        self._tells_index = tells_index
        self._shape = shape_of(kind)
        self._condition = condition
        self._keep_misfits = keep_misfits
        self._read: Callable[[bytes | memoryview], Any] = Messages((kind,)).read
        self._members = tuple(members)
        self._has_index = has_index
        fields = [pa.field(INDEX, pa.int64(), nullable=False)] if self._has_index else []
        fields += [arrow_field(each) for each in self._members]
        if keep_misfits:
            fields += [pa.field(MISFIT, pa.large_binary()), pa.field(ERROR, pa.large_string())]
        self.schema = pa.schema(fields)
        self._columns = MessageColumns(kind, self._members, self._shape)
        self.misfits = self.passed = self._misfit_bytes = 0
        self.kept_misfits: list[Misfit] = []

    def batches(self, columns: Columns) -> "Iterator[pa.RecordBatch]":
        """The record batches of excerpts that were read together; some may be empty."""
        row, end = 0, columns.rows
        is_plain = self._condition is not None or not self._columns.is_native
        while not is_plain and row < end:
            made = self._columns.read(columns.payload, columns.offsets, row, end)
            if made.rows:
                yield self._native_batch(columns, row, made.rows, made.arrays)
            row += made.rows
            if row < end:  # that excerpt is unusual: the plain codec reads it, or says why not
                yield self._plain_batch(columns, row, row + 1)
                row += 1
        if row < end:
            yield self._plain_batch(columns, row, end)

    def _native_batch(
        self, columns: Columns, row: int, count: int, arrays: "list[pa.Array]"
    ) -> "pa.RecordBatch":
        indexes = pa.array(columns.indexes[row : row + count], pa.int64())
        arrays = ([indexes] if self._has_index else []) + arrays
        if self._keep_misfits:
            arrays += [pa.nulls(count, pa.large_binary()), pa.nulls(count, pa.large_string())]
        return pa.record_batch(arrays, schema=self.schema)

    def _plain_batch(self, columns: Columns, row: int, end: int) -> "pa.RecordBatch":
        rows = _PlainRows(self._members)
        payload = memoryview(columns.payload)
        for at in range(row, end):
            data = payload[columns.offsets[at] : columns.offsets[at + 1]]
            index = columns.indexes[at]
            try:
                message = self._read(data)
                if message is None:
                    self.passed += 1
                elif self._is_wanted(message):
                    rows.add(index, message)
            except FieldError as error:
                told = error.at(index) if self._tells_index else error
                self._note_misfit(Misfit(index, bytes(data), told))
                if self._keep_misfits:
                    rows.add_misfit(index, bytes(data), str(told))
        return rows.batch(self.schema, has_index=self._has_index)

    def _is_wanted(self, message: object) -> bool:
        condition = self._condition
        return condition is None or condition.holds(message_fields(message, self._shape))

    def _note_misfit(self, misfit: Misfit) -> None:
        self.misfits += 1
        self._misfit_bytes += len(misfit.payload)
        is_small = self.misfits <= MISFITS_KEPT and self._misfit_bytes <= MISFIT_BYTES_KEPT
        if self.misfits == 1 or is_small:
            self.kept_misfits.append(misfit)


class _PlainRows:
    """Rows made of Python's values, column by column."""

    def __init__(self, members: Sequence[ShapeMember]) -> None:
        self._parts = [(each, converter(each.shape)) for each in members]
        self._indexes: list[int] = []
        self._values: list[list[object]] = [[] for _ in members]
        self._misfits: list[bytes | None] = []
        self._errors: list[str | None] = []

    def add(self, index: int, message: object) -> None:
        """Adds a row.

        Raises:
            FieldError: a column does not hold a value.
        """
        values = []
        for member, convert in self._parts:
            value = getattr(message, member.attribute)
            try:
                values.append(convert(value))
            except NoColumnValue as error:
                found = f"{value!r:.40}"
                raise FieldError(member.name, member.shape.kind, found, str(error)) from error
        self._put(index, values, None, None)

    def add_misfit(self, index: int, payload: bytes, error: str) -> None:
        self._put(index, [None] * len(self._parts), payload, error)

    def _put(
        self, index: int, values: list[object], payload: bytes | None, error: str | None
    ) -> None:
        self._indexes.append(index)
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self._misfits.append(payload)
        self._errors.append(error)

    def batch(self, schema: "pa.Schema", *, has_index: bool) -> "pa.RecordBatch":
        given: list[Any] = [self._indexes] if has_index else []
        given += [*self._values, self._misfits, self._errors]
        arrays = [
            pa.array(values, field.type) for values, field in zip(given, schema, strict=False)
        ]
        return pa.record_batch(arrays, schema=schema)


def chosen_members(
    members: Sequence[ShapeMember], columns: Sequence[str] | None
) -> tuple[ShapeMember, ...]:
    """The fields of these names, in the order of the names; all of them where none are given.

    Raises:
        ValueError: there is no field of a name.
    """
    if columns is None:
        return tuple(members)
    named = {each.name: each for each in members}
    unknown = [name for name in columns if name not in named and name != INDEX]
    if unknown:
        known = ", ".join([INDEX, *named])
        raise ValueError(f"columns of {known} expected, {', '.join(unknown)} came")
    return tuple(named[name] for name in columns if name != INDEX)
