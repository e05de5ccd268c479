"""The connection as a whole: greeting, ids, limits of bytes and time, and every way to end."""

import json
import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqrepl.protocol import (
    Connection,
    ConnectionConfig,
    LocalProtocolError,
    QueueShape,
    RemoteProtocolError,
    Role,
    StopReason,
    WireShape,
)
from cqrepl.protocol import events as ev
from cqrepl.protocol.connection import FRAME_OVERHEAD_MAX, GREETING_BYTES_MAX, PAYLOAD_MAX
from cqrepl.protocol.states import ConnectionState
from tests.unit.protocol.peer import (
    CID,
    CSP,
    HANDLERS,
    HEARTBEAT_CID,
    NAME,
    SHIFT,
    SINK_ID,
    SOURCE_ID,
    Ours,
    Typed,
    acknowledgement,
    batch,
    data,
    decoded,
    document,
    end_of_stream,
    excerpt,
    fed,
    header,
    heartbeat,
    heartbeats,
    index,
    items,
    kinds,
    meta,
    offer_queue,
    offering_source,
    receiving_sink,
    register,
    select,
    sink,
    sink_handler,
    source,
    source_handler,
    streaming_source,
    terminator,
    uber,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "network"
SHAPE = QueueShape(roll_cycle="FAST_DAILY", epoch=0, index_count=4096, index_spacing=256)
WIRE_TYPE = ("WireType", "BINARY_LIGHT")


def uber_said(remote_id: int, local_id: int, wire_type: str = "BINARY_LIGHT") -> dict[str, Any]:
    body = {
        "remoteIdentifier": remote_id,
        "localIdentifier": local_id,
        "wireType": ("WireType", wire_type),
    }
    return {"meta": True, "handler": (HANDLERS + "UberHandler", body)}


def heartbeats_said(cid: int, timeout_ms: int, interval_ms: int) -> dict[str, Any]:
    body = {"heartbeatTimeoutMs": timeout_ms, "heartbeatIntervalMs": interval_ms}
    handler = (HANDLERS + "HeartbeatHandler", body)
    return {"meta": True, "csp": "/", "cid": cid, "handler": handler}


def refused(ours: Ours, *documents: bytes) -> str:
    """The peer's error, after which nothing at all happens on the connection."""
    with pytest.raises(RemoteProtocolError) as caught:
        ours.receive(*documents)
    assert ours.connection.state is ConnectionState.CLOSED
    assert ours.receive(uber(1, 2), heartbeat()) == []
    assert ours.connection.next_deadline() == math.inf
    ours.tick(1e9)
    return str(caught.value)


# greeting


def test_a_dialler_greets_before_it_has_read_anything() -> None:
    ours = Ours(
        Role.SINK,
        is_dialler=True,
        heartbeat_interval_ms=30_000,
        heartbeat_timeout_ms=40_000,
        cid_first=787122337,
    )
    recorded = json.loads((VECTORS / "connect.json").read_text())
    first = [bytes.fromhex(each["hex"]) for each in recorded if each["dir"] == "sink->source"][:2]
    assert ours.connection.data_to_send() == b"".join(first)


def test_an_acceptor_is_silent_until_it_is_greeted_and_then_reflects() -> None:
    ours = Ours(Role.SINK)
    assert ours.said() == []
    assert ours.receive(uber(SOURCE_ID, SINK_ID)) == [ev.Connected(remote_id=SOURCE_ID)]
    assert ours.said() == [uber_said(SINK_ID, SOURCE_ID)]
    assert ours.receive(heartbeats(3000, 700, cid=1 << 40)) == []
    assert ours.said() == [heartbeats_said(1 << 40, 3000, 700)]


def test_a_dialler_does_not_reflect() -> None:
    ours = Ours(Role.SINK, is_dialler=True)
    ours.connection.data_to_send()
    assert ours.receive(uber(SOURCE_ID, SINK_ID)) == [ev.Connected(remote_id=SOURCE_ID)]
    assert ours.receive(heartbeats(cid=1), heartbeat(cid=1)) == []
    assert ours.said() == []


@pytest.mark.parametrize("source_dials", [True, False])
@pytest.mark.parametrize("shape", list(WireShape))
def test_two_of_ours_meet(source_dials: bool, shape: WireShape) -> None:
    one = Ours(Role.SOURCE, is_dialler=source_dials, shape=shape)
    other = Ours(Role.SINK, is_dialler=not source_dials, shape=shape)
    events: dict[str, list[ev.Event]] = {"source": [], "sink": []}
    for _ in range(3):
        events["sink"] += other.receive(one.connection.data_to_send())
        events["source"] += one.receive(other.connection.data_to_send())
    assert events == {
        "source": [ev.Connected(remote_id=SINK_ID)],
        "sink": [ev.Connected(remote_id=SOURCE_ID)],
    }


@pytest.mark.parametrize("wire_type", ["BINARY", "BINARY_LIGHT"])
@pytest.mark.parametrize("is_typed", [True, False])
def test_both_binary_wire_types_are_taken_and_reflected(wire_type: str, is_typed: bool) -> None:
    ours = Ours(Role.SINK)
    value = Typed("WireType", wire_type) if is_typed else wire_type
    assert kinds(ours.receive(uber(SOURCE_ID, SINK_ID, value))) == [ev.Connected]
    assert ours.said() == [uber_said(SINK_ID, SOURCE_ID, wire_type)]


def test_a_greeting_without_wire_type_means_binary_light() -> None:
    ours = Ours(Role.SINK)
    body = {"localIdentifier": SINK_ID, "remoteIdentifier": SOURCE_ID}
    assert kinds(ours.receive(meta(handler=Typed(HANDLERS + "UberHandler", body))))
    assert ours.said() == [uber_said(SINK_ID, SOURCE_ID)]


@pytest.mark.parametrize("wire_type", ["TEXT", "RAW", "binary_light", ""])
def test_other_wire_types_close(wire_type: str) -> None:
    problem = refused(Ours(Role.SINK), uber(SOURCE_ID, SINK_ID, Typed("WireType", wire_type)))
    assert problem == f"wire type BINARY or BINARY_LIGHT expected, {wire_type!r} came"


@pytest.mark.parametrize(
    "greeting",
    [
        uber(SOURCE_ID, SINK_ID, clusterName="global"),
        uber(SOURCE_ID, SINK_ID, a=1, b=True, c=None, d={"e": "f"}, g="h"),
        meta(
            handler=Typed(
                HANDLERS + "UberHandler",
                {
                    "wireType": Typed("WireType", "BINARY_LIGHT"),
                    "extra": -1,
                    "localIdentifier": SINK_ID,
                    "remoteIdentifier": SOURCE_ID,
                },
            )
        ),
        meta(
            handler=Typed("UberHandler", {"remoteIdentifier": SOURCE_ID, "localIdentifier": 2}),
            later="text",
        ),
        # the overview's shape
        data(
            handler=Typed(
                HANDLERS + "UberHandler",
                {
                    "remoteIdentifier": SOURCE_ID,
                    "localIdentifier": SINK_ID,
                    "wireType": Typed("WireType", "BINARY_LIGHT"),
                    "clusterName": "global",
                },
            )
        ),
        document(
            {"handler": Typed("UberHandler", {"remoteIdentifier": 1, "localIdentifier": 2})},
            metadata=True,
            events=True,
        ),
    ],
    ids=["cluster name", "extra fields", "reordered", "alias, field behind", "seed", "event name"],
)
def test_greetings_are_read_by_name(greeting: bytes) -> None:
    assert Ours(Role.SINK).receive(greeting) == [ev.Connected(remote_id=SOURCE_ID)]


@pytest.mark.parametrize(
    ("remote_id", "local_id", "problem"),
    [
        (SINK_ID, SOURCE_ID, "both sides have host id 2"),
        (SINK_ID, SINK_ID, "both sides have host id 2"),
        (SOURCE_ID, 6, "the peer expects host id 6, this side has 2"),
        (9, SINK_ID, "host id 1 expected, 9 came"),
        (-1, SINK_ID, "host id 1 expected, -1 came"),
        (1 << 62, SINK_ID, f"host id 1 expected, {1 << 62} came"),
    ],
)
@pytest.mark.parametrize("is_dialler", [True, False])
def test_wrong_ids_close_at_once(
    remote_id: int, local_id: int, problem: str, is_dialler: bool
) -> None:
    assert refused(Ours(Role.SINK, is_dialler=is_dialler), uber(remote_id, local_id)) == problem


def test_several_remote_ids_may_be_allowed() -> None:
    for remote_id in (1, 3, 5):
        ours = Ours(Role.SINK, remote_ids=frozenset({1, 3, 5}))
        assert ours.receive(uber(remote_id, SINK_ID)) == [ev.Connected(remote_id=remote_id)]
        assert ours.connection.remote_id == remote_id
    problem = refused(Ours(Role.SINK, remote_ids=frozenset({1, 3, 5})), uber(4, SINK_ID))
    assert problem == "host id 1, 3, 5 expected, 4 came"


def test_without_remote_ids_any_but_our_own_is_taken() -> None:
    for remote_id in (1, 42, 127):
        ours = Ours(Role.SINK, remote_ids=frozenset())
        assert ours.receive(uber(remote_id, SINK_ID)) == [ev.Connected(remote_id=remote_id)]
    assert "both sides" in refused(Ours(Role.SINK, remote_ids=frozenset()), uber(2, SINK_ID))


@pytest.mark.parametrize(
    "first",
    [
        heartbeats(),
        register(CSP, CID, sink_handler()),
        select(CID),
        heartbeat(),
        excerpt(index(0), b"x"),
        data(),
        meta(),
        meta(handler="text"),
        meta(handler=Typed("no.such.Handler", {"remoteIdentifier": 1, "localIdentifier": 2})),
        meta(handler=Typed(HANDLERS + "UberHandler", {"remoteIdentifier": SOURCE_ID})),
        meta(handler=Typed(HANDLERS + "UberHandler", {"localIdentifier": SINK_ID})),
        meta(handler=Typed(HANDLERS + "UberHandler", "text")),
        meta(handler=Typed(HANDLERS + "UberHandler", {"remoteIdentifier": "1"})),
        meta(
            handler=Typed(HANDLERS + "UberHandler", {"remoteIdentifier": "1", "localIdentifier": 2})
        ),
        terminator(),
        document(b"\x01\x02\x03\x04\x05", metadata=True),
        document(b"handler: !UberHandler {\n remoteIdentifier: 1\n}\n", metadata=True),
        document(b"\xc7handler\xb6\x7f", metadata=True),
        document(bytes([0x8F] * 50), metadata=True),
        bytes(4),
        b"\xff" * 8,
        b"GET / HTTP/1.1\r\n\r\n",
        header(5)[:3] + b"\x80" + b"12345",
    ],
    ids=range(23),
)
@pytest.mark.parametrize("is_dialler", [True, False])
def test_anything_before_the_greeting_closes(first: bytes, is_dialler: bool) -> None:
    refused(Ours(Role.SINK, is_dialler=is_dialler), first, uber(SOURCE_ID, SINK_ID))


# limits of bytes


def padded_uber(length: int) -> bytes:
    plain = uber(SOURCE_ID, SINK_ID)
    body = plain[4:] + b"\x8f" * (length - len(plain) + 4)
    assert len(body) == length
    return document(body, metadata=True)


def test_a_greeting_of_64_kib_is_the_largest() -> None:
    assert kinds(Ours(Role.SINK).receive(padded_uber(GREETING_BYTES_MAX))) == [ev.Connected]
    for ours in (Ours(Role.SINK), Ours(Role.SINK, is_dialler=True)):
        announced = header(GREETING_BYTES_MAX + 1, metadata=True)
        assert "at most 65536 bytes" in refused(ours, announced)


def test_an_announced_length_costs_nothing() -> None:
    """Threat T4: memory grows with received bytes only."""
    for ours, length in (
        (Ours(Role.SINK), GREETING_BYTES_MAX),
        (receiving_sink(), PAYLOAD_MAX + FRAME_OVERHEAD_MAX),
    ):
        tracemalloc.start()
        ours.receive(header(length) + b"\xc2re\x82\0\0")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 * 1024


@pytest.mark.parametrize("length", [PAYLOAD_MAX + FRAME_OVERHEAD_MAX + 1, (1 << 30) - 1])
@pytest.mark.parametrize("ours", [sink, receiving_sink, streaming_source])
def test_an_oversize_length_closes_before_its_bytes_come(
    ours: Callable[[], Ours], length: int
) -> None:
    assert "a document of at most" in refused(ours(), header(length) + b"10 bytes ..")


def test_the_largest_payload_can_be_chosen() -> None:
    ours = receiving_sink(payload_max=1000)
    (event,) = ours.receive(excerpt(index(0), bytes(1000)))
    assert isinstance(event, ev.AppendExcerpts)
    assert "at most 5096 bytes" in refused(ours, excerpt(index(1), bytes(5096)))


@pytest.mark.parametrize(
    "large",
    [
        document(b"\xc4what" + items("x" * 65536), metadata=False),
        document(b"\xc3cid" + items(CID) + b"\x8f" * 65536, metadata=True),
        data(idx=index(0), ns=1, more="x" * 65536),
        data(heartbeat="x" * 65536),
    ],
)
def test_only_a_replication_event_may_have_more_than_64_kib(large: bytes) -> None:
    assert "a document of at most 65536 bytes expected" in refused(sink(), large)


def test_a_document_of_64_kib_is_read() -> None:
    plain = data(heartbeat="")[4:]
    padded = document(plain + b"\x8f" * (65536 - len(plain)), metadata=False)
    assert sink().receive(select(HEARTBEAT_CID), padded) == []


# bad bytes after the greeting


@pytest.mark.parametrize(
    "bad",
    [
        bytes(4),
        bytes(4) + heartbeat(),
        (len(b"123") | 1 << 31).to_bytes(4, "little") + b"123",
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        document(b"re: [\n 1\n]\n", metadata=False),
        document(b"cid: 901\n", metadata=True),
        document(b"\x01\x02", metadata=False),
        document(b"\xc2re", metadata=False),
        document(b"\xc2re\x82\xff\xff\xff\x7f", metadata=False),
        document(b"\xc2re\xb6\x05abc", metadata=False),
        document(b"\xb9\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", metadata=False),
        document(b"\xc3cid\xe3abc", metadata=True),
        document(b"\xc3cid", metadata=True),
        document(b"\xc3csp\x05\xc3cid\x05", metadata=True),
        document(b"\xc3csp\xe1\xff\xc3cid\x05", metadata=True),
        data(re="text"),
        data(re=items(1, "text")),
        meta(csp=CSP, cid=CID, handler=Typed("SinkReplicationHandler", {"queueName": 5})),
    ],
    ids=range(19),
)
@pytest.mark.parametrize("ours", [sink, receiving_sink, streaming_source], ids=lambda o: o.__name__)
@pytest.mark.parametrize("is_selected", [True, False])
def test_bytes_that_cannot_be_read_close(
    ours: Callable[[], Ours], bad: bytes, is_selected: bool
) -> None:
    this = ours()
    if is_selected:
        this.receive(select(CID if ours is not sink else HEARTBEAT_CID))
    elif bad[:1] != b"\0" and b"re" in bad[:7]:
        this.receive(meta(csp="/none", cid=CID))  # deselects; a name for nobody is only refused
        bad += bytes(4)
    refused(this, bad)


# limits of time


@pytest.mark.parametrize("is_dialler", [True, False])
def test_the_greeting_has_5_seconds(is_dialler: bool) -> None:
    ours = Ours(Role.SINK, is_dialler=is_dialler)
    assert ours.connection.next_deadline() == 5.0
    ours.tick(4.99)
    ours.receive(header(100))
    with pytest.raises(RemoteProtocolError, match="no UberHandler within 5 s"):
        ours.tick(0.01)
    assert ours.connection.state is ConnectionState.CLOSED


def test_a_greeting_in_time_lifts_the_limit() -> None:
    ours = Ours(Role.SINK)
    ours.tick(4.99)
    ours.receive(uber(SOURCE_ID, SINK_ID), heartbeats())
    ours.tick(10)
    assert ours.connection.state is ConnectionState.OPEN


def test_a_document_that_started_must_end_in_30_seconds_however_it_drips() -> None:
    ours = receiving_sink()
    frame = excerpt(index(0), bytes(100))
    for byte in frame[:29]:
        assert ours.receive(bytes([byte])) == []
        ours.tick(1)
    # the cid document took 17 of them; the event's own clock began with its first byte
    for byte in frame[29:40]:
        ours.receive(bytes([byte]))
        ours.tick(1)
    assert ours.connection.next_deadline() < ours.now + 30
    with pytest.raises(RemoteProtocolError, match="not complete after 30 s"):
        for byte in frame[40:]:
            ours.receive(bytes([byte]))
            ours.tick(1)


def test_the_next_document_has_its_own_30_seconds() -> None:
    ours = receiving_sink()
    frame = data(heartbeat="")
    for _ in range(5):
        ours.receive(select(HEARTBEAT_CID), frame[:3])
        ours.tick(29.9)
        ours.receive(frame[3:])
    assert ours.connection.state is ConnectionState.OPEN


def test_whole_documents_may_wait_for_a_busy_shell() -> None:
    """Our own slowness is not the peer's: the clock runs for what has not come yet."""
    ours = receiving_sink(heartbeat_timeout_ms=1000, heartbeat_interval_ms=500)
    ours.receive(heartbeats(100_000, 50_000, cid=5))
    stream = b"".join(excerpt(index(2 * n), b"x") for n in range(2)) + bytes(4)
    ours.connection.receive_data(excerpt(index(0), b"x") + stream, ours.now)
    assert isinstance(ours.connection.next_event(), ev.AppendExcerpts)
    ours.tick(35)
    assert ours.connection.state is ConnectionState.OPEN


def test_silence_ends_the_connection_after_the_diallers_timeout() -> None:
    ours = Ours(Role.SINK, heartbeat_timeout_ms=9000)
    ours.receive(uber(SOURCE_ID, SINK_ID), heartbeats(3000, 1000))
    for _ in range(5):
        ours.tick(2.9)
        ours.receive(b"" if ours.now < 3 else heartbeat())
    ours.receive(heartbeat())
    assert ours.connection.next_deadline() <= ours.now + 3
    ours.tick(2.99)
    with pytest.raises(RemoteProtocolError, match="nothing received for 3.0 s"):
        ours.tick(0.01)


@pytest.mark.parametrize("some", [heartbeat(), heartbeat()[:5], select(), b"\x20"])
def test_any_byte_is_a_sign_of_life(some: bytes) -> None:
    ours = Ours(Role.SINK).greeted()
    ours.tick(39)
    ours.receive(some)
    ours.tick(29)
    assert ours.connection.state is ConnectionState.OPEN


def test_without_a_heartbeat_our_own_timeout_counts() -> None:
    ours = Ours(Role.SINK, heartbeat_timeout_ms=9000)
    ours.receive(uber(SOURCE_ID, SINK_ID))
    assert ours.connection.next_deadline() == 9.0
    ours.tick(8.9)
    with pytest.raises(RemoteProtocolError, match="nothing received for 9.0 s"):
        ours.tick(0.1)


def test_nothing_is_due_on_a_closed_connection() -> None:
    ours = sink()
    ours.connection.receive_end(0)
    assert ours.connection.next_deadline() == math.inf
    ours.tick(1e9)


# the end of the stream


@pytest.mark.parametrize(
    ("ours", "before", "event"),
    [
        (lambda: Ours(Role.SINK), b"", "end of stream unannounced"),
        (lambda: Ours(Role.SINK), header(9), "end of stream in the middle of a document (4 bytes"),
        (sink, b"", "end of stream unannounced"),
        (streaming_source, b"", "end of stream unannounced"),
        (receiving_sink, b"", None),
        (receiving_sink, excerpt(index(0), b"x")[:-1], "end of stream in the middle of a document"),
        (receiving_sink, b"\x05", "end of stream in the middle of a document (1 bytes"),
    ],
    ids=["greeting", "in greeting", "sink", "source", "receiving", "in event", "in header"],
)
def test_the_end_of_the_stream_is_orderly_only_from_a_source_that_cannot_announce_it(
    ours: Callable[[], Ours], before: bytes, event: str | None
) -> None:
    this = ours()
    this.receive(before)
    this.connection.receive_end(this.now)
    (end,) = this.events()
    if event is None:
        assert end == ev.OrderlyEnd()
    else:
        assert isinstance(end, ev.PeerLost)
        assert end.message.startswith(event)
    this.connection.receive_end(this.now)
    assert this.events() == []


def test_a_peer_with_the_extension_announces_its_end_or_is_lost() -> None:
    ours = sink()
    shape = {"v": 1, "rollCycle": "FAST_DAILY", "epoch": 0, "indexCount": 1, "indexSpacing": 1}
    ours.receive(register(CSP, CID, sink_handler(cqrepl=shape)))
    ours.connection.answer_queue(CID, 0, SHIFT, SHAPE)
    ours.connection.receive_end(0)
    assert kinds(ours.events()) == [ev.PeerLost]


def join(source_dials: bool = False) -> tuple[Ours, Ours, int]:
    """Two of ours that stream one queue."""
    one = Ours(Role.SOURCE, is_dialler=source_dials, cid_first=100)
    other = Ours(Role.SINK, is_dialler=not source_dials, cid_first=200)
    exchange(one, other)
    cid = one.connection.offer_queue(NAME, 0, acknowledgement=True, source_id=7, shape=SHAPE)
    exchange(one, other)
    other.connection.answer_queue(cid, 0, SHIFT, SHAPE)
    assert kinds(exchange(one, other)[0]) == [ev.StreamingStarted]
    return one, other, cid


def exchange(one: Ours, other: Ours) -> tuple[list[ev.Event], list[ev.Event]]:
    """What each was told, after everything that both had to say."""
    told: tuple[list[ev.Event], list[ev.Event]] = ([], [])
    while one.connection.has_data_to_send or other.connection.has_data_to_send:
        told[1].extend(other.receive(one.connection.data_to_send()))
        told[0].extend(one.receive(other.connection.data_to_send()))
    return told


@pytest.mark.parametrize("source_dials", [True, False])
@pytest.mark.parametrize("source_ends", [True, False])
def test_an_orderly_end_is_announced_to_a_peer_with_the_extension(
    source_dials: bool, source_ends: bool
) -> None:
    ours, theirs, cid = join(source_dials)
    if not source_ends:
        ours, theirs = theirs, ours
    ours.connection.end()
    assert ours.connection.state is ConnectionState.ENDING
    (last,) = decoded(ours.connection.data_to_send())
    assert last["csp"] == "/"
    assert last["cid"] not in (cid, 100, 200)
    assert last["handler"] == ("net.openhft.chronicle.network.cluster.TerminatorHandler", {})
    assert theirs.receive(terminator(last["cid"])) == [ev.OrderlyEnd()]
    assert theirs.connection.state is ConnectionState.CLOSED
    ours.connection.receive_end(0)
    assert ours.events() == [ev.OrderlyEnd()]


def test_both_sides_may_end_at_once() -> None:
    one, other, _ = join()
    one.connection.end()
    other.connection.end()
    assert exchange(one, other) == ([ev.OrderlyEnd()], [ev.OrderlyEnd()])


def test_nothing_follows_the_announcement_of_the_end() -> None:
    one, _, cid = join()
    one.connection.end()
    one.connection.data_to_send()
    one.tick(20)
    assert one.said() == []
    with pytest.raises(LocalProtocolError):
        one.frame(cid, batch(index(0), b"x"))


def test_the_last_acknowledgement_goes_before_the_announcement() -> None:
    one, other, cid = join()
    frames = one.frame(cid, batch(index(0), b"x", b"y"))
    (event,) = other.receive(frames)
    assert isinstance(event, ev.AppendExcerpts)
    crowd(other)
    other.connection.stored(cid, index(1), event.ns)
    other.connection.end()
    said = decoded(other.connection.data_to_send())
    assert said[-2]["idx"] == index(1)
    assert "handler" in said[-1]


def test_a_peer_without_the_extension_is_told_nothing_and_still_ends_in_order() -> None:
    ours = streaming_source()
    ours.connection.end()
    assert ours.said() == []
    assert ours.connection.state is ConnectionState.ENDING
    assert kinds(ours.receive(acknowledgement(index(0)))) == [ev.Refused]
    ours.connection.receive_end(0)
    assert ours.events() == [ev.OrderlyEnd()]


@pytest.mark.parametrize("split", [False, True])
def test_a_terminator_of_an_older_java_ends_in_order(split: bool) -> None:
    """With a comment behind the handler, as recorded in section 3.4; in the split form too."""
    typed = Typed("net.openhft.chronicle.network.cluster.TerminatorHandler", {})
    comment = b"\xbe\x24localIdentifier=1,remoteIdentifier=2"
    if split:
        last = meta(csp="/", cid=292323922173575) + meta(handler=typed)
    else:
        last = (
            bytes.fromhex(
                "82000040b90363737 0e12fb903636964a7875e8af7dd090100b90768616e646c6572b637".replace(
                    " ", ""
                )
            )
            + b"net.openhft.chronicle.network.cluster.TerminatorHandler"
            + bytes.fromhex("8200000000")
            + comment
        )
    ours = sink()
    assert ours.receive(last, heartbeat()) == [ev.OrderlyEnd()]
    assert ours.connection.state is ConnectionState.CLOSED


# calls of our own that are not allowed


@pytest.mark.parametrize(
    ("ours", "call"),
    [
        (lambda: Ours(Role.SOURCE), lambda c: offer_queue(c)),
        (lambda: Ours(Role.SOURCE), lambda c: c.connection.end()),
        (lambda: Ours(Role.SOURCE), lambda c: c.frame(CID, batch(0, b"x"))),
        (source, lambda c: c.frame(CID, batch(0, b"x"))),
        (source, lambda c: c.connection.source(HEARTBEAT_CID)),
        (source, lambda c: c.connection.frame_size(HEARTBEAT_CID, 5)),
        (offering_source, lambda c: c.frame(CID, batch(0, b"x"))),
        (offering_source, lambda c: c.connection.begin_back_copy(CID, 0, SHIFT)),
        (offering_source, lambda c: c.connection.answer_queue(CID, 0, SHIFT, None)),
        (offering_source, lambda c: c.connection.end_back_copy(CID)),
        (offering_source, lambda c: c.connection.stored(CID, 0, 0)),
        (streaming_source, lambda c: c.connection.begin_back_copy(CID, 0, SHIFT)),
        (sink, lambda c: c.connection.answer_queue(CID, 0, SHIFT, None)),
        (sink, lambda c: c.connection.stored(HEARTBEAT_CID, 0, 0)),
        (receiving_sink, lambda c: c.connection.answer_queue(CID, 0, SHIFT, None)),
        (receiving_sink, lambda c: c.connection.end_back_copy(CID)),
        (receiving_sink, lambda c: c.frame(CID, batch(0, b"x"))),
        (receiving_sink, lambda c: c.connection.begin_back_copy(CID, 0, SHIFT)),
        (receiving_sink, lambda c: c.connection.source(CID)),
    ],
    ids=range(19),
)
def test_a_call_out_of_turn_is_our_own_error_and_sends_nothing(
    ours: Callable[[], Ours], call: Callable[[Ours], object]
) -> None:
    this = ours()
    this.connection.data_to_send()
    state = this.connection.state
    with pytest.raises(LocalProtocolError):
        call(this)
    assert this.connection.state is state
    assert not this.connection.has_data_to_send
    assert this.events() == []


def test_the_end_comes_once() -> None:
    ours = sink()
    ours.connection.end()
    with pytest.raises(LocalProtocolError, match="ENDING, not OPEN"):
        ours.connection.end()
    ours.connection.receive_end(0)
    with pytest.raises(LocalProtocolError, match="CLOSED, not OPEN"):
        ours.connection.end()


def test_cids_that_the_peer_took_are_stepped_over() -> None:
    ours = Ours(Role.SOURCE, cid_first=HEARTBEAT_CID - 1).greeted()
    cids = [offer_queue(ours, name=name) for name in ("a", "b", "c")]
    assert cids == [HEARTBEAT_CID - 1, HEARTBEAT_CID + 1, HEARTBEAT_CID + 2]


# a peer that reads nothing


def crowd(ours: Ours) -> None:
    """Fills the outbox as a peer does that reads nothing."""
    while not ours.connection._outbox.is_crowded:
        ours.connection._outbox.send(select() + data(idx=1, ns=1))


def test_acknowledgements_are_merged_while_the_peer_reads_nothing() -> None:
    ours = receiving_sink()
    for n in range(20_000):
        (event,) = ours.receive(excerpt(index(n), b"x"))
        assert isinstance(event, ev.AppendExcerpts)
        ours.connection.stored(CID, index(n), n)
    said = ours.connection.data_to_send()
    assert len(said) < 65 * 1024
    last = decoded(said)[-1]
    assert (last["idx"], last["ns"]) == (index(19_999), 19_999)
    assert not ours.connection.has_data_to_send


def test_heartbeats_do_not_pile_up_while_the_peer_reads_nothing() -> None:
    ours = receiving_sink()
    crowd(ours)
    size = len(ours.connection._outbox.data)
    for _ in range(1000):
        ours.tick(20)
        ours.receive(heartbeat())
    assert len(ours.connection._outbox.data) == size


# any segmentation


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    stream = (
        register(CSP, CID, sink_handler())
        + heartbeat()
        + excerpt(index(0), b"one")
        + excerpt(index(1), bytes(300))
    )
    ours = sink()
    events: list[ev.Event] = []
    for at in range(0, len(stream), size):
        ours.connection.receive_data(stream[at : at + size], ours.now)
        while (event := ours.connection.next_event()) is not None:
            events.append(event)
            if isinstance(event, ev.QueueOffered):
                ours.connection.answer_queue(event.cid, 0, SHIFT, None)
    assert kinds(events)[0] is ev.QueueOffered
    got = [
        (at, bytes(payload))
        for event in events[1:]
        if isinstance(event, ev.AppendExcerpts)
        for at, payload in event.batch
    ]
    assert got == [(index(0), b"one"), (index(1), bytes(300))]


def test_a_run_of_events_is_one_event_of_ours() -> None:
    ours = receiving_sink()
    stream = b"".join(excerpt(index(n), b"x") for n in range(50))
    (event,) = ours.receive(stream)
    assert isinstance(event, ev.AppendExcerpts)
    assert len(event.batch) == 50


def test_config_and_connection_are_what_the_package_gives() -> None:
    config = ConnectionConfig(role=Role.SINK, is_dialler=False, host_id=2)
    connection = Connection(config, 0)
    assert connection.config is config
    assert connection.data_to_send() == b""


def test_a_stopped_queue_leaves_the_connection_open() -> None:
    ours = receiving_sink()
    ours.connection.stop_queue(CID, StopReason.DIVERGED, "other bytes")
    ours.connection.stop_queue(CID, StopReason.FAILED, "again")
    (event,) = ours.receive(excerpt(index(0), b"x"), heartbeat())
    assert event == ev.QueueStopped(
        cid=CID, name=NAME, reason=StopReason.DIVERGED, message="other bytes"
    )
    assert ours.connection.state is ConnectionState.OPEN


def test_an_answer_may_come_byte_by_byte() -> None:
    ours = offering_source()
    stream = register(CSP, CID, source_handler()) + end_of_stream()
    assert kinds(fed(ours, stream, lambda: 1)) == [ev.StreamingStarted]
