"""The binary wire as a grammar: what the bytes are, to read and to run.

This is the specification and the judge in tests: the reader, the writer and the splitter must agree
with it. It is slow, it explains nothing when bytes do not fit, and nothing on the data path uses
it. It covers the whole format; this module covers documents, each of the following one part:

    wire.grammar.parts       header word, stop-bit number, text, names, arrays
    wire.grammar.items       all 256 codes with their operands and no meaning: text is bytes, blocks
                             stay closed; values, fields, bodies
    wire.grammar.untyped     the same with blocks open and text decoded
    wire.grammar.numeric     numbers by any code that holds one; building takes the code that Java's
                             writer takes
    wire.grammar.requested      the same for all other values, and names
    wire.grammar.temporal       the text forms of dates and times
    wire.grammar.inplace    values that are aligned in their file
    wire.grammar.variantforms    fixed widths, numeric names, RAW
    wire.grammar.structures  the messages of replication and the headers of queue files, by name

A document, everywhere:

    header word      4 bytes, little-endian: bit 31 not complete, bit 30 meta-data, then the length
    body             so many bytes: items
    gap              in files: zeros up to a multiple of 4, where the next header stands

    00000000         nothing is here yet
    80000000         a place is reserved
    C0000000         no more documents in this file
    40000000         an empty meta-data document
"""

from construct import (
    BitsInteger,
    Bytes,
    Check,
    Const,
    Construct,
    Container,
    Default,
    ExprAdapter,
    FocusedSeq,
    GreedyBytes,
    GreedyRange,
    Int32ul,
    Padding,
    Prefixed,
    Rebuild,
    Struct,
    Tell,
    Terminated,
    len_,
    this,
)

from wire.grammar.inplace import Align, InPlace
from wire.grammar.items import Content, Field, Fields, Fillers, Name, Value, Values
from wire.grammar.numeric import Double, Index, Number, Single
from wire.grammar.parts import (
    Header,
    LongArray,
    LongText,
    StopBit,
    header_word,
    require,
    tagged,
)
from wire.grammar.requested import (
    Bool,
    ByteArray,
    EventName,
    FieldName,
    Null,
    Payload,
    Text,
    TextOrNull,
    TypeName,
    block,
    event,
    field,
    typed,
)
from wire.grammar.untyped import Body, Object

__all__ = [
    "REST_OF_FOUR",
    "Body",
    "Bool",
    "ByteArray",
    "Content",
    "Document",
    "Documents",
    "Double",
    "EndOfData",
    "EventName",
    "Field",
    "FieldName",
    "Fields",
    "Fillers",
    "Header",
    "Index",
    "LongArray",
    "LongText",
    "Name",
    "NotReady",
    "Null",
    "Number",
    "Object",
    "PaddedDocuments",
    "PaddedStates",
    "Payload",
    "Single",
    "State",
    "States",
    "StopBit",
    "Text",
    "TextOrNull",
    "TypeName",
    "Value",
    "Values",
    "block",
    "data",
    "event",
    "field",
    "file_document",
    "length_word",
    "meta_data",
    "require",
    "tagged",
    "typed",
]

NotReady = Const(0x80000000, Int32ul)
EndOfData = Const(0xC0000000, Int32ul)
# up to where a header may stand in a file
REST_OF_FOUR = Default(
    FocusedSeq("gap", "at" / Tell, "gap" / Padding(lambda this: -this.at % 4)), None
)

# ---- documents with any content ------------------------------------------------------------------

_Header = header_word(Rebuild(BitsInteger(30), len_(this._.body)))


def _is_something(this: Container) -> bool:
    """False for the word 0, which is also what an empty data document would have."""
    header = this.header
    return bool(header.not_complete or header.metadata or header.length)


# As it stands in memory, also half-written or reserved or as the end of a file: Java's plain reader
# and dump take every word but 0 for a document if what it announces is there.
State = Struct("header" / _Header, Check(_is_something), "body" / Bytes(this.header.length))
# as it may be on a socket, and as tailers of a queue see it
Document = Struct(
    "header" / _Header,
    Check(_is_something),
    Check(lambda this: not this.header.not_complete),
    "body" / Bytes(this.header.length),
)


def _run(document: Construct) -> Construct:
    return Struct("documents" / GreedyRange(document), "rest" / GreedyBytes)


def _padded(document: Construct) -> Construct:
    return FocusedSeq("document", REST_OF_FOUR, "document" / document)


# whole documents, and what follows them: nothing, zeros, an end-of-file word, half a document
Documents = _run(Document)
PaddedDocuments = _run(_padded(Document))
States = _run(State)
PaddedStates = _run(_padded(State))

# ---- documents with known content ----------------------------------------------------------------


def length_word(*, metadata: bool, is_complete: bool = True) -> Construct:
    """The header word of such a document, as its length."""

    def decode(header: Container, _: object) -> int:
        require(header.not_complete != is_complete, f"the document is complete: {is_complete}")
        require(header.metadata == metadata, f"the document is meta-data: {metadata}")
        return checked(int(header.length))

    def checked(length: int) -> int:
        require(metadata or not is_complete or length > 0, "a data document is not empty")
        return length

    def encode(length: int, _: object) -> dict[str, object]:
        checked(length)
        return {"not_complete": not is_complete, "metadata": metadata, "length": length}

    return ExprAdapter(Header, decode, encode)


def meta_data(*fields: Construct) -> Construct:
    """A meta-data document with these fields."""
    return Prefixed(length_word(metadata=True), Struct(*fields, Fillers, Terminated))


def data(*fields: Construct) -> Construct:
    """A data document with these fields."""
    return Prefixed(length_word(metadata=False), Struct(*fields, Fillers, Terminated))


def file_document(
    *parts: Construct, metadata: bool, is_complete: bool = True, is_padded: bool = False
) -> Construct:
    """A document that knows its place in a file; maybe padded inside to a multiple of 4."""
    content = (*parts, Align(4, 0)) if is_padded else parts
    word = length_word(metadata=metadata, is_complete=is_complete)
    return InPlace(word, Struct(*content, Fillers, Terminated))
