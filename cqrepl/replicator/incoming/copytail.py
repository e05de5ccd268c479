"""Takes the tail off a copy that its source never had, or holds otherwise, before the copy is
taken in any further.

Theory of operation. A tail that differs goes to quarantine with the next connection, and comes
again from the source (`CopyTail.differs_from`). A tail of an epoch that the source's copy never had
is cut off once the source has proved that it holds what is before it (`CopyTail.beyond`). Either
waits until no other process has the copy open.
"""

import logging
from pathlib import Path
from typing import Final, Protocol

from cqrepl.protocol.queuelife import CopyLife, CopyMove
from cqrepl.queue import Queue, QueueError, QueueLocked
from cqrepl.queue.format.index import Index, format_index
from cqrepl.queue.quarantine import Quarantine, quarantine
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.queuestate.keptepochs import Tail
from cqrepl.replicator.queuestate.pause import Pause
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


class CopyTail:
    """The tail of one queue of a sink that is to be taken off.

    Attributes:
        differs_from: from this index on it is to be put aside; None: nothing is.
        beyond: the first index that its source never had, and the next index of what stays; None:
            there is none.
        may_differ_from: from this index on it may hold what its source never had, as no epoch is
            left that both have had: where they differ, the source tells; None: it does not.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self.differs_from: int | None = None
        self.beyond: tuple[Index, Index] | None = None
        self.may_differ_from: Index | None = None

    def find(self, tail: Tail) -> None:
        """As the epochs of both sides tell."""
        self.beyond, self.may_differ_from = tail.beyond, tail.may_differ_from

    def explanation(self, index: int, disk: DiskEnd) -> Stop | None:
        """The stop that tells why no host is at fault where a copy differs from its source from an
        index on; None where that is not known.

        Args:
            disk: of the copy.
        """
        if disk.is_left_by_power_cut(index):
            return Stop.left_by_power_cut(self._name, index)
        if self.may_differ_from is not None and index >= self.may_differ_from:
            return Stop.left_by_epochs(self._name, index)
        return None

    def begin_to_put_aside(self, index: int, queue: Queue) -> None:
        """From an index on it is put aside with the next connection; nothing where the copy begins
        behind it: what it holds is not what differs."""
        first = queue.first_index()
        if first is None or index >= first:
            self.differs_from = index
            return
        _logger.warning(
            "queue %r: nothing goes to quarantine: its source has excerpts from %s on, before the"
            " first one here, %s, and what is here is good",
            self._name,
            format_index(index),
            format_index(first),
        )

    def put_aside(self) -> None:
        """Puts aside what differs, of a queue that is closed.

        Raises:
            QueueLocked: another process has it open; it is tried again.
            QueueError, OSError: that cannot be done.
        """
        assert self.differs_from is not None
        index = self.differs_from
        try:
            gone = quarantine(self._path, index)
        except QueueLocked:
            raise  # it is done when the others have ended
        except QueueError:
            self.differs_from = None  # the queue stops
            raise
        self.differs_from = None
        what = "everything" if gone.excerpts is None else f"{gone.excerpts} excerpts"
        _logger.warning(
            "queue %r: %s from %s on went to %s, as its source holds something else there",
            self._name,
            what,
            format_index(index),
            gone.folder,
        )

    def cut_off(self) -> Quarantine:
        """Puts aside what its source never had, of a queue that is closed.

        Raises:
            QueueLocked: another process has it open.
            QueueError, OSError: that cannot be done.
        """
        assert self.beyond is not None
        (start, _), self.beyond = self.beyond, None
        return quarantine(self._path, start)


class TailedCopy(Protocol):
    """The parts of a queue that is taken in which its tail is put aside with."""

    @property
    def name(self) -> str: ...
    @property
    def disk(self) -> DiskEnd: ...
    @property
    def life(self) -> CopyLife[Stop]: ...
    @property
    def pause(self) -> Pause: ...
    @property
    def tail(self) -> CopyTail: ...


def put_aside_later(queue: TailedCopy, peer: str, stop: Stop, index: int) -> None:
    """A queue pauses until what differs from an index on has been put aside, and that says why."""
    explained = queue.tail.explanation(index, queue.disk)
    if explained is not None:
        _logger.warning("%s: queue %r: %s", peer, queue.name, explained.message)
    else:
        _logger.error("%s: %s", peer, stop)
    if not queue.life.try_move(CopyMove.PAUSE, explained or stop):
        queue.life.move(CopyMove.BEGIN_ANEW)  # what its source said goes for another end of it
        queue.life.move(CopyMove.PAUSE, explained or stop)
    queue.pause.begin((explained or stop).message, is_told=False)
