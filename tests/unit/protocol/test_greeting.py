"""The first documents of both sides: which side dials, which ids and which wire type are taken."""

import json
from pathlib import Path
from typing import Any

import pytest

from cqrepl.protocol import (
    WireShape,
)
from cqrepl.protocol import events as ev
from tests.support.peer import (
    CID,
    CSP,
    HANDLERS,
    SINK_ID,
    SOURCE_ID,
    Ours,
    Role,
    Typed,
    data,
    decoded,
    document,
    excerpt,
    header,
    heartbeat,
    heartbeats,
    index,
    kinds,
    meta,
    refused,
    register,
    select,
    sink_handler,
    terminator,
    uber,
    unannounced,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "network"


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
    said = [unannounced(each) for each in ours.said()]
    assert said == decoded(b"".join(first))


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
    cid = (SINK_ID << 48) + 1
    assert ours.receive(heartbeats(cid=cid), heartbeat(cid=cid)) == []
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


@pytest.mark.parametrize("wire_type", ["TEXT", "RAW", "binary_light"])
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
