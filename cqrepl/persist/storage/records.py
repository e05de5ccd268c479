"""The records of storages, as they stand in the log of their group.

Theory of operation. A record is the body of a binary wire document, which Java writes with its own
wire classes: an event name, then a block of fields, in this order. Numbers are as narrow as their
values allow (`int64`), an item is a length and its bytes (`bytesLiteral`).

    event            fields                                  says
    CREATE           id, kind, name, epoch                   the storage is there
    QUEUE_ADD        id, index, gen, epoch, item             an item, behind all others
    SEQUENCE_APPEND  id, index, gen, epoch, item             the same of a sequence
    QUEUE_REMOVE     id, index, gen, epoch                   items up to this index are gone
    SEQUENCE_RESET   id, index, gen, epoch, at               all items are gone; `index` is next
    KEEP             id, index, gen, epoch, item             an item once more: its first record is
                                                             in a store file that is to go

`id` is the 64-bit number of a storage, which its name makes (`correlation_id`); `index` the logical
index of an item, from 1 on, without a gap; `gen` counts the resets, and alone decides to what an
item belongs; `at` is the time of a reset in ms since 1970, for people; `epoch` is that in which the
host that wrote it led, 0 where it was never promoted. A field that is not known is passed over.
"""

import hashlib
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from wire import Reader, WireError, Writer
from wire.codes import BLOCK_LENGTH, FIXED_WIDTH, FLOATS, Code

NAME_MAX: Final = 128  # characters
ITEM_MAX: Final = (16 << 20) - 1024  # bytes; an excerpt of 16 MiB holds the rest of a record, too
INDEX_FIRST: Final = 1
NUMBER_MAX: Final = 1 << 62  # of an index or a generation: those which follow fit, too
_ID_MASK: Final = (1 << 63) - 1


class StorageKind(StrEnum):
    """The kinds of storages."""

    QUEUE = "queue"  # items are added at the end, and removed at the front
    SEQUENCE = "sequence"  # items are read by their index, and all go by a reset


class Op(StrEnum):
    """The names of records."""

    CREATE = "CREATE"
    ADD = "QUEUE_ADD"
    APPEND = "SEQUENCE_APPEND"
    REMOVE = "QUEUE_REMOVE"
    RESET = "SEQUENCE_RESET"
    KEEP = "KEEP"


_NUMBERS: Final = frozenset({"id", "index", "gen", "epoch", "at"})
_BY_BYTES: Final = {each.encode(): each for each in (*_NUMBERS, "item")}
_WIDTHS: Final = {
    code: struct.Struct(layout) for code, layout in FIXED_WIDTH.items() if code not in FLOATS
}
_LENGTHS: Final = {code: struct.Struct(layout) for code, layout in BLOCK_LENGTH.items()}
_TEXTS: Final = frozenset({"kind", "name"})
WITH_ITEM: Final = frozenset({Op.ADD, Op.APPEND, Op.KEEP})


_WANTED: Final[dict[Op, frozenset[str]]] = {
    each: frozenset({"id", "kind", "name"})
    if each is Op.CREATE
    else frozenset({"id", "index", "gen"} | ({"item"} if each in WITH_ITEM else set()))
    for each in Op
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRecord:
    """One record; a field that its name does not have is as it is by default.

    Args:
        index: logical; see above.
        gen: the number of resets before; of a reset, with it.
        at: ms since 1970.
        item: None where it has none, or was not read.
    """

    op: Op
    id: int
    index: int = 0
    gen: int = 0
    epoch: int = 0
    at: int = 0
    kind: StorageKind = StorageKind.SEQUENCE
    name: str = ""
    item: bytes | None = None

    def encoded(self) -> bytes:
        """Its bytes."""
        writer = Writer()
        writer.event(self.op.value)
        with writer.block():
            _number(writer, "id", self.id)
            if self.op is Op.CREATE:
                for name, text in (("kind", self.kind.value), ("name", self.name)):
                    writer.name(name)
                    writer.text(text)
                _number(writer, "epoch", self.epoch)
            else:
                _number(writer, "index", self.index)
                _number(writer, "gen", self.gen)
                _number(writer, "epoch", self.epoch)
            if self.op is Op.RESET:
                _number(writer, "at", self.at)
            if self.op in WITH_ITEM:
                assert self.item is not None
                writer.name("item")
                writer.bytes_literal(self.item)
        return bytes(writer.data)


def _number(writer: Writer, name: str, value: int) -> None:
    writer.name(name)
    writer.integer(value)


def decode_record(data: bytes | memoryview, *, with_item: bool = True) -> StorageRecord:
    """The record that these bytes are.

    Raises:
        WireError: they are none that this version knows, or lack a field.
    """
    reader = Reader(data)
    name = reader.read_name()
    try:
        op = Op(name or "")
    except ValueError:
        raise WireError(f"expected a record of a storage, got {name!r}") from None
    block = reader.read_block()
    values = _usual_values(block, with_item=with_item)
    if values is None:
        values = _values(block, with_item=with_item)
    wanted = _WANTED[op]
    if not wanted <= values.keys():
        lacking = min(wanted - values.keys())
        raise WireError(f"expected the field {lacking!r} of {op.value}, got none")
    for key in _NUMBERS & values.keys():
        _check_number(key, values[key])
    kind = values.get("kind", StorageKind.SEQUENCE.value)
    try:
        values["kind"] = StorageKind(kind)
    except ValueError:
        raise WireError(f"expected a queue or a sequence, got the kind {kind!r}") from None
    if op not in WITH_ITEM:
        values.pop("item", None)
    return StorageRecord(op=op, **values)


def _usual_values(block: Reader, *, with_item: bool) -> dict[str, Any] | None:
    """The same as `_values`, in a third of the time, of what Java and this module write: names of
    known fields, each once, and numbers of a fixed width. None for all else."""
    data, at, end = block.data, block.position, block.end
    found: dict[str, Any] = {}
    while at < end:
        begin = at + 1
        at = begin + data[at] - Code.FIELD_NAME0
        name = _BY_BYTES.get(bytes(data[begin:at])) if begin < at < end else None
        if name is None or name in found:
            return None
        code = data[at]
        at += 1
        layout = _LENGTHS.get(code) if name == "item" else _WIDTHS.get(code)
        if layout is None or at + layout.size > end:
            if code >= Code.BYTES_LENGTH8 or name == "item":
                return None
            found[name] = code
            continue
        (value,) = layout.unpack_from(data, at)
        at += layout.size
        if name == "item":
            item, at = data[at : at + value], at + value
            value = bytes(item) if with_item else None
        found[name] = value
    return found if at == end else None


def _values(block: Reader, *, with_item: bool) -> dict[str, Any]:
    """The fields that are known; of two alike the first counts."""
    found: dict[str, Any] = {}
    while block.peek_code() is not None:
        name = block.read_name()
        if name in _NUMBERS:
            found.setdefault(name, block.read_int())
        elif name in _TEXTS:
            found.setdefault(name, block.read_text() or "")
        elif name == "item":
            item = block.read_block()
            found.setdefault(
                name, bytes(item.data[item.position : item.end]) if with_item else None
            )
        elif name is None:
            raise WireError("expected the name of a field, got a value", block.position)
        else:
            block.skip_value()
    return found


def _check_number(name: str, number: int) -> None:
    max_ = NUMBER_MAX if name in ("index", "gen") else _ID_MASK
    if not 0 <= number <= max_:
        raise WireError(f"expected a number from 0 to {max_} in the field {name!r}, got {number}")


def id_in(data: memoryview | bytes) -> int:
    """The id in a record that cannot be read; -1 where there is none to be found."""
    with suppress(WireError):
        reader = Reader(data)
        reader.read_name()
        return reader.read_block().read_fields()["id"].read_int()
    return -1


def correlation_id(name: str) -> int:
    """The number of the storage with this name: the first 8 bytes of the SHA-256 of its UTF-8, as a
    big-endian number without its sign; the same on each host, in each program and language."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") & _ID_MASK


def check_storage_name(name: str) -> None:
    """Raises:
    ValueError: it is empty, too long, or has control characters.
    """
    if not 0 < len(name) <= NAME_MAX:
        raise ValueError(f"expected a name of 1 to {NAME_MAX} characters, got {len(name)}")
    if not name.isprintable():
        raise ValueError(f"expected a name without control characters, got {name!r}")
