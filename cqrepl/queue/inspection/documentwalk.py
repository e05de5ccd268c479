"""Walks over the documents of a store file in pieces of bounded memory, without mapping it.

Theory of operation. The file is read in chunks of `CHUNK_BYTES` that begin at a header; the kernel
finds the excerpts of a chunk at once. What the kernel steps over, meta-data, is found again from
the gaps that it leaves between excerpts, so nothing happens per excerpt here. An excerpt that is
longer than a chunk is a stretch of its own, read in pieces when its bytes are wanted.

A writer may be busy meanwhile. A header that was 0 in the chunk is read again by itself before the
walk ends there, a few times; then the walk ends although more may have come, and all behind it is
none of its business.
"""

from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import Enum
from operator import add
from typing import Final

from cqrepl.kernel.batch import FindStop, find_excerpts, wide_gaps
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.storefile import HEADER_MAX, START, Place, parse_header
from cqrepl.queue.format.errors import QueueError
from cqrepl.queue.format.index import Position, Sequence
from wire.errors import WireError
from wire.header import END_OF_FILE, HEADER_BYTES, aligned, body_length, is_metadata, is_ready
from wire.reader import Reader

CHUNK_BYTES: Final = 1 << 20
_COUNT_MAX: Final = 65_536  # excerpts per stretch
_CAME_MAX: Final = 100  # how often a writer may overtake the walk at its end
_DATA_GAP_MAX: Final = HEADER_BYTES + 3  # a header, and the gap before it
_NAME_BYTES: Final = 64
_KEPT_MAX: Final = 1000  # documents of an application that are listed; all are counted
INDEX2INDEX: Final = "index2index"
INDEX: Final = "index"


class End(Enum):
    """The thing that stands where the documents of a store file end."""

    NOTHING = "open"  # a header word of 0: the next excerpt goes there
    CLOSED = "closed"  # the end-of-file mark
    NOT_COMPLETE = "not complete"  # a writer is busy there, or died
    BROKEN = "broken"  # a document that claims to end behind the end of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDocument:
    """A meta-data document: where it stands, behind how many excerpts, and its bytes' number."""

    position: int
    after_excerpts: int
    length: int
    name: str | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive excerpts, the first being `sequence`. Valid until the next one is asked for.

    `data` begins at position `base` of the file; offsets are within it. It is empty for a single
    excerpt that is longer than a chunk.
    """

    file: FileBytes
    sequence: Sequence
    base: int
    data: memoryview
    offsets: "array[int]"
    lengths: "array[int]"

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def position_last(self) -> Position:
        """Header position of the last excerpt."""
        return Position(self.base + self.offsets[-1] - HEADER_BYTES)

    def payload_pieces(self) -> Iterator[bytes]:
        """The payloads without gaps, in pieces of at most a chunk."""
        if len(self.data):
            ends = map(add, self.offsets, self.lengths)
            yield b"".join(map(self.data.__getitem__, map(slice, self.offsets, ends)))
            return
        position, left = self.base + self.offsets[0], self.lengths[0]
        while left:
            piece = self.file.read(position, min(left, CHUNK_BYTES))
            if not piece:
                return  # cut meanwhile
            yield piece
            position, left = position + len(piece), left - len(piece)


class DocumentWalk:
    """One walk, from a known place to the end of the documents. Iterate `stretches` to the end.

    Afterwards `place` is where it ended, `end` why, `position_last` the header of the last excerpt
    it passed (0: none), `pages` the index pages and the like, `metadata` what an application wrote.
    """

    def __init__(
        self, file: FileBytes, start: Place = START, *, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self.file = file
        self.place = start
        self.end = End.NOTHING
        self.position_last = Position(0)
        self.pages: list[MetadataDocument] = []
        self.metadata: list[MetadataDocument] = []
        self.metadata_count = 0
        self._buffer = memoryview(bytearray(chunk_bytes))
        self._alignment = _alignment_of(file)

    def stretches(self) -> Iterator[Stretch]:
        """The excerpts from the start to the end."""
        came = 0
        while True:
            began = self.place
            filled = self.file.read_into(self._buffer, began.position)
            stop = yield from self._chunk(self._buffer[:filled])
            if stop is FindStop.END_OF_FILE:
                self.end = End.CLOSED
                return
            if stop is FindStop.PAST_END and self.place.position > began.position:
                continue
            if stop is FindStop.PAST_END:
                large = self._large()
                if large is None:
                    return
                yield from large
            elif came >= _CAME_MAX or not is_ready(self.file.word(self.place.position)):
                self.end = _end_of(self.file.word(self.place.position))
                return
            else:
                came += 1  # another process has published it since the chunk was read

    def run(self) -> None:
        """Walks to the end."""
        for _ in self.stretches():
            pass

    def _chunk(self, data: memoryview) -> Generator[Stretch, None, FindStop]:
        """The excerpts of one chunk; answers why they end."""
        base, at = self.place.position, 0
        while True:
            sequence = self.place.sequence
            found = find_excerpts(
                data, at, len(data), count_max=_COUNT_MAX, alignment=self._alignment
            )
            self._take_metadata(data, base, at, found.position, found.offsets, found.lengths)
            at = found.position
            self.place = Place(Sequence(sequence + len(found.offsets)), Position(base + at))
            if found.offsets:
                stretch = Stretch(self.file, sequence, base, data, found.offsets, found.lengths)
                self.position_last = stretch.position_last
                yield stretch
            if found.stop is not FindStop.LIMIT:
                return found.stop

    def _large(self) -> list[Stretch] | None:
        """Steps over a document longer than a chunk; None when the documents end before it."""
        sequence, position = self.place
        word, size = self.file.word(position), self.file.size()
        length = body_length(word)
        end = position + HEADER_BYTES + length
        if position + HEADER_BYTES > size or not is_ready(word):
            self.end = _end_of(word)
            return None
        if end > size:
            self.end = End.BROKEN
            return None
        if is_metadata(word):
            self._take_document(position, length, sequence)
            self.place = Place(sequence, Position(aligned(end, self._alignment)))
            return []
        self.place = Place(Sequence(sequence + 1), Position(aligned(end, self._alignment)))
        self.position_last = position
        offsets, lengths = array("q", [HEADER_BYTES]), array("q", [length])
        return [Stretch(self.file, sequence, position, memoryview(b""), offsets, lengths)]

    def _take_metadata(
        self,
        data: memoryview,
        base: int,
        start: int,
        stop: int,
        offsets: "array[int]",
        lengths: "array[int]",
    ) -> None:
        """Takes up the meta-data documents that the kernel stepped over."""
        for nth in wide_gaps(offsets, lengths, start, stop + HEADER_BYTES, _DATA_GAP_MAX):
            at = offsets[nth - 1] + lengths[nth - 1] if nth else start
            behind = offsets[nth] - HEADER_BYTES if nth < len(offsets) else stop
            while (at := aligned(at, self._alignment)) < behind:
                length = body_length(int.from_bytes(data[at : at + HEADER_BYTES], "little"))
                self._take_document(base + at, length, self.place.sequence + nth)
                at += HEADER_BYTES + length

    def _take_document(self, position: int, length: int, sequence: int) -> None:
        body = self.file.read(position + HEADER_BYTES, min(length, _NAME_BYTES))
        name = _name_of(body)
        document = MetadataDocument(
            position=position, after_excerpts=sequence, length=length, name=name
        )
        if position == 0 or name in (INDEX, INDEX2INDEX):
            self.pages.append(document)
            return
        self.metadata_count += 1
        if len(self.metadata) < _KEPT_MAX:
            self.metadata.append(document)


def _end_of(word: int) -> End:
    if word == END_OF_FILE:
        return End.CLOSED
    return End.NOTHING if word == 0 or is_ready(word) else End.NOT_COMPLETE


def _alignment_of(file: FileBytes) -> int:
    """Bytes that header positions of this file are multiples of; 4 where its header is lost."""
    word = file.word(0)
    data = file.read(0, min(HEADER_BYTES + body_length(word), HEADER_MAX))
    if not is_ready(word) or len(data) < HEADER_BYTES + body_length(word):
        return HEADER_BYTES
    try:
        return parse_header(data, word, file.path).alignment
    except QueueError:
        return HEADER_BYTES


def _name_of(body: bytes) -> str | None:
    try:
        return Reader(body).read_name()
    except WireError:
        return None
