"""Registrations and routing: what is refused, where data goes, and which binding stays."""

import gzip
from itertools import product
from typing import Any

import pytest

from cqrepl.protocol import RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.states import ConnectionState
from cqrepl.protocol.uber import HANDLERS_MAX, REFUSALS_MAX
from tests.support.peer import (
    CID,
    CSP,
    HANDLERS,
    HEARTBEAT_CID,
    NAME,
    NS,
    REPLICATION,
    SHIFT,
    Hex,
    Message,
    Ours,
    Typed,
    block,
    data,
    document,
    end_of_stream,
    excerpt,
    heartbeat,
    heartbeats,
    index,
    items,
    kinds,
    literal,
    meta,
    offering_source,
    receiving_sink,
    register,
    replication_body,
    select,
    sink,
    sink_handler,
    source,
    source_handler,
    uber,
)
from wire.objects.variants import COMPRESSIONS

LEFT_OUT = data(re=block(items(Hex(index(0)), literal(b"x"), NS)))  # an event without its cid


def message(events: list[ev.Event]) -> str:
    """The text of the one refusal."""
    (event,) = events
    assert isinstance(event, ev.RegistrationRefused)
    return event.message


def accept(ours: Ours, cid: Cid = CID) -> None:
    ours.connection.answer_queue(cid, 0, SHIFT, None)
    ours.connection.data_to_send()


# what may be registered


HANDLER = sink_handler()


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize(
    "fields",
    [
        {"cid": CID, "csp": CSP, "handler": HANDLER},
        {"csp": CSP, "cid": CID, "handler": HANDLER, "later": "text"},
        {"first": "text", "csp": CSP, "cid": CID, "handler": HANDLER},
        {"csp": CSP, "between": 5, "cid": CID, "and": {"a": None}, "handler": HANDLER},
    ],
    ids=["cid first", "field behind", "field before", "fields between"],
)
def test_fields_of_a_registration_are_read_by_name(fields: Message, events: bool) -> None:
    """Java loses those with another order, and those with fields before `handler`."""
    assert kinds(sink().receive(document(fields, metadata=True, events=events))) == [
        ev.QueueOffered
    ]


SPLIT_ROUTES = {
    "field names": meta(csp=CSP, cid=CID),
    "event names": document({"csp": CSP, "cid": CID}, metadata=True, events=True),
    "cid first": meta(cid=CID, csp=CSP),
    "field behind": meta(csp=CSP, cid=CID, later="text"),
}


@pytest.mark.parametrize("route", SPLIT_ROUTES.values(), ids=SPLIT_ROUTES)
@pytest.mark.parametrize("metadata", [True, False])
def test_both_split_forms_register_a_queue(route: bytes, metadata: bool) -> None:
    ours = sink()
    assert ours.receive(route) == []
    assert kinds(ours.receive(document({"handler": HANDLER}, metadata=metadata))) == [
        ev.QueueOffered
    ]
    accept(ours)
    assert kinds(ours.receive(LEFT_OUT)) == [ev.AppendExcerpts]


def test_data_may_stand_between_the_halves_of_a_registration_that_repeats() -> None:
    ours = receiving_sink()
    assert kinds(ours.receive(meta(csp=CSP, cid=CID), LEFT_OUT)) == [ev.AppendExcerpts]
    assert "registered already" in message(ours.receive(data(handler=HANDLER)))


def test_a_half_registration_is_forgotten_at_the_next_meta_data() -> None:
    ours = sink()
    ours.receive(meta(csp=CSP, cid=CID), select(HEARTBEAT_CID))
    assert message(ours.receive(data(handler=HANDLER))) == "'handler' is not known to /"
    assert "without csp, cid or handler" in message(ours.receive(meta(handler=HANDLER)))


@pytest.mark.parametrize(
    "document",
    [
        meta(),
        meta(csp=CSP),
        meta(later="text"),
        meta(handler=HANDLER),
        meta(csp=CSP, handler=HANDLER),
        meta(cid=CID, handler=HANDLER),
        meta(csp=None, cid=CID, handler=HANDLER),
        meta(csp="/" + "x" * 1024, cid=CID, handler=HANDLER),
    ],
    ids=range(8),
)
def test_half_registrations_are_refused(document: bytes) -> None:
    ours = sink()
    assert "registration without" in message(ours.receive(document))
    assert ours.connection.state is ConnectionState.OPEN


# unknown handlers, unknown queues

CLASSES = [
    *("NoSuchHandler", "net.openhft.chronicle.network.cluster.handlers.CspTcpHandler"),
    *(f"{REPLICATION}SourceReplicationHandler2", "../../SinkReplicationHandler"),
    *("java.lang.Runtime", "javax.script.ScriptEngineManager", "builtins.eval", "os.system"),
    *("!!python/object/apply:os.system", "cqrepl.protocol.sink.SinkHandler", "__import__"),
    *("WireType", "SCQStore", "", "\0", "SinkReplicationHandler ", "sinkreplicationhandler"),
    "x" * 60_000,
]


@pytest.mark.parametrize("name", CLASSES, ids=[each[:30] for each in CLASSES])
def test_t3_an_unknown_handler_is_refused_and_deselects(name: str) -> None:
    """Threat T3. In Java the previous selection stays, and its handler gets foreign data."""
    ours = receiving_sink()
    text = message(ours.receive(register(CSP + "x", 902, Typed(name, replication_body()))))
    assert text.startswith("unknown handler ")
    assert len(text) < 500
    assert message(ours.receive(LEFT_OUT)) == "'re' for no handler"
    assert message(ours.receive(select(902))) == "cid 902 is not registered"
    assert kinds(ours.receive(excerpt(index(0), b"x"))) == [ev.AppendExcerpts]


@pytest.mark.parametrize("name", sorted(COMPRESSIONS))
def test_t17_nothing_in_the_protocol_is_compressed(name: str) -> None:
    """Threat T17. An excerpt is bytes, whatever they would become; a handler is no such bytes."""
    bomb = gzip.compress(bytes(1 << 24))
    ours = receiving_sink()
    (event,) = ours.receive(excerpt(index(0), bomb))
    assert isinstance(event, ev.AppendExcerpts)
    start = event.batch.offsets[0]
    assert event.batch.data[start : start + event.batch.lengths[0]] == bomb
    with pytest.raises(RemoteProtocolError) as caught:
        ours.receive(register(CSP + "x", 902, Typed(name, bomb)))
    assert len(str(caught.value)) < 500


def hostile_names() -> list[str | None]:
    """Threat T1: names that could pick a path, and names that are nearly right."""
    parts = ["..", "/", ".", "\0", "\\", "／", "．．", "~", "%2e%2e%2f", "\n", "\x1b[2J", " "]
    names: list[str | None] = [None, "", "metadata", "metadata.cq4t", "Q", "qq", "ｑ", "q\u0301"]
    names += ["/abs", "../x", "a/b", "C:\\q", "\\\\host\\q", "nul", "con", "-rf", "$(id)", "`id`"]
    names += [
        "q" * 300,
        "x" * 300,
        "é" * 300,
        "\U0001f600",
        "\ud800",
        "q\ud800",
        "\ufeffq",
        "q\u200b",
    ]
    names += [f"{one}{NAME}" for one in parts] + [f"{NAME}{one}" for one in parts]
    names += [f"{one}{NAME}{other}" for one, other in product(parts, parts)]
    names += [f"{one}{other}" for one, other in product(parts, parts)]
    return names


def test_every_hostile_name_is_refused() -> None:
    assert len(set(hostile_names())) >= 300
    ours = sink()
    for count, name in enumerate(hostile_names()):
        if count % REFUSALS_MAX == 0:
            ours = sink()
        text = message(ours.receive(register(CSP, CID, sink_handler(name=name))))
        assert "queue" in text
        assert text.isprintable()
        assert len(text) < 800
        assert ours.connection.state is ConnectionState.OPEN
        assert not ours.connection.has_data_to_send


def test_only_names_of_the_configuration_are_taken() -> None:
    ours = sink(takes=frozenset({"one", "two"}))
    offers = [
        register(f"/{each}", at, sink_handler(name=each))
        for at, each in enumerate(["one", "two", "three"])
    ]
    assert kinds(ours.receive(*offers)) == [
        ev.QueueOffered,
        ev.QueueOffered,
        ev.RegistrationRefused,
    ]


@pytest.mark.parametrize("next_index", [-1, -(1 << 63)])
def test_a_negative_position_is_refused(next_index: int) -> None:
    text = message(sink().receive(register(CSP, CID, sink_handler(next_index))))
    assert text == f"queue 'q': next index {next_index} is negative"


def test_nothing_is_taken_that_was_not_asked_for() -> None:
    text = message(sink().receive(register(CSP, CID, source_handler())))
    assert text == "an answer for 'q' at '/replication/q/2'"
    text = message(source().receive(register(CSP, CID, sink_handler())))
    assert text == "unknown queue 'q'"


# cids


@pytest.mark.parametrize(
    "again",
    [
        register("/other", CID, sink_handler()),
        register("/other", CID, sink_handler(name="p")),
        register("/other", CID, Typed(HANDLERS + "HeartbeatHandler", {})),
        register("/other", CID, Typed("NoSuchHandler", {})),
        register("/", CID, Typed("TerminatorHandler", {})),
        meta(csp="/other", cid=CID),
        register(CSP, CID, sink_handler()),
        register(CSP, CID, sink_handler(name="p")),
        register(CSP, CID, Typed(HANDLERS + "HeartbeatHandler", {})),
        register(CSP, CID, Typed("NoSuchHandler", {})),
        register(CSP, CID, Typed("UberHandler", {"remoteIdentifier": 1, "localIdentifier": 2})),
        register(CSP, 902, sink_handler()),
        register("/other", 902, sink_handler()),
    ],
    ids=range(13),
)
def test_the_first_binding_of_a_cid_stays(again: bytes) -> None:
    ours = receiving_sink(takes=frozenset({NAME, "p"}))
    message(ours.receive(again))
    assert message(ours.receive(LEFT_OUT)) == "'re' for no handler"
    (event,) = ours.receive(excerpt(index(0), b"x"))
    assert isinstance(event, ev.AppendExcerpts)
    assert event.name == NAME
    assert ours.said() == []


@pytest.mark.parametrize("csp", ["/", CSP, "/other"])
def test_the_cid_of_the_heartbeat_cannot_be_taken(csp: str) -> None:
    for ours in (sink(), sink(is_dialler=True, cid_first=HEARTBEAT_CID)):
        message(ours.receive(register(csp, HEARTBEAT_CID, sink_handler())))
        assert ours.receive(heartbeat()) == []


def test_a_selection_that_is_said_again_changes_nothing() -> None:
    """It is known by its bytes, and selects what it would have selected as a new one."""
    ours = receiving_sink()
    events = [data(re=block(items(Hex(index(at)), literal(b"x"), NS))) for at in range(4)]
    for event in events[:2]:
        assert kinds(ours.receive(select(CID), heartbeat(), select(CID), select(CID), event)) == [
            ev.AppendExcerpts
        ]
    for _ in range(2):
        assert message(ours.receive(select(4242))) == "cid 4242 is not registered"
        assert message(ours.receive(events[2])) == "'re' for no handler"
    assert "registration without" in message(ours.receive(meta(csp=None)))
    assert message(ours.receive(events[2])) == "'re' for no handler"
    assert kinds(ours.receive(select(CID), events[2])) == [ev.AppendExcerpts]
    half = meta(csp="/replication/other/1", cid=CID + 100)
    assert ours.receive(half, select(CID)) == []
    assert "'handler' is not known" in message(ours.receive(data(handler=sink_handler())))
    assert kinds(ours.receive(select(CID), events[3])) == [ev.AppendExcerpts]


@pytest.mark.parametrize("cid", [0, 1, -1, 1 << 32, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_a_cid_may_be_any_number_of_64_bits(cid: int) -> None:
    ours = sink()
    assert kinds(ours.receive(register(CSP, cid, sink_handler()))) == [ev.QueueOffered]
    ours.connection.answer_queue(Cid(cid), 0, SHIFT, None)
    assert {each["cid"] for each in ours.said() if "cid" in each} == {cid}
    assert kinds(ours.receive(excerpt(index(0), b"x", cid=cid))) == [ev.AppendExcerpts]


def test_a_cid_may_come_in_any_width_and_as_an_event_name() -> None:
    ours = receiving_sink()
    wide = b"\xa7" + CID.to_bytes(8, "little")
    for at, route in enumerate(
        [
            meta(cid=wide),
            document({"cid": wide}, metadata=True, events=True),
            meta(cid=CID, later="text"),
            document({"cid": CID}, metadata=True, events=True),
        ]
    ):
        event = data(re=block(items(Hex(index(at)), literal(b"x"), NS)))
        assert kinds(ours.receive(route, event)) == [ev.AppendExcerpts]


# data documents


def test_an_empty_data_document_says_nothing() -> None:
    ours = receiving_sink()
    for empty in (document(b"\x8f\x8f", metadata=False), document(b"\xbe\x01x", metadata=False)):
        assert ours.receive(select(), empty) == []


@pytest.mark.parametrize("name", ["what", "idx", "eos", "heartbeat", "", "x" * 200, "\x1b["])
def test_a_message_that_the_handler_does_not_know_is_refused(name: str) -> None:
    text = message(receiving_sink().receive(select(), data(**{name: 1})))
    assert text.endswith(f"is not known to {CSP}")
    assert len(text) < 200


def test_the_first_field_names_the_message() -> None:
    ours = receiving_sink()
    late = data(later="text", re=block(items(Hex(index(0)), literal(b"x"), NS)))
    assert "'later' is not known" in message(ours.receive(select(), late))


# limits


def test_100_refusals_pass_and_the_101st_closes() -> None:
    ours = sink()
    for count in range(1, REFUSALS_MAX + 1):
        (event,) = ours.receive(select(4000 + count))
        assert isinstance(event, ev.RegistrationRefused)
        assert event.count == count
    assert ours.connection.state is ConnectionState.OPEN
    with pytest.raises(RemoteProtocolError, match="more than 100 messages had to be refused"):
        ours.receive(select(4000))


@pytest.mark.parametrize("own", [False, True])
def test_the_handlers_of_a_connection_are_limited(own: bool) -> None:
    names = [f"q{n}" for n in range(HANDLERS_MAX + 5)]
    ours = sink(takes=frozenset(names), is_dialler=own)
    assert HANDLERS_MAX == 16_384
    offers = [
        register(f"/{name}", 5000 + at, sink_handler(name=name)) for at, name in enumerate(names)
    ]
    events = ours.receive(*offers)
    taken = [event for event in events if isinstance(event, ev.QueueOffered)]
    refused = [event for event in events if isinstance(event, ev.RegistrationRefused)]
    assert len(taken) == HANDLERS_MAX - 1  # and the heartbeat
    assert {event.message for event in refused} == {"more than 16384 handlers"}
    assert len(refused) == len(names) - len(taken)


def test_a_second_heartbeat_and_a_second_greeting_are_refused() -> None:
    """Java answers the former and ignores the latter."""
    ours = sink()
    assert message(ours.receive(heartbeats(cid=78))) == "a second HeartbeatHandler"
    assert message(ours.receive(uber(1, 2))) == (
        "a registration without csp, cid or handler, or with a long csp"
    )
    greeting: Any = Typed("UberHandler", {"remoteIdentifier": 1, "localIdentifier": 2})
    assert message(ours.receive(register("/", 78, greeting))) == "a second UberHandler"
    assert ours.said() == []


def test_answers_that_no_offer_waits_for_are_refused() -> None:
    ours = offering_source()
    for answer in (
        register("/other", 902, source_handler()),
        register(CSP, 902, source_handler(name="other")),
        register(CSP, CID, source_handler(name="other")),
    ):
        assert message(ours.receive(answer)).startswith("an answer for ")
    assert message(ours.receive(register("/other", CID, source_handler()))) == (
        f"cid {CID} is bound to {CSP!r}, not to '/other'"
    )
    assert ours.receive(register(CSP, CID, source_handler())) == []
    assert message(ours.receive(register(CSP, CID, source_handler()))) == (
        "a second answer for queue 'q'"
    )
    assert kinds(ours.receive(end_of_stream())) == [ev.StreamingStarted]


def test_an_answer_may_come_under_a_cid_of_its_own() -> None:
    ours = offering_source()
    assert ours.receive(register(CSP, 5, source_handler())) == []
    assert kinds(ours.receive(end_of_stream(5))) == [ev.StreamingStarted]
    assert ours.connection.source(Cid(5)) is ours.connection.source(CID)
