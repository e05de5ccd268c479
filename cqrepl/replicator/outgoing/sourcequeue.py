"""One queue of a source, and what the connections of a source have in common."""

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from cqrepl.console.units import plural
from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.kernel.board import AckLevel
from cqrepl.net.threads import in_thread
from cqrepl.protocol import QueueShape, StopReason
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.protocol.events import QueueStopped
from cqrepl.protocol.queuelife import StreamedLife, StreamedMove
from cqrepl.queue import Queue, QueueDamaged, QueueError
from cqrepl.queue.files.chroniclemarks import ChronicleMarks
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED, is_alive
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.queue.files.syncedmark import load_synced
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Index,
    cycle_of,
    format_index,
    index_of,
)
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.agreement.lineage import FilesChanged
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.disk.unprovedwatch import UnprovedWatch
from cqrepl.replicator.leadership import Leading
from cqrepl.replicator.marks.ackboard import AckBell
from cqrepl.replicator.marks.counters import NOTHING, SourceCounters
from cqrepl.replicator.marks.hostmarks import HostMarks, QueueMarks
from cqrepl.replicator.outgoing.backcopy import release_dead_back_copy
from cqrepl.replicator.outgoing.endwatch import EndWatch
from cqrepl.replicator.outgoing.latewatch import LateWatch
from cqrepl.replicator.outgoing.passedcopies import CopyDisk
from cqrepl.replicator.queuestate.appendfence import release_dead_fence
from cqrepl.replicator.queuestate.appendhold import AppendHold
from cqrepl.replicator.queuestate.keptepochs import Fenced, KeptEpochs
from cqrepl.replicator.queuestate.logs import EntryLog, LogKind
from cqrepl.replicator.queuestate.queues import QueueSession, TellDamage, shape_of
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.settings import SourceSettings
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from cqrepl.kernel.live import QueueRuns
    from cqrepl.replicator.incoming.sinkqueue import SinkQueue

_logger = logging.getLogger(__name__)


class StreamingSession(QueueSession, Protocol):
    """Streams a queue."""

    def stop(self, name: str, error: QueueError, *, before_begin: OSError | None = None) -> None:
        """As any session's.

        Args:
            before_begin: the error in its place, where the stream has not begun; None: the same.
        """

    def touch(self, name: str, *, is_first: bool = False) -> None:
        """Something may have come of it that its sink is to hear.

        Args:
            is_first: a level is waited for that was not before.
        """


class LiveStream(Protocol):
    """A queue on its way to one sink."""

    marks: HostMarks
    kept_back: dict[AckLevel, str]

    def withhold(self, index: int) -> None:
        """No mark is behind this index from now on, whatever its sink acknowledges."""


class SourceQueue:
    """One queue of a source, over all connections.

    Args:
        runs: what its lanes share; None without live pumps.
        copy: what the host takes in, of a queue that it passes on; None for one of its own.
        passed_by: the ids of the hosts that such a one has come by, with this one; else none.
        epochs: of the queue, where they are known already.

    Raises:
        OSError: no descriptor can be had, or its epochs cannot be read now.
        QueueError: the directory holds no queue that can be read.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        ack_log: Path | None,
        syncer: Syncer,
        settings: SourceSettings,
        bell: AckBell,
        runs: "QueueRuns | None" = None,
        copy: "SinkQueue | None" = None,
        passed_by: tuple[int, ...] = (),
        epochs: KeptEpochs | None = None,
    ) -> None:
        self.name = name
        self.runs = runs
        self.copy = copy
        self.passed_by = passed_by
        self.life: StreamedLife[Stop] = StreamedLife()
        self.board = bell.board(name)
        self.epochs = (epochs or KeptEpochs(path)) if copy is None else copy.epochs
        now, given = self.epochs.now, settings.policies.get(name)  # not opened before they are read
        begins = now.history[-1].start if now.history else NEXT_OF_EMPTY
        self.leading = Leading(name, path, self.board, given, epoch=now.number, begins=begins)
        self.policy = self.leading.policy
        self.leading.hindrances = self._hindrances
        if settings.asks_ack(name) and self.policy.hosts_min != 0:
            self.board.want(self.policy.level)
        if not settings.asks_ack(name):
            self.board.close("no acknowledgements are asked for")
        self.path = path
        self.source_id = settings.source_ids.get(name)
        self.queue = _opened(path, None if copy else settings.made_with.get(name))
        is_exclusive = copy is None and name in settings.exclusive
        self.hold = AppendHold(path) if is_exclusive else None
        try:
            self._begin(ack_log, syncer, settings)
            word = self.queue.acknowledged_word() if copy is None else None
            if word is not None:  # of a copy its own source says what is safe
                self.leading.keep_safe(word)
            self.life.move(StreamedMove.OPEN)
        except BaseException:
            syncer.forget(self.queue)
            self.queue.close()
            raise

    def _begin(self, ack_log: Path | None, syncer: Syncer, settings: SourceSettings) -> None:
        name = self.name
        self.chains = Chains(self.queue.cycles)
        self.queue.keep_marks_open()
        if self.copy is None:
            self._release_dead_locks()
            self._put_in_order()
            self.queue.note_follower(is_follower=False)
            try:
                self.epochs.note_streaming()
            except OSError as error:  # copies that follow note it, and this one before it gives up
                _logger.warning("queue %r: that it is streamed is not noted: %s", name, error)
        self.target = self.queue.last_index()  # the last excerpt at the start
        self.unproved = UnprovedWatch(name)
        self.streams: set[LiveStream] = set()  # to one sink each
        self.sessions: list[StreamingSession] = []  # of the connections that it goes out on
        self.returned_excerpts = 0  # by sinks, since the start
        self.returning: object | None = None  # its stream to the sink that gives back now
        self.note_stop: Callable[[Stop], None] = lambda stop: _logger.error("%s", stop)
        self.tell_damage: TellDamage = lambda known: None
        self.counters = SourceCounters(
            self.queue,
            self._drain,
            is_own=self.copy is None,
            safe=None if self.leading.given is None else self.leading.safe_index,
        )
        self._marks = QueueMarks(name, self.queue.host_marks, self.board)
        self.late = LateWatch(self.queue, self.counters, self._marks, is_own=self.copy is None)
        self.end_watch = EndWatch(
            self.queue,
            self._end,
            self.counters,
            self._marks,
            lambda end: None if isinstance(self.disk, CopyDisk) else self.disk.lower_to(end),
        )
        try:
            self._lower_marks()
            self._lower_tailers()
            self._find_late()
        except (QueueError, OSError) as error:  # reading tells, on each connection
            _logger.warning("queue %r: its marks stay as they are: %s", name, error)
        self._syncer = syncer
        self.disk: DiskEnd | CopyDisk
        if self.copy is None:
            self.disk = syncer.watch(
                name,
                self.queue,
                self.queue.next_index,
                self.chains,
                self._lost,
                self._check_names,
                is_proved=True,
                keeps_lost=True,
            )
        else:
            self.disk = CopyDisk(self.copy)
        self.held_until = -math.inf  # by trio's clock
        if self.disk.unproved_from is not None and self._may_be_whole_elsewhere(settings):
            self.held_until = trio.current_time() + settings.wait_for_seconds
        self.ack_log = EntryLog(ack_log, name, LogKind.ACKNOWLEDGEMENTS)

    def _may_be_whole_elsewhere(self, settings: SourceSettings) -> bool:
        """True when a sink that is waited for may have what a power cut has torn here. A promoted
        host has no marks yet of the copies that there are beside its own."""
        is_promoted = self.epochs.now.number > 0 and settings.wait_for is None
        return is_promoted or settings.waits_for(self._marks.known())

    def _put_in_order(self) -> None:
        """After another start of the machine an end may be recorded that a power cut has taken, and
        nothing up to there can be read. Its next writer mends that; a sink may come before."""
        mark = load_synced(self.path)
        if mark is None or mark.is_of_this_boot or self.queue.is_of_this_boot:
            return
        try:
            with Queue.open_for_append(self.path) as queue:
                queue.appender(payload_max=NO_LIMIT).close()
        except (QueueError, OSError) as error:
            _logger.warning("queue %r: it is read as the power cut left it: %s", self.name, error)

    def _lower_marks(self, *, is_running: bool = False) -> None:
        """Lowers the marks to the end of the queue. What it has lost counts as sent and
        acknowledged no more, as other excerpts may get the same indexes. A sink that has it may
        give it back.

        Args:
            is_running: all of the last cycle may have been written since it was lost.
        """
        if self.copy is None:
            self.end_watch.find()
        queue, hosts = self.queue, self._marks.known()
        acknowledged = {host: marks.acknowledged for host, marks in hosts.items()}
        own = [queue.sent_index, queue.acknowledged_index] if self.copy is None else [NOTHING]
        marked = max([*own, *acknowledged.values()])
        if marked == NOTHING:
            return
        end = self._end()  # behind the marks: they may rise meanwhile
        if is_running and self.end_watch.lost is not None:
            shift = queue.layout.roll_cycle.shift
            end = index_of(cycle_of(end, shift), SEQUENCE_FIRST, shift)
        last = None if end == NEXT_OF_EMPTY else queue.last_index_before(end)
        lowered = NOTHING if last is None else last
        if marked <= lowered:
            return
        if self.copy is None:
            self.end_watch.lower(lowered)
        else:
            self._marks.lower_to(lowered)
        ahead = [str(host) for host, index in acknowledged.items() if index > lowered]
        _logger.warning(
            "queue %r: it ends at %s, and was replicated up to %s: what is between is lost here%s",
            self.name,
            "its start" if last is None else format_index(last),
            format_index(marked),
            f"; host {', '.join(ahead)} may return it" if ahead else "",
        )

    def _find_late(self) -> None:
        """Excerpts that came while no source ran, before those that were streamed, count as sent
        and acknowledged no more."""
        found = self.late.find()
        if found is not None and self.withhold(self._before(found)):
            _logger.warning(
                "queue %r: the store file that begins with %s came after later ones were sent: no"
                " mark is behind it, until a copy has proved that it holds it",
                self.name,
                format_index(found),
            )

    def forget_session(self, session: StreamingSession) -> None:
        """A connection has let go of this queue, or has ended, or both in one moment."""
        if session in self.sessions:
            self.sessions.remove(session)

    def withhold(self, index: int) -> bool:
        """No mark of a host is behind this index before its next stream begins; false where none
        was."""
        had = [max(each.sent, each.acknowledged) for each in self._marks.known().values()]
        was = max([self.queue.sent_index, self.queue.acknowledged_index, *had])
        self._marks.withhold(index)
        self.counters.lower_to(index)
        self.queue.lower_marks(index, keeps_synced=True)
        return was > index

    def _before(self, index: Index) -> int:
        last = self.queue.last_index_before(index)
        return NOTHING if last is None else last

    def _look_for_late(self) -> None:
        """Stops the queue where excerpts came that its streams have passed; called once a
        second."""
        error = self.late.look(is_returning=self.returning is not None)
        if error is None:
            return
        assert error.index is not None
        try:
            index = self._before(Index(error.index))
        except (QueueError, OSError):
            index = NOTHING
        for each in list(self.streams):
            each.withhold(index)
        for session in list(self.sessions):  # a copy without a stream is compared once more
            session.stop(self.name, error, before_begin=FilesChanged())
        if not self.sessions:
            _logger.error("%s", Stop.of(self.name, error, self.path))
        self.withhold(index)

    def _lower_tailers(self) -> None:
        """Moves readers that are beyond the end of the queue back to it. Excerpts that they had
        read are lost, and other ones may get the same indexes."""
        positions, shift = self.queue.tailer_positions, self.queue.layout.roll_cycle.shift
        found = [each for each in positions.look(all_names=True) if each.index > NEXT_OF_EMPTY]
        end = self._end() if found else NEXT_OF_EMPTY  # behind them: they may move meanwhile
        # one at the start of a later cycle has read no more than what is there
        lost = [each for each in found if each.index > end and each.index & ((1 << shift) - 1)]
        if not lost:
            return
        positions.lower_to(end)
        _logger.warning(
            "queue %r: it ends before %s, and its readers %s had read more: they go on from there",
            self.name,
            format_index(end),
            ", ".join(repr(each.name) for each in lost),
        )

    def _end(self) -> Index:
        queue = self.queue
        return queue.next_index() if queue.is_of_this_boot else self.chains.readable_end()

    def _hindrances(self, policy: AckPolicy) -> list[str]:
        """Reasons why hosts do not call an index as safe as a policy asks; in any thread."""
        found = [f"here {self.unproved.why}"] if self.unproved.why else []
        for host, whys in sorted(self.kept_back().items()):
            if policy.level in whys and host in policy.counted:
                level = policy.level.name.lower()
                found.append(f"host {host} keeps {level} back: {whys[policy.level]}")
        return found

    def kept_back(self) -> dict[int, dict[AckLevel, str]]:
        """The reasons why sinks say no more of a level, by host id; in any thread."""
        return {each.marks.host_id: each.kept_back.copy() for each in list(self.streams)}

    @property
    def shape(self) -> QueueShape:
        return shape_of(self.queue.layout)

    def _release_dead_locks(self) -> None:
        try:
            if release_dead_back_copy(self.path, self.queue):
                _logger.info(
                    "queue %r: gave back the locks of a source that died in a back copy", self.name
                )
            if self.epochs.has_led_last and release_dead_fence(self.queue):
                told = "queue %r: freed the append lock of a process that has died: this host leads"
                _logger.info(told, self.name)
        except (QueueError, OSError) as error:
            _logger.warning("queue %r: locks of a dead source stay: %s", self.name, error)

    @property
    def held_from(self) -> Index | None:
        """The first index that is not streamed yet, as a power cut may have torn what is there and
        a sink that is known may have it whole; None: all goes out."""
        start = self.disk.unproved_from
        if start is None or self.held_until == -math.inf:
            return None
        if trio.current_time() >= self.held_until:
            self.held_until = -math.inf
            _logger.warning(
                "queue %r: no sink has given back what is from %s on: it goes out as it stands",
                self.name,
                format_index(start),
            )
            return None
        return start

    @property
    def acknowledged(self) -> int:
        """Some sink has everything up to this index; -1 for nothing."""
        return self.counters.drained().index_acknowledged

    @property
    def marks(self) -> Mapping[int, HostMarks]:
        """The marks of each sink host that has any, by host id; of earlier runs too."""
        self._drain()
        return self._marks.known()

    def marks_of(self, host_id: int) -> HostMarks:
        """The marks of a host that has connected."""
        return self._marks.of(host_id)

    def forget(self, host_id: int) -> bool:
        """A host holds no store file any more, until it comes again; false where it is not known.

        Raises:
            OSError, QueueError: that cannot be written.
        """
        return self._marks.forget(host_id)

    @property
    def sent_excerpts(self) -> int:
        """Number of excerpts sent, to all sinks together."""
        return self.counters.drained().sent.excerpts

    @property
    def sent_bytes(self) -> int:
        """Bytes of payload sent, to all sinks together."""
        return self.counters.drained().sent.payload_bytes

    def settle_identity(self, of_sink: Identity | None) -> Identity | None:
        """The identity of this queue, which may have had none: then that of a sink that holds what
        it holds, or a new one. None where it cannot be kept. One that is itself taken in, here or
        by another process, inherits that of its source.

        Args:
            of_sink: None for a sink that has none.

        Raises:
            QueueError, OSError: it cannot be read, or may not be on the disk.
        """
        if self.copy is not None or (of_sink is None and self._is_taken_in):
            return self.queue.identity.load()
        return self.queue.identity.keep(lambda: of_sink or new_identity())

    @property
    def _is_taken_in(self) -> bool:
        marks = ChronicleMarks(self.path / FILE_NAME)
        holder = marks.load(APPEND_LOCK_KEY, UNLOCKED)
        is_other = holder not in (UNLOCKED, surroundings().process_id())
        return is_other and is_alive(holder)

    def cause_of(self, error: QueueError | OSError) -> QueueError | OSError:
        """The error for which the queue goes no further: this one, or, where its directory has
        gone, one that says so."""
        try:
            self.queue.check_name()
        except QueueDamaged as lost:
            error = lost
        if isinstance(error, QueueDamaged):
            self.note_damage()
        return error

    def touch(self, *, is_first: bool = False) -> None:
        """More of it may be safe, or waited for: sinks may have something to hear.

        Args:
            is_first: a level is waited for that was not before.
        """
        for session in self.sessions:
            session.touch(self.name, is_first=is_first)

    def leads(self, host_id: int) -> bool:
        """True while this host leads it: it is no copy that is passed on, no epoch says otherwise,
        and nothing has had this host step down."""
        is_own = self.copy is None and self.epochs.now.may_lead(host_id)
        return is_own and not self.leading.has_stepped_down

    def check_leads(self, host_id: int) -> None:
        """Does nothing where this host may stream it: one that it passes on it never leads.

        Raises:
            Fenced: another one leads, or is to.
        """
        if self.copy is None:
            self.epochs.check_leads(host_id)

    async def hear_fence(self, marks: HostMarks, event: QueueStopped) -> bool:
        """Hears that a sink has refused the queue, as another host leads it. True where that sink
        has a copy of the queue: nothing of the queue goes out any more. Any other sink is believed
        for itself alone.

        Args:
            marks: of that sink.
        """
        promise, own = event.promise, self.epochs.now
        if event.reason is not StopReason.FENCED or promise is None or not marks.is_known:
            return False
        if promise.epoch < own.promised or promise == (own.promised, own.promised_to):
            return False
        try:
            await in_thread(partial(self.epochs.promise, promise.epoch, promise.leader))
        except (QueueError, OSError, ValueError) as error:
            _logger.warning("queue %r: epoch %d: %s", self.name, promise.epoch, error)
        self._fence(promise.epoch, promise.leader, marks.host_id)
        return True

    def _fence(self, number: int, leader: int, told_by: int) -> None:
        """Another host leads the queue, as a sink says: nothing of it goes out any more, on no
        connection."""
        leads = f"host {told_by} says that host {leader} leads it in epoch {number}"
        why = f"{leads}: nothing of it goes out from here any more"
        self.leading.fence(leads)
        for session in list(self.sessions):
            session.stop(self.name, Fenced(why, path=self.path))

    def close(self) -> None:
        self.board.close("the source has closed")
        self.leading.close()
        if self.hold is not None:
            self.hold.give_back()
        self._syncer.forget(self.queue)
        if self.copy is None:
            self.queue.note_leads(0)
        self.queue.close()
        self.ack_log.close()

    def note_damage(self) -> None:
        """Something of it is not what it was: a store file may be lost."""
        self.tell_damage(self.queue.cycles.closed.known)

    def has_all_before(self, index: int) -> bool:
        """True where it is known that nothing was lost here, and a copy that ends at this index has
        more."""
        if self.disk.unproved_from is not None or index <= self._end():
            return False
        return self.end_watch.has_all

    def note_returned(self, host_id: int, excerpts: int) -> None:
        """A sink has given back so much, which may be all that it has."""
        if excerpts:
            self.returned_excerpts += excerpts
            _logger.warning(
                "queue %r: host %d gave back %s that this queue lacked",
                self.name,
                host_id,
                plural(excerpts, "excerpt"),
            )
        with suppress(QueueError, OSError):  # who reads it tells
            self.end_watch.note_returned()

    def _lost(self, error: QueueDamaged) -> None:
        """The files have lost excerpts: no sink may take the rest for all."""
        self.note_damage()
        self.note_stop(Stop.of(self.name, error, self.path))
        for session in list(self.sessions):
            session.stop(self.name, error)
        try:
            self.queue.check_name()
            self._lower_marks(is_running=True)  # behind what the lanes had done
        except (QueueError, OSError) as met:
            _logger.warning("queue %r: its marks stay as they are: %s", self.name, met)

    def _check_names(self) -> None:
        """Checks the names of the files once a second; a log that had no room is tried again
        then."""
        self.unproved.look(self.disk.unproved_from, is_streaming=bool(self.streams))
        self.ack_log.retry()
        self.queue.check_name()
        self.end_watch.look(is_returning=self.returning is not None)
        self._look_for_late()

    def _drain(self) -> None:
        for session in self.sessions:
            session.catch_up(self.name)


def _opened(path: Path, made_with: str | None) -> Queue:
    """The queue in a directory; made with this roll cycle where there is nothing."""
    if made_with is not None and (not path.exists() or (path.is_dir() and not holds_queue(path))):
        with Queue.open_for_append(path, create=made_with):
            _logger.info("queue %s is made, with %s", path, made_with)
    return Queue.open(path)
