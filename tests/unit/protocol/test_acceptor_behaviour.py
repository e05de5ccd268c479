"""The reactions of a Java sink to odd input, and ours: the same, or different on purpose.

Each case of the recording is fed to our core as an acceptor of host 1. `JAVA_DIFFERS` names every
case in which ours does something else, what Java does, and why ours does not. Numbers in brackets
are sections of the description of the protocol on the socket.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cqrepl.protocol import Connection, ProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.states import ConnectionState
from tests.stateful.model import ModelQueue, Side
from tests.support.peer import NS, Message, Role, connection_config, decoded, index

VECTORS = Path(__file__).parents[2] / "vectors" / "network" / "acceptor-behaviour.json"
CASES: dict[str, dict[str, Any]] = {each["case"]: each for each in json.loads(VECTORS.read_text())}
QUEUE = "out-1"

GREETED = ["UberHandler", "HeartbeatHandler"]
ANSWERED = [*GREETED, "SourceReplicationHandler", "cid", "eos"]
BEAT = ["cid", "heartbeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """The reaction of our side to a case.

    Args:
        closes: the peer's error; None when the connection stays open.
        refused: number of messages that are refused, each told once.
        stopped: a queue stops.
        said: kinds of what is sent; None for exactly what Java sent.
    """

    closes: str | None = None
    refused: int = 0
    stopped: bool = False
    said: list[str] | None = None


SAME = {
    "normal": Ours(),
    "uber-with-clusterName": Ours(),
    "uber-fields-reordered": Ours(),
    "uber-unknown-remote-id": Ours(),  # no `--remote-id` given; with one such an id closes
    "uber-wiretype-BINARY": Ours(),
    "uber-unknown-class": Ours(closes="an UberHandler expected before any other document"),
    "sub-handler-before-uber": Ours(closes="an UberHandler expected before any other document"),
    "garbage-header-byte": Ours(closes="a binary UberHandler expected"),
    "second-uber-on-same-connection": Ours(refused=1),
    "heartbeat-fields-swapped": Ours(),
    "heartbeat-timeout-too-small": Ours(refused=1),
    "heartbeat-interval-too-small": Ours(refused=1),
    "registration-with-field-names": Ours(),
    "registration-full-class-name": Ours(),
    "registration-unknown-class": Ours(refused=1),
    "registration-unknown-queue": Ours(refused=3),  # and the cid, and the data
    "registration-same-cid-same-csp": Ours(refused=1),
    "registration-same-cid-other-csp": Ours(refused=1),
    "unknown-cid": Ours(refused=2),
    "cid-as-event-name": Ours(),
    "data-without-cid-after-registration": Ours(),
    "data-before-any-registration": Ours(refused=1),
    "index-repeat": Ours(),
    "unknown-field-in-data": Ours(refused=1),
    "byte-by-byte": Ours(),
}

JAVA_DIFFERS = {
    # Java drops a bad greeting, reads the next document as one, and closes at the heartbeat's
    # registration, the first that is no greeting. Ours closes at once, with the reason (3.4).
    "uber-same-ids": Ours(closes="both sides have host id 1", said=[]),
    "uber-wrong-local-id": Ours(closes="the peer expects host id 6, this side has 1", said=[]),
    # Java waits for ever
    "uber-wrong-local-id-alone": Ours(closes="the peer expects host id 6", said=[]),
    # Java takes the second
    "uber-wrong-then-right": Ours(closes="the peer expects host id 6", said=[]),
    # Java closes; the protocol's overview prints it so, and both shapes are read
    "uber-as-data-document": Ours(said=ANSWERED),
    # Java goes on in the wire type that the text names; ours speaks binary only (3.3)
    "text-wire-header": Ours(closes="a binary UberHandler expected, text", said=[]),
    # Java never times such a dialler out; ours by its own number (6)
    "no-heartbeat-handler": Ours(closes="nothing received for 40", said=["UberHandler"]),
    # Java looks every timeout only, so it takes up to two; ours measures without a break (6)
    "heartbeat-silence-1500ms": Ours(
        closes=r"nothing received for 1\.5 s", said=[*GREETED, *BEAT, *BEAT]
    ),
    # Java answers the second; an assertion forbids it in debug runs
    "heartbeat-twice-other-cid": Ours(refused=1, said=GREETED),
    # Java registers nothing: `handler` is missing in the first; ours reads both split forms (4)
    "registration-split-csp-cid-then-data-handler": Ours(said=ANSWERED),
    "registration-split-csp-cid-then-meta-handler": Ours(said=ANSWERED),
    # Java expects this order of fields and loses the registration; ours reads by name
    "registration-cid-before-csp": Ours(said=ANSWERED),
    # In Java the previous handler stays selected and gets the data; ours deselects (4)
    "registration-unknown-class-then-data": Ours(refused=2, said=ANSWERED),
    # Java makes a second handler for the same queue; two writers of one queue cannot be meant
    "registration-same-csp-other-cid": Ours(
        refused=1, said=[*GREETED, "SourceReplicationHandler", "cid", "re", "cid", "eos"]
    ),
    # Java drops the gap and takes what follows; ours stops that queue (5, rule 5)
    "index-gap": Ours(
        stopped=True,
        said=[*GREETED, "SourceReplicationHandler", *(["cid", "re"] * 2), "cid", "eos"],
    ),
    # A word of zero silences a Java reader for ever; ours closes (1)
    "empty-data-document": Ours(
        closes="a zero word came",
        said=[*GREETED, "SourceReplicationHandler", *(["cid", "re"] * 3), "cid", "eos"],
    ),
    "padded-frames": Ours(closes="a zero word came", said=GREETED),
    # Java sees the end first and answers nothing; ours answers what came before it. A source that
    # cannot announce its end may go like this.
    "half-close": Ours(said=ANSWERED),
}


class Acceptor(Side):
    """The model's shell as the sink of the recording, which counts what is refused."""

    def __init__(self, held: list[bytes]) -> None:
        super().__init__(Role.SINK, ModelQueue(), Counter())
        self.queue.excerpts = {index(at): payload for at, payload in enumerate(held)}
        self.connection = Connection(
            connection_config(host_id=1, takes=frozenset({QUEUE})),
            0,
        )
        self.refused = 0

    def act(self, event: ev.Event) -> None:
        if isinstance(event, ev.RegistrationRefused):
            self.refused += 1
        else:
            super().act(event)

    def take(self, document: bytes) -> None:
        self.receive(document, 0)
        while self.stream(50, NS):
            pass

    def wait(self) -> None:
        """Lets time pass until something is wrong, or nothing more is to be expected."""
        connection = self.connection
        assert connection is not None
        while connection.state is ConnectionState.OPEN and connection.next_deadline() < 60:
            connection.tick(connection.next_deadline())
            self.flush()


def held_before(case: dict[str, Any]) -> list[bytes]:
    """The excerpts that the recording's shared queue held before the case, as far as it shows."""
    for message in decoded(b"".join(bytes.fromhex(each) for each in case["received"])):
        if "handler" in message and message["handler"][0] == "SourceReplicationHandler":
            wanted = message["handler"][1]["nextIndexRequired"]
            return [b"\xc3msg\xe5probe"] * (wanted - index(0) if wanted else 0)
    return []


def run(name: str) -> tuple[Acceptor, str | None]:
    """Our side after the case, and the error with which it closed."""
    case = CASES[name]
    side = Acceptor(held_before(case))
    stream = [bytes.fromhex(each) for each in case["sent"]]
    if name == "byte-by-byte":
        stream = [bytes([byte]) for byte in b"".join(stream)]
    try:
        for document in stream:
            side.take(document)
        if name in ("heartbeat-silence-1500ms", "no-heartbeat-handler"):
            side.wait()
    except ProtocolError as error:
        side.flush()
        return side, str(error)
    return side, None


def kind(message: Message) -> str:
    if "handler" in message:
        return str(message["handler"][0].rpartition(".")[2])
    names = {"re": "re", "eos": "eos", "idx": "ack", "heartbeat": "heartbeat", "cid": "cid"}
    return next(names[each] for each in names if each in message)


def without_time(messages: list[Message]) -> list[Message]:
    """Times of excerpts that the sink copies back are the sink's own."""
    return [each | {"re": each["re"][:2]} if "re" in each else each for each in messages]


def test_every_recorded_case_is_decided() -> None:
    assert SAME.keys() | JAVA_DIFFERS.keys() == CASES.keys()
    assert not SAME.keys() & JAVA_DIFFERS.keys()


@pytest.mark.parametrize("name", CASES)
def test_our_acceptor(name: str) -> None:
    wanted = SAME.get(name) or JAVA_DIFFERS[name]
    side, error = run(name)
    if wanted.closes is None:
        assert error is None
    else:
        with pytest.raises(ProtocolError, match=wanted.closes):
            raise ProtocolError(error)
    assert side.refused == wanted.refused
    assert (side.stopped is not None) == wanted.stopped
    said = decoded(bytes(side.out))
    java = decoded(b"".join(bytes.fromhex(each) for each in CASES[name]["received"]))
    if wanted.said is None:
        assert without_time(said) == without_time(java)
    else:
        assert [kind(each) for each in said] == wanted.said


@pytest.mark.parametrize("name", SAME)
def test_a_case_that_is_the_same_also_ends_alike(name: str) -> None:
    assert (SAME[name].closes is None) == (CASES[name]["closed"] is None)


@pytest.mark.parametrize("name", JAVA_DIFFERS)
def test_a_case_that_differs_does_differ(name: str) -> None:
    """A case that does not differ belongs to `SAME`."""
    wanted, case = JAVA_DIFFERS[name], CASES[name]
    java = decoded(b"".join(bytes.fromhex(each) for each in case["received"]))
    same_words = wanted.said == [kind(each) for each in java]
    same_end = (wanted.closes is None) == (case["closed"] is None)
    told_apart = name in ("uber-same-ids", "uber-wrong-local-id")  # by when it closes
    assert not (same_words and same_end) or told_apart


def test_an_unknown_class_leaves_the_queue_as_it_was() -> None:
    side, _ = run("registration-unknown-class-then-data")
    assert side.queue.excerpts == {}


def test_a_gap_is_not_filled_by_what_follows() -> None:
    side, _ = run("index-gap")
    assert side.queue.excerpts.keys() == {index(0), index(1)}


def test_the_end_of_a_half_closed_connection_is_read_as_orderly() -> None:
    side, _ = run("half-close")
    assert side.connection is not None
    side.connection.receive_end(0)
    assert side.connection.next_event() == ev.OrderlyEnd()
