"""The grammar of values that live in place: aligned in their file, and updated there.

Alignment counts from the start of the file, so these build where they stand in the stream: use them
inside `nested` blocks and `wire.grammar.file_document`, not inside construct's own `Prefixed`.
`wire.grammar` is the entry and lists all parts of the grammar.
"""

import struct

from construct import (
    Construct,
    Container,
    FocusedSeq,
    Int32sl,
    Int32ul,
    Int64sl,
    Prefixed,
    Struct,
    Terminated,
    stream_seek,
    stream_tell,
    stream_write,
)

from wire.codes import Code
from wire.grammar.items import Fillers
from wire.grammar.parts import LongArray, tagged


class InPlace(Prefixed):  # type: ignore[misc]  # construct has no types
    """`Prefixed` that builds where it stands, so that what is inside knows its file position."""

    def _build(self, obj: object, stream: object, context: object, path: str) -> object:
        word = stream_tell(stream, path)
        size = self.lengthfield.sizeof()
        stream_write(stream, bytes(size), size, path)
        start = stream_tell(stream, path)
        built = self.subcon._build(obj, stream, context, path)
        end = stream_tell(stream, path)
        stream_seek(stream, word, 0, path)
        self.lengthfield._build(end - start, stream, context, path)
        stream_seek(stream, end, 0, path)
        return built


class Align(Construct):  # type: ignore[misc]  # construct has no types
    """Filler, so that the byte `ahead` bytes on stands at a multiple of `alignment` in the file.

    Builds positions from 0, or from the keyword `origin` of `build`.
    """

    def __init__(self, alignment: int, ahead: int) -> None:
        super().__init__()
        self.flagbuildnone = True
        self.alignment = alignment
        self.ahead = ahead

    def _parse(self, stream: object, context: object, path: str) -> None:
        Fillers._parse(stream, context, path)

    def _build(self, obj: object, stream: object, context: Container, path: str) -> None:
        position = stream_tell(stream, path) + context._params.get("origin", 0)
        filler = padding(-(position + self.ahead) % self.alignment)
        stream_write(stream, filler, len(filler), path)


def padding(length: int) -> bytes:
    """So many bytes that readers skip: up to four single ones, else one item with a length."""
    if length <= 4:
        return bytes([Code.PADDING]) * length
    return struct.pack("<BI", Code.PADDING32, length - 5) + bytes(length - 5)


def nested(*parts: Construct) -> Construct:
    """A nested block whose content knows its place in the file."""
    return tagged(Code.BYTES_LENGTH32, InPlace(Int32ul, Struct(*parts, Fillers, Terminated)))


def _bound(alignment: int, value: Construct) -> Construct:
    """A value whose second byte is aligned: its code stands before."""
    return FocusedSeq("value", Align(alignment, 1), "value" / value)


BoundInt = _bound(4, tagged(Code.INT32, Int32sl))
BoundLong = _bound(8, tagged(Code.INT64, Int64sl))
BoundArray = _bound(8, tagged(Code.I64_ARRAY, LongArray))
BoundPair = _bound(16, tagged(Code.I64_ARRAY, LongArray))  # capacity 2, used 2
