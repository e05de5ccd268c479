"""Bytes of documents, from their text: what `wire.dump_text` prints, or what people write.

>>> encode_text("csp: /\\ncid: 1\\n").hex(" ")
'0c 00 00 00 c3 63 73 70 e1 2f c3 63 69 64 a1 01'
>>> from wire.text.print_documents import dump_text
>>> text = "--- !!data #binary\\na: 1\\n# position: 8, header: 1\\n--- !!data #binary\\nb: x\\n"
>>> dump_text(encode_text(text)) == text
True

Theory of operation. Lines that begin with `---` part the documents; text without any is one data
document. What stands between is told by its look: a hex dump, items (`wire.text.parse_items`), or,
where the line has no `#binary`, the body itself.

The dump does not show everything. Where it gives the position and the number of the next document,
and both are right but for its place, the body before it is filled up with padding that no reader
sees. Positions that do not fit are not minded, so that documents may be edited; nor are those of a
dump that gives the word of the header in place of the number. Bytes that the dump only counts
(`# 4 bytes remaining`, a body that is cut off) are zeros.

Comments become comments of the wire, but for those in front of the first `---`, of text without
any, and at the start of a map in braces.

Source: sections 9.1 and 9.9 of the format.
"""

import re
from dataclasses import dataclass
from typing import Final

from wire.header import HEADER_BYTES, LENGTH_MASK, META_DATA, NOT_COMPLETE, align4
from wire.objects.body_writer import BodyWriter
from wire.text.parse_cursor import place_error
from wire.text.parse_items import Form, write_items

_LINE_BYTES: Final = 16
_MARK: Final = re.compile(
    r"^(?:\# position: (?P<position>[0-9]{1,18}), header: "
    r"(?:(?P<number>-?[0-9]{1,18})(?P<note> EOF| or [0-9]+)?(?:,[^\n]*)?|0x[^\n]*)\n)?"
    r"(?:---(?P<kind>[^\n]*)(?:\n|\Z)"
    r"|\#  has a 4 byte size prefix, (?P<length>[0-9]{1,10}) > (?P<came>[0-9]{1,10}) len is [0-9]+"
    r"\n?\Z"
    r"|\.\.\.\n\# (?P<rest>[0-9]{1,10}) bytes remaining\n?\Z)",
    re.MULTILINE,
)
_KIND: Final = re.compile(r" !!(not-ready-)?(meta-)?data( #binary)?[ \r]*")
# other items begin with 0 and blanks only in quotes; a later offset must stand in a whole line
_HEX_LINE: Final = re.compile(
    r"0[0-9a-f]{7} (?:[0-9a-f]{2}|  )(?:[ \r\n]|\Z)|[0-9a-f]{8}(?:(?: (?:[0-9a-f]{2}|  )){8} ?){2} "
)
_CELL: Final = re.compile(r"[0-9a-f]{2}|  ")
_HEX_COLUMNS: Final = 58
_SKIPPED_LINES: Final = "........"
_ONLY_COMMENTS: Final = re.compile(r"(?:[ \t\r\n]|\#[^\n]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A document, or what stands behind the last one; its text from `start` to `end`."""

    start: int
    end: int
    mark: re.Match[str] | None = None
    flags: int = 0
    is_binary: bool = True

    @property
    def is_document(self) -> bool:
        return self.mark is None or self.mark["kind"] is not None

    def given(self, name: str) -> int | None:
        value = None if self.mark is None else self.mark[name]
        return None if value is None else int(value)


def encode_text(text: str, *, padding: bool = False) -> bytes:
    """The documents whose text this is.

    Args:
        padding: documents start at multiples of 4, as in a queue file.

    Raises:
        WireError: this is no text of documents; the error names line and column.
    """
    return _Encoder(text, padding=padding).run()


def _parts(text: str) -> list[_Part]:
    marks = list(_MARK.finditer(text))
    starts = [mark.start() for mark in marks] + [len(text)]
    first_end = starts[0]
    parts = [_part(text, mark, end) for mark, end in zip(marks, starts[1:], strict=True)]
    before = _ONLY_COMMENTS.match(text, 0, first_end)
    if before is None or before.end() < first_end:
        parts.insert(0, _Part(start=0, end=first_end))
    return parts


def _part(text: str, mark: re.Match[str], end: int) -> _Part:
    kind = mark["kind"]
    if kind is None:
        return _Part(start=mark.end(), end=end, mark=mark)
    match = _KIND.fullmatch(kind)
    if match is None and kind.strip():
        reason = f"a kind of document was expected, {kind.strip()[:40]!r} came"
        raise place_error(text, mark.start("kind"), reason)
    incomplete, metadata, binary = match.groups() if match is not None else (None, None, "bare")
    flags = (NOT_COMPLETE if incomplete else 0) | (META_DATA if metadata else 0)
    is_binary = binary is not None
    return _Part(start=mark.end(), end=end, mark=mark, flags=flags, is_binary=is_binary)


class _Encoder:
    def __init__(self, text: str, *, padding: bool) -> None:
        self._text = text
        self._padding = padding
        self._out = bytearray()
        self._number = -1
        self._is_at_end = False

    def run(self) -> bytes:
        parts = _parts(self._text)
        for number, part in enumerate(parts):
            following = parts[number + 1] if number + 1 < len(parts) else None
            if self._padding and part.given("rest") is None:
                self._align()
            if part.is_document:
                self._document(part, following)
            elif part.given("rest") is not None:
                self._rest(int(part.given("rest") or 0))
            else:
                self._cut_off(part)
        return bytes(self._out)

    def _align(self) -> None:
        self._out += bytes(align4(len(self._out)) - len(self._out))

    def _document(self, part: _Part, following: _Part | None) -> None:
        self._number += not part.flags
        body = self._body(part, following)
        if len(body) > LENGTH_MASK:
            raise place_error(self._text, part.start, f"at most {LENGTH_MASK} bytes")
        self._out += (len(body) | part.flags).to_bytes(HEADER_BYTES, "little")
        self._out += body
        self._is_at_end = not body

    def _rest(self, count: int) -> None:
        """Zeros behind the last document: the first of them is the header that ends the dump,
        unless a document without a body has done that."""
        if not self._is_at_end:
            if self._padding:
                self._align()
            self._out += bytes(HEADER_BYTES)
        self._out += bytes(count)

    def _cut_off(self, part: _Part) -> None:
        length, came = part.given("length") or 0, part.given("came") or 0
        if not came < length <= LENGTH_MASK:
            at = part.mark.start("length") if part.mark else part.start
            raise place_error(self._text, at, "a length beyond what came was expected")
        number, flags = part.given("number"), 0
        if part.mark is not None and part.mark["note"]:
            flags = NOT_COMPLETE
        elif number is not None and number == self._number:
            flags = META_DATA
        self._out += (length | flags).to_bytes(HEADER_BYTES, "little") + bytes(came)

    # --- bodies ---------------------------------------------------------------------------------

    def _body(self, part: _Part, following: _Part | None) -> bytes:
        room = self._room(following)
        if not part.is_binary:
            return self._copied(part, room)
        if _HEX_LINE.match(self._text, part.start, part.end):
            return self._hex(part)
        writer = self._items(part, Form.USUAL)
        if room is not None and not self._fits(len(writer.data), room):
            writer = self._shortened(part, writer, room)
            writer.padding(max(room - len(writer.data), 0))
        if not writer.data and not part.flags:
            writer.padding(1)  # a data document without a body is none
        return bytes(writer.data)

    def _items(self, part: _Part, form: Form) -> BodyWriter:
        writer = BodyWriter(origin=len(self._out) + HEADER_BYTES)
        keep_comments = part.mark is not None
        write_items(
            writer, self._text, part.start, part.end, form=form, keep_comments=keep_comments
        )
        return writer

    def _shortened(self, part: _Part, usual: BodyWriter, room: int) -> BodyWriter:
        """The same items in a shorter form that other writers use, if only that has room."""
        if len(usual.data) <= room:
            return usual
        for form in (Form.SHORT_NUMBERS, Form.SHORT_BLOCKS, Form.SHORTEST):
            writer = self._items(part, form)
            if len(writer.data) <= room:
                return writer
        return usual

    def _room(self, following: _Part | None) -> int | None:
        """The length that the place of the next document leaves; None where it is not told."""
        position = None if following is None else following.given("position")
        if following is None or position is None:
            return None
        numbers = (
            {self._number + (not following.flags)}
            if following.is_document
            else {
                self._number,
                self._number + 1,
            }
        )
        fits = following.given("number") in numbers
        room = position - len(self._out) - HEADER_BYTES
        return room if fits and 0 <= room <= LENGTH_MASK else None

    def _fits(self, length: int, room: int) -> bool:
        end = len(self._out) + HEADER_BYTES + length
        next_position = align4(end) if self._padding else end
        return next_position == len(self._out) + HEADER_BYTES + room

    def _copied(self, part: _Part, room: int | None) -> bytes:
        text = self._text[part.start : part.end]
        try:
            body = text.encode("latin-1")
        except UnicodeEncodeError as error:
            at = part.start + error.start
            reason = f"a character up to 0xFF was expected, {self._text[at]!r} came"
            raise place_error(self._text, at, reason) from error
        if room is None or self._fits(len(body), room):
            return body or b" " * (not part.flags)  # a data document without a body is none
        if self._fits(len(body) - 1, room) and body.endswith(b"\n"):
            return body[:-1]  # Java's dump adds a line end where there is none
        return body.ljust(room)  # and leaves out blanks at the end

    def _hex(self, part: _Part) -> bytes:
        """The bytes of a hex dump, with the lines that it leaves out."""
        rows: list[tuple[int, bytes]] = []
        at = part.start
        for line in self._text[part.start : part.end].splitlines(keepends=True):
            if line.rstrip() not in ("", _SKIPPED_LINES):
                rows.append(self._hex_row(line, at))
            at += len(line)
        (start, first), (last, end) = rows[0], rows[-1]
        length = last + len(end) - start
        if not len(first) <= length <= LENGTH_MASK:
            raise place_error(self._text, part.start, "rising offsets were expected")
        header = (length | part.flags).to_bytes(HEADER_BYTES, "little")
        body = bytearray()
        lead = start % _LINE_BYTES
        # of a document that was moved, the bytes before the header are not known any more
        is_in_place = start == len(self._out) + HEADER_BYTES
        before = bytes(self._out[-_LINE_BYTES:]) if is_in_place else b""
        previous = (before + header)[-lead:] if lead else b""
        for offset, row in rows:
            missing = offset - start - len(body)
            if missing < 0 or missing % _LINE_BYTES:
                raise place_error(self._text, part.start, "rising offsets were expected")
            if missing and len(previous) < _LINE_BYTES:
                reason = "a line was expected before those that are left out"
                raise place_error(self._text, part.start, reason)
            body += previous * (missing // _LINE_BYTES)
            previous = (previous + row)[-_LINE_BYTES:]
            body += row
        return bytes(body)

    def _hex_row(self, line: str, at: int) -> tuple[int, bytes]:
        """The offset of the first byte of a line, and the bytes."""
        if _HEX_LINE.match(line) is None:
            reason = f"a line of a hex dump was expected, {line.rstrip()[:20]!r} came"
            raise place_error(self._text, at, reason)
        line = line.rstrip("\r\n").ljust(_HEX_COLUMNS)
        cells = [line[column : column + 2] for column in (*range(9, 33, 3), *range(34, 58, 3))]
        for number, cell in enumerate(cells):
            if _CELL.fullmatch(cell) is None:
                column = at + 9 + 3 * number + (number > 7)
                reason = f"two hex digits were expected, {cell!r} came"
                raise place_error(self._text, column, reason)
        row = bytes.fromhex("".join(cells))
        if not row:
            raise place_error(self._text, at, "a byte was expected")
        lead = next(number for number, cell in enumerate(cells) if cell != "  ")
        return int(line[:8], 16) + lead, row
