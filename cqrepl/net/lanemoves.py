"""The moves of native lanes, held against the tables of `protocol.states` when a live pump is back.

A lane notes each pair of a state and a move that it has made as a bit, so on the data path that
costs nothing, and here one comparison for each lane. A move that is in no table is an error of
ours: the crate decides otherwise than is written down.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.states import (
    SINK_LANE_MOVES,
    SOURCE_LANE_MOVES,
    SinkLaneMove,
    SinkLaneState,
    SourceLaneMove,
    SourceLaneState,
)

Pair = tuple[Enum, Enum]  # a state, and the move that was made in it


class MovingLane(Protocol):
    """A native lane of either kind."""

    def take_moves(self) -> int:
        """The pairs since the last call, as bits."""
        ...


class LaneMoves:
    """The moves that the lanes of one kind may make, to check those that they have made.

    Args:
        table: the state after each move that is allowed.
        where: names the lanes in an error.
    """

    def __init__(
        self,
        table: Mapping[Any, Enum],
        states: type[Enum],
        moves: type[Enum],
        where: str,
    ) -> None:
        self._pairs = [(state, move) for state in states for move in moves]
        self._allowed = sum(1 << nth for nth, pair in enumerate(self._pairs) if pair in table)
        self._where = where

    def check(self, lanes: Iterable[MovingLane]) -> None:
        """Looks at what lanes have done since they were looked at last.

        Raises:
            LocalProtocolError: one has made a move that is not in the table.
        """
        wrong = 0
        for lane in lanes:
            wrong |= lane.take_moves() & ~self._allowed
        if wrong:
            found = ", ".join(f"{move.name} while {state.name}" for state, move in self.of(wrong))
            raise LocalProtocolError(f"moves of the table expected, found {found} ({self._where})")

    def of(self, made: int) -> list[Pair]:
        """The pairs that bits stand for."""
        return [pair for nth, pair in enumerate(self._pairs) if made >> nth & 1]


SOURCE_LANES: Final = LaneMoves(
    SOURCE_LANE_MOVES, SourceLaneState, SourceLaneMove, "a native lane that goes out"
)
SINK_LANES: Final = LaneMoves(
    SINK_LANE_MOVES, SinkLaneState, SinkLaneMove, "a native lane that comes in"
)
