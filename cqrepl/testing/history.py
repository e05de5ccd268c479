"""The history of what programs asked for in a run: each call, its return, or that this is unknown.

    with history.call("host 2", "write", key="x", value=3) as call:
        call.returned(await ask(...))

A call that is left without a word has an unknown outcome: it may have had its effect, or may still
have it, at any time from its beginning on. That goes for one that ends with an error, or whose
process is killed meanwhile. `failed` says that it had no effect, and never will.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import trio

from cqrepl.testing.story import Story


class Fate(Enum):
    """The outcome of a call."""

    UNKNOWN = auto()  # it may have had its effect, or may have it later
    RETURNED = auto()
    FAILED = auto()  # it had no effect


@dataclass(eq=False)
class Operation:
    """One call of a program.

    Args:
        who: the process that called; a process may have several calls at a time.
        name: of the operation.
        key: of what it is about: operations of different keys do not concern each other.
        value: its arguments.
        began: its place among all calls and returns, which is the order in which they happened.
        ended: that of its return; None for one whose outcome is unknown.
        result: what it gave.
    """

    who: str
    name: str
    key: Any
    value: Any
    began: int
    ended: int | None = None
    result: Any = None
    fate: Fate = Fate.UNKNOWN
    at: float = field(default=0.0, repr=False)

    @property
    def is_known(self) -> bool:
        """True when it has returned."""
        return self.fate is Fate.RETURNED

    def __str__(self) -> str:
        words = f"{self.name} {self.key!r}" if self.key is not None else self.name
        given = "" if self.value is None else f" {self.value!r}"
        fate = f"gives {self.result!r}" if self.is_known else self.fate.name.lower()
        return f"{self.who}: {words}{given}: {fate}"


class OpenCall:
    """A call that goes on."""

    def __init__(self, history: "History", operation: Operation) -> None:
        self._history = history
        self.operation: Final = operation

    def returned(self, result: Any = None) -> None:
        """It has returned this."""
        self._history.end(self.operation, Fate.RETURNED, result)

    def failed(self) -> None:
        """It had no effect, and never will."""
        self._history.end(self.operation, Fate.FAILED, None)


class History:
    """All calls of a run, in the order in which they began."""

    def __init__(self, story: Story | None = None) -> None:
        self.operations: list[Operation] = []
        self._story = story
        self._events = 0

    @contextmanager
    def call(self, who: str, name: str, key: Any = None, value: Any = None) -> Iterator[OpenCall]:
        """A call, for the length of a block."""
        operation = Operation(who, name, key, value, self._next())
        if self._story is not None:
            operation.at = trio.current_time()
        self.operations.append(operation)
        try:
            yield OpenCall(self, operation)
        finally:
            if operation.fate is Fate.UNKNOWN:
                self._tell(operation)

    def end(self, operation: Operation, fate: Fate, result: Any) -> None:
        """A call has ended so.

        Raises:
            ValueError: it has ended before.
        """
        if operation.fate is not Fate.UNKNOWN:
            raise ValueError(f"expected a call that goes on, got {operation}")
        operation.ended, operation.fate, operation.result = self._next(), fate, result
        self._tell(operation)

    def _tell(self, operation: Operation) -> None:
        if self._story is not None:
            self._story.tell("history", str(operation))

    def _next(self) -> int:
        self._events += 1
        return self._events
