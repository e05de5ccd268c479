"""Every message of the protocol: dataclass on one side, wire document on the other.

The only home of wire field names. Set-up messages are written in one of two shapes, and both are
read; all other messages have one.

    shape          network                          seed
    known from     Java's public classes            the protocol's overview
    UberHandler    meta-data: handler               data: handler; its body names a cluster
    sub-handlers   one meta-data document:          two documents: meta-data csp, cid; then handler,
                   csp, cid, handler                as data for replication, else as meta-data
    names          event names; the UberHandler's   field names
                   is a field name

A message is known by the first name of its document. In a handler's body fields are found by name,
in any order; unknown ones are skipped, so that later versions can add some.
"""

import struct
from array import array
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cqrepl.queue.format.excerptbatch import ExcerptBatch
from wire import Reader, Writer
from wire.aliases import NETWORK_CLUSTER, NETWORK_HANDLERS, short_name
from wire.codes import BLOCK_LENGTH, Code
from wire.errors import WireError
from wire.header import HEADER_BYTES
from wire.writer import encode_int

CSP: Final = "csp"
CID: Final = "cid"
HANDLER: Final = "handler"
EVENT: Final = "re"
ACKNOWLEDGED: Final = "idx"
NANOS: Final = "ns"
END_OF_STREAM: Final = "eos"
HEARTBEAT: Final = "heartbeat"
WIRE_TYPES: Final = frozenset({"BINARY_LIGHT", "BINARY"})
SINK_HANDLER: Final = "SinkReplicationHandler"
SOURCE_HANDLER: Final = "SourceReplicationHandler"
HEARTBEAT_CSP: Final = "/"
EXTENSION_VERSION: Final = 1
_SEED_CLUSTER: Final = "global"
_ACKNOWLEDGEMENT: Final = struct.Struct("<I4sBq3s")  # header, name, code, index, name


class WireShape(Enum):
    """How set-up messages are laid out in documents."""

    NETWORK = "network"
    SEED = "seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UberHandler:
    """First message of each side. Ids are as the receiver sees them: `remote_id` is the
    sender's."""

    remote_id: int
    local_id: int
    wire_type: str = "BINARY_LIGHT"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatHandler:
    """Registers heartbeats; the dialler's numbers rule both sides."""

    timeout_ms: int
    interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShape:
    """Extension between cqrepl peers: what a queue must be like to hold the same indexes."""

    roll_cycle: str
    epoch: int
    index_count: int
    index_spacing: int

    def __str__(self) -> str:
        return (
            f"{self.roll_cycle}, epoch {self.epoch}, index {self.index_count}/{self.index_spacing}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationHandler:
    """SinkReplicationHandler (sent by the source) or SourceReplicationHandler (the sink's answer).

    `next_index` is the first index that the sender does not have; 0 says that it has none.
    """

    kind: str
    queue_name: str
    acknowledgement: bool
    next_index: int
    source_id: int
    shape: QueueShape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatorHandler:
    """The last message of a side that ends in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownHandler:
    """A handler whose type is not in the closed table, or whose body cannot be used."""

    problem: str


Handler = UberHandler | HeartbeatHandler | ReplicationHandler | TerminatorHandler | UnknownHandler


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What a meta-data document says: whom the following documents are for, and who that is."""

    csp: str | None
    cid: int | None
    handler: Handler | None


def write_uber(handler: UberHandler, shape: WireShape) -> bytes:
    """The UberHandler's document."""
    seed = shape is WireShape.SEED
    writer = Writer()
    with writer.document(metadata=not seed):
        writer.name(HANDLER)
        _write_uber_body(writer, handler, _SEED_CLUSTER if seed else None)
    return bytes(writer.data)


def write_registration(csp: str, cid: int, handler: Handler, shape: WireShape) -> bytes:
    """The document or documents that register a sub-handler at the peer."""
    writer = Writer()
    if shape is WireShape.NETWORK:
        with writer.document(metadata=True):
            writer.event(CSP)
            writer.text(csp)
            writer.event(CID)
            writer.integer(cid)
            writer.event(HANDLER)
            _write_handler(writer, handler)
        return bytes(writer.data)
    with writer.document(metadata=True):
        writer.name(CSP)
        writer.text(csp)
        writer.name(CID)
        writer.integer(cid)
    # the overview prints the heartbeat's handler as meta-data and the replication ones as data
    with writer.document(metadata=not isinstance(handler, ReplicationHandler)):
        writer.name(HANDLER)
        _write_handler(writer, handler)
    return bytes(writer.data)


def write_cid(cid: int) -> bytes:
    """The meta-data document that selects the handler for what follows."""
    writer = Writer()
    with writer.document(metadata=True):
        writer.name(CID)
        writer.integer(cid)
    return bytes(writer.data)


def write_heartbeat() -> bytes:
    """A heartbeat, without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(HEARTBEAT)
        writer.text("")
    return bytes(writer.data)


def write_end_of_stream() -> bytes:
    """The end of the back copy, without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(END_OF_STREAM)
        writer.null()
    return bytes(writer.data)


def write_acknowledgement(index: int, ns: int) -> bytes:
    """An acknowledgement up to `index`, without its cid document; `ns` is echoed.

    Packed in one step, as there is one for each batch that a sink takes.
    """
    nanos = encode_int(ns)
    length = _ACKNOWLEDGEMENT.size - HEADER_BYTES + len(nanos)
    return _ACKNOWLEDGEMENT.pack(length, b"\xc3idx", Code.INT64_0X, index, b"\xc2ns") + nanos


def write_replication_event(index: int, payload: bytes, ns: int) -> bytes:
    """One excerpt, without its cid document. The data path frames runs of them in the kernel."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(EVENT)
        with writer.block():
            writer.hex_int(index)
            writer.bytes_literal(payload)
            writer.integer(ns)
    return bytes(writer.data)


def ns_item(ns: int) -> bytes:
    """The nano time as it stands at the end of a replication event."""
    return encode_int(ns)


def read_routing(reader: Reader) -> Routing:
    """A meta-data document; also a data document that holds a handler, as the overview prints them.

    Raises:
        WireError: the bytes are not fields with the values that these names have.
    """
    fields = reader.read_fields()
    handler = fields.get(HANDLER)
    return Routing(
        csp=fields[CSP].read_text() if CSP in fields else None,
        cid=fields[CID].read_int() if CID in fields else None,
        handler=None if handler is None else _read_handler(handler),
    )


def read_acknowledgement(reader: Reader) -> tuple[int, int]:
    """Index and nano time of an acknowledgement whose first name was read; a missing time is 0."""
    index = reader.read_int()
    fields = reader.read_fields()
    return index, fields[NANOS].read_int() if NANOS in fields else 0


def read_replication_event(reader: Reader) -> tuple[ExcerptBatch, int]:
    """Excerpt and nano time of an event whose name was read, in any of the forms that occur.

    The usual form is a block of three values; a type prefix may stand before it, the values may
    also follow the name directly, and the nano time may be missing (then 0).
    """
    reader.read_type()
    code = reader.peek_code()
    values = reader.read_block() if code in BLOCK_LENGTH else reader
    index = values.read_int()
    payload = values.read_block()
    ns = 0 if values.peek_code() is None else values.read_int()
    offsets, lengths = array("q", [payload.position]), array("q", [payload.end - payload.position])
    return ExcerptBatch(index, memoryview(reader.data), offsets, lengths), ns


def _write_handler(writer: Writer, handler: Handler) -> None:
    if isinstance(handler, HeartbeatHandler):
        writer.type_prefix(NETWORK_HANDLERS + "HeartbeatHandler")
        with writer.block():
            writer.name("heartbeatTimeoutMs")
            writer.integer(handler.timeout_ms)
            writer.name("heartbeatIntervalMs")
            writer.integer(handler.interval_ms)
    elif isinstance(handler, TerminatorHandler):
        writer.type_prefix(NETWORK_CLUSTER + "TerminatorHandler")
        with writer.block():
            pass
    else:
        assert isinstance(handler, ReplicationHandler)
        writer.type_prefix(handler.kind)
        with writer.block():
            _write_replication_body(writer, handler)


def _write_uber_body(writer: Writer, handler: UberHandler, cluster: str | None) -> None:
    writer.type_prefix(NETWORK_HANDLERS + "UberHandler")
    with writer.block():
        writer.name("remoteIdentifier")
        writer.integer(handler.remote_id)
        writer.name("localIdentifier")
        writer.integer(handler.local_id)
        writer.name("wireType")
        writer.type_prefix("WireType")
        writer.text(handler.wire_type)
        if cluster is not None:
            writer.name("clusterName")
            writer.text(cluster)


def _write_replication_body(writer: Writer, handler: ReplicationHandler) -> None:
    writer.name("queueName")
    writer.text(handler.queue_name)
    writer.name("wireType")
    writer.text("BINARY_LIGHT")
    writer.name("acknowledgement")
    writer.boolean(handler.acknowledgement)
    writer.name("nextIndexRequired")
    writer.hex_int(handler.next_index)
    writer.name("sourceId")
    writer.integer(handler.source_id)
    if handler.shape is not None:
        writer.name("cqrepl")
        with writer.block():
            writer.name("v")
            writer.integer(EXTENSION_VERSION)
            writer.name("rollCycle")
            writer.text(handler.shape.roll_cycle)
            writer.name("epoch")
            writer.integer(handler.shape.epoch)
            writer.name("indexCount")
            writer.integer(handler.shape.index_count)
            writer.name("indexSpacing")
            writer.integer(handler.shape.index_spacing)


def _read_handler(reader: Reader) -> Handler:
    type_name = reader.read_type()
    if type_name is None:
        return UnknownHandler(problem="a handler without a type")
    kind = short_name(type_name)
    read = _READ_BODY.get(kind or "")
    if kind is None or read is None:
        return UnknownHandler(problem=f"unknown handler {type_name[:100]!r}")
    if reader.peek_code() not in BLOCK_LENGTH:
        return UnknownHandler(problem=f"a {kind} without a body")
    return read(kind, reader.read_block().read_fields())


def _read_uber(kind: str, fields: dict[str, Reader]) -> Handler:
    if "remoteIdentifier" not in fields or "localIdentifier" not in fields:
        return UnknownHandler(problem=f"a {kind} without its identifiers")
    return UberHandler(
        remote_id=fields["remoteIdentifier"].read_int(),
        local_id=fields["localIdentifier"].read_int(),
        wire_type=_read_wire_type(fields) or "BINARY_LIGHT",
    )


def _read_wire_type(fields: dict[str, Reader]) -> str | None:
    reader = fields.get("wireType")
    if reader is None:
        return None
    reader.read_type()  # !WireType in the UberHandler, a plain text elsewhere
    return reader.read_text()


def _read_heartbeat(_kind: str, fields: dict[str, Reader]) -> Handler:
    def number(name: str) -> int:
        return fields[name].read_int() if name in fields else 0

    return HeartbeatHandler(
        timeout_ms=number("heartbeatTimeoutMs"), interval_ms=number("heartbeatIntervalMs")
    )


def _read_replication(kind: str, fields: dict[str, Reader]) -> Handler:
    name = fields["queueName"].read_text() if "queueName" in fields else None
    if name is None:
        return UnknownHandler(problem=f"a {kind} without a queue name")
    wire_type = _read_wire_type(fields)
    if wire_type is not None and wire_type not in WIRE_TYPES:
        return UnknownHandler(problem=f"a {kind} with wire type {wire_type[:40]!r}")
    acknowledgement = fields.get("acknowledgement")
    return ReplicationHandler(
        kind=kind,
        queue_name=name,
        acknowledgement=_read_optional_bool(acknowledgement),
        next_index=fields["nextIndexRequired"].read_int() if "nextIndexRequired" in fields else 0,
        source_id=fields["sourceId"].read_int() if "sourceId" in fields else 0,
        shape=_read_shape(fields["cqrepl"]) if "cqrepl" in fields else None,
    )


def _read_optional_bool(reader: Reader | None) -> bool:
    return reader is not None and reader.peek_code() != Code.NULL and reader.read_bool()


def _read_shape(reader: Reader) -> QueueShape | None:
    fields = reader.read_block().read_fields()
    missing = {"rollCycle", "epoch", "indexCount", "indexSpacing"} - fields.keys()
    roll_cycle = None if missing else fields["rollCycle"].read_text()
    if roll_cycle is None:
        raise WireError("a cqrepl block with roll cycle, epoch and index numbers expected")
    return QueueShape(
        roll_cycle=roll_cycle,
        epoch=fields["epoch"].read_int(),
        index_count=fields["indexCount"].read_int(),
        index_spacing=fields["indexSpacing"].read_int(),
    )


def _read_terminator(_kind: str, _fields: dict[str, Reader]) -> Handler:
    return TerminatorHandler()


_READ_BODY: Final = {
    "UberHandler": _read_uber,
    "HeartbeatHandler": _read_heartbeat,
    SINK_HANDLER: _read_replication,
    SOURCE_HANDLER: _read_replication,
    "TerminatorHandler": _read_terminator,
}
