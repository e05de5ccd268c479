"""Columns made by the native codec, without an object of Python for a value."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from wire.objects.shapes import Shape, ShapeMember


class MadeRows(NamedTuple):
    """The rows that were made, from the first on: arrays of as many values."""

    rows: int
    arrays: "list[pa.Array]"


class MessageColumns:
    """Makes arrays of the fields of messages.

    Attributes:
        is_native: whether there is a native codec that knows all kinds of these fields.
    """

    def __init__(self, members: Sequence[ShapeMember], shape: Shape) -> None:
        self.is_native = False

    def read(self, payload: bytes, offsets: "array[int]", row: int, end: int) -> MadeRows:
        """Rows from `row` on; ends at `end`, or at an excerpt that the plain codec has to read."""
        return MadeRows(0, [])
