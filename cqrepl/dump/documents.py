"""One document after the other, read forward from a file or a pipe.

Theory of operation. Everything that is dumped is read forward exactly once, so a pipe is as good as
a file, and of a sparse file only what is used is ever read. Memory is bounded by `BODY_MAX`: a
longer body is skipped behind its beginning. Only the length in a header is interpreted here.
"""

from dataclasses import dataclass
from typing import BinaryIO, Final

from wire.errors import WireError
from wire.header import (
    END_OF_FILE,
    HEADER_BYTES,
    NOT_COMPLETE,
    align4,
    body_length,
    is_metadata,
)
from wire.text import document_text, hex_dump

BODY_MAX: Final = 4 << 20  # far above any index array; a body this long still renders in seconds
BEGINNING_BYTES: Final = 4096  # kept of a longer body
_SKIPPED_BYTES: Final = 1 << 16
_EMPTY_WORDS: Final = {
    0: "nothing here yet",
    NOT_COMPLETE: "not complete, length unknown",
    END_OF_FILE: "end of file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A header word, where it stands, and its body: of a very long one, the beginning."""

    position: int
    word: int
    body: bytes

    @property
    def is_last(self) -> bool:
        """Whether this word stands where a store file has no further document."""
        return self.word in _EMPTY_WORDS

    def text(self) -> str:
        """A line with position and header, then the items; ends with a line end."""
        line = f"# position: {self.position}, header: 0x{self.word:08x} {self._kind()}\n"
        if self.is_last:
            return line
        offset = self.position + HEADER_BYTES
        missing = body_length(self.word) - len(self.body)
        if missing:
            return f"{line}{hex_dump(self.body, offset)}# {missing} more bytes, not shown\n"
        return line + document_text(self.body, self.word, offset=offset, fold_unused=True)

    def _kind(self) -> str:
        empty = _EMPTY_WORDS.get(self.word)
        if empty is not None:
            return empty
        readiness = "not complete " if self.word & NOT_COMPLETE else ""
        kind = "meta-data" if is_metadata(self.word) else "data"
        length = body_length(self.word)
        return f"{readiness}{kind}, {length} byte{'' if length == 1 else 's'}"


class DocumentReader:
    """Reads documents from the place where `file` stands; positions count from there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0

    def next_document(self, *, aligned: bool) -> Document | None:
        """The next document, whatever its header says; None where the input ends before it.

        Args:
            aligned: it starts at the next multiple of 4.

        Raises:
            WireError: the input ends within the document.
        """
        if aligned:
            self._read(align4(self._position) - self._position)
        position = self._position
        header = self._read(HEADER_BYTES)
        if not header:
            return None
        if len(header) < HEADER_BYTES:
            reason = f"a header of {HEADER_BYTES} bytes was expected, {len(header)} came"
            raise WireError(reason, position)
        word = int.from_bytes(header, "little")
        return Document(position=position, word=word, body=self._read_body(word, position))

    def _read_body(self, word: int, position: int) -> bytes:
        length = body_length(word)
        body = self._read(length if length <= BODY_MAX else BEGINNING_BYTES)
        came = len(body)
        while came < length:
            skipped = len(self._read(min(length - came, _SKIPPED_BYTES)))
            if not skipped:
                raise WireError(
                    f"{length} bytes behind header 0x{word:08x} were expected, {came} came",
                    position,
                )
            came += skipped
        return body

    def _read(self, count: int) -> bytes:
        data = self._file.read(count)
        self._position += len(data)
        return data
