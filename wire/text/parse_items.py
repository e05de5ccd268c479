"""The items of one document, from their text: printed by `print_items`, or written by people.

Theory of operation. Like a body, its text is a run of items: names, types, values and comments, of
which each is written as soon as it is read. A reader by characters, not a YAML library: the dump is
no YAML (`? 1: one`, `!byte[]`, unquoted `null`), and the spelling says which code a value had.

    `[ ]`, `{ }`     a block; items between commas. One that begins like another kind of block (a
                     `[` with a name in front) gets a byte of padding first, as it must have had
    lines            items at the left margin, one on each; more to the right, or behind `- `, a
                     block: the dump has none of these, people write them
    spelling         `wire.text.parse_values`

Arrays in place and histories are known by their look as a whole.

Source: sections 5, 9.2 and 9.3 of the format.
"""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Flag
from typing import Final

from wire.codes import NAME_CODES, Code
from wire.errors import WireError
from wire.header import LENGTH_MASK
from wire.objects.body_writer import BodyWriter
from wire.objects.values import History
from wire.text.parse_cursor import Cursor
from wire.text.parse_values import (
    FIXED_TYPES,
    base64_bytes,
    latin_bytes,
    write_fixed,
    write_name,
    write_plain,
    write_shown,
)
from wire.text.print_items import NESTING_MAX
from wire.writer import block_head

_LONG_BYTES: Final = 8
_HISTORY_ID: Final = -1
_INT64_SPAN: Final = 1 << 64
_SHORT_NAMES: Final = range(Code.FIELD_NAME0, Code.STRING0)
_BLANKS: Final = re.compile(r"[ \t\r]*")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_EMPTY: Final = re.compile('""')
_COMMENT: Final = re.compile(r"# ?([^\n]*)\n?")
_TAG: Final = re.compile(r"!([^ \t\r\n,{}]*)")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=]+")
_DASH: Final = re.compile(r"-(?=[ \t\r\n]|\Z)")
_END_OF_NAME: Final = re.compile(r":(?=[ \t\r\n,\]}]|\Z)")
_EVENT: Final = re.compile(r"\?(?=:?(?:[ \t\r\n]|\Z))")
_NAME_AHEAD: Final = re.compile(
    r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^ \t\r\n\[\]{}"'!?#,:](?:[^\n:]|:(?![ \t\r\n]))*?)"""
    r":(?=[ \t\r\n]|\Z)"
)
_NUMBERS: Final = r"(?:-?[0-9]{1,20}(?:,[ \t\r\n]*-?[0-9]{1,20})*)?"
_ARRAY: Final = re.compile(
    r"\[[ \t\r\n]*# length: (-?[0-9]{1,10}), used: (-?[0-9]{1,20})[ \t\r]*\n"
    rf"[ \t\r\n]*({_NUMBERS})"
    r",?[ \t\r\n]*(?:# ([0-9]{1,10}) more, all 0[ \t\r]*\n[ \t\r\n]*)?\]"
)
_SOURCES: Final = (
    r"(?:-?[0-9]{1,10},[ \t\r\n]*0x[0-9a-f]{1,16}"
    r"(?:,[ \t\r\n]*-?[0-9]{1,10},[ \t\r\n]*0x[0-9a-f]{1,16})*)?"
)
_HISTORY: Final = re.compile(
    rf"\{{[ \t\r]*\n[ \t\r\n]*sources: \[[ \t\r\n]*({_SOURCES})[ \t\r\n]*\],[ \t\r\n]*"
    rf"timings: \[[ \t\r\n]*({_NUMBERS})[ \t\r\n]*\][ \t\r\n]*\}}"
)
_HISTORY_VALUE: Final = re.compile(" " + _HISTORY.pattern)
_NUMBER_STARTS: Final = frozenset("0123456789+-.NI")
_NUMBER: Final = re.compile(r"-?[0-9][0-9a-fx]*")


class Form(Flag):
    """The codes that are taken, out of those that look the same."""

    USUAL = 0  # those of Java's writer
    SHORT_NUMBERS = 1  # small numbers without a code, as the releases around 2.20 have them
    SHORT_BLOCKS = 2  # lengths of 8 or 16 bits, as blocks of raw bytes have them
    SHORTEST = 3


def write_items(
    writer: BodyWriter,
    text: str,
    start: int,
    end: int,
    *,
    form: Form = Form.USUAL,
    keep_comments: bool = True,
) -> None:
    """Writes the items that stand between two places of the text.

    Args:
        form: which codes to take.
        keep_comments: comments become items too; else they are left out.

    Raises:
        WireError: this is no text of items; the error names line and column.
    """
    _Items(writer, text, start, end, form, keep_comments=keep_comments).body()


class _Items:
    def __init__(
        self,
        writer: BodyWriter,
        text: str,
        start: int,
        end: int,
        form: Form,
        *,
        keep_comments: bool,
    ) -> None:
        self._writer = writer
        self._source = Cursor(text, start, end)
        self._form = form
        self._keep_comments = keep_comments
        self._depth = 0
        self._arrays = 0

    def body(self) -> None:
        self._source.match(_SPACE)
        self._lines(self._source.column())

    def _deeper(self) -> None:
        if self._depth == NESTING_MAX:
            raise self._source.fail(f"nesting of at most {NESTING_MAX} blocks")
        self._depth += 1

    @contextmanager
    def _block(self) -> Iterator[None]:
        self._deeper()
        data, arrays = self._writer.data, self._arrays
        start = len(data)
        with self._writer.block():
            yield
        self._depth -= 1
        if Form.SHORT_BLOCKS in self._form and arrays == self._arrays:  # arrays stay aligned
            content = start + len(block_head(LENGTH_MASK))
            data[start:content] = block_head(len(data) - content)

    # --- lines ----------------------------------------------------------------------------------

    def _lines(self, indent: int, *, dashes_only: bool = False) -> None:
        """Items that begin at this column, up to a line that begins further left."""
        owed = after_comment = False  # a value to the last name or type; a comment behind that
        while self._source.match(_SPACE) and self._source.char():
            if not (self._may_begin(indent) or owed or self._source.char() == "#"):
                raise self._source.fail("the end of the line")
            if self._source.is_line_start():
                column = self._source.column()
                if owed and self._source.char() != "#" and self._nested(indent, column):
                    owed = False
                    continue
                is_comment = self._source.char() == "#"
                if column < indent or (dashes_only and not is_comment and not self._is_dash()):
                    break
                if column > indent and not is_comment:
                    raise self._source.fail(f"an indentation of {indent}")
                if owed and not after_comment and not is_comment:
                    raise self._source.fail("a value")
            if self._source.char() == "#":
                self._comment()
                after_comment = True
                continue
            owed, after_comment = self._line_item(), False

    def _may_begin(self, indent: int) -> bool:
        """True when this is the start of a line, but for dashes."""
        return self._source.is_line_start() or self._source.column() == indent

    def _is_dash(self) -> bool:
        return self._source.ahead(_DASH) is not None

    def _nested(self, indent: int, column: int) -> bool:
        """Reads the lines of a nested block, if they are one."""
        dashes = column == indent and self._is_dash()
        if column <= indent and not dashes:
            return False
        with self._block():
            self._lines(column, dashes_only=dashes)
        return True

    def _line_item(self) -> bool:
        if self._source.match(_DASH) is None:
            return self._item(flow=False)
        self._source.match(_BLANKS)
        if self._source.char() in ("", "\n", "#"):
            return True
        if self._is_dash() or self._source.ahead(_NAME_AHEAD):
            with self._block():
                self._lines(self._source.column())
            return False
        return self._item(flow=False)

    # --- brackets -------------------------------------------------------------------------------

    def _flow(self, close: str) -> None:
        """Items between commas, up to the bracket that closes them."""
        needs_comma = False
        while self._source.match(_SPACE):
            char = self._source.char()
            if char == close:
                self._source.at += 1
                return
            if char == "#":
                self._comment()
            elif needs_comma:
                if char != ",":
                    raise self._source.fail(f"a comma or {close}")
                self._source.at += 1
                needs_comma = False
            else:
                needs_comma = not self._item(flow=True)

    def _sequence(self) -> None:
        if self._array():
            return
        self._source.at += 1
        data = self._writer.data
        with self._block():
            start, arrays = len(data), self._arrays
            self._flow("]")
            first = data[start] if start < len(data) else Code.NULL
            if first == Code.I64_ARRAY or first in NAME_CODES or first in _MAP_STARTS:
                # as it is, it would be taken for another kind of block
                scratch = BodyWriter()
                scratch.padding(_LONG_BYTES if self._arrays > arrays else 1)
                data[start:start] = scratch.data

    def _map(self) -> None:
        if self._history():
            return
        self._source.at += 1
        with self._block():
            self._leave_out_comments()
            start = self._source.at
            if self._source.char() != "}":
                before = len(self._writer.data)
                self._flow("}")
                if self._writer.data[before] not in _MAP_STARTS:
                    raise self._source.fail("a name", start)
            else:
                self._source.at += 1

    def _leave_out_comments(self) -> None:
        """A map whose first item is a comment would be taken for a sequence."""
        while self._source.match(_SPACE) and self._source.match(_COMMENT):
            pass

    def _array(self) -> bool:
        """Reads an array in place, which the comment with its length tells from a sequence."""
        match = self._source.ahead(_ARRAY)
        if match is None:
            return False
        capacity, used = int(match[1]), int(match[2])
        values = [int(number) for number in _NUMBER.findall(match[3])]
        count = len(values) + int(match[4] or 0)
        if count != max(capacity, 0) or count * _LONG_BYTES > LENGTH_MASK:
            raise self._source.fail(f"an array of {capacity}")
        writer = self._writer
        writer.align(_LONG_BYTES, 1)
        try:
            writer.data += struct.pack(
                f"<Bqq{len(values)}q", Code.I64_ARRAY, capacity, used, *values
            )
        except struct.error as error:
            raise self._source.fail("an array of numbers of 64 bits") from error
        writer.data += bytes((count - len(values)) * _LONG_BYTES)
        self._arrays += 1
        self._source.at = match.end()
        return True

    def _history(self) -> bool:
        """Reads the history of a message, which is never shown on one line."""
        match = self._source.ahead(_HISTORY)
        if match is None:
            return False
        pairs = [int(number, 0) for number in _NUMBER.findall(match[1])]
        indexes = [
            index - _INT64_SPAN if index >= _INT64_SPAN >> 1 else index for index in pairs[1::2]
        ]
        times = tuple(int(number) for number in _NUMBER.findall(match[2]))
        history = History(tuple(zip(pairs[::2], indexes, strict=True)), times)
        with self._source.located(self._source.at):
            try:
                self._writer.history(history)
            except struct.error as error:
                raise WireError("a history of 32-bit ids and 64-bit times was expected") from error
        self._source.at = match.end()
        return True

    # --- items ----------------------------------------------------------------------------------

    def _item(self, *, flow: bool, is_key: bool = False) -> bool:
        """Writes one item; answers whether it was a name or a type, whose value is to come."""
        char = self._source.char()
        if char == "[":
            self._sequence()
        elif char == "{":
            self._map()
        elif char == "!":
            return self._tagged()
        elif self._source.match(_EVENT):
            return self._event()
        else:
            return self._scalar(flow=flow, is_key=is_key)
        return False

    def _comment(self) -> None:
        match = self._source.match(_COMMENT)
        assert match is not None
        if self._keep_comments:
            write_shown(self._writer.comment, match[1].rstrip("\r"))

    def _event(self) -> bool:
        """An event that has an object for its name: `? key: `."""
        self._deeper()
        self._writer.event_object()
        while self._source.match(_BLANKS) and not self._source.match(_END_OF_NAME):
            if self._source.char() in ("", "\n"):
                raise self._source.fail("a colon")
            if not self._item(flow=True, is_key=True):
                self._source.match(_BLANKS)
                if self._source.char() == ",":  # Java's dump takes the value for a part of the key
                    self._source.at += 1
        self._depth -= 1
        return True

    def _scalar(self, *, flow: bool, is_key: bool) -> bool:
        start = self._source.at
        text, is_quoted = self._source.spelled(flow=flow)
        if not is_key and self._source.match(_END_OF_NAME):
            with self._source.located(start):
                self._name(text)
            return True
        with self._source.located(start):
            if is_quoted:
                self._writer.text(text)
            else:
                # neither a body nor a key may begin with a number that has no code
                may_be_bare = Form.SHORT_NUMBERS in self._form and not is_key
                is_bare = may_be_bare and len(self._writer.data) > 0
                write_plain(self._writer, text, is_bare=is_bare)
        return False

    def _name(self, name: str) -> None:
        if name == "history" and self._source.ahead(_HISTORY_VALUE):
            self._writer.event_id(_HISTORY_ID)
        else:
            write_name(self._writer, name)

    # --- types ----------------------------------------------------------------------------------

    def _tagged(self) -> bool:
        match = self._source.match(_TAG)
        assert match is not None
        start, name = match.start(), match[1]
        self._source.match(_BLANKS)
        value: str | None
        if name == "!null" and self._source.match(_EMPTY):
            self._writer.null()
        elif name == "!binary" and (encoded := self._source.match(_BASE64)):
            with self._source.located(start):
                self._writer.bytes_value(base64_bytes(encoded[0]))
        elif name in FIXED_TYPES and (value := self._number()):
            with self._source.located(start):
                write_fixed(self._writer, FIXED_TYPES[name], value)
        elif name == "type" and self._is_text():
            self._writer.type_literal(self._source.spelled(flow=True)[0])
        elif name == "byte[]" and self._is_text():
            value = self._source.spelled(flow=True)[0]
            with self._source.located(start):
                self._writer.raw_bytes(latin_bytes(value))
        else:
            write_shown(self._writer.type_prefix, name)
            return True
        return False

    def _is_text(self) -> bool:
        """True when a text follows, not a number, a block, a type or nothing."""
        return self._source.char() not in ("", *"\n0123456789+-[{!#,]}")

    def _number(self) -> str | None:
        if self._source.char() not in _NUMBER_STARTS:
            return None
        return self._source.spelled(flow=True)[0]


_MAP_STARTS: Final = frozenset({*NAME_CODES, Code.EVENT_OBJECT, *_SHORT_NAMES})
