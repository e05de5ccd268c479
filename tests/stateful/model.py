"""A source, a sink and the wire between them, all in memory: what the protocol core is tested with.

The queues are lists, the wire is two byte buffers that can be cut anywhere, and each side is a
small shell that acts on the core's events just as the real one does. Time moves only when a rule
moves it.
"""

from collections import Counter

from cqrepl.protocol import (
    Connection,
    ProtocolError,
    QueueShape,
    StopReason,
)
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index, cycle_of, index_of
from tests.support.peer import Role, connection_config

SHIFT = 32
NAME = "q"
SHAPE = QueueShape(roll_cycle="FAST_DAILY", epoch=0, index_count=4096, index_spacing=256)
OUT_BYTES = 4096


class ModelQueue:
    """A queue as the format defines it: indexes rise by one, or jump to the start of a later
    cycle."""

    def __init__(self) -> None:
        self.excerpts: dict[int, bytes] = {}
        self.is_locked = False

    @property
    def next_index(self) -> int:
        return max(self.excerpts) + 1 if self.excerpts else 0

    def append(self, payload: bytes, cycle: int) -> int:
        """A local writer's append, in `cycle` or in the last cycle if that is later."""
        assert not self.is_locked
        index = self.next_index
        if not self.excerpts or cycle > cycle_of(Index(index - 1), SHIFT):
            index = index_of(Cycle(cycle), SEQUENCE_FIRST, SHIFT)
        self.excerpts[index] = payload
        return index

    def append_at(self, batch: ExcerptBatch) -> None:
        for index, payload in batch:
            assert index not in self.excerpts, "an index was written twice"
            follows = index == self.next_index or (
                index & ((1 << SHIFT) - 1) == 0 and index > self.next_index
            )
            assert follows, "a hole was made"
            self.excerpts[index] = bytes(payload)

    def differs(self, batch: ExcerptBatch) -> int | None:
        for index, payload in batch:
            if self.excerpts.get(index) != bytes(payload):
                return index
        return None

    def has_hole_before(self, index: int) -> bool:
        """True when the excerpt before `index` in its cycle is missing. A tailer refuses to jump
        over that."""
        return index & ((1 << SHIFT) - 1) != 0 and index - 1 not in self.excerpts

    def batch_from(self, index: int, count_max: int) -> ExcerptBatch | None:
        later = sorted(each for each in self.excerpts if each >= index)
        run: list[int] = []
        for each in later[:count_max]:
            if run and each != run[-1] + 1:
                break
            run.append(each)
        return ExcerptBatch.of(run[0], [self.excerpts[each] for each in run]) if run else None


class Side:
    """One end: a queue, and a connection while there is one."""

    def __init__(self, role: Role, queue: ModelQueue, seen: Counter[str]) -> None:
        self.role = role
        self.queue = queue
        self.connection: Connection | None = None
        self.out = bytearray()
        self.seen = seen
        self.cid: Cid | None = None
        self.tail: int | None = None  # where the stream or the back copy stands
        self.back_copy_from: int | None = None
        self.compared: int | None = None  # in a back copy: what has to come next
        self.stopped: StopReason | None = None
        self.acknowledged = -1

    def connect(self, is_dialler: bool, now: float) -> None:
        source = self.role is Role.SOURCE
        config = connection_config(
            is_dialler=is_dialler,
            host_id=1 if source else 2,
            remote_ids=frozenset({2 if source else 1}),
            takes=frozenset() if source else frozenset({NAME}),
            cid_first=100 if source else 200,
        )
        self.connection = Connection(config, now)
        self.out = bytearray()
        self.cid = self.tail = self.back_copy_from = None
        self.flush()

    def disconnect(self) -> None:
        self.connection = None
        if self.role is Role.SOURCE:
            self.queue.is_locked = False

    def flush(self) -> None:
        if self.connection is not None:
            self.out += self.connection.data_to_send()

    def receive(self, data: bytes, now: float) -> None:
        if self.connection is None:
            return
        self.connection.receive_data(data, now)
        while self.connection is not None:
            event = self.connection.next_event()
            if event is None:
                break
            self.act(event)
        self.flush()

    def act(self, event: ev.Event) -> None:
        connection = self.connection
        assert connection is not None
        match event:
            case ev.Connected():
                if self.role is Role.SOURCE and self.stopped is None:
                    self.cid = connection.offer_queue(
                        NAME,
                        self.queue.next_index,
                        acknowledgement=True,
                        source_id=7,
                        shape=SHAPE,
                    )
            case ev.QueueOffered(cid=cid):
                self.cid = cid
                if self.stopped is None:
                    connection.answer_queue(cid, self.queue.next_index, SHIFT, SHAPE)
            case ev.BackCopyWanted(cid=cid, index_first=index):
                if self.queue.has_hole_before(index):
                    connection.stop_queue(cid, StopReason.GAP, f"nothing before {index:#x}")
                else:
                    self.back_copy_from = index
            case ev.SinkAhead(cid=cid):
                self.queue.is_locked = True
                self.compared = connection.source(cid).offer.next_index
                connection.begin_back_copy(cid, self.queue.next_index, SHIFT)
            case ev.StreamingStarted(next_index=index):
                self.queue.is_locked = False
                if self.queue.has_hole_before(index):
                    assert self.cid is not None
                    connection.stop_queue(self.cid, StopReason.GAP, f"nothing before {index:#x}")
                else:
                    self.tail = index
            case ev.AppendExcerpts():
                self.append(connection, event)
            case ev.CompareExcerpts():
                self.compare(connection, event)
            case ev.Acknowledged(index=index):
                self.acknowledged = max(self.acknowledged, index)
                self.seen["acknowledgement"] += 1
            case ev.QueueStopped(reason=reason):
                self.stopped = reason
                self.queue.is_locked = False
            case ev.RegistrationRefused(message=message):
                raise AssertionError(f"refused between two good peers: {message}")

    def append(self, connection: Connection, event: ev.AppendExcerpts) -> None:
        if self.queue.excerpts and event.batch.index_first != self.queue.next_index:
            self.seen["roll"] += 1
        self.queue.append_at(event.batch)
        self.count_received("append")
        if self.role is Role.SINK:
            connection.sink(event.cid).stored(event.batch.index_last, event.ns)

    def compare(self, connection: Connection, event: ev.CompareExcerpts) -> None:
        batch = event.batch
        self.count_received("repeat")
        index = self.queue.differs(batch)
        if self.role is Role.SOURCE:  # in order, and none of ours may be left out
            assert self.compared is not None
            mine = self.queue.batch_from(self.compared, 1)
            if mine is not None and mine.index_first != batch.index_first:
                index = mine.index_first
            self.compared = batch.index_last + 1
        if index is not None:
            self.seen["divergence"] += 1
            connection.stop_queue(event.cid, StopReason.DIVERGED, f"{index:#x}")
        elif self.role is Role.SINK:
            connection.sink(event.cid).stored(batch.index_last, event.ns)

    def count_received(self, what: str) -> None:
        self.seen["back copy" if self.role is Role.SOURCE and what == "append" else what] += 1

    def stream(self, count_max: int, ns: int) -> bool:
        """Frames one batch of the stream or of the back copy; false when there is nothing to do."""
        connection, cid = self.connection, self.cid
        if connection is None or cid is None or self.stopped is not None:
            return False
        position = self.back_copy_from if self.role is Role.SINK else self.tail
        if position is None:
            return False
        batch = self.queue.batch_from(position, count_max)
        if batch is None:
            if self.role is Role.SOURCE:
                return False
            self.back_copy_from = None
            connection.end_back_copy(cid)
            self.flush()
            return True
        self.frame(batch, ns)
        return True

    def frame(self, batch: ExcerptBatch, ns: int) -> None:
        assert self.connection is not None
        assert self.cid is not None
        self.flush()
        out = bytearray(OUT_BYTES)
        framed, filled = self.connection.frame_excerpts(self.cid, batch, 0, ns, out, 0)
        self.out += out[:filled]
        position = batch.index_first if framed is None else framed.index_last + 1
        if self.role is Role.SINK:
            self.back_copy_from = position
        else:
            self.tail = position


class World:
    """Both sides and the clock."""

    def __init__(self, seen: Counter[str]) -> None:
        self.now = 0.0
        self.seen = seen
        self.source = Side(Role.SOURCE, ModelQueue(), seen)
        self.sink = Side(Role.SINK, ModelQueue(), seen)
        self.source_dials = False

    @property
    def is_connected(self) -> bool:
        return self.source.connection is not None and self.sink.connection is not None

    def connect(self) -> None:
        self.source.connect(self.source_dials, self.now)
        self.sink.connect(not self.source_dials, self.now)

    def cut(self) -> None:
        for side in (self.source, self.sink):
            if side.out:
                self.seen["cut inside a frame"] += 1
            side.disconnect()
            side.out = bytearray()

    def deliver(self, sender: Side, size: int) -> None:
        receiver = self.sink if sender is self.source else self.source
        data, sender.out = bytes(sender.out[:size]), sender.out[size:]
        receiver.receive(data, self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for side in (self.source, self.sink):
            try:
                if side.connection is not None:
                    side.connection.tick(self.now)
                    side.flush()
            except ProtocolError:
                self.seen["timed out"] += 1
                self.cut()
                return

    def settle(self) -> None:
        """Runs a good network until both sides are quiet."""
        if not self.is_connected:
            self.connect()
        busy = True
        while busy:
            busy = False
            for side in (self.source, self.sink):
                busy |= side.stream(50, 1 << 55)
                if side.out:
                    self.deliver(side, len(side.out))
                    busy = True
