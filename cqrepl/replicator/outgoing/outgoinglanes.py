"""The lanes of one connection's queues that go out: what a live pump works on, and has done.

A lane goes on from where its queue's tailer stands, and the tailer goes on behind what the lane has
sent. It is kept for the next pump: while both stand in the same file, mapped in the same way, that
goes on with it. A lane holds that mapping, and what goes with a mapping is a descriptor, and with
any descriptor of a file this process's record locks on it; so lanes are let go of one by one, under
the guard of those locks. A queue that stops while a pump has its lane is closed when that is back.

A queue whose next excerpt will be in a file that is not there yet has no lane: the pump looks
at the word that tells of that file.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import trio

from cqrepl.kernel import live
from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.lanemoves import SOURCE_LANES
from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.queuelife import ToSinkState
from cqrepl.protocol.sendwindow import SentRun
from cqrepl.queue import Tailer
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.replicator.outgoing.outgoingqueue import KeptLane, Outgoing

if TYPE_CHECKING:
    from cqrepl.kernel.live import SendBudget, SourceLane

T = TypeVar("T")
TURN_LANES: Final = 2  # that have done something, before others have their turn
TURN_LANES_MAX: Final = 8  # where there are so many that
TURNS: Final = 50  # would not do for all
TURN_SECONDS: Final = 0.001
LITTLE: Final = 64  # excerpts of a lane


class LaneOwner(Protocol):
    """The session that the lanes belong to, as they tell it and ask it."""

    def guarded(self, each: Outgoing, work: Callable[[], T]) -> T | None:
        """The result of `work`; None where the queue cannot be read."""

    def has_target(self, each: Outgoing) -> bool:
        """True when the sink has all that was in the queue at the start."""

    def sent(self, each: Outgoing, sent: SentRun) -> None:
        """A lane has sent these."""

    def acknowledged(self, each: Outgoing, noted: list[tuple[ev.Acknowledged, int]]) -> None:
        """The sink has more than before, as it said, and when that came."""


class OutgoingLanes:
    """The lanes of one connection, and what a live pump has sent of them.

    Args:
        outgoing: the queues that are on the connection, as they come and go.
    """

    def __init__(
        self, owner: LaneOwner, outgoing: Mapping[Cid, Outgoing], connection: Connection
    ) -> None:
        self.sent = 0  # excerpts, so far
        # of queues without a lane, the last time that a live pump was lent the connection; None:
        # one of them has to be looked at all the time
        self.waited: list[WatchedWord] | None = None
        self._lent: list[tuple[Outgoing, KeptLane]] = []  # to the pump that runs
        self._due: list[Callable[[], None]] = []  # once that is back
        self._budget: SendBudget | None = None  # what all of them share, once there is a lane
        self._owner: LaneOwner | None = owner
        self._outgoing = outgoing
        self._connection = connection

    def close(self) -> None:
        """Lets go of the session: a circle would keep the buffers of what is over."""
        self._owner = None

    def lend(self) -> "list[SourceLane]":
        """The lanes of all queues that have one now; none while a queue is held back. `leave` is to
        be called when the pump is back, whatever becomes of the queues."""
        outgoing = [
            each for each in self._outgoing.values() if each.life.state is not ToSinkState.LEAVING
        ]
        if any(each.queue.held_from is not None for each in outgoing):
            return []
        for each in outgoing:
            if each.tailer is not None:
                if each.batch is not None:
                    each.tailer.give_back(each.batch, each.start)
                    each.batch = None
                kept = each.kept = self._lane(each, each.tailer)
                if kept is not None:
                    each.lane, each.lane_count = kept.lane, 0
                    self._lent.append((each, kept))
        self.waited = self._awaited_files(outgoing)
        return [kept.lane for _, kept in self._lent]

    def catch_up(self, only: str | None = None) -> None:
        """Tells the core and the session what a live pump has done since; it may still run. As this
        is asked often, only its own lanes are looked at: none while there is no such pump. Of one
        queue, where one is named."""
        for each, _ in self._lent.copy():
            is_asked = only is None or each.queue.name == only
            if is_asked and each.lane is not None and each.tailer is not None:
                self._catch_up(each, each.lane, each.tailer.next_index)

    async def catch_up_in_turns(self) -> None:
        """The same, some lanes at a time. For a hundred queues all of it takes 10 ms of Python, and
        for so long a thread of the program would not go on whose excerpt is acknowledged. A lane
        with much to tell does not count: no thread waits for each of its excerpts. The more lanes
        there are, the more are in one turn."""
        told, most = 0, min(max(TURN_LANES, len(self._lent) // TURNS), TURN_LANES_MAX)
        for each, _ in self._lent.copy():
            if each.lane is not None and each.tailer is not None:
                before = self.sent
                has_told = self._catch_up(each, each.lane, each.tailer.next_index)
                told += has_told and self.sent - before <= LITTLE
                if told == most:
                    told = 0
                    await trio.sleep(TURN_SECONDS)

    def leave(self) -> None:
        """The live pump has come back: the tailers go on from where it is."""
        self.catch_up()
        lent, self._lent = self._lent, []
        for each, kept in lent:
            lane, each.lane = each.lane, None
            each.has_much = each.has_much if lane is None else lane.has_much
            if lane is not None and each.lane_count and each.tailer is not None:
                each.tailer.pass_by(each.lane_count, lane.position, lane.position_last)
            if each.kept is not kept:  # its queue was closed, or its file is another one by now
                kept.let_go()
        SOURCE_LANES.check(kept.lane for _, kept in lent)
        due, self._due = self._due, []
        for do in due:
            do()

    def once_back(self, each: Outgoing, do: Callable[[], None]) -> None:
        """Does something now, or once the live pump is back that has the lane of a queue: what that
        has sent till then, and has heard, counts."""
        if each.lane is None:
            do()
        else:
            self._due.append(do)

    def _lane(self, each: Outgoing, tailer: Tailer) -> KeptLane | None:
        assert self._owner is not None
        source = self._connection.source(each.cid)
        _, room_bytes = source.room
        if self._budget is None:
            self._budget = live.SendBudget(source.budget.free)
        self._budget.set(source.budget.free)  # no pump runs
        kept = each.kept
        if kept is not None:
            if self._owner.guarded(each, partial(kept.suits, tailer)):
                kept.lane.go_on(
                    (NO_LIMIT, room_bytes),
                    source.index_sent,
                    self._awaited_index(each),
                    source.index_held,
                    source.held,
                    each.has_much,
                )
                return kept
            each.drop_lane()
            if each.tailer is None:
                return None  # it cannot be read, and was closed over that
        stand = self._owner.guarded(each, tailer.stand)
        if stand is None:
            return None
        lane = live.SourceLane(
            stand.data,
            (stand.position, stand.index, stand.sequence, stand.certain_end),
            source.cid_document,
            self._connection.config.settings.payload_max,
            stand.recorded,
            (NO_LIMIT, room_bytes),
            each.queue.ack_log.is_wanted,
            each.row,
            source.index_sent,
            self._awaited_index(each),
            source.index_held,
            source.framing.has_runs,
            each.has_much,
            self._budget if source.offer.acknowledgement else None,
            source.held,
            None if each.queue.runs is None else (each.queue.runs, stand.file),
            source.can_prove,
        )
        return KeptLane(lane, stand)

    def _awaited_index(self, each: Outgoing) -> int:
        """The index whose acknowledgement tasks wait for, apart from those at the board."""
        assert self._owner is not None
        target = each.queue.target
        return INDEX_MAX if target is None or self._owner.has_target(each) else target

    def _awaited_files(self, outgoing: list[Outgoing]) -> list[WatchedWord] | None:
        words = []
        for each in outgoing:
            if each.lane is None and each.tailer is not None:
                assert self._owner is not None
                word = self._owner.guarded(each, partial(each.awaited_file, each.tailer))
                if word is None:
                    return None
                words.append(word)
        return words

    def _catch_up(self, each: Outgoing, lane: "SourceLane", lane_first: int) -> bool:
        """False where it has done nothing."""
        assert self._owner is not None
        acks, (settled, settled_bytes), lengths = lane.take_sent()
        source, first = self._connection.source(each.cid), lane_first + each.lane_count
        if lane.index_claimed > source.index_claimed:
            source.claimed(lane.index_claimed)
        if not acks and not settled and not lengths:
            return False
        runs = [SentRun(first, lengths[:0], settled_bytes, settled)] if settled else []
        if lengths:
            runs.append(SentRun.of(first + settled, lengths))
        for run in runs:
            source.framed(run)
            each.lane_count += len(run)
            self.sent += len(run)
            self._owner.sent(each, run)
        noted = []
        for at in range(0, len(acks), 3):
            index, ns, now_ns = acks[at : at + 3]
            event = source.acknowledged(index, ns)
            if event is not None:
                noted.append((event, now_ns))
        if noted:
            self._owner.acknowledged(each, noted)
        return True
