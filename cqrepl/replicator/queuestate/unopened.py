"""Queues that cannot be opened when their host starts: each stops alone, and the others go on.

Only where none is left there is nothing to do: then the start fails.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.queue import QueueDamaged, QueueError
from cqrepl.replicator.queuestate.pause import is_passing
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unopened:
    """A queue that cannot be opened, and why."""

    name: str
    path: Path
    error: QueueError | OSError

    @property
    def may_pass(self) -> bool:
        """True where the machine is why, and the queue is tried again by itself."""
        return is_passing(self.error)

    @property
    def trouble(self) -> Stop:
        """The reason why it is not open, for peers and for `status`."""
        return Stop.of(self.name, self.error, self.path)

    def log(self) -> None:
        """Tells people."""
        if self.may_pass:
            _logger.error("queue %r pauses: %s", self.name, self.trouble.message)
        else:
            _logger.error("%s", self.trouble)


def check_any_is_left(unopened: Sequence[Unopened], count: int) -> None:
    """Does nothing where a host has a queue to go on with: one that is open, or is made when it is
    offered.

    Args:
        count: of all its queues.

    Raises:
        QueueError, OSError: there is none; of several errors the gravest. The others are logged.
    """
    if len(unopened) < count or not unopened:
        return
    gravest = min(
        unopened, key=lambda each: (not isinstance(each.error, QueueDamaged), each.may_pass)
    )
    for each in unopened:
        if each is not gravest:
            each.log()
    raise gravest.error
