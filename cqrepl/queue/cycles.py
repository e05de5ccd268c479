"""The store files of a queue directory: which cycles there are, and which comes next.

Theory of operation. Only names that end in `.cq4` count. Cycles without a file are normal: nobody
wrote then. So the cycle after one is the least greater one that has a file, and finding it means
listing the directory, which others change meanwhile: a listing may show a file and miss one that
was created before it. Writers go upwards, so everything below a file that has been seen was created
before it was; a second listing, begun after the first one showed a file, misses nothing below.
"""

import os
from pathlib import Path

from cqrepl.queue.errors import NotAQueue, QueueDamaged, QueueError
from cqrepl.queue.rollcycle import RollCycle
from cqrepl.queue.storefile import SUFFIX


class Cycles:
    """The cycles of one queue directory."""

    def __init__(self, path: Path, roll_cycle: RollCycle, epoch: int) -> None:
        self.path = path
        self.roll_cycle = roll_cycle
        self.shift = roll_cycle.shift
        self._epoch = epoch
        self._known: dict[str, int] = {}

    def path_of(self, cycle: int) -> Path:
        """Where the store file of a cycle is, or would be.

        Raises:
            QueueError: no file can be named for this cycle.
        """
        try:
            name = self.roll_cycle.file_name(cycle, self._epoch)
        except ValueError as error:
            raise QueueError(str(error), path=self.path) from error
        return self.path / (name + SUFFIX)

    def has(self, cycle: int) -> bool:
        """True when the cycle has a store file, ready or not."""
        return os.path.exists(self.path_of(cycle))

    def listing(self) -> list[int]:
        """All cycles that have a store file, ascending.

        Raises:
            QueueDamaged: a store file's name names no cycle of this queue.
            NotAQueue: the directory has gone.
        """
        known = {name: self._cycle(name) for name in store_names(self.path)}
        self._known = known  # forgets what has been removed
        return sorted(known.values())

    def following(self, cycle: int) -> int | None:
        """The least cycle above this one that has a store file; None while there is none."""
        if not any(there > cycle for there in self.listing()):
            return None
        # the second listing: see the theory of operation
        return min((there for there in self.listing() if there > cycle), default=None)

    def _cycle(self, name: str) -> int:
        cycle = self._known.get(name)
        if cycle is None:
            cycle = self.roll_cycle.cycle_of_name(name.removesuffix(SUFFIX), self._epoch)
        if cycle is None:
            raise QueueDamaged(
                f"expected store files of {self.roll_cycle.name}, found {name}", path=self.path
            )
        return cycle


def store_names(path: Path) -> list[str]:
    """The names of the store files in a directory, in the order of their cycles.

    Raises:
        NotAQueue: it is no directory, or it may not be read.
    """
    try:
        return sorted(name for name in os.listdir(path) if name.endswith(SUFFIX))
    except OSError as error:
        raise NotAQueue(f"expected a queue directory: {error.strerror}", path=path) from error
