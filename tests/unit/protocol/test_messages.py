"""Every message against the bytes that Java wrote for it, and every form a reader must take."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cqrepl.protocol.messages import (
    SINK_HANDLER,
    SOURCE_HANDLER,
    Handler,
    HeartbeatHandler,
    QueueShape,
    ReplicationHandler,
    Routing,
    TerminatorHandler,
    UberHandler,
    UnknownHandler,
    WireShape,
    read_acknowledgement,
    read_replication_event,
    read_routing,
    write_acknowledgement,
    write_cid,
    write_end_of_stream,
    write_heartbeat,
    write_registration,
    write_replication_event,
    write_uber,
)
from cqrepl.protocol.messages.excerpts import Promise, StopSaid, read_stopped, write_stopped
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue.format.epochs import NUMBER_MAX, Epoch
from cqrepl.queue.format.index import Index
from tests.support.peer import (
    CID,
    CSP,
    HANDLERS,
    REPLICATION,
    SHAPE_FIELDS,
    TERMINATOR,
    Typed,
    decoded,
    document,
    index,
    items,
    meta,
    register,
    replication_body,
)
from wire import Reader, Splitter, WireError

VECTORS = Path(__file__).parents[2] / "vectors" / "wire" / "replication.jsonl"
ALL = [json.loads(line) for line in VECTORS.read_text().splitlines()]
CLUSTER = "global"  # the one that the seed shape names
SHAPE = QueueShape(roll_cycle="FAST_DAILY", epoch=0, index_count=4096, index_spacing=256)


def vectors(*starts: str) -> Any:
    chosen = [each for each in ALL if each["name"].startswith(starts)]
    assert chosen
    return pytest.mark.parametrize("vector", chosen, ids=[each["name"] for each in chosen])


def calls(vector: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the calls that wrote the vector, by field name."""
    found: dict[str, Any] = {}
    for each in vector["build"]:
        for name, _, arguments in each["calls"]:
            key = name["event"] if isinstance(name, dict) and "event" in name else name
            if isinstance(key, str):
                found[key] = arguments
    return found


def body(vector: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name, fields = calls(vector)["handler"]
    return name, {key: arguments[0] for key, _, arguments in fields}


def documents(stream: bytes) -> list[Reader]:
    splitter = Splitter(1 << 30)
    splitter.feed(stream)
    return [Reader(each.body) for each in iter(splitter.next_document, None)]


def routing_of(stream: bytes) -> Routing:
    """The csp, the cid and the handler of one registration, in one document or in two."""
    parts = [read_routing(reader) for reader in documents(stream)]
    return Routing(
        csp=next((part.csp for part in parts if part.csp is not None), None),
        cid=next((part.cid for part in parts if part.cid is not None), None),
        handler=parts[-1].handler,
    )


def shape_of(vector: dict[str, Any]) -> WireShape:
    return WireShape.SEED if ".seed" in vector["name"] else WireShape.NETWORK


@vectors("uber.")
def test_uber_handlers(vector: dict[str, Any]) -> None:
    stream = bytes.fromhex(vector["hex"])
    if vector["wire"] == "TEXT":
        with pytest.raises(WireError):
            routing_of(stream)
        return
    _, fields = body(vector)
    handler = UberHandler(
        remote_id=fields["remoteIdentifier"],
        local_id=fields["localIdentifier"],
        wire_type=fields["wireType"]["wiretype"],
    )
    assert routing_of(stream) == Routing(csp=None, cid=None, handler=handler)
    if fields.get("clusterName", CLUSTER) == CLUSTER:
        assert write_uber(handler, shape_of(vector)) == stream


@vectors("heartbeatHandler.")
def test_heartbeat_handlers(vector: dict[str, Any]) -> None:
    _, fields = body(vector)
    (csp,), (cid,) = calls(vector)["csp"], calls(vector)["cid"]
    handler = HeartbeatHandler(
        timeout_ms=fields["heartbeatTimeoutMs"], interval_ms=fields["heartbeatIntervalMs"]
    )
    stream = bytes.fromhex(vector["hex"])
    assert routing_of(stream) == Routing(csp=csp, cid=cid, handler=handler)
    if ".onedoc" not in vector["name"]:
        assert write_registration(csp, cid, handler, shape_of(vector)) == stream


@vectors("SinkReplicationHandler.", "SourceReplicationHandler.", REPLICATION)
def test_replication_handlers(vector: dict[str, Any]) -> None:
    name, fields = body(vector)
    (csp,), (cid,) = calls(vector)["csp"], calls(vector)["cid"]
    kind = name.removeprefix(REPLICATION)
    assert kind in (SINK_HANDLER, SOURCE_HANDLER)
    handler = ReplicationHandler(
        kind=kind,
        queue_name=fields["queueName"],
        acknowledgement=fields["acknowledgement"],
        next_index=fields["nextIndexRequired"],
        source_id=fields["sourceId"],
    )
    stream = bytes.fromhex(vector["hex"])
    assert routing_of(stream) == Routing(csp=csp, cid=cid, handler=handler)
    if name != kind:
        return  # ours are written with the short name
    if ".seed" in vector["name"] or "noack" in vector["name"]:
        assert write_registration(csp, cid, handler, WireShape.SEED) == stream
    else:  # these have field names, ours event names as Java's own classes have
        ours = write_registration(csp, cid, handler, WireShape.NETWORK)
        assert decoded(ours) == decoded(stream)


@vectors("heartbeat(")
def test_heartbeats(vector: dict[str, Any]) -> None:
    (cid,) = calls(vector)["cid"]
    assert write_cid(cid) + write_heartbeat() == bytes.fromhex(vector["hex"])


@vectors("eos")
def test_ends_of_stream(vector: dict[str, Any]) -> None:
    (cid,) = calls(vector)["cid"]
    stream = bytes.fromhex(vector["hex"])
    assert documents(stream)[1].read_name() == "eos"
    if vector["name"] == "eos":
        assert write_cid(cid) + write_end_of_stream() == stream


@vectors("ack(")
def test_acknowledgements(vector: dict[str, Any]) -> None:
    (cid,), (at,), (ns,) = (calls(vector)[name] for name in ("cid", "idx", "ns"))
    stream = bytes.fromhex(vector["hex"])
    assert write_cid(cid) + write_acknowledgement(at, ns) == stream
    selected, reader = documents(stream)
    assert read_routing(selected) == Routing(csp=None, cid=cid, handler=None)
    assert reader.read_name() == "idx"
    assert read_acknowledgement(reader) == (at, ns)


@vectors("re.")
def test_replication_events(vector: dict[str, Any]) -> None:
    stream = bytes.fromhex(vector["hex"])
    written = b""
    readers = documents(stream)
    for at in range(0, len(vector["build"]), 2):
        (cid,) = vector["build"][at]["calls"][0][2]
        ((_, _, (number,)), (_, _, (payload,)), (_, _, (ns,))) = vector["build"][at + 1]["calls"][
            0
        ][2][0]
        content = bytes.fromhex(payload["hex"]) * payload.get("times", 1)
        written += write_cid(cid) + write_replication_event(number, content, ns)
        assert readers[at + 1].read_name() == "re"
        batch, ns_read = read_replication_event(readers[at + 1])
        assert [(each, bytes(view)) for each, view in batch] == [(number, content)]
        # some numbers are written as 32-bit floats, and 2^63-1 comes back as such
        assert ns_read == ns
    assert written == stream


# forms that no vector has


@pytest.mark.parametrize(
    "handler",
    [
        UberHandler(remote_id=1, local_id=2),
        HeartbeatHandler(timeout_ms=3000, interval_ms=1000),
        ReplicationHandler(
            kind=SOURCE_HANDLER,
            queue_name="ü",
            acknowledgement=False,
            next_index=index(5),
            source_id=-1,
            shape=SHAPE,
        ),
        ReplicationHandler(
            kind=SINK_HANDLER,
            queue_name="q",
            acknowledgement=True,
            next_index=index(5),
            source_id=0,
            shape=SHAPE,
            epochs=(Epoch(1, 2, Index(0)), Epoch(NUMBER_MAX, 127, Index(index(5)))),
        ),
        ReplicationHandler(
            kind=SINK_HANDLER,
            queue_name="q",
            acknowledgement=True,
            next_index=index(5),
            source_id=0,
            shape=SHAPE,
            epochs=(
                Epoch(1, 2, Index(0), 7),
                Epoch(8, 1, Index(3)),
                Epoch(NUMBER_MAX, 1, Index(4)),
            ),
        ),
        TerminatorHandler(),
    ],
    ids=lambda handler: type(handler).__name__,
)
@pytest.mark.parametrize("shape", list(WireShape))
def test_what_is_written_is_read(handler: Handler, shape: WireShape) -> None:
    if isinstance(handler, UberHandler):
        assert routing_of(write_uber(handler, shape)).handler == handler
    else:
        stream = write_registration(CSP, CID, handler, shape)
        assert routing_of(stream) == Routing(csp=CSP, cid=CID, handler=handler)
        assert len(documents(stream)) == (1 if shape is WireShape.NETWORK else 2)


def offer(**more: Any) -> ReplicationHandler:
    """The offer of a queue without excerpts, with the extension."""
    return ReplicationHandler(
        kind=SINK_HANDLER,
        queue_name="q",
        acknowledgement=True,
        next_index=0,
        source_id=1,
        shape=SHAPE,
        **more,
    )


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("1 2", (1, 2)),
        ("127", (127,)),
        (" ".join(["7"] * 127), (7,) * 127),
        (" ".join(["7"] * 128), ()),
        ("1  2", ()),
        ("1 128", ()),
        ("0", ()),
        ("", ()),
        (5, ()),
    ],
)
def test_the_path_of_hosts_is_read_as_far_as_it_is_one(said: object, wanted: object) -> None:
    fields = replication_body() | {"cqrepl": {"v": 1, "passedBy": said}}
    stream = register(CSP, CID, Typed(REPLICATION + SINK_HANDLER, fields))
    handler = routing_of(stream).handler
    assert isinstance(handler, ReplicationHandler)
    assert handler.passed_by == wanted


def test_the_path_of_hosts_is_written_where_there_is_one() -> None:
    handler = offer(passed_by=(1, 20))
    stream = write_registration(CSP, CID, handler, WireShape.NETWORK)
    assert routing_of(stream).handler == handler
    (said,) = decoded(stream)
    assert said["handler"][1]["cqrepl"]["passedBy"] == "1 20"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("1 -2", (1, -2)),
        (" ".join(["7"] * 128), ()),
        ("1 x", ()),
        ("1" * 20, ()),
        ("", ()),
        (5, ()),
    ],
)
def test_the_places_on_the_way_are_read_as_far_as_they_are_some(
    said: object, wanted: object
) -> None:
    fields = {"v": 1, "firstCycle": 3, "place": 9, "placesBefore": said}
    body = replication_body() | {"cqrepl": fields}
    handler = routing_of(register(CSP, CID, Typed(REPLICATION + SINK_HANDLER, body))).handler
    assert isinstance(handler, ReplicationHandler)
    assert handler.lineage is not None
    assert handler.lineage.places_before == wanted
    assert handler.lineage.places == (*handler.lineage.places_before, 9)


def test_the_places_on_the_way_are_written_where_there_are_some() -> None:
    lineage = Lineage(first_cycle=3, place=9, places_before=(1, -20))
    handler = offer(lineage=lineage)
    stream = write_registration(CSP, CID, handler, WireShape.NETWORK)
    assert routing_of(stream).handler == handler


def test_the_extension_is_one_block_and_comes_last() -> None:
    handler = offer()
    (said,) = decoded(write_registration(CSP, CID, handler, WireShape.NETWORK))
    fields = said["handler"][1]
    assert list(fields) == [
        "queueName",
        "wireType",
        "acknowledgement",
        "nextIndexRequired",
        "sourceId",
        "cqrepl",
    ]
    assert list(fields["cqrepl"].items()) == list(SHAPE_FIELDS.items())
    assert str(SHAPE) == "FAST_DAILY, epoch 0, index 4096/256"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (HANDLERS + "UberHandler", {"remoteIdentifier": 1, "localIdentifier": 2}),
        (HANDLERS + "HeartbeatHandler", {"heartbeatTimeoutMs": 1, "heartbeatIntervalMs": 2}),
        (REPLICATION + SINK_HANDLER, replication_body()),
        (REPLICATION + SOURCE_HANDLER, replication_body()),
        (TERMINATOR, {}),
    ],
)
@pytest.mark.parametrize("length_code", [0x80, 0x81, 0x82])
@pytest.mark.parametrize("events", [True, False])
def test_full_and_short_names_and_all_lengths_of_a_body(
    name: str, fields: dict[str, Any], length_code: int, events: bool
) -> None:
    content = items(fields)[5:]  # without its own code and length
    width = {0x80: 1, 0x81: 2, 0x82: 4}[length_code]
    inner = bytes([length_code]) + len(content).to_bytes(width, "little") + content
    found = []
    for each in (name, name.rpartition(".")[2]):
        message = {"csp": CSP, "cid": CID, "handler": Typed(each, inner)}
        found.append(routing_of(document(message, metadata=True, events=events)).handler)
    assert found[0] == found[1]
    assert not isinstance(found[0], UnknownHandler)


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        ("text", "a handler without a type"),
        ({"a": 1}, "a handler without a type"),
        (Typed("no.such.Handler", {}), "unknown handler 'no.such.Handler'"),
        (Typed("java.lang.Runtime", {}), "unknown handler 'java.lang.Runtime'"),
        (Typed("x" * 5000, {}), f"unknown handler {'x' * 100!r}"),
        (Typed("", {}), "unknown handler ''"),
        (Typed("SCQStore", {}), "unknown handler 'SCQStore'"),
        (Typed("WireType", "BINARY"), "unknown handler 'WireType'"),
        (Typed("uberhandler", {}), "unknown handler 'uberhandler'"),
        (Typed("TerminatorHandler", None), "a TerminatorHandler without a body"),
        (Typed("TerminatorHandler", "text"), "a TerminatorHandler without a body"),
        (Typed(SINK_HANDLER, {}), "a SinkReplicationHandler without a queue name"),
        (Typed(SINK_HANDLER, {"queueName": None}), "a SinkReplicationHandler without a queue name"),
        (
            Typed(SOURCE_HANDLER, {"queueName": "q", "wireType": "TEXT"}),
            "a SourceReplicationHandler with wire type 'TEXT'",
        ),
    ],
    ids=range(14),
)
def test_handlers_that_cannot_be_used_say_why(handler: object, problem: str) -> None:
    if isinstance(handler, Typed) and handler.body is None:
        handler = items(Typed("TerminatorHandler", None)) + b"\xbb"
    stream = meta(csp=CSP, cid=CID, handler=handler)
    assert routing_of(stream).handler == UnknownHandler(problem=problem)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"queueName": "q"}, (False, 0, 0)),
        ({"queueName": "q", "acknowledgement": None}, (False, 0, 0)),
        ({"queueName": "q", "acknowledgement": True, "sourceId": -3}, (True, 0, -3)),
        ({"sourceId": 7, "nextIndexRequired": 5, "queueName": "q"}, (False, 5, 7)),
        ({"queueName": "q", "nextIndexRequired": items(b"\x91") + bytes(8)}, (False, 0, 0)),
        ({"queueName": "q", "wireType": Typed("WireType", "BINARY")}, (False, 0, 0)),
        ({"a": 1, "queueName": "q", "b": {"c": {"d": None}}, "e": True}, (False, 0, 0)),
    ],
    ids=range(7),
)
def test_fields_of_a_replication_handler_may_be_missing_or_moved(
    fields: dict[str, Any], wanted: tuple[bool, int, int]
) -> None:
    handler = routing_of(register(CSP, CID, Typed(SINK_HANDLER, fields))).handler
    assert isinstance(handler, ReplicationHandler)
    assert (handler.acknowledgement, handler.next_index, handler.source_id) == wanted
    assert handler.shape is None


@pytest.mark.parametrize("numbers", [[], [1, 1, 0], [1, 1, 5, 2, 3, 5]], ids=len)
def test_epochs_as_they_stand_in_an_offer(numbers: list[int]) -> None:
    body = replication_body(cqrepl=SHAPE_FIELDS | {"epochs": numbers})
    handler = routing_of(register(CSP, CID, Typed(SINK_HANDLER, body))).handler
    assert isinstance(handler, ReplicationHandler)
    assert handler.epochs is not None
    assert [number for each in handler.epochs for number in each[:3]] == numbers


def test_merged_epochs_as_they_stand_in_an_offer() -> None:
    """A version that knows of none skips the field, and would take the entries for epochs."""
    epochs = {"epochs": [1, 2, 0, 8, 1, 3], "merged": [7, 0]}
    body = replication_body(cqrepl=SHAPE_FIELDS | epochs)
    handler = routing_of(register(CSP, CID, Typed(SINK_HANDLER, body))).handler
    assert isinstance(handler, ReplicationHandler)
    assert handler.epochs == (Epoch(1, 2, Index(0), last=7), Epoch(8, 1, Index(3)))


@pytest.mark.parametrize(
    "merged", ["one", 1, [], [7], [7, 0, 0], [1, 0], [-1, 0], [8, 0], ["7", 0], [7] * 99], ids=str
)
def test_what_are_no_merged_epochs_is_as_if_none_were_said(merged: Any) -> None:
    epochs = {"epochs": [1, 2, 0, 8, 1, 3], "merged": merged}
    body = replication_body(cqrepl=SHAPE_FIELDS | epochs)
    handler = routing_of(register(CSP, CID, Typed(SINK_HANDLER, body))).handler
    assert isinstance(handler, ReplicationHandler)
    assert (handler.epochs, handler.shape) == (None, SHAPE)


@pytest.mark.parametrize(
    "epochs",
    [
        "one",
        1,
        ["one"],
        [1],
        [1, 1],
        [2, 1, 0, 1, 1, 0],
        [0, 1, 0],
        [1, 128, 0],
        [1, 1, -1],
        [1] * 200,
    ],
    ids=range(10),
)
def test_what_are_no_epochs_is_as_if_not_said(epochs: Any) -> None:
    body = replication_body(cqrepl=SHAPE_FIELDS | {"epochs": epochs})
    handler = routing_of(register(CSP, CID, Typed(SINK_HANDLER, body))).handler
    assert isinstance(handler, ReplicationHandler)
    assert handler.epochs is None
    assert handler.shape == SHAPE


@pytest.mark.parametrize("promise", [None, Promise(3, 2)])
@pytest.mark.parametrize("at", [None, 7])
def test_why_a_queue_stops(promise: Promise | None, at: int | None) -> None:
    (reader,) = documents(write_stopped("fenced", "why", at, promise))
    assert reader.read_name() == "stopped"
    assert read_stopped(reader) == StopSaid("fenced", "why", at, promise)


@pytest.mark.parametrize(
    "promise",
    [(0, 2), (-1, 2), (NUMBER_MAX + 1, 2), (3, 0), (3, 128), (3, -1)],
)
def test_a_promise_that_nobody_can_have_made_is_none(promise: tuple[int, int]) -> None:
    """Such a promise would end a queue on all of its source's connections."""
    (reader,) = documents(write_stopped("fenced", "why", promise=Promise(*promise)))
    assert reader.read_name() == "stopped"
    assert read_stopped(reader) == StopSaid("fenced", "why")


@pytest.mark.parametrize("missing", ["rollCycle", "epoch", "indexCount", "indexSpacing"])
@pytest.mark.parametrize("has_garbage", [True, False])
def test_an_extension_block_is_read_as_far_as_it_is_known(missing: str, has_garbage: bool) -> None:
    fields = {name: value for name, value in SHAPE_FIELDS.items() if name != missing}
    if has_garbage:
        fields[missing] = {"something": "else"}
    body = replication_body(cqrepl=fields)
    handler = routing_of(register(CSP, CID, Typed(SINK_HANDLER, body))).handler
    assert isinstance(handler, ReplicationHandler)
    assert handler.shape is not None
    attribute = re.sub("[A-Z]", lambda found: "_" + found[0].lower(), missing)
    assert handler.shape == replace(SHAPE, **{attribute: None})
    assert handler.shape.is_like(SHAPE)


def test_an_extension_block_of_a_later_version_is_read_by_name() -> None:
    fields = {"later": {"x": 1}, **SHAPE_FIELDS, "v": 2}
    handler = routing_of(register(CSP, CID, Typed(SINK_HANDLER, replication_body(cqrepl=fields))))
    assert isinstance(handler.handler, ReplicationHandler)
    assert handler.handler.shape == SHAPE


AT, PAYLOAD, NS = index(3), b"payload", 1836553940763
