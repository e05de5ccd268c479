"""The way by which a queue comes to a host that takes it in, and goes on from there."""

from dataclasses import dataclass

from cqrepl.queue import QueueError


class CopyBehind(QueueError):
    """A host has more than the copy that it is to be passed on from, which may get there yet."""


@dataclass(slots=True)
class Way:
    """The way by which a queue that is taken in comes to this host, and whether it goes on.

    Args:
        passed_by: ids of the hosts that it came by, when it was offered last.
        places: of the directories that these have it in.
        is_passed_on: a source of ours streams it: its files stay where they are.
    """

    passed_by: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    is_passed_on: bool = False
