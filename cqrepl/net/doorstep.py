"""Connections whose peers have not said yet who they are: few from each machine, the newest.

Such a peer costs a descriptor and some memory, and may be silent until the time for its UberHandler
is over. Were newer ones turned away meanwhile, a machine that opens connections and says nothing
would keep out a good host beside it; a good host speaks at once, and is in before it is the oldest.
"""

from collections import Counter
from typing import Final, Protocol

UNGREETED_MAX: Final = 8  # from one machine
UNGREETED_ALL_MAX: Final = 64  # from all of them


class Waiting(Protocol):
    """A connection that can be ended."""

    def dismiss(self, why: str) -> None:
        """Ends it at once."""


class Doorstep:
    """These connections, in the order in which they came.

    Args:
        each_max: from one machine.
        all_max: from all of them.
    """

    def __init__(self, each_max: int = UNGREETED_MAX, all_max: int = UNGREETED_ALL_MAX) -> None:
        self.each_max = each_max
        self.all_max = all_max
        self._machines: dict[Waiting, str] = {}

    def enter(self, machine: str, each: Waiting) -> None:
        """One more has connected from this machine; its oldest may have to go for that."""
        self._machines[each] = machine
        if Counter(self._machines.values())[machine] > self.each_max:
            oldest = next(one for one, where in self._machines.items() if where == machine)
            self._dismiss(oldest, f"more than {self.each_max} of this address said nothing yet")
        if len(self._machines) > self.all_max:
            oldest = next(iter(self._machines))
            self._dismiss(oldest, f"more than {self.all_max} have said nothing yet")

    def leave(self, each: Waiting) -> None:
        """It has said who it is, or is gone."""
        self._machines.pop(each, None)

    def make_room(self) -> bool:
        """Ends the oldest of all; false when there is none."""
        for oldest in self._machines:
            self._dismiss(oldest, "it said nothing yet, and others want to connect")
            return True
        return False

    def _dismiss(self, each: Waiting, why: str) -> None:
        self.leave(each)
        each.dismiss(why)
