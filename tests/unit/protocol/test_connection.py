"""The connection as a whole: limits of bytes and time, bad bytes, calls out of turn."""

import tracemalloc
from collections.abc import Callable

import pytest

from cqrepl.protocol import (
    PAYLOAD_MAX,
    LocalProtocolError,
    RemoteProtocolError,
)
from cqrepl.protocol import events as ev
from cqrepl.protocol.connection import GREETING_BYTES_MAX
from cqrepl.protocol.settings import FRAME_OVERHEAD_MAX
from cqrepl.protocol.states import ConnectionState
from tests.support import peer

# limits of bytes


def padded_uber(length: int) -> bytes:
    plain = peer.uber(peer.SOURCE_ID, peer.SINK_ID)
    body = plain[4:] + b"\x8f" * (length - len(plain) + 4)
    assert len(body) == length
    return peer.document(body, metadata=True)


def test_a_greeting_of_64_kib_is_the_largest() -> None:
    assert peer.kinds(peer.Ours(peer.Role.SINK).receive(padded_uber(GREETING_BYTES_MAX))) == [
        ev.Connected
    ]
    for ours in (peer.Ours(peer.Role.SINK), peer.Ours(peer.Role.SINK, is_dialler=True)):
        announced = peer.header(GREETING_BYTES_MAX + 1, metadata=True)
        assert "at most 65536 bytes" in peer.refused(ours, announced)


def test_an_announced_length_costs_nothing() -> None:
    """Threat T4: memory grows with received bytes only."""
    for ours, length in (
        (peer.Ours(peer.Role.SINK), GREETING_BYTES_MAX),
        (peer.receiving_sink(), PAYLOAD_MAX + FRAME_OVERHEAD_MAX),
    ):
        tracemalloc.start()
        ours.receive(peer.header(length) + b"\xc2re\x82\0\0")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 * 1024


@pytest.mark.parametrize("length", [PAYLOAD_MAX + FRAME_OVERHEAD_MAX + 1, (1 << 30) - 1])
@pytest.mark.parametrize("ours", [peer.sink, peer.receiving_sink, peer.streaming_source])
def test_an_oversize_length_closes_before_its_bytes_come(
    ours: Callable[[], peer.Ours], length: int
) -> None:
    assert "a document of at most" in peer.refused(ours(), peer.header(length) + b"10 bytes ..")


def test_the_largest_payload_can_be_chosen() -> None:
    ours = peer.receiving_sink(payload_max=1000)
    (event,) = ours.receive(peer.excerpt(peer.index(0), bytes(1000)))
    assert isinstance(event, ev.AppendExcerpts)
    assert "at most 5096 bytes" in peer.refused(ours, peer.excerpt(peer.index(1), bytes(5096)))


@pytest.mark.parametrize(
    "large",
    [
        peer.document(b"\xc4what" + peer.items("x" * 65536), metadata=False),
        peer.document(b"\xc3cid" + peer.items(peer.CID) + b"\x8f" * 65536, metadata=True),
        peer.data(idx=peer.index(0), ns=1, more="x" * 65536),
        peer.data(heartbeat="x" * 65536),
    ],
)
def test_only_a_replication_event_may_have_more_than_64_kib(large: bytes) -> None:
    assert "a document of at most 65536 bytes expected" in peer.refused(peer.sink(), large)


def test_a_document_of_64_kib_is_read() -> None:
    plain = peer.data(heartbeat="")[4:]
    padded = peer.document(plain + b"\x8f" * (65536 - len(plain)), metadata=False)
    assert peer.sink().receive(peer.select(peer.HEARTBEAT_CID), padded) == []


# bad bytes after the greeting


@pytest.mark.parametrize(
    "bad",
    [
        bytes(4),
        bytes(4) + peer.heartbeat(),
        (len(b"123") | 1 << 31).to_bytes(4, "little") + b"123",
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        peer.document(b"re: [\n 1\n]\n", metadata=False),
        peer.document(b"cid: 901\n", metadata=True),
        peer.document(b"\x01\x02", metadata=False),
        peer.document(b"\xb9\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", metadata=False),
        peer.document(b"\xc3cid\xe3abc", metadata=True),
        peer.document(b"\xc3cid", metadata=True),
        peer.document(b"\xc3csp\x05\xc3cid\x05", metadata=True),
        peer.document(b"\xc3csp\xe1\xff\xc3cid\x05", metadata=True),
        peer.meta(
            csp=peer.CSP,
            cid=peer.CID,
            handler=peer.Typed("SinkReplicationHandler", {"queueName": 5}),
        ),
    ],
    ids=range(14),
)
@pytest.mark.parametrize(
    "ours", [peer.sink, peer.receiving_sink, peer.streaming_source], ids=lambda o: o.__name__
)
def test_bytes_that_cannot_be_read_close(ours: Callable[[], peer.Ours], bad: bytes) -> None:
    peer.refused(ours(), bad)


@pytest.mark.parametrize(
    "bad",
    [
        peer.document(b"\xc2re", metadata=False),
        peer.document(b"\xc2re\x82\xff\xff\xff\x7f", metadata=False),
        peer.document(b"\xc2re\xb6\x05abc", metadata=False),
        peer.data(re="text"),
        peer.data(re=peer.items(1, "text")),
        peer.data(re=peer.items("text", b"\x80\x00")),
        peer.data(re=peer.block(peer.items(1, b"\x80\x05abc"))),
        peer.data(re=peer.block(peer.items(1, b"\x80\x00", "text"))),
        peer.data(idx="text"),
        peer.data(idx=1, ns="text"),
        peer.data(idx=peer.items(1, 2)),
    ],
    ids=range(11),
)
@pytest.mark.parametrize(
    "ours", [peer.receiving_sink, peer.streaming_source], ids=lambda o: o.__name__
)
def test_messages_of_the_wrong_form_close(ours: Callable[[], peer.Ours], bad: bytes) -> None:
    this = ours()
    if b"idx" in bad and ours is peer.receiving_sink:
        assert peer.kinds(this.receive(peer.select(), bad)) == [
            ev.RegistrationRefused
        ]  # no message for a sink
    else:
        peer.refused(this, peer.select(), bad)


# limits of time


@pytest.mark.parametrize("is_dialler", [True, False])
def test_the_greeting_has_5_seconds(is_dialler: bool) -> None:
    ours = peer.Ours(peer.Role.SINK, is_dialler=is_dialler)
    assert ours.connection.next_deadline() == 5.0
    ours.tick(4.99)
    ours.receive(peer.header(100))
    with pytest.raises(RemoteProtocolError, match=r"no greeting .* within 5 s"):
        ours.tick(0.01)
    assert ours.connection.state is ConnectionState.CLOSED


def drip(ours: peer.Ours, some: bytes) -> None:
    """A byte a second."""
    for byte in some:
        assert ours.receive(bytes([byte])) == []
        ours.tick(1)


def test_a_document_that_started_must_end_in_30_seconds_however_it_drips() -> None:
    ours = peer.receiving_sink()
    frame = peer.excerpt(peer.index(0), bytes(100))
    drip(ours, frame[:29])
    # the cid document took 17 of them; the event's own clock began with its first byte
    drip(ours, frame[29:40])
    assert ours.connection.next_deadline() < ours.now + 30
    with pytest.raises(RemoteProtocolError, match="not complete after 30 s"):
        drip(ours, frame[40:])


def test_the_next_document_has_its_own_30_seconds() -> None:
    ours = peer.receiving_sink()
    frame = peer.data(heartbeat="")
    for _ in range(5):
        ours.receive(peer.select(peer.HEARTBEAT_CID), frame[:3])
        ours.tick(29.9)
        ours.receive(frame[3:])
    assert ours.connection.state is ConnectionState.OPEN


def beating(timeout_ms: int, interval_ms: int) -> peer.Ours:
    """A sink that receives a queue, with these numbers of the dialler's."""
    ours = peer.Ours(peer.Role.SINK)
    ours.receive(peer.uber(peer.SOURCE_ID, peer.SINK_ID), peer.heartbeats(timeout_ms, interval_ms))
    ours.receive(peer.register(peer.CSP, peer.CID, peer.sink_handler(0)))
    ours.connection.answer_queue(peer.CID, 0, peer.SHIFT, None)
    return ours


def lent(
    ours: peer.Ours,
    seconds: float,
    took: int,
    came: bytes,
    *,
    heard: float | None,
    began: float | None,
) -> None:
    """A native pump receives for some seconds: takes so many bytes, and hands back the rest.

    Args:
        heard, began: how long before its return, as `Connection.hand_back` has them.
    """
    data = (ours.connection.hand_over() + came)[took:]
    ours.now += seconds
    times = {name: None if ago is None else ours.now - ago for name, ago in
             (("heard", heard), ("began", began))}  # fmt: skip
    ours.connection.hand_back(data, ours.now, **times)
    assert ours.events() == []
    ours.connection.tick(ours.now)


def test_what_a_pump_hands_back_unread_is_no_sign_of_life() -> None:
    ours = beating(3000, 1000)
    ours.receive(peer.excerpt(peer.index(0), bytes(100))[:50])
    for _ in range(5):
        lent(ours, 0.5, 0, b"", heard=None, began=None)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 3\.0 s"):
        lent(ours, 0.5, 0, b"", heard=None, began=None)


def test_a_pump_that_took_all_has_heard_no_more_than_it_says() -> None:
    """Silence counts from the last byte that the pump received, not from its return."""
    ours = beating(3000, 1000)
    frame = peer.excerpt(peer.index(0), bytes(100))
    lent(ours, 2, len(frame), frame, heard=1.5, began=None)
    lent(ours, 1.4, 0, b"", heard=None, began=None)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 3\.0 s"):
        lent(ours, 0.1, 0, b"", heard=None, began=None)


@pytest.mark.parametrize("begun", [1, 10, 30])
def test_the_30_seconds_of_a_document_go_on_while_a_pump_has_it(begun: int) -> None:
    """A peer that trickles is heard, and closed all the same; whichever part has its bytes."""
    ours = peer.receiving_sink()
    frame, begun = peer.excerpt(peer.index(0), bytes(100)), len(peer.select()) + begun
    ours.receive(frame[:begun])
    for nth in range(29):
        came = frame[begun + nth : begun + nth + 1]
        lent(ours, 1, 0, came, heard=0.5, began=None)
    with pytest.raises(RemoteProtocolError, match="not complete after 30 s"):
        lent(ours, 1, 0, b"", heard=0.5, began=None)


def test_a_document_that_began_in_a_pump_has_30_seconds_from_its_first_byte() -> None:
    ours = peer.receiving_sink()
    frame = peer.excerpt(peer.index(0), bytes(100))
    lent(ours, 5, len(frame), frame + frame[:30], heard=1, began=4)
    began_at = ours.now - 4
    ours.tick(began_at + 29.9 - ours.now)
    with pytest.raises(RemoteProtocolError, match="not complete after 30 s"):
        ours.tick(0.1)


def test_a_document_that_a_pump_completes_stops_its_clock() -> None:
    """The next document, of which the pump has received a part, has a clock of its own."""
    for rest, began in ((b"", None), (peer.excerpt(peer.index(1), b"x")[:20], 0.5)):
        ours = peer.receiving_sink()
        frame = peer.excerpt(peer.index(0), bytes(100))
        ours.receive(frame[:30])
        ours.tick(29)
        lent(ours, 0.9, len(frame), frame[30:] + rest, heard=0.5, began=began)
        ours.tick(29)
        assert ours.connection.state is ConnectionState.OPEN


def test_what_a_pump_leaves_whole_is_taken() -> None:
    ours = peer.receiving_sink()
    frame = peer.excerpt(peer.index(0), bytes(100))
    ours.receive(frame[:30])
    data = ours.connection.hand_over() + frame[30:] + peer.heartbeat()
    ours.connection.hand_back(data, ours.now, heard=ours.now, began=None)
    assert peer.kinds(ours.events()) == [ev.AppendExcerpts]
    assert ours.connection.next_deadline() == 20


def test_bytes_that_cannot_be_read_wait_for_their_turn() -> None:
    ours = peer.receiving_sink()
    ours.connection.receive_data(peer.excerpt(peer.index(0), b"x") + bytes(4), ours.now)
    assert isinstance(ours.connection.next_event(), ev.AppendExcerpts)
    ours.tick(35)
    with pytest.raises(RemoteProtocolError, match="a zero word came"):
        ours.connection.next_event()


def test_whole_documents_may_wait_for_a_busy_shell() -> None:
    """Our own slowness is not the peer's: the clock runs for what has not come yet."""
    ours = peer.receiving_sink(heartbeat_timeout_ms=1000, heartbeat_interval_ms=500)
    ours.receive(peer.heartbeats(100_000, 50_000, cid=5))
    stream = b"".join(peer.excerpt(peer.index(2 * n), b"x") for n in range(2)) + bytes(4)
    ours.connection.receive_data(peer.excerpt(peer.index(0), b"x") + stream, ours.now)
    assert isinstance(ours.connection.next_event(), ev.AppendExcerpts)
    ours.tick(35)
    assert ours.connection.state is ConnectionState.OPEN


def test_silence_ends_the_connection_after_the_diallers_timeout() -> None:
    ours = peer.Ours(peer.Role.SINK, heartbeat_timeout_ms=9000)
    ours.receive(peer.uber(peer.SOURCE_ID, peer.SINK_ID), peer.heartbeats(3000, 1000))
    for _ in range(5):
        ours.tick(2.9)
        ours.receive(b"" if ours.now < 3 else peer.heartbeat())
    ours.receive(peer.heartbeat())
    assert ours.connection.next_deadline() <= ours.now + 3
    ours.tick(2.99)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 3\.0 s"):
        ours.tick(0.01)


@pytest.mark.parametrize("some", [peer.heartbeat(), peer.heartbeat()[:5], peer.select(), b"\x20"])
def test_any_byte_is_a_sign_of_life(some: bytes) -> None:
    ours = peer.Ours(peer.Role.SINK).greeted()
    ours.tick(39)
    ours.receive(some)
    ours.tick(29)
    assert ours.connection.state is ConnectionState.OPEN


def test_while_our_side_is_busy_no_silence_is_counted() -> None:
    """A shell that waits for its disk does not read: what came meanwhile lies in the socket."""
    ours = peer.receiving_sink()
    ours.connection.receive_data(peer.excerpt(peer.index(0), b"x"), ours.now)
    assert isinstance(ours.connection.next_event(), ev.AppendExcerpts)
    ours.tick(39)
    ours.tick(39)
    assert ours.connection.next_event() is None
    assert ours.connection.next_deadline() <= ours.now + 40
    ours.tick(39.9)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 40\.0 s"):
        ours.tick(0.1)


# calls of our own that are not allowed


@pytest.mark.parametrize(
    ("ours", "call"),
    [
        (lambda: peer.Ours(peer.Role.SOURCE), lambda c: peer.offer_queue(c)),
        (lambda: peer.Ours(peer.Role.SOURCE), lambda c: c.connection.end()),
        (lambda: peer.Ours(peer.Role.SOURCE), lambda c: c.frame(peer.CID, peer.batch(0, b"x"))),
        (peer.source, lambda c: c.frame(peer.CID, peer.batch(0, b"x"))),
        (peer.source, lambda c: c.connection.source(peer.HEARTBEAT_CID)),
        (peer.source, lambda c: c.connection.frame_size(peer.HEARTBEAT_CID, 5)),
        (peer.offering_source, lambda c: c.connection.answer_queue(peer.CID, 0, peer.SHIFT, None)),
        (peer.offering_source, lambda c: c.connection.end_back_copy(peer.CID)),
        (peer.offering_source, lambda c: c.connection.sink(peer.CID).stored(0, 0)),
        (peer.sink, lambda c: c.connection.answer_queue(peer.CID, 0, peer.SHIFT, None)),
        (peer.sink, lambda c: c.connection.sink(peer.HEARTBEAT_CID).stored(0, 0)),
        (peer.receiving_sink, lambda c: c.connection.begin_back_copy(peer.CID, 0, peer.SHIFT)),
        (peer.receiving_sink, lambda c: c.connection.source(peer.CID)),
    ],
    ids=range(13),
)
def test_a_call_out_of_turn_is_our_own_error_and_sends_nothing(
    ours: Callable[[], peer.Ours], call: Callable[[peer.Ours], object]
) -> None:
    this = ours()
    this.connection.data_to_send()
    state = this.connection.state
    with pytest.raises(LocalProtocolError):
        call(this)
    assert this.connection.state is state
    assert not this.connection.has_data_to_send
    assert this.events() == []


def test_cids_that_the_peer_took_are_stepped_over() -> None:
    ours = peer.Ours(peer.Role.SOURCE, cid_first=peer.HEARTBEAT_CID - 1).greeted()
    cids = [peer.offer_queue(ours, name=name) for name in ("a", "b", "c")]
    assert cids == [peer.HEARTBEAT_CID - 1, peer.HEARTBEAT_CID + 1, peer.HEARTBEAT_CID + 2]


# a peer that reads nothing


def test_acknowledgements_are_merged_while_the_peer_reads_nothing() -> None:
    ours = peer.receiving_sink()
    for n in range(20_000):
        (event,) = ours.receive(peer.excerpt(peer.index(n), b"x"))
        assert isinstance(event, ev.AppendExcerpts)
        ours.connection.tell_stored(peer.CID, peer.index(n), n)
    said = ours.connection.data_to_send()
    assert len(said) < 65 * 1024
    last = peer.decoded(said)[-1]
    assert (last["idx"], last["ns"]) == (peer.index(19_999), 19_999)
    assert not ours.connection.has_data_to_send


def test_an_acknowledgement_that_a_pump_has_overtaken_is_not_sent() -> None:
    ours = peer.receiving_sink()
    peer.crowd(ours)
    ours.receive(peer.excerpt(peer.index(0), b"x"))
    ours.connection.tell_stored(peer.CID, peer.index(0), 1)
    (handler,) = ours.connection.receiving()
    handler.took(peer.index(5))
    assert peer.index(0) not in [said["idx"] for said in ours.said() if "idx" in said]


def test_heartbeats_do_not_pile_up_while_the_peer_reads_nothing() -> None:
    ours = peer.receiving_sink()
    peer.crowd(ours)
    size = len(ours.connection._outbox.data)
    for _ in range(1000):
        ours.tick(20)
        ours.receive(peer.heartbeat())
    assert len(ours.connection._outbox.data) == size


# any segmentation


def test_a_run_of_events_is_one_event_of_ours() -> None:
    ours = peer.receiving_sink()
    stream = b"".join(peer.excerpt(peer.index(n), b"x") for n in range(50))
    (event,) = ours.receive(stream)
    assert isinstance(event, ev.AppendExcerpts)
    assert len(event.batch) == 50
