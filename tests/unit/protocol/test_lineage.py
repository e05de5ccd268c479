"""A sink and a source tell each other on the wire what they hold, before any excerpt moves."""

import math
from typing import Any

import pytest

from cqrepl.protocol import QueueShape, RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue.format.identity import Identity, parse_identity
from tests.support import peer
from tests.support.peer import CID, CSP, SHIFT, SINK_ID, SOURCE_ID, Ours, Role, data, select

CAPABLE: dict[str, Any] = {"v": 1, "capabilities": ["lineage"], "role": "host"}
HELD = Lineage(first_cycle=3, chain=b"c" * 16, cycles=b"d" * 16)
PROVED = (select(), data(proved=None))


def answered(next_index: int) -> Ours:
    """A sink that has said what it holds, to a source that has nothing before index 5."""
    ours = Ours(Role.SINK)
    ours.receive(peer.uber(SOURCE_ID, SINK_ID, cqrepl=CAPABLE), peer.heartbeats())
    offer = peer.sink_handler(5, cqrepl={"v": 1, "firstCycle": 3})
    ours.receive(peer.register(CSP, CID, offer))
    ours.said()
    ours.connection.answer_queue(CID, next_index, SHIFT, QueueShape(), HELD)
    return ours


def test_a_sink_says_what_it_holds_and_waits() -> None:
    ours = answered(9)
    assert not ours.events()
    (message,) = ours.said()
    assert message["handler"][1]["cqrepl"] == {
        "v": 1, "firstCycle": 3, "chain": "63" * 16, "cycles": "64" * 16,
    }  # fmt: skip


@pytest.mark.parametrize("next_index", [5, 9])
def test_nothing_goes_back_before_the_source_has_compared(next_index: int) -> None:
    ours = answered(next_index)
    ours.said()
    assert ours.receive(*PROVED) == [ev.LineageProved(cid=CID, name=peer.NAME, index=5)]
    assert not ours.said()
    ours.connection.go_on(CID)
    if next_index > 5:
        assert ours.events() == [ev.BackCopyWanted(cid=CID, name=peer.NAME, index_first=5)]
    else:
        assert [list(message) for message in ours.said()] == [["meta", "cid"], ["eos"]]


def test_it_is_told_once() -> None:
    ours = answered(5)
    assert len(ours.receive(*PROVED, *PROVED)) == 1
    ours.connection.go_on(CID)
    assert not ours.receive(*PROVED)


@pytest.mark.parametrize("how", [PROVED, (peer.excerpts(9, b"x"),)], ids=["says", "goes on"])
def test_a_source_that_says_so_or_goes_on_behind_has_taken_what_was_given_back(how: Any) -> None:
    ours, taken = answered(9), ev.ReturnTaken(cid=CID, name=peer.NAME, index=9)
    ours.receive(*PROVED)
    ours.connection.go_on(CID)
    ours.connection.end_back_copy(CID)
    assert taken in ours.receive(*how)
    assert taken not in ours.receive(*PROVED)


def test_excerpts_before_it_are_refused() -> None:
    ours = answered(5)
    with pytest.raises(RemoteProtocolError, match="ANSWERED"):
        ours.receive(peer.excerpts(5, b"x"))


def test_a_sink_that_owes_its_proof_stops_the_queue_and_then_nothing_is_due() -> None:
    ours = Ours(Role.SOURCE, cid_first=CID, heartbeat_timeout_ms=9000)
    ours.receive(peer.uber(SINK_ID, SOURCE_ID, cqrepl=CAPABLE), peer.heartbeats())
    held: dict[str, Any] = {
        "acknowledgement": True,
        "source_id": SOURCE_ID,
        "shape": None,
        "lineage": HELD,
    }
    ours.connection.offer_queue(peer.NAME, 9, **held)
    chains = {"v": 1, "firstCycle": 3, "chain": "63" * 16, "cycles": "64" * 16}
    answer = peer.source_handler(9, cqrepl=chains)
    (claim,) = ours.receive(peer.register(CSP, CID, answer))
    assert isinstance(claim, ev.LineageClaimed)
    ours.connection.ask_proof(CID, 5)
    ours.tick(8)
    ours.receive(peer.heartbeat())
    ours.tick(2)
    (stop,) = ours.events()
    assert isinstance(stop, ev.QueueStopped)
    assert ours.connection.source(CID).deadline == math.inf
    assert ours.connection.next_deadline() > ours.now


@pytest.mark.parametrize("sent", [0, 2])
def test_t12_an_acknowledgement_of_what_was_not_sent_closes_the_connection(sent: int) -> None:
    """One that says what it holds knows better; its marks stay."""
    ours = Ours(Role.SOURCE, cid_first=CID)
    ours.receive(peer.uber(SINK_ID, SOURCE_ID, cqrepl=CAPABLE), peer.heartbeats())
    held: dict[str, Any] = {"acknowledgement": True, "source_id": SOURCE_ID, "shape": None}
    ours.connection.offer_queue(peer.NAME, 9, **held, lineage=HELD)
    chains = {"v": 1, "firstCycle": 3, "chain": "63" * 16, "cycles": "64" * 16}
    ours.receive(peer.register(CSP, CID, peer.source_handler(9, cqrepl=chains)))
    ours.connection.lineage_compared(CID, None)
    ours.receive(peer.end_of_stream())
    if sent:
        ours.frame(CID, peer.batch(9, *[b"x"] * sent))
    ours.receive(peer.acknowledgement(8))
    with pytest.raises(RemoteProtocolError, match="acknowledgement of index"):
        ours.receive(peer.acknowledgement(9 + sent))
    assert ours.connection.source(CID).index_acknowledged == -1 + 9 * bool(sent)


# ---------------------------------------------------------------- identities

ONE: Identity = parse_identity("1" * 32)
OTHER: Identity = parse_identity("2" * 32)
TELLING: dict[str, Any] = {"v": 1, "capabilities": ["identity", "lineage"], "role": "host"}
TOLD = (select(), data(identity=ONE))


def offering(capable: dict[str, Any], own: Identity | None) -> Ours:
    ours = Ours(Role.SOURCE, cid_first=CID)
    ours.receive(peer.uber(SINK_ID, SOURCE_ID, cqrepl=capable), peer.heartbeats())
    ours.said()
    ours.connection.offer_queue(
        peer.NAME,
        9,
        acknowledgement=True,
        source_id=SOURCE_ID,
        shape=QueueShape(),
        lineage=Lineage(first_cycle=3, identity=own),
    )
    return ours


def test_an_offer_says_which_queue_it_is() -> None:
    (message,) = offering(TELLING, ONE).said()
    assert message["handler"][1]["cqrepl"] == {"v": 1, "firstCycle": 3, "identity": ONE}


@pytest.mark.parametrize(
    ("said", "wanted"),
    [({"identity": ONE}, ONE), ({}, None), ({"identity": "1"}, None), ({"identity": 5}, None)],
    ids=str,
)
def test_an_answer_says_which_queue_it_is(said: dict[str, Any], wanted: Identity | None) -> None:
    ours = offering(TELLING, ONE)
    block = {"v": 1, "firstCycle": 3, "chain": "63" * 16, "cycles": "64" * 16} | said
    (claim,) = ours.receive(peer.register(CSP, CID, peer.source_handler(9, cqrepl=block)))
    assert isinstance(claim, ev.LineageClaimed)
    assert claim.lineage.identity == wanted


@pytest.mark.parametrize(
    ("capable", "own", "is_told"),
    [(TELLING, ONE, True), (TELLING, None, False), (CAPABLE, ONE, False)],
)
def test_it_is_told_behind_the_proof_to_who_knows_of_it(
    capable: dict[str, Any], own: Identity | None, is_told: bool
) -> None:
    ours = offering(capable, None)
    chains = {"v": 1, "firstCycle": 3, "chain": "63" * 16, "cycles": "64" * 16}
    ours.receive(peer.register(CSP, CID, peer.source_handler(9, cqrepl=chains)))
    ours.said()
    assert ours.connection.tells_identities == (capable is TELLING)
    ours.connection.lineage_compared(CID, own)
    names = [list(message) for message in ours.said()]
    told = [["meta", "cid"], ["identity"]] if is_told else []
    assert names == [["meta", "cid"], ["proved"], *told]


def test_a_sink_hears_it_behind_the_proof_only() -> None:
    ours = answered(5)
    assert not ours.receive(*TOLD)
    ours.receive(*PROVED)
    assert ours.receive(*TOLD) == [ev.IdentityTold(cid=CID, name=peer.NAME, identity=ONE)]
    ours.connection.go_on(CID)
    ours.said()
    later = select(), data(identity=OTHER)  # adopted while the stream is on
    assert ours.receive(*later) == [ev.IdentityTold(cid=CID, name=peer.NAME, identity=OTHER)]


@pytest.mark.parametrize("what", ["1", "z" * 32, 5, None])
def test_what_is_no_identity_closes_the_connection(what: object) -> None:
    ours = answered(5)
    ours.receive(*PROVED)
    with pytest.raises(RemoteProtocolError):
        ours.receive(select(), data(identity=what))
