"""The tables of states, and the picture of each. `test_moves` drives the handlers by them, and
`tests/net/test_live` those who share a socket, `tests/net/test_lane_moves` native lanes."""

from enum import Enum

import pytest

from cqrepl.protocol.states import SINK_MOVES, SinkState
from tools.state_diagrams import TABLES, Table, diagram

# the others go round for as long as the connection, or the host, lasts
ENDING = ("connection", "source", "sink", "socket")
EACH = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
EACH_ENDING = pytest.mark.parametrize("table", [TABLES[name] for name in ENDING], ids=ENDING)


@EACH
def test_every_state_can_be_reached(table: Table) -> None:
    reached: set[Enum] = {next(iter(table.states))}
    while more := {after for (at, _), after in table.moves.items() if at in reached} - reached:
        reached |= more
    assert reached == set(table.states)


@EACH
def test_every_move_is_possible_somewhere(table: Table) -> None:
    assert {move for _, move in table.moves} == set(table.names)


@EACH_ENDING
def test_the_last_state_is_never_left(table: Table) -> None:
    *others, last = table.states
    assert {after for (state, _), after in table.moves.items() if state is last} == {last}
    for state in others:
        assert any(after is last for (before, _), after in table.moves.items() if before is state)


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
