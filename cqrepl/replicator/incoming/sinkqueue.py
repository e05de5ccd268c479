"""One queue of a sink: opened or made like the source's, and locked for every other writer.

A directory may hold the copy that this sink has taken in before, or, by an operator's mistake, the
queue of an application that is writing to it. So the lock that keeps writers out is taken at the
start where the queue is known as a copy or no other process has it open, and otherwise when its
source has compared what both hold. A source that cannot compare is believed.
"""

import logging
from functools import partial
from pathlib import Path
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.protocol import QueueShape
from cqrepl.protocol.queuelife import CopyLife, CopyMove
from cqrepl.queue import (
    Appender,
    LayoutMismatch,
    NotAQueue,
    Queue,
    QueueDamaged,
    QueueError,
    QueueLayout,
)
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.queue.files.syncedmark import ACCEPT
from cqrepl.queue.format.epochs import History
from cqrepl.queue.format.errors import cannot_open
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, format_index
from cqrepl.queue.format.rollcycle import RollCycle
from cqrepl.queue.quarantine import Quarantine
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.tornsectors import first_doubtful
from cqrepl.queue.write.pretoucher import PageToucher, page_toucher
from cqrepl.replicator.agreement.firstindex import FirstIndexes
from cqrepl.replicator.agreement.identities import identity_of_copy
from cqrepl.replicator.agreement.overlap import Overlap, overlap_from, uncompared
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.disk.freespace import FreeSpace
from cqrepl.replicator.disk.queueaudit import Place
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.disk.unprovedwatch import UnprovedWatch
from cqrepl.replicator.incoming.copylayout import layout_like
from cqrepl.replicator.incoming.copylevels import BeyondAppended, look_at_levels, tell_synced
from cqrepl.replicator.incoming.copytail import CopyTail
from cqrepl.replicator.marks.counters import SinkCounters
from cqrepl.replicator.queuestate.appendfence import WRITER_SECONDS, AppendFence
from cqrepl.replicator.queuestate.descriptors import is_none_left, opening
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.queuestate.logs import EntryLog, LogKind
from cqrepl.replicator.queuestate.passedon import Way
from cqrepl.replicator.queuestate.pause import Pause
from cqrepl.replicator.queuestate.queues import TakingSession, TellDamage, shape_of
from cqrepl.replicator.queuestate.stops import Stop

_logger: Final = logging.getLogger(__name__)


class SinkQueue:
    """One queue of a sink, over all connections.

    Args:
        epochs: of the queue, where they are known already.
        fence: that keeps writers out of it until it is open.
        is_late: it is not opened yet, but as at a start when it is offered.
        is_start_locked: writers are kept out of it from the start.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        roll_cycle: RollCycle,
        touch_ahead_bytes: int,
        append_log: Path | None,
        syncer: Syncer,
        *,
        any_cycle: bool = False,
        puts_aside: bool = False,
        min_free_bytes: int = 0,
        epochs: KeptEpochs | None = None,
        fence: AppendFence | None = None,
        is_late: bool = False,
        is_start_locked: bool = False,
    ) -> None:
        self.name = name
        self.path = path
        self.epochs = epochs or KeptEpochs(path)
        self._knows_epochs = False  # and whom they say it is taken from
        self.owner: TakingSession | None = None  # of the connection that it takes from
        self.life: CopyLife[Stop] = CopyLife()
        self.pause = Pause()
        self.master_id: int | None = None  # the only host that it is taken from; None: any
        self.way = Way()
        self.tell_damage: TellDamage = lambda known: None
        self.was_offered = False
        self.offered_end = Index(0)  # of its source, when it was offered last
        self.was_left_out = False  # by a source that has named what it has
        self.counters = SinkCounters(self._drain)
        self.chains: Chains  # while it is open
        self.disk: DiskEnd  # while it is open
        self.beyond = BeyondAppended()
        self.unproved = UnprovedWatch(name)
        self._log_path = append_log
        self._is_log_due = True  # to be opened, for the first time or again
        self._unlogged = b""  # entries for it from before
        self.toucher: PageToucher | None = None  # while the queue is open
        self._roll_cycle = roll_cycle
        self._first_indexes = FirstIndexes(path, any_cycle=any_cycle)
        self._puts_aside = puts_aside
        self.tail = CopyTail(name, path)
        self._free_space = FreeSpace(min_free_bytes, path)
        self._touch_ahead_bytes = touch_ahead_bytes
        self.syncer = syncer
        self._overlap: Overlap | None = None  # while what is here comes again
        self._is_start_locked = is_start_locked
        self._queue: Queue | None = None
        self._appender: Appender | None = None
        self._is_open = False  # all of it: a thread opens one thing after the other
        self.error_at_start: QueueError | OSError | None = None  # it could not be opened
        self._is_anew = is_late  # it is to be opened as at a start
        if is_late:
            self.append_log = EntryLog(None, self.name, LogKind.APPENDED)  # until it is opened
        else:
            self._begin(fence)

    def _begin(self, fence: AppendFence | None) -> None:
        self.error_at_start = None
        try:
            self._open_log()
        except (QueueError, OSError) as error:
            # for now: no queue goes on without the log that was asked for
            self.append_log = EntryLog(None, self.name, LogKind.APPENDED)
            self.error_at_start = error
            return
        try:
            _ = self.epochs.now  # nothing is taken before they are known
            if self.is_there:
                self._open(None, fence)
        except (QueueError, OSError) as error:
            self.error_at_start = error
            self.make_room(error)

    def open_again(self) -> None:
        """Opens one that could not be opened before, as at a start. In any thread.

        Raises:
            QueueError, OSError: it cannot be opened now either.
        """
        self._begin(None)
        if self.error_at_start is not None:
            raise self.error_at_start

    def _open_log(self) -> None:
        if self._is_log_due:
            kind = LogKind.APPENDED
            self.append_log = EntryLog(self._log_path, self.name, kind, self._unlogged)
            self._is_log_due = False

    @property
    def is_there(self) -> bool:
        """True where its directory holds anything of a queue.

        Raises:
            NotAQueue: that cannot be read.
        """
        path = self.path
        try:
            path.stat()
            return not path.is_dir() or holds_queue(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise cannot_open(error, path) from error

    @property
    def is_free(self) -> bool:
        """True when it can be offered: no other source has it, and it does not pause. One that has
        stopped can: the source is told why."""
        return self.life.is_free and self.pause.is_over

    def take(self, session: TakingSession) -> None:
        """A connection takes it, by an offer."""
        assert self.owner is None
        self.life.move(CopyMove.TAKE)
        self.owner, self.was_offered = session, True

    def give_back(self, session: TakingSession) -> bool:
        """A connection takes nothing more of it; false where that does not have it."""
        if self.owner is not session:
            return False
        self.owner = None
        self.life.move(CopyMove.GIVE_BACK)
        return True

    @property
    def is_taking(self) -> bool:
        """True while a source streams into it, and all that it holds is proved."""
        is_open = self._appender is not None and self.owner is not None and self.life.stop is None
        return is_open and self.disk.unproved_from is None

    @property
    def received_excerpts(self) -> int:
        """Number of excerpts taken in."""
        return self.counters.drained().received.excerpts

    @property
    def received_bytes(self) -> int:
        """Bytes of payload taken in."""
        return self.counters.drained().received.payload_bytes

    @property
    def queue(self) -> Queue:
        assert self._queue is not None
        return self._queue

    @property
    def appender(self) -> Appender:
        assert self._appender is not None
        return self._appender

    @property
    def shape(self) -> QueueShape:
        return shape_of(self.queue.layout)

    @property
    def next_index(self) -> Index:
        """One past the last excerpt; 0 for an empty queue."""
        appender = self._appender
        return self.queue.next_index() if appender is None else Index(appender.next_index)

    @property
    def known_last(self) -> int | None:
        """One below the next index; None also while the queue is not open, or not readable."""
        try:
            return None if self._queue is None else self.next_index - 1
        except (QueueError, OSError):
            return None

    def know_epochs(self) -> bool:
        """Reads what it has promised, where that could not be done before. A host that leads by
        that goes before the one that it was to be taken from. True where it is news.

        Raises:
            OSError, QueueDamaged: it cannot be read, now.
        """
        now = self.epochs.now
        is_news, self._knows_epochs = not self._knows_epochs, True
        if is_news and now.promised and self.master_id is not None:
            self.master_id = now.promised_to
        return is_news

    def prepare(
        self,
        offer: QueueShape | None,
        source_id: int,
        *,
        is_compared: bool,
        history: History | None = None,
        offered: int = NEXT_OF_EMPTY,
    ) -> None:
        """Opens the queue, makes it like the source's if there is none, and checks that it is
        alike.

        Args:
            is_compared: the source compares what both hold, before the queue is locked.
            history: who has led the source's; None for one that does not say.
            offered: the source's next index.

        Raises:
            LayoutMismatch: it exists and is not like the source's, or nothing like it can be made.
            QueueLocked: another process has the append lock.
            OSError: it would take the last descriptors, or less than is to be is free on its disk.
        """
        self._free_space.check()
        if self._is_log_due:
            with opening(self.path):
                self._open_log()
        with opening(self.path):
            if self.tail.differs_from is not None:
                self._close_files()
                self.tail.put_aside()
            if self._queue is None:
                late = self._is_anew or self.error_at_start is not None
                as_at_start = late and self.is_there
                made = partial(layout_like, offer, source_id, self._roll_cycle, self.path)
                self._open(None if as_at_start else made())
                self.error_at_start, self._is_anew = None, False
            if not is_compared:
                self._lock()
        if offer is not None and not offer.is_like(self.shape):
            raise LayoutMismatch(
                f"the source's queue has {offer}, this one {self.shape}", path=self.path
            )
        self.tail.find(self.epochs.tail_of(self.queue, history if is_compared else None, offered))

    @property
    def has_tail(self) -> bool:
        """True for one that holds what its source's never had: `cut_off`."""
        return self.tail.beyond is not None

    def cut_off(self) -> Quarantine:
        """The source has proved that it holds what is before the tail: that goes to quarantine.
        Afterwards the queue is offered anew.

        Raises:
            QueueLocked: another process has it open.
            QueueError, OSError: it cannot be put aside.
        """
        self.rest()
        return self.tail.cut_off()

    def follow(self, history: History | None, leader: int) -> None:
        """Follows the host that leads: this queue is proved to be a copy of that of a source with
        this history. No other writer appends to it from now on, and no host of an earlier epoch is
        followed.

        Raises:
            QueueLocked, OSError: as `lock`; or that may not be on the disk.
        """
        self.lock()
        if history is not None:
            self.epochs.adopt(history)
        self.epochs.note_streaming(leader)

    def check_identity(self, of_source: Identity | None) -> Identity | None:
        """The identity of this queue, None for none. One that is another than its source's is not
        its copy. But an empty one in which this host has led, or followed another leader, has got
        its identity from a leader of which nothing has come: it takes that of the next one.

        Raises:
            OtherQueue: so it is.
            QueueError, OSError: it cannot be read.
        """
        is_blank = self.next_index == NEXT_OF_EMPTY and bool(self.epochs.now.promised)
        return identity_of_copy(self.queue.identity, of_source, self.path, is_blank=is_blank)

    def take_identity(self, of_source: Identity) -> None:
        """This queue is proved to be its source's copy, and gets its identity, if it has none.

        Raises:
            OtherQueue: it has another one.
            QueueError, OSError: it cannot be read, or may not be on the disk.
        """
        if self.check_identity(of_source) is None:
            self.queue.identity.keep(lambda: of_source)
            self.check_identity(of_source)

    def may_put_aside(self, index: int) -> bool:
        """Notes that its source holds something else from `index` on. True where what is here goes
        to quarantine, with the next connection, and comes again: where the user has said so, where
        a power cut left it and no copy has proved it since, or where a host wrote it that led no
        longer."""
        if self._puts_aside or self.tail.explanation(index, self.disk) is not None:
            self.tail.begin_to_put_aside(index, self.queue)
        return self.is_waiting_for_quarantine

    @property
    def is_waiting_for_quarantine(self) -> bool:
        """True until what differs has been put aside."""
        return self.tail.differs_from is not None

    @property
    def is_comparing(self) -> bool:
        """True while what comes is held against what is here."""
        return self._overlap is not None

    def answer_from(self, offered: int, *, is_compared: bool) -> Index:
        """From which index on the source is to send.

        That is the end, or where a tail begins that goes; but of a source that offers all of it,
        what a power cut may have torn is asked for once more, and the last excerpts where they were
        not compared otherwise.

        Args:
            offered: the source's next index.
            is_compared: the source compares what both hold.

        Raises:
            QueueError: the queue cannot be read.
        """
        self.offered_end = Index(offered)
        self.end_comparing()
        if self.tail.beyond is not None:
            return self.tail.beyond[1]
        end, doubtful = self.next_index, self.disk.unproved_from
        if offered < end:
            return end
        start = end if is_compared else overlap_from(end, self.queue.layout.roll_cycle.shift)
        start = start if doubtful is None else min(start, doubtful)
        if start < end or doubtful is not None:
            self._overlap = Overlap(self.queue, start, doubtful)
        _logger.debug("queue %r: taken in from %s on", self.name, format_index(start))
        return start

    def uncompared(self, start: Index, offered: int) -> str | None:
        """A sentence on the excerpts that are not compared, where a source that cannot prove what
        it holds is asked from `start` on; None where all are.

        Raises:
            QueueError: the queue cannot be read.
        """
        return uncompared(self.queue, start, self.next_index, offered)

    def new_of(self, batch: ExcerptBatch) -> ExcerptBatch | None:
        """The excerpts of a batch that are new here; None for none. The others are compared, and
        mended where they were torn.

        Raises:
            Diverged: this queue holds something else, and no power cut explains it.
            QueueError, OSError: it cannot be read, or mended.
        """
        overlap = self._overlap
        if overlap is None:
            return batch
        end = self.next_index
        if batch.index_first >= end:
            overlap.check_passed()
            self.disk.prove(end)
            self.end_comparing()
            return batch
        count = min(len(batch), end - batch.index_first)
        known = batch.part(0, count)
        overlap.compare(known)
        self.disk.prove(known.index_last + 1)
        if known.index_last + 1 >= end:  # what was appended since then came again, too
            self.end_comparing()
        return None if count == len(batch) else batch.part(count, len(batch))

    def certain_count(self, batch: ExcerptBatch) -> int:
        """The number of excerpts of a batch that can be given back, up to the first doubtful one: a
        source that lacks them cannot tell whether a power cut has torn them here.

        Raises:
            QueueDamaged: not even the first one.
        """
        start = self.disk.unproved_from
        if start is None or batch.index_last < start:
            return len(batch)
        count = first_doubtful(batch, max(0, start - batch.index_first))
        if not count:
            raise QueueDamaged(
                f"expected the bytes of excerpt {format_index(batch.index_first)}, found zeros as a"
                " power cut leaves them, and its source does not have it; if it is good as"
                f" it is: {ACCEPT}",
                path=self.path,
                position=batch.offsets[0],
            )
        return count

    def end_comparing(self) -> None:
        """Nothing more comes again; on the next connection it goes on from there."""
        if self._overlap is not None:
            self.disk.tell_mended(self._overlap.mended)
            self._overlap.close()
            self._overlap = None

    def check_first(self, index: Index) -> None:
        """Looks at the first index that comes on a connection, where it begins a cycle here.

        Raises:
            ClockBehind, LayoutMismatch: by its roll cycle this is no time near this host's clock.
        """
        self._first_indexes.check_first(index, self.next_index, self.queue.layout)

    def check_later(self, index: Index) -> None:
        """Looks at a later one, where it begins a cycle here.

        Raises:
            LayoutMismatch: so many cycles of times to come would be made that this is no queue.
        """
        end = self.next_index
        if index != end:  # else it goes on in the cycle of the last one
            self._first_indexes.check_later(index, end, self.queue.layout)

    def close(self) -> None:
        self._close_files()
        self.append_log.close()

    @property
    def is_open(self) -> bool:
        """True while its files are open, and all that watches them is there."""
        return self._is_open

    def change(self, *, any_cycle: bool, puts_aside: bool) -> None:
        """Takes other values of what it was made with."""
        self._first_indexes.any_cycle, self._puts_aside = any_cycle, puts_aside

    def rest(self) -> None:
        """Closes its files; it is opened as at a start when it is offered next."""
        self._close_files()
        self._is_anew = True

    def begin_anew(self) -> None:
        """Ends a stop: what it holds is compared again, as at a start."""
        self.rest()
        self.life.move(CopyMove.BEGIN_ANEW)
        self.pause = Pause()

    def open_later(self, error: QueueError | OSError) -> None:
        """It pauses, with its files closed, and is opened as at a start when it is offered next."""
        self.error_at_start = error
        self._close_files()
        self._rest_log()

    def make_room(self, error: QueueError | OSError) -> None:
        """It pauses. Where that is over too few descriptors, it keeps none, for others to go on."""
        if is_none_left(error):
            if self._queue is not None:
                self.error_at_start = error  # it is opened as at a start
            self._close_files()
            self._rest_log()

    def _rest_log(self) -> None:
        """The log is opened again with the queue."""
        if self._log_path is not None and not self._is_log_due:
            self._unlogged = self.append_log.rest()
            self._is_log_due = True

    def _close_files(self) -> None:
        self._is_open = False
        if self.toucher is not None:
            self.toucher.close()
            self.toucher = None
        self.end_comparing()
        queue, self._queue, self._appender = self._queue, None, None
        if queue is not None:
            self.syncer.forget(queue)
            try:
                queue.close()
            except QueueError as error:  # its lock was not ours any more; it is closed all the same
                _logger.warning("queue %r: %s", self.name, error)

    def note_damage(self) -> None:
        """Something of it is not what it was: a store file may be lost."""
        self.tell_damage({} if self._queue is None else self._queue.cycles.closed.known)

    def _lost(self, error: QueueDamaged) -> None:
        """The files have lost excerpts, which were acknowledged."""
        self.note_damage()
        if self.life.stop is not None:
            return
        if self.owner is not None:
            self.owner.stop(self.name, error)
        else:
            self.end(Stop.of(self.name, error, self.path))

    def end(self, stop: Stop) -> None:
        """It goes no further, whatever its source does."""
        self.life.move(CopyMove.STOP, stop)
        _logger.error("%s", stop)

    def _tell_audited(self, places: list[Place]) -> None:
        if self.owner is not None:
            self.owner.tell_audited(self.name, places)

    def _check_names(self) -> None:
        """Checks the names of the files once a second; a log that had no room is tried again
        then."""
        look_at_levels(self)
        self.append_log.retry()
        self.check_open_names()
        if self.owner is not None and self.life.stop is None:
            try:
                self._free_space.check()
            except OSError as error:
                self.owner.stop(self.name, error)

    def check_open_names(self) -> bool:
        """True while the names of the files that are open lead to them, false where none is open.
        In any thread.

        Raises:
            QueueDamaged: what is appended has no name any more.
        """
        queue, appender = self._queue, self._appender  # the event loop may close it at any time
        if queue is None:
            return False
        queue.check_name()
        if appender is not None:
            appender.check_name()
        return True

    def _drain(self) -> None:
        if self.owner is not None:
            self.owner.catch_up(self.name)

    def _open(self, create: QueueLayout | None, fence: AppendFence | None = None) -> None:
        if create is None and self.path.is_dir() and not _looks_like_queue(self.path):
            raise NotAQueue("a queue or an empty directory expected", path=self.path)
        opened = fence.give() if fence else Queue.open_for_append(self.path, create=create)
        self._queue = queue = opened
        try:
            self.chains = Chains(queue.cycles)
            # that it follows may have gone with the power; what was promised has not
            is_follower = queue.is_follower or self.epochs.now.promised > 0
            is_proved = queue.is_of_this_boot or not is_follower
            if create is not None or is_follower or self._is_start_locked:
                self._lock()
            else:  # whose it is, a comparison tells: its writers may be a source's
                queue.append_lock.check_free()
                queue.next_index()  # a damaged end is told now, not when a source comes
            self.disk = self.syncer.watch(
                self.name,
                queue,
                lambda: self.next_index,
                self.chains,
                self._lost,
                self._check_names,
                self._tell_audited,
                partial(tell_synced, self),
                is_proved=is_proved,
            )
            self._is_open = True
        except BaseException:
            self._close_files()
            raise

    def lock(self) -> None:
        """Keeps every other writer out, for as long as the queue is open.

        Raises:
            QueueLocked: another process has the append lock, or keeps the write lock.
            OSError: it would take the last descriptors.
        """
        if self._appender is None:
            with opening(self.path):
                self._lock()

    def _lock(self) -> None:
        if self._appender is not None:
            return
        queue = self.queue
        is_fenced = queue.append_lock.is_held
        if not is_fenced:
            queue.append_lock.acquire()
        try:
            if not is_fenced:  # a writer that had looked at the append lock before ends its append
                queue.begin_following(WRITER_SECONDS)
            self.toucher = page_toucher(queue.cycles, queue.layout, self._touch_ahead_bytes)
            # what is longer than the connection's limit never gets here
            self._appender = queue.appender(
                payload_max=NO_LIMIT, toucher=self.toucher, is_sole=True
            )
        except BaseException:
            queue.append_lock.release()
            raise


def _looks_like_queue(path: Path) -> bool:
    return any(each.suffix in (".cq4", ".cq4t") for each in path.iterdir())
