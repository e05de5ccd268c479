"""The native board does what the plain one does: the same marks, the same waits that are over, and
the bell at the same moments."""

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)

from cqrepl.kernel import plain
from cqrepl.kernel.interface import AckLevel, LoopBell, MarkBoard, MarkRow
from tests.support.descriptors import is_readable

native: ModuleType = pytest.importorskip("cqrepl._native", reason="there is no native kernel")

HOSTS: Final = st.integers(0, 3)
LEVELS: Final = st.sampled_from(AckLevel)
INDEXES: Final = st.integers(-1, 6) | st.integers(-1, (1 << 63) - 1)
WANTED: Final = st.tuples(
    INDEXES, st.integers(0, 4), LEVELS, st.none() | st.lists(HOSTS, unique=True, max_size=4)
)


def refusal(act: Callable[[], object]) -> str:
    """The text of the error that refuses the call."""
    with pytest.raises(ValueError, match="expected") as error:
        act()
    return str(error.value)


def has_rung(bell: LoopBell) -> bool:
    """True when the bell has rung since the last call of this function."""
    rung = is_readable(bell.fileno())
    bell.clear()
    return rung


class Boards(RuleBasedStateMachine):
    """One board of each kernel, to which the same is done."""

    watches: Bundle[tuple[int, int]] = Bundle("watches")

    def __init__(self) -> None:
        super().__init__()
        self.bells: list[LoopBell] = [plain.Bell(), native.Bell()]
        self.boards: list[MarkBoard] = [bell.board() for bell in self.bells]
        self.claims: list[tuple[MarkRow, MarkRow]] = []  # also those that are over

    def both(self, ask: Callable[[MarkBoard], Any]) -> Any:
        """The answer of both boards, which must be the same."""
        answers = [ask(board) for board in self.boards]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(host=HOSTS, level=LEVELS, index=INDEXES)
    def raise_to(self, host: int, level: int, index: int) -> None:
        self.both(lambda board: board.row(host).raise_to(level, index))

    @rule(host=HOSTS, level=LEVELS, index=INDEXES)
    def lower_to(self, host: int, level: int, index: int) -> None:
        self.both(lambda board: board.row(host).lower_to(level, index))

    @rule(host=HOSTS, first=INDEXES)
    def claim(self, host: int, first: int) -> None:
        one, other = (board.row(host).claiming(first) for board in self.boards)
        self.claims.append((one, other))

    @precondition(lambda self: self.claims)
    @rule(nth=st.integers(0, 9), level=LEVELS, index=INDEXES)
    def raise_claim(self, nth: int, level: int, index: int) -> None:
        for row in self.claims[nth % len(self.claims)]:
            row.raise_to(level, index)

    @rule(target=watches, wanted=WANTED)
    def watch(self, wanted: tuple[int, int, int, list[int] | None]) -> Any:
        one, other = (board.watch(*wanted) for board in self.boards)
        return multiple((one, other))

    @rule(watch=consumes(watches))
    def unwatch(self, watch: tuple[int, int]) -> None:
        for board, number in zip(self.boards, watch, strict=True):
            board.unwatch(number)

    @rule()
    def end(self) -> None:
        self.both(lambda board: board.end())

    @rule()
    def go_on(self) -> None:
        self.both(lambda board: board.go_on())

    @rule(wanted=WANTED)
    def ask(self, wanted: tuple[int, int, int, list[int] | None]) -> None:
        has = self.both(lambda board: board.has(*wanted))
        stand = self.both(lambda board: board.wait(*wanted, 0.0))
        assert has == (stand == 1)

    @rule(level=st.integers(3, 1 << 40), host=st.integers(128, 1 << 62) | st.integers(-9, -1))
    def ask_what_is_wrong(self, level: int, host: int) -> None:
        def refused(act: Callable[[MarkBoard], object], board: MarkBoard) -> str:
            return refusal(lambda: act(board))

        self.both(lambda board: refusal(lambda: board.row(host)))
        self.both(lambda board: refusal(lambda: board.marks(level)))
        self.both(lambda board: refusal(lambda: board.has(0, 1, level, None)))
        self.both(lambda board: refusal(lambda: board.watch(0, 1, level, None)))
        self.both(lambda board: refusal(lambda: board.row(1).raise_to(level, 0)))
        self.both(lambda board: refusal(lambda: board.row(1).lower_to(level, 0)))
        self.both(lambda board: refusal(lambda: board.row(1).mark(level)))
        for seconds in (-1.0, float("nan")):
            wait = methodcaller("wait", 0, 1, 0, None, seconds)
            self.both(partial(refused, wait))

    @invariant()
    def agree(self) -> None:
        for level in AckLevel:
            marks = self.both(methodcaller("marks", level))
            assert marks == sorted(marks)
        one, other = map(has_rung, self.bells)
        assert one == other


TestBoardsAgree = Boards.TestCase
