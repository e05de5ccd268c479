"""The levels that a sink tells on the wire beyond the acknowledgement; its source takes some."""

from typing import Any

import pytest

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol import RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages import read_acknowledgement, write_acknowledgement
from cqrepl.protocol.messages.levels import (
    write_committed,
    write_kept_back,
    write_level,
    write_wanted,
)
from tests.support import peer
from wire import Reader
from wire.grammar import structures
from wire.header import HEADER_BYTES

APPENDED, SYNCED, APPLIED = AckLevel
UNTOLD = pytest.mark.parametrize("capable", [[], ["stops"]])
MARK = {"meta": True, "cid": peer.CID}


def told(ours: peer.Ours) -> list[tuple[str, object]]:
    """Names and values of what was said."""
    said = ours.said()
    assert said[::2] == [MARK] * (len(said) // 2)
    return [next(iter(message.items())) for message in said[1::2]]


def level(name: str, index: int) -> tuple[bytes, bytes]:
    return peer.select(), write_level({"syn": SYNCED, "apl": APPLIED}[name], index)


def test_it_has_the_form_of_an_acknowledgement() -> None:
    as_acknowledged = write_acknowledgement(7, 0x0123456789ABCDEF)
    for each, name in ((SYNCED, b"syn"), (APPLIED, b"apl")):
        written = write_level(each, 7)
        assert len(written) == len(as_acknowledged) == HEADER_BYTES + 25
        start, end = as_acknowledged[:-8], bytes(8)
        assert written == start.replace(b"idx", name) + end


@pytest.mark.parametrize(
    ("structure", "document"),
    [
        (structures.Synced, write_level(SYNCED, 7)),
        (structures.Applied, write_level(APPLIED, 7)),
        (structures.Synced, write_kept_back(SYNCED, 7, "the disk errs")),
        (structures.Committed, write_committed(7)),
        (structures.LevelWanted, write_wanted(SYNCED)),
    ],
)
def test_the_grammar_knows_it(structure: Any, document: bytes) -> None:
    built = structure.build(structure.parse(document))  # the time in the width of its value
    assert structure.parse(built) == structure.parse(document)


def test_a_sink_says_what_was_here_before() -> None:
    ours = peer.capable_sink("levels")
    ours.connection.sink(peer.CID).tell_level(SYNCED, 3)
    ours.connection.sink(peer.CID).tell_level(SYNCED, 2)
    ours.connection.sink(peer.CID).tell_level(APPLIED, 4)
    assert told(ours) == [("syn", 3), ("apl", 4)]


def test_no_more_is_said_than_was_acknowledged_and_the_rest_behind_that() -> None:
    ours = peer.capable_sink("levels")
    ours.receive(peer.excerpts(5, b"a", b"b"))
    ours.connection.sink(peer.CID).tell_level(SYNCED, 6)
    assert told(ours) == [("syn", 4)]
    ours.connection.tell_stored(peer.CID, 5, 1)
    assert told(ours) == [("idx", 5), ("syn", 5)]
    ours.connection.tell_stored(peer.CID, 6, 1)
    assert told(ours) == [("idx", 6), ("syn", 6)]
    ours.connection.tell_stored(peer.CID, 6, 1)
    assert told(ours) == [("idx", 6)]


@UNTOLD
def test_a_source_that_did_not_announce_it_hears_nothing(capable: list[str]) -> None:
    ours = peer.capable_sink(*capable)
    ours.connection.sink(peer.CID).tell_level(SYNCED, 3)
    assert not ours.said()


def test_nor_does_one_that_wants_no_acknowledgements() -> None:
    ours = peer.capable_sink("levels", acknowledgement=False)
    ours.connection.sink(peer.CID).tell_level(SYNCED, 3)
    assert not ours.said()


def test_a_sink_is_told_what_its_source_waits_for() -> None:
    ours = peer.capable_sink("levels")
    wanted = ev.LevelWanted(cid=peer.CID, name=peer.NAME, level=SYNCED)
    assert ours.receive(peer.select(), peer.data(level="synced")) == [wanted]
    assert not ours.receive(peer.select(), peer.data(level="framed"))


def test_a_source_says_once_what_it_waits_for() -> None:
    ours = peer.capable_source("levels")
    assert ours.connection.source(peer.CID).want_level(SYNCED)
    assert ours.connection.source(peer.CID).want_level(SYNCED)
    assert told(ours) == [("level", "synced")]


@UNTOLD
def test_but_not_to_a_sink_that_did_not_announce_it(capable: list[str]) -> None:
    ours = peer.capable_source(*capable)
    assert not ours.connection.source(peer.CID).want_level(SYNCED)
    assert not ours.said()


@pytest.mark.parametrize(("name", "which"), [("syn", SYNCED), ("apl", APPLIED)])
def test_a_source_takes_what_was_acknowledged_or_there_before(name: str, which: AckLevel) -> None:
    ours = peer.capable_source("levels", held=5)
    reached = [
        ev.LevelReached(cid=peer.CID, name=peer.NAME, level=which, index=at) for at in (4, 3)
    ]
    assert ours.receive(*level(name, 4), *level(name, 3)) == reached
    assert not ours.receive(*level(name, -1))


@pytest.mark.parametrize("name", ["syn", "apl"])
@pytest.mark.parametrize("index", [5, 6, (1 << 63) - 1])
def test_what_was_not_acknowledged_closes_the_connection(name: str, index: int) -> None:
    ours = peer.capable_source("levels", held=5)
    batch = peer.batch(5, b"a", b"b")
    ours.connection.frame_excerpts(peer.CID, batch, 0, 1, bytearray(1000), 0)
    with pytest.raises(RemoteProtocolError, match=r"0x\w+ (synced|applied), which .* not ackn"):
        ours.receive(*level(name, index))


def test_what_was_acknowledged_counts_from_then_on() -> None:
    ours = peer.capable_source("levels", held=5)
    ours.connection.frame_excerpts(peer.CID, peer.batch(5, b"a", b"b"), 0, 1, bytearray(1000), 0)
    (_, reached) = ours.receive(peer.select(), peer.data(idx=6, ns=1), *level("syn", 6))
    assert reached == ev.LevelReached(cid=peer.CID, name=peer.NAME, level=SYNCED, index=6)


def test_a_sink_is_told_up_to_where_a_queue_is_safe_as_far_as_it_has_it() -> None:
    ours = peer.capable_source("levels", held=5)
    queue = ours.connection.source(peer.CID)
    queue.tell_commit(3)
    queue.tell_commit(2)
    queue.tell_commit(9)
    assert told(ours) == [("cmt", 3), ("cmt", 4)]
    ours.connection.frame_excerpts(peer.CID, peer.batch(5, b"a", b"b"), 0, 1, bytearray(1000), 0)
    queue.tell_commit(9)
    queue.tell_commit(9)
    assert told(ours) == [("cmt", 6)]


@UNTOLD
def test_one_that_did_not_announce_it_is_told_nothing(capable: list[str]) -> None:
    ours = peer.capable_source(*capable, held=5)
    ours.connection.source(peer.CID).tell_commit(3)
    assert not ours.said()


def test_a_sink_takes_no_more_than_it_has() -> None:
    ours = peer.capable_sink("levels", held=5)
    moved = ev.CommitMoved(cid=peer.CID, name=peer.NAME, index=4)
    assert ours.receive(peer.select(), write_committed(4)) == [moved]
    (refused,) = ours.receive(peer.select(), write_committed(5))
    assert isinstance(refused, ev.RegistrationRefused)
    assert "0x5 is safe, 0x5 is the next one here" in refused.message
    ours.receive(peer.excerpts(5, b"a"))
    assert len(ours.receive(peer.select(), write_committed(5))) == 1
    assert not ours.receive(peer.select(), write_committed(-1))


def test_a_sink_says_once_why_a_level_is_kept_back() -> None:
    ours = peer.capable_sink("levels")
    handler = ours.connection.sink(peer.CID)
    assert not handler.keep_back(SYNCED, "")
    assert handler.keep_back(SYNCED, "the disk errs")
    assert not handler.keep_back(SYNCED, "the disk errs")
    handler.tell_level(SYNCED, 3)
    assert handler.keep_back(SYNCED, "")
    said = [message for message in ours.said() if "syn" in message]
    assert said == [
        {"syn": -1, "ns": 0, "why": "the disk errs"},
        {"syn": 3, "ns": 0},
        {"syn": 3, "ns": 0, "why": ""},
    ]


@UNTOLD
def test_but_not_to_a_source_that_does_not_take_levels(capable: list[str]) -> None:
    ours = peer.capable_sink(*capable)
    assert not ours.connection.sink(peer.CID).keep_back(SYNCED, "the disk errs")
    assert not ours.said()


@pytest.mark.parametrize("index", [-1, 4])
def test_a_source_takes_why_a_level_is_kept_back(index: int) -> None:
    ours, why = peer.capable_source("levels", held=5), "the disk errs"
    kept = ev.LevelKeptBack(cid=peer.CID, name=peer.NAME, level=SYNCED, why=why)
    events = ours.receive(peer.select(), write_kept_back(SYNCED, index, why))
    assert [each for each in events if isinstance(each, ev.LevelKeptBack)] == [kept]
    assert len(events) == (2 if index >= 0 else 1)


def test_who_does_not_know_the_reason_reads_the_level() -> None:
    document = write_kept_back(APPLIED, 7, "no program")
    reader = Reader(memoryview(document)[HEADER_BYTES:])
    assert reader.read_name() == "apl"
    assert read_acknowledgement(reader) == (7, 0)
