"""Compares queues of a source with those of its sink over one connection.

It does so before anything moves, and all along.

Before a stream begins the sink tells what it holds (`LineageClaimed`). While it is on, the sink
reads what has come from its files, and tells the chain every half second (`CopyAudited`): an
excerpt that is stored otherwise than it was sent is found so. Where the two differ, the sink is
asked until the first differing index is known.

To compare one of these chains with a queue takes opening its file and reading on in it, most of
which holds up all other Python of the process. So of several that a sink has told of one cycle only
the last counts, which is over all that the earlier ones are over. A few queues go together. Where
more wait, other tasks have their turn first, unless a sink was asked, and is waited for.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.net.threads import Together, in_thread
from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue import Diverged, IndexGap
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import Cycle, Index, cycle_of
from cqrepl.replicator.agreement.divergence import Compared, DivergenceSearch
from cqrepl.replicator.agreement.identities import check_copy_of
from cqrepl.replicator.agreement.lineage import (
    NO_CYCLE,
    BeginMissing,
    FilesChanged,
    check_begin,
    check_lineage,
    first_held,
)
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.returndesk import ReturnDesk
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.surroundings import surroundings

Step = Callable[[Cid, Callable[[Outgoing], Awaitable[None]]], Awaitable[None]]
AUDIT_SECONDS: Final = 5.0  # longest wait for what a sink's files hold, before an end
AUDITED_MAX: Final = 64  # cycles of one queue, that wait to be compared
AUDITED_TOGETHER: Final = 16  # queues
AUDITED_PAUSE_SECONDS: Final = 0.25  # between two times that so many are compared


class LineageDesk:
    """The comparisons of one connection.

    Args:
        outgoing: the queues that are on it, as they come and go.
        returns: says whether a sink that is ahead may give back.
        changed: is set when a sink holds what was sent.
    """

    def __init__(
        self,
        outgoing: Mapping[Cid, Outgoing],
        returns: ReturnDesk,
        connection: Connection,
        changed: Signal,
    ) -> None:
        self._outgoing = outgoing
        self._returns = returns
        self._connection = connection
        self._changed = changed
        self._audited: dict[Cid, dict[Cycle, ev.CopyAudited]] = {}  # the last one of each cycle
        self._left_out: set[Cid] = set()  # queues of which not all that was told was compared
        self._asked_again: set[str] = set()  # queues whose copy seemed to lack the begin
        self._ways = Together(AUDITED_TOGETHER)
        self._asked_until = -math.inf  # by trio's clock: so long an answer is waited for
        self._has_audited = Signal()
        self._if_equal: dict[
            Cid, Callable[[], Awaitable[None]]
        ] = {}  # of searches: what then goes on

    async def compare(self, each: Outgoing, claimed: ev.LineageClaimed) -> None:
        """Goes on only with a sink that holds what this queue does, up to the shorter end.

        Raises:
            OtherQueue: it is a copy of another queue, whatever the two hold.
            Diverged: they differ, and where.
            QueueError, OSError: it may not give back, or a store file cannot be read.
        """
        chains, index, lineage = each.queue.chains, claimed.index, claimed.lineage
        self._check_identity(each, self._identity_offered(each))
        source = self._connection.source(each.cid)
        assert source.answer is not None
        next_index = source.answer.next_index
        who = f"host {each.marks.host_id}"
        try:
            begin = partial(check_begin, chains, lineage, each.shift, who)
            check = partial(check_lineage, chains, index, lineage, each.shift, who)
            is_ahead = next_index > source.offer.next_index  # it has to wait until it may give back
            settle = _settle_nothing if is_ahead else self._settling(each)
            new, identity = await in_thread(
                partial(_settled, each.queue.late.find_new, begin, check, settle)
            )
            if not each.queue.streams:
                each.queue.late.note_compared(new)
            await self._proved(each, identity)
        except BeginMissing as missing:
            await self._stop_below(each, missing.difference)
        except Diverged:
            if not self._is_on(each):
                return
            await self._check_offer(each)
            compared = Compared(
                end=Index(index),
                theirs=lineage,
                own_next=Index(source.offer.next_index),
                their_next=Index(next_index),
                who=who,
            )
            await self._search(each, compared, partial(self._proved, each))

    async def _proved(self, each: Outgoing, identity: Identity | None = None) -> None:
        """Both hold the same up to the shorter end.

        Args:
            identity: that of both, where it is settled by now.
        """
        if not self._is_on(each):
            return
        source = self._connection.source(each.cid)
        assert source.answer is not None
        next_index = source.answer.next_index
        # a sink that hears that it is proved locks its queue: not where that ends here
        if next_index > source.offer.next_index:
            self._returns.check(each, next_index)
            if not self._returns.gets_turn(each):
                return
        await self.tell_proved(each, identity)

    async def _check_offer(self, each: Outgoing) -> None:
        """Does nothing while the first store file is the one that the offer was made with: the sink
        has reckoned what it holds from that one on.

        Raises:
            FilesChanged: it is another one.
            QueueError, OSError: a store file cannot be read.
        """
        offered = self._connection.source(each.cid).offer.lineage
        now = await in_thread(partial(first_held, each.queue.chains))
        if offered is not None and offered.first_cycle != now.first_cycle:
            raise FilesChanged

    async def _stop_below(self, each: Outgoing, missed: Diverged) -> None:
        """Stops a queue of which the copy lacks the begin; the sink is asked once more before, as a
        store file of the copy may have been away while it answered.

        Raises:
            FilesChanged: the next offer asks it.
            Diverged: it says the same again.
        """
        if not self._is_on(each):
            return
        await self._check_offer(each)
        if each.queue.name not in self._asked_again:
            self._asked_again.add(each.queue.name)
            raise FilesChanged
        raise missed

    async def tell_proved(self, each: Outgoing, identity: Identity | None = None) -> None:
        """The sink holds what this queue does, and hears so. If only one of the two has an
        identity, it is that of both from now on.

        Args:
            identity: that, where it is settled by now.

        Raises:
            OtherQueue: it is a copy of another queue.
            QueueError, OSError: an identity cannot be read, or may not be on the disk.
        """
        if not self._connection.tells_identities:
            identity = None
        elif self._identity_offered(each) is not None:
            identity = self._identity_offered(each)
        else:
            if identity is None:
                identity = await in_thread(self._settling(each))
            if not self._is_on(each):
                return
            self._check_identity(each, identity)  # another sink's may have been quicker
        if self._is_on(each):
            self._connection.lineage_compared(each.cid, identity)

    def _settling(self, each: Outgoing) -> Callable[[], Identity | None]:
        """The work that settles the identity of both in a thread: none, where it was offered or the
        peer tells none."""
        if not self._connection.tells_identities or self._identity_offered(each) is not None:
            return _settle_nothing
        return partial(each.queue.settle_identity, self._identity_of_sink(each))

    def _check_identity(self, each: Outgoing, own: Identity | None) -> None:
        theirs = self._identity_of_sink(each)
        if theirs is not None:
            check_copy_of(own, theirs, each.queue.path, f"host {each.marks.host_id}")

    def _identity_offered(self, each: Outgoing) -> Identity | None:
        lineage = self._connection.source(each.cid).offer.lineage
        return None if lineage is None else lineage.identity

    def _identity_of_sink(self, each: Outgoing) -> Identity | None:
        answer = self._connection.source(each.cid).answer
        return None if answer is None or answer.lineage is None else answer.lineage.identity

    async def search_on(self, each: Outgoing, given: ev.ProofGiven) -> None:
        """The sink has answered: on to the next place.

        Raises:
            Diverged: it was the last one.
            QueueError, OSError: a store file cannot be read.
        """
        if each.search is not None and not each.has_stopped:
            await self._ask_on(each, partial(each.search.take, given.lineage))

    def drop(self, cid: Cid) -> None:
        """A queue is on the connection no more."""
        self._audited.pop(cid, None)
        self._if_equal.pop(cid, None)
        self._left_out.discard(cid)

    def forget(self, name: str) -> None:
        """A queue is streamed no more; another one may get its name."""
        self._asked_again.discard(name)

    def note(self, event: ev.CopyAudited) -> None:
        """The sink has told what its files hold: `work` looks at it."""
        each = self._outgoing.get(event.cid)
        if each is None:
            return
        waiting = self._audited.setdefault(event.cid, {})
        waiting[cycle_of(event.index, each.shift)] = event
        if len(waiting) > AUDITED_MAX:
            del waiting[min(waiting)]
            self._left_out.add(event.cid)
        self._has_audited.set()

    async def work(self, pump: Pump, step: Step) -> None:
        """Compares what the sink has told, for as long as the connection is there.

        Args:
            step: takes a step of a comparison, and stops a queue that differs.
        """
        while True:
            async with trio.open_nursery() as nursery:
                for each, event in await self._next_audited():
                    nursery.start_soon(self._compare_if_on, each, event, step)
            if self._connection.has_events:
                pump.look()
            else:
                pump.wake()  # all is well, or there is something to ask
            await self._pause_audited()

    async def _compare_if_on(self, each: Outgoing, event: ev.CopyAudited, step: Step) -> None:
        if self._is_on(each):  # the sink may have let go of it meanwhile
            await step(each.cid, partial(self.compare_audited, event=event))

    async def _next_audited(self) -> list[tuple[Outgoing, ev.CopyAudited]]:
        """Waits for what is to be compared next, of some queues that go on."""
        while True:
            found: list[tuple[Outgoing, ev.CopyAudited]] = []
            for cid, waiting in list(self._audited.items()):
                if len(found) == AUDITED_TOGETHER:
                    return found
                del self._audited[cid]
                each = self._outgoing.get(cid)
                if each is None or not each.is_going_on:
                    continue
                found.append((each, waiting.pop(min(waiting))))
                if waiting:
                    self._audited[cid] = waiting  # behind the other queues
            if found:
                return found
            await self._has_audited.wait()

    async def _pause_audited(self) -> None:
        """Lets others have their turn where many wait to be compared, and none of them is waited
        for. Where one has come to several cycles they would come faster than they go, and some
        never have their turn."""
        waiting = self._audited.values()
        if len(waiting) < AUDITED_TOGETHER or any(len(each) > 1 for each in waiting):
            return
        with trio.move_on_after(AUDITED_PAUSE_SECONDS):
            while trio.current_time() >= self._asked_until:
                await self._has_audited.wait()

    async def compare_audited(self, each: Outgoing, event: ev.CopyAudited) -> None:
        """Holds what the sink's files hold against this queue.

        Raises:
            Diverged: they differ, and where.
            QueueError, OSError: a store file cannot be read.
        """
        try:
            chain = await self._ways.do(partial(each.queue.chains.at, event.index))
        except IndexGap:
            return  # retention has taken its cycle meanwhile
        if not self._is_on(each) or not each.is_going_on:
            return
        if chain == event.chain:
            self._audited_well(each, event.index)
            return
        compared = Compared(
            end=event.index,
            theirs=Lineage(first_cycle=NO_CYCLE, chain=event.chain),
            own_next=each.queue.queue.next_index(),
            their_next=event.index,
            who=f"host {each.marks.host_id}",
            is_of_cycle=True,
        )

        async def agreed() -> None:
            self._connection.lineage_compared(each.cid)
            self._audited_well(each, event.index)

        await self._search(each, compared, agreed)

    def _audited_well(self, each: Outgoing, index: Index) -> None:
        """The sink's files hold what was sent before this, if all that it told was compared."""
        if each.cid not in self._left_out:
            each.audited = max(each.audited, index)
            each.queue.disk.prove(index)
        self._changed.set()

    @property
    def is_audited(self) -> bool:
        """False while the sink is to tell what it has stored."""
        return all(each.is_audited for each in self._outgoing.values())

    def ask_audits(self) -> None:
        """Has the sink tell what its files hold of all that it has acknowledged."""
        for each in self._outgoing.values():
            self._ask_audit(each)

    def _ask_audit(self, each: Outgoing) -> None:
        """Asks a sink what its files hold of all that it has acknowledged, without waiting for its
        own time; nothing for one that has told, or cannot."""
        index = Index(self._connection.source(each.cid).index_acknowledged + 1)
        if index <= max(each.audited, each.audit_asked):
            return
        if each.is_going_on and self._connection.ask_audit(each.cid, index):
            seconds = surroundings().rarely("audit", AUDIT_SECONDS, 0.0, 0.01)
            self._asked_until = each.audit_until = trio.current_time() + seconds
            each.audit_asked = index

    async def _search(
        self, each: Outgoing, compared: Compared, if_equal: Callable[[], Awaitable[None]]
    ) -> None:
        await in_thread(each.queue.chains.check_believed)
        if not self._is_on(each):
            return
        self._if_equal[each.cid] = if_equal
        each.search = DivergenceSearch(each.queue.chains, compared, each.shift)
        await self._ask_on(each, each.search.begin)

    async def _ask_on(self, each: Outgoing, step: Callable[[], Index | Diverged | None]) -> None:
        place = await in_thread(step)
        if not self._is_on(each):
            return
        if isinstance(place, Diverged):
            if not self._connection.source(each.cid).is_streaming:
                await self._check_offer(each)
            raise place
        if self._connection.has_stopped(each.cid):
            return
        if place is None:
            each.search = None
            await self._if_equal.pop(each.cid)()
        else:
            self._connection.ask_proof(each.cid, place)

    def _is_on(self, each: Outgoing) -> bool:
        """False once the sink has let go of the queue."""
        return self._outgoing.get(each.cid) is each


def _settle_nothing() -> None:
    return None


def _settled(
    find_new: Callable[[], frozenset[Cycle]],
    begin: Callable[[], None],
    check: Callable[[], None],
    settle: Callable[[], Identity | None],
) -> tuple[frozenset[Cycle], Identity | None]:
    """The new cycles, and the identity of both. The way into a thread is gone once for all.

    Raises:
        FilesChanged: a new cycle came while they were compared.
    """
    new = find_new()
    begin()
    check()
    if find_new() != new:
        raise FilesChanged
    return new, settle()
