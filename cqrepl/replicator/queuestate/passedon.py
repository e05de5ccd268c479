"""How a queue that a host takes in comes to it, and goes on from there."""

from dataclasses import dataclass

from cqrepl.queue import QueueError


class CopyBehind(QueueError):
    """A host has more than the copy that it is to be passed on from, which may get there yet."""


@dataclass(slots=True)
class Way:
    """How a queue that is taken in comes, and whether it goes on.

    Args:
        passed_by: ids of the hosts that it came by, when it was offered last.
        places: of the directories that these have it in.
        is_passed_on: a source of ours streams it: its files stay where they are.
    """

    passed_by: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    is_passed_on: bool = False
