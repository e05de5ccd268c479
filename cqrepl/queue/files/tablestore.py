"""The table store `metadata.cq4t`: a queue's roll configuration, and named longs used in place.

Theory of operation. The file is a run of documents on multiples of 4:

    header       meta-data: !STStore {wireType, metadata: !SCQMeta {roll, sourceId}}
    key, key ..  data: event name, padding, A7, one long on a multiple of 8

The first header word that is 0 ends it. A key is never moved or removed, so the position of its
long holds for ever; the longs are read and exchanged in the mapping by every process. Finding and
adding a key happens under a record lock on one byte far behind the end of the file. A key is the
name as Java writes it, the lower half of each UTF-16 unit, so `grün€` and `grün¬` are one; Java
itself never finds the first of them again, and adds it anew each time. The file has
131072 bytes; Java makes it longer when the keys need more, and every process maps what it has grown
by when it looks for a key. Read-only opening takes no lock and changes nothing: a document is
published by its header word only when it is whole.

Header and keys are on the disk before their header words are stored: a power cut leaves each whole
or not at all, and a queue of which it took the last key can still be opened.

Source: queue files that Java 5.27 wrote (`tests/vectors/queues`).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from cqrepl.queue.files.mapping import (
    RECORD_LOCK_GUARD,
    Mapping,
    check_name,
    close_file,
    open_to_write,
)
from cqrepl.queue.format import rollcycle
from cqrepl.queue.format.errors import NotAQueue, QueueDamaged, QueueError
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.surroundings import monotonic, surroundings
from wire.codes import Code
from wire.errors import WireError
from wire.header import HEADER_BYTES, align4, body_length, is_ready
from wire.reader import Reader
from wire.strings import kept_name
from wire.writer import Writer

FILE_NAME: Final = "metadata.cq4t"
FILE_NAME_V4: Final = "directory-listing.cq4t"
FILE_BYTES: Final = 131_072
_FILE_BYTES_MAX: Final = 1 << 62
_LOCK_BYTE: Final = 0x7FFFFFFFFFFFFFFE
# of Java's WireType; a queue can say so, and its headers and excerpts look otherwise then
_OTHER_WIRE_TYPES: Final = (
    *("TEXT", "YAML", "YAML_ONLY", "JSON", "JSON_ONLY", "CSV", "RAW", "READ_ANY"),
    *("FIELDLESS_BINARY", "DEFAULT_ZERO_BINARY", "DELTA_BINARY", "COMPRESSED_BINARY"),
)
_LOCK_TIMEOUT_S: Final = 10.0  # Java's own patience for this lock
_READY_TIMEOUT_S: Final = 1.0
_PAUSE_S: Final = 0.001
PAGE_BYTES: Final = 4096  # what reaches the disk whole
_LAYOUTS_MAX: Final = 64  # headers that are kept with what they say
_known_layouts: Final[dict[bytes, QueueLayout]] = {}


class TableValue:
    """One named long, in place."""

    def __init__(self, mapping: Mapping, position: int) -> None:
        self._mapping = mapping
        self._position = position

    @property
    def position(self) -> int:
        """The position of the value in the table store."""
        return self._position

    @property
    def memory(self) -> memoryview:
        """The table store in memory, where the value stands at `position`."""
        return self._mapping.data

    def load(self) -> int:
        """The value now."""
        return self._mapping.words.load_8(self._position)

    def store(self, value: int) -> None:
        """Sets the value."""
        self._mapping.words.store_8(self._position, value)

    def put(self, value: int) -> None:
        """Sets the value, in no order with other stores."""
        self._mapping.words.put_8(self._position, value)

    def exchange(self, expected: int, value: int) -> bool:
        """Sets the value if `expected` stands there; true if it did."""
        return self._mapping.words.exchange_8(self._position, expected, value)

    def raise_to(self, value: int) -> None:
        """Makes the value at least this."""
        self._mapping.words.raise_8(self._position, value)

    def lower_to(self, value: int) -> None:
        """Makes the value at most this."""
        self._mapping.words.lower_8(self._position, value)

    def add(self, amount: int) -> None:
        """Adds to the value."""
        self._mapping.words.add_8(self._position, amount)


class TableStore:
    """An open table store. `layout` has the roll cycle's own indexing numbers."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Opens an existing table store.

        Raises:
            NotAQueue: its roll cycle is unknown or WEEKLY.
            QueueDamaged: it is not what a table store must be.
        """
        self.path = path
        # threads look for keys and use values at the same time: none may take the words of another
        self._mapping = Mapping(path, writable=writable, keeps_views=True)
        self._positions: dict[str, int] = {}
        self._written: dict[str, str] = {}
        try:
            if writable:
                self._mapping.reserve(0, max(FILE_BYTES, self._mapping.length))
            self._walked = self._await_header()
            self.layout = self._parse_header()
        except BaseException:
            self.close()
            raise

    def check_name(self) -> None:
        """Does nothing while the file's name leads to it, as far as can be told now.

        Raises:
            QueueDamaged: it was removed, or another one, or a link, has taken its name.
        """
        check_name(self.path, self._mapping.identity)

    @classmethod
    def create(cls, path: Path, layout: QueueLayout) -> "TableStore":
        """Makes a table store, or opens the one that another process has just made."""
        close_file(open_to_write(path, os.O_CREAT))
        mapping = Mapping(path, writable=True)
        try:
            mapping.reserve(0, max(FILE_BYTES, mapping.length))
            with _table_lock(mapping):
                # Under the lock a header that is being written was left by a process that died.
                # It is not marked so here: Java waits for such a header, and never finishes it.
                if not is_ready(mapping.words.load_4(0)):
                    mapping.words.store_4(0, 0)
                    image = table_header_image(layout)
                    assert len(image) <= PAGE_BYTES  # a power cut leaves all of it or nothing
                    mapping.write(HEADER_BYTES, image[HEADER_BYTES:])
                    mapping.words.store_4(0, int.from_bytes(image[:HEADER_BYTES], "little"))
        finally:
            mapping.close()
        return cls(path, writable=True)

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode number of the file, which tell it from every other file of the
        machine."""
        return self._mapping.identity

    def header(self) -> bytes:
        """The bytes of the header, which stay what they are."""
        return bytes(self._mapping.data[: self._document_end(0)])

    def find(self, key: str) -> TableValue | None:
        """The value of a key (upper and lower case alike); None when there is no such key."""
        wanted = _found_by(key)
        if wanted not in self._positions:
            self._walk()
        position = self._positions.get(wanted)
        return None if position is None else TableValue(self._mapping, position)

    def has_early(self, key: str) -> bool:
        """True for a key that may have been added as the table store was made: its bytes stand in
        the first page. No key is walked over, of which there may be thousands."""
        return key.encode() in bytes(self._mapping.data[:PAGE_BYTES])

    def value(self, key: str, initial: int) -> TableValue:
        """The value of a key, which is added with `initial` if there is none."""
        found = self.value_within(key, initial, _FILE_BYTES_MAX)
        assert found is not None
        return found

    def value_within(self, key: str, initial: int, end_max: int) -> TableValue | None:
        """As `value`; None for a key that is not there and would end behind `end_max`."""
        found = self.find(key)
        if found is None:
            with _table_lock(self._mapping):
                self._walk()
                if _found_by(key) not in self._positions:
                    image = _key_image(self._walked, key, initial)
                    if self._walked + len(image) > end_max:
                        return None
                    self._add(key, image + bytes(HEADER_BYTES))
            found = self.find(key)
        return found

    def keys_end(self) -> int:
        """The position at which the last key ends, in bytes from the beginning of the file."""
        self._walk()
        return self._walked

    def ends_at(self, end: int) -> bool:
        """True while the keys end there, where they ended before. A look at one word, which does
        not ask for the file's size, as `keys_end` does."""
        mapping = self._mapping
        is_mapped = end + HEADER_BYTES <= mapping.length
        return self._walked == end and is_mapped and not is_ready(mapping.words.load_4(end))

    def keys(self) -> dict[str, int]:
        """Every key, in lower case, with its value now."""
        self._walk()
        load = self._mapping.words.load_8
        return {key: load(position) for key, position in self._positions.items()}

    def written(self, key: str) -> str:
        """A key as it was spelled when it was added; `key` itself when there is none."""
        self._walk()
        return self._written.get(_found_by(key), key)

    def sync(self) -> None:
        """Returns when all values are on the disk.

        Raises:
            OSError: they may never get there.
        """
        self._mapping.sync(0, self._mapping.length)

    def locked(self) -> AbstractContextManager[None]:
        """Holds the table lock: no process can begin to use a key for the length of a block.

        Raises:
            QueueError: another process holds it.
        """
        return _table_lock(self._mapping)

    def view(self) -> memoryview:
        """All bytes of the table store, mapped as long as this is held."""
        return self._mapping.data[:]

    def may_be_mapped_by(self, pid: int) -> bool:
        """False only when this process certainly does not use this table store."""
        return self._mapping.may_be_mapped_by(pid)

    def close(self) -> None:
        """Unmaps the file; its values must not be used any more."""
        self._mapping.close()

    def _add(self, key: str, image: bytes) -> None:
        """Appends a key; the table lock is held, so no other process is busy at the end."""
        position = self._walked
        end = position + len(image)
        if not self._mapping.cover(end):
            raise QueueError(f"expected room for the key {key}", path=self.path, position=position)
        words = self._mapping.words
        words.store_4(position, 0)  # a not complete word here was left by a process that died
        self._mapping.write(position + HEADER_BYTES, image[HEADER_BYTES:])
        if position // PAGE_BYTES != (end - 1) // PAGE_BYTES:
            self._mapping.sync(position, end)  # else a power cut could leave the header word alone
        words.store_4(position, int.from_bytes(image[:HEADER_BYTES], "little"))

    def _await_header(self) -> int:
        """Position behind the header; waits a little for a process that is just creating it."""
        # no process is still creating a file that has not been touched for longer
        age_s = surroundings().file_age(self._mapping.descriptor)
        deadline = monotonic() + _READY_TIMEOUT_S - max(0.0, min(age_s, _READY_TIMEOUT_S))
        while True:
            self._mapping.cover(HEADER_BYTES)
            if self._mapping.length >= HEADER_BYTES and is_ready(self._mapping.words.load_4(0)):
                end = self._document_end(0)
                return align4(end)
            if monotonic() > deadline:
                raise QueueDamaged(
                    "expected a table store, found no header", path=self.path, position=0
                )
            surroundings().sleep(_PAUSE_S)

    def _document_end(self, position: int) -> int:
        end = position + HEADER_BYTES + body_length(self._mapping.words.load_4(position))
        if not self._mapping.cover(end):
            raise QueueDamaged(
                f"expected a document of the table store, found one that ends at {end}"
                f" of {self._mapping.length} bytes",
                path=self.path,
                position=position,
            )
        return end

    def _walk(self) -> None:
        """Takes up the keys that were added since the last time."""
        self._mapping.check()
        while self._mapping.cover((position := self._walked) + HEADER_BYTES):
            if not is_ready(self._mapping.words.load_4(position)):
                return
            end = self._document_end(position)
            self._take_key(Reader(self._mapping.data, position + HEADER_BYTES, end), position)
            self._walked = align4(end)

    def _take_key(self, reader: Reader, position: int) -> None:
        try:
            name = reader.read_name()
            if name is None or reader.peek_code() != Code.INT64:
                return  # not a long: some later version's own affair
            at = reader.read_bound_int64()
        except WireError as error:
            raise QueueDamaged(
                f"expected a key: {error}", path=self.path, position=position
            ) from error
        if at % 8:
            raise QueueDamaged(f"expected key {name} aligned to 8", path=self.path, position=at)
        if self._positions.setdefault(_found_by(name), at) == at:
            self._written[_found_by(name)] = name

    def _parse_header(self) -> QueueLayout:
        """The layout in the header. Most queues of a host have the same header, and each is opened
        many times: reading one takes longer than opening the file does."""
        header = self.header()
        found = _known_layouts.get(header)
        if found is None:
            found = parse_layout(header, len(header), self.path)
            if len(_known_layouts) < _LAYOUTS_MAX:
                _known_layouts[header] = found
        return found


def parse_layout(data: bytes | memoryview, end: int, path: Path) -> QueueLayout:
    """The layout in the header of a table store, which ends at `end`.

    Raises:
        NotAQueue: the roll cycle is unknown or WEEKLY, or the wire type is not supported.
        QueueDamaged: it is not the header of a table store.
    """
    try:
        reader = Reader(data, HEADER_BYTES, end)
        if reader.read_name() != "header":
            raise WireError("the name 'header' was expected")
        fields = typed_fields(reader)
        wire_type = _wire_type(fields["wireType"]) if "wireType" in fields else None
        meta = typed_fields(fields["metadata"])
        roll = typed_fields(meta["roll"])
        length_ms = roll["length"].read_int()
        format_ = roll["format"].read_text() or ""
        epoch = roll["epoch"].read_int() if "epoch" in roll else 0
        source_id = meta["sourceId"].read_int() if "sourceId" in meta else 0
    except (WireError, KeyError) as error:
        raise QueueDamaged(
            f"expected the header of a table store: {error}", path=path, position=0
        ) from error
    if wire_type in _OTHER_WIRE_TYPES:
        text = f"expected wire type BINARY_LIGHT, found {wire_type}: it is not supported"
        raise NotAQueue(text, path=path)
    try:
        roll_cycle = rollcycle.by_format(format_)
    except ValueError as error:
        raise NotAQueue(str(error), path=path) from error
    if roll_cycle.length_ms != length_ms:
        raise QueueDamaged(
            f"expected a cycle of {roll_cycle.length_ms} ms for {roll_cycle.name},"
            f" found {length_ms}",
            path=path,
            position=0,
        )
    count, spacing = roll_cycle.index_count, roll_cycle.index_spacing
    return QueueLayout(roll_cycle, epoch, count, spacing, source_id)


def _wire_type(reader: Reader) -> str | None:
    reader.read_type()
    return reader.read_text()


def typed_fields(reader: Reader) -> dict[str, Reader]:
    """The fields of the object that stands next, with or without its type."""
    reader.read_type()
    return reader.read_block().read_fields()


@contextmanager
def _table_lock(mapping: Mapping) -> Iterator[None]:
    """Holds the table's record lock, against other processes and against our own threads."""
    deadline = monotonic() + _LOCK_TIMEOUT_S
    while True:
        with RECORD_LOCK_GUARD:
            if _try_lock(mapping.descriptor):
                try:
                    yield
                finally:
                    fcntl.lockf(mapping.descriptor, fcntl.LOCK_UN, 1, _LOCK_BYTE)
                return
        if monotonic() > deadline:
            raise QueueError(
                f"expected the table lock within {_LOCK_TIMEOUT_S:g} s, another process holds it",
                path=mapping.path,
            )
        surroundings().sleep(_PAUSE_S)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCK_BYTE)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: held, depending on the system
        return False
    return True


def _found_by(key: str) -> str:
    """The form in which a key is looked up: as read back, in lower case."""
    return kept_name(key).lower()


def _key_image(position: int, key: str, initial: int) -> bytes:
    """The document of a key that is to stand there."""
    writer = Writer(origin=position)
    with writer.document(metadata=False, pad=True):
        writer.event(key)
        writer.bound_int64(initial)
    return bytes(writer.data)


def table_header_image(layout: QueueLayout) -> bytes:
    """The header of a table store, as Java lays it."""
    writer = Writer()
    with writer.document(metadata=True):
        writer.event("header")
        writer.type_prefix("STStore")
        with writer.block():
            writer.name("wireType")
            writer.type_prefix("WireType")
            writer.text("BINARY_LIGHT")
            writer.name("metadata")
            writer.type_prefix("SCQMeta")
            with writer.block():
                _write_meta(writer, layout)
            writer.align(HEADER_BYTES, 0)  # Java counts this padding as part of the block
    return bytes(writer.data)


def _write_meta(writer: Writer, layout: QueueLayout) -> None:
    writer.name("roll")
    writer.type_prefix("SCQSRoll")
    with writer.block():
        writer.name("length")
        writer.integer(layout.roll_cycle.length_ms)
        writer.name("format")
        writer.text(layout.roll_cycle.format)
        writer.name("epoch")
        writer.integer(layout.epoch)
    writer.name("sourceId")
    writer.integer(layout.source_id)
