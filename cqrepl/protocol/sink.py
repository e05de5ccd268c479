"""The sink's half of one replicated queue: the SinkReplicationHandler that the source registered
here.

    REGISTERED -> (our position is known) answer -> ANSWERED -> BACK_COPY -> eos -> RECEIVING ->
    acknowledgements

The answer, a SourceReplicationHandler under the same csp and cid, goes out before anything else:
without it the source has no handler for the cid. Where the source compares what both sides hold,
nothing goes back before it has said `proved`. An acknowledgement says that everything up to its
index is in the queue; the shell decides when that is so and calls `stored`.
"""

import math
from collections.abc import Mapping

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from cqrepl.protocol.events import (
    AppendExcerpts,
    BackCopyWanted,
    CommitMoved,
    IdentityTold,
    LevelWanted,
    LineageProved,
    ProofAsked,
    QueueOffered,
    QueueWithdrawn,
    ReturnTaken,
    StopReason,
    TailerMoved,
)
from cqrepl.protocol.framer import Framing
from cqrepl.protocol.intake import Intake
from cqrepl.protocol.messages import (
    SOURCE_HANDLER,
    QueueShape,
    ReplicationHandler,
    read_acknowledgement,
    read_replication_event,
    write_acknowledgement,
    write_end_of_stream,
    write_registration,
)
from cqrepl.protocol.messages.excerpts import read_stopped, write_pending
from cqrepl.protocol.messages.levels import LEVEL_OF, read_wanted, write_kept_back, write_level
from cqrepl.protocol.messages.names import (
    COMMITTED,
    IDENTITY,
    LEVEL,
    PROVE,
    PROVED,
    RUN,
    STOPPED,
    TAILER,
)
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.protocol.messages.proofs import read_identity, write_proof
from cqrepl.protocol.messages.runs import read_run
from cqrepl.protocol.messages.tailers import read_tailer
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.states import SINK_MOVES, SinkMove, SinkState, moved
from cqrepl.protocol.stoppable import Stoppable
from cqrepl.queue.format.epochs import History
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import Index, format_index
from cqrepl.queue.format.tailerposition import TailerPosition
from wire import Reader


class SinkHandler(Stoppable):
    """Runs on the sink, for one queue of one connection."""

    def __init__(self, csp: str, cid: Cid, offer: ReplicationHandler, outbox: Outbox) -> None:
        super().__init__(cid, offer.queue_name, outbox)
        self.csp = csp
        self.offer = offer
        self.state = SinkState.REGISTERED
        self.deadline = math.inf
        self.framing = Framing(cid, has_runs=outbox.run_payload_max is not None)
        self._intake: Intake | None = None
        self._acknowledge: tuple[int, int] | None = None  # held back while the outbox is crowded
        self._is_held = False  # and the outbox knows it
        self._is_proved = False
        self._returned_to: int | None = None  # gave back up to here; None: nothing, or it is told
        self.acknowledged = -1  # up to here, or it was here before the stream
        self.levels_told = dict.fromkeys(AckLevel, -1)  # up to which index
        self._kept_back = dict.fromkeys(LEVEL_OF.values(), "")  # why, as the source was told
        self._levels_due = dict.fromkeys(LEVEL_OF.values(), -1)
        outbox.tell(QueueOffered(cid=cid, name=self.name, offer=offer))

    @property
    def is_offered(self) -> bool:
        return self.state is SinkState.REGISTERED

    @property
    def is_receiving(self) -> bool:
        return self.state is SinkState.RECEIVING

    @property
    def has_lineage(self) -> bool:
        """True when the source compares what both sides hold: an answer has to say it."""
        return self._outbox.has_lineage and self.offer.lineage is not None

    def tell_pending(self) -> None:
        """The answer takes its time."""
        if self._outbox.has_lineage and self.is_offered:
            self._outbox.send(self.cid_document, write_pending())

    def answer(
        self,
        next_index: int,
        shift: int,
        shape: QueueShape | None,
        lineage: Lineage | None,
        epochs: History = (),
    ) -> None:
        """Our queue's position: registers the source's handler. Begins the back copy, but where the
        source compares first."""
        self._move(SinkMove.ANSWERED, LocalProtocolError)
        self._intake = Intake(self.cid, self.name, next_index, shift)
        self.acknowledged = next_index - 1
        handler = ReplicationHandler(
            kind=SOURCE_HANDLER,
            queue_name=self.name,
            acknowledgement=self.offer.acknowledgement,
            next_index=next_index,
            source_id=self.offer.source_id,
            shape=shape,
            lineage=lineage,
            epochs=None if shape is None else self._outbox.epochs_told(epochs),
        )
        self._outbox.send(write_registration(self.csp, self.cid, handler, self._outbox.shape))
        if not self.has_lineage:
            self.begin_back_copy()

    def begin_back_copy(self) -> None:
        """No other writer has our queue: what the source lacks may go back."""
        self._move(SinkMove.BACK_COPY_BEGUN, LocalProtocolError)
        assert self._intake is not None
        index_first = self.offer.next_index
        if self._intake.next_index > index_first:
            self._returned_to = self._intake.next_index
            self._outbox.tell(BackCopyWanted(cid=self.cid, name=self.name, index_first=index_first))
        else:
            self.end_back_copy()

    def frame(
        self, batch: ExcerptBatch, start: int, ns: int, out: bytearray, filled: int
    ) -> tuple[ExcerptBatch | None, int]:
        """Frames of the back copy; see `Connection.frame_excerpts`."""
        self._move(SinkMove.FRAMED, LocalProtocolError)
        count, filled = self.framing.frame(batch, start, ns, out, filled)
        return (batch.part(start, start + count) if count else None), filled

    def end_back_copy(self) -> None:
        """Everything the source lacked was framed and handed over: say `eos`."""
        self._move(SinkMove.END_OF_STREAM_SENT, LocalProtocolError)
        self._outbox.send(self.cid_document, write_end_of_stream())
        self._tell_levels()  # what was here before

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if name == "re":
            self.receive_batch(*read_replication_event(reader), now)
        elif name == RUN and self._outbox.run_payload_max is not None:
            run = read_run(reader, self._outbox.run_payload_max)
            if run.batch is not None:
                self.receive_batch(run.batch, run.ns, now)
            self._outbox.broken = run.problem
        elif name == PROVED:
            self._proved()
        elif name == IDENTITY:
            self._identity_told(read_identity(reader))
        elif name == LEVEL and self._outbox.has_levels:
            self._level_wanted(read_wanted(reader))
        elif name == COMMITTED and self._outbox.has_levels:
            self._committed(read_acknowledgement(reader)[0])
        elif name == TAILER and self._outbox.has_tailers:
            self._tailer_moved(read_tailer(reader))
        elif name == PROVE:
            self._asked(reader.read_int())
        elif name == STOPPED:
            self.stopped_by_peer(read_stopped(reader))
        else:
            return False
        return True

    def give_proof(self, index: int, held: Lineage) -> None:
        """Tells the source what we hold before an index that it has asked for."""
        if self._can_prove:
            self._outbox.send(self.cid_document, write_proof(index, held))

    def tell_audited(self, index: int, chain: bytes) -> None:
        """Tells the source that the sink has read what came from its files once more, up to an
        index, and the chain there."""
        if self.state is SinkState.RECEIVING and self.has_lineage:
            held = Lineage(first_cycle=-1, chain=chain)
            self._outbox.send(self.cid_document, write_proof(index, held))

    @property
    def tells_levels(self) -> bool:
        """True while the source takes word of what is synced and applied."""
        is_asked = self.offer.acknowledgement and self._outbox.has_levels
        return is_asked and self.state is SinkState.RECEIVING

    def tell_level(self, level: AckLevel, index: int) -> None:
        """Everything up to `index` has reached a level here. What was not acknowledged of it is
        said behind its acknowledgement."""
        self._levels_due[level] = max(index, self._levels_due[level])
        self._tell_levels()

    def keep_back(self, level: AckLevel, why: str) -> bool:
        """Tells the source why a level is true of no more here, if that has changed. `why` is ""
        when there is no reason any more. True when the source was told."""
        if not self.tells_levels or why == self._kept_back[level]:
            return False
        self._kept_back[level] = why
        document = write_kept_back(level, self.levels_told[level], why)
        self._outbox.send(self.cid_document, document)
        return True

    def told_live(self, acknowledged: int, levels: Mapping[AckLevel, int]) -> None:
        """A live pump has said so much in its place."""
        self.acknowledged = max(acknowledged, self.acknowledged)
        for level, index in levels.items():
            self.levels_told[level] = max(index, self.levels_told[level])

    def _tell_levels(self) -> None:
        if not self.tells_levels:
            return
        for level, due in self._levels_due.items():
            index = min(due, self.acknowledged)
            if index > self.levels_told[level]:
                self.levels_told[level] = index
                self._outbox.send(self.cid_document, write_level(level, index))

    def _level_wanted(self, level: AckLevel | None) -> None:
        if level is not None and not self.has_stopped:
            self._outbox.tell(LevelWanted(cid=self.cid, name=self.name, level=level))

    def _committed(self, index: int) -> None:
        if self.state is not SinkState.RECEIVING:
            return
        assert self._intake is not None
        if index >= self._intake.next_index:
            end = format_index(Index(self._intake.next_index))
            self._outbox.refuse(
                f"queue {self.name!r}: index {index:#x} is safe, {end} is the next one here"
            )
        elif index >= 0:
            self._outbox.tell(CommitMoved(cid=self.cid, name=self.name, index=index))

    def _tailer_moved(self, position: TailerPosition | None) -> None:
        if self.state is not SinkState.RECEIVING:
            return
        assert self._intake is not None
        if position is None:
            self._outbox.refuse(f"queue {self.name!r}: a position that no named tailer can have")
        elif position.index > self._intake.next_index:
            end = format_index(Index(self._intake.next_index))
            self._outbox.refuse(
                f"queue {self.name!r}: a named tailer at {position.index:#x}, {end} is the next"
                " index here"
            )
        else:
            self._outbox.tell(TailerMoved(cid=self.cid, name=self.name, position=position))

    @property
    def _can_prove(self) -> bool:
        return self._is_compared or (self.state is SinkState.RECEIVING and self.has_lineage)

    @property
    def _is_compared(self) -> bool:
        """True while the source has not said what came of it."""
        return self.state is SinkState.ANSWERED and self.has_lineage and not self._is_proved

    def _asked(self, index: int) -> None:
        if self._can_prove:
            self._outbox.tell(ProofAsked(cid=self.cid, name=self.name, index=index))

    def _proved(self) -> None:
        if self._is_compared:
            self._is_proved = True
            assert self._intake is not None
            index = min(self._intake.next_index, self.offer.next_index)
            self._outbox.tell(LineageProved(cid=self.cid, name=self.name, index=index))
        elif self.state is SinkState.RECEIVING:
            self._return_taken()

    def _return_taken(self) -> None:
        """The source holds all that it was given back: it says so, or goes on behind that."""
        index, self._returned_to = self._returned_to, None
        if index is not None:
            self._outbox.tell(ReturnTaken(cid=self.cid, name=self.name, index=index))

    def _identity_told(self, identity: Identity) -> None:
        """Only what is proved to be a copy takes an identity."""
        if self._is_proved and not self.has_stopped:
            self._outbox.tell(IdentityTold(cid=self.cid, name=self.name, identity=identity))

    def receive_batch(self, batch: ExcerptBatch, ns: int, now: float) -> None:
        """Excerpts from the source, with consecutive indexes."""
        if self.has_stopped:
            return
        self._move(SinkMove.EXCERPTS_RECEIVED, RemoteProtocolError)
        assert self._intake is not None
        events, problem = self._intake.sort(batch, ns)
        if any(isinstance(event, AppendExcerpts) for event in events):
            self._return_taken()
        for event in events:
            self._outbox.tell(event)
        if problem is not None:
            self.stop(StopReason.GAP, problem)

    def took(self, next_index: int) -> None:
        """A live pump has received, stored and acknowledged everything before this index."""
        self._move(SinkMove.EXCERPTS_RECEIVED, LocalProtocolError)
        assert self._intake is not None
        assert next_index >= self._intake.next_index
        self._acknowledge = None  # one that was held back is overtaken
        self._intake.next_index = Index(next_index)

    def stored(self, index_last: int, ns: int) -> None:
        """Everything up to `index_last` is in the queue: acknowledge it when the source asked for
        that."""
        self._move(SinkMove.STORED, LocalProtocolError)
        if self.offer.acknowledgement:
            self._acknowledge = (index_last, ns)
            if not self._outbox.is_crowded:
                self.flush()
            elif not self._is_held:
                self._is_held = True
                self._outbox.held.append(self)

    def flush(self) -> None:
        """Writes an acknowledgement that was held back."""
        self._is_held = False
        if self._acknowledge is not None:
            self._outbox.send(self.cid_document, write_acknowledgement(*self._acknowledge))
            self.acknowledged = max(self._acknowledge[0], self.acknowledged)
            self._acknowledge = None
            self._tell_levels()

    def tick(self, now: float) -> None:
        """Nothing is due: the source watches the time of an answer."""

    def produce(self, room: int) -> bytes:
        return b""  # frames of a back copy are made by the shell

    def closed(self, reason: str) -> None:
        """The source has withdrawn this queue, or the connection is over."""
        self._move_to_stopped()
        self._acknowledge = None  # nothing goes out behind the end
        self._outbox.tell(QueueWithdrawn(cid=self.cid, name=self.name, message=reason))

    @property
    def has_stopped(self) -> bool:
        return self.state is SinkState.STOPPED

    def _move_to_stopped(self) -> None:
        self._move(SinkMove.STOP, LocalProtocolError)

    def _move(self, move: SinkMove, error: type[ProtocolError]) -> None:
        self.state = moved(SINK_MOVES, self.state, move, error, f"queue {self.name!r}")
