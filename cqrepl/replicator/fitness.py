"""The word of a host's services on whether the host is fit to lead a queue.

A host that leads a queue has to serve what is made of it. A service that has ended, has no state
yet, or has not taken all that the copy holds cannot, so its host does not stand for election. The
service says so when it is asked; elections ask only while a leader is missing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

WhyUnfit = Callable[[int | None], str]
"""Gives the reason why a service cannot serve; empty where it can.

Args:
    end: the next index of this host's copy, which the service is to have reached; None: how far
        the service is does not matter.
"""


class Fitness:
    """The services of one host that have a say, by queue."""

    def __init__(self) -> None:
        self._asked: dict[str, list[WhyUnfit]] = {}

    @contextmanager
    def asking(self, name: str, why_unfit: WhyUnfit) -> Iterator[None]:
        """Asks a service of a queue for the length of a block."""
        asked = self._asked.setdefault(name, [])
        asked.append(why_unfit)
        try:
            yield
        finally:
            asked.remove(why_unfit)
            if not asked:
                del self._asked[name]

    def why_unfit(self, name: str, end: int | None) -> str:
        """The first reason why this host is not to lead a queue; empty where there is none.

        Args:
            end: as of `WhyUnfit`.
        """
        return next(filter(None, (each(end) for each in self._asked.get(name, ()))), "")
