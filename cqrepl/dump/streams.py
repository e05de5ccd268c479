"""The documents of a stream: one follows the next without padding, and all are complete.

On a socket a header is never 0 and never says "not complete", so either means that the capture is
damaged or is something else; where the next document would start cannot be known.

`walk_stream` takes a file, `StreamFeed` what comes piece by piece.
"""

from collections.abc import Iterator
from typing import Final

from cqrepl.dump.documentreader import BEGINNING_BYTES, BODY_MAX, Document, DocumentReader
from wire.errors import WireError
from wire.header import HEADER_BYTES, body_length, is_metadata, is_ready
from wire.reader import Reader

_TEXT_BYTES: Final = bytes([0x0A, *range(0x20, 0x7F)])
_BEGINNING_BYTES: Final = 64
FIRST_MAX: Final = 10 << 20  # of the first document of a connection; Java refuses longer ones


def walk_stream(first: Document, reader: DocumentReader) -> Iterator[Document]:
    """The documents of a stream up to its end.

    Raises:
        WireError: a header that cannot occur in a stream, or a truncated document.
    """
    document: Document | None = first
    while document is not None:
        check_word(document.word, document.position)
        yield document
        document = reader.next_document(aligned=False)


def check_word(word: int, position: int) -> None:
    """Does nothing for the header of a complete document.

    Raises:
        WireError: any other header; there is no way to find the next document.
    """
    if not is_ready(word):
        reason = f"a complete document was expected, header 0x{word:08x} came"
        raise WireError(reason, position)


class StreamFeed:
    """Takes bytes in any segmentation and gives documents; of very long ones the beginning."""

    def __init__(self) -> None:
        self.position = 0  # of the next header
        self._data = bytearray()
        self._skipped = 0  # of a very long body behind what is kept

    def feed(self, data: bytes) -> Iterator[Document]:
        """The documents that these bytes complete.

        Raises:
            WireError: a header that cannot occur in a stream.
        """
        self._data += data
        while len(self._data) >= HEADER_BYTES:
            word = int.from_bytes(self._data[:HEADER_BYTES], "little")
            check_word(word, self.position)
            length = body_length(word)
            kept = length if length <= BODY_MAX else BEGINNING_BYTES
            if kept != length:
                self._skip(HEADER_BYTES + kept, length - kept)
            if len(self._data) < HEADER_BYTES + kept or self._skipped < length - kept:
                return
            body = bytes(self._data[HEADER_BYTES : HEADER_BYTES + kept])
            del self._data[: HEADER_BYTES + kept]
            position, self._skipped = self.position, 0
            self.position += HEADER_BYTES + length
            yield Document(position=position, word=word, body=body)

    @property
    def cut_off(self) -> str | None:
        """The words for what is missing at the end; None when the last document is whole."""
        if not self._data:
            return None
        came = len(self._data) + self._skipped
        if came < HEADER_BYTES:
            return f"a header of {HEADER_BYTES} bytes was expected, {came} came"
        word = int.from_bytes(self._data[:HEADER_BYTES], "little")
        return (
            f"{body_length(word)} bytes behind header 0x{word:08x} were expected, "
            f"{came - HEADER_BYTES} came"
        )

    def _skip(self, kept: int, wanted: int) -> None:
        count = min(len(self._data) - kept, wanted - self._skipped)
        if count > 0:
            del self._data[kept : kept + count]
            self._skipped += count


def starts_stream(data: bytes | bytearray) -> bool | None:
    """True when these first bytes of a connection are those of documents; None: more are needed.

    They are when the first document has a possible header and consists of named fields, as every
    document of a connection does.
    """
    if len(data) < HEADER_BYTES:
        return None
    word = int.from_bytes(data[:HEADER_BYTES], "little")
    length = body_length(word)
    if not is_ready(word) or not 0 < length <= FIRST_MAX:
        return False
    if len(data) < HEADER_BYTES + length:
        beginning = bytes(data[HEADER_BYTES : HEADER_BYTES + _BEGINNING_BYTES])
        return None if _starts_with_name(beginning) else False
    body = bytes(data[HEADER_BYTES : HEADER_BYTES + length])
    if is_metadata(word) and not body.translate(None, _TEXT_BYTES):
        return b": " in body  # the header may come as text
    try:
        return bool(Reader(body).read_fields())
    except WireError:
        return False


def _starts_with_name(beginning: bytes) -> bool:
    if not beginning.translate(None, _TEXT_BYTES):
        return True
    try:
        return Reader(beginning).read_name() is not None
    except WireError:
        return len(beginning) < _BEGINNING_BYTES
