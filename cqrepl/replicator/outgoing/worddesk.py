"""Tells a sink on one connection what its streams do not: the levels that are waited for, the index
up to which a queue is safe, and the positions of named tailers.

Theory of operation. A source has thousands of queues, and most of them rest. So only those are
looked at that may have something to say. These were *touched* since: something was sent or
acknowledged, by any sink, or a level is waited for that was not before. Or they are *behind*: their
sink was sent more than it was told is safe, or than is known to be on its disk. A native lane
raises the marks of its host without a word, but only of what it has sent before, and until all of
that is told and on the disk its queue is behind. Of many that are, some are looked at each time, in
turn. That leaves some things out, as what a program of the sink takes later still. So some other
queues are looked at each time too, in turn: a round.

Each word of what is safe wakes the event loops of both ends, and while a thousand queues stream
there is a new one of each all the time. So there is one rate of them for the connection, and of the
touched queues those come first that were looked at longest ago. A queue to which something comes
now and then waits for no other, and those that stream share what is left. That a level is waited
for is told at once, whatever the rate.

Readers of any process move named tailers, and nothing tells of it. All queues are looked at once a
second for that, once for all of their sinks, and those where one has moved, ten times a second.
"""

from collections.abc import Callable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.protocol import Connection
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.source import SourceHandler
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.toldtailers import TailerLooks

ROUND: Final = 8  # queues that nothing is known to have touched, looked at each time
BEHIND_ROUND: Final = 64  # the same for those that are behind, and nothing has touched since
TOUCHED_ROUND: Final = 128  # the same for those that were touched
COMMITS_PER_S: Final = 2000  # words of what is safe: for a hundred queues twenty times a second
COMMITS_AT_ONCE: Final = 100
TURN_QUEUES: Final = 4  # looked at before others have their turn
TURN_SECONDS: Final = 0.001


class WordDesk:
    """The words for the sink of one connection.

    Args:
        outgoing: the queues that are on it, as they come and go.

    Attributes:
        rounds: how often there was a look for levels so far.
        looks: how many queues were looked at then, in all.
        looks_at_tailers: the same for named tailers.
        commits: how often the sink was told up to where a queue is safe.
    """

    def __init__(
        self, outgoing: Mapping[Cid, Outgoing], connection: Connection, pump: Pump
    ) -> None:
        self.rounds = self.looks = self.looks_at_tailers = self.commits = 0
        self._outgoing = outgoing
        self._connection = connection
        self._pump = pump
        self._streams: dict[str, Outgoing] = {}  # those that have begun, by name
        self._touched: dict[str, None] = {}  # names, in the order in which it was known
        self._first: dict[str, None] = {}  # the same, of those that do not wait for the rate
        self._looked_in: dict[str, int] = {}  # the round in which each touched one was looked at
        self._behind: dict[str, None] = {}  # those that were looked at last come last
        self._tokens = float(COMMITS_AT_ONCE)  # so many may be told
        self._filled_at = trio.current_time()
        self._is_under_way = False  # some of a round are still to come
        self._round: list[str] = []  # names that are still to come in this one
        self._moving: list[str] = []  # names of queues where a named tailer has moved

    def begin(self, each: Outgoing) -> None:
        """Its stream has begun."""
        self._streams[each.queue.name] = each
        self.touch(each.queue.name)

    def touch(self, name: str, *, is_first: bool = False) -> None:
        """Something may have come of a queue that its sink is to hear.

        Args:
            is_first: a level is waited for: before all others, and whatever the rate.
        """
        (self._first if is_first else self._touched)[name] = None

    @property
    def is_behind(self) -> bool:
        """True while there may be more to say soon, of which nothing tells."""
        return self.is_due or bool(self._behind or self._is_under_way)

    @property
    def is_due(self) -> bool:
        """True while there are queues that were touched since they were looked at."""
        return bool(self._first or self._touched)

    def close(self) -> None:
        """The connection is over: nothing is told any more."""
        self._streams.clear()
        self._first.clear()
        self._touched.clear()
        self._behind.clear()

    def tell_levels(self) -> None:
        """Tells this sink which levels are waited for, and up to where queues are safe."""
        for name, waits_for_rate in self._next_round():
            self._tell_levels_of(name, waits_for_rate=waits_for_rate)
        self._wake()

    def tell_levels_of(self, name: str) -> None:
        """The same of one queue, of which more is safe; where that has to wait for the rate, with
        the next round."""
        self._fill()
        self._tell_levels_of(name, waits_for_rate=True)
        self._wake()

    async def tell_levels_in_turns(self) -> None:
        """The same, a few queues at a time: a thread of the program that waits for one of them
        would wait until all have been looked at."""
        self._is_under_way = True
        for nth, (name, waits_for_rate) in enumerate(self._next_round(), 1):
            self._tell_levels_of(name, waits_for_rate=waits_for_rate)
            if nth % TURN_QUEUES == 0:
                self._wake()
                await trio.sleep(TURN_SECONDS)
        self._is_under_way = False
        self._wake()

    def _next_round(self) -> list[tuple[str, bool]]:
        """The names of those that are looked at now, and whether each may have to wait."""
        self.rounds += 1
        self._fill()
        first, self._first = self._first, {}
        due = dict.fromkeys(first, False)
        if self._tokens >= 1:
            behind = islice(self._behind, BEHIND_ROUND)
            for name in (*self._longest_ago(), *behind, *self._next_in_round()):
                due.setdefault(name, True)
        return list(due.items())

    def _longest_ago(self) -> list[str]:
        """Some of the queues that were touched: those that were looked at longest ago."""
        if len(self._touched) <= TOUCHED_ROUND:
            return list(self._touched)
        return nsmallest(TOUCHED_ROUND, self._touched, lambda name: self._looked_in.get(name, 0))

    def _fill(self) -> None:
        now = trio.current_time()
        more = (now - self._filled_at) * COMMITS_PER_S
        self._tokens = min(self._tokens + more, float(COMMITS_AT_ONCE))
        self._filled_at = now

    def _tell_levels_of(self, name: str, *, waits_for_rate: bool) -> None:
        if waits_for_rate and self._tokens < 1:
            return  # where it was known to be touched, or behind, it still is
        if name in self._touched:
            del self._touched[name]
            self._looked_in[name] = self.rounds
        self._behind.pop(name, None)
        each = self._stream(name)
        if each is None:
            self._looked_in.pop(name, None)
            return
        source = self._connection.source(each.cid)
        before = source.index_committed
        self.looks += 1
        if each.tell_levels(source):
            self._behind[name] = None
        if source.index_committed != before:
            self.commits += 1
            self._tokens -= 1

    def _wake(self) -> None:
        if self._connection.has_data_to_send:
            self._pump.wake()

    def _has_tailers(self, *, only_moving: bool) -> bool:
        """True when the sink takes positions of a queue that is to be looked at."""
        found = (self._stream(name) for name in self._looked_at(only_moving=only_moving))
        streams = (self._connection.source(each.cid) for each in found if each is not None)
        return any(each.takes_tailers for each in streams)

    def tell_tailers(
        self, catch_up: Callable[[], None], looks: TailerLooks, *, only_moving: bool
    ) -> bool:
        """Tells this sink where named tailers stand; true where one has moved.

        Args:
            catch_up: has counted what lanes have sent, before anything is told.
            looks: for all sinks.
            only_moving: of those queues only where one has moved the last time.
        """
        if not self._has_tailers(only_moving=only_moving):
            return False
        moved: list[tuple[str, Outgoing, SourceHandler]] = []
        for name in self._looked_at(only_moving=only_moving):
            each = self._streams.get(name)
            if each is None:
                continue
            self.looks_at_tailers += 1
            found = each.look_at_tailers(looks)
            if found is not None and self._stream(name) is each:
                source = self._connection.source(each.cid)
                if each.note_tailers(source, found):
                    moved.append((name, each, source))
        if moved:
            catch_up()
        self._moving = [name for name, each, source in moved if each.tell_tailers(source)]
        if self._moving:
            self._pump.wake()
        return bool(self._moving)

    def _looked_at(self, *, only_moving: bool) -> list[str]:
        return self._moving if only_moving else list(self._streams)

    def _next_in_round(self) -> list[str]:
        if not self._round:
            self._round = list(reversed(self._streams))
        due, self._round = self._round[-ROUND:], self._round[:-ROUND]
        return due

    def _stream(self, name: str) -> Outgoing | None:
        """The stream of a queue; None once it is on the connection no more."""
        each = self._streams.get(name)
        if each is not None and self._outgoing.get(each.cid) is not each:
            del self._streams[name]
            return None
        return each
