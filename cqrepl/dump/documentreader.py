"""One document after the other, read forward from a file or a pipe.

Theory of operation. Everything that is dumped is read forward exactly once, so a pipe is as good as
a file, and of a sparse file only what is used is ever read. Memory is bounded by `BODY_MAX`: a
longer body is skipped behind its beginning. Only the length in a header is interpreted here.
"""

import io
from dataclasses import dataclass
from typing import Final, Protocol

from wire.errors import WireError
from wire.header import (
    END_OF_FILE,
    HEADER_BYTES,
    NOT_COMPLETE,
    align4,
    body_length,
    is_metadata,
)
from wire.text.print_documents import document_text, hex_dump

BODY_MAX: Final = 4 << 20  # far above any index array; a body this long still renders in seconds
BEGINNING_BYTES: Final = 4096  # kept of a longer body
_SKIPPED_BYTES: Final = 1 << 16
_EMPTY_WORDS: Final = {
    0: "nothing here yet",
    NOT_COMPLETE: "not complete, length unknown",
    END_OF_FILE: "end of file",
}


class CutOff(WireError):
    """The input ends within a document; `came` bytes of its body are there."""

    def __init__(self, reason: str, position: int, came: int) -> None:
        super().__init__(reason, position)
        self.came = came


class Readable(Protocol):
    """An input of bytes: `read` gives fewer than asked for only at the end."""

    def read(self, size: int, /) -> bytes: ...


class Pushed:
    """A file of which a part was read and is given again first."""

    def __init__(self, data: bytes, file: Readable) -> None:
        self._data = io.BytesIO(data)
        self._file = file

    def read(self, size: int, /) -> bytes:
        """The next bytes; fewer than `size` only at the end."""
        data = self._data.read(size)
        return data if len(data) == size else data + self._file.read(size - len(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A header word, where it stands, and its body: of a very long one, the beginning."""

    position: int
    word: int
    body: bytes

    @property
    def is_last(self) -> bool:
        """True when this word stands where a store file has no further document."""
        return self.word in _EMPTY_WORDS

    @property
    def kind(self) -> str:
        """The header in words, but for the length."""
        empty = _EMPTY_WORDS.get(self.word)
        if empty is not None:
            return empty
        readiness = "not complete " if self.word & NOT_COMPLETE else ""
        return f"{readiness}{'meta-data' if is_metadata(self.word) else 'data'}"

    @property
    def missing_bytes(self) -> int:
        """The number of bytes of a very long body that are not in `body`."""
        return 0 if self.is_last else body_length(self.word) - len(self.body)

    def text(self, known: str = "") -> str:
        """A line with position and header, then the items; ends with a line end.

        Args:
            known: what else is known of the document, for the end of its first line.
        """
        return f"{self.line()}{known}\n{self.items_text()}"

    def line(self) -> str:
        """Position and header on one line, without its end."""
        line = f"# position: {self.position}, header: 0x{self.word:08x} {self.kind}"
        if self.is_last:
            return line
        length = body_length(self.word)
        return f"{line}, {length} byte{'' if length == 1 else 's'}"

    def items_text(self) -> str:
        """The items, or as much as is kept of a very long body; ends with a line end."""
        if self.is_last:
            return ""
        offset = self.position + HEADER_BYTES
        if self.missing_bytes:
            shown = hex_dump(self.body, offset)
            return f"{shown}# {self.missing_bytes} more bytes, not shown\n"
        return document_text(self.body, self.word, offset=offset, fold_unused=True)

    def hex_text(self) -> str:
        """Header and body as a hex dump; ends with a line end."""
        data = self.word.to_bytes(HEADER_BYTES, "little") + self.body
        more = f"# {self.missing_bytes} more bytes, not shown\n" if self.missing_bytes else ""
        return hex_dump(data, self.position) + more


class DocumentReader:
    """Reads documents from the place where `file` stands.

    Args:
        position: what positions count from.
        body_max: a longer body is skipped behind its beginning.
    """

    def __init__(self, file: Readable, position: int = 0, *, body_max: int = BODY_MAX) -> None:
        self._file = file
        self._body_max = body_max
        self.position = position

    def next_document(self, *, aligned: bool) -> Document | None:
        """The next document, even one of an odd header; None where the input ends before it.

        Args:
            aligned: it starts at the next multiple of 4.

        Raises:
            WireError: the input ends within the document.
        """
        if aligned:
            self._read(align4(self.position) - self.position)
        position = self.position
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
        body = self._read(length if length <= self._body_max else BEGINNING_BYTES)
        came = len(body)
        while came < length:
            skipped = len(self._read(min(length - came, _SKIPPED_BYTES)))
            if not skipped:
                raise CutOff(
                    f"{length} bytes behind header 0x{word:08x} were expected, {came} came",
                    position,
                    came,
                )
            came += skipped
        return body

    def _read(self, count: int) -> bytes:
        data = self._file.read(count)
        self.position += len(data)
        return data
