"""The text of documents: what people read, and what the golden vectors compare.

Theory of operation. `dump_text` walks the documents of a buffer and prints each exactly as Java's
`WireDumper` does: a line with position and number, a line with the kind of document, then its
items. `wire.text.print_items` renders the items; this module knows what stands around them.

Nothing in the bytes is an error here. A body that cannot be rendered is shown as a hex dump, and
the walk goes on behind it; where a header makes no sense the dump says so and ends, as Java's does.

    ready    bit 31 of the header is clear and the word is not 0
    binary   one of the first 32 bytes of the body is a control character other than line feed, or
             not ASCII; other bodies are taken for text and copied as they are

Source: sections 9.1 and 9.9 of the format, and the vectors `documents.jsonl` and `malformed.jsonl`.
"""

from typing import Final

from wire.codec import NATIVE
from wire.errors import WireError
from wire.header import (
    END_OF_FILE,
    HEADER_BYTES,
    NOT_COMPLETE,
    align4,
    body_length,
    is_metadata,
    is_ready,
)
from wire.text.print_items import render_items

_LINE_BYTES: Final = 16
_SNIFFED_BYTES: Final = 32
_TEXT_BYTES: Final = bytes([0x0A, *range(0x20, 0x80)])
_PRINTABLE: Final = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in range(256))


def dump_text(data: bytes | memoryview, *, padding: bool = False) -> str:
    """The text of all documents, character for character as Java prints it.

    Args:
        padding: documents start at multiples of 4, as in a queue file.
    """
    view = memoryview(data)
    out: list[str] = []
    position = 0
    number = -1
    while True:
        if padding:
            position = align4(position)
        start, body = position, position + HEADER_BYTES
        if body > len(view):
            break
        word = int.from_bytes(view[start:body], "little")
        length = body_length(word)
        remaining = len(view) - body
        number += is_ready(word) and not is_metadata(word)
        if start > 0 and word != 0:
            out.append(f"# position: {start}, header: {number}{_header_note(word, number)}\n")
        if word == 0:
            out.append(_remaining(remaining))
            break
        if length > remaining:
            out.append(f"#  has a 4 byte size prefix, {length} > {remaining} len is {length}")
            break
        before = bytes(view[max(start - _LINE_BYTES, 0) : start])
        out.append(document_text(view[body : body + length], word, offset=body, before=before))
        if length == 0:
            out.append(_remaining(remaining))
            break
        position = body + length
    return "".join(out)


def document_text(
    body: bytes | memoryview,
    word: int,
    *,
    offset: int,
    fold_unused: bool = False,
    before: bytes = b"",
) -> str:
    """The text of one document: the line with its kind, then its items; ends with a line end.

    Args:
        body: the bytes behind the header.
        word: the header.
        offset: position of the body in its file or stream, for a hex dump.
        fold_unused: give only the count of the unused zeros at the end of an array (Java does not).
        before: the bytes in front of the header; Java leaves out the second line of a hex dump
            where the first equals it together with them.
    """
    kind = (
        f"!!{'not-ready-' if word & NOT_COMPLETE else ''}{'meta-' if is_metadata(word) else ''}data"
    )
    binary = word == END_OF_FILE or bool(bytes(body[:_SNIFFED_BYTES]).translate(None, _TEXT_BYTES))
    first = f"--- {kind}{' #binary' if binary else ''}\n"
    if not binary:
        text = bytes(body).decode("latin-1")
    else:
        try:
            text = render_items(body, fold_unused=fold_unused)
        except WireError:
            return first + hex_dump(body, offset, before=before + word.to_bytes(4, "little"))
    return first + _ended(text)


def natively_shown(body: bytes, *, fold_unused: bool) -> str | None:
    """The items in the text of a binary document, where the native codec prints them; None where
    `document_text` has to say more."""
    if NATIVE is None:
        return None
    text = NATIVE.render_items(body, fold_unused, False)
    return None if text is NotImplemented else _ended(str(text))


def _ended(text: str) -> str:
    text = text.rstrip(" ")
    return text if text.endswith("\n") or not text else f"{text}\n"


def _header_note(word: int, number: int) -> str:
    if word == END_OF_FILE:
        return " EOF"
    return f" or {number + 1}" if word & NOT_COMPLETE else ""


def _remaining(count: int) -> str:
    return f"...\n# {count} bytes remaining\n"


def hex_dump(data: bytes | memoryview, offset: int, *, before: bytes = b"") -> str:
    """Lines of 16 bytes and their characters, for bytes that stand at this offset.

    Lines begin at multiples of 16. A line equal to the one before it is left out, but for the last
    line; `........` stands for any number of such lines.

    Args:
        before: bytes right in front of `data`. They are not shown, but the first line may be equal
            to the second only together with them.
    """
    out: list[str] = []
    lead = offset % _LINE_BYTES
    end = offset + len(data)
    previous = before[-lead:] if lead else b""
    skipped = False
    for start in range(offset - lead, end, _LINE_BYTES):
        line = bytes(data[max(start - offset, 0) : start + _LINE_BYTES - offset])
        # what stands before the first line is no line: that one is always shown
        if line == previous and start >= offset and start + _LINE_BYTES < end:
            skipped = True
            continue
        if skipped:
            out.append("........\n")
            skipped = False
        out.append(_hex_line(line, start, max(offset - start, 0)))
        previous = line if start >= offset else previous + line
    return "".join(out)


def _hex_line(line: bytes, start: int, lead: int) -> str:
    trail = _LINE_BYTES - lead - len(line)
    cells = ["  "] * lead + [f"{byte:02x}" for byte in line] + ["  "] * trail
    chars = " " * lead + line.decode("latin-1").translate(_PRINTABLE) + " " * trail
    left, right = " ".join(cells[:8]), " ".join(cells[8:])
    return f"{start:08x} {left}  {right} {chars[:8]} {chars[8:]}\n"
