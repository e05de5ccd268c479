"""Cuts a byte stream into documents, however the bytes arrive.

Theory of operation: what was fed lies in one buffer, from the next document's header up to where
the next bytes go. A socket receives straight into the room behind. When that is too little, the
rest of a document that is not whole moves to the front, usually less than one frame; where it is
long, the buffer grows by half. So memory follows what was received, never what a header claims,
and a byte is copied about three times at most.

Bodies are views of the buffer and stay valid for as long as they are kept: nothing is moved while
there are any, a new buffer is taken instead. A caller that drops them before the next bytes come
gets by with one buffer.
"""

from typing import Final, NamedTuple

from wire.errors import WireError
from wire.header import HEADER_BYTES, LENGTH_MASK, META_DATA, NOT_COMPLETE, body_length

_SPARE: Final = 4  # a buffer that is so many times as long as needed is given up


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
        self._buffer = bytearray()
        self._at = 0  # of the next header
        self._end = 0  # of what was fed
        self._taken = 0  # stream position of the buffer's first byte

    @property
    def position(self) -> int:
        """Position in the stream of the next document's header."""
        return self._taken + self._at

    @property
    def pending_bytes(self) -> int:
        """Bytes that were fed and not yet taken."""
        return self._end - self._at

    def feed(self, data: bytes | memoryview) -> None:
        """Adds received bytes."""
        if data:
            self.room(len(data))[: len(data)] = data
            self.fed(len(data))

    def room(self, count: int) -> memoryview:
        """At least `count` bytes to receive into; `fed` then says how many came."""
        self._make_room(count)
        return memoryview(self._buffer)[self._end :]

    def fed(self, count: int) -> None:
        """Takes the first `count` bytes of what `room` gave as received."""
        assert 0 <= count <= len(self._buffer) - self._end
        self._end += count

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
        word = int.from_bytes(self._buffer[self._at : start], "little")
        position = self.position
        self._at = start + length
        return Document(word, memoryview(self._buffer)[start : self._at].toreadonly(), position)

    @property
    def next_is_whole(self) -> bool:
        """True when `next_document` has something to give.

        Raises:
            WireError: as `next_document` does.
        """
        return self._next_length() is not None

    def gathered(self) -> tuple[memoryview, int]:
        """All pending bytes, and where in them the next header stands.

        For the batch kernel, which takes many documents at a time and then calls `skip_to`.
        """
        return memoryview(self._buffer)[: self._end].toreadonly(), self._at

    def skip_to(self, at: int) -> None:
        """Declares what `gathered` gave as taken up to offset `at`."""
        assert self._at <= at <= self._end
        self._at = at

    def is_cut_behind(self, count: int) -> bool:
        """True when a document starts `count` bytes behind the next header and is not whole."""
        rest = self.pending_bytes - count
        if rest < HEADER_BYTES:
            return rest > 0
        at = self._at + count
        word = int.from_bytes(self._buffer[at : at + HEADER_BYTES], "little")
        return rest < HEADER_BYTES + (word & LENGTH_MASK) and not self._is_wrong(word)

    def _next_length(self) -> int | None:
        """Length of the next document's body, once all of it is there."""
        pending = self._end - self._at
        if pending < HEADER_BYTES:
            return None
        word = int.from_bytes(self._buffer[self._at : self._at + HEADER_BYTES], "little")
        if self._is_wrong(word):
            raise self._refused(word)
        length = word & LENGTH_MASK
        return length if pending >= HEADER_BYTES + length else None

    def _is_wrong(self, word: int) -> bool:
        return word == 0 or word & NOT_COMPLETE != 0 or word & LENGTH_MASK > self.length_max

    def _refused(self, word: int) -> WireError:
        if word == 0:
            what = "a document header was expected, a zero word came"
        elif word & NOT_COMPLETE:
            what = f"a complete document was expected, header 0x{word:08x} says not complete"
        else:
            what = (
                f"a document of at most {self.length_max} bytes was expected, "
                f"header 0x{word:08x} announces {body_length(word)}"
            )
        return WireError(what, self.position)

    def _make_room(self, count: int) -> None:
        """Sees to it that so many bytes have room behind what was fed."""
        pending, length = self._end - self._at, len(self._buffer)
        is_spare = length > _SPARE * (pending + count)
        has_room = length - self._end >= count
        if has_room and self._at < length // 2 and not is_spare:
            return
        if pending + count <= length and not is_spare and self._is_unseen():
            self._buffer[:pending] = self._buffer[self._at : self._end]
        elif is_spare or not has_room:
            grown = bytearray(pending + max(pending // 2, count))
            grown[:pending] = memoryview(self._buffer)[self._at : self._end]
            self._buffer = grown
        else:
            return
        self._taken += self._at
        self._at, self._end = 0, pending

    def _is_unseen(self) -> bool:
        """True when no view of the buffer is held: only then does it let itself be resized."""
        try:
            self._buffer.append(0)
        except BufferError:
            return False
        self._buffer.pop()
        return True
