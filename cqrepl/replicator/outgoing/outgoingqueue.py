"""One queue of a source on one connection: where its stream stands, or its back copy.

Theory of operation. A mark of a host needs evidence. A sink that compares has proved, when its
stream begins, that it holds what comes before. One that cannot, as Java's, only says so. Its mark
moves with what it acknowledges where it follows on from what is known of it:

    it wants all there is                nothing comes before the first excerpt that it is sent
    it goes on where its mark stands     it has acknowledged what comes before; or was sent that, in
                                         order, and the word of it was lost with the connection
    it gave back what was lost here      which is taken from such a host only where an operator
                                         has named it (`consent`)

Else it *claims* what comes before. A wait is answered by it for an index that it was sent on this
connection and has acknowledged, and for no other one. No mark moves: not those of the host, not
the queue's, which readers and `gc` go by.
"""

import logging
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from cqrepl.kernel.board import AckLevel, MarkRow
from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.lanemoves import SOURCE_LANES
from cqrepl.net.tokenbucket import Rooms
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import said_by_peer
from cqrepl.protocol.queuelife import ToSinkLife, ToSinkState
from cqrepl.protocol.source import SourceHandler
from cqrepl.queue import Tailer
from cqrepl.queue.files.mapping import RECORD_LOCK_GUARD
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, format_index
from cqrepl.queue.format.tailerposition import TailerPosition
from cqrepl.queue.read.tailer import Stand
from cqrepl.replicator.agreement.divergence import DivergenceSearch
from cqrepl.replicator.marks.counters import NOTHING
from cqrepl.replicator.marks.hostmarks import HostMarks
from cqrepl.replicator.outgoing.backcopy import BackCopyTarget
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.outgoing.toldtailers import TailerLooks, ToldTailers
from cqrepl.replicator.queuestate.stops import Stop

if TYPE_CHECKING:
    from cqrepl.kernel.live import SourceLane


AWAITED_SECONDS: Final = 10.0  # to the next listing for a file that no word has told of
_logger: Final = logging.getLogger(__name__)


class KeptLane:
    """A lane of a queue, for one live pump after the other: it costs as much to make as hundreds of
    excerpts to send.

    Args:
        stand: where it was made; the queue's tailer has stood there.
    """

    def __init__(self, lane: "SourceLane", stand: Stand) -> None:
        self.lane = lane
        self.mapped = stand.mapped
        _, _, slots, _ = stand.recorded
        self._knows_pages = slots is not None  # else it looks for none

    def suits(self, tailer: Tailer) -> bool:
        """True when a live pump may go on with it: the tailer stands where the last one stopped, in
        the same file, mapped in the same way."""
        return self._knows_pages and tailer.is_at(self.mapped, self.lane.position)

    def let_go(self) -> None:
        """No live pump has it, and none gets it any more."""
        with RECORD_LOCK_GUARD:  # a mapping has a descriptor of the file, and may go with this
            self.lane.let_go()
        SOURCE_LANES.check([self.lane])


class _Rest(NamedTuple):
    """Nothing follows at an index of a tailer before a word has changed; that it may by something
    else is looked at from `until` on, by trio's clock."""

    word: WatchedWord
    until: float
    tailer: Tailer
    next_index: int

    def holds(self, tailer: Tailer | None, now: float) -> bool:
        """True while that is so."""
        if now >= self.until or self.word.has_changed:
            return False
        return tailer is self.tailer and self.tailer.next_index == self.next_index


class Outgoing:
    """One queue on one connection."""

    def __init__(self, source_queue: SourceQueue, marks: HostMarks, cid: Cid) -> None:
        self.queue = source_queue
        self.marks = marks
        self.cid = cid
        self.tailer: Tailer | None = None
        self.batch: ExcerptBatch | None = None
        self.start = 0
        self.has_much = False  # more than could be sent when it was looked at last
        self.lane: SourceLane | None = None  # a live pump reads on from where the tailer stands
        self.kept: KeptLane | None = None  # that lane, or that of the last one
        self.lane_count = 0  # excerpts that it is known to have sent
        self.stream_from: int | None = None
        self.has_begun = False  # all is done that comes with the beginning of its stream
        self.resumes_at = NEXT_OF_EMPTY  # where a stream that pauses goes on
        self.back_copy: BackCopyTarget | None = None
        self.back_copy_until = math.inf  # by trio's clock
        self.awaits_turn = False  # another sink gives back to the same queue
        self.has_returned = False  # the sink has given back what is before its stream
        self.claim: MarkRow | None = None  # raised in place of the mark, without evidence
        self._claimed = NOTHING  # the last index that the sink claims, as its stream begins
        self.source: SourceHandler | None = None  # the core's half, once its stream has begun
        self.asks_ack = True  # its sink is to acknowledge
        self.search: DivergenceSearch | None = None  # for where the sink's copy begins to differ
        self._withheld: int | None = None  # no mark is to be behind it, once its lane is back
        self.is_withheld = False  # what it acknowledges proves nothing of what is before
        self.audited = NEXT_OF_EMPTY  # what the sink's files hold before this is what was sent
        self.audit_asked = NEXT_OF_EMPTY  # the index before which the sink was asked last
        self.audit_until = -math.inf  # by trio's clock: so long it is waited for
        self._tailers = ToldTailers()
        self._rests: _Rest | None = None
        self._awaits: _Rest | None = None  # the same for the file of what follows
        self.kept_back: dict[AckLevel, str] = {}  # why the sink says no more of a level
        self.life: ToSinkLife[Stop] = ToSinkLife()
        self.is_final = True  # a stop, if there is one: another sink would not do better

    @property
    def shift(self) -> int:
        """Number of bits of an index that hold the sequence."""
        return self.queue.queue.layout.roll_cycle.shift

    @property
    def has_more(self) -> bool:
        """True when there was more to send than was sent, when it was looked at last."""
        return self.batch is not None or self.has_much

    def room(self, rooms: Rooms) -> int:
        """The number of its bytes that may go out: it is not looked at while that is 0."""
        return rooms.much if self.has_much else rooms.live

    def has_target(self, acknowledged: int) -> bool:
        """True when its sink has all that was in the queue at the start."""
        target = self.queue.target
        if self.stream_from is None or self.search is not None:
            return False
        if self.claim is not None:
            return target is None  # of what comes before its stream nothing is known
        return target is None or self.stream_from > target or acknowledged >= target

    @property
    def has_stopped(self) -> bool:
        """True where it goes no further on this connection."""
        return self.life.state is ToSinkState.STOPPED

    @property
    def has_halted(self) -> bool:
        """True where it has stopped, or its sink owes the answer: a new offer may do better."""
        return self.has_stopped or self.life.state is ToSinkState.OVERDUE

    @property
    def is_over(self) -> bool:
        """True where another sink would not do better."""
        return self.has_stopped and self.is_final

    @property
    def is_going_on(self) -> bool:
        """False once the sink is known to hold something else, or not to go on otherwise."""
        return not self.has_stopped and self.search is None

    @property
    def is_audited(self) -> bool:
        """False while the sink is to tell what it has stored, and has some time left for it."""
        is_over = self.has_stopped or trio.current_time() >= self.audit_until
        return is_over or self.audited >= self.audit_asked

    @property
    def is_ready_to_return(self) -> bool:
        """True for a sink that is ahead, and that neither differs nor waits for another one."""
        return self.is_going_on and not self.awaits_turn

    def take_turn(self) -> bool:
        """One sink at a time gives back to a queue; false while that is another one."""
        if self.queue.returning is None:
            self.queue.returning = self
        self.awaits_turn = self.queue.returning is not self
        return not self.awaits_turn

    def rest(self, tailer: Tailer, until: float) -> None:
        """It was just found to have nothing: there is no need to look at it before the word has
        changed that tells of what follows.

        Args:
            tailer: this queue's.
            until: by trio's clock; then it is looked at all the same.

        Raises:
            QueueError: it cannot be read.
        """
        if self.queue.held_from is None:  # else it is for another reason
            word = tailer.watched()
            self._rests = None if word is None else _Rest(word, until, tailer, tailer.next_index)

    def rests(self, now: float) -> WatchedWord | None:
        """The word that will tell, while nothing can have come since it was found to have
        nothing."""
        rest = self._rests
        return rest.word if rest is not None and rest.holds(self.tailer, now) else None

    def awaited_file(self, tailer: Tailer) -> WatchedWord | None:
        """The word that tells of the store file which the next excerpt will be in; None where that
        is there. While it stays what it is the directory is not listed again for some time: a pump
        that comes back for one queue would have those of all others listed.

        Args:
            tailer: this queue's.

        Raises:
            QueueError: it cannot be read.
        """
        now, awaits = trio.current_time(), self._awaits
        if awaits is not None and awaits.holds(tailer, now):
            return awaits.word
        self._awaits = None
        word = tailer.awaited_file()
        if word is not None:
            self._awaits = _Rest(word, now + AWAITED_SECONDS, tailer, tailer.next_index)
        return word

    def tail(self, index: int) -> Tailer:
        """A tailer that stands at an index.

        Raises:
            QueueError: the queue cannot be read there.
        """
        return self.queue.queue.tailer(index)

    def next_batch(self, tailer: Tailer, bytes_max: int, payload_max: int) -> ExcerptBatch | None:
        """The next batch, up to where the queue is held back; None when there is nothing now.

        Args:
            tailer: this queue's.
            bytes_max: most bytes of a batch.
            payload_max: most bytes of an excerpt.

        Raises:
            QueueError: it cannot be read.
        """
        self._rests = self._awaits = None  # before a file may be mapped anew: a word holds it
        held = self.queue.held_from
        if held is not None and tailer.next_index >= held:
            return None
        batch = tailer.next_batch(bytes_max=bytes_max, payload_max=payload_max)
        if self.kept is not None and self.kept.mapped is not tailer.mapped:
            self.drop_lane()  # else it would keep the file, or how it was mapped, for nothing
        if batch is None or held is None or batch.index_last < held:
            return batch
        count = max(0, held - batch.index_first)
        tailer.give_back(batch, count)
        return batch.part(0, count) if count else None

    def tell_levels(self, source: SourceHandler) -> bool:
        """Has the sink tell at once what reaches a level that anything waits for, and tells it up
        to where the queue's policy calls it safe; true while it was sent more than that, or than is
        known to be on its disk. What it has said of that is kept.

        Args:
            source: the core's half of the queue.
        """
        for level in self.queue.board.wanted:
            source.want_level(level)
        source.tell_commit(self._committed())
        if self.queue.leading.given is not None:
            self.queue.counters.mark_safe()
        if self.marks.keep_levels():
            self.queue.touch()  # more may be safe, for other sinks too
        told = source.index_committed
        if source.offer.acknowledgement:
            told = min(told, self.marks.synced)
        return source.takes_levels and told < source.index_sent

    def look_at_tailers(self, looks: TailerLooks) -> list[TailerPosition] | None:
        """The positions of named tailers; None where the sink may have nothing to hear."""
        found = looks.of(self.queue.name, self.queue.queue)
        return found if found or self._tailers.has_due else None

    def note_tailers(self, source: SourceHandler, found: list[TailerPosition]) -> bool:
        """They stand there now; true where the sink does not know it.

        Args:
            source: the core's half of the queue.
            found: of `look_at_tailers`.
        """
        return source.takes_tailers and self._tailers.note(found)

    def tell_tailers(self, source: SourceHandler) -> bool:
        """Tells the sink what was found, up to what it was sent; true where that is anything.

        Args:
            source: the core's half of the queue.
        """
        return self._tailers.tell(source)

    def _committed(self) -> int:
        if self.queue.copy is not None:  # its first source says what is safe
            return self.queue.queue.acknowledged_index
        return self.queue.leading.safe_index()

    def keep_back(self, level: AckLevel, why: str) -> None:
        """The sink says why a level is true of no more there; "": nothing keeps it back."""
        if why:
            said = said_by_peer(why)
            if self.kept_back.get(level) != said:
                what, host = level.name.lower(), self.marks.host_id
                text = "queue %r: host %d keeps %s back: %s"
                _logger.warning(text, self.queue.name, host, what, said)
            self.kept_back[level] = said
        else:
            self.kept_back.pop(level, None)

    def drop_lane(self) -> None:
        """Lets go of the lane that is kept; one that a live pump has, its owner does when that is
        back."""
        kept, self.kept = self.kept, None
        if kept is not None and self.lane is None:
            kept.let_go()

    @property
    def row(self) -> MarkRow:
        """The row of the board that takes the acknowledgements of the sink."""
        return self.marks.row if self.claim is None else self.claim

    @property
    def claims(self) -> int:
        """The last index that the sink says it has without evidence; -1 for none."""
        return NOTHING if self.source is None else max(self._claimed, self.source.index_claimed)

    def count_sent(self, index_last: int, excerpts: int, payload_bytes: int) -> None:
        """So much was sent, up to this index."""
        is_in_order = self.claim is None and not self.is_withheld
        count = self.queue.counters.count_sent
        count(self.marks, index_last, excerpts, payload_bytes, is_in_order=is_in_order)

    def count_acknowledged(self, index: int, excerpts: int, payload_bytes: int) -> None:
        """So much was acknowledged that was not before, up to this index."""
        if self.is_withheld:
            return
        count = self.queue.counters.count_acknowledged
        count(self.marks, index, excerpts, payload_bytes, self.claim)
        if self.claim is None:
            self.queue.disk.prove(index + 1)

    def withhold(self, index: int) -> None:
        """Excerpts have come behind this index that its stream has passed: it stops, and whatever
        it acknowledges yet, no mark is behind that."""
        self._withheld, self.is_withheld = index, True
        if self.lane is not None:
            self.lane.mute()

    def begin_marks(self, source: SourceHandler, *, asks_ack: bool) -> None:
        """The marks of the sink are what it has as its stream begins: what comes before, though an
        acknowledgement may have been lost on its way, and nothing of what it wants, whatever it
        had once: it may be an older copy, from a backup or before a power cut.

        Args:
            source: the core's half of the queue.
            asks_ack: the sink is asked to acknowledge what it is sent.

        Raises:
            QueueError, OSError: what comes before cannot be read.
        """
        assert self.stream_from is not None
        self.source, self.asks_ack = source, asks_ack
        self.marks.begin()
        marks, start = self.marks, self.stream_from
        last = self.queue.queue.last_index_before(Index(start)) if start else None
        had = marks.acknowledged if asks_ack else marks.sent
        if asks_ack:
            marks.ask()
        if had >= max(start, 1):
            marks.lower_to_start(NOTHING if last is None else last, asks_ack=asks_ack)
            _logger.warning(
                "queue %r: host %d has had everything up to %s, and wants what is from %s on:"
                " store files stay for it from there",
                *(self.queue.name, marks.host_id, format_index(had)),
                format_index(start) if start else "the start",
            )
        if not asks_ack or last is None:
            return
        if source.can_prove or self.has_returned or marks.reaches(last):
            self.queue.counters.mark_acknowledged(marks, last)
            return
        self.claim, self._claimed = marks.row.claiming(start), last
        _logger.warning(
            "queue %r: host %d cannot prove what it holds, and wants what is from %s on. It claims"
            " to have all up to %s: no mark counts that, unless its copy is made anew",
            *(self.queue.name, marks.host_id, format_index(Index(start)), format_index(last)),
        )

    def close(self) -> None:
        self.queue.streams.discard(self)
        if self._withheld is not None:
            withheld, self._withheld = self._withheld, None
            self.queue.withhold(withheld)  # behind what its lane had done
        self.kept_back = {}
        if self.lane is not None:
            self.lane.mute()
        self.marks.keep_levels()
        self.drop_lane()
        self.batch = self.lane = self._rests = self._awaits = None
        if self.tailer is not None:
            self.tailer.close()
            self.tailer = None
        if self.back_copy is not None:
            self.queue.disk.tell_mended(self.back_copy.mended)
            self.back_copy.close()
            self.queue.note_returned(self.marks.host_id, self.back_copy.returned)
            self.back_copy = None
        if self.queue.returning is self:
            self.queue.returning = None
        self.awaits_turn = False


def watched_words(
    queues: Iterable[Outgoing],
    guarded: Callable[[Outgoing, Callable[[], WatchedWord | None]], WatchedWord | None],
) -> list[WatchedWord] | None:
    """The words that change when there is more to read in queues that are read to their ends; None
    where one of them has to be looked at.

    Args:
        guarded: does what reads a queue, and ends it where that fails.
    """
    words, now = [], trio.current_time()
    for each in queues:
        if each.tailer is not None:
            word = each.rests(now)
            if word is None and not each.has_more:
                word = guarded(each, each.tailer.watched)
            if word is None:
                return None
            words.append(word)
    return words
