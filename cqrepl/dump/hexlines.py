"""Hex dumps of many lines at once, for chunks that hold thousands of documents.

Theory of operation. A line of `hex_dump` (`wire.text.print_documents`) has one width, so a chunk's
lines are one table of bytes in which every column is a slice with a stride. The table is filled
column by column, which costs some 60 copies however many lines there are. The dump of a document is
then cut out of it: whole lines as they are, the first and the last with blanks where other
documents stand.

    00001230 00 11 22 33 44 55 66 77  88 99 aa bb cc dd ee ff ········ ········
    offset   cells                                            characters

Lines equal to the line before are left out of a hex dump. Whether a document has such lines is told
here (`has_repeats`); then the plain way must be taken.
"""

from array import array
from binascii import hexlify
from bisect import bisect_left
from sys import byteorder
from typing import Final

LINE_BYTES: Final = 16
_DIGITS: Final = 8  # of an offset; longer ones are shown with as many as they need
_LONG_DIGITS: Final = 16
_OFFSET_END: Final = 1  # the blank behind the offset
_CELLS: Final = [3 * at + at // 8 for at in range(LINE_BYTES)]  # first digit of each byte
_CHARS_START: Final = 49  # behind the cells: 16 of 3 and one blank
_CHARS: Final = [_CHARS_START + at + at // 8 for at in range(LINE_BYTES)]
_BEHIND_OFFSET: Final = 66  # a line without its offset and the blank behind that
_SHOWN: Final = bytes(byte if 0x20 <= byte < 0x7F else 0xB7 for byte in range(256))


class HexLines:
    """The lines of a chunk that starts at a multiple of 16."""

    def __init__(self, data: bytes, offset: int) -> None:
        """Renders the chunk; its last line is filled up with zeros that are never shown."""
        assert offset % LINE_BYTES == 0
        data += bytes(-len(data) % LINE_BYTES)
        self._offset = offset
        count = len(data) // LINE_BYTES
        self._digits = max(_DIGITS, len(f"{offset + len(data) - LINE_BYTES:x}"))
        self.is_usable = self._digits == max(_DIGITS, len(f"{offset:x}"))
        self._width = self._digits + _OFFSET_END + _BEHIND_OFFSET + 1
        self._repeats = _repeated_lines(data)
        self._text = self._fill(data, count) if self.is_usable else ""

    def has_repeats(self, start: int, end: int) -> bool:
        """True when a line of these bytes may equal the line before it."""
        first = (start - self._offset) // LINE_BYTES
        at = bisect_left(self._repeats, first)
        if at == len(self._repeats):
            return False
        return self._repeats[at] <= (end - 1 - self._offset) // LINE_BYTES

    def dump(self, start: int, end: int) -> str:
        """The lines of the bytes from offset `start` up to `end`, which lie in the chunk."""
        width, text = self._width, self._text
        head, lead = divmod(start - self._offset, LINE_BYTES)
        foot, trail = divmod(end - self._offset, LINE_BYTES)
        if head == foot or (head + 1 == foot and not trail):
            return self._cut(head, lead, trail or LINE_BYTES)
        out = ""
        if lead:
            out = self._cut(head, lead, LINE_BYTES)
            head += 1
        out += text[head * width : foot * width]
        return out + self._cut(foot, 0, trail) if trail else out

    def _cut(self, line: int, lead: int, stop: int) -> str:
        """One line of which the bytes from `lead` up to `stop` are shown."""
        at = line * self._width
        cells = at + self._digits + _OFFSET_END
        text = self._text
        first, chars = _CELLS[lead], _CHARS[lead]
        last, chars_last = _CELLS[stop - 1] + 2, _CHARS[stop - 1] + 1
        return (
            f"{text[at:cells]}{' ' * first}{text[cells + first : cells + last]}"
            f"{' ' * (chars - last)}{text[cells + chars : cells + chars_last]}"
        ).ljust(self._width - 1) + "\n"

    def _fill(self, data: bytes, count: int) -> str:
        width, digits = self._width, self._digits
        lines = bytearray((b" " * (width - 1) + b"\n") * count)
        offsets = array("Q", range(self._offset, self._offset + len(data), LINE_BYTES))
        if byteorder == "little":
            offsets.byteswap()
        numbers = hexlify(offsets.tobytes())
        for at in range(digits):
            lines[at::width] = numbers[_LONG_DIGITS - digits + at :: _LONG_DIGITS]
        cells = hexlify(data)
        shown = data.translate(_SHOWN)
        start = digits + _OFFSET_END
        for at in range(LINE_BYTES):
            column = start + _CELLS[at]
            lines[column::width] = cells[2 * at :: 2 * LINE_BYTES]
            lines[column + 1 :: width] = cells[2 * at + 1 :: 2 * LINE_BYTES]
            lines[start + _CHARS[at] :: width] = shown[at::LINE_BYTES]
        return lines.decode("latin-1")


def _repeated_lines(data: bytes) -> list[int]:
    """Numbers of the lines that equal the line before."""
    halves = memoryview(data).cast("Q")
    first, second = halves[0::2].tolist(), halves[1::2].tolist()
    return [
        at
        for at in range(1, len(first))
        if first[at] == first[at - 1] and second[at] == second[at - 1]
    ]
