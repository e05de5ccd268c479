"""The messages of the replication protocol and the headers of queue files, by name.

Built from the parts in `wire.grammar`, and like it a specification: slow, and on no data path.
Fields stand in the order in which they are written; the program's own readers take them in any
order. A body is padded and aligned only in files.
"""

from typing import Final

from construct import (
    Bytes,
    Check,
    Computed,
    Const,
    Construct,
    Container,
    ExprAdapter,
    ExprValidator,
    FocusedSeq,
    GreedyBytes,
    GreedyRange,
    Int32sl,
    Int32ul,
    Int64sl,
    Optional,
    Prefixed,
    Rebuild,
    Select,
    Struct,
    Switch,
    Tell,
    Terminated,
    this,
)

from wire.aliases import short_name
from wire.codes import Code
from wire.grammar import (
    REST_OF_FOUR,
    Bool,
    EventName,
    Fillers,
    Index,
    Null,
    Number,
    Payload,
    Text,
    TypeName,
    block,
    data,
    event,
    field,
    file_document,
    length_word,
    meta_data,
    require,
    tagged,
    typed,
)
from wire.grammar.inplace import Align, BoundArray, BoundLong, BoundPair, nested
from wire.grammar.temporal import Time

# ---- messages ------------------------------------------------------------------------------------

UberBody = Struct(
    "remoteIdentifier" / field("remoteIdentifier", Number),  # the sender
    "localIdentifier" / field("localIdentifier", Number),  # the receiver
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
# between peers that announced them: what is on the sink's disk, or its program has taken, in the
# form of an acknowledgement, and why no more is; and what the source wants to know at once
KeptBack = Optional(field("why", Text))
Synced = data("syn" / field("syn", Index), "ns" / field("ns", Number), "why" / KeptBack)
Applied = data("apl" / field("apl", Index), "ns" / field("ns", Number), "why" / KeptBack)
Committed = data("cmt" / field("cmt", Index), "ns" / field("ns", Number))
LevelWanted = data("level" / field("level", Text))
# and where a named tailer of the source stands
TailerBody = Struct(
    "name" / field("name", Text),
    "index" / field("index", Index),
    "version" / Optional(field("version", Number)),
)
TailerMoved = data("tailer" / field("tailer", block(TailerBody)))
# written in a block; a reader takes them also behind a type, or directly behind the name
_EVENT = Struct("index" / Index, "payload" / Payload, "ns" / Optional(Number), Fillers)
_IN_BLOCK = block(FocusedSeq("event", "event" / _EVENT, Terminated))
_BEHIND_TYPE = FocusedSeq("event", "type" / TypeName, "event" / _IN_BLOCK)
ReplicationEvent = data("re" / field("re", Select(_IN_BLOCK, _BEHIND_TYPE, _EVENT)))


# ---- runs ----------------------------------------------------------------------------------------

RUN_EXCERPTS: Final = range(2, 16_384 + 1)
RUN_BYTES: Final = range(1024 * 1024 + 1)


def _checked_run(run: Container, _: object) -> Container:
    require(run.count == len(run.excerpts) in RUN_EXCERPTS, "a run says how many excerpts it has")
    return run


# each behind a gap of zeros, up to where a header may stand; the first one has none
_LAID_EXCERPT = FocusedSeq(
    "payload",
    "at" / Tell,
    "size" / Computed(lambda this: (this._.start - this.at) % 4),
    "gap" / Rebuild(Bytes(this.size), lambda this: bytes(this.size)),
    Check(lambda this: not any(this.gap)),
    "payload" / Prefixed(length_word(metadata=False), GreedyBytes),
)
_LAID = FocusedSeq("excerpts", "start" / Tell, "excerpts" / GreedyRange(_LAID_EXCERPT), Terminated)
_RUN = Struct(
    "index" / tagged(Code.INT64_0X, Int64sl),
    "count" / tagged(Code.INT32, Int32sl),
    "ns" / tagged(Code.INT64, Int64sl),
    "excerpts"
    / tagged(
        Code.BYTES_LENGTH32, Prefixed(ExprValidator(Int32ul, lambda n, _: n in RUN_BYTES), _LAID)
    ),
    Terminated,
)
# excerpts with the bytes of the store file as they stand; the numbers have these widths alone
Run = Prefixed(
    length_word(metadata=False),
    FocusedSeq(
        "run",
        Const(bytes([Code.FIELD_NAME0 + 3]) + b"run"),
        "run"
        / tagged(
            Code.BYTES_LENGTH32,
            Prefixed(Int32ul, ExprAdapter(_RUN, _checked_run, _checked_run)),
        ),
        Terminated,
    ),
)

# ---- files ---------------------------------------------------------------------------------------


IndexingBody = nested(
    "indexCount" / field("indexCount", Number),
    "indexSpacing" / field("indexSpacing", Number),
    "index2Index" / field("index2Index", BoundLong),
    "lastIndex" / field("lastIndex", BoundLong),
)
StoreBody = nested(
    "writePosition" / field("writePosition", BoundPair),
    "indexing" / field("indexing", typed("SCQSIndexing", IndexingBody)),
    "dataFormat" / Optional(field("dataFormat", Number)),  # old versions have none
)
StoreHeader = file_document("store" / event("header", typed("SCQStore", StoreBody)), metadata=True)


def index_page(name: str) -> Construct:
    """A meta-data document that holds an array of file positions."""
    return file_document("positions" / event(name, BoundArray), metadata=True)


# a new store file up to its first excerpt; further pages `index` stand among the excerpts
StoreFile = Struct(
    "header" / StoreHeader,
    REST_OF_FOUR,
    "index2index" / index_page("index2index"),
    REST_OF_FOUR,
    "index" / index_page("index"),
)

RollBody = nested(
    "length" / field("length", Number),
    "format" / field("format", Text),
    "epoch" / field("epoch", Number),
    "rollTime" / Optional(field("rollTime", Time)),
    "rollTimeZone" / Optional(field("rollTimeZone", Text)),
)
MetadataBody = nested(
    "roll" / field("roll", typed("SCQSRoll", RollBody)),
    "deltaCheckpointInterval" / Optional(field("deltaCheckpointInterval", Number)),
    "sourceId" / field("sourceId", Number),
)
TableBody = nested(
    "wireType" / field("wireType", typed("WireType", Text)),
    "metadata" / field("metadata", typed("SCQMeta", MetadataBody)),
    Align(4, 0),  # inside the block: its length says so
)
TableHeader = file_document("store" / event("header", typed("STStore", TableBody)), metadata=True)
TableEntry = file_document("key" / EventName, "value" / BoundLong, metadata=False, is_padded=True)
TableStore = Struct("header" / TableHeader, "entries" / GreedyRange(TableEntry))
