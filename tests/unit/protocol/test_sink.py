"""The sink's side of one queue: answer, back copy, received excerpts, acknowledgements."""

import pytest

from cqrepl.protocol import QueueShape, StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.states import ConnectionState
from tests.support.peer import (
    CID,
    CSP,
    NAME,
    NS,
    SHAPE_FIELDS,
    SHIFT,
    Hex,
    Message,
    Ours,
    Typed,
    block,
    data,
    document,
    excerpt,
    excerpts,
    index,
    items,
    kinds,
    literal,
    receiving_sink,
    register,
    select,
    sink,
    sink_handler,
)

SHAPE = QueueShape(roll_cycle="FAST_DAILY", epoch=0, index_count=4096, index_spacing=256)
SELECTED = {"meta": True, "cid": CID}
END = [SELECTED, {"eos": None}]
Received = list[tuple[type, int, list[bytes]]]


def received(events: list[ev.Event]) -> Received:
    found: Received = []
    for event in events:
        assert isinstance(event, ev.AppendExcerpts | ev.CompareExcerpts)
        assert (event.cid, event.name) == (CID, NAME)
        payloads = [bytes(payload) for _, payload in event.batch]
        found.append((type(event), event.batch.index_first, payloads))
    return found


def offered(next_index: int = 0, **more: object) -> Ours:
    ours = sink()
    (event,) = ours.receive(register(CSP, CID, sink_handler(next_index, **more)))
    assert isinstance(event, ev.QueueOffered)
    assert not ours.connection.has_data_to_send
    return ours


def answer_said(next_index: int, **more: object) -> Message:
    body = {
        "queueName": NAME,
        "wireType": "BINARY_LIGHT",
        "acknowledgement": True,
        "nextIndexRequired": next_index,
        "sourceId": 1002,
    }
    handler = ("SourceReplicationHandler", body | more)
    return {"meta": True, "csp": CSP, "cid": CID, "handler": handler}


# answer and back copy


def test_fields_of_the_offer_come_back_as_they_were() -> None:
    ours = offered(acknowledgement=False, sourceId=-7)
    ours.connection.answer_queue(CID, index(2), SHIFT, None)
    said = ours.said()
    assert said == [answer_said(index(2), acknowledgement=False, sourceId=-7)]


def test_a_source_that_announced_the_extension_gets_it_back() -> None:
    ours = offered(cqrepl=SHAPE_FIELDS)
    ours.connection.answer_queue(CID, 0, SHIFT, SHAPE)
    assert ours.said() == [answer_said(0, cqrepl=SHAPE_FIELDS), *END]


def test_an_offer_may_be_declined_without_a_word() -> None:
    ours = offered()
    ours.connection.stop_queue(CID, StopReason.REFUSED, "another roll cycle")
    (event,) = ours.receive(excerpt(index(0), b"x"))
    assert isinstance(event, ev.QueueStopped)
    assert ours.said() == []


# received excerpts


@pytest.mark.parametrize("at", [index(4), index(1, 1), index(9, 5), -1, -(1 << 63)])
def test_a_gap_stops_the_queue_and_only_that(at: int) -> None:
    ours = receiving_sink(index(3), index(3), takes=frozenset({NAME, "p"}))
    other = register("/replication/p/2", CID + 1, sink_handler(name="p"))
    ours.receive(other)
    ours.connection.answer_queue(Cid(CID + 1), 0, SHIFT, None)
    ours.connection.data_to_send()
    (event,) = ours.receive(excerpt(at, b"x"), excerpt(index(3), b"y"))
    assert isinstance(event, ev.QueueStopped)
    assert event.reason is StopReason.GAP
    assert str(at) in event.message or f"{at:#x}" in event.message
    assert ours.said() == []
    (event,) = ours.receive(excerpt(index(0), b"x", cid=CID + 1))
    assert isinstance(event, ev.AppendExcerpts)
    assert event.name == "p"
    assert ours.connection.state is ConnectionState.OPEN


def test_what_came_before_a_gap_is_stored() -> None:
    ours = receiving_sink()
    stream = excerpts(index(0), b"a", b"b") + excerpt(index(5), b"f")
    ours.connection.receive_data(stream, 0)
    event = ours.connection.next_event()
    assert isinstance(event, ev.AppendExcerpts)
    ours.connection.tell_stored(CID, event.batch.index_last, event.ns)
    assert ours.said()[-1] == {"idx": index(1), "ns": NS + 1}
    assert kinds(ours.events()) == [ev.QueueStopped]


USUAL = items(Hex(index(0)), literal(b"x"), NS)
OTHER_FORMS = {
    "type prefix": data(re=Typed("ReplicatedEvent", block(USUAL))),
    "event name": document({"re": block(USUAL)}, metadata=False, events=True),
    "short block": data(re=b"\x80" + bytes([len(USUAL)]) + USUAL),
    "inline": data(re=USUAL),
    "index as int64": data(
        re=block(items(b"\xa7", index(0).to_bytes(8, "little"), literal(b"x"), NS))
    ),
    "without time": data(re=block(items(Hex(index(0)), literal(b"x")))),
    "float time": data(re=block(items(Hex(index(0)), literal(b"x"), 1 << 40))),
    "small time": data(re=block(items(Hex(index(0)), literal(b"x"), 5))),
    "wide payload": data(re=block(items(Hex(index(0)), b"\x82\x01\0\0\0x", NS))),
    "fourth value": data(re=block(USUAL + items("more"))),
    "16-bit length": data(re=b"\x81" + len(USUAL).to_bytes(2, "little") + USUAL),
    "long field name": document(b"\xb7\x02re" + block(USUAL), metadata=False),
    "16-bit payload": data(re=block(items(Hex(index(0)), b"\x81\x01\0x", NS))),
    "field behind": data(re=block(USUAL), later=1),
    "fields behind": data(re=block(USUAL), a=1, b=True, c=None, d={"e": 2}),
    "padded": document(b"\x8f\xc2re\x8f" + block(b"\x8f" + USUAL + b"\x8f"), metadata=False),
    "commented": document(b"\xc2re\xbe\x01x" + block(USUAL) + b"\xbe\x01y", metadata=False),
}


@pytest.mark.parametrize("form", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_every_form_of_an_event_gives_the_same(form: bytes) -> None:
    """The fast lane knows the usual form only; the other forms stand among usual ones here."""
    ours = receiving_sink()
    events = ours.receive(select(), form, excerpt(index(1), b"y"))
    assert {kind for kind, _, _ in received(events)} == {ev.AppendExcerpts}
    payloads = [payload for _, _, each in received(events) for payload in each]
    assert (received(events)[0][1], payloads) == (index(0), [b"x", b"y"])


# acknowledgements


def test_every_stored_run_has_its_own_while_the_peer_reads() -> None:
    ours = receiving_sink()
    for at in range(3):
        ours.receive(excerpt(index(at), b"x"))
        ours.connection.tell_stored(CID, index(at), NS)
    assert [each["idx"] for each in ours.said() if "idx" in each] == [index(at) for at in range(3)]


def test_a_repeat_is_acknowledged_like_any_other() -> None:
    ours = receiving_sink(index(3), index(3))
    (event,) = ours.receive(excerpt(index(1), b"x"))
    assert isinstance(event, ev.CompareExcerpts)
    ours.connection.tell_stored(CID, index(1), event.ns)
    assert ours.said() == [SELECTED, {"idx": index(1), "ns": NS}]


def test_without_the_sources_wish_there_are_none() -> None:
    ours = offered(acknowledgement=False)
    ours.connection.answer_queue(CID, 0, SHIFT, None)
    ours.connection.data_to_send()
    ours.receive(excerpt(index(0), b"x"))
    ours.connection.tell_stored(CID, index(0), NS)
    assert ours.said() == []


@pytest.mark.parametrize("ns", [0, -1, 255, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_any_time_can_be_echoed(ns: int) -> None:
    ours = receiving_sink()
    (event,) = ours.receive(excerpt(index(0), b"x", ns))
    assert isinstance(event, ev.AppendExcerpts)
    ours.connection.tell_stored(CID, index(0), event.ns)
    assert ours.said()[-1]["ns"] == ns
