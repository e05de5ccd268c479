"""The connection as a whole: limits of bytes and time, bad bytes, calls out of turn."""

import math
import tracemalloc
from collections.abc import Callable

import pytest

from cqrepl.protocol import (
    PAYLOAD_MAX,
    Connection,
    LocalProtocolError,
    RemoteProtocolError,
    StopReason,
)
from cqrepl.protocol import events as ev
from cqrepl.protocol.connection import GREETING_BYTES_MAX
from cqrepl.protocol.settings import FRAME_OVERHEAD_MAX
from cqrepl.protocol.states import ConnectionState
from tests.support.peer import (
    CID,
    CSP,
    HEARTBEAT_CID,
    NAME,
    SHIFT,
    SINK_ID,
    SOURCE_ID,
    Ours,
    Role,
    Typed,
    batch,
    block,
    connection_config,
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
    uber,
)

# limits of bytes


def refused(ours: Ours, *documents: bytes) -> str:
    """The peer's error, after which nothing at all happens on the connection."""
    with pytest.raises(RemoteProtocolError) as caught:
        ours.receive(*documents)
    assert ours.connection.state is ConnectionState.CLOSED
    assert ours.receive(uber(1, 2), heartbeat()) == []
    assert ours.connection.next_deadline() == math.inf
    ours.tick(1e9)
    return str(caught.value)


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
        document(b"\xb9\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", metadata=False),
        document(b"\xc3cid\xe3abc", metadata=True),
        document(b"\xc3cid", metadata=True),
        document(b"\xc3csp\x05\xc3cid\x05", metadata=True),
        document(b"\xc3csp\xe1\xff\xc3cid\x05", metadata=True),
        meta(csp=CSP, cid=CID, handler=Typed("SinkReplicationHandler", {"queueName": 5})),
    ],
    ids=range(14),
)
@pytest.mark.parametrize("ours", [sink, receiving_sink, streaming_source], ids=lambda o: o.__name__)
def test_bytes_that_cannot_be_read_close(ours: Callable[[], Ours], bad: bytes) -> None:
    refused(ours(), bad)


@pytest.mark.parametrize(
    "bad",
    [
        document(b"\xc2re", metadata=False),
        document(b"\xc2re\x82\xff\xff\xff\x7f", metadata=False),
        document(b"\xc2re\xb6\x05abc", metadata=False),
        data(re="text"),
        data(re=items(1, "text")),
        data(re=items("text", b"\x80\x00")),
        data(re=block(items(1, b"\x80\x05abc"))),
        data(re=block(items(1, b"\x80\x00", "text"))),
        data(idx="text"),
        data(idx=1, ns="text"),
        data(idx=items(1, 2)),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("ours", [receiving_sink, streaming_source], ids=lambda o: o.__name__)
def test_messages_of_the_wrong_form_close(ours: Callable[[], Ours], bad: bytes) -> None:
    this = ours()
    if b"idx" in bad and ours is receiving_sink:
        assert kinds(this.receive(select(), bad)) == [
            ev.RegistrationRefused
        ]  # no message for a sink
    else:
        refused(this, select(), bad)


# limits of time


@pytest.mark.parametrize("is_dialler", [True, False])
def test_the_greeting_has_5_seconds(is_dialler: bool) -> None:
    ours = Ours(Role.SINK, is_dialler=is_dialler)
    assert ours.connection.next_deadline() == 5.0
    ours.tick(4.99)
    ours.receive(header(100))
    with pytest.raises(RemoteProtocolError, match=r"no greeting .* within 5 s"):
        ours.tick(0.01)
    assert ours.connection.state is ConnectionState.CLOSED


def test_a_greeting_in_time_lifts_the_limit() -> None:
    ours = Ours(Role.SINK)
    ours.tick(4.99)
    ours.receive(uber(SOURCE_ID, SINK_ID), heartbeats())
    ours.tick(10)
    assert ours.connection.state is ConnectionState.OPEN


def drip(ours: Ours, some: bytes) -> None:
    """A byte a second."""
    for byte in some:
        assert ours.receive(bytes([byte])) == []
        ours.tick(1)


def test_a_document_that_started_must_end_in_30_seconds_however_it_drips() -> None:
    ours = receiving_sink()
    frame = excerpt(index(0), bytes(100))
    drip(ours, frame[:29])
    # the cid document took 17 of them; the event's own clock began with its first byte
    drip(ours, frame[29:40])
    assert ours.connection.next_deadline() < ours.now + 30
    with pytest.raises(RemoteProtocolError, match="not complete after 30 s"):
        drip(ours, frame[40:])


def test_the_next_document_has_its_own_30_seconds() -> None:
    ours = receiving_sink()
    frame = data(heartbeat="")
    for _ in range(5):
        ours.receive(select(HEARTBEAT_CID), frame[:3])
        ours.tick(29.9)
        ours.receive(frame[3:])
    assert ours.connection.state is ConnectionState.OPEN


def test_a_document_that_came_whole_stops_its_clock() -> None:
    ours = receiving_sink()
    ours.receive(select(HEARTBEAT_CID), data(heartbeat="")[:3])
    ours.tick(10)
    ours.receive(data(heartbeat="")[3:])
    ours.tick(25)
    assert ours.connection.next_deadline() > ours.now


def beating(timeout_ms: int, interval_ms: int) -> Ours:
    """A sink that receives a queue, with these numbers of the dialler's."""
    ours = Ours(Role.SINK)
    ours.receive(uber(SOURCE_ID, SINK_ID), heartbeats(timeout_ms, interval_ms))
    ours.receive(register(CSP, CID, sink_handler(0)))
    ours.connection.answer_queue(CID, 0, SHIFT, None)
    return ours


def lent(
    ours: Ours, seconds: float, took: int, came: bytes, *, heard: float | None, began: float | None
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
    ours.receive(excerpt(index(0), bytes(100))[:50])
    for _ in range(5):
        lent(ours, 0.5, 0, b"", heard=None, began=None)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 3\.0 s"):
        lent(ours, 0.5, 0, b"", heard=None, began=None)


def test_a_pump_that_took_all_has_heard_no_more_than_it_says() -> None:
    """Silence counts from the last byte that the pump received, not from its return."""
    ours = beating(3000, 1000)
    frame = excerpt(index(0), bytes(100))
    lent(ours, 2, len(frame), frame, heard=1.5, began=None)
    lent(ours, 1.4, 0, b"", heard=None, began=None)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 3\.0 s"):
        lent(ours, 0.1, 0, b"", heard=None, began=None)


@pytest.mark.parametrize("begun", [1, 10, 30])
def test_the_30_seconds_of_a_document_go_on_while_a_pump_has_it(begun: int) -> None:
    """A peer that trickles is heard, and closed all the same; whichever part has its bytes."""
    ours = receiving_sink()
    frame, begun = excerpt(index(0), bytes(100)), len(select()) + begun
    ours.receive(frame[:begun])
    for nth in range(29):
        came = frame[begun + nth : begun + nth + 1]
        lent(ours, 1, 0, came, heard=0.5, began=None)
    with pytest.raises(RemoteProtocolError, match="not complete after 30 s"):
        lent(ours, 1, 0, b"", heard=0.5, began=None)


def test_a_document_that_began_in_a_pump_has_30_seconds_from_its_first_byte() -> None:
    ours = receiving_sink()
    frame = excerpt(index(0), bytes(100))
    lent(ours, 5, len(frame), frame + frame[:30], heard=1, began=4)
    began_at = ours.now - 4
    ours.tick(began_at + 29.9 - ours.now)
    with pytest.raises(RemoteProtocolError, match="not complete after 30 s"):
        ours.tick(0.1)


def test_a_document_that_a_pump_completes_stops_its_clock() -> None:
    """The next document, of which the pump has received a part, has a clock of its own."""
    for rest, began in ((b"", None), (excerpt(index(1), b"x")[:20], 0.5)):
        ours = receiving_sink()
        frame = excerpt(index(0), bytes(100))
        ours.receive(frame[:30])
        ours.tick(29)
        lent(ours, 0.9, len(frame), frame[30:] + rest, heard=0.5, began=began)
        ours.tick(29)
        assert ours.connection.state is ConnectionState.OPEN


def test_what_a_pump_leaves_whole_is_taken() -> None:
    ours = receiving_sink()
    frame = excerpt(index(0), bytes(100))
    ours.receive(frame[:30])
    data = ours.connection.hand_over() + frame[30:] + heartbeat()
    ours.connection.hand_back(data, ours.now, heard=ours.now, began=None)
    assert kinds(ours.events()) == [ev.AppendExcerpts]
    assert ours.connection.next_deadline() == 20


def test_bytes_that_cannot_be_read_wait_for_their_turn() -> None:
    ours = receiving_sink()
    ours.connection.receive_data(excerpt(index(0), b"x") + bytes(4), ours.now)
    assert isinstance(ours.connection.next_event(), ev.AppendExcerpts)
    ours.tick(35)
    with pytest.raises(RemoteProtocolError, match="a zero word came"):
        ours.connection.next_event()


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
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 3\.0 s"):
        ours.tick(0.01)


@pytest.mark.parametrize("some", [heartbeat(), heartbeat()[:5], select(), b"\x20"])
def test_any_byte_is_a_sign_of_life(some: bytes) -> None:
    ours = Ours(Role.SINK).greeted()
    ours.tick(39)
    ours.receive(some)
    ours.tick(29)
    assert ours.connection.state is ConnectionState.OPEN


def test_while_our_side_is_busy_no_silence_is_counted() -> None:
    """A shell that waits for its disk does not read: what came meanwhile lies in the socket."""
    ours = receiving_sink()
    ours.connection.receive_data(excerpt(index(0), b"x"), ours.now)
    assert isinstance(ours.connection.next_event(), ev.AppendExcerpts)
    ours.tick(39)
    ours.tick(39)
    assert ours.connection.next_event() is None
    assert ours.connection.next_deadline() <= ours.now + 40
    ours.tick(39.9)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 40\.0 s"):
        ours.tick(0.1)


def test_without_a_heartbeat_our_own_timeout_counts() -> None:
    ours = Ours(Role.SINK, heartbeat_timeout_ms=9000)
    ours.receive(uber(SOURCE_ID, SINK_ID))
    assert ours.connection.next_deadline() == 9.0
    ours.tick(8.9)
    with pytest.raises(RemoteProtocolError, match=r"nothing received for 9\.0 s"):
        ours.tick(0.1)


def test_nothing_is_due_on_a_closed_connection() -> None:
    ours = sink()
    ours.connection.receive_end(0)
    assert ours.connection.next_deadline() == math.inf
    ours.tick(1e9)


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


def test_an_acknowledgement_that_a_pump_has_overtaken_is_not_sent() -> None:
    ours = receiving_sink()
    crowd(ours)
    ours.receive(excerpt(index(0), b"x"))
    ours.connection.stored(CID, index(0), 1)
    (handler,) = ours.connection.receiving()
    handler.took(index(5))
    assert index(0) not in [said["idx"] for said in ours.said() if "idx" in said]


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
    config = connection_config(host_id=2)
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
