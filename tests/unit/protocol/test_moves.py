"""Every pair of state and move, driven through the handlers: by messages and by calls.

The tables say what has to come out. What is no move in a state is the error of the side that asked
for it. What comes for a queue that has stopped, or on a closed connection, is dropped; a second
answer and a second UberHandler are refused, and the connection goes on.
"""

from collections.abc import Callable
from enum import Enum
from itertools import product
from typing import Any, Final

import pytest

from cqrepl.protocol import LocalProtocolError, RemoteProtocolError, StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.states import (
    CONNECTION_MOVES,
    SINK_MOVES,
    SOURCE_MOVES,
    ConnectionMove,
    ConnectionState,
    SinkMove,
    SinkState,
    SourceMove,
    SourceState,
)
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from tests.support import peer
from tests.support.peer import CID, CSP, NS, SHIFT, SINK_ID, SOURCE_ID, Ours, Role

FIRST: Final = 5  # the first index that the source does not have
Make = Callable[[], Ours]
Do = Callable[[Ours], Any]
REMOTE, LOCAL = RemoteProtocolError, LocalProtocolError


def answer(next_index: int) -> bytes:
    return peer.register(CSP, CID, peer.source_handler(next_index))


def frame(ours: Ours) -> None:
    batch = ExcerptBatch.of(FIRST, [b"x"])
    ours.connection.frame_excerpts(CID, batch, 0, NS, bytearray(1 << 12), 0)


def stop(ours: Ours) -> None:
    ours.connection.stop_queue(CID, StopReason.DIVERGED, "here")


def after(make: Make, *steps: Do) -> Make:
    """A maker of what `make` makes, after some steps."""

    def made() -> Ours:
        ours = make()
        for step in steps:
            step(ours)
        ours.events()
        return ours

    return made


def came(*documents: bytes) -> Do:
    return lambda ours: ours.receive(*documents)


def offering() -> Ours:
    return peer.offering_source(FIRST)


def offered() -> Ours:
    """A sink of a source that compares what both sides hold."""
    ours = Ours(Role.SINK)
    announced = {"v": 1, "capabilities": ["lineage"], "role": "host"}
    ours.receive(peer.uber(SOURCE_ID, SINK_ID, cqrepl=announced), peer.heartbeats())
    offer = peer.sink_handler(0, cqrepl={"v": 1, "firstCycle": -1})
    return after(lambda: ours, came(peer.register(CSP, CID, offer)))()


def answer_offered(ours: Ours) -> None:
    ours.connection.answer_queue(CID, FIRST, SHIFT, None, Lineage(first_cycle=0))


def go_on(ours: Ours) -> None:
    ours.connection.go_on(CID)


SOURCES: Final[dict[SourceState, Make]] = {
    SourceState.OFFERED: offering,
    SourceState.ANSWERED: after(offering, came(answer(0))),
    SourceState.SINK_AHEAD: after(offering, came(answer(9))),
    SourceState.BACK_COPY: after(
        offering,
        came(answer(FIRST + 1)),
        lambda ours: ours.connection.begin_back_copy(CID, FIRST, SHIFT),
        came(peer.excerpts(FIRST, b"x")),
    ),
    SourceState.STREAMING: after(offering, came(answer(0), peer.end_of_stream()), frame),
    SourceState.STOPPED: after(offering, stop),
}
SOURCE_DOES: Final[dict[SourceMove, tuple[type[Exception], Do]]] = {
    SourceMove.ANSWER: (REMOTE, came(answer(0))),
    SourceMove.ANSWER_AHEAD: (REMOTE, came(answer(9))),
    SourceMove.LOCKED: (
        LOCAL, lambda ours: ours.connection.begin_back_copy(CID, FIRST, SHIFT),
    ),
    SourceMove.EXCERPTS_RECEIVED: (REMOTE, came(peer.excerpts(FIRST, b"x"))),
    SourceMove.END_OF_STREAM: (REMOTE, came(peer.end_of_stream())),
    SourceMove.FRAMED: (LOCAL, frame),
    SourceMove.ACKNOWLEDGEMENT: (REMOTE, came(peer.acknowledgement(FIRST))),
    SourceMove.STOP: (LOCAL, stop),
}  # fmt: skip

SINKS: Final[dict[SinkState, Make]] = {
    SinkState.REGISTERED: offered,
    SinkState.ANSWERED: after(offered, answer_offered),
    SinkState.BACK_COPY: after(offered, answer_offered, go_on),
    SinkState.RECEIVING: after(peer.receiving_sink, came(peer.excerpts(0, b"x"))),
    SinkState.STOPPED: after(offered, stop),
}
SINK_DOES: Final[dict[SinkMove, tuple[type[Exception], Do]]] = {
    SinkMove.ANSWERED: (LOCAL, answer_offered),
    SinkMove.BACK_COPY_BEGUN: (LOCAL, go_on),
    SinkMove.FRAMED: (LOCAL, frame),
    SinkMove.END_OF_STREAM_SENT: (LOCAL, lambda ours: ours.connection.end_back_copy(CID)),
    SinkMove.EXCERPTS_RECEIVED: (REMOTE, came(peer.excerpts(0, b"x"))),
    SinkMove.STORED: (LOCAL, lambda ours: ours.connection.sink(CID).stored(0, NS)),
    SinkMove.STOP: (LOCAL, stop),
}  # fmt: skip

CONNECTIONS: Final[dict[ConnectionState, Make]] = {
    ConnectionState.WAITING: lambda: Ours(Role.SINK),
    ConnectionState.OPEN: peer.sink,
    ConnectionState.ENDING: after(peer.sink, lambda ours: ours.connection.end()),
    ConnectionState.CLOSED: after(peer.sink, lambda ours: ours.connection.receive_end(ours.now)),
}
CONNECTION_DOES: Final[dict[ConnectionMove, tuple[type[Exception], Do]]] = {
    ConnectionMove.UBER_ACCEPTED: (REMOTE, came(peer.uber(SOURCE_ID, SINK_ID))),
    ConnectionMove.TERMINATOR_SENT: (LOCAL, lambda ours: ours.connection.end()),
    ConnectionMove.TERMINATOR_RECEIVED: (REMOTE, came(peer.terminator())),
    ConnectionMove.END: (LOCAL, lambda ours: ours.connection.receive_end(ours.now)),
}


def pairs(states: type[Enum], moves: type[Enum]) -> list[object]:
    return [
        pytest.param(state, move, id=f"{state.name}-{move.name}")
        for state, move in product(states, moves)
    ]


def drive(
    do: tuple[type[Exception], Do], ours: Ours, expected: Enum | None, *, drops: bool, again: bool
) -> bool:
    """Does it, and expects an error unless it is a move, dropped or refused; true without one.

    Args:
        drops: messages are dropped in this state.
        again: this message has come before.
    """
    error, act = do
    if expected is not None:
        act(ours)
        return True
    if error is REMOTE and (drops or again):
        events = act(ours)
        refused = [event for event in events if isinstance(event, ev.RegistrationRefused)]
        assert len(events) == len(refused) == (0 if drops and not again else 1)
        return True
    with pytest.raises(error):
        act(ours)
    return False


@pytest.mark.parametrize(("state", "move"), pairs(SourceState, SourceMove))
def test_a_source_moves_as_its_table_says(state: SourceState, move: SourceMove) -> None:
    ours = SOURCES[state]()
    source = ours.connection.source(CID)
    assert source.state is state
    expected, drops = SOURCE_MOVES.get((state, move)), state is SourceState.STOPPED
    again = source.answer is not None and move in (SourceMove.ANSWER, SourceMove.ANSWER_AHEAD)
    drive(SOURCE_DOES[move], ours, expected, drops=drops, again=again)
    assert source.state is (expected or state)


@pytest.mark.parametrize(("state", "move"), pairs(SinkState, SinkMove))
def test_a_sink_moves_as_its_table_says(state: SinkState, move: SinkMove) -> None:
    ours = SINKS[state]()
    sink = ours.connection._router.sink(CID)
    assert sink.state is state
    expected, drops = SINK_MOVES.get((state, move)), state is SinkState.STOPPED
    drive(SINK_DOES[move], ours, expected, drops=drops, again=False)
    assert sink.state is (expected or state)


@pytest.mark.parametrize(("state", "move"), pairs(ConnectionState, ConnectionMove))
def test_a_connection_moves_as_its_table_says(state: ConnectionState, move: ConnectionMove) -> None:
    ours = CONNECTIONS[state]()
    assert ours.connection.state is state
    expected, drops = CONNECTION_MOVES.get((state, move)), state is ConnectionState.CLOSED
    does = CONNECTION_DOES[move]
    again = move is ConnectionMove.UBER_ACCEPTED and not drops
    went = drive(does, ours, expected, drops=drops, again=again)
    refused = ConnectionState.CLOSED if does[0] is REMOTE else state  # a wrong peer is closed
    assert ours.connection.state is (expected or (state if went else refused))
