"""The levels beyond appended of a queue that is taken in, and the words of its source on it."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from cqrepl.kernel.board import AckLevel
from cqrepl.net.threads import in_thread
from cqrepl.protocol.events import CommitMoved, TailerMoved
from cqrepl.protocol.queuelife import CopyLife
from cqrepl.queue import Queue, QueueDamaged, QueueError
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.tailerposition import TailerPosition
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.disk.unprovedwatch import UnprovedWatch
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane
    from cqrepl.replicator.disk.diskend import DiskEnd
    from cqrepl.replicator.queuestate.queues import TakingSession

UNKEPT_MAX: Final = 64  # a source may name as many as it likes
_logger: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class BeyondAppended:
    """The indexes up to which levels beyond appended are true of one queue.

    Args:
        committed: its source has called it safe up to this.
        applied: a program here has taken everything up to this.
        is_applied_wanted: a source has waited for that.
        unkept: named tailers that could not be kept here, which was said; true for those that are
            tried again.
    """

    committed: int = -1
    applied: int = -1
    is_applied_wanted: bool = False
    unkept: dict[str, bool] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)  # of `applied`

    def apply(self, index: int) -> bool:
        """Raises `applied`, in any thread; false where it is no lower already."""
        with self._guard:
            is_new = index > self.applied
            self.applied = max(index, self.applied)
        return is_new

    def lose(self, end: Index) -> None:
        """The copy has nothing from here on any more."""
        with self._guard:
            self.applied = min(self.applied, end - 1)
        self.committed = min(self.committed, end - 1)


class LevelledCopy(Protocol):
    """The parts of a queue that is taken in which its levels are told from.

    Attributes:
        owner: the session of the connection that it takes from.
        disk, queue: while it is open.
    """

    @property
    def name(self) -> str: ...
    @property
    def owner(self) -> "TakingSession | None": ...
    @property
    def life(self) -> CopyLife[Stop]: ...
    @property
    def beyond(self) -> BeyondAppended: ...
    @property
    def unproved(self) -> UnprovedWatch: ...
    @property
    def syncer(self) -> Syncer: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def disk(self) -> "DiskEnd": ...
    @property
    def queue(self) -> Queue: ...

    def check_open_names(self) -> bool:
        """True while the names of the files that are open lead to them."""


def tell_synced(queue: LevelledCopy, index: int) -> None:
    """Everything up to an index is on the disk: its source hears of it."""
    if queue.owner is not None and queue.life.stop is None:
        queue.owner.tell_level(queue.name, AckLevel.SYNCED, index)


def kept_back(queue: LevelledCopy) -> dict[AckLevel, str]:
    """The reasons why levels beyond appended rise no further in an open queue, "" for none."""
    synced, trouble = queue.unproved.why or "", queue.disk.trouble
    if trouble is not None:
        synced = f"it is not known to be on the disk: {trouble}"
    is_unapplied = queue.beyond.is_applied_wanted and queue.beyond.applied < 0
    applied = "no program there has taken anything of it yet" if is_unapplied else ""
    return {AckLevel.SYNCED: synced, AckLevel.APPLIED: applied}


def look_at_levels(queue: LevelledCopy) -> None:
    """Has what was never synced of an open queue synced, and tells its source why levels are kept
    back here. Called once a second."""
    owner = queue.owner
    is_on = queue.life.takes_on and owner is not None and owner.streams(queue.name)
    queue.unproved.look(queue.disk.unproved_from, is_streaming=is_on)
    if is_on and owner is not None:
        queue.disk.note_behind()
        owner.keep_back(queue.name, kept_back(queue))


def await_stored(queue: LevelledCopy, lane: "SinkLane") -> None:
    """Has all that a live pump stores in this lane synced at once, and its source told of it."""
    if surroundings().has_threads:  # else the pump comes back after each step
        sync = partial(_sync_stored, queue, queue.disk, queue.owner)
        queue.syncer.stored.watch(queue.queue, lane, sync, queue.disk.note)
        queue.disk.note()  # nothing has noted what was stored before


def _sync_stored(
    queue: LevelledCopy, disk: "DiskEnd", owner: "TakingSession | None", index: Index
) -> bool:
    """Syncs up to an index, in a thread; false where the event loop is to do it, or has to look:
    the queue may have been closed meanwhile, and opened again for another session.

    Args:
        disk, owner: as they were when the lane was lent.
    """
    if owner is None or not disk.sync_stored(index):
        return False
    try:
        if not queue.check_open_names():
            return False
    except QueueDamaged:  # what a removed file holds is lost
        return False
    return queue.owner is owner and owner.say_level(queue.name, AckLevel.SYNCED, index)


def sync_later(queue: LevelledCopy) -> None:
    """No source waits any more until what comes is on the disk."""
    if queue.is_open:
        queue.disk.sync_later()


def note_applied(
    queue: LevelledCopy, index: int, soon: Callable[[Callable[[], None]], None]
) -> None:
    """A program here has taken everything up to an index: its source hears of it. In any thread.

    A live pump that runs is told by the thread itself. One that comes back meanwhile has the event
    loop tell all that is true by then (`SinkLanes.left`), which is why `applied` is raised first.

    Args:
        soon: has the event loop call a function.
    """
    if not queue.beyond.apply(index):
        return
    owner = queue.owner
    if owner is not None and not owner.say_level(queue.name, AckLevel.APPLIED, index):
        soon(partial(_tell_applied, queue))


def _tell_applied(queue: LevelledCopy) -> None:
    if queue.owner is not None:
        queue.owner.tell_level(queue.name, AckLevel.APPLIED, queue.beyond.applied)


async def take_word(queue: LevelledCopy, word: CommitMoved | TailerMoved) -> None:
    """Keeps what its source says of it."""
    if isinstance(word, CommitMoved):
        note_committed(queue, word.index)
    elif queue.is_open:
        await _keep_tailer(queue, word.position)


async def _keep_tailer(queue: LevelledCopy, position: TailerPosition) -> None:
    """Keeps where a named tailer stands, so that it goes on from there if this copy becomes the
    queue. What keeps it from that is said once for each name, and of so many names."""
    positions, unkept, name = queue.queue.tailer_positions, queue.beyond.unkept, position.name
    is_known = positions.has(name)
    if not unkept.get(name, is_known or len(unkept) < UNKEPT_MAX):
        return
    why, is_tried_again = "", False
    take = partial(positions.take, position)
    try:
        if not (take() if is_known else await in_thread(take)):
            why = "there is no room for its keys"
    except (QueueError, OSError) as error:  # it may go with the next move
        why, is_tried_again = str(error), True
    if why and name not in unkept:
        _logger.warning(
            "queue %r: where the named tailer %r stands is not kept: %s; on this copy it would go"
            " on from an earlier excerpt",
            queue.name,
            name,
            why,
        )
    if why:
        unkept[name] = is_tried_again
    else:
        unkept.pop(name, None)


def note_committed(queue: LevelledCopy, index: int) -> None:
    """Its source's policy calls it safe up to an index: kept where Java's readers look."""
    if queue.is_open:
        queue.beyond.committed = max(index, queue.beyond.committed)
        queue.queue.raise_acknowledged(index)


def levels_of(queue: LevelledCopy) -> dict[AckLevel, int]:
    """The index up to which each level beyond appended is true here.

    Raises:
        QueueError: the queue cannot be read.
    """
    queue.beyond.lose(queue.queue.next_index())  # a program may have told what went meanwhile
    return {AckLevel.SYNCED: queue.disk.index_synced, AckLevel.APPLIED: queue.beyond.applied}
