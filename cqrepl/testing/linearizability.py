"""Looks whether a history is linearizable: whether its calls can be put in one order that a model
allows, each between its beginning and its return.

Theory of operation. The search is that of Wing and Gong, with the memo of Lowe: a call may come
next when no call that is not placed yet had returned before it began. After each step the set of
placed calls and the state of the model are remembered, and no pair is tried twice. A call whose
outcome is unknown may come at any time from its beginning on, or never. Operations of different
keys are checked by themselves: a history is linearizable when those of each key are.

    found = check_linearizable(history.operations, Register())
    found.key, found.longest      the first key that has no such order, and how far one goes
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cqrepl.testing.history import Fate, Operation

STEPS_MAX: Final = 2_000_000  # of one key: a history that takes more is too long to be judged


class Model(Protocol):
    """The legal behaviour of one key of a service, one operation after the other. States are values
    that can be hashed, and are never changed."""

    def start(self) -> Hashable:
        """The state of a key at the beginning."""

    def step(self, state: Any, operation: Operation) -> Iterable[Hashable]:
        """The states that may follow an operation with its result; none where it cannot have that.
        Of one whose outcome is unknown (`is_known` is false) there is no result."""


@dataclass(frozen=True, slots=True)
class NotLinearizable:
    """A key whose operations have no order that the model allows.

    Args:
        longest: the longest beginning of an order that was found.
        stuck: the operations of which one would have to come next.
    """

    key: Any
    longest: tuple[Operation, ...]
    stuck: tuple[Operation, ...]

    def __str__(self) -> str:
        done = "; ".join(map(str, self.longest[-5:])) or "nothing"
        left = "; ".join(map(str, self.stuck[:5]))
        return f"key {self.key!r}: after {done}: none of these can be next: {left}"


class TooLongError(Exception):
    """A history takes too many steps to be judged."""


class Register:
    """A cell: `write` gives nothing, `read` gives the value, `cas` (old, new) whether it was old.

    Args:
        first: the value at the beginning.
    """

    def __init__(self, first: Hashable = None) -> None:
        self._first = first

    def start(self) -> Hashable:
        return self._first

    def step(self, state: Hashable, operation: Operation) -> Iterator[Hashable]:
        match operation.name:
            case "read":
                if not operation.is_known or operation.result == state:
                    yield state
            case "write":
                yield operation.value
            case "cas":
                old, new = operation.value
                if not operation.is_known or operation.result == (state == old):
                    yield new if state == old else state
            case _:
                raise ValueError(f"expected read, write or cas, got {operation.name!r}")


def check_linearizable(
    operations: Iterable[Operation], model: Model, steps_max: int = STEPS_MAX
) -> NotLinearizable | None:
    """The first key whose operations are not linearizable; None where all are.

    Raises:
        TooLongError: those of one key take more steps than `steps_max`.
    """
    by_key: dict[Any, list[Operation]] = {}
    for each in operations:
        if each.fate is not Fate.FAILED:
            by_key.setdefault(each.key, []).append(each)
    for key, those in by_key.items():
        found = _Search(key, those, model, steps_max).run()
        if found is not None:
            return found
    return None


class _Search:
    """The search for one key."""

    def __init__(
        self, key: Any, operations: Sequence[Operation], model: Model, steps_max: int
    ) -> None:
        self._key = key
        self._all = sorted(operations, key=lambda each: each.began)
        self._model = model
        self._steps_left = steps_max
        self._known = sum(1 << nth for nth, each in enumerate(self._all) if each.is_known)
        self._seen: set[tuple[int, Hashable]] = set()

    def run(self) -> NotLinearizable | None:
        """Goes on from the last state that was reached, and one back where it leads nowhere."""
        order: list[int] = []
        longest: list[int] = []
        ways = [self._next(0, self._model.start())]
        placed = 0
        while self._known & ~placed:
            step = next(ways[-1], None)
            if step is not None:
                nth, state = step
                order.append(nth)
                placed |= 1 << nth
                ways.append(self._next(placed, state))
                if len(order) > len(longest):
                    longest = order[:]
            elif not order:
                return self._stuck(longest)
            else:
                ways.pop()
                placed &= ~(1 << order.pop())
        return None

    def _next(self, placed: int, state: Hashable) -> Iterator[tuple[int, Hashable]]:
        """The calls that may come next, each with a state that follows, that were not tried yet."""
        for nth in self._may_be_next(placed):
            operation = self._all[nth]
            for after in self._model.step(state, operation):
                if not operation.is_known and after == state:
                    continue  # then it may as well never come
                pair = (placed | 1 << nth, after)
                if pair not in self._seen:
                    self._seen.add(pair)
                    self._steps_left -= 1
                    if self._steps_left < 0:
                        text = f"key {self._key!r}: {len(self._all)} operations take too many steps"
                        raise TooLongError(text)
                    yield nth, after

    def _may_be_next(self, placed: int) -> list[int]:
        """Known calls first: one that is unknown comes only where it has to."""
        known: list[int] = []
        unknown: list[int] = []
        before: int | None = None
        first = (~placed & (placed + 1)).bit_length() - 1  # of those that are not placed
        for nth in range(first, len(self._all)):
            each = self._all[nth]
            if placed >> nth & 1:
                continue
            if before is not None and each.began > before:
                break  # another had returned before this one began
            (known if each.is_known else unknown).append(nth)
            if each.ended is not None:
                before = each.ended if before is None else min(before, each.ended)
        return known + unknown

    def _stuck(self, longest: Sequence[int]) -> NotLinearizable:
        placed = sum(1 << nth for nth in longest)
        return NotLinearizable(
            self._key,
            tuple(self._all[nth] for nth in longest),
            tuple(self._all[nth] for nth in self._may_be_next(placed)),
        )
