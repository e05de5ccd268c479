"""A source's work on one connection: offers its queues, takes back copies, streams.

Each connection has its own tailers and its own window, so a slow sink holds up no other.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.pump import Pump
from cqrepl.net.tokenbucket import Rooms
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.queuelife import ToSinkMove, ToSinkState
from cqrepl.protocol.sendwindow import SentRun
from cqrepl.queue import QueueError
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.replicator.agreement.consent import ReturnRefused
from cqrepl.replicator.agreement.identities import OtherQueue
from cqrepl.replicator.marks.counters import NOTHING
from cqrepl.replicator.outgoing.holddesk import HoldDesk
from cqrepl.replicator.outgoing.lineagedesk import LineageDesk
from cqrepl.replicator.outgoing.offerdesk import OfferDesk
from cqrepl.replicator.outgoing.outgoingframes import OutgoingFrames
from cqrepl.replicator.outgoing.outgoinglanes import OutgoingLanes
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing, watched_words
from cqrepl.replicator.outgoing.pausedesk import PauseDesk
from cqrepl.replicator.outgoing.queuebehind import QueueBehind
from cqrepl.replicator.outgoing.resenddesk import ResendDesk
from cqrepl.replicator.outgoing.returndesk import ReturnDesk
from cqrepl.replicator.outgoing.sinkprogress import SinkProgress
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.outgoing.sourceshared import SourceShared
from cqrepl.replicator.outgoing.toldtailers import TailerLooks
from cqrepl.replicator.outgoing.worddesk import WordDesk
from cqrepl.replicator.queuestate.logs import acknowledgement_entry
from cqrepl.replicator.queuestate.pause import is_passing
from cqrepl.replicator.queuestate.queues import ANEW
from cqrepl.replicator.queuestate.queueturns import QueueTurns
from cqrepl.replicator.queuestate.stops import OWN_REASONS, Stop, differing_index
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane

T = TypeVar("T")


class SourceSession:
    """A source's work on one connection."""

    def __init__(
        self, queues: Mapping[str, SourceQueue], shared: SourceShared, link: Connection, pump: Pump
    ) -> None:
        self.outgoing: dict[Cid, Outgoing] = {}
        self._queues = queues
        self._shared = shared
        self._connection = link
        self._pump = pump
        self._is_draining = self.has_progressed = False
        self.stored_live = 0
        self._returns = ReturnDesk(self.outgoing, shared.returns, link, pump, shared.changed)
        self._lineage = LineageDesk(self.outgoing, self._returns, link, shared.changed)
        self._pauses = PauseDesk(pump, shared.changed)
        self._offers = OfferDesk(
            self, self.outgoing, queues, shared, self._returns, self._pauses, link, pump
        )
        self._holds = HoldDesk(self.outgoing, self._offers, self._pauses, link, pump)
        self._behind = QueueBehind(self.outgoing)
        self._steps: list[Cid] = []  # of queues that a step is taken in
        self._turns = QueueTurns(link, pump)
        self._resends = ResendDesk(self.outgoing, pump)
        self._is_leaving = False  # for another connection, where what has stopped here goes on
        self.frames = OutgoingFrames(self.outgoing, link, self.guarded, self.sent)
        self.words = WordDesk(self.outgoing, link, pump)
        self._lanes = OutgoingLanes(self, self.outgoing, link)

    @property
    def out_bytes(self) -> int:
        return self.frames.out_bytes

    def polls(self, rooms: Rooms) -> bool:
        each_reads = (self._reads(each, rooms) for each in self.outgoing.values())
        return not self._is_draining and any(each_reads)

    def _reads(self, each: Outgoing, rooms: Rooms) -> bool:
        """True while what comes next in a queue may be sent."""
        held, tailer = each.queue.held_from, each.tailer
        is_held = tailer is None or (held is not None and tailer.next_index >= held)
        is_held = is_held or not each.room(rooms)
        return not is_held and each.source is not None and each.source.has_room

    def watched(self, rooms: Rooms) -> list[WatchedWord] | None:
        reads = partial(self._reads, rooms=rooms)
        return watched_words(filter(reads, list(self.outgoing.values())), self.guarded)

    @property
    def is_settled(self) -> bool:
        return all(
            self._connection.source(each.cid).is_settled and each.is_audited
            for each in self.outgoing.values()
        )

    @property
    def is_caught_up(self) -> bool:
        """True when this sink has all that was in the queues at the start."""
        are_all_here = len(self.outgoing) == len(self._queues) and not self._shared.late
        return are_all_here and self._behind.find(self.has_target) is None

    @property
    def has_one_under_way(self) -> bool:
        """True where a queue is known that the sink takes, and has not got all of: `progress` says
        the same, and has to look at all of them for that."""
        each = self._behind.find(self.has_target)
        if each is None or each.has_stopped or not self.has_offered:
            return False
        name = each.queue.name
        return name in self._offers.offered and not self._pauses.is_withdrawn(name)

    @property
    def has_stopped(self) -> bool:
        has_any = bool(self._offers.offered or self._offers.failed)
        is_held_up = bool(self._pauses.troubles or self._pauses.withdrawn)
        are_over = all(each.is_over for each in self.outgoing.values())
        return has_any and not is_held_up and are_over

    def has_ended(self, name: str) -> bool:
        """True where nothing more comes of a queue on this connection, nor would with another sink:
        no excerpt, and no acknowledgement."""
        found = [each for each in self.outgoing.values() if each.queue.name == name]
        return (bool(found) or name in self._offers.failed) and all(
            each.is_over and self._connection.source(each.cid).is_settled for each in found
        )

    @property
    def has_offered(self) -> bool:
        """True once every queue was offered that could be."""
        return self._offers.has_offered and not self._is_leaving

    @property
    def progress(self) -> SinkProgress:
        """The progress of the sink, once every queue was offered that could be."""
        outgoing, offers = list(self.outgoing.values()), self._offers
        stopped = {each.queue.name for each in outgoing if each.has_stopped}
        untaken = self.queue_names.sources - offers.offered - offers.failed
        withdrawn = self._pauses.withdrawn
        return SinkProgress(
            ended=frozenset(offers.failed | stopped),
            untaken=frozenset(untaken | withdrawn.keys()),
            whole=frozenset(each.queue.name for each in outgoing if self.has_target(each)),
            withdrawn=withdrawn,
            troubles=self._pauses.troubles,
        )

    def ahead_for(self, name: str) -> int | None:
        """The id of the sink's host while it takes nothing of a queue, as that is of times to come
        by its clock; None else."""
        return self._connection.remote_id if self._pauses.is_ahead(name) else None

    def word(self, name: str) -> str:
        """The word that people see of a queue on its way to this sink."""
        found = [each.life.word for each in self.outgoing.values() if each.queue.name == name]
        return self._pauses.word(name) or (found[0] if found else "waits")

    @property
    def troubles(self) -> Mapping[str, Stop]:
        """The reasons why queues cannot be read for now, by name."""
        return self._pauses.troubles

    @property
    def queue_names(self) -> QueueNames:
        return QueueNames(sources=frozenset(self._queues) | frozenset(self._shared.late))

    async def work(self) -> None:
        """Does the work beside the streams: takes back copies, compares what the sink tells of its
        files, and tries queues again that could not be read."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._turns.work, self._act)
            nursery.start_soon(self._returns.work, self._stop, self._begin_later)
            nursery.start_soon(self._lineage.work, self._pump, self._step)
            nursery.start_soon(self._pauses.work, self._try_again)
            nursery.start_soon(self._resends.run, self._start)

    def offer_late(self, name: str) -> None:
        """A queue that could not be opened at the start is there."""
        if not self.begin_anew(name, "it is open now"):
            self._offers.offer_late(name)

    def tell_unopened(self, stop: Stop) -> None:
        """A queue that was tried again and again has stopped: it cannot be opened."""
        self._offers.tell_late(stop)

    def drain(self) -> None:
        looks = TailerLooks(all_names=self._shared.settings.all_tailers)
        self.tell_tailers(looks)  # as far as its excerpts were sent
        self._is_draining = True
        self._offers.end()
        self._end_audited()

    @property
    def is_audited(self) -> bool:
        """False while the sink is to tell what it has stored."""
        return self._lineage.is_audited

    def _end_audited(self) -> None:
        """Has the sink tell what its files hold, once it has acknowledged all that was sent."""
        if all(self._connection.source(each.cid).is_settled for each in self.outgoing.values()):
            self.ask_audits()

    def ask_audits(self) -> None:
        """Has the sink tell what its files hold of all that it has acknowledged."""
        self._lineage.ask_audits()
        self._pump.wake()

    def has(self, cid: Cid) -> bool:
        """True for a queue that goes out on this connection, or did until a moment ago."""
        return cid in self.outgoing or cid in self._offers.let_go

    async def act(self, event: ev.Event) -> None:
        if isinstance(event, ev.QueueWithdrawn):
            self._turns.drop(event)  # the core knows of it no more
        elif await self._turns.takes(event):
            return
        await self._act(event)

    async def settle(self) -> None:
        await self._turns.settle()

    async def _act(self, event: ev.Event) -> None:
        match event:
            case ev.QueueWithdrawn() if event.cid in self._offers.let_go:
                self._offers.let_go.discard(event.cid)
            case _ if getattr(event, "cid", None) in self._offers.let_go:
                pass  # it came before we let go
            case ev.LineageClaimed() | ev.ProofGiven() if event.cid not in self.outgoing:
                pass  # the sink let go of it before its turn
            case ev.Connected() if not self._connection.names_queues:
                self._offers.offer(self._queues)
            case ev.QueuesNamed():
                self._offers.offer_named(event.sinks)
            case ev.QueueWithdrawn():
                self._withdrawn(event)
            case ev.LineageClaimed():
                await self._step(event.cid, partial(self._lineage.compare, claimed=event))
            case ev.ProofGiven():
                await self._step(event.cid, partial(self._lineage.search_on, given=event))
            case ev.CopyAudited():
                self._lineage.note(event)
            case ev.SinkAhead() if self.outgoing[event.cid].is_ready_to_return:
                await self._step(
                    event.cid, partial(self._returns.begin, next_index=event.next_index)
                )
            case ev.AppendExcerpts() | ev.CompareExcerpts():
                await self._step(event.cid, partial(self._returns.take, event=event))
            case ev.StreamingStarted():
                self._resends.begin(self.outgoing[event.cid], event.next_index, self._start)
            case ev.Acknowledged():
                noted = [(event, surroundings().monotonic_ns())]
                self.acknowledged(self.outgoing[event.cid], noted)
                self._pump.wake()  # the window may have been full
            case ev.LevelReached():
                each = self.outgoing[event.cid]
                each.marks.raise_level(event.level, event.index)
                each.queue.touch()
            case ev.LevelKeptBack():
                self.outgoing[event.cid].keep_back(event.level, event.why)
            case ev.AnswerOverdue():
                self._holds.miss(self.outgoing[event.cid], self._shared.note_stop)
            case ev.QueueStopped():
                each = self.outgoing[event.cid]
                if self._holds.offers_again(each, event, self._drop):
                    return
                is_over = await each.queue.hear_fence(each.marks, event)
                each.is_final = each.is_final and (event.is_final or is_over)
                self._stopped(each, event.reason, event.message, event.by_peer or not is_over)
                if event.reason is StopReason.DIVERGED:  # its lane is mute by now
                    each.marks.lower_acknowledged(NOTHING)

    def frame(self, out: bytearray, rooms: Rooms) -> int:
        return 0 if self._is_draining else self.frames.fill(out, rooms)

    def lanes_out(self) -> "list[SourceLane]":
        return [] if self._is_draining or self.frames.is_filling else self._lanes.lend()

    def lanes_in(self) -> "list[SinkLane]":
        return []

    @property
    def waited(self) -> list[WatchedWord] | None:
        return self._lanes.waited

    @property
    def sent_live(self) -> int:
        return self._lanes.sent

    def catch_up(self, only: str | None = None) -> None:
        self._lanes.catch_up(only)

    async def catch_up_in_turns(self) -> None:
        await self._lanes.catch_up_in_turns()

    def leave_lanes(self) -> None:
        self._lanes.leave()

    async def close(self) -> None:
        if self._connection.remote_id is not None and not self._connection.is_guest:
            is_known = self.has_offered and self._pump.ended_orderly
            self._shared.note_left(self.progress if is_known else None)
        self._offers.end()
        self.frames.close()
        self.words.close()
        self._lanes.close()
        for each in self.outgoing.values():
            each.close()
            each.queue.forget_session(self)
        self._shared.changed.set()

    def _withdrawn(self, event: ev.QueueWithdrawn) -> None:
        """The sink has let go of a queue; when it names it again, it is offered again."""
        each = self.outgoing.get(event.cid)
        if each is not None:
            if not each.has_stopped:  # or it would stop again
                self._offers.offered.discard(event.name)
                self._pauses.hear(event.name, event.message)
            self._drop(each)
        self._shared.changed.set()

    def _drop(self, each: Outgoing) -> None:
        del self.outgoing[each.cid]
        self._lineage.drop(each.cid)
        each.close()
        if each.cid not in self._steps:  # else its files are still used
            each.queue.forget_session(self)
            self._shared.changed.set()
        self.frames.drop(each)

    def _try_again(self, name: str) -> None:
        """A queue may go on that did not."""
        self._holds.go_on(name, self._resume)

    def _resume(self, each: Outgoing) -> None:
        """A queue goes on whose sink knows of no pause; its stream begins where it could not."""
        if not each.has_begun:
            assert each.stream_from is not None
            self._start(each, each.stream_from)
            return
        each.tailer = self.guarded(each, partial(each.tail, each.resumes_at))
        if each.tailer is not None:
            each.queue.streams.add(each)

    def sent(self, each: Outgoing, sent: ExcerptBatch | SentRun) -> None:
        """These have been framed here, or sent by the native lane."""
        self.words.touch(each.queue.name)
        self._pauses.forget(each.queue.name)
        each.count_sent(sent.index_last, sent.count, sent.payload_bytes)
        each.queue.disk.note(sent.index_last + 1)
        if not each.asks_ack:
            self.has_progressed = True
            self._pauses.hear_on(each.queue.name)

    async def _begin_later(self, each: Outgoing) -> None:
        """Another sink has given back: now this one may. It hears so when the queue is locked."""
        answer = self._connection.source(each.cid).answer
        assert answer is not None
        begin = partial(self._returns.begin, next_index=answer.next_index)
        await self._step(each.cid, begin)
        if each.back_copy is not None:
            await self._step(each.cid, self._lineage.tell_proved)

    async def _step(self, cid: Cid, step: Callable[[Outgoing], Awaitable[None]]) -> None:
        """One step of a comparison, or of a back copy."""
        each = self.outgoing[cid]
        self._steps.append(cid)
        try:
            await step(each)
        except (QueueError, OSError) as error:
            if self.outgoing.get(cid) is each:  # the sink may have let go of it meanwhile
                self._stop(each, error)
        finally:
            self._steps.remove(cid)
            if self.outgoing.get(cid) is not each and cid not in self._steps:
                each.queue.forget_session(self)
            self._shared.changed.set()

    def _start(self, each: Outgoing, next_index: int) -> None:
        if not each.life.try_move(ToSinkMove.START):  # it has stopped since its sink was asked
            return
        if each.back_copy is not None:
            each.has_returned = True
            each.queue.disk.prove(next_index)
            self._connection.source(each.cid).tell_return_taken()
        each.close()
        each.stream_from, each.has_begun = next_index, False
        each.tailer = self.guarded(each, lambda: each.queue.queue.tailer(next_index))
        if each.queue.held_from is not None:
            self._returns.look()
        self._shared.forget_stop(each.queue.name, each.marks.host_id)
        each.queue.disk.note_compared()
        if each.tailer is not None:
            self.guarded(each, partial(self._settle, each, next_index))
        each.queue.board.go_on()
        if each.tailer is not None:  # or it pauses, and the core knows of it no more
            self.frames.begin(each)
            each.queue.streams.add(each)
            source = self._connection.source(each.cid)
            each.tell_levels(source)
            self.words.begin(each)
            if next_index >= source.offer.next_index:
                self._pauses.forget(each.queue.name)  # there is nothing to be read yet
                self._pauses.hear_on(each.queue.name)
        self._shared.changed.set()

    def _settle(self, each: Outgoing, next_index: int) -> None:
        source, is_proved = self._connection.source(each.cid), self._connection.compares_lineage
        each.queue.end_watch.settle(each.marks, next_index, is_proved=is_proved)
        each.queue.late.begin()
        each.begin_marks(source, asks_ack=self._shared.asks_ack(each.queue.name))
        each.has_begun = True

    def touch(self, name: str, *, is_first: bool = False) -> None:
        """Something may have come of a queue that its sink is to hear.

        Args:
            is_first: a level is waited for that was not before.
        """
        self.words.touch(name, is_first=is_first)

    def tell_tailers(self, looks: TailerLooks, *, only_moving: bool = False) -> bool:
        """Tells this sink where named tailers stand; true where one has moved.

        Args:
            looks: for all sinks.
            only_moving: of those queues only where one has moved the last time.
        """
        return self.words.tell_tailers(self.catch_up, looks, only_moving=only_moving)

    def acknowledged(self, each: Outgoing, noted: list[tuple[ev.Acknowledged, int]]) -> None:
        """The sink has more than before, as it said, and when that came."""
        self.has_progressed = True
        self._pauses.hear_on(each.queue.name)
        excerpts = sum(event.excerpts for event, _ in noted)
        payload_bytes = sum(event.payload_bytes for event, _ in noted)
        index = noted[-1][0].index
        each.queue.touch()
        each.count_acknowledged(index, excerpts, payload_bytes)
        if each.queue.ack_log.is_wanted:
            each.queue.ack_log.note(b"".join(acknowledgement_entry(*one) for one in noted))
        if each.lane is not None:
            each.lane.add_room(excerpts, payload_bytes)
        if self._is_draining:
            self._end_audited()
        self._shared.changed.set()

    def _stopped(self, each: Outgoing, reason: StopReason, why: str, of_peer: bool = False) -> None:
        if each.has_stopped:  # by us, and now the core tells of it
            return
        is_sinks = of_peer or reason not in OWN_REASONS or not each.is_final
        host_id = each.marks.host_id if is_sinks else None
        stop = Stop(name=each.queue.name, reason=reason, message=why, host_id=host_id)
        self._lanes.once_back(each, each.close)
        self._pump.call_back()
        each.life.move(ToSinkMove.STOP, stop)
        self._pauses.end(each.queue.name)
        self._shared.note_stop(stop)

    def begin_anew(self, name: str, why: str = ANEW) -> bool:
        """A queue can go on that has stopped on this connection, or was not answered: the next one
        offers it again. False where it has not."""
        halted = {each.queue.name for each in self.outgoing.values() if each.has_halted}
        if name in halted | self._offers.failed:
            self.leave(f"queue {name!r}: {why}")
        return self._is_leaving

    async def let_go(self, name: str, why: str) -> None:
        """Sends nothing more of a queue; one that has stopped stays so."""
        for each in [each for each in self.outgoing.values() if each.queue.name == name]:
            each.life.try_move(ToSinkMove.LET_GO)
            await self._pump.have_back()  # behind the end it would send on
            while each.cid in self._steps:
                await self._shared.changed.wait()
            if self.outgoing.get(each.cid) is each and not each.has_stopped:
                self._holds.hold(each, why, self._drop)
        self._pump.look()

    def leave(self, why: str) -> None:
        """Ends the connection, for the next one to do better."""
        self._is_leaving = True
        self._pump.fail(why)

    def forget(self, queue: SourceQueue) -> None:
        """A queue that was let go of is streamed no more: what was so of it says nothing of one of
        this name that comes later."""
        self._pauses.drop(queue.name)
        self._lineage.forget(queue.name)
        if self in queue.sessions:  # its sink knows of no end of a queue, or it has stopped
            self.leave(f"queue {queue.name!r} was removed")

    def take(self, name: str) -> None:
        """A queue goes on that was let go of, or has stopped."""
        if not self.begin_anew(name, "it goes on by operator"):
            self._try_again(name)
            self._pump.look()

    def stop(self, name: str, error: QueueError, *, before_begin: OSError | None = None) -> None:
        """A queue goes no further, whatever its sink does.

        Args:
            before_begin: the error in its place, where the stream has not begun; None: the same.
        """
        self.catch_up()
        for each in list(self.outgoing.values()):
            if each.queue.name == name and each.is_going_on:
                self._end(each, error if each.has_begun else before_begin or error)
                self._pump.look()

    def guarded(self, each: Outgoing, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (QueueError, OSError) as error:
            self._end(each, error)
            return None

    def _end(self, each: Outgoing, error: QueueError | OSError) -> None:
        """Reading ends here; what was sent before is still to be acknowledged. If what keeps it
        from going on passes, it is only for now."""
        error = each.queue.cause_of(error)
        stop = Stop.of(each.queue.name, error, each.queue.path)
        if is_passing(error):
            self._lanes.once_back(each, partial(self._pause, each, stop))
            return
        told = (each.cid, stop.reason, stop.message, differing_index(error))
        self._lanes.once_back(each, partial(self._connection.tell_stopped, *told))
        self._stopped(each, stop.reason, stop.message)

    def _pause(self, each: Outgoing, stop: Stop) -> None:
        if self.outgoing.get(each.cid) is each and each.life.state is not ToSinkState.PAUSED:
            self._holds.pause(each, stop, self._drop)

    def _stop(self, each: Outgoing, error: QueueError | OSError) -> None:
        error = each.queue.cause_of(error)
        stop = Stop.of(each.queue.name, error, each.queue.path)
        if is_passing(error):
            self._holds.pause(each, stop, self._drop)
            return
        each.is_final = not isinstance(error, ReturnRefused | OtherQueue)  # those are of this sink
        self._connection.stop_queue(each.cid, stop.reason, stop.message, differing_index(error))
        self._stopped(each, stop.reason, stop.message)

    def has_target(self, each: Outgoing) -> bool:
        return each.has_target(self._connection.source(each.cid).index_acknowledged)
