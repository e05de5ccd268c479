"""For any bytes of a peer: a `RemoteProtocolError` or nothing, bounded memory, and always an end.

Three kinds of bad peers: noise, recorded sessions with bytes and documents changed, and well-formed
documents in any order. The shell on our side acts on every event as the real one does; it must
never be led into a call that is not allowed.
"""

import math
from collections import Counter
from collections.abc import Callable
from enum import Enum
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from cqrepl.protocol import RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.outbox import CROWDED_BYTES
from cqrepl.protocol.sink import SinkHandler
from cqrepl.protocol.source import SourceHandler
from cqrepl.protocol.states import ConnectionState, SinkState, SourceState
from cqrepl.protocol.uber import HANDLERS_MAX
from tests.support.peer import (
    CID,
    CSP,
    HEARTBEAT_CID,
    NAME,
    NS,
    SHIFT,
    Hex,
    Ours,
    Role,
    Typed,
    acknowledgement,
    batch,
    block,
    data,
    document,
    end_of_stream,
    excerpt,
    heartbeat,
    heartbeats,
    index,
    items,
    literal,
    meta,
    offer_queue,
    offering_source,
    receiving_sink,
    register,
    select,
    sink_handler,
    source_handler,
    streaming_source,
    terminator,
    uber,
)
from tests.unit.protocol.test_transcripts import TRANSCRIPTS
from wire import Splitter

EXAMPLES = 300
# one answer to each of 1,024 registrations, and what is merged or left out above the limit
OUTBOX_MAX = CROWDED_BYTES + HANDLERS_MAX * 2048
RECORDED_NAME = "out-1"


class Victim:
    """Our side with a shell that does at once what an event asks for."""

    def __init__(self, ours: Ours) -> None:
        self.ours = ours
        self.is_over = False
        self.events = 0

    def feed(self, stream: bytes) -> None:
        if self.is_over:
            return
        self.ours.connection.receive_data(stream, self.ours.now)
        try:
            while (event := self.ours.connection.next_event()) is not None:
                self.events += 1
                self.act(event)
        except RemoteProtocolError:
            self.check_over()
        self.check_bounds(len(stream))

    def tick(self, seconds: float) -> None:
        if not self.is_over:
            try:
                self.ours.tick(seconds)
            except RemoteProtocolError:
                self.check_over()

    def act(self, event: ev.Event) -> None:
        connection = self.ours.connection
        match event:
            case ev.Connected() if self.ours.role is Role.SOURCE:
                offer_queue(self.ours, index(4), name=RECORDED_NAME)
            case ev.QueueOffered(cid=cid):
                connection.answer_queue(cid, index(3), SHIFT, None)
            case ev.BackCopyWanted(cid=cid):
                self.ours.frame(cid, batch(index(0), b"a", b"b"))
                connection.end_back_copy(cid)
            case ev.SinkAhead(cid=cid):
                connection.begin_back_copy(cid, index(4), SHIFT)
            case ev.StreamingStarted(cid=cid):
                self.ours.frame(cid, batch(index(0), *[b"x"] * 10))
            case ev.AppendExcerpts(cid=cid) | ev.CompareExcerpts(cid=cid):
                assert all(len(payload) <= event.batch.payload_bytes for _, payload in event.batch)
                if self.ours.role is Role.SINK:
                    connection.sink(cid).stored(event.batch.index_last, event.ns)

    def check_over(self) -> None:
        connection = self.ours.connection
        assert connection.state is ConnectionState.CLOSED
        assert connection.next_deadline() == math.inf
        self.is_over = True

    def check_bounds(self, fed: int) -> None:
        connection = self.ours.connection
        assert len(connection._outbox.data) <= OUTBOX_MAX
        assert not connection._outbox.events or self.is_over
        assert len(connection._router.handlers) <= HANDLERS_MAX + 1


def greeting_sink() -> Ours:
    return Ours(Role.SINK)


def dialling_source() -> Ours:
    return Ours(Role.SOURCE, is_dialler=True)


def copying_back() -> Ours:
    ours = offering_source(index(4))
    ours.receive(register(CSP, CID, source_handler(index(7))))
    ours.connection.begin_back_copy(CID, index(4), SHIFT)
    return ours


def sent_source() -> Ours:
    ours = streaming_source()
    ours.frame(CID, batch(index(0), b"a", b"b"))
    return ours


SIDES: list[Callable[[], Ours]] = [
    greeting_sink,
    dialling_source,
    receiving_sink,
    offering_source,
    copying_back,
    sent_source,
]
sides = st.sampled_from(SIDES)


def attack(make: Callable[[], Ours], pieces: list[bytes]) -> Victim:
    victim = Victim(make())
    for piece in pieces:
        victim.feed(piece)
    return victim


@settings(max_examples=EXAMPLES)
@given(make=sides, pieces=st.lists(st.binary(max_size=60), max_size=10))
@example(make=receiving_sink, pieces=[bytes(4)])
@example(make=receiving_sink, pieces=[b"\xff" * 4])
@example(make=sent_source, pieces=[b"\x01\0\0\0\x20", bytes(4)])
def test_noise(make: Callable[[], Ours], pieces: list[bytes]) -> None:
    attack(make, pieces)


# items of the wire in any order: closer to what a reader expects than noise is
ITEMS = [
    b"\x05", b"\xa1\x01", b"\xa2\x01\0", b"\xa7" + bytes(8), b"\xaf" + bytes(8), b"\x90" + bytes(4),
    b"\x91\xff\xff\xff\xff\xff\xff\xff\xff", b"\xb0", b"\xb1", b"\xbb", b"\xe0", b"\xe1q",
    b"\xb8\x03abc", b"\xb8\x85\0", b"\xb6\x01x", b"\xb6\xff\xff\xff\xff\x0f", b"\x80\0",
    b"\x80\x05", b"\x81\0\0", b"\x82\0\0\0\0", b"\x82\xff\xff\xff\xff", b"\x8a\0", b"\x8f",
    b"\x8d" + bytes(16), b"\x8e\x01\0\0\0x", b"\xbe\x01x", b"\xc2re", b"\xc3cid", b"\xc3csp",
    b"\xc3idx", b"\xc2ns", b"\xc3eos", b"\xc9heartbeat", b"\xc7handler", b"\xb9\x02re",
    b"\xb9\x07handler", b"\xba\x05",
    b"\xb6\x16SinkReplicationHandler", b"\xb6\x18SourceReplicationHandler", b"\xc9queueName",
    b"\xb6\x10HeartbeatHandler", b"\xb6\x0bUberHandler", b"\xb6\x11TerminatorHandler",
    b"\xa3\x85\x03\0\0", b"\xa0" + bytes(16), b"\x92\x81\x01", b"\x95", b"\xff",
]  # fmt: skip
runs = st.lists(st.sampled_from(ITEMS), max_size=8).map(b"".join)


@settings(max_examples=EXAMPLES)
@given(make=sides, bodies=st.lists(st.tuples(runs, st.booleans()), max_size=10))
def test_items_in_any_order(make: Callable[[], Ours], bodies: list[tuple[bytes, bool]]) -> None:
    attack(make, [document(body, metadata=metadata) for body, metadata in bodies])


# well-formed documents in any order

cids = st.sampled_from([CID, CID + 1, HEARTBEAT_CID, 0, -1, 1 << 40, (1 << 63) - 1])
csps = st.sampled_from([CSP, "/", "/other", ""])
indexes = st.one_of(
    st.integers(0, 9).map(index),
    st.integers(0, 3).map(lambda cycles: index(0, cycles)),
    st.sampled_from([0, -1, (1 << 63) - 1, -(1 << 63), index(1 << 31)]),
)
times = st.sampled_from([0, -1, 5, 1 << 40, NS, (1 << 63) - 1])
names = st.sampled_from([NAME, "", "../x", "p"])
handlers = st.one_of(
    st.builds(lambda at, name: sink_handler(at, name=name), indexes, names),
    st.builds(lambda at, name: source_handler(at, name=name), indexes, names),
    st.sampled_from(
        [
            Typed("TerminatorHandler", {}),
            Typed("HeartbeatHandler", {"heartbeatTimeoutMs": 3000, "heartbeatIntervalMs": 1000}),
            Typed("HeartbeatHandler", {"heartbeatTimeoutMs": 1 << 62, "heartbeatIntervalMs": 500}),
            Typed("UberHandler", {"remoteIdentifier": 1, "localIdentifier": 2}),
            Typed("NoSuchHandler", {}),
        ]
    ),
)
messages = st.one_of(
    st.builds(register, csps, cids, handlers),
    st.builds(lambda csp, cid: meta(csp=csp, cid=cid), csps, cids),
    st.builds(lambda handler: data(handler=handler), handlers),
    st.builds(select, cids),
    st.builds(excerpt, indexes, st.binary(max_size=5), times, cids),
    st.builds(lambda at, ns: data(re=block(items(Hex(at), literal(b"x"), ns))), indexes, times),
    st.builds(acknowledgement, indexes, times, cids),
    st.builds(end_of_stream, cids),
    st.builds(heartbeat, cids),
    st.builds(heartbeats, st.integers(0, 5000), st.integers(0, 5000), cids),
    st.builds(uber, st.integers(0, 3), st.integers(0, 3)),
    st.builds(terminator, cids),
)


@settings(max_examples=EXAMPLES)
@given(
    make=sides,
    steps=st.lists(st.one_of(messages, st.sampled_from([0.1, 1.0, 29.0, 40.0])), max_size=30),
    size=st.sampled_from([1, 7, 50, 1000]),
)
@example(  # a cid that was bound under the same csp to another queue
    make=receiving_sink,
    steps=[register(CSP, CID, sink_handler(name="p")), heartbeat()],
    size=1000,
)
def test_documents_in_any_order(
    make: Callable[[], Ours], steps: list[bytes | float], size: int
) -> None:
    victim = Victim(make())
    for step in steps:
        if isinstance(step, float):
            victim.tick(step)
            continue
        for at in range(0, len(step), size):
            victim.feed(step[at : at + size])


# recorded sessions, changed


def recordings() -> list[tuple[Callable[[], Ours], bytes]]:
    """Each side of each recorded connection, and our side in the place of its peer."""
    found: list[tuple[Callable[[], Ours], bytes]] = []
    for transcript in TRANSCRIPTS.values():
        for role, other in ((Role.SINK, "source"), (Role.SOURCE, "sink")):
            make = partial(
                Ours,
                role,
                is_dialler=transcript.dialler == role.value,
                host_id=transcript.ids[role.value],
                remote_ids=frozenset({transcript.ids[other]}),
                takes=frozenset({RECORDED_NAME} if role is Role.SINK else ()),
                cid_first=transcript.heartbeat_cids[0],
            )
            for conn in range(1, transcript.connections + 1):
                flights = [each for each in transcript.flights if each.conn == conn]
                said = [each.stream for each in flights if each.sender == other]
                found.append((make, b"".join(said)))
    return found


RECORDED = recordings()


def cut_documents(stream: bytes) -> list[bytes]:
    splitter = Splitter(1 << 30)
    splitter.feed(stream)
    return [
        each.word.to_bytes(4, "little") + bytes(each.body)
        for each in iter(splitter.next_document, None)
    ]


@st.composite
def changed(draw: st.DrawFn) -> tuple[Callable[[], Ours], list[bytes]]:
    """A recorded stream with documents moved, left out or repeated, and bytes changed."""
    make, recorded = draw(st.sampled_from(RECORDED))
    documents = cut_documents(recorded)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(documents) - 1))
        match draw(st.sampled_from(["drop", "repeat", "swap"])):
            case "drop" if len(documents) > 1:
                documents.pop(at)
            case "repeat":
                documents.insert(at, documents[at])
            case _:
                documents[at], documents[0] = documents[0], documents[at]
    stream = bytearray(b"".join(documents))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(stream) - 1))
        match draw(st.sampled_from(["set", "flip", "insert", "delete", "truncate"])):
            case "set":
                stream[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            case "flip":
                stream[at] ^= 1 << draw(st.integers(0, 7))
            case "insert":
                stream[at:at] = draw(st.binary(max_size=8))
            case "delete":
                del stream[at]
            case _:
                del stream[max(at, 1) :]
        if not stream:
            break
    size = draw(st.sampled_from([1, 13, 100, 10_000]))
    return make, [bytes(stream[at : at + size]) for at in range(0, len(stream), size)]


@settings(max_examples=2 * EXAMPLES)
@given(changed())
def test_changed_recordings(bad: tuple[Callable[[], Ours], list[bytes]]) -> None:
    make, pieces = bad
    attack(make, pieces)


def test_the_recordings_themselves_reach_their_end() -> None:
    """The recordings go on behind the greeting, or the changed ones would test only that."""
    assert len(RECORDED) == 22
    reached = Counter[Enum]()
    for make, stream in RECORDED:
        victim = attack(make, [stream])
        assert not victim.is_over
        for handler in victim.ours.connection._router.handlers.values():
            if isinstance(handler, SinkHandler | SourceHandler):
                reached[handler.state] += 1
    assert reached[SinkState.RECEIVING] >= 8  # other recordings continue queues that ours lacks
    assert reached[SinkState.RECEIVING] + reached[SinkState.STOPPED] == 11
    assert reached[SourceState.STREAMING] >= 10
