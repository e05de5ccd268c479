"""The index up to which one queue is on the disk, and what a power cut may have taken of it.

Theory of operation. Nothing on the data path waits for the disk. A second after something was taken
in or sent, or at once for the first time, the store files are synced, and then the queue's mark
says so (`files.syncedmark`). Where a source waits for that, what is taken in is synced at once, and
what comes meanwhile is the next group; it is told when the mark has risen. Each group then costs
two syncs: of the store file, and of the mark, which may not be on the disk before. The table store
changes with each group, by marks that may be older after a power cut: it is synced once a second.
After another start of the machine what lies behind the mark is *unproved*: it may read as zeros in
places. So a sink says that it ends at the mark, and gets that part once more; a source offers up to
its mark only, and a sink that it knows gives back that part. Both times it is compared with what is
there, and what was torn is mended (`queue.write.heldexcerpts`). What the other side has taken from
here is as proved as that: the copies are equal.

What was appended is read once more, behind the stream, and becomes a chain (`queueaudit`): so what
a copy holds can be held against its source's at any moment. Closed store files, once they are on
the disk, are noted and looked at every few seconds (`queue.inspection.closedfiles`): one that has
gone, or holds less than before, stops its queue. Where no name in the directory has changed, and
nothing is left to do, that is less often: a file may still have been written to. So does a table
store, or a store file that is appended to, whose name leads no more to what is open here: the
directory was removed, moved or made anew. What is appended to a file without a name is never
acknowledged: the writer asks before each append.

Where no copy can prove that part, the mark goes on rising for what comes later, and keeps in mind
what is unproved. Where a sync fails the mark rises no more before the machine is started again
(`syncedfiles`). Where a file cannot be opened, as something else has its name or there are no
descriptors, where there is no thread to be had, or where only the mark has no room on the disk,
that is tried again.
"""

import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple

import trio

from cqrepl.console.units import plural
from cqrepl.net.threads import InThread, NoThread, in_thread
from cqrepl.queue import Queue, QueueDamaged, QueueError
from cqrepl.queue.files.syncedmark import NOTHING_DOUBTFUL, load_synced
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of, format_index, sequence_of
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.stall import Stall
from cqrepl.replicator.disk.auditshare import Reading
from cqrepl.replicator.disk.queueaudit import FOLLOW_SECONDS, Place, QueueAudit
from cqrepl.replicator.disk.syncedfiles import SyncedFiles
from cqrepl.replicator.queuestate.descriptors import is_none_left
from cqrepl.replicator.queuestate.durations import Durations
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.surroundings import monotonic, surroundings

SYNC_SECONDS: Final = 1.0  # from the first change to the sync
SAVE_SECONDS: Final = 20.0  # to the next look where only more of it is on the disk, and was read
REST_SECONDS: Final = 1.5  # after what came last
LOOK_READ_SECONDS: Final = 0.4  # of reading closed store files that are new, each time
FULL_LOOK_SECONDS: Final = 45.0  # to the next look where nothing in the directory has changed
TICK_NS: Final = 20_000_000  # of the clock of file systems, two of the longest that are usual
LONG_TICK_NS: Final = 2_000_000_000  # where they have whole seconds
_SECOND_NS: Final = 1_000_000_000
_logger: Final = logging.getLogger(__name__)


class DiskEnd:
    """The index up to which one queue is on the disk, and proved.

    Args:
        name: of the queue, for what is logged.
        end: gives the queue's next index.
        changed: is set when there is something to sync.
        chains: of the queue.
        damaged: is told, with every look, that a closed store file has lost excerpts, or that the
            names of the queue's files do not lead to what is open here.
        check_names: raises QueueDamaged where they do not.
        audited: is told how far the files were read behind the stream, with the chains there; None:
            no peer waits for that, and they are read now and then.
        synced: is told up to which index the queue is on the disk, and proved, each time that it is
            more.
        is_proved: whether all is proved where there is no mark.
        keeps_lost: a mark above the end stays until it is settled what is missing.

    Attributes:
        trouble: why it is not known to be on the disk; None while that is not so.
        is_at_once: what is appended is synced without delay, as it is waited for.
        reading: how it was read last.

    Raises:
        QueueError: the queue cannot be read.
    """

    def __init__(
        self,
        name: str,
        queue: Queue,
        end: Callable[[], Index],
        changed: Signal,
        chains: Chains,
        damaged: Callable[[QueueDamaged], None],
        check_names: Callable[[], None],
        audited: Callable[[list[Place]], None] | None,
        synced: Callable[[int], None] | None,
        *,
        is_proved: bool,
        keeps_lost: bool = False,
    ) -> None:
        self.is_dirty = False
        self.is_at_once = surroundings().rarely("sync", False, True)
        self.reading = Reading()
        self._tell_synced = synced
        self._turn = trio.Lock()  # of one sync after the other
        self.unproved_from: Index | None = None  # None: all of it is as it was appended
        self._name = name
        self._queue = queue
        self._end = end
        self._closed = ClosedFiles(queue.cycles, chains)
        self._damaged = damaged
        self._check_names = check_names
        # what is there at the start is compared before a stream begins
        self._audit = QueueAudit(chains, None if audited is None else end())
        self._end_read: Index | None = None  # of the queue, when it was read last
        self._audited = audited
        self._has_come = False  # something, since it was seen last that all had been read
        self._came_at = -math.inf  # by the monotonic clock
        self._is_looking = False
        self._stall: Stall | None = None  # that was told
        self._looked: _Looked | None = None  # how things stood at the last look, if it told nothing
        self._looked_at = -math.inf  # by the monotonic clock
        self._is_forgotten = False
        self._said = ""  # of the closed store files, last
        self._unproved_to = NEXT_OF_EMPTY
        self.trouble: str | None = None
        self.is_hindered = False  # and tries again
        self._has_told = False  # why
        self._changed = changed
        mark = load_synced(queue.path)
        has = NEXT_OF_EMPTY if mark is None else end()
        self._files = SyncedFiles(queue, mark, has, keeps_lost=keeps_lost)
        self._end_noted = NEXT_OF_EMPTY  # the queue reaches to here at least
        self._had_mark = mark is not None
        if self._files.has_failed:
            self._warn("a sync failed since the machine was started")
        if not is_proved or mark is not None:
            self._doubt(range(end()) if mark is None else mark.doubtful_before(has))

    def _doubt(self, doubtful: range) -> None:
        """As the mark was found: these indexes are unproved."""
        if not doubtful:
            return  # and no file is opened: one that is damaged is told of with the first look
        start = max(doubtful.start, self._queue.first_index() or NEXT_OF_EMPTY)
        if start < doubtful.stop:
            self.unproved_from, self._unproved_to = Index(start), Index(doubtful.stop)
            _logger.info(
                "queue %r: the machine was started again, or a sync failed: from %s on it is"
                " compared with a copy",
                self._name,
                format_index(start),
            )

    @property
    def sync_times(self) -> Durations:
        """Times that the syncs of its files took."""
        return self._files.times

    @property
    def is_urgent(self) -> bool:
        """Nothing of it was ever synced: not even that its hosts are known is certain."""
        return self.is_dirty and self._files.end == NEXT_OF_EMPTY and not self.is_hindered

    @property
    def _doubtful(self) -> range:
        """The indexes that are unproved."""
        start = self.unproved_from
        return NOTHING_DOUBTFUL if start is None else range(start, self._unproved_to)

    @property
    def unproved_when_opened(self) -> Index | None:
        """The index from which on this queue is unproved once it is opened anew, as a leader does
        when it promises an epoch to another host; None: all of it is proved. Where a sync has
        failed, each opening doubts what is behind the mark."""
        if not self._files.has_failed:
            return self.unproved_from
        doubtful, end = self._files.doubtful, self._end()
        start = doubtful.start if doubtful else self._files.end
        return Index(start) if start < end else None

    @property
    def lacks_from(self) -> Index | None:
        """The end of the queue, where the machine was started again since it was synced last, and
        no copy was compared: a power cut may have taken what came behind. None where that is not
        so."""
        is_sure = not self._had_mark or self._files.is_of_this_boot
        return None if is_sure else self._end()

    def note(self, end: int = NEXT_OF_EMPTY) -> None:
        """There is something that may not be on the disk.

        Args:
            end: the queue has everything before this index; 0 where the caller does not know.
        """
        self._end_noted = max(self._end_noted, Index(end))
        self._has_come, self._came_at = True, surroundings().monotonic()
        if not self.is_dirty and not self._files.has_failed and not self._is_forgotten:
            self.is_dirty = True
            self._changed.set()

    def lower_to(self, end: Index) -> None:
        """New excerpts from `end` on take the place of lost ones."""
        self._files.lower_to(end)

    def note_behind(self) -> None:
        """Notes what is here and was never synced, as a writer before has left it: nothing more may
        come that would have it synced."""
        if self._files.end < self._end():
            self.note()

    def note_compared(self) -> None:
        """Notes that a copy has what this queue has, up to the shorter end, and gave back what it
        has more. A writer that waits for that before an append sees it by the mark."""
        if not self._files.is_of_this_boot:
            self.note()

    def prove(self, end: int) -> None:
        """Another copy holds the same before `end`."""
        if self.unproved_from is not None and end > self.unproved_from:
            self.unproved_from = Index(end) if end < self._unproved_to else None
            if self.unproved_from is None:
                _logger.info("queue %r: all of it is proved", self._name)
                self.note()

    def is_left_by_power_cut(self, index: int) -> bool:
        """True when what is from this index on was never known to be on the disk, or proved, while
        what comes before was."""
        is_behind = self.unproved_from is not None and index >= self.unproved_from
        return is_behind and self._had_mark

    def tell_mended(self, excerpts: int) -> None:
        """So many were torn by a power cut, and have their bytes again."""
        if excerpts:
            is_whole = self.unproved_from is None
            _logger.warning(
                "queue %r: mended: %s that a power cut had torn%s",
                self._name,
                plural(excerpts, "excerpt"),
                "; it is whole again" if is_whole else "; what is behind them is still to come",
            )

    def forget(self) -> None:
        """The queue is about to be closed; a round that is under way passes over it."""
        self._is_forgotten = True
        self._files.give_up()
        self.is_dirty = False

    async def sync(self, do: InThread = in_thread) -> None:
        """Brings the queue to the disk as it is now, and marks that.

        Args:
            do: what does it in a thread.
        """
        async with self._turn:
            if self._is_forgotten:  # while it waited for its turn
                return
            self.is_dirty = False
            try:
                await self._sync(do)
            except trio.Cancelled:
                self.is_dirty = not self._is_forgotten  # the end in order does it once more
                raise
        if self._tell_synced is not None and not self._is_forgotten:
            with suppress(QueueDamaged):  # what a removed file holds is lost: a look tells
                self._check_names()
                self._tell_synced(self.index_synced)

    def sync_at_once(self) -> None:
        """Syncs at once what is appended from now on: a source waits until it is on the disk."""
        self.is_at_once = True
        self._changed.set()

    def sync_later(self) -> None:
        """Ends that: no source waits for it any more."""
        self.is_at_once = False
        self._changed.set()  # the task that syncs once a second takes what is dirty

    @property
    def index_synced(self) -> int:
        """Everything up to this index is on the disk, and proved; -1 for nothing."""
        if self.unproved_from is not None or self._is_forgotten:
            return -1
        return min(self._files.end, self._end()) - 1

    async def _sync(self, do: InThread) -> None:
        doubtful = self._doubtful  # of what the files hold now, before they are synced
        try:
            # to ask a source's queue for its end is dear, and what was sent of it is there
            end = self._end_noted if self._end_noted > self._files.end else self._end()
            sync = partial(self._files.sync, end, doubtful, is_at_once=self.is_at_once)
            hindrance = await do(sync) if self._files.lacks(end, doubtful) else None
            last = min(end, self._files.end) - 1
            if last >= 0 and self.unproved_from is None and not self._is_forgotten:
                self._queue.raise_synced(last)  # for Java
        except NoThread as error:  # no file was touched
            self._try_again(error)
            return
        except (QueueError, OSError) as error:
            self._give_up(error)
            return
        if hindrance is not None:
            self._try_again(hindrance)
        else:
            if self._has_told and not self._files.has_failed:
                _logger.info("queue %r: it is known to be on the disk again", self._name)
            self.is_hindered = self._has_told = False
            self.trouble = self.trouble if self._files.has_failed else None

    def sync_stored(self, index: Index) -> bool:
        """Syncs what was stored up to an index, which is waited for, in any thread; false where the
        event loop has more to do than that."""
        files = self._files
        if self.is_hindered or self._doubtful or files.doubtful or not files.is_of_this_boot:
            return False
        try:
            hindrance = files.sync(Index(index + 1), NOTHING_DOUBTFUL, is_at_once=True)
        except (QueueError, OSError) as error:
            self._give_up(error)
            return False
        return hindrance is None and files.end > index and not self._is_forgotten

    def _try_again(self, error: QueueError | OSError) -> None:
        """It could not be looked at, or the mark has no room: nothing is lost."""
        self.is_hindered, self.is_dirty = True, not self._is_forgotten
        self.trouble = self.trouble or str(error)
        if not self._has_told and not is_none_left(error):  # of which each queue that pauses tells
            self._has_told = True
            self._warn(error)

    def _give_up(self, error: QueueError | OSError) -> None:
        self._files.has_failed = True
        self._warn(error)

    def _warn(self, error: QueueError | OSError | str) -> None:
        self.trouble = str(error)
        _logger.warning(
            "queue %r: it is not known to be on the disk: %s; after a power cut it is compared"
            " from %s on",
            self._name,
            error,
            format_index(self._files.end),
        )

    @property
    def has_rested(self) -> bool:
        """True where nothing has come for a while: a live pump tells of it once a second."""
        return monotonic() >= self._came_at + REST_SECONDS

    @property
    def has_to_audit(self) -> bool:
        """False while there is nothing new to read, or no peer waits for it."""
        if self._audited is None or self.unproved_from is not None or self._is_forgotten:
            return False
        if not self._has_come:
            return False  # and the files of one that nothing was appended to are not asked
        try:
            self._has_come = self._end() != self._audit.at
        except (QueueError, OSError):
            return True  # who reads it tells
        return self._has_come

    async def audit(self) -> None:
        """Reads the rest of what had come when it was read last; what has come since, or still
        comes, leaves that for the next time."""
        while await self.audit_a_while(FOLLOW_SECONDS, rest_only=True):
            pass

    async def audit_a_while(
        self, seconds: float, do: InThread = in_thread, *, rest_only: bool = False
    ) -> bool:
        """Reads what has come since the last time, for so long; true while there is more, and
        nothing comes.

        Args:
            do: what does it in a thread.
            rest_only: nothing, if something has come since it was read last.
        """
        if self.unproved_from is not None or self._is_forgotten:
            return False
        is_behind, self.reading = False, Reading()
        with self._telling():
            end = self._end()
            has_come, self._end_read = end != self._end_read, end
            if end != self._audit.at and not (rest_only and has_come):
                found = await do(partial(self._follow, end, seconds))
                if self._audited is not None:
                    self._audited(found)
                is_behind = self._audit.at != end
                is_behind = is_behind and not self._has_ended() and self._end() == end
        return is_behind

    def _follow(self, end: Index, seconds: float) -> list[Place]:
        """In a thread, where it may have waited for others: nothing, if it is closed by now."""
        if self._is_forgotten:
            return []
        here = surroundings()
        began_s, ran_s = here.monotonic(), here.processor_seconds()
        found = self._audit.follow(end, seconds)
        took_s, ran_s = here.monotonic() - began_s, here.processor_seconds() - ran_s
        self.reading = Reading(took_s, ran_s, self._cycles_left(end))
        return found

    def _cycles_left(self, end: Index) -> int:
        """The number of closed cycles that are left to be read, and of which nothing was."""
        at, shift = self.audited, self._queue.layout.roll_cycle.shift
        first, last = cycle_of(at, shift), cycle_of(end, shift)
        if first == last:
            return 0
        is_begun = sequence_of(at, shift) > 0
        return sum(first + is_begun <= cycle < last for cycle in self._queue.cycles.listing())

    async def scrub_a_while(self) -> int | None:
        """Reads a stretch of closed store files once more: how many bytes; None when a round is
        over."""
        if self.unproved_from is not None or self._is_forgotten:
            return None
        with self._telling():
            return await in_thread(partial(self._audit.scrub, self._queue.cycles))

    def _has_ended(self) -> bool:
        """True once the queue is about to be closed."""
        return self._is_forgotten

    @property
    def audited(self) -> Index:
        """The files were read up to here, and that was told."""
        return NEXT_OF_EMPTY if self._audit.at is None else self._audit.at

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tells of files that cannot be read, or are not as they were."""
        try:
            yield
        except QueueDamaged as error:
            if not self._is_forgotten:
                self._damaged(error)
        except (QueueError, OSError) as error:
            if str(error) != self._said:
                self._said = str(error)
                _logger.warning(
                    "queue %r: its files were not looked at to the end, which is tried again: %s",
                    self._name,
                    error,
                )

    def look_at_names(self, *, are_descriptors_few: bool) -> None:
        """Looks whether the names of the files that are open lead to them."""
        if are_descriptors_few:
            self._files.keep_none_open()
        try:
            self._check_names()
        except QueueDamaged as error:
            self._damaged(error)

    @property
    def has_to_look(self) -> bool:
        """False while a look would find nothing but what was written into a closed store file, or
        would write down that a bit more was read: both wait for their turns."""
        since = monotonic() - self._looked_at
        if self._looked is None or since >= FULL_LOOK_SECONDS:
            return True
        is_begun = self._closed.has_more or self._closed.is_suspicious
        if is_begun or self._audit.has_to_read or self.has_news_to_look_at:
            return True
        return since >= SAVE_SECONDS and (self._audit.has_to_save or self._state() != self._looked)

    @property
    def has_to_save(self) -> bool:
        """True while it is not written down how far the files were read."""
        return self._audit.has_to_save and not self._is_forgotten

    @property
    def has_news_to_look_at(self) -> bool:
        """False while a look would find no more than that a sync has gone further in the open store
        file, and how far that was read: with each sync it would write a side file anew."""
        looked, state = self._looked, self._state()
        if looked is None or state is None or self._queue.cycles.closed.is_ahead:
            return True
        shift = self._queue.layout.roll_cycle.shift
        has_rolled = cycle_of(looked.synced, shift) < cycle_of(state.synced, shift)
        return has_rolled or state != looked._replace(synced=state.synced)

    def _state(self) -> "_Looked | None":
        """None where each look counts: in a laboratory real times of change tell nothing, and
        nowhere that of a directory that may change again within the same tick of that clock."""
        if not surroundings().has_threads:
            return None
        try:
            status = os.stat(self._queue.path)
        except OSError:
            return None  # a look tells
        whole_s = status.st_mtime_ns % _SECOND_NS == 0
        if surroundings().wall_ns() - status.st_mtime_ns < (LONG_TICK_NS if whole_s else TICK_NS):
            return None
        return _Looked(status.st_ino, status.st_mtime_ns, self._files.end, self.unproved_from)

    async def look(self, do: InThread = in_thread, seconds: float = LOOK_READ_SECONDS) -> None:
        """Looks at the closed store files.

        Args:
            do: what does it in a thread.
            seconds: so long those that are new are read, and the next look goes on there.
        """
        if self._is_looking or self._is_forgotten:
            return
        self._is_looking = True
        state, self._looked = self._state(), None
        try:
            with self._telling():
                may_note = await do(partial(self._look, seconds))
                self._looked, self._looked_at = state, monotonic()
                self._tell_stall()
                # it may have been closed meanwhile: its end is asked for here, not in the thread
                if may_note and not self._is_forgotten and self._end() > self._files.end:
                    self.note()
        finally:
            self._is_looking = False

    def _tell_stall(self) -> None:
        """Warns once of a stall: what lies behind the cycle goes to no sink until it is closed."""
        before, self._stall = self._stall, self._closed.stall
        if self._stall is not None and self._stall != before:
            _logger.warning(
                "queue %r: what comes next is not read: %s; this closes it: cqrepl repair QUEUE"
                " --apply",
                self._name,
                self._stall,
            )

    def _look(self, seconds: float) -> bool:
        """True when a sync would let more be noted. In a thread, as `_follow`."""
        if self._is_forgotten:
            return False
        doubtful, shift = self._doubtful, self._queue.layout.roll_cycle.shift
        cycles = (
            range(doubtful.start >> shift, (doubtful.stop >> shift) + 1) if doubtful else doubtful
        )
        may_note = self._closed.look(self._files.end, cycles, seconds)
        if self.unproved_from is None and not self._files.has_failed:
            if self._audited is None:
                self._audit.follow_now_and_then(self._queue.cycles)
            self._audit.reread(self._queue.cycles)
            self._audit.save(self._files.end)
            self._audit.digest(self._queue.cycles)
        return may_note


class _Looked(NamedTuple):
    """The state at a look, which tells whether a further one may find more: the directory as it
    was, and how far the queue was on the disk, and proved."""

    number: int
    changed_ns: int
    synced: Index
    unproved_from: Index | None
