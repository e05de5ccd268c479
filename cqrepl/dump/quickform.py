"""The text of a store file in large pieces: same characters as the plain way, in less time.

Theory of operation. A chunk of the file is held; documents that lie whole in it and are raw bytes
(`unrenderable`) are cut out of one hex dump of the chunk (`hexlines`), which is made when the first
of them comes; those that the native codec prints are printed by it. All other documents are
rendered one by one as ever. Two forms of the text exist, which differ in the line before a
document:

    annotated    position, header, length, index; arrays without their unused zeros
    plain        position and number as Java's dump has them, everything else as well

The plain way is the specification; tests hold this one against it.
"""

from collections.abc import Iterator
from typing import Final, Protocol

from cqrepl.dump.documentreader import Document, DocumentReader, Pushed, Readable
from cqrepl.dump.hexlines import LINE_BYTES, HexLines
from cqrepl.dump.unrenderable import is_surely_unrenderable
from wire.header import HEADER_BYTES, body_length
from wire.text.print_documents import natively_shown

CHUNK_BYTES: Final = 1 << 16
_COUNTED_BYTES: Final = 1 << 20
_SNIFFED_BYTES: Final = 32
_TEXT_BYTES: Final = bytes([0x0A, *range(0x20, 0x80)])
HEX_KIND: Final = "--- !!data #binary\n"


class Form(Protocol):
    """The form of a dump: the lines that announce documents, and what stands around them."""

    @property
    def aligned(self) -> bool:
        """True when documents start at multiples of 4."""

    @property
    def body_max(self) -> int:
        """A longer body is given by its beginning."""

    @property
    def folds_unused(self) -> bool:
        """True when an array is given without its unused zeros."""

    def hex_line(self, position: int, length: int) -> str:
        """The lines before the items, or the hex dump, of an excerpt."""


class WholeForm(Form, Protocol):
    """A form that needs nothing but the documents."""

    def whole(self, document: Document) -> str:
        """The text of any document."""


def quick_texts(form: WholeForm, file: Readable, position: int) -> Iterator[str]:
    """Pieces of the text of the documents from `position` on, up to and including the last one.

    Args:
        file: stands at `position`.

    Raises:
        WireError: the file is damaged; after everything before that was given.
    """
    chunk = Chunk(form, file, position)
    while True:
        yield chunk.run()
        if chunk.grow():
            continue
        document = chunk.next_document()
        if document is None:
            return
        yield form.whole(document)
        if document.is_last:
            return


class Chunk:
    """Some bytes of the file, beginning at a multiple of 16, and where in them the next header is:
    up to 3 bytes behind them, where these are a gap."""

    def __init__(self, form: Form, file: Readable, position: int) -> None:
        self._form = form
        self._file = file
        self._start = position
        self._data = b""
        self._at = 0
        self._lines: HexLines | None = None
        self._stand(position, b"")

    def run(self) -> str:
        """The text of all documents up to one that must be rendered or does not lie whole here."""
        data, start, at = self._data, self._start, self._at
        aligned, hex_line = self._form.aligned, self._form.hex_line
        end = len(data)
        out: list[str] = []
        while at + HEADER_BYTES <= end:
            word = int.from_bytes(data[at : at + HEADER_BYTES], "little")
            body = at + HEADER_BYTES
            stop = body + word
            if stop > end:  # any flag makes the word greater than what is here
                break
            raw = data[body:stop]
            is_binary = raw[:_SNIFFED_BYTES].translate(None, _TEXT_BYTES)
            if not is_binary:
                break
            shown = natively_shown(raw, fold_unused=self._form.folds_unused)
            if shown is not None:
                out += (hex_line(start + at, word), shown)
                at = stop + (-(start + stop) % HEADER_BYTES if aligned else 0)
                continue
            if not is_surely_unrenderable(raw):
                break
            if self._lines is None:
                self._lines = HexLines(data, start)
            first, last = start + body, start + stop
            if not self._lines.is_usable or self._lines.has_repeats(first, last):
                break
            out.append(hex_line(start + at, word))
            out.append(self._lines.dump(first, last))
            at = stop + (-(start + stop) % HEADER_BYTES if aligned else 0)
        self._at = at
        return "".join(out)

    @property
    def position(self) -> int:
        """The position at which the next header stands, or would stand."""
        return self._start + self._at

    @property
    def before(self) -> bytes:
        """The bytes in front of the next header, at least those in its line of a hex dump."""
        return self._data[max(self._at - LINE_BYTES, 0) : self._at]

    def next_word(self) -> int | None:
        """The next header, once `grow` was called; None when the file ends before or in it."""
        word = self._data[self._at : self._at + HEADER_BYTES]
        return int.from_bytes(word, "little") if len(word) == HEADER_BYTES else None

    def count_rest(self) -> int:
        """Reads to the end of the file: how many bytes stand behind the next header."""
        count = len(self._data) - self._at - HEADER_BYTES
        while data := self._file.read(_COUNTED_BYTES):
            count += len(data)
        return count

    def grow(self) -> bool:
        """Reads on when the next document does not lie whole here; true if it does now."""
        if self._is_whole():
            return False
        keep = min(self._at, len(self._data)) // LINE_BYTES * LINE_BYTES
        self._data = self._data[keep:] + self._file.read(CHUNK_BYTES)
        self._start += keep
        self._at -= keep
        self._lines = None
        return self._is_whole()

    def next_document(self) -> Document | None:
        """The next document, of any kind; None where the file ends.

        Raises:
            WireError: the file ends within it.
        """
        pushed = Pushed(self._data[self._at :], self._file)
        if self._at > len(self._data):
            return None
        position = self.position
        if self._is_whole():
            body = self._at + HEADER_BYTES
            word = int.from_bytes(self._data[self._at : body], "little")
            stop = body + body_length(word)
            self._at = stop + (-(self._start + stop) % HEADER_BYTES if self._form.aligned else 0)
            return Document(position=position, word=word, body=self._data[body:stop])
        reader = DocumentReader(pushed, position, body_max=self._form.body_max)
        document = reader.next_document(aligned=False)
        self._stand(reader.position, b"" if document is None else document.body)
        return document

    def _stand(self, position: int, behind: bytes) -> None:
        """Starts anew where the file stands, behind these bytes."""
        lead = position % LINE_BYTES
        self._start = position - lead
        # fills the first line; it is never shown
        self._data = behind[len(behind) - lead :].rjust(lead, b"\0") if lead else b""
        self._at = lead + (-position % HEADER_BYTES if self._form.aligned else 0)
        self._lines = None

    def _is_whole(self) -> bool:
        body = self._at + HEADER_BYTES
        if body > len(self._data):
            return False
        word = int.from_bytes(self._data[self._at : body], "little")
        return body + body_length(word) <= len(self._data)
