"""One store file `.cq4`: its header, the walk over its documents, and the marks a writer keeps.

Theory of operation. A store file is a run of documents, up to the first header
word that is 0, not complete, or the end-of-file mark. The first document describes the file:

    writePosition   header position of the last excerpt (0: none), and the sequence word beside it
    index2Index     position of the page of pages (see `indexing`)
    lastIndex       the next sequence to be put into an index page
    dataFormat      1: headers on multiples of 4. Files of old versions (as 5.17) lack it, and have
                    no gap between a document and the next header: they are read, not written

These longs are updated after an excerpt is published, not with it, and a writer may die in between:
they are hints. What is true is only what a walk from a known place finds. `Place` is such a place:
the position where the excerpt of that sequence stands, or will.

A writer publishes by exchanging a header word of 0, all else being stored before; it holds the
queue's write lock. Readers hold nothing and never look behind a header that is not ready.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from cqrepl.kernel.batch import NO_LIMIT, FindStop, Found, find_excerpts
from cqrepl.queue.files.atomics import fence
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.tablestore import typed_fields
from cqrepl.queue.format.errors import NotAQueue, QueueDamaged
from cqrepl.queue.format.index import Cycle, Position, Sequence
from cqrepl.queue.format.rollcycle import sequence_bits
from cqrepl.queue.format.storeimage import DATA_FORMAT
from wire.codes import Code
from wire.errors import WireError
from wire.header import END_OF_FILE, HEADER_BYTES, body_length, is_metadata, is_ready
from wire.reader import Reader

SUFFIX: Final = ".cq4"
_EOF_NAME: Final = b"\xc3EOF"  # stands behind the end-of-file mark; decoration
END_MARK: Final = END_OF_FILE.to_bytes(HEADER_BYTES, "little") + _EOF_NAME
_WALK_COUNT: Final = 65_536  # excerpts per step of a long walk: bounds its memory
_INDEX_COUNT_MAX: Final = 1 << 20
_INDEX_SPACING_MAX: Final = 1 << 30
HEADER_MAX: Final = 1 << 16  # bytes of a header that are read: a longer one is damage
_LONG_BYTES: Final = 8
_ROLL: Final = "roll"  # a field of version 4 alone: there each store file tells its roll cycle
_FIELDS: Final = frozenset(("writePosition", "indexing"))  # all that a 5.17 header has


class Place(NamedTuple):
    """A sequence, and the position of (or for) its header; (0, 0) is the file's start."""

    sequence: Sequence
    position: Position


START: Final = Place(Sequence(0), Position(0))


class Walked(NamedTuple):
    """The result of a walk: `place` is where it stopped, `stop` why.

    `position_last` is the header position of the last excerpt passed, 0 if there was none; `marks`
    are the (sequence, position) passed that belong into index pages.
    """

    place: Place
    stop: FindStop
    position_last: Position
    marks: list[tuple[int, int]]


class StoreHeader(NamedTuple):
    """Positions of the four longs, and the file's indexing numbers."""

    write_position: int
    sequence: int | None  # missing in very old files
    pages: int
    last_index: int
    index_count: int
    index_spacing: int
    alignment: int  # headers stand at multiples of so many bytes: 4, or 1 in old files


class _KnownHeader(NamedTuple):
    """A header that was parsed before: its bytes but for the longs that writers change, as
    (position, bytes), and what it says."""

    fixed: tuple[tuple[int, bytes], ...]
    header: StoreHeader


class StoreFile:
    """An open store file whose header is ready."""

    def __init__(self, mapping: Mapping, cycle: int) -> None:
        """Takes over the mapping of a file.

        Raises:
            QueueDamaged: the header is not that of a store file.
            NotAQueue: it is a file of version 4, or of an unknown data format.
        """
        self.path = mapping.path
        self.cycle = Cycle(cycle)
        self.mapping = mapping
        self.header = self._parse_header()
        self.sequence_bits = sequence_bits(self.header.index_count, self.header.index_spacing)

    @classmethod
    def open(cls, path: Path, cycle: int, *, writable: bool) -> "StoreFile | None":
        """The store file there; None while its header is not ready.

        Raises:
            FileNotFoundError: there is no file.
        """
        mapping = Mapping(path, writable=writable)
        try:
            ready = mapping.length >= HEADER_BYTES and is_ready(mapping.words.load_4(0))
            if ready:
                fence()
                return cls(mapping, cycle)
        except BaseException:
            mapping.close()
            raise
        mapping.close()
        return None

    def close(self) -> None:
        """Unmaps the file."""
        self.mapping.close()

    def find(
        self,
        position: int,
        *,
        count_max: int = NO_LIMIT,
        bytes_max: int = NO_LIMIT,
        payload_max: int = NO_LIMIT,
    ) -> Found:
        """Excerpts from the header at `position` on; the file is mapped anew as it grows.

        Raises:
            QueueDamaged: the file was cut, or a document claims to end behind its end.
        """
        self.mapping.check()
        while True:
            data = self.mapping.data
            found = find_excerpts(
                data,
                position,
                len(data),
                count_max=count_max,
                bytes_max=bytes_max,
                payload_max=payload_max,
                alignment=self.header.alignment,
            )
            if found.stop is not FindStop.PAST_END or found.offsets:
                fence()
                return found
            position = found.position
            if not self._cover_document(position):
                return found._replace(stop=FindStop.NOT_READY)

    def walk(self, start: Place, sequence_max: int = NO_LIMIT, *, past_end: bool = False) -> Walked:
        """Walks from a known place to the excerpt `sequence_max`, or to the end.

        Args:
            past_end: stops before a document that claims to end behind the end of the file.

        Raises:
            QueueDamaged: as `find`.
        """
        sequence: int
        position: int
        sequence, position = start
        spacing = self.header.index_spacing
        position_last = 0
        marks: list[tuple[int, int]] = []
        stop = FindStop.LIMIT
        while sequence < sequence_max and stop not in (FindStop.NOT_READY, FindStop.END_OF_FILE):
            count_max = min(_WALK_COUNT, sequence_max - sequence)
            try:
                position, stop, offsets, _ = self.find(position, count_max=count_max)
            except QueueDamaged as damaged:
                if not past_end or damaged.position is None:
                    raise
                place = Place(Sequence(sequence), Position(damaged.position))
                return Walked(place, FindStop.PAST_END, Position(position_last), marks)
            first = -sequence % spacing
            for nth in range(first, len(offsets), spacing):
                marks.append((sequence + nth, offsets[nth] - HEADER_BYTES))
            sequence += len(offsets)
            if offsets:
                position_last = offsets[-1] - HEADER_BYTES
        place = Place(Sequence(sequence), Position(position))
        return Walked(place, stop, Position(position_last), marks)

    def word_at(self, position: int) -> int:
        """The header word there; 0 behind the end of the file."""
        if not self.mapping.cover(position + HEADER_BYTES):
            return 0
        return self._word(position)

    def can_stand_at(self, position: int) -> bool:
        """True when a header can stand there: within the file, and aligned as in this file."""
        is_aligned = position % self.header.alignment == 0
        return is_aligned and (
            0 <= position < self.mapping.length or 0 <= position < self.mapping.check()
        )

    def has_end_mark(self) -> bool:
        """True when the end-of-file mark stands behind what the write position leads to."""
        position = self.write_position()
        if not self.can_stand_at(position):
            return False
        try:
            return self.walk(Place(Sequence(0), position)).stop is FindStop.END_OF_FILE
        except QueueDamaged:
            return False  # a wrong write position: the caller will look at the whole file

    def write_position(self) -> Position:
        """Header position of the last excerpt as recorded; may lag behind, 0 for none."""
        return Position(self.mapping.words.load_8(self.header.write_position))

    def check_end(self, position: int, last: Place | None) -> bool:
        """True when what writers recorded agrees with a walk that ended at `position`; false when
        more has come there meanwhile.

        Args:
            last: the last excerpt passed, (0, 0) for none in the file; None when unknown.

        Raises:
            QueueDamaged: an excerpt was recorded that the walk did not find, or as another one.
        """
        recorded = self.write_position()
        fence()  # a writer stores it after the header word, so it is read before that
        if is_ready(self.word_at(position)):
            return False
        if recorded >= position if last is None else recorded > last.position:
            raise QueueDamaged(
                f"expected an excerpt, as one at {recorded} was recorded, found none",
                path=self.path,
                position=position,
            )
        if last is not None and recorded == last.position != 0:
            self._check_sequence(last)
        return True

    def _check_sequence(self, last: Place) -> None:
        if self.header.sequence is None:
            return
        word = self.mapping.words.load_8(self.header.sequence) % (1 << 64)
        expected = self._sequence_word(last.position, last.sequence)
        # other upper bits: it belongs to another excerpt, its writer died or is just storing it
        if word != expected and word >> self.sequence_bits == expected >> self.sequence_bits:
            raise QueueDamaged(
                f"expected sequence {word & (1 << self.sequence_bits) - 1} as recorded, walked to"
                f" {last.sequence}",
                path=self.path,
                position=last.position,
            )

    def _sequence_word(self, position: Position, sequence: Sequence) -> int:
        """The position's lower bits above the sequence, as an unsigned long."""
        mask = (1 << self.sequence_bits) - 1
        return ((position << self.sequence_bits) + (sequence & mask)) % (1 << 64)

    def publish(self, position: int, word: int) -> None:
        """Makes what was laid behind the header at `position` visible.

        Raises:
            QueueDamaged: a header stands there, though the write lock is ours.
        """
        if not self.mapping.words.exchange_4(position, 0, word):
            raise self.clash(position)

    def clash(self, position: int) -> QueueDamaged:
        """The error when a header stands where one is to be published."""
        return QueueDamaged(
            f"expected an empty header word, found {self.word_at(position):#010x}",
            path=self.path,
            position=position,
        )

    def record_last(self, position: Position, sequence: Sequence) -> None:
        """Records the last excerpt published, for the next process that opens the file."""
        words = self.mapping.words
        words.raise_8(self.header.write_position, position)
        if self.header.sequence is not None:
            words.store_8(self.header.sequence, self._sequence_word(position, sequence))

    def set_back_last(self, position: Position, sequence: Sequence) -> None:
        """Records an earlier last excerpt, (0, -1) for none: what was recorded is not there."""
        words = self.mapping.words
        words.store_8(self.header.write_position, position)
        if self.header.sequence is not None:
            word = self._sequence_word(position, sequence) if position else 0
            words.store_8(self.header.sequence, word)

    def clear_not_complete(self, position: int) -> None:
        """Makes a header that a dead writer left not complete free again."""
        word = self.word_at(position)
        if word and not is_ready(word) and word != END_OF_FILE:
            self.mapping.words.exchange_4(position, word, 0)

    def write_end_mark(self, position: int) -> None:
        """Closes the file for good behind its last document; nothing if it is closed already."""
        word = self.word_at(position)
        if word == END_OF_FILE:
            return
        assert not is_ready(word)
        self.mapping.reserve(position, position + HEADER_BYTES + len(_EOF_NAME))
        if self.mapping.words.exchange_4(position, word, END_OF_FILE):
            self.mapping.write(position + HEADER_BYTES, _EOF_NAME)

    def _cover_document(self, position: int) -> bool:
        """Maps the document at `position` whole; false when the file ends before its header."""
        if not self.mapping.cover(position + HEADER_BYTES):
            return False
        word = self._word(position)
        length = body_length(word)
        if is_ready(word) and not self.mapping.cover(position + HEADER_BYTES + length):
            raise QueueDamaged(
                f"expected a document within the file's {self.mapping.length} bytes,"
                f" found one of {length} bytes",
                path=self.path,
                position=position,
            )
        return True

    def _word(self, position: int) -> int:
        if position % HEADER_BYTES == 0:
            return self.mapping.words.load_4(position)
        # a header of an old file; read twice, as it may lie in two cache lines and be half stored
        data = self.mapping.data
        while True:
            first, again = (bytes(data[position : position + HEADER_BYTES]) for _ in range(2))
            if first == again:
                fence()
                return int.from_bytes(first, "little")

    def _parse_header(self) -> StoreHeader:
        self._cover_document(0)
        word = self.mapping.words.load_4(0)
        return parse_header(self.mapping.data, word, self.path)


# by header word. The files of a queue differ in no other byte of their headers, and a plan over
# thousands of them would take longer to parse them than for all the rest
_known_headers: dict[int, _KnownHeader] = {}
_KNOWN_MAX: Final = 16


def parse_header(data: bytes | memoryview, word: int, path: Path) -> StoreHeader:
    """The header that the first document of a store file holds.

    Args:
        data: begins with that document, and holds all of it.
        word: the document's header word.

    Raises:
        QueueDamaged: it is not the header of a store file.
        NotAQueue: it is that of a file of version 4, or of an unknown data format.
    """
    known = _known_headers.get(word)
    if known is not None and all(data[at : at + len(own)] == own for at, own in known.fixed):
        return known.header
    header = _parsed_header(data, word, path)
    if len(_known_headers) >= _KNOWN_MAX:
        _known_headers.clear()
    _known_headers[word] = _KnownHeader(tuple(_fixed_bytes(data, word, header)), header)
    return header


def _fixed_bytes(
    data: bytes | memoryview, word: int, header: StoreHeader
) -> Iterator[tuple[int, bytes]]:
    """The positions and bytes of a header that stay as they were made: all but its longs."""
    longs = (header.write_position, header.sequence, header.pages, header.last_index)
    begin = HEADER_BYTES
    for position in sorted(each for each in longs if each is not None):
        if position > begin:
            yield begin, bytes(data[begin:position])
        begin = position + _LONG_BYTES
    yield begin, bytes(data[begin : HEADER_BYTES + body_length(word)])


def _parsed_header(data: bytes | memoryview, word: int, path: Path) -> StoreHeader:
    try:
        reader = Reader(data, HEADER_BYTES, HEADER_BYTES + body_length(word))
        if not is_metadata(word) or reader.read_name() != "header":
            raise WireError("meta-data of the name 'header' was expected")
        fields = typed_fields(reader)
        if _ROLL in fields:
            raise NotAQueue("expected a store file of version 5, found version 4", path=path)
        if "dataFormat" not in fields and not _FIELDS.issuperset(fields):
            raise WireError(f"a field 'dataFormat' was expected beside {sorted(fields)}")
        header = _read_header(fields, _alignment(fields, path))
    except (WireError, KeyError) as error:
        if _is_fieldless(data, word):
            text = "expected a store file of wire type BINARY_LIGHT, found one without field names"
            raise NotAQueue(f"{text}: FIELDLESS_BINARY is not supported", path=path) from error
        raise QueueDamaged(
            f"expected the header of a store file: {error}", path=path, position=0
        ) from error
    _check_header(header, path)
    return header


def _check_header(header: StoreHeader, path: Path) -> None:
    count, spacing = header.index_count, header.index_spacing
    if not (
        0 < count <= _INDEX_COUNT_MAX
        and 0 < spacing <= _INDEX_SPACING_MAX
        and count & (count - 1) == spacing & (spacing - 1) == 0
    ):
        raise QueueDamaged(
            f"expected indexing numbers that are powers of 2, found {count} and {spacing}",
            path=path,
            position=0,
        )
    for position in (header.write_position, header.sequence, header.pages, header.last_index):
        if position is not None and position % 8:
            raise QueueDamaged("expected a long aligned to 8", path=path, position=position)


def _is_fieldless(data: bytes | memoryview, word: int) -> bool:
    """True for a header whose fields all lack their names, as the wire type FIELDLESS_BINARY has
    them."""
    header = bytes(data[: HEADER_BYTES + body_length(word)])
    names = (b"writePosition", b"indexing", b"index2Index", b"lastIndex")
    is_header = b"SCQStore" in header and b"SCQSIndexing" in header
    return is_header and not any(name in header for name in names)


def _alignment(fields: dict[str, Reader], path: Path) -> int:
    if "dataFormat" not in fields:
        return 1
    data_format = fields["dataFormat"].read_int()
    if data_format not in (0, DATA_FORMAT):
        raise NotAQueue(
            f"expected dataFormat {DATA_FORMAT}, or 0 or none of old versions, found {data_format}:"
            " not supported",
            path=path,
        )
    return HEADER_BYTES if data_format == DATA_FORMAT else 1


def _read_header(fields: dict[str, Reader], alignment: int) -> StoreHeader:
    indexing = typed_fields(fields["indexing"])
    write_position, sequence = _write_words(fields["writePosition"])
    return StoreHeader(
        write_position=write_position,
        sequence=sequence,
        pages=indexing["index2Index"].read_bound_int64(),
        last_index=indexing["lastIndex"].read_bound_int64(),
        index_count=indexing["indexCount"].read_int(),
        index_spacing=indexing["indexSpacing"].read_int(),
        alignment=alignment,
    )


def _write_words(reader: Reader) -> tuple[int, int | None]:
    """Positions of the write position and of the sequence word beside it."""
    if reader.peek_code() == Code.INT64:
        return reader.read_bound_int64(), None
    array = reader.read_bound_array()
    if reader.position - array < 32:
        raise WireError("an array of two longs was expected", array)
    return array + 16, array + 24
