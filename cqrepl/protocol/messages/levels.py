"""The messages about levels beyond the acknowledgement: what a sink has reached, and what its
source wants to know.

Each message stands behind the cid of its queue, and goes only to a peer that has announced it.
"""

import struct
from typing import Final

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.messages.excerpts import STOP_TEXT_MAX
from cqrepl.protocol.messages.names import APPLIED, COMMITTED, LEVEL, NANOS, SYNCED, WHY
from wire import Reader, Writer
from wire.codes import Code
from wire.header import HEADER_BYTES

# as an acknowledgement: header, name, code, index, name, code, nano time
_MARK: Final = struct.Struct("<I4sBq3sBq")
_NO_TIME: Final = 0  # it answers no message of its own
LEVEL_OF: Final = {SYNCED: AckLevel.SYNCED, APPLIED: AckLevel.APPLIED}  # by the document's name
_NAME_OF: Final = {level: name for name, level in LEVEL_OF.items()}
_WORD_OF: Final = {level.name.lower(): level for level in LEVEL_OF.values()}


def write_level(level: AckLevel, index: int) -> bytes:
    """The word that up to `index` a level beyond appended is true here; 25 bytes and a header."""
    return _write_mark(_NAME_OF[level], index)


def write_kept_back(level: AckLevel, index: int, why: str) -> bytes:
    """The same, with the reason that the level is true of no more. An empty text says that nothing
    keeps it back any more. A peer that does not know that field reads the level alone."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(_NAME_OF[level])
        writer.hex_int(index)
        writer.name(NANOS)
        writer.integer(_NO_TIME)
        writer.name(WHY)
        writer.text(why[:STOP_TEXT_MAX])
    return bytes(writer.data)


def read_level(reader: Reader) -> tuple[int, str | None]:
    """The index up to which a level is true, and why it is true of no more; None where the document
    has no reason. The name of the level was read."""
    index = reader.read_int()
    fields = reader.read_fields()
    return index, (fields[WHY].read_text() or "")[:STOP_TEXT_MAX] if WHY in fields else None


def write_committed(index: int) -> bytes:
    """The word that up to `index` the source's policy calls the queue safe; in the same form."""
    return _write_mark(COMMITTED, index)


def _write_mark(name: str, index: int) -> bytes:
    length, field = _MARK.size - HEADER_BYTES, b"\xc3" + name.encode()
    return _MARK.pack(length, field, Code.INT64_0X, index, b"\xc2ns", Code.INT64, _NO_TIME)


def write_wanted(level: AckLevel) -> bytes:
    """From now on the source waits for this level."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(LEVEL)
        writer.text(level.name.lower())
    return bytes(writer.data)


def read_wanted(reader: Reader) -> AckLevel | None:
    """The level in such a document, whose name was read; None for one that is not known here."""
    return _WORD_OF.get(reader.read_text() or "")
