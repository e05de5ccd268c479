"""The moves of native lanes while hosts run, beside the tables of their moves.

The crate decides, and Python holds each move against its own table: one that is not in it is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import pytest

from cqrepl.kernel import live
from cqrepl.net.lanemoves import LaneMoves, MovingLane
from cqrepl.protocol.states import (
    SINK_LANE_MOVES,
    SOURCE_LANE_MOVES,
    SinkLaneMove,
    SinkLaneState,
    SourceLaneMove,
    SourceLaneState,
)
from cqrepl.testing.laboratory import run
from cqrepl.testing.plan import Fault, Kind, RunPlan
from tests.support.schedules import schedule

Patch = pytest.MonkeyPatch
Pairs = set[tuple[Enum, Enum]]
OUT = (
    "cqrepl.replicator.outgoing.outgoinglanes.SOURCE_LANES",
    "cqrepl.replicator.outgoing.outgoingqueue.SOURCE_LANES",
)
IN = "cqrepl.replicator.incoming.sinklanes.SINK_LANES"

pytestmark = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")

# what each run has; tests/net/test_lane_moves.py has pumps make the others
USUAL: Pairs = {
    (SourceLaneState.KEPT, SourceLaneMove.LEND),
    (SourceLaneState.LIVE, SourceLaneMove.COME_BACK),
    (SourceLaneState.KEPT, SourceLaneMove.LEND_BEHIND),
    (SourceLaneState.BEHIND, SourceLaneMove.COME_UP),
    (SourceLaneState.KEPT, SourceLaneMove.LET_GO),
    (SinkLaneState.KEPT, SinkLaneMove.LEND),
    (SinkLaneState.QUIET, SinkLaneMove.STORE),
    (SinkLaneState.DUE, SinkLaneMove.ACKNOWLEDGE),
    (SinkLaneState.QUIET, SinkLaneMove.COME_BACK),
}


@pytest.fixture(autouse=True)
def lends_at_once(monkeypatch: Patch) -> None:
    """Every host leaves its queues to live pumps."""
    monkeypatch.setattr("cqrepl.testing.labmachine.SHARE_LATE", 1.0)


def plan(roll_cycle: str) -> RunPlan:
    """Two hosts that have much for each other now and then, over a link that breaks."""
    floods = [Fault(1.0 + nth / 10, Kind.FLOOD, 1, 2, 0.0) for nth in range(5)]
    cut = Fault(3.0, Kind.CUT, 1, 2, 0.3)
    return schedule(*floods, cut, seconds=5.0, roll_cycle=roll_cycle, both_ways=True)


class Noted(LaneMoves):
    """Notes what lanes do, in the order in which they come back."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.made: Pairs = set()

    def check(self, lanes: Iterable[MovingLane]) -> None:
        lanes = list(lanes)
        moves = [lane.take_moves() for lane in lanes]
        for each in moves:
            self.made |= set(self.of(each))
        super().check(Said(each) for each in moves)


class Said:
    """A lane that has made these moves."""

    def __init__(self, moves: int) -> None:
        self._moves = moves

    def take_moves(self) -> int:
        return self._moves


def noted(patch: Patch, out: Mapping[Any, Enum], into: Mapping[Any, Enum]) -> tuple[Noted, Noted]:
    """Holds what lanes do against these tables."""
    outgoing = Noted(out, SourceLaneState, SourceLaneMove, "out")
    incoming = Noted(into, SinkLaneState, SinkLaneMove, "in")
    for name in OUT:
        patch.setattr(name, outgoing)
    patch.setattr(IN, incoming)
    return outgoing, incoming


def without(table: Mapping[Any, Enum], pair: tuple[Enum, Enum]) -> dict[Any, Enum]:
    """A table that has one move less: as if the crate decided otherwise than it says."""
    return {each: after for each, after in table.items() if each != pair}


@pytest.mark.parametrize("roll_cycle", ["FAST_DAILY", "TEST_SECONDLY"])
def test_lanes_make_the_moves_of_their_tables_and_no_other(
    monkeypatch: Patch, roll_cycle: str
) -> None:
    outgoing, incoming = noted(monkeypatch, SOURCE_LANE_MOVES, SINK_LANE_MOVES)
    assert run(plan(roll_cycle)).broken is None
    made = outgoing.made | incoming.made
    assert USUAL <= made <= SOURCE_LANE_MOVES.keys() | SINK_LANE_MOVES.keys()


@pytest.mark.parametrize(
    "pair",
    [
        (SourceLaneState.LIVE, SourceLaneMove.COME_BACK),
        (SourceLaneState.KEPT, SourceLaneMove.LET_GO),
    ],
)
def test_a_move_of_a_lane_that_goes_out_which_is_in_no_table_is_found(
    monkeypatch: Patch, pair: tuple[SourceLaneState, SourceLaneMove]
) -> None:
    noted(monkeypatch, without(SOURCE_LANE_MOVES, pair), SINK_LANE_MOVES)
    outcome = run(plan("FAST_DAILY"))
    assert outcome.check == "crash"
    assert f"{pair[1].name} while {pair[0].name}" in str(outcome.broken)


def test_a_move_of_a_lane_that_comes_in_which_is_in_no_table_is_found(monkeypatch: Patch) -> None:
    pair = (SinkLaneState.DUE, SinkLaneMove.ACKNOWLEDGE)
    noted(monkeypatch, SOURCE_LANE_MOVES, without(SINK_LANE_MOVES, pair))
    outcome = run(plan("FAST_DAILY"))
    assert outcome.check == "crash"
    assert "ACKNOWLEDGE while DUE" in str(outcome.broken)
