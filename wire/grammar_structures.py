"""The messages of the replication protocol and the headers of queue files, by name.

Built from the parts in `wire.grammar`, and like it a specification: slow, and on no data path.
Fields stand in the order in which they are written; the program's own readers take them in any
order. A body is padded and aligned only in files.
"""

import struct
from typing import Final

from construct import (
    Construct,
    Container,
    ExprAdapter,
    ExprValidator,
    FocusedSeq,
    GreedyRange,
    Int32ul,
    Int64sl,
    Optional,
    Prefixed,
    Struct,
    Switch,
    Terminated,
    stream_seek,
    stream_tell,
    stream_write,
)

from wire.aliases import short_name
from wire.codes import Code
from wire.grammar import (
    REST_OF_FOUR,
    Bool,
    EventName,
    Fillers,
    Header,
    Index,
    LongArray,
    LongText,
    Null,
    Number,
    Payload,
    Text,
    TypeName,
    block,
    event,
    field,
    require,
    tagged,
    typed,
)


def _length_word(metadata: bool) -> Construct:
    def decode(header: Container, _: object) -> int:
        require(not header.not_complete, "the document is complete")
        require(header.metadata == metadata, f"meta-data is {metadata}")
        require(metadata or header.length > 0, "a data document is not empty")
        return int(header.length)

    def encode(length: int, _: object) -> dict[str, object]:
        return {"metadata": metadata, "length": length}

    return ExprAdapter(Header, decode, encode)


def meta_data(*fields: Construct) -> Construct:
    """A meta-data document with these fields."""
    return Prefixed(_length_word(metadata=True), Struct(*fields, Fillers, Terminated))


def data(*fields: Construct) -> Construct:
    """A data document with these fields."""
    return Prefixed(_length_word(metadata=False), Struct(*fields, Fillers, Terminated))


# ---- messages ------------------------------------------------------------------------------------

UberBody = Struct(
    "remoteIdentifier" / field("remoteIdentifier", Number),  # the sender
    "localIdentifier" / field("localIdentifier", Number),  # who receives this
    "wireType" / field("wireType", typed("WireType", Text)),
    "clusterName" / Optional(field("clusterName", Text)),
)
HeartbeatBody = Struct(
    "heartbeatTimeoutMs" / field("heartbeatTimeoutMs", Number),
    "heartbeatIntervalMs" / field("heartbeatIntervalMs", Number),
)
# between peers of this program: what the queue must be like to hold the same indexes
ExtensionBody = Struct(
    "v" / field("v", Number),
    "rollCycle" / field("rollCycle", Text),
    "epoch" / field("epoch", Number),
    "indexCount" / field("indexCount", Number),
    "indexSpacing" / field("indexSpacing", Number),
)
ReplicationBody = Struct(
    "queueName" / field("queueName", Text),
    "wireType" / field("wireType", Text),
    "acknowledgement" / field("acknowledgement", Bool),
    "nextIndexRequired" / field("nextIndexRequired", Index),
    "sourceId" / field("sourceId", Number),
    "cqrepl" / Optional(field("cqrepl", block(ExtensionBody))),
)
HANDLER_BODIES: Final = {
    "UberHandler": UberBody,
    "HeartbeatHandler": HeartbeatBody,
    "SinkReplicationHandler": ReplicationBody,
    "SourceReplicationHandler": ReplicationBody,
    "TerminatorHandler": Struct(),
}
# the type is an alias or a full Java name
Handler = Struct(
    "type" / ExprValidator(TypeName, lambda name, _: short_name(name) in HANDLER_BODIES),
    "body"
    / Switch(
        lambda this: short_name(this.type),
        {
            kind: block(FocusedSeq("body", "body" / body, Terminated))
            for kind, body in HANDLER_BODIES.items()
        },
    ),
)

# set-up, as Java's public classes have it
UberHandler = meta_data("handler" / field("handler", Handler))
Registration = meta_data(
    "csp" / event("csp", Text), "cid" / event("cid", Number), "handler" / event("handler", Handler)
)
# set-up, as the overview of the protocol prints it; the handler follows in a document of its own
SeedRouting = meta_data("csp" / field("csp", Text), "cid" / field("cid", Number))
SeedDataHandler = data("handler" / field("handler", Handler))
SeedMetaHandler = meta_data("handler" / field("handler", Handler))

# each of these comes behind a SelectHandler
SelectHandler = meta_data("cid" / field("cid", Number))
Heartbeat = data("heartbeat" / field("heartbeat", Text))
EndOfStream = data("eos" / field("eos", Null))
Acknowledgement = data("idx" / field("idx", Index), "ns" / field("ns", Number))
ReplicationEvent = data(
    "re"
    / field("re", block(Struct("index" / Index, "payload" / Payload, "ns" / Number, Terminated)))
)

# ---- files ---------------------------------------------------------------------------------------


class InPlace(Prefixed):  # type: ignore[misc]  # construct has no types
    """`Prefixed` that builds where it stands, so that what is inside knows its file position."""

    def _build(self, obj: object, stream: object, context: object, path: str) -> object:
        word = stream_tell(stream, path)
        self.lengthfield._build(0, stream, context, path)
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
        length = -(position + self.ahead) % self.alignment
        filler = bytes([Code.PADDING]) * length
        if length > 4:
            filler = struct.pack("<BI", Code.PADDING32, length - 5) + bytes(length - 5)
        stream_write(stream, filler, length, path)


def _nested(*fields: Construct) -> Construct:
    return tagged(Code.BYTES_LENGTH32, InPlace(Int32ul, Struct(*fields, Fillers, Terminated)))


def _file_document(metadata: bool, *fields: Construct) -> Construct:
    return InPlace(_length_word(metadata), Struct(*fields, Fillers, Terminated))


def _bound(alignment: int, value: Construct) -> Construct:
    """A value that is updated in place."""
    return FocusedSeq("value", Align(alignment, 1), "value" / value)


BoundLong = _bound(8, tagged(Code.INT64, Int64sl))
BoundArray = _bound(8, tagged(Code.I64_ARRAY, LongArray))
BoundPair = _bound(16, tagged(Code.I64_ARRAY, LongArray))  # capacity 2, used 2

IndexingBody = _nested(
    "indexCount" / field("indexCount", Number),
    "indexSpacing" / field("indexSpacing", Number),
    "index2Index" / field("index2Index", BoundLong),
    "lastIndex" / field("lastIndex", BoundLong),
)
StoreBody = _nested(
    "writePosition" / field("writePosition", BoundPair),
    "indexing" / field("indexing", typed("SCQSIndexing", IndexingBody)),
    "dataFormat" / field("dataFormat", Number),
)
StoreHeader = _file_document(True, "store" / event("header", typed("SCQStore", StoreBody)))


def index_page(name: str) -> Construct:
    """A meta-data document that holds an array of file positions."""
    return _file_document(True, "positions" / event(name, BoundArray))


# a new store file up to its first excerpt; further pages `index` stand among the excerpts
StoreFile = Struct(
    "header" / StoreHeader,
    REST_OF_FOUR,
    "index2index" / index_page("index2index"),
    REST_OF_FOUR,
    "index" / index_page("index"),
)

RollBody = _nested(
    "length" / field("length", Number),
    "format" / field("format", Text),
    "epoch" / field("epoch", Number),
    "rollTime" / Optional(field("rollTime", tagged(Code.TIME, LongText))),
    "rollTimeZone" / Optional(field("rollTimeZone", Text)),
)
MetadataBody = _nested(
    "roll" / field("roll", typed("SCQSRoll", RollBody)),
    "deltaCheckpointInterval" / Optional(field("deltaCheckpointInterval", Number)),
    "sourceId" / field("sourceId", Number),
)
TableBody = _nested(
    "wireType" / field("wireType", typed("WireType", Text)),
    "metadata" / field("metadata", typed("SCQMeta", MetadataBody)),
    Align(4, 0),  # inside the block: its length says so
)
TableHeader = _file_document(True, "store" / event("header", typed("STStore", TableBody)))
TableEntry = _file_document(False, "key" / EventName, "value" / BoundLong, Align(4, 0))
TableStore = Struct("header" / TableHeader, "entries" / GreedyRange(TableEntry))
