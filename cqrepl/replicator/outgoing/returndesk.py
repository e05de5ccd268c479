"""Takes what sinks give back to a source over one connection, and bounds how much and how long."""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import trio

from cqrepl.net.pump import Pump
from cqrepl.net.threads import in_thread
from cqrepl.protocol import Connection
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.queue import QueueError
from cqrepl.queue.format.index import Index, format_index
from cqrepl.replicator.agreement.consent import ReturnRefused, ReturnSettings, check_return
from cqrepl.replicator.marks.hostmarks import HostMarks
from cqrepl.replicator.outgoing.backcopy import BackCopyTarget
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.passedcopies import check_return_to_copy
from cqrepl.replicator.queuestate.queues import Signal

_logger: Final = logging.getLogger(__name__)


class ReturnDesk:
    """The back copies of one connection.

    Args:
        outgoing: the queues that are on it, as they come and go.
        settings: whose back copies are taken.
        pump: knows how log lines name the peer.
        changed: is set, among others, whenever a back copy of the host has ended.
    """

    def __init__(
        self,
        outgoing: Mapping[Cid, Outgoing],
        settings: ReturnSettings,
        connection: Connection,
        pump: Pump,
        changed: Signal,
    ) -> None:
        self._outgoing = outgoing
        self._settings = settings
        self._connection = connection
        self._pump = pump
        self._changed = changed
        self._begun = Signal()
        self._taking = trio.Lock()  # what came back; no back copy is ended meanwhile

    async def work(
        self,
        stop: Callable[[Outgoing, QueueError], None],
        begin: Callable[[Outgoing], Awaitable[None]],
    ) -> None:
        """Begins back copies whose turn has come, and ends those that take too long."""
        while True:
            each, late = await self.due()
            if late is not None:
                stop(each, late)
            else:
                await begin(each)
            self._pump.look()

    async def due(self) -> tuple[Outgoing, ReturnRefused | None]:
        """Waits for a queue whose turn has come; or for a back copy that takes too long, as its
        sink may say nothing more, with the error that is to end it before anything else comes."""
        while True:
            live = list(self._outgoing.values())
            waiting = [each for each in live if each.awaits_turn and not each.has_stopped]
            for each in waiting:
                if each.take_turn():
                    return each, None
            copying = [each for each in live if each.back_copy is not None]
            held = [each.queue for each in live if each.queue.held_from is not None]
            ends = [each.back_copy_until for each in copying] + [each.held_until for each in held]
            with trio.move_on_at(min(ends, default=math.inf)):
                await (self._changed if waiting or held else self._begun).wait()
                if held:
                    self._pump.wake()  # it may go out now
                continue
            if held:
                self._pump.wake()
            async with self._taking:
                for each in copying:
                    is_late = each.back_copy_until <= trio.current_time()
                    if is_late and each.back_copy is not None:
                        return each, each.back_copy.overdue()

    def look(self) -> None:
        """A stream has begun, which may be held back for a while."""
        self._begun.set()

    def gets_turn(self, each: Outgoing) -> bool:
        """False where another sink gives back to the same queue: this one comes later."""
        if each.take_turn():
            return True
        _logger.info(
            "%s: queue %r: the sink is ahead, and waits until another one has given back",
            self._pump.label,
            each.queue.name,
        )
        self._begun.set()
        return False

    def takes_from(self, marks: HostMarks) -> bool:
        """True when a host that proves what it holds may give back."""
        hosts = self._settings.hosts
        return hosts is not None and (marks.is_known or marks.host_id in hosts)

    def check(self, each: Outgoing, next_index: int) -> None:
        """Checks that a sink that is ahead may give back what it has.

        Raises:
            ReturnRefused: it may not.
            CopyBehind: this is a copy, which may get there yet.
        """
        if why := self._connection.link.refusal("return", each.queue.name):
            raise ReturnRefused(why, path=each.queue.path)
        ends = (self._connection.source(each.cid).offer.next_index, next_index)
        if each.queue.copy is not None:
            check_return_to_copy(each.marks.host_id, ends, each.queue.copy)
        check_return(
            self._settings,
            each.marks.host_id,
            ends,
            each.queue.path,
            is_known=each.marks.is_known,
            is_proved=self._connection.compares_lineage,
            has_all=each.queue.has_all_before(next_index),
        )

    async def begin(self, each: Outgoing, next_index: int) -> None:
        """The sink has more than this queue: keeps every other writer out while it copies back.

        Raises:
            QueueError, OSError: it may not, or the queue cannot be written or locked.
        """
        offered = self._connection.source(each.cid).offer.next_index
        self.check(each, next_index)
        each.take_turn()  # one that cannot prove, as Java's, is not made to wait: the lock tells it
        _logger.info(
            "%s: queue %r: the sink is ahead (%s, here %s): back copy",
            self._pump.label,
            each.queue.name,
            format_index(next_index),
            format_index(offered),
        )
        if not self._connection.compares_lineage:
            _logger.warning(
                "%s: queue %r: host %d cannot compare what both hold: that it comes back behind the"
                " same excerpts is taken on trust",
                self._pump.label,
                each.queue.name,
                each.marks.host_id,
            )
        limits, host_id = self._settings, each.marks.host_id
        target = await in_thread(
            partial(
                BackCopyTarget,
                each.queue.path,
                offered,
                limits,
                host_id,
                each.queue.disk.unproved_from,
                each.queue.hold,
            )
        )
        if self._outgoing.get(each.cid) is not each or self._connection.has_stopped(each.cid):
            target.close()  # the sink has let go meanwhile
            return
        each.queue.end_watch.begin_return(Index(target.next_index))
        each.back_copy = target
        each.back_copy_until = trio.current_time() + limits.seconds_max
        self._begun.set()
        self._changed.set()
        self._connection.begin_back_copy(
            each.cid, target.next_index, each.queue.queue.layout.roll_cycle.shift
        )

    async def take(self, each: Outgoing, event: ev.AppendExcerpts | ev.CompareExcerpts) -> None:
        """Stores what came back, or compares it with what a local writer put in its way.

        Raises:
            QueueError, OSError: it differs, is too much, or cannot be stored.
        """
        async with self._taking:
            if each.back_copy is None:  # stopped a moment ago
                return
            if isinstance(event, ev.CompareExcerpts):
                each.back_copy.compare(event.batch)
            else:
                await each.back_copy.append(event.batch)
