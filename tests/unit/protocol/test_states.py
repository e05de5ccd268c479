"""The tables of states: every pair of state and move, and the picture of each table."""

from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import Any

import pytest

from cqrepl.protocol import LocalProtocolError, RemoteProtocolError
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
    moved,
)
from tools.state_diagrams import diagram

Table = Mapping[Any, Any]  # of (state, move) to state

TABLES: dict[str, tuple[Table, type[Enum], type[Enum]]] = {
    "connection": (CONNECTION_MOVES, ConnectionState, ConnectionMove),
    "source": (SOURCE_MOVES, SourceState, SourceMove),
    "sink": (SINK_MOVES, SinkState, SinkMove),
}
EACH = pytest.mark.parametrize(("table", "states", "moves"), TABLES.values(), ids=TABLES)
PAIRS = [
    pytest.param(table, state, move, id=f"{name}-{state.name}-{move.name}")
    for name, (table, states, moves) in TABLES.items()
    for state, move in product(states, moves)
]


@pytest.mark.parametrize(("table", "state", "move"), PAIRS)
@pytest.mark.parametrize("error", [LocalProtocolError, RemoteProtocolError])
def test_every_pair_is_a_move_or_the_error_that_was_asked_for(
    table: Table,
    state: Enum,
    move: Enum,
    error: type[LocalProtocolError | RemoteProtocolError],
) -> None:
    if (state, move) in table:
        assert moved(table, state, move, error, "here") is table[state, move]
    else:
        with pytest.raises(error, match=rf"{move.name} is not allowed while {state.name} \(here\)"):
            moved(table, state, move, error, "here")


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


@EACH
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
        "    REGISTERED --> BACK_COPY: ANSWERED\n"
        "    BACK_COPY --> BACK_COPY: FRAMED\n"
        "    BACK_COPY --> RECEIVING: END_OF_STREAM_SENT\n"
        "    RECEIVING --> RECEIVING: EXCERPTS_RECEIVED, STORED\n"
        "    REGISTERED --> STOPPED: STOP\n"
        "    BACK_COPY --> STOPPED: STOP\n"
        "    RECEIVING --> STOPPED: STOP\n"
        "    STOPPED --> STOPPED: STOP\n"
    )
