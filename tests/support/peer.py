"""A scripted peer: documents as good, odd and hostile peers send them, and what our side answers.

Documents are built with the wire writer and decoded with the wire reader, never with the core's own
`messages`, so that a wrong field name in the core cannot hide in its tests.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from enum import Enum
from typing import Any

import pytest

from cqrepl.protocol import (
    Connection,
    ConnectionConfig,
    HeartbeatSettings,
    ProtocolSettings,
    RemoteProtocolError,
)
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.states import ConnectionState
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import Cycle, Index, Sequence, index_of
from wire import Reader, Splitter, Writer
from wire.codes import BLOCK_LENGTH, Code

Message = dict[str, Any]

HANDLERS = "net.openhft.chronicle.network.cluster.handlers."
REPLICATION = "software.chronicle.enterprise.queue.replication."
TERMINATOR = "net.openhft.chronicle.network.cluster.TerminatorHandler"
SOURCE_ID, SINK_ID = 1, 2
HEARTBEAT_CID = Cid(77)
CID = Cid(901)
NAME = "q"
CSP = f"/replication/{NAME}/{SINK_ID}"
SHIFT = 32
CYCLE = 0x512A
NS = (1 << 55) + 1  # no value that Java writes as a float
SHAPE_FIELDS: Message = {
    "v": 1,
    "rollCycle": "FAST_DAILY",
    "epoch": 0,
    "indexCount": 4096,
    "indexSpacing": 256,
}


def index(sequence: int, cycles: int = 0) -> Index:
    """Index of an excerpt in the tests' first cycle, or some cycles later."""
    return index_of(Cycle(CYCLE + cycles), Sequence(sequence), SHIFT)


def batch(first: int, *payloads: bytes) -> ExcerptBatch:
    return ExcerptBatch.of(first, payloads)


# documents to send


class Typed:
    """A value behind a type prefix; `body` None leaves the value out."""

    def __init__(self, name: str, body: object) -> None:
        self.name = name
        self.body = body


class Hex(int):
    """A number under the code AF."""


def write_value(writer: Writer, value: object) -> None:
    match value:
        case Typed():
            writer.type_prefix(value.name)
            if value.body is not None:
                write_value(writer, value.body)
        case None:
            writer.null()
        case bool():
            writer.boolean(value)
        case Hex():
            writer.hex_int(value)
        case int():
            writer.integer(value)
        case str():
            writer.text(value)
        case bytes():
            writer.data += value  # items as they are
        case dict():
            with writer.block():
                for name, each in value.items():
                    writer.name(name)
                    write_value(writer, each)
        case list():
            with writer.block():
                for each in value:
                    write_value(writer, each)
        case _:
            raise AssertionError(value)


def document(fields: Message | bytes, *, metadata: bool, events: bool = False) -> bytes:
    """A document with these fields, or with this body; `events` names them as event names."""
    writer = Writer()
    with writer.document(metadata=metadata):
        if isinstance(fields, bytes):
            writer.data += fields
        else:
            for name, value in fields.items():
                (writer.event if events else writer.name)(name)
                write_value(writer, value)
    return bytes(writer.data)


def meta(**fields: object) -> bytes:
    return document(fields, metadata=True)


def data(**fields: object) -> bytes:
    return document(fields, metadata=False)


def header(length: int, *, metadata: bool = False) -> bytes:
    """The four bytes that announce a body of `length` bytes."""
    return (length | (1 << 30 if metadata else 0)).to_bytes(4, "little")


def uber(remote_id: int, local_id: int, wire_type: object = None, **more: object) -> bytes:
    wire_type = Typed("WireType", "BINARY_LIGHT") if wire_type is None else wire_type
    body = {"remoteIdentifier": remote_id, "localIdentifier": local_id, "wireType": wire_type}
    return meta(handler=Typed(HANDLERS + "UberHandler", body | more))


def register(csp: str, cid: int, handler: object, **more: object) -> bytes:
    fields: Message = {"csp": csp, "cid": cid, "handler": handler}
    return document(fields | more, metadata=True, events=True)


def heartbeats(
    timeout_ms: int = 40_000, interval_ms: int = 20_000, cid: int = HEARTBEAT_CID, **more: object
) -> bytes:
    body = {"heartbeatTimeoutMs": timeout_ms, "heartbeatIntervalMs": interval_ms}
    return register("/", cid, Typed(HANDLERS + "HeartbeatHandler", body | more))


def replication_body(
    next_index: int = 0, *, name: object = NAME, acknowledgement: object = True, **more: object
) -> Message:
    body: Message = {
        "queueName": name,
        "wireType": "BINARY_LIGHT",
        "acknowledgement": acknowledgement,
        "nextIndexRequired": Hex(next_index),
        "sourceId": 1002,
    }
    return body | more


def sink_handler(next_index: int = 0, **more: Any) -> Typed:
    """The handler that a source registers on the sink."""
    return Typed("SinkReplicationHandler", replication_body(next_index, **more))


def source_handler(next_index: int = 0, **more: Any) -> Typed:
    """The handler that a sink registers on the source."""
    return Typed("SourceReplicationHandler", replication_body(next_index, **more))


def terminator(cid: int = 5000) -> bytes:
    return register("/", cid, Typed(TERMINATOR, {}))


def select(cid: int = CID) -> bytes:
    return meta(cid=cid)


def literal(payload: bytes) -> bytes:
    """Length and bytes of a payload, as one item."""
    writer = Writer()
    writer.bytes_literal(payload)
    return bytes(writer.data)


def items(*values: object) -> bytes:
    """Values one after the next, without names."""
    writer = Writer()
    for value in values:
        write_value(writer, value)
    return bytes(writer.data)


def block(content: bytes) -> bytes:
    """A nested block with a 32-bit length."""
    writer = Writer()
    with writer.block():
        writer.data += content
    return bytes(writer.data)


def excerpt(at: int, payload: bytes, ns: int = NS, cid: int = CID) -> bytes:
    """One replication event, cid document and all, in the usual form."""
    return select(cid) + data(re=block(items(Hex(at), literal(payload), ns)))


def excerpts(first: int, *payloads: bytes, cid: int = CID) -> bytes:
    return b"".join(excerpt(first + at, each, NS + at, cid) for at, each in enumerate(payloads))


def end_of_stream(cid: int = CID) -> bytes:
    return select(cid) + data(eos=None)


def acknowledgement(at: int, ns: int = NS, cid: int = CID) -> bytes:
    return select(cid) + data(idx=Hex(at), ns=ns)


def heartbeat(cid: int = HEARTBEAT_CID) -> bytes:
    return select(cid) + data(heartbeat="")


# what was said


def decoded(stream: bytes) -> list[Message]:
    """Documents as plain values, for all widths of numbers; `meta` marks meta-data."""
    splitter = Splitter(1 << 30)
    splitter.feed(stream)
    messages = []
    while (each := splitter.next_document()) is not None:
        message: Message = {"meta": True} if each.is_metadata else {}
        reader = Reader(each.body)
        while (name := reader.read_name()) is not None:
            if name == "run":
                message[name] = _run(reader)
            else:
                message[name] = _replicated(reader) if name == "re" else _value(reader)
        assert reader.peek_code() is None
        messages.append(message)
    assert not splitter.pending_bytes
    return messages


def _replicated(reader: Reader) -> tuple[int, bytes, int]:
    reader = reader.read_block()
    at, payload = reader.read_int(), reader.read_block()
    return at, bytes(payload.data[payload.position : payload.end]), reader.read_int()


def _run(reader: Reader) -> tuple[int, list[bytes], int]:
    values = reader.read_block()
    at, count, ns, run = *(values.read_int() for _ in range(3)), values.read_block()
    laid, payloads = bytes(run.data[run.position : run.end]), []
    while laid:
        length = int.from_bytes(laid[:4], "little")
        payloads.append(laid[4 : 4 + length])
        laid = laid[4 + length + -length % 4 :]
    assert len(payloads) == count
    return at, payloads, ns


def _value(reader: Reader) -> Any:
    kind = reader.read_type()
    if kind is not None:
        return (kind, _value(reader))
    code = reader.peek_code()
    assert code is not None
    if code in BLOCK_LENGTH:
        block = reader.read_block()
        first = block.peek_code()
        if first is not None and first >= Code.STRING0:  # texts, as in a list of names
            return list(iter(lambda: block.read_text() if block.peek_code() else None, None))
        return {name: _value(value) for name, value in block.read_fields().items()}
    if code == Code.NULL or code >= Code.STRING0 or code == Code.STRING_ANY:
        return reader.read_text()
    if code in (Code.TRUE, Code.FALSE):
        return reader.read_bool()
    return reader.read_int()


def unannounced(message: Message) -> Message:
    """The same without the `cqrepl` block of an UberHandler, as the seed and Java have it."""
    kind, body = message.get("handler", ("", {}))
    if not kind.endswith("UberHandler"):
        return message
    rest = {name: value for name, value in body.items() if name != "cqrepl"}
    return message | {"handler": (kind, rest)}


# our side


class Role(Enum):
    """The role that a side of a test has for the queue."""

    SOURCE = "source"
    SINK = "sink"


def connection_config(
    *,
    heartbeat_timeout_ms: int = 40_000,
    heartbeat_interval_ms: int | None = None,
    is_dialler: bool = False,
    **more: Any,
) -> ConnectionConfig:
    """The configuration of our side, from the keys of all nodes of its settings."""
    interval_ms = heartbeat_interval_ms or min(20_000, heartbeat_timeout_ms // 2)
    beat = HeartbeatSettings(timeout_ms=heartbeat_timeout_ms, interval_ms=interval_ms)
    names = {each.name for each in fields(ProtocolSettings)}
    own = {name: value for name, value in more.items() if name in names}
    rest = {name: value for name, value in more.items() if name not in names}
    settings = ProtocolSettings(heartbeat=beat, **own)
    return ConnectionConfig(settings=settings, is_dialler=is_dialler, **rest)


class Ours:
    """A connection of ours with its clock: documents in, events and messages out."""

    def __init__(self, role: Role, *, is_dialler: bool = False, **config: Any) -> None:
        self.now = 0.0
        source = role is Role.SOURCE
        other = SINK_ID if source else SOURCE_ID
        values: dict[str, Any] = {
            "is_dialler": is_dialler,
            "host_id": SOURCE_ID if source else SINK_ID,
            "remote_ids": frozenset({other}),
            "takes": frozenset() if source else frozenset({NAME}),
        }
        self.role = role
        self.config = connection_config(**(values | config))
        self.connection = Connection(self.config, self.now)

    def receive(self, *documents: bytes) -> list[ev.Event]:
        """Takes the bytes and gives every event, without acting on any."""
        self.connection.receive_data(b"".join(documents), self.now)
        return self.events()

    def events(self) -> list[ev.Event]:
        return list(iter(self.connection.next_event, None))

    def said(self) -> list[Message]:
        """The messages that our side has sent since the last call."""
        return decoded(self.connection.data_to_send())

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.connection.tick(self.now)

    def greeted(self, *more: bytes) -> "Ours":
        """With UberHandlers and heartbeats exchanged; nothing of it is left to be said."""
        settings = self.config.settings
        peer, mine = next(iter(settings.remote_ids), SOURCE_ID), settings.host_id
        beat = b"" if self.config.is_dialler else heartbeats()
        events = self.receive(uber(peer, mine), beat, *more)
        assert events[0] == ev.Connected(remote_id=peer)
        self.connection.data_to_send()
        return self

    def frame(self, cid: Cid, run: ExcerptBatch, start: int = 0, ns: int = NS) -> bytes:
        out, filled = bytearray(1 << 16), 0
        while start < len(run):
            framed, filled = self.connection.frame_excerpts(cid, run, start, ns, out, filled)
            assert framed is not None
            assert framed == run.part(start, start + len(framed))
            start += len(framed)
        return bytes(out[:filled])


def sink(**config: Any) -> Ours:
    return Ours(Role.SINK, **config).greeted()


def source(**config: Any) -> Ours:
    return Ours(Role.SOURCE, **config).greeted()


def receiving_sink(next_index: int = 0, offered: int = 0, **config: Any) -> Ours:
    """A sink that has `next_index`, answered, and copied back nothing."""
    ours = sink(**config)
    ours.receive(register(CSP, CID, sink_handler(offered)))
    ours.connection.answer_queue(CID, next_index, SHIFT, None)
    if next_index > offered:
        ours.events()
        ours.connection.end_back_copy(CID)
    ours.connection.data_to_send()
    return ours


def offering_source(next_index: int = 0, *, acknowledgement: bool = True, **config: Any) -> Ours:
    ours = source(cid_first=CID, **config)
    offer_queue(ours, next_index, acknowledgement=acknowledgement)
    ours.connection.data_to_send()
    return ours


def offer_queue(
    ours: Ours, next_index: int = 0, *, name: str = NAME, acknowledgement: bool = True
) -> int:
    return ours.connection.offer_queue(
        name, next_index, acknowledgement=acknowledgement, source_id=1002, shape=None
    )


def streaming_source(next_index: int = 0, wanted: int = 0, **more: Any) -> Ours:
    ours = offering_source(next_index, **more)
    ours.receive(register(CSP, CID, source_handler(wanted)), end_of_stream())
    return ours


def kinds(events: Iterable[ev.Event]) -> list[type]:
    return [type(event) for event in events]


def fed(ours: Ours, stream: bytes, sizes: Callable[[], int]) -> list[ev.Event]:
    """Feeds the bytes in pieces of these sizes."""
    events = []
    at = 0
    while at < len(stream):
        size = sizes()
        events += ours.receive(stream[at : at + size])
        at += size
    return events


def capable_sink(*capabilities: str, held: int = 5, acknowledgement: bool = True) -> Ours:
    """A sink that has all before index `held` and has answered an offer from there, of a source
    that announces these capabilities, or nothing at all."""
    ours = Ours(Role.SINK)
    ours.receive(uber(SOURCE_ID, SINK_ID, **_announcing(capabilities)), heartbeats())
    ours.receive(register(CSP, CID, sink_handler(held, acknowledgement=acknowledgement)))
    ours.connection.answer_queue(CID, held, SHIFT, None, None)
    ours.said()
    return ours


def capable_source(*capabilities: str, held: int = 0) -> Ours:
    """A source that streams to a sink, which announces these capabilities, or nothing at all, and
    has all before index `held`."""
    ours = Ours(Role.SOURCE, cid_first=CID)
    ours.receive(uber(SINK_ID, SOURCE_ID, **_announcing(capabilities)), heartbeats())
    offer_queue(ours, 9)
    ours.receive(register(CSP, CID, source_handler(held)))
    (started,) = ours.receive(end_of_stream())
    assert isinstance(started, ev.StreamingStarted)
    ours.said()
    return ours


def _announcing(capabilities: Iterable[str]) -> Message:
    names = list(capabilities)
    return {"cqrepl": {"v": 1, "capabilities": names, "role": "host"}} if names else {}


def refused(ours: Ours, *documents: bytes) -> str:
    """The peer's error, after which nothing at all happens on the connection."""
    with pytest.raises(RemoteProtocolError) as caught:
        ours.receive(*documents)
    assert ours.connection.state is ConnectionState.CLOSED
    assert ours.receive(uber(1, 2), heartbeat()) == []
    assert ours.connection.next_deadline() == math.inf
    ours.tick(1e9)
    return str(caught.value)


def crowd(ours: Ours) -> None:
    """Fills the outbox as a peer does that reads nothing."""
    while not ours.connection._outbox.is_crowded:
        ours.connection._outbox.send(select() + data(idx=1, ns=1))
