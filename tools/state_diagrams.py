"""Writes the states and moves of `docs/protocol.md` from the tables of the protocol.

    python -m tools.state_diagrams            rewrites what stands between the markers
    python -m tools.state_diagrams --check    exit code 1 when that would change the page

The tables in `cqrepl/protocol/states.py`, `cqrepl/protocol/queuelife.py` and
`cqrepl/cluster/election/electionstates.py` are what the handlers obey, so the page takes its
diagrams, its lists of states and its tables of moves from there, and a test compares the two. For
each table the page holds one pair of markers, a line each:

    <!-- states of the connection: begin -->
    <!-- states of the connection: end -->

What a state or a move means is the comment behind its member in the source of the Enum.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cqrepl.cluster.election import electionstates
from cqrepl.protocol import queuelife, states

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"
Moves = Mapping[tuple[Any, Any], Enum]  # from a state and a move to the next state
_MEMBER: Final = re.compile(r"^ +(\w+) = auto\(\)(?: +# (.*))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One state machine: its moves, and the Enums that name its states and moves."""

    moves: Moves
    states: type[Enum]
    names: type[Enum]


TABLES: Final[Mapping[str, Table]] = {
    "connection": Table(
        moves=states.CONNECTION_MOVES, states=states.ConnectionState, names=states.ConnectionMove
    ),
    "source": Table(moves=states.SOURCE_MOVES, states=states.SourceState, names=states.SourceMove),
    "sink": Table(moves=states.SINK_MOVES, states=states.SinkState, names=states.SinkMove),
    "socket": Table(moves=states.SOCKET_MOVES, states=states.SocketState, names=states.SocketMove),
    "outgoing queues": Table(
        moves=states.OUTGOING_MOVES, states=states.OutgoingState, names=states.OutgoingMove
    ),
    "source's lanes": Table(
        moves=states.SOURCE_LANE_MOVES, states=states.SourceLaneState, names=states.SourceLaneMove
    ),
    "sink's lanes": Table(
        moves=states.SINK_LANE_MOVES, states=states.SinkLaneState, names=states.SinkLaneMove
    ),
    "queue that is taken in": Table(
        moves=queuelife.COPY_MOVES, states=queuelife.CopyState, names=queuelife.CopyMove
    ),
    "queue that is streamed": Table(
        moves=queuelife.STREAMED_MOVES,
        states=queuelife.StreamedState,
        names=queuelife.StreamedMove,
    ),
    "queue on its way to one sink": Table(
        moves=queuelife.TO_SINK_MOVES, states=queuelife.ToSinkState, names=queuelife.ToSinkMove
    ),
    "reading for one sink": Table(
        moves=queuelife.READ_MOVES, states=queuelife.ReadState, names=queuelife.ReadMove
    ),
    "taking by one sink": Table(
        moves=queuelife.TAKE_MOVES, states=queuelife.TakeState, names=queuelife.TakeMove
    ),
    "word that holds a queue": Table(
        moves=queuelife.HOLD_MOVES, states=queuelife.HoldState, names=queuelife.HoldMove
    ),
    "queue whose leader is elected": Table(
        moves=electionstates.ELECTION_MOVES,
        states=electionstates.ElectionState,
        names=electionstates.ElectionMove,
    ),
}


def diagram(moves: Moves, first: Enum) -> str:
    """The moves as a mermaid state diagram that begins in `first`."""
    lines = ["stateDiagram-v2", f"    [*] --> {first.name}"]
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, move), after in moves.items():
        arrows.setdefault((state.name, after.name), []).append(move.name)
    lines += [
        f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in arrows.items()
    ]
    return "\n".join(lines) + "\n"


def meanings(members: type[Enum]) -> dict[str, str]:
    """The text of the comment behind each member; empty where there is none."""
    found = _MEMBER.findall(inspect.getsource(members))
    assert [name for name, _ in found] == [member.name for member in members]
    return dict(found)


def section(table: Table) -> str:
    """The text between the markers of one table: diagram, states, moves."""
    first = next(iter(table.states))
    parts = [
        f"```mermaid\n{diagram(table.moves, first)}```",
        _list("state", "is true while in it", meanings(table.states)),
        _matrix(table),
    ]
    explained = {name: text for name, text in meanings(table.names).items() if text}
    if explained:
        parts.append(_list("move", "means", explained))
    return "\n\n".join(parts) + "\n"


def _list(name: str, meaning: str, texts: Mapping[str, str]) -> str:
    lines = [f"| {name} | {meaning} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {each} | {text} |" for each, text in texts.items())])


def _matrix(table: Table) -> str:
    """A line for each move, a column for each state; a dash where the move is not allowed."""
    columns = list(table.states)
    lines = [
        "| " + " | ".join(["move", *(f"while {state.name}" for state in columns)]) + " |",
        "| " + " | ".join(["---"] * (1 + len(columns))) + " |",
    ]
    for move in table.names:
        after = (table.moves.get((state, move)) for state in columns)
        cells = ["-" if state is None else state.name for state in after]
        lines.append("| " + " | ".join([move.name, *cells]) + " |")
    return "\n".join(lines)


def written(page: str, tables: Mapping[str, Table] = TABLES) -> str:
    """The page with the sections that `tables` make between its markers.

    Raises:
        ValueError: the markers of a table are missing, or stand there more than once.
    """
    for name, table in tables.items():
        begin = f"<!-- states of the {name}: begin -->\n"
        end = f"<!-- states of the {name}: end -->\n"
        if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
            raise ValueError(f"one pair of markers expected: {begin.strip()} and {end.strip()}")
        before, after = page[: page.index(begin)], page[page.index(end) :]
        page = f"{before}{begin}\n{section(table)}\n{after}"
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrites or checks the page; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.state_diagrams", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="compare and change nothing")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page (default: %(default)s)")
    asked = parser.parse_args(arguments)
    page = asked.page.read_text()
    wanted = written(page)
    if page == wanted:
        return 0
    if asked.check:
        print(f"{asked.page} does not show the tables as they are: `make docs` writes them anew")
        return 1
    asked.page.write_text(wanted)
    print(f"{asked.page}: written anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
