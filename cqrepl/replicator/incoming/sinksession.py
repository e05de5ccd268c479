"""A sink's work on one connection: answers, copies back, appends, acknowledges.

An acknowledgement goes out when the excerpts are in the mapped file with their headers published.
A queue takes from one connection at a time.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.net.tokenbucket import Rooms
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.queuelife import CopyMove, CopyState
from cqrepl.protocol.states import ConnectionState
from cqrepl.queue import LayoutMismatch, QueueDamaged, QueueError
from cqrepl.queue.files.queuedirectory import is_one_of
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from cqrepl.replicator.disk.queueaudit import Place
from cqrepl.replicator.incoming.copylevels import sync_later, take_word
from cqrepl.replicator.incoming.copytail import put_aside_later
from cqrepl.replicator.incoming.epochdesk import BEYOND, EpochDesk
from cqrepl.replicator.incoming.masters import QueuesFromHere
from cqrepl.replicator.incoming.offergate import OfferGate
from cqrepl.replicator.incoming.offersin import OffersIn
from cqrepl.replicator.incoming.proofdesk import ProofDesk, prepared
from cqrepl.replicator.incoming.returnframes import UNCOMPARED, ReturnFrames, note_taken
from cqrepl.replicator.incoming.sinklanes import SinkLanes
from cqrepl.replicator.incoming.sinkpauses import SinkPauses
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.queuestate.pause import is_passing
from cqrepl.replicator.queuestate.queues import ANEW, Signal, until
from cqrepl.replicator.queuestate.queueturns import QueueTurns
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane

_STOPPED: Final = CopyState.STOPPED_OPEN  # of a queue that this connection has
_logger = logging.getLogger(__name__)


class SinkSession:
    """A sink's work on one connection."""

    def __init__(
        self,
        queues: Mapping[str, SinkQueue],
        changed: Signal,
        connection: Connection,
        pump: Pump,
        all_sessions: "Callable[[], Iterable[SinkSession]]",
    ) -> None:
        self.waited = None
        self.has_progressed = False
        self._queues = queues
        self._changed = changed
        self._all = all_sessions
        self._connection = connection
        self._pump = pump
        self._back_copies = ReturnFrames(queues, connection, self._stop)
        self._proofs = ProofDesk(connection, pump)
        self.from_here = QueuesFromHere(queues, connection)
        self._epochs = EpochDesk(connection, pump, self.from_here)
        self._is_draining = self._has_heard_names = False
        self._preparing: set[str] = set()  # queues that a worker opens for this connection
        self._lanes = SinkLanes(connection, pump, self._used)
        self._offers = OffersIn(pump, connection)
        self.sent_live = self.stored_live = 0
        self._begun: set[Cid] = set()  # queues whose first index here was looked at
        self._ends: dict[Cid, Index] = {}  # of the queues, when they were answered
        self._pauses = SinkPauses(queues, connection, pump, self.from_here, changed)
        self._gate = OfferGate(self._epochs, connection, self._pauses)
        self._let_go_of: set[Cid] = set()  # by us; the core tells of it yet
        self._acts_on: list[str] = []  # queues that events of are acted on
        self._turns = QueueTurns(connection, pump, self._used)

    @property
    def out_bytes(self) -> int:
        return self._back_copies.out_bytes

    @property
    def is_settled(self) -> bool:
        """True when what was received has been acted on."""
        return self._turns.is_idle

    @property
    def queue_names(self) -> QueueNames:
        free = {name for name, each in self._queues.items() if each.is_free}
        return QueueNames(sinks=frozenset(free & self.from_here.names))

    async def work(self) -> None:
        """Opens or makes offered queues, several at a time: each takes a disk's time."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._offers.work, self._answer)
            nursery.start_soon(self._pauses.work)
            nursery.start_soon(self._turns.work, self._act_on)

    def drain(self) -> None:
        self._is_draining = True

    async def act(self, event: ev.Event) -> None:
        if not await self._turns.takes(event):
            await self._act_on(event)

    async def settle(self) -> None:
        await self._turns.settle()

    async def _act_on(self, event: ev.Event) -> None:
        name = getattr(event, "name", None)
        if name is None:
            await self._act(event)
        elif name in self._queues:
            self._acts_on.append(name)
            try:
                await self._act(event)
            finally:
                self._acts_on.remove(name)
                self._used(name)
        elif isinstance(event, ev.QueueOffered) and self._connection.awaits_answer(event):
            self.put_off(event.cid, "it is not taken here any more")
        elif isinstance(event, ev.QueueWithdrawn):  # it was removed before it was offered
            self._let_go_of.discard(event.cid)

    def _used(self, name: str) -> None:
        """Something that touched a queue is over: who holds it may wait for that."""
        queue = self._queues.get(name)
        if queue is not None and queue.life.hold.reason is not None:
            self._changed.set()

    async def _act(self, event: ev.Event) -> None:
        match event:
            case ev.QueueOffered():
                await self._offers.take(event)
            case ev.QueueWithdrawn():
                self._withdrawn(event)
            case ev.QueuesNamed() if not self._has_heard_names:
                self._has_heard_names = True
                self.from_here.hear_names(self._pump)
                self._changed.set()
            case ev.LineageProved():
                await self._lock(event)
            case ev.ReturnTaken():
                if not note_taken(self._queues[event.name], self._connection, event):
                    self.begin_anew(event.name, UNCOMPARED)
            case ev.IdentityTold():
                await self._take_identity(event, event.identity)
            case ev.CommitMoved() | ev.TailerMoved():
                await take_word(self._queues[event.name], event)
            case ev.LevelWanted():
                self._lanes.sync_at_once(self._queues[event.name], event.level)
            case ev.ProofAsked():
                await self._prove(event)
            case ev.BackCopyWanted():
                self._begin_back_copy(event)
            case ev.AppendExcerpts() | ev.CompareExcerpts():
                await self._store(event)
            case ev.QueueStopped() if event.is_final:
                self._stopped(Stop.told(event, self._connection.remote_id))
            case ev.QueueStopped():
                queue = self._queues[event.name]
                left = Stop.told(event, self._connection.remote_id)
                self._pauses.leave(queue, left, is_elsewhere=self._is_elsewhere(queue))

    def frame(self, out: bytearray, rooms: Rooms) -> int:
        """Frames of the back copies, one queue after the next. They go before what catches up: as
        long as they take, local writers of the source wait."""
        return self._back_copies.fill(out, rooms.live, is_draining=self._is_draining)

    def polls(self, rooms: Rooms) -> bool:
        return False

    def watched(self, rooms: Rooms) -> None:
        return None

    def lanes_out(self) -> "list[SourceLane]":
        return []

    def lanes_in(self) -> "list[SinkLane]":
        if self._back_copies or self._is_draining:
            return []
        self._lanes.each = []
        for handler in self._connection.receiving():
            queue = self._queues[handler.name]
            if handler.cid in self._begun and queue.life.takes_on and not queue.is_comparing:
                self._lanes.lend(handler, queue)
        return [lane for _, _, lane in self._lanes.each]

    def catch_up(self, only: str | None = None) -> None:
        for handler, queue, lane in self._lanes.of(only):
            excerpts, payload_bytes, entries = lane.take_stored()
            if excerpts:
                self.stored_live += excerpts
                self._count(queue, excerpts, payload_bytes, entries)
                if not self._connection.has_stopped(handler.cid):  # while the pump was at it
                    handler.took(queue.appender.next_index)

    async def catch_up_in_turns(self) -> None:
        self.catch_up()

    def leave_lanes(self) -> None:
        self.catch_up()
        self._lanes.left(self)
        self._changed.set()

    async def close(self) -> None:
        self._back_copies.close()
        self._turns.close()
        for queue in self._queues.values():
            self._give_back(queue)
        self._changed.set()

    async def _answer(self, event: ev.QueueOffered) -> None:
        if not self._connection.awaits_answer(event):
            return
        if event.offer.lineage is None and self._connection.compares_lineage:
            return  # it is about to be taken back, with why nothing comes: no queue is made of it
        queue = self._queues[event.name]
        try:
            if queue.know_epochs():
                self.from_here.look_again()
        except (QueueError, OSError) as error:
            self._stop(event.cid, event.name, error)
            return
        if not self._gate.lets_in(self, event, queue):
            return
        if queue.is_waiting_for_quarantine:
            await until(lambda: not queue.way.is_passed_on, self._changed)
            if not self._connection.awaits_answer(event):
                return
            if not self._gate.lets_in(self, event, queue):  # as another source has it meanwhile
                return
        queue.take(self)
        self._changed.set()
        self._note_free(queue)
        offer = event.offer
        if offer.lineage is not None and is_one_of(queue.path, offer.lineage.places):
            queue.close()  # those that write there are the source's
            whose = "the source's" if not offer.lineage.places_before else "its sources'"
            why = f"other files than {whose} expected, they are the same, perhaps by hard links"
            self._stop(event.cid, event.name, LayoutMismatch(why, path=queue.path))
            return
        lineage, next_index, end = None, NEXT_OF_EMPTY, NEXT_OF_EMPTY
        self._preparing.add(event.name)
        try:
            is_compared = self._connection.sink(event.cid).has_lineage
            if is_compared:
                next_index, lineage = await self._proofs.held(event, queue)
            else:
                next_index = await in_thread(partial(prepared, offer, queue, is_compared=False))
            end = queue.next_index
            if not is_compared:
                self._proofs.tell_uncompared(queue, next_index, offer.next_index)
        except (QueueError, OSError) as error:
            if self._connection.awaits_answer(event):
                self._stop(event.cid, event.name, error)
                return
        finally:
            self._preparing.discard(event.name)
        if not self._connection.awaits_answer(event):  # it was withdrawn meanwhile
            self._give_back(queue)
            return
        shift = queue.queue.layout.roll_cycle.shift
        self._ends[event.cid] = end
        if offer.next_index <= end:
            self._pauses.end(queue)  # nothing is to come that might fail again
        shape, history = queue.shape, queue.epochs.now.history
        self._connection.answer_queue(event.cid, next_index, shift, shape, lineage, history)
        self._lanes.tell_all(self._connection.sink(event.cid), queue)

    async def _lock(self, event: ev.LineageProved) -> None:
        """Locks a copy whose source has proved that it holds the same: from now on no other writer
        may append to it."""
        if self._connection.has_stopped(event.cid):  # before its turn
            return
        queue, end = self._queues[event.name], self._ends[event.cid]
        told = None if queue.has_tail else self._turns.take_identity(event)
        try:
            follows = await self._epochs.follow(event, queue, end, told)
        except (QueueError, OSError) as error:
            self._stop(event.cid, event.name, error)
            return
        if self._connection.has_stopped(event.cid):
            return
        if not follows:
            self.put_off(event.cid, BEYOND)
        elif queue.next_index != end:
            self.put_off(event.cid, "another process has written to it")
        else:
            queue.disk.prove(event.index)
            identity = self._turns.take_identity(event)
            if identity is not None:  # it has come meanwhile
                await self._take_identity(event, identity)
            if not self._connection.has_stopped(event.cid):
                self._connection.go_on(event.cid)

    async def _take_identity(
        self, event: ev.LineageProved | ev.IdentityTold, identity: Identity
    ) -> None:
        """This queue is a copy, and its source has said of which queue."""
        if self._connection.has_stopped(event.cid):
            return
        try:
            await in_thread(partial(self._queues[event.name].take_identity, identity))
        except (QueueError, OSError) as error:
            await self._pump.have_back()  # of a queue that streams already
            self._stop(event.cid, event.name, error)

    def put_off(self, cid: Cid, why: str) -> None:
        """Not now: it can be offered again, on this connection where its source knows of that."""
        if not self.withdraw(cid, why):
            self._connection.stop_queue(cid, StopReason.REFUSED, why)

    def withdraw(self, cid: Cid, why: str) -> bool:
        """Lets go of a queue; false where its source knows nothing of that."""
        name = self._connection.sink(cid).name
        is_told = self._connection.withdraw_queue(cid, why)
        if is_told:
            self._let_go_of.add(cid)
            self._offers.forget(cid, name)
        return is_told

    async def _prove(self, event: ev.ProofAsked) -> None:
        """The source looks for where the two copies begin to differ."""
        if self._connection.has_stopped(event.cid):
            return
        try:
            await self._proofs.prove(event, self._queues[event.name])
        except (QueueError, OSError) as error:
            self._stop(event.cid, event.name, error)

    def _withdrawn(self, event: ev.QueueWithdrawn) -> None:
        """The source, or our side, has let go of a queue on this connection."""
        self._back_copies.drop(event.cid)
        self._begun.discard(event.cid)
        self._lanes.forget(event.cid)
        self._ends.pop(event.cid, None)
        self._offers.forget(event.cid, event.name)
        queue = self._queues[event.name]
        if event.cid in self._let_go_of:
            self._let_go_of.discard(event.cid)
        elif not self._is_elsewhere(queue):
            self._pauses.hear(queue, event.message)
        if event.name not in self._preparing:
            self._give_back(queue)

    def _is_elsewhere(self, queue: SinkQueue) -> bool:
        """True while another connection has a queue: a word of this source's changes nothing."""
        return queue.owner is not None and queue.owner is not self

    def _give_back(self, queue: SinkQueue) -> None:
        if not queue.give_back(self):
            return
        sync_later(queue)
        queue.end_comparing()
        self._note_free(queue)
        self.tell_free(queue)
        self._changed.set()

    def _note_free(self, queue: SinkQueue) -> None:
        """Tells the other peers whether this queue can be offered now."""
        for session in self._all():
            if session is not self:
                session.tell_free(queue)

    def tell_free(self, queue: SinkQueue) -> None:
        """Tells this peer whether a queue can be offered now, if it is taken from there."""
        self._pauses.tell_free(queue)

    def _begin_back_copy(self, event: ev.BackCopyWanted) -> None:
        _logger.info("%s: queue %r: back copy", self._pump.label, event.name)
        self._back_copies.begin(event.cid, event.name, event.index_first)

    async def _store(self, event: ev.AppendExcerpts | ev.CompareExcerpts) -> None:
        queue, batch = self._queues[event.name], event.batch
        if queue.owner is not self or queue.life.state is _STOPPED or not queue.pause.is_over:
            return  # it was stopped here, and may be taken from another source by now
        new: ExcerptBatch | None = batch
        try:
            if isinstance(event, ev.CompareExcerpts):
                queue.appender.compare(batch)
            elif (new := queue.new_of(batch)) is not None:
                await self._append(event.cid, queue, new)
        except (QueueError, OSError) as error:  # nothing of it is acknowledged
            self._stop(event.cid, event.name, error)
            return
        entry = b""
        if queue.append_log.is_wanted and new is not None:
            now_ns = surroundings().monotonic_ns()
            entry = ENTRY.pack(new.index_last, event.ns, now_ns, len(new), new.payload_bytes)
        self._count(queue, batch.count, batch.payload_bytes, entry)
        self._connection.tell_stored(event.cid, batch.index_last, event.ns)

    async def _append(self, cid: Cid, queue: SinkQueue, batch: ExcerptBatch) -> None:
        if cid not in self._begun:
            queue.check_first(batch.index_first)
            self._begun.add(cid)
        else:
            queue.check_later(batch.index_first)
        if not queue.appender.append_soon(batch):
            await self._lanes.append(cid, queue, batch)

    def _count(self, queue: SinkQueue, excerpts: int, payload_bytes: int, entries: bytes) -> None:
        """So much has been taken in, by the native lane or here; `entries` are for the log."""
        self.has_progressed = True
        self._pauses.end(queue)
        queue.counters.count_received(excerpts, payload_bytes)
        if entries:
            queue.append_log.note(entries)
        queue.disk.note()

    def begin_anew(self, name: str, why: str = ANEW) -> None:
        """A queue can go on that has stopped: the next connection offers it again."""
        self._pump.fail(f"queue {name!r}: {why}")

    def uses(self, name: str) -> bool:
        """True while anything here may touch the files of a queue."""
        is_at_work = name in self._preparing or name in self._acts_on or self._turns.has(name)
        return is_at_work or self._lanes.has(name)

    async def let_go(self, name: str, why: str) -> None:
        """Takes nothing more of a queue. A peer that does not know what this means, as Java, is
        left, and comes again; so is one where it has stopped. What is on its way ends later:
        `uses`."""
        await self._pump.have_back()  # behind the end it would acknowledge on
        await self._turns.idle(name)
        cid = self._offers.cid_of(name)
        if cid is None or self._connection.state is not ConnectionState.OPEN:
            return
        if not self._connection.has_stopped(cid) and self.withdraw(cid, why):
            self._pump.look()
        else:
            self._pump.fail(f"queue {name!r}: {why}")

    def take(self, queue: SinkQueue) -> None:
        """A queue can be offered, which could not be before."""
        self.from_here.look_again()
        if self._offers.have_stopped(queue.name) and self.from_here.refusal(queue) is None:
            self._pump.fail(f"queue {queue.name!r} can be taken now")
        elif self._connection.names_queues:
            self.tell_free(queue)
            self._pump.wake()
        elif self.from_here.takes_offers and self.from_here.refusal(queue) is None:
            self._pump.fail(f"queue {queue.name!r} can be taken now")  # it offers at the start only

    def stop(self, name: str, error: QueueError | OSError) -> None:
        """A queue whose stream is on goes no further, whatever its source does."""
        handler = self._offers.handler_of(name)
        if handler is not None and handler.is_receiving:
            self.catch_up()
            self._stop(handler.cid, name, error)
            self._pump.look()

    def streams(self, name: str) -> bool:
        """True while a queue's stream comes in, behind all that was to be given back."""
        handler = self._offers.handler_of(name)
        return handler is not None and handler.is_receiving

    def keep_back(self, name: str, why: Mapping[AckLevel, str]) -> None:
        """Tells the source why levels are true of no more; of a queue that streams."""
        cid = self._offers.cid_of(name)
        if cid is not None:
            self._lanes.keep_back(self._connection.sink(cid), why)

    def tell_audited(self, name: str, places: list[Place]) -> None:
        """Tells the source what the files of a queue hold, read behind the stream."""
        handler = self._offers.handler_of(name)
        if handler is not None and handler.is_receiving:
            for index, chain in places:
                handler.tell_audited(index, chain)
            self._pump.wake()

    def tell_level(self, name: str, level: AckLevel, index: int) -> None:
        """Tells the source that a queue is on the disk, or applied, up to an index."""
        handler = self._offers.handler_of(name)
        if handler is not None and not self._lanes.say(name, level, index):
            handler.tell_level(level, index)  # if its stream is not on yet, once it is
            self._pump.wake()

    def say_level(self, name: str, level: AckLevel, index: int) -> bool:
        """The same in any thread, where a live pump has the queue; false where none has."""
        return self._lanes.say(name, level, index)

    def _stop(self, cid: Cid, name: str, error: QueueError | OSError) -> None:
        queue = self._queues[name]
        stop = Stop.of(name, error, queue.path, self._connection.remote_id)
        if isinstance(error, QueueDamaged):
            queue.note_damage()
        if is_passing(error) or queue.is_waiting_for_quarantine:
            self._lanes.once_back(queue, partial(queue.make_room, error))
            self._pause(cid, stop)
            return
        self._stopped(stop)
        if not self._connection.has_stopped(cid):  # or it was let go of while that was tried
            self._connection.stop_queue(cid, stop.reason, stop.message)

    def _pause(self, cid: Cid, trouble: Stop) -> None:
        """Not now: the queue is tried again later, and the others go on meanwhile."""
        is_told = self._connection.has_stopped(cid) or self.withdraw(cid, trouble.message)
        self._pauses.begin(self._queues[trouble.name], trouble, is_told=is_told)
        if not is_told:
            self._pump.fail(f"queue {trouble.name!r}: {trouble.message}")
        self._changed.set()

    def _stopped(self, stop: Stop) -> None:
        name, queue, index = stop.name, self._queues[stop.name], stop.differs_at
        if (
            queue.owner is not self
            or queue.life.state is _STOPPED
            or queue.is_waiting_for_quarantine
        ):
            return  # refused for this connection only, or known
        if index is not None and queue.may_put_aside(index):
            # a queue that was stopped is not offered again on one connection
            put_aside_later(queue, self._pump.label, stop, index)
            self._pump.fail(f"queue {name!r}: what differs goes to quarantine, and comes again")
            return
        queue.life.move(CopyMove.STOP, stop)
        if not stop.is_ours and stop.reason is not StopReason.DIVERGED:  # another may do better
            self._lanes.once_back(queue, partial(self._give_back, queue))
        _logger.error("%s: %s", self._pump.label, stop.line)
        self._changed.set()
