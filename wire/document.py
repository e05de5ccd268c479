"""Cuts a byte stream into documents, however the bytes arrive.

Theory of operation: what was fed and not yet taken is kept as one `bytes` object with a position in
it, plus a list of chunks behind it. The chunks are joined only when a whole document is there, so a
large document that comes in small pieces costs one copy, and memory grows with what was received,
never with what a header claims. Pieces of a few bytes would cost more for each piece than for its
content, so a long run of them is joined early, at the price of a second copy. Bodies are views of
the joined bytes and stay valid for as long as they are kept.
"""

from typing import Final, NamedTuple

from wire.errors import WireError
from wire.header import HEADER_BYTES, META_DATA, NOT_COMPLETE, body_length

_LOOSE_CHUNKS_MAX: Final = 1024


class Document(NamedTuple):
    """One document of a stream: its header word, its body, and where its header stood."""

    word: int
    body: memoryview
    position: int

    @property
    def is_metadata(self) -> bool:
        return bool(self.word & META_DATA)


class Splitter:
    """Takes bytes in any segmentation and gives whole documents; streams have no padding.

    Args:
        length_max: greatest body in bytes; may be changed between documents.
    """

    def __init__(self, length_max: int) -> None:
        self.length_max = length_max
        self._data = b""
        self._at = 0
        self._chunks: list[bytes] = []
        self._runs: list[bytes] = []  # what stands before the chunks: chunks that were joined
        self._chunk_bytes = 0
        self._taken = 0  # stream position of self._data[0]

    @property
    def position(self) -> int:
        """Position in the stream of the next document's header."""
        return self._taken + self._at

    @property
    def pending_bytes(self) -> int:
        """Bytes that were fed and not yet taken."""
        return len(self._data) - self._at + self._chunk_bytes

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        if data:
            self._chunks.append(data)
            self._chunk_bytes += len(data)
            if len(self._chunks) >= _LOOSE_CHUNKS_MAX:
                self._runs.append(b"".join(self._chunks))
                self._chunks = []

    def next_document(self) -> Document | None:
        """The next whole document; None while more bytes are needed.

        Raises:
            WireError: the header word is 0, not complete, or longer than `length_max`. The splitter
                stays where it is: there is no way to find the next document.
        """
        length = self._next_length()
        if length is None:
            return None
        start = self._at + HEADER_BYTES
        word = int.from_bytes(self._data[self._at : start], "little")
        position = self.position
        self._at = start + length
        return Document(word, memoryview(self._data)[start : self._at], position)

    @property
    def next_is_whole(self) -> bool:
        """True when `next_document` has something to give.

        Raises:
            WireError: as `next_document` does.
        """
        return self._next_length() is not None

    def gathered(self) -> tuple[bytes, int]:
        """All pending bytes as one object, and where in it the next header stands.

        For the batch kernel, which takes many documents at a time and then calls `skip_to`.
        """
        self._gather()
        return self._data, self._at

    def skip_to(self, at: int) -> None:
        """Declares what `gathered` gave as taken up to offset `at`."""
        assert self._at <= at <= len(self._data)
        self._at = at

    def _next_length(self) -> int | None:
        """Length of the next document's body, once all of it is gathered."""
        if self.pending_bytes < HEADER_BYTES:
            return None
        if len(self._data) - self._at < HEADER_BYTES:
            self._gather()
        word = int.from_bytes(self._data[self._at : self._at + HEADER_BYTES], "little")
        self._check(word)
        length = body_length(word)
        if self.pending_bytes < HEADER_BYTES + length:
            return None
        if len(self._data) - self._at < HEADER_BYTES + length:
            self._gather()
        return length

    def _check(self, word: int) -> None:
        if word == 0:
            raise WireError("a document header was expected, a zero word came", self.position)
        if word & NOT_COMPLETE:
            raise WireError(
                f"a complete document was expected, header 0x{word:08x} says not complete",
                self.position,
            )
        if body_length(word) > self.length_max:
            raise WireError(
                f"a document of at most {self.length_max} bytes was expected, "
                f"header 0x{word:08x} announces {body_length(word)}",
                self.position,
            )

    def _gather(self) -> None:
        if self._chunk_bytes:
            rest = memoryview(self._data)[self._at :]
            self._taken += self._at
            # a single chunk with nothing left over is used as it is: the usual case, and no copy
            chunks = [*self._runs, *self._chunks]
            self._data = b"".join([rest, *chunks]) if rest or len(chunks) > 1 else chunks[0]
            self._at = 0
            self._runs = []
            self._chunks = []
            self._chunk_bytes = 0
