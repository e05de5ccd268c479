"""A source's work on one connection: offers its queues, takes back copies, streams.

Each connection has its own tailers and its own window, so a slow sink holds up no other.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from cqrepl.kernel import live
from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.link import OUT_BYTES
from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.protocol import Connection, StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.sendwindow import SentRun
from cqrepl.queue import Diverged, QueueError, Tailer
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from cqrepl.replicator.consent import ReturnRefused
from cqrepl.replicator.counters import NOTHING
from cqrepl.replicator.divergence import Compared, DivergenceSearch
from cqrepl.replicator.hostmarks import HostMarks
from cqrepl.replicator.lineage import check_lineage, first_held
from cqrepl.replicator.logs import ENTRY
from cqrepl.replicator.outgoingqueue import Outgoing
from cqrepl.replicator.returndesk import ReturnDesk
from cqrepl.replicator.sourcequeue import SourceQueue, SourceShared
from cqrepl.replicator.stops import Stop
from cqrepl.surroundings import surroundings

if TYPE_CHECKING:
    from cqrepl.kernel.live import SinkLane, SourceLane

MANY: Final = 16  # queues of one connection
ALL_SECONDS: Final = 0.05  # while many start, all of them are looked at no more often
T = TypeVar("T")
_logger = logging.getLogger(__name__)


class SourceSession:
    """A source's work on one connection."""

    def __init__(
        self, queues: Mapping[str, SourceQueue], shared: SourceShared, link: Connection, pump: Pump
    ) -> None:
        self.outgoing: dict[Cid, Outgoing] = {}
        self._queues = queues
        self.out_bytes = OUT_BYTES
        self._shared = shared
        self._connection = link
        self._pump = pump
        self._is_draining = False
        self.has_progressed = False
        self.has_lanes_only = False  # the last time that a live pump was lent the connection
        self.has_offered = False  # every queue, or it has stopped before
        self._offered: set[str] = set()  # names; not those that the sink has let go of
        self._failed: set[str] = set()  # names of queues that could not be offered
        self.withdrawn: dict[str, str] = {}  # why the sink let go, and nothing got through since
        self._started: list[Outgoing] = []  # and not looked at to the end of what they have
        self._started_at = self._looked_at = -math.inf
        self._turn = 0
        self._returns = ReturnDesk(self.outgoing, shared.returns, link, pump, shared.changed)
        self._large: Outgoing | None = None  # waits for a buffer as long as its next frame

    @property
    def polls(self) -> bool:
        return not self._is_draining and any(map(self._reads, self.outgoing.values()))

    def _reads(self, each: Outgoing) -> bool:
        """True while what comes next in a queue may be sent."""
        held, tailer = each.queue.held_from, each.tailer
        is_held = tailer is None or (held is not None and tailer.next_index >= held)
        return not is_held and self._connection.source(each.cid).has_room

    def watched(self) -> list[WatchedWord] | None:
        words = []
        for each in self.outgoing.values():
            if self._reads(each) and each.tailer is not None:
                word = None if each.batch is not None else self._guarded(each, each.tailer.watched)
                if word is None:
                    return None
                words.append(word)
        return words

    @property
    def is_settled(self) -> bool:
        return all(self._connection.source(each.cid).is_settled for each in self.outgoing.values())

    @property
    def is_caught_up(self) -> bool:
        """True when this sink has all that was in the queues at the start."""
        return len(self.outgoing) == len(self._queues) and all(
            self._has_target(each) for each in self.outgoing.values()
        )

    @property
    def has_stopped(self) -> bool:
        has_any = bool(self._offered or self._failed)
        return has_any and all(
            each.has_stopped and each.is_final for each in self.outgoing.values()
        )

    @property
    def ended_queues(self) -> Set[str]:
        """The queues that go no further on this connection, whoever has stopped them."""
        return self._failed | {
            each.queue.name for each in self.outgoing.values() if each.has_stopped
        }

    @property
    def untaken_queues(self) -> Set[str]:
        """The queues that the sink does not take, or not now."""
        untaken = (self._queues.keys() - self._offered - self._failed) | self.withdrawn.keys()
        return untaken if self.has_offered else set()

    @property
    def queue_names(self) -> QueueNames:
        return QueueNames(sources=frozenset(self._queues))

    async def work(self) -> None:
        """Begins back copies whose turn has come, and ends those that take too long."""
        while True:
            each, late = await self._returns.due()
            if late is not None:
                self._stop(each, late)
            else:
                await self._begin_later(each)
            self._pump.look()

    def drain(self) -> None:
        self._is_draining = True

    async def act(self, event: ev.Event) -> None:
        match event:
            case ev.Connected() if not self._connection.names_queues:
                self._offer(self._queues)
            case ev.QueuesNamed():
                self._offer_named(event.sinks)
            case ev.QueueWithdrawn():
                self._withdrawn(event)
            case ev.LineageClaimed():
                await self._compare_lineage(self.outgoing[event.cid], event)
            case ev.ProofGiven():
                await self._search_on(self.outgoing[event.cid], event)
            case ev.SinkAhead() if self.outgoing[event.cid].is_ready_to_return:
                await self._return(
                    event.cid, partial(self._returns.begin, next_index=event.next_index)
                )
            case ev.AppendExcerpts() | ev.CompareExcerpts():
                await self._return(event.cid, partial(self._returns.take, event=event))
            case ev.StreamingStarted():
                self._start(self.outgoing[event.cid], event.next_index)
            case ev.Acknowledged():
                self._acknowledged(
                    self.outgoing[event.cid], [(event, surroundings().monotonic_ns())]
                )
                self._pump.wake()  # the window may have been full
            case ev.QueueStopped():
                each = self.outgoing[event.cid]
                each.is_final = each.is_final and event.is_final
                if event.reason is StopReason.DIVERGED:
                    each.marks.lower_acknowledged(NOTHING)
                self._stopped(each, event.reason, event.message)

    def frame(self, out: bytearray) -> int:
        """Frames of the queues in turn, so that a busy queue does not hold up the rest."""
        if self._is_draining:
            return 0
        filled = 0
        looked_at = self._in_turn()
        for each in looked_at:
            if each.tailer is not None:
                filled = self._frame_queue(each, each.tailer, out, filled)
        self._started = [each for each in self._started if each.batch is not None]
        self._turn += 1
        return filled

    @property
    def _is_filling(self) -> bool:
        """True while one of many queues starts after the other. With each of them the writer is
        woken: were all looked at each time, the cost would grow with the square of their number."""
        is_young = trio.current_time() - self._started_at < ALL_SECONDS
        return is_young and len(self.outgoing) >= MANY

    def _in_turn(self) -> list[Outgoing]:
        if self._is_filling:
            now = trio.current_time()
            if self._large is None and now - self._looked_at < ALL_SECONDS:
                return self._started
            self._looked_at = now
        live = list(self.outgoing.values())
        large, self._large = self._large, None
        self.out_bytes = OUT_BYTES
        at = live.index(large) if large is not None else self._turn % max(len(live), 1)
        return live[at:] + live[:at]

    def lanes_out(self) -> "list[SourceLane]":
        is_held = any(each.queue.held_from is not None for each in self.outgoing.values())
        if self._is_draining or self._is_filling or is_held:
            return []
        for each in self.outgoing.values():
            if each.tailer is not None:
                if each.batch is not None:
                    each.tailer.give_back(each.batch, each.start)
                    each.batch = None
                each.lane, each.lane_count = self._lane(each, each.tailer), 0
        self.has_lanes_only = all(each.lane is not None for each in self.outgoing.values())
        return [each.lane for each in self.outgoing.values() if each.lane is not None]

    def lanes_in(self) -> "list[SinkLane]":
        return []

    def catch_up(self) -> None:
        for each in self.outgoing.values():
            if each.lane is not None and each.tailer is not None:
                self._catch_up(each, each.lane, each.tailer.next_index)

    def _catch_up(self, each: Outgoing, lane: "SourceLane", lane_first: int) -> None:
        acks, lengths = lane.take_acks(), lane.take_lengths()  # in this order: of what was sent
        source = self._connection.source(each.cid)
        if lengths:
            run = SentRun.of(lane_first + each.lane_count, lengths)
            source.framed(run)
            each.lane_count += len(run)
            self._sent(each, run)
        noted = []
        for at in range(0, len(acks), 3):
            index, ns, now_ns = acks[at : at + 3]
            event = source.acknowledged(index, ns)
            if event is not None:
                noted.append((event, now_ns))
        if noted:
            self._acknowledged(each, noted)

    def look_for_awaited(self) -> None:
        """A caller waits for an acknowledgement: it may have come, or is told when it comes."""
        for each in self.outgoing.values():
            if each.lane is not None:
                each.lane.await_index(self._awaited(each))
        self.catch_up()

    def _awaited(self, each: Outgoing) -> int:
        """The next index whose acknowledgement changes anything but numbers."""
        target, awaited = each.queue.target, each.queue.awaited
        acknowledged = self._connection.source(each.cid).index_acknowledged
        return awaited if target is None or acknowledged >= target else min(awaited, target)

    def leave_lanes(self) -> bool:
        self.catch_up()
        has_sent = False
        for each in self.outgoing.values():
            lane, each.lane = each.lane, None
            if lane is not None and each.lane_count and each.tailer is not None:
                each.tailer.pass_by(each.lane_count, lane.position, lane.position_last)
                has_sent = True
        return has_sent

    async def close(self) -> None:
        for each in self.outgoing.values():
            each.close()
            each.queue.sessions.remove(self)
        self._shared.changed.set()

    def _lane(self, each: Outgoing, tailer: Tailer) -> "SourceLane | None":
        stand = self._guarded(each, tailer.stand)
        if stand is None:
            return None
        source = self._connection.source(each.cid)
        return live.SourceLane(
            stand.data,
            (stand.position, stand.index, stand.sequence, stand.certain_end),
            source.cid_document,
            self._connection.config.settings.payload_max,
            stand.recorded,
            source.room,
            each.queue.ack_log.is_wanted,
            self._awaited(each),
        )

    def _offer_named(self, sinks: frozenset[str]) -> None:
        if not self.has_offered:
            for name in sorted(self._queues.keys() - sinks):
                _logger.info("%s: queue %r: the peer does not take it now", self._pump.label, name)
        self._offer(sorted((self._queues.keys() & sinks) - self._offered))

    def _withdrawn(self, event: ev.QueueWithdrawn) -> None:
        """The sink has let go of a queue; when it names it again, it is offered again."""
        _logger.info("%s: queue %r: withdrawn: %s", self._pump.label, event.name, event.message)
        each = self.outgoing.pop(event.cid, None)
        if each is not None:
            if not each.has_stopped:  # or it would stop again
                self._offered.discard(event.name)
                self.withdrawn[event.name] = event.message
            each.close()
            each.queue.sessions.remove(self)
            self._started = [one for one in self._started if one is not each]
            self._large = None if self._large is each else self._large
        self._shared.changed.set()

    def _offer(self, names: Iterable[str]) -> None:
        if self._is_draining or self._connection.is_guest:
            return  # the end was announced while this peer was being let in; or it is no sink
        for each in [self._queues[name] for name in names]:
            try:
                assert self._connection.remote_id is not None
                marks = each.marks_of(self._connection.remote_id)
                next_index = self._offered_end(each, marks)
                source_id = each.queue.layout.source_id
                lineage = self._held(each)
            except (QueueError, OSError) as error:
                self._shared.note_stop(each.stop_for(error))
                self._failed.add(each.name)
                continue
            cid = self._connection.offer_queue(
                each.name,
                next_index,
                acknowledgement=self._shared.asks_ack,
                source_id=source_id,
                shape=each.shape,
                lineage=lineage,
            )
            self._offered.add(each.name)
            self.outgoing[cid] = Outgoing(each, marks, cid)
            each.sessions.append(self)
        self.has_offered = True
        self._shared.changed.set()

    def _offered_end(self, queue: SourceQueue, marks: HostMarks) -> Index:
        """The end; or how far it is proved to be as it was appended, for a host that can give the
        rest back: it is compared then, and mended."""
        end, start = queue.queue.next_index(), queue.disk.unproved_from
        can_prove = self._connection.compares_lineage and self._returns.takes_from(marks)
        return end if start is None or not can_prove else min(start, end)

    def _held(self, queue: SourceQueue) -> Lineage | None:
        """What an offer says of what it holds; nothing to a peer that does not compare."""
        if not self._connection.compares_lineage:
            return None
        return first_held(queue.chains, surroundings().place_of(queue.path))

    def _frame_queue(self, each: Outgoing, tailer: Tailer, out: bytearray, filled: int) -> int:
        """Frames of one queue behind `filled`, until the buffer is full or there are no more."""
        source = self._connection.source(each.cid)
        payload_max = self._connection.config.settings.payload_max
        look = partial(each.next_batch, tailer, OUT_BYTES, payload_max)
        while source.has_room and not source.has_stopped:
            if each.batch is None:
                if len(out) - filled < OUT_BYTES // 4 and filled:
                    break  # what is left is too little to be worth a look
                each.batch = self._guarded(each, look)
                each.start = 0
                if each.batch is None:
                    break
            batch, start = each.batch, each.start
            framed, end = self._connection.frame_excerpts(
                each.cid, batch, start, surroundings().monotonic_ns(), out, filled
            )
            if framed is None:
                size = self._connection.frame_size(each.cid, batch.lengths[start])
                if (
                    size > OUT_BYTES and self._large is None
                ):  # it gets a buffer of its own, and first
                    self._large, self.out_bytes = each, size
                break
            filled = end
            each.start += len(framed)
            if each.start == len(batch):
                each.batch = None
            self._sent(each, framed)
        return filled

    def _sent(self, each: Outgoing, sent: ExcerptBatch | SentRun) -> None:
        """These have been framed here, or sent by the native lane."""
        counters = each.queue.counters
        counters.count_sent(each.marks, sent.index_last, len(sent), sent.payload_bytes)
        each.queue.disk.note()
        self.has_progressed = self.has_progressed or not self._shared.asks_ack

    async def _compare_lineage(self, each: Outgoing, claimed: ev.LineageClaimed) -> None:
        """Goes on only with a sink that holds what this queue does, up to the shorter end."""
        shift = each.queue.queue.layout.roll_cycle.shift
        chains, index, lineage = each.queue.chains, claimed.index, claimed.lineage
        source = self._connection.source(each.cid)
        assert source.answer is not None
        next_index = source.answer.next_index
        try:
            who = f"host {each.marks.host_id}"
            await in_thread(partial(check_lineage, chains, index, lineage, shift, who))
            # a sink that hears that it is proved locks its queue: not where that ends here
            if next_index > source.offer.next_index:
                self._returns.check(each, next_index)
                if not self._returns.gets_turn(each):
                    return
            self._connection.lineage_compared(each.cid)
        except Diverged:
            compared = Compared(
                end=Index(index),
                theirs=lineage,
                own_next=Index(source.offer.next_index),
                their_next=Index(next_index),
                who=who,
            )
            each.search = DivergenceSearch(chains, compared, shift)
            await self._ask_on(each, each.search.begin)
        except (QueueError, OSError) as error:
            self._stop(each, error)

    async def _begin_later(self, each: Outgoing) -> None:
        """Another sink has given back: now this one may. It hears so when the queue is locked."""
        answer = self._connection.source(each.cid).answer
        assert answer is not None
        begin = partial(self._returns.begin, next_index=answer.next_index)
        await self._return(each.cid, begin)
        if each.back_copy is not None:
            self._connection.lineage_compared(each.cid)

    async def _return(self, cid: Cid, step: Callable[[Outgoing], Awaitable[None]]) -> None:
        """One step of a back copy."""
        each = self.outgoing[cid]
        try:
            await step(each)
        except (QueueError, OSError) as error:
            self._stop(each, error)

    async def _search_on(self, each: Outgoing, given: ev.ProofGiven) -> None:
        """The sink has answered: on to the next place."""
        if each.search is not None and not each.has_stopped:
            await self._ask_on(each, partial(each.search.take, given.lineage))

    async def _ask_on(self, each: Outgoing, step: Callable[[], Index | Diverged]) -> None:
        try:
            place = await in_thread(step)
        except (QueueError, OSError) as error:
            self._stop(each, error)
            return
        if isinstance(place, Diverged):
            self._stop(each, place)
        elif not self._connection.has_stopped(each.cid):
            self._connection.ask_proof(each.cid, place)

    def _start(self, each: Outgoing, next_index: int) -> None:
        if each.back_copy is not None:
            each.queue.disk.prove(next_index)
        each.close()
        each.stream_from = next_index
        each.tailer = self._guarded(each, lambda: each.queue.queue.tailer(next_index))
        if each.queue.held_from is not None:
            self._returns.look()
        self._started.append(each)
        self._started_at = trio.current_time()
        if each.tailer is not None and next_index != NEXT_OF_EMPTY and self._shared.asks_ack:
            # the sink has all before it, though an acknowledgement may have been lost on its way
            last = self._guarded(
                each, lambda: each.queue.queue.last_index_before(Index(next_index))
            )
            if last is not None:
                each.queue.counters.mark_acknowledged(each.marks, last)
        self._shared.changed.set()

    def _acknowledged(self, each: Outgoing, noted: list[tuple[ev.Acknowledged, int]]) -> None:
        """The sink has more than before, as it said, and when that came."""
        self.has_progressed = True
        self.withdrawn.pop(each.queue.name, None)
        excerpts = sum(event.excerpts for event, _ in noted)
        payload_bytes = sum(event.payload_bytes for event, _ in noted)
        index = noted[-1][0].index
        each.queue.counters.count_acknowledged(each.marks, index, excerpts, payload_bytes)
        each.queue.disk.prove(index + 1)
        if each.queue.ack_log.is_wanted:
            each.queue.ack_log.note(b"".join(_entry(*one) for one in noted))
        if each.lane is not None:
            each.lane.add_room(excerpts, payload_bytes)
        self._shared.changed.set()

    def _stopped(self, each: Outgoing, reason: StopReason, message: str) -> None:
        if each.has_stopped:  # by us, and now the core tells of it
            return
        each.close()
        self._pump.call_back()
        each.has_stopped = True
        self._shared.note_stop(Stop(name=each.queue.name, reason=reason, message=message))

    def stop(self, name: str, error: QueueError) -> None:
        """A queue goes no further, whatever its sink does."""
        for each in self.outgoing.values():
            if each.queue.name == name and each.is_going_on:
                self._end(each, error)
                self._pump.look()

    def _guarded(self, each: Outgoing, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (QueueError, OSError) as error:
            self._end(each, error)
            return None

    def _end(self, each: Outgoing, error: QueueError | OSError) -> None:
        """Reading ends here; what was sent before is still to be acknowledged."""
        stop = each.queue.stop_for(error)
        self._connection.tell_stopped(each.cid, stop.reason, stop.message)
        self._stopped(each, stop.reason, stop.message)

    def _stop(self, each: Outgoing, error: QueueError | OSError) -> None:
        each.is_final = not isinstance(error, ReturnRefused)  # that one is of this sink only
        stop = each.queue.stop_for(error)
        self._connection.stop_queue(each.cid, stop.reason, stop.message)
        self._stopped(each, stop.reason, stop.message)

    def _has_target(self, each: Outgoing) -> bool:
        target = each.queue.target
        if each.stream_from is None:
            return False
        acknowledged = self._connection.source(each.cid).index_acknowledged
        return target is None or each.stream_from > target or acknowledged >= target


def _entry(event: ev.Acknowledged, now_ns: int) -> bytes:
    """The entry of an acknowledgement that came at this time."""
    return ENTRY.pack(event.index, event.ns, now_ns, event.excerpts, event.payload_bytes)
