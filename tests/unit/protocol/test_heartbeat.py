"""Heartbeats: when they go out, when they are left out, and which numbers are taken."""

import json
import math
from pathlib import Path

import pytest

from cqrepl.protocol import events as ev
from cqrepl.protocol.settings import heartbeat_problem
from cqrepl.protocol.states import ConnectionState
from tests.support import peer

VECTORS = Path(__file__).parents[2] / "vectors" / "network"
BEAT = [{"meta": True, "cid": peer.HEARTBEAT_CID}, {"heartbeat": ""}]


def beating(timeout_ms: int = 3000, interval_ms: int = 1000) -> peer.Ours:
    """An acceptor, registered at 0 s."""
    ours = peer.Ours(peer.Role.SINK)
    ours.receive(peer.uber(1, 2), peer.heartbeats(timeout_ms, interval_ms))
    ours.connection.data_to_send()
    return ours


def test_the_first_goes_out_one_interval_after_the_registration() -> None:
    ours = beating()
    assert ours.connection.next_deadline() == 1.0
    ours.tick(0.999)
    assert ours.said() == []
    ours.tick(0.001)
    assert ours.said() == BEAT


def test_a_dialler_counts_from_its_own_greeting() -> None:
    ours = peer.Ours(
        peer.Role.SINK, is_dialler=True, cid_first=peer.HEARTBEAT_CID, heartbeat_interval_ms=700
    )
    ours.connection.data_to_send()
    ours.receive(peer.uber(1, 2), peer.heartbeats(3000, 600))
    ours.tick(0.699)
    assert ours.said() == []
    ours.tick(0.001)
    assert ours.said() == BEAT


def test_they_are_the_bytes_that_java_sends() -> None:
    recorded = json.loads((VECTORS / "heartbeats.json").read_text())
    beats = [each for each in recorded if each["text"].endswith('heartbeat: ""')]
    ours = beating()
    ours.tick(1)
    assert bytes.fromhex(beats[0]["hex"]) == ours.connection.data_to_send()[-15:]


def test_they_keep_their_rate_whatever_else_is_sent() -> None:
    ours = beating()
    times = []
    for step in range(1, 41):
        ours.tick(1 / 8)
        if step % 3 == 0:
            ours.receive(peer.heartbeat())
        if ours.said():
            times.append(step)
    assert times == [8, 16, 24, 32, 40]


def test_one_is_left_out_while_bytes_wait() -> None:
    ours = beating()
    ours.receive(peer.register(peer.CSP, peer.CID, peer.sink_handler()))
    ours.connection.answer_queue(peer.CID, 0, 32, None)
    ours.tick(1)
    assert all("heartbeat" not in each for each in ours.said())
    assert ours.connection.next_deadline() == 2.0
    ours.tick(1)
    assert ours.said() == BEAT


def test_missed_ones_are_not_made_up_for() -> None:
    ours = beating(100_000, 1000)
    ours.tick(10.5)
    assert ours.said() == BEAT
    assert ours.connection.next_deadline() == 11.0


def test_the_diallers_numbers_rule_both_sides() -> None:
    ours = peer.Ours(peer.Role.SINK, heartbeat_interval_ms=5000, heartbeat_timeout_ms=9000)
    ours.receive(peer.uber(1, 2), peer.heartbeats(1500, 500))
    assert ours.said()[-1]["handler"] == (
        peer.HANDLERS + "HeartbeatHandler",
        {"heartbeatTimeoutMs": 1500, "heartbeatIntervalMs": 500},
    )
    assert ours.connection.next_deadline() == 0.5


def test_the_answer_of_the_acceptor_changes_nothing() -> None:
    ours = peer.Ours(peer.Role.SINK, is_dialler=True, cid_first=peer.HEARTBEAT_CID)
    ours.connection.data_to_send()
    assert peer.kinds(ours.receive(peer.uber(1, 2), peer.heartbeats(1500, 500))) == [ev.Connected]
    ours.tick(15)
    assert ours.said() == []
    ours.tick(5)
    assert ours.said() == BEAT


@pytest.mark.parametrize(
    ("timeout_ms", "interval_ms", "problem"),
    [
        (40_000, 499, "heartbeat interval of at least 500 ms expected, 499 came"),
        (40_000, 0, "heartbeat interval of at least 500 ms expected, 0 came"),
        (40_000, -5, "heartbeat interval of at least 500 ms expected, -5 came"),
        (999, 500, "heartbeat timeout of at least 1000 ms expected, 999 came"),
        (2000, 2000, "heartbeat timeout above the interval 2000 ms expected, 2000 came"),
        (2000, 3000, "heartbeat timeout above the interval 3000 ms expected, 2000 came"),
    ],
)
def test_numbers_that_are_too_small_are_refused_and_the_rest_works(
    timeout_ms: int, interval_ms: int, problem: str
) -> None:
    assert heartbeat_problem(timeout_ms, interval_ms) == problem
    ours = peer.Ours(peer.Role.SINK)
    events = ours.receive(peer.uber(1, 2), peer.heartbeats(timeout_ms, interval_ms))
    assert events[1:] == [ev.RegistrationRefused(message=problem, count=1)]
    assert len(ours.said()) == 1
    assert peer.kinds(ours.receive(peer.register(peer.CSP, peer.CID, peer.sink_handler()))) == [
        ev.QueueOffered
    ]
    ours.connection.data_to_send()
    ours.tick(30)
    assert ours.said() == []
    assert ours.connection.state is ConnectionState.OPEN


@pytest.mark.parametrize(("timeout_ms", "interval_ms"), [(1000, 500), (1000, 999), (501 * 2, 501)])
def test_the_smallest_numbers_are_taken(timeout_ms: int, interval_ms: int) -> None:
    assert heartbeat_problem(timeout_ms, interval_ms) is None
    assert beating(timeout_ms, interval_ms).connection.next_deadline() == interval_ms / 1000


def test_a_registration_without_numbers_is_refused() -> None:
    ours = peer.Ours(peer.Role.SINK)
    events = ours.receive(
        peer.uber(1, 2), peer.register("/", 5, peer.Typed("HeartbeatHandler", {}))
    )
    assert peer.kinds(events) == [ev.Connected, ev.RegistrationRefused]


def test_another_message_for_the_heartbeat_is_refused() -> None:
    assert peer.kinds(beating().receive(peer.select(peer.HEARTBEAT_CID), peer.data(idx=1))) == [
        ev.RegistrationRefused
    ]


def test_there_are_none_after_the_end() -> None:
    ours = beating()
    ours.connection.end()
    ours.tick(1)
    assert ours.said() == []
    ours.connection.receive_end(1)
    assert ours.connection.next_deadline() == math.inf
