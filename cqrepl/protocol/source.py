"""The source's half of one replicated queue: the SourceReplicationHandler that the sink answers
with.

    OFFERED -> answer -> ANSWERED ------------------------------> eos -> STREAMING
                    \\-> SINK_AHEAD -> (locked) -> BACK_COPY -> eos -/

The source streams only after `eos`, from the sink's next index on, which counts what was copied
back. A sink may refuse a queue without a word, so the answer has a time limit, which runs until
`eos` and is renewed by every excerpt that comes back.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from cqrepl.protocol.events import (
    Acknowledged,
    AnswerOverdue,
    CompareExcerpts,
    CopyAudited,
    LevelKeptBack,
    LevelReached,
    LineageClaimed,
    ProofGiven,
    QueueWithdrawn,
    SinkAhead,
    StopReason,
    StreamingStarted,
)
from cqrepl.protocol.framer import Framing
from cqrepl.protocol.intake import Intake
from cqrepl.protocol.messages import (
    ReplicationHandler,
    read_acknowledgement,
    read_replication_event,
    write_registration,
)
from cqrepl.protocol.messages.excerpts import read_stopped, write_proved
from cqrepl.protocol.messages.levels import LEVEL_OF, read_level, write_committed, write_wanted
from cqrepl.protocol.messages.names import PENDING, PROOF, RUN, STOPPED
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.messages.proofs import read_proof, write_identity, write_prove
from cqrepl.protocol.messages.runs import read_run
from cqrepl.protocol.messages.tailers import write_tailer
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.sendwindow import SendBudget, SendWindow, SentRun
from cqrepl.protocol.states import SOURCE_MOVES, SourceMove, SourceState, moved
from cqrepl.protocol.stoppable import Stoppable
from cqrepl.queue.format.epochs import number_of
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import Index, format_index
from cqrepl.queue.format.tailerposition import TailerPosition
from wire import Reader

UNANSWERED: Final = "no answer from the sink"


@dataclass(slots=True)
class AnswerPace:
    """The pace of a sink's answers: for how many seconds it may say nothing, when it answered last,
    and when it last had a stream begin."""

    seconds: float
    last: float = -math.inf
    began: float = -math.inf
    budget: SendBudget = field(default_factory=SendBudget)  # of all that they have sent


class SourceHandler(Stoppable):
    """Runs on the source, for one queue of one connection.

    Args:
        pace: of the answers on this connection: a sink that begins with many queues answers one
            after the other, and locks one after the other once they are proved, so the time for
            either runs anew with every one of them.
    """

    def __init__(
        self,
        csp: str,
        cid: Cid,
        offer: ReplicationHandler,
        outbox: Outbox,
        now: float,
        pace: "AnswerPace",
    ) -> None:
        super().__init__(cid, offer.queue_name, outbox)
        self.csp = csp
        self.cid_answered = cid  # the sink may answer under a cid of its own
        self.offer = offer
        self.state = SourceState.OFFERED
        self.framing = Framing(cid, has_runs=outbox.run_payload_max is not None)
        self.answer_deadline = now + pace.seconds
        self.index_sent = -1
        self.index_acknowledged = -1
        self.index_claimed = -1  # acknowledged by a peer that was not sent it, and cannot prove it
        self.answer: ReplicationHandler | None = None
        self._pace = pace
        self._intake: Intake | None = None
        self._unchecked_to: int | None = None
        self._returned_to = offer.next_index  # the sink copied back everything before this
        self._window = SendWindow(pace.budget)
        self._is_comparing = False  # what the sink says that it holds, which the shell does
        self.index_committed = -1  # the sink was told that all up to this is safe
        self._wanted: set[AckLevel] = set()  # levels that the sink was told to tell at once
        self._asked: int | None = None  # the index before which the sink is to prove what it holds
        outbox.send(write_registration(csp, cid, offer, outbox.shape))

    @property
    def deadline(self) -> float:
        if self.state is SourceState.STREAMING and not self._is_comparing:
            return math.inf
        if self.has_stopped:
            return math.inf
        if self._is_comparing:
            return math.inf if self._asked is None else self.answer_deadline
        pace = self._pace
        if self.state is SourceState.OFFERED:
            return max(self.answer_deadline, pace.last + pace.seconds)
        if self.state is SourceState.ANSWERED:
            return max(self.answer_deadline, max(pace.last, pace.began) + pace.seconds)
        return self.answer_deadline if self._awaits_sink else math.inf

    @property
    def is_streaming(self) -> bool:
        return self.state is SourceState.STREAMING

    @property
    def is_settled(self) -> bool:
        """True when nothing that was sent is still to be acknowledged."""
        return not self.is_streaming or not self.offer.acknowledgement or self._window.is_empty

    @property
    def has_room(self) -> bool:
        """False while the sink owes so many acknowledgements that nothing more is sent."""
        return not (self.offer.acknowledgement and self._window.is_full)

    @property
    def takes_more(self) -> bool:
        """True while more of the stream may be framed: it has not stopped, and there is room."""
        return self.state is not SourceState.STOPPED and self.has_room

    @property
    def room(self) -> tuple[int, int]:
        """The numbers of excerpts and payload bytes that may be sent before the sink acknowledges
        some."""
        return self._window.room if self.offer.acknowledgement else (NO_LIMIT, NO_LIMIT)

    @property
    def budget(self) -> SendBudget:
        """The budget of all queues of this connection for excerpts sent and not acknowledged."""
        return self._window.budget

    @property
    def held(self) -> int:
        """The number of excerpts that were sent and are not acknowledged."""
        return self._window.excerpts

    @property
    def _awaits_sink(self) -> bool:
        return self.state in (SourceState.OFFERED, SourceState.ANSWERED, SourceState.BACK_COPY)

    def answered(self, answer: ReplicationHandler, now: float) -> None:
        """The sink registered its answer."""
        if self.has_stopped:
            self.answer = answer  # the only one there is
            return
        if answer.next_index < 0:
            self.stop(StopReason.GAP, f"the sink asks for index {answer.next_index}")
            return
        ahead = answer.next_index > self.offer.next_index
        move = SourceMove.ANSWER_AHEAD if ahead else SourceMove.ANSWER
        self._move(move, RemoteProtocolError)
        self.answer = answer
        self._pace.last = now
        self.answer_deadline = now + self._pace.seconds
        numbers = [number_of(each.epochs or ()) for each in (self.offer, answer)]
        if numbers[1] > numbers[0]:
            why = f"the sink has epoch {numbers[1]}, {numbers[0]} was offered"
            self.stop(StopReason.FENCED, why)
            return
        if self.offer.lineage is not None:
            if answer.lineage is None:
                self.stop(StopReason.REFUSED, "the sink does not say what it holds")
                return
            index = min(answer.next_index, self.offer.next_index)
            event = LineageClaimed(
                cid=self.cid, name=self.name, index=index, lineage=answer.lineage
            )
            self._is_comparing = True
            self._outbox.tell(event)
        if ahead:
            self._outbox.tell(SinkAhead(cid=self.cid, name=self.name, next_index=answer.next_index))

    def lineage_compared(self, identity: Identity | None, now: float) -> None:
        """The sink holds what we do, up to the shorter end; of a stream that is on, only here. It
        takes our identity, if it has none and knows of that."""
        self._is_comparing = False
        self.answer_deadline = now + self._pace.seconds
        if not self.has_stopped and not self.is_streaming:  # stopped by the sink, meanwhile
            self._outbox.send(self.cid_document, write_proved())
            if identity is not None and self._outbox.has_identities:
                self._outbox.send(self.cid_document, write_identity(identity))

    def tell_return_taken(self) -> None:
        """All that the sink gave back is in our queue, or was there: the sink hears that both hold
        the same up to there."""
        if self.is_streaming and self.answer is not None and self.answer.lineage is not None:
            self._outbox.send(self.cid_document, write_proved())

    def ask_proof(self, index: int, now: float) -> None:
        """Asks the sink what it holds before an index; it has so much time for the answer."""
        if not self.has_stopped:
            self._is_comparing = True
            self._asked, self.answer_deadline = index, now + self._pace.seconds
            self._outbox.send(self.cid_document, write_prove(index))

    def ask_audit(self, index: int) -> bool:
        """Asks the sink to read what it has stored before an index from its files, and to tell the
        chain there; false for one that cannot, or where nothing streams."""
        can_tell = self.answer is not None and self.answer.lineage is not None
        if not (can_tell and self.is_streaming) or self._is_comparing:
            return False
        self._outbox.send(self.cid_document, write_prove(index))
        return True

    def _proof_given(self, index: int, lineage: Lineage) -> None:
        if self.has_stopped:
            return
        if self._is_comparing:
            if index == self._asked:
                self._asked = None
                event = ProofGiven(cid=self.cid, name=self.name, index=index, lineage=lineage)
                self._outbox.tell(event)
        elif self.is_streaming and lineage.chain:
            self._audited(index, lineage.chain)

    def _audited(self, index: int, chain: bytes) -> None:
        assert self.answer is not None
        end = max(self.answer.next_index, self.index_sent + 1)
        if not 0 < index <= end:
            self._outbox.refuse(
                f"queue {self.name!r}: proof of what comes before {index:#x},"
                f" {format_index(end)} was the end of what was sent"
            )
            return
        event = CopyAudited(cid=self.cid, name=self.name, index=Index(index), chain=chain)
        self._outbox.tell(event)

    def locked(self, next_index: int, shift: int, now: float) -> None:
        """The source queue is locked, and this is the first index that it does not have.

        A local writer may have used indexes since the offer. Each of them has to come back equal,
        before anything new: otherwise the sink would never get what was written in its way.
        """
        self._move(SourceMove.LOCKED, LocalProtocolError)
        if next_index > self.offer.next_index:
            self._unchecked_to = next_index
        self._intake = Intake(self.cid, self.name, next_index, shift)
        self.answer_deadline = now + self._pace.seconds

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if name == "idx":
            event = self.acknowledged(*read_acknowledgement(reader))
            if event is not None:
                self._outbox.tell(event)
        elif name == "re":
            self.receive_batch(*read_replication_event(reader), now)
        elif name == RUN and self._outbox.run_payload_max is not None:
            run = read_run(reader, self._outbox.run_payload_max)
            if run.batch is not None:
                self.receive_batch(run.batch, run.ns, now)
            self._outbox.broken = run.problem
        elif name == "eos":
            self._end_of_stream()
            self._pace.began = now
        elif name == PENDING:
            if (
                self.state is SourceState.OFFERED
            ):  # later the time keeps writers from being kept out
                self.answer_deadline = now + self._pace.seconds
        elif name in LEVEL_OF and self._outbox.has_levels:
            self._level_reached(LEVEL_OF[name], *read_level(reader))
        elif name == PROOF:
            self._proof_given(*read_proof(reader))
        elif name == STOPPED:
            self.stopped_by_peer(read_stopped(reader))
        else:
            return False
        return True

    def receive_batch(self, batch: ExcerptBatch, ns: int, now: float) -> None:
        """Excerpts that the sink copies back, with consecutive indexes."""
        if self.has_stopped:
            return
        self._move(SourceMove.EXCERPTS_RECEIVED, RemoteProtocolError)
        self.answer_deadline = now + self._pace.seconds
        assert self._intake is not None
        self._returned_to = max(self._returned_to, batch.index_last + 1)
        events, problem = self._intake.sort(batch, ns)
        for event in events:
            if isinstance(event, CompareExcerpts):
                if event.batch.index_last + 1 == self._unchecked_to:
                    self._unchecked_to = None
            elif self._unchecked_to is not None:
                self._stop_written_in_the_way(event.batch.index_first)
                return
            self._outbox.tell(event)
        if problem is not None:
            self.stop(StopReason.GAP, problem)

    def frame(
        self, batch: ExcerptBatch, start: int, ns: int, out: bytearray, filled: int
    ) -> tuple[ExcerptBatch | None, int]:
        """Frames of the stream; see `Connection.frame_excerpts`."""
        self._move(SourceMove.FRAMED, LocalProtocolError)
        room, _ = self.room
        assert room > 0
        if batch.count - start > room:
            batch, start = batch.part(start, start + room), 0
        count, filled = self.framing.frame(batch, start, ns, out, filled)
        if not count:
            return None, filled
        assert start + count <= batch.count
        assert filled <= len(out)
        framed = batch if count == batch.count else batch.part(start, start + count)
        self._sent(SentRun(framed.index_first, framed.lengths, framed.payload_bytes))
        return framed, filled

    def framed(self, run: SentRun) -> None:
        """A native pump has framed excerpts of the stream, in order."""
        if self.has_stopped:
            return  # by the peer, while the pump had the connection
        self._move(SourceMove.FRAMED, LocalProtocolError)
        self._sent(run)

    def _sent(self, run: SentRun) -> None:
        self.index_sent = max(self.index_sent, run.index_last)
        if self.offer.acknowledgement:
            self._window.add(run)

    def unanswered(self, *, is_over: bool) -> None:
        """The sink has not answered in time, or has not had the stream begin. Where it cannot be
        offered the queue again, the offer stands: a late answer is as good.

        Args:
            is_over: it cannot be told that the queue has ended here, and be offered it again.
        """
        is_waiting = self.state in (SourceState.OFFERED, SourceState.ANSWERED)
        if is_over and is_waiting and not self._is_comparing:
            self.answer_deadline = math.inf
            self._outbox.tell(AnswerOverdue(cid=self.cid, name=self.name))
            return
        self._has_told_stop = self._has_told_stop or not is_over
        self.stop(StopReason.NO_ANSWER, UNANSWERED)

    def tick(self, now: float) -> None:
        """The connection looks at `deadline`: what follows depends on its other queues."""

    def produce(self, room: int) -> bytes:
        return b""  # frames are made by the shell

    def closed(self, reason: str) -> None:
        """The sink has withdrawn from this queue, or the connection is over."""
        self._move_to_stopped()
        self._outbox.tell(QueueWithdrawn(cid=self.cid, name=self.name, message=reason))

    def _stop_written_in_the_way(self, index: int) -> None:
        assert self._unchecked_to is not None
        self.stop(
            StopReason.DIVERGED,
            f"a local writer wrote up to {format_index(self._unchecked_to - 1)} while the sink "
            f"was ahead, and the sink goes on with {format_index(index)}",
        )

    def _end_of_stream(self) -> None:
        if self.has_stopped:
            return
        self._move(SourceMove.END_OF_STREAM, RemoteProtocolError)
        assert self.answer is not None
        wanted = self.answer.next_index
        if self._intake is not None and self._returned_to < wanted:
            self.stop(
                StopReason.GAP,
                f"the sink has excerpts before {format_index(wanted)} and copied back only "
                f"those before {format_index(self._returned_to)}",
            )
            return
        self._outbox.tell(StreamingStarted(cid=self.cid, name=self.name, next_index=wanted))

    def acknowledged(self, index: int, ns: int) -> Acknowledged | None:
        """The sink has everything up to `index`: what is new in that; None for nothing.

        A native pump may have received it; what it sent before has to be told first (`framed`).
        """
        if self.has_stopped:
            return None
        self._move(SourceMove.ACKNOWLEDGEMENT, RemoteProtocolError)
        if index > self.index_sent:
            self.claimed(index)
            return None
        if index <= self.index_acknowledged:
            return None
        self.index_acknowledged = index
        excerpts, payload_bytes = self._window.acknowledge(index)
        return Acknowledged(
            cid=self.cid,
            name=self.name,
            index=index,
            ns=ns,
            excerpts=excerpts,
            payload_bytes=payload_bytes,
        )

    @property
    def can_prove(self) -> bool:
        """True for a sink that proves what it holds before its stream begins."""
        return self.offer.lineage is not None

    def claimed(self, index: int) -> None:
        """The sink says that it has what it was not sent. One that can prove what it holds says so
        only of what it has proved. From another one, as Java's, it is a claim, which is told once
        and changes nothing.

        Raises:
            RemoteProtocolError: the sink can prove what it holds, and has not.
        """
        sent = "nothing" if self.index_sent < 0 else f"up to {format_index(self.index_sent)}"
        why = f"queue {self.name!r}: acknowledgement of index {index:#x}, {sent} was sent"
        if self.can_prove:
            if index <= self._index_had:
                return
            raise RemoteProtocolError(why)
        if self.index_claimed < 0:
            self._outbox.refuse(why, counts=False)
        self.index_claimed = max(self.index_claimed, index)

    @property
    def index_held(self) -> int:
        """The sink has everything up to this: it has acknowledged it, or had it before."""
        return max(self.index_acknowledged, self._index_had)

    @property
    def _index_had(self) -> int:
        """The sink had everything up to this when it answered."""
        return -1 if self.answer is None else self.answer.next_index - 1

    def _level_reached(self, level: AckLevel, index: int, why: str | None) -> None:
        if self.has_stopped:
            return
        self._move(SourceMove.ACKNOWLEDGEMENT, RemoteProtocolError)
        if index > self.index_held:
            raise RemoteProtocolError(
                f"queue {self.name!r}: index {index:#x} {level.name.lower()}, which the sink has"
                " not acknowledged"
            )
        if index >= 0:
            event = LevelReached(cid=self.cid, name=self.name, level=level, index=index)
            self._outbox.tell(event)
        if why is not None:
            kept = LevelKeptBack(cid=self.cid, name=self.name, level=level, why=why)
            self._outbox.tell(kept)

    def tell_commit(self, index: int) -> None:
        """The queue is safe up to `index`: tells the sink, as far as it has it. The rest it hears
        with the next call, behind the excerpts."""
        index = min(index, max(self.index_sent, self._index_had))
        if self._outbox.has_levels and self.is_streaming and index > self.index_committed:
            self.index_committed = index
            self._outbox.send(self.cid_document, write_committed(index))

    def tell_tailer(self, position: TailerPosition) -> bool:
        """A named tailer stands there: tells the sink, if it was sent all before it. False where it
        was not told, which is to be tried again later."""
        sent = max(self.index_sent, self._index_had)
        is_ready = self._outbox.has_tailers and self.is_streaming and not self._outbox.is_crowded
        if not is_ready or position.index > sent + 1:
            return False
        self._outbox.send(self.cid_document, write_tailer(position))
        return True

    @property
    def takes_tailers(self) -> bool:
        """True while the sink takes in where named tailers stand."""
        return self._outbox.has_tailers and self.is_streaming

    @property
    def takes_levels(self) -> bool:
        """True while the sink tells levels, and takes up to where the queue is safe."""
        return self._outbox.has_levels and self.is_streaming

    def want_level(self, level: AckLevel) -> bool:
        """Has the sink tell at once what has reached a level, from now on, on this connection;
        false for one that does not tell levels, or where nothing streams."""
        can_tell = self._outbox.has_levels and self.offer.acknowledgement and self.is_streaming
        is_more = level is not AckLevel.APPENDED
        if can_tell and is_more and level not in self._wanted:
            self._wanted.add(level)
            self._outbox.send(self.cid_document, write_wanted(level))
        return can_tell

    @property
    def has_stopped(self) -> bool:
        return self.state is SourceState.STOPPED

    def _move_to_stopped(self) -> None:
        self._move(SourceMove.STOP, LocalProtocolError)
        self._window.clear()

    def _move(self, move: SourceMove, error: type[ProtocolError]) -> None:
        self.state = moved(SOURCE_MOVES, self.state, move, error, f"queue {self.name!r}")
