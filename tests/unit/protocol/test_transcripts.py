"""Recorded sessions of two Java peers, replayed: our core takes the place of either side.

The peer's recorded bytes are fed flight by flight, in any segmentation. At the end the model
queue holds what the transcript implies, and what our core sent decodes to what Java sent, but for
what may differ: cids, nano times of our own, widths of numbers, heartbeats in between, the
extension block, and how many events one acknowledgement covers when several come at once.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.queue.format.index import Index, sequence_of
from tests.stateful.model import SHAPE, SHIFT, ModelQueue, Side
from tests.support.peer import HANDLERS, NS, Message, Role, connection_config, decoded, unannounced

VECTORS = Path(__file__).parents[2] / "vectors" / "network"
NAMES = sorted({path.stem for path in VECTORS.glob("*.json")} - {"acceptor-behaviour", "runs"})
UNKNOWN = b"before the recording"
Cut = Callable[[bytes], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """The bytes of one side, sent in one go, or an event (`sender` is empty, `kind` says which)."""

    conn: int
    sender: str
    kind: str
    stream: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    flights: list[Flight]
    ids: dict[str, int]
    dialler: str
    heartbeat: dict[str, int]
    heartbeat_cids: list[int]  # one for each connection
    offers: list[Message]  # bodies of the source's handlers, one for each connection
    answers: list[Message]
    excerpts: dict[int, bytes]  # every event that was sent

    @property
    def connections(self) -> int:
        return self.flights[-1].conn

    def is_broken(self, conn: int) -> bool:
        return any(each.conn == conn and "network" in each.kind for each in self.flights)

    def sent_last(self, conn: int) -> int:
        """The last event on a connection."""
        messages = [
            each for part in self.flights if part.conn == conn for each in decoded(part.stream)
        ]
        at, _, _ = [each["re"] for each in messages if "re" in each][-1]
        return int(at)


def load(name: str) -> Transcript:
    entries = json.loads((VECTORS / f"{name}.json").read_text())
    flights = []
    for (conn, direction, kind), group in groupby(
        entries,
        lambda e: (e["conn"], e["dir"], e["kind"] if e["dir"] == "event" else ""),
    ):
        stream = b"".join(bytes.fromhex(each["hex"]) for each in group)
        sender = direction.partition("->")[0] if "->" in direction else ""
        flights.append(Flight(conn=conn, sender=sender, kind=kind, stream=stream))
    handlers: dict[str, list[Message]] = {}
    excerpts = {}
    ids = {}
    cids: dict[int, int] = {}
    for flight in flights:
        for message in decoded(flight.stream):
            if "handler" in message:
                kind, fields = message["handler"]
                handlers.setdefault(kind, []).append(fields)
                if "heartbeatTimeoutMs" in fields:
                    cids[flight.conn] = message["cid"]
                if "remoteIdentifier" in fields:
                    ids[flight.sender] = fields["remoteIdentifier"]
            if "re" in message:
                at, payload, _ = message["re"]
                excerpts[at] = payload
    return Transcript(
        flights=flights,
        ids=ids,
        dialler=flights[0].kind.removeprefix("connected by "),
        heartbeat=handlers[HANDLERS + "HeartbeatHandler"][0],
        heartbeat_cids=list(cids.values()),
        offers=handlers["SinkReplicationHandler"],
        answers=handlers["SourceReplicationHandler"],
        excerpts=excerpts,
    )


TRANSCRIPTS = {name: load(name) for name in NAMES}


def known_before(transcript: Transcript, next_index: int) -> dict[int, bytes]:
    """The excerpts of a queue with this next index, as far as the transcript tells them."""
    if next_index == 0:
        return {}
    first = next_index - sequence_of(Index(next_index), SHIFT)
    held = dict.fromkeys(range(first, next_index), UNKNOWN)
    return held | {at: each for at, each in transcript.excerpts.items() if at < next_index}


class Replayed(Side):
    """The model's shell as one side of a transcript."""

    def __init__(self, role: Role, transcript: Transcript) -> None:
        super().__init__(role, ModelQueue(), Counter())
        self.transcript = transcript
        self.conn = 0
        self.ends: list[ev.Event] = []

    def connect(self, is_dialler: bool, now: float) -> None:
        del is_dialler
        transcript, me = self.transcript, self.role.value
        self.conn += 1
        self.out = bytearray()
        self.cid = self.tail = self.back_copy_from = None
        own = transcript.offers if self.role is Role.SOURCE else transcript.answers
        next_index = own[self.conn - 1]["nextIndexRequired"]
        if self.role is Role.SOURCE or self.conn == 1:
            self.queue.excerpts |= known_before(transcript, next_index)
        assert self.queue.next_index == next_index
        config = connection_config(
            is_dialler=transcript.dialler == me,
            host_id=transcript.ids[me],
            remote_ids=frozenset(set(transcript.ids.values()) - {transcript.ids[me]}),
            takes=frozenset({transcript.offers[0]["queueName"]} if self.role is Role.SINK else ()),
            heartbeat_timeout_ms=transcript.heartbeat["heartbeatTimeoutMs"],
            heartbeat_interval_ms=transcript.heartbeat["heartbeatIntervalMs"],
            # a dialler's first cid is the heartbeat's: the recorded acceptor reflects that number
            cid_first=transcript.heartbeat_cids[self.conn - 1] if transcript.dialler == me else 100,
        )
        self.connection = Connection(config, now)
        self.flush()

    def act(self, event: ev.Event) -> None:
        if isinstance(event, ev.Connected) and self.role is Role.SOURCE:
            assert self.connection is not None
            offer = self.transcript.offers[self.conn - 1]
            self.cid = self.connection.offer_queue(
                offer["queueName"],
                self.queue.next_index,
                acknowledgement=offer["acknowledgement"],
                source_id=offer["sourceId"],
                shape=SHAPE,
            )
        elif isinstance(event, ev.OrderlyEnd | ev.PeerLost):
            self.ends.append(event)
        else:
            super().act(event)

    def end(self, now: float) -> None:
        if self.connection is not None:
            self.connection.receive_end(now)
            self.receive(b"", now)
            self.disconnect()


def replay(transcript: Transcript, role: Role, cut: Cut) -> tuple[Replayed, dict[int, bytes]]:
    """Our side at the end, and what it sent on each connection."""
    side = Replayed(role, transcript)
    said = {}
    for flight in transcript.flights:
        if flight.kind.startswith("connected"):
            side.connect(False, 0)
        elif not flight.sender and "stalls" not in flight.kind:
            side.end(0)
        elif flight.sender != role.value:
            for piece in cut(flight.stream):
                side.receive(piece, 0)
                while side.stream(50, NS):
                    pass
        elif role is Role.SOURCE:
            sent = [each["re"] for each in decoded(flight.stream) if "re" in each]
            side.queue.excerpts |= {at: payload for at, payload, _ in sent}
            while side.stream(50, NS):
                pass
        said[flight.conn] = bytes(side.out)
    return side, said


def conversation(stream: bytes) -> list[Message]:
    """Messages without what may differ; each data message with a label of its handler."""
    labels: dict[int, int] = {}
    selected = None
    found = []
    for message in map(unannounced, decoded(stream)):
        if "cid" in message:
            selected = labels.setdefault(message.pop("cid"), len(labels))
        if message.pop("meta", False):
            if "handler" not in message:
                continue
            message["handler"][1].pop("cqrepl", None)
        elif "heartbeat" in message:
            continue
        elif "re" in message:
            message["re"] = message["re"][:2]
        found.append({"to": selected} | message)
    return found


def recorded(transcript: Transcript, role: Role, conn: int) -> list[Message]:
    flights = [each for each in transcript.flights if each.conn == conn]
    return conversation(b"".join(each.stream for each in flights if each.sender == role.value))


def parted(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Acknowledgements apart from the rest."""
    acknowledgements = [each for each in messages if "idx" in each]
    return acknowledgements, [each for each in messages if "idx" not in each]


def is_part(some: list[Any], all_of_them: list[Any]) -> bool:
    rest = iter(all_of_them)
    return all(each in rest for each in some)


def whole(stream: bytes) -> Iterator[bytes]:
    yield stream


def byte_by_byte(stream: bytes) -> Iterator[bytes]:
    return (stream[at : at + 1] for at in range(len(stream)))


def at_random(seed: int) -> Cut:
    dice = random.Random(seed)

    def cut(stream: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(stream):
            size = dice.choice([1, 3, 10, 60, 400])
            yield stream[at : at + size]
            at += size

    return cut


CUTS = {"whole": whole, "bytes": byte_by_byte} | {f"random{n}": at_random(n) for n in range(6)}
EVERY = pytest.mark.parametrize("name", NAMES)
ROLE = pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)


@EVERY
@ROLE
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_replayed_session_ends_as_it_was_recorded(name: str, role: Role, cut: Cut) -> None:
    transcript = TRANSCRIPTS[name]
    side, said = replay(transcript, role, cut)
    last = max(transcript.excerpts, default=-1)
    assert side.queue.excerpts == known_before(transcript, last + 1)
    assert side.stopped is None
    for conn in range(1, transcript.connections + 1):
        ours, theirs = conversation(said[conn]), recorded(transcript, role, conn)
        if role is Role.SINK and transcript.is_broken(conn):
            # the network was gone before the last acknowledgement passed the recorder
            assert ours.pop()["idx"] == transcript.sent_last(conn)
        if cut is byte_by_byte:
            assert ours == theirs
        our_acks, our_rest = parted(ours)
        their_acks, their_rest = parted(theirs)
        assert our_rest == their_rest
        assert is_part(our_acks, their_acks)
        assert our_acks[-1:] == their_acks[-1:]


@EVERY
@ROLE
def test_ends_of_recorded_connections(name: str, role: Role) -> None:
    """A Java source cannot announce its end; a sink of any kind that just goes is lost."""
    side, _ = replay(TRANSCRIPTS[name], role, whole)
    assert len(side.ends) == TRANSCRIPTS[name].connections
    wanted = ev.OrderlyEnd if role is Role.SINK else ev.PeerLost
    assert {type(each) for each in side.ends} == {wanted}


def test_every_transcript_is_there() -> None:
    assert len(NAMES) == 9
    assert any(transcript.dialler == "source" for transcript in TRANSCRIPTS.values())
    assert any(transcript.connections == 2 for transcript in TRANSCRIPTS.values())


def test_the_acknowledged_index_of_a_replayed_source_is_the_recorded_one() -> None:
    for name, transcript in TRANSCRIPTS.items():
        side, _ = replay(transcript, Role.SOURCE, byte_by_byte)
        acks = [
            each["idx"]
            for flight in transcript.flights
            for each in decoded(flight.stream)
            if "idx" in each
        ]
        assert side.acknowledged == max([-1, *acks]), name
