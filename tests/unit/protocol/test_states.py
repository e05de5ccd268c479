"""The tables of states, and the picture of each. `test_moves` drives the handlers by them, and
`tests/net/test_socket_turns` those who share a socket, `tests/net/test_lane_moves` native lanes."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from cqrepl.protocol.queuelife import (
    COPY_MOVES,
    HOLD_MOVES,
    READ_MOVES,
    STREAMED_MOVES,
    TAKE_MOVES,
    TO_SINK_MOVES,
    CopyMove,
    CopyState,
    HoldMove,
    HoldState,
    ReadMove,
    ReadState,
    StreamedMove,
    StreamedState,
    TakeMove,
    TakeState,
    ToSinkMove,
    ToSinkState,
)
from cqrepl.protocol.states import (
    CONNECTION_MOVES,
    OUTGOING_MOVES,
    SINK_LANE_MOVES,
    SINK_MOVES,
    SOCKET_MOVES,
    SOURCE_LANE_MOVES,
    SOURCE_MOVES,
    ConnectionMove,
    ConnectionState,
    OutgoingMove,
    OutgoingState,
    SinkLaneMove,
    SinkLaneState,
    SinkMove,
    SinkState,
    SocketMove,
    SocketState,
    SourceLaneMove,
    SourceLaneState,
    SourceMove,
    SourceState,
)
from tools.state_diagrams import diagram

Table = Mapping[Any, Any]  # of (state, move) to state

TABLES: dict[str, tuple[Table, type[Enum], type[Enum]]] = {
    "connection": (CONNECTION_MOVES, ConnectionState, ConnectionMove),
    "source": (SOURCE_MOVES, SourceState, SourceMove),
    "sink": (SINK_MOVES, SinkState, SinkMove),
    "socket": (SOCKET_MOVES, SocketState, SocketMove),
    "outgoing queues": (OUTGOING_MOVES, OutgoingState, OutgoingMove),
    "source's lanes": (SOURCE_LANE_MOVES, SourceLaneState, SourceLaneMove),
    "sink's lanes": (SINK_LANE_MOVES, SinkLaneState, SinkLaneMove),
    "queue that is taken in": (COPY_MOVES, CopyState, CopyMove),
    "queue that is streamed": (STREAMED_MOVES, StreamedState, StreamedMove),
    "queue on its way to one sink": (TO_SINK_MOVES, ToSinkState, ToSinkMove),
    "reading for one sink": (READ_MOVES, ReadState, ReadMove),
    "taking by one sink": (TAKE_MOVES, TakeState, TakeMove),
    "word that holds a queue": (HOLD_MOVES, HoldState, HoldMove),
}
# the others go round for as long as the connection, or the host, lasts
ENDING = {name: TABLES[name] for name in ("connection", "source", "sink", "socket")}
COLUMNS = ("table", "states", "moves")
EACH = pytest.mark.parametrize(COLUMNS, TABLES.values(), ids=TABLES)
EACH_ENDING = pytest.mark.parametrize(COLUMNS, ENDING.values(), ids=ENDING)


@EACH
def test_every_state_can_be_reached(table: Table, states: type[Enum], moves: type[Enum]) -> None:
    reached = {next(iter(states))}
    while more := {after for (state, _), after in table.items() if state in reached} - reached:
        reached |= more
    assert reached == set(states)


@EACH
def test_every_move_is_possible_somewhere(
    table: Table, states: type[Enum], moves: type[Enum]
) -> None:
    assert {move for _, move in table} == set(moves)


@EACH_ENDING
def test_the_last_state_is_never_left(table: Table, states: type[Enum], moves: type[Enum]) -> None:
    *others, last = states
    assert {after for (state, _), after in table.items() if state is last} == {last}
    for state in others:
        assert any(after is last for (before, _), after in table.items() if before is state)


@EACH
def test_the_diagram_names_every_state_and_move(
    table: Table, states: type[Enum], moves: type[Enum]
) -> None:
    text = diagram(table, next(iter(states)))
    for each in (*states, *moves):
        assert each.name in text
    assert text.count(" --> ") == 1 + len({(state, after) for (state, _), after in table.items()})


def test_a_diagram_is_what_mermaid_draws() -> None:
    assert diagram(SINK_MOVES, SinkState.REGISTERED) == (
        "stateDiagram-v2\n"
        "    [*] --> REGISTERED\n"
        "    REGISTERED --> ANSWERED: ANSWERED\n"
        "    ANSWERED --> BACK_COPY: BACK_COPY_BEGUN\n"
        "    BACK_COPY --> BACK_COPY: FRAMED\n"
        "    BACK_COPY --> RECEIVING: END_OF_STREAM_SENT\n"
        "    RECEIVING --> RECEIVING: EXCERPTS_RECEIVED, STORED\n"
        "    REGISTERED --> STOPPED: STOP\n"
        "    ANSWERED --> STOPPED: STOP\n"
        "    BACK_COPY --> STOPPED: STOP\n"
        "    RECEIVING --> STOPPED: STOP\n"
        "    STOPPED --> STOPPED: STOP\n"
    )
