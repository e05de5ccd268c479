"""The life of a queue on a host: the tables, and the machines that obey them."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cqrepl.protocol import queuelife
from cqrepl.protocol.events import StopReason
from cqrepl.protocol.queuelife import (
    COPY_MOVES,
    CopyLife,
    CopyMove,
    CopyState,
    QueueLife,
    Reason,
    ReasonKind,
    StreamedLife,
    StreamedMove,
    StreamedState,
)
from tools.state_diagrams import TABLES

Machine = tuple[Mapping[Any, Any], Mapping[Any, Any], type[Enum], type[Enum]]
# of those tables that stand beside `queuelife`, each with the reasons of its states
MACHINES: dict[str, Machine] = {
    name: (each.moves, reasons, each.states, each.names)
    for name, each in TABLES.items()
    for at, reasons in vars(queuelife).items()
    if at.endswith("_REASONS") and getattr(queuelife, at.replace("REASONS", "MOVES")) is each.moves
}
assert len(MACHINES) == 6
PAIRS = [
    pytest.param(machine, state, move, id=f"{name}-{state.name}-{move.name}")
    for name, machine in MACHINES.items()
    for state in machine[2]
    for move in machine[3]
]
OPEN = {CopyState.LIVE, CopyState.RETRIED, CopyState.LEFT_OPEN, CopyState.STOPPED_OPEN}
WHY = Reason(kind=ReasonKind.DISK, message="no room")
LATER = Reason(kind=ReasonKind.PEER, message="the peer says: no room")


def life_in(machine: Machine, state: Any) -> QueueLife[Any, Any, Reason]:
    """One that is in a state, with the reason that the state has."""
    moves, reasons, states, _ = machine
    life = QueueLife[Any, Any, Reason](moves, reasons, next(iter(states)))
    life.state, life.reason = state, WHY if state in reasons else None
    return life


@pytest.mark.parametrize(("machine", "state", "move"), PAIRS)
def test_each_move_in_each_state_is_as_the_table_says(
    machine: Machine, state: Any, move: Any
) -> None:
    moves, reasons, _, _ = machine
    life = life_in(machine, state)
    why = LATER if move in reasons.values() else None
    assert life.may(move) is ((state, move) in moves)
    if not life.may(move):
        with pytest.raises(AssertionError, match=f"{move.name} is not allowed while {state.name}"):
            life.move(move, why)
        assert (life.state, life.reason) == (state, WHY if state in reasons else None)
        return
    life.move(move, why)
    assert life.state is moves[state, move]
    begins = reasons.get(life.state)
    assert life.reason == (None if begins is None else LATER if begins is move else WHY)


@pytest.mark.parametrize(("machine", "state", "move"), PAIRS)
def test_a_reason_comes_with_the_moves_that_states_are_named_after_and_with_no_other(
    machine: Machine, state: Any, move: Any
) -> None:
    moves, reasons, _, _ = machine
    if (state, move) in moves:
        with pytest.raises(AssertionError):
            life_in(machine, state).move(move, None if move in reasons.values() else LATER)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_state_with_a_reason_is_entered_by_its_own_move_or_from_its_like(
    machine: Machine,
) -> None:
    """Else it would have the reason of another state, or none."""
    moves, reasons, _, _ = machine
    for (state, move), after in moves.items():
        if after in reasons and reasons[after] is not move:
            assert reasons.get(state) is reasons[after]


def test_a_move_that_is_tried_changes_nothing_where_the_table_has_it_not() -> None:
    life: CopyLife[Reason] = CopyLife()
    assert life.try_move(CopyMove.STOP, WHY)
    assert not life.try_move(CopyMove.PAUSE, WHY)
    assert (life.state, life.reason) == (CopyState.STOPPED, WHY)


def test_a_connection_has_a_copy_from_take_to_give_back() -> None:
    for (state, move), after in COPY_MOVES.items():
        if move is CopyMove.TAKE:
            assert state not in OPEN
            assert after in OPEN
        elif move is CopyMove.GIVE_BACK:
            assert state in OPEN
            assert after not in OPEN
        else:
            assert (state in OPEN) is (after in OPEN)


@pytest.mark.parametrize("state", CopyState)
@pytest.mark.parametrize("move", [CopyMove.STOP, CopyMove.BEGIN_ANEW])
def test_a_copy_may_stop_and_begin_anew_in_each_state(state: CopyState, move: CopyMove) -> None:
    """Files are looked at in threads: a copy may have stopped when one finds that it has to."""
    assert (state, move) in COPY_MOVES


@pytest.mark.parametrize("reason", StopReason)
def test_each_reason_on_the_wire_has_a_kind(reason: StopReason) -> None:
    assert ReasonKind.of_stop(reason).name in (reason.name, "ANSWER")


class CopyMachine(RuleBasedStateMachine):
    """A copy, beside what is known of it in other words: who has it, and what keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.life: CopyLife[Reason] = CopyLife()
        self.is_open = False
        self.troubles: dict[CopyMove, Reason] = {}  # by the move that has brought each
        self.held: Reason | None = None

    @precondition(lambda self: not self.is_open)
    @rule()
    def take(self) -> None:
        self.life.move(CopyMove.TAKE)
        self.is_open = True
        self.troubles.pop(CopyMove.LEAVE, None)

    @precondition(lambda self: self.is_open)
    @rule()
    def give_back(self) -> None:
        self.life.move(CopyMove.GIVE_BACK)
        self.is_open = False

    @rule(move=st.sampled_from([CopyMove.PAUSE, CopyMove.LEAVE, CopyMove.STOP]), text=st.text())
    def end(self, move: CopyMove, text: str) -> None:
        """The gravest of the three counts: the later one of two that are equal."""
        order = [CopyMove.PAUSE, CopyMove.LEAVE, CopyMove.STOP]
        worst = max((order.index(each) for each in self.troubles), default=-1)
        assert self.life.may(move) is (order.index(move) >= worst)
        if self.life.may(move):
            why = Reason(kind=ReasonKind.FAILED, message=text)
            self.life.move(move, why)
            self.troubles = {move: why}

    @rule()
    def go_on(self) -> None:
        has_paused = CopyMove.PAUSE in self.troubles
        assert self.life.may(CopyMove.GO_ON) is has_paused
        if has_paused:
            self.life.move(CopyMove.GO_ON)
            self.troubles = {}

    @rule()
    def begin_anew(self) -> None:
        self.life.move(CopyMove.BEGIN_ANEW)
        self.troubles = {}

    @rule(is_by_hand=st.booleans(), text=st.text())
    def hold(self, is_by_hand: bool, text: str) -> None:
        kind = ReasonKind.BY_HAND if is_by_hand else ReasonKind.TURNS
        self.held = Reason(kind=kind, message=text)
        self.life.hold.set(self.held)

    @rule()
    def free(self) -> None:
        self.held = None
        self.life.hold.set(None)

    @invariant()
    def answers_are_right(self) -> None:
        life = self.life
        trouble, stop = self.troubles.get(CopyMove.PAUSE), self.troubles.get(CopyMove.STOP)
        end = stop or self.troubles.get(CopyMove.LEAVE)
        assert (life.trouble, life.stop, life.end) == (trouble, stop, end)
        assert life.is_free is (not self.is_open and self.held is None)
        assert life.takes_on is (stop is None and self.held is None)
        is_by_hand = self.held is not None and self.held.kind is ReasonKind.BY_HAND
        assert life.is_paused is is_by_hand
        assert life.hold.reason is self.held

    @invariant()
    def the_word_is_that_of_the_gravest(self) -> None:
        word = "live" if self.is_open else "waits"
        for move, before in ((CopyMove.PAUSE, "paused"), (CopyMove.LEAVE, "stopped")):
            if move in self.troubles:
                word = f"{before}: {self.troubles[move].message}"
        if self.held is not None and CopyMove.LEAVE not in self.troubles:
            word = "paused: by operator"
        if CopyMove.STOP in self.troubles:
            word = f"stopped: {self.troubles[CopyMove.STOP].message}"
        assert self.life.word == word


class StreamedMachine(RuleBasedStateMachine):
    """A queue that is streamed, beside what is known of it in other words."""

    def __init__(self) -> None:
        super().__init__()
        self.life: StreamedLife[Reason] = StreamedLife()
        self.why: tuple[StreamedMove, Reason] | None = None  # it is not open, or has stopped
        self.is_open = False
        self.is_held = False

    @rule(move=st.sampled_from(StreamedMove), text=st.text())
    def move(self, move: StreamedMove, text: str) -> None:
        ends = move in (StreamedMove.STOP, StreamedMove.BEGIN_ANEW)
        is_lasting = self.why is not None and self.why[0] is StreamedMove.STOP
        may = self.is_open is ends and (move is not StreamedMove.BEGIN_ANEW or is_lasting)
        assert self.life.may(move) is may
        if not may:
            return
        if move in (StreamedMove.OPEN, StreamedMove.BEGIN_ANEW):
            self.life.move(move)
            self.is_open, self.why = True, None
        else:
            why = Reason(kind=ReasonKind.FAILED, message=text)
            self.life.move(move, why)
            self.why = move, why

    @rule(is_held=st.booleans())
    def hold(self, is_held: bool) -> None:
        self.is_held = is_held
        self.life.hold.set(WHY if is_held else None)

    @rule(text=st.none() | st.text())
    def the_word_is_that_of_the_gravest(self, text: str | None) -> None:
        word = "live" if text is None else f"paused: {text}"
        if self.why is not None:
            word = f"paused: {self.why[1].message}"
        if self.is_held:
            word = "paused: by operator"
        if self.why is not None and self.why[0] in (StreamedMove.STOP, StreamedMove.GIVE_UP):
            word = f"stopped: {self.why[1].message}"
        if self.life.state is not StreamedState.UNOPENED or self.why is not None:
            assert self.life.word(text) == word


TestStreamedMachine = StreamedMachine.TestCase
TestCopyMachine = CopyMachine.TestCase
