"""Brings what was replicated to the disk, behind the stream, for all queues of a host.

What that means for one queue, and when it is done, is `diskend`'s.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import trio

from cqrepl.net.threads import Together
from cqrepl.net.ticks import until_tick
from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.format.index import Index
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk.auditshare import Reading, rest_seconds
from cqrepl.replicator.disk.diskend import LOOK_READ_SECONDS, SYNC_SECONDS, DiskEnd
from cqrepl.replicator.disk.queueaudit import FOLLOW_SECONDS, Place
from cqrepl.replicator.disk.storedthread import StoredThread
from cqrepl.replicator.queuestate.descriptors import are_plenty
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.surroundings import surroundings

LOOK_SECONDS: Final = 5.0  # between two looks at the closed store files
GROUP_QUEUES: Final = 16  # whose files are read or synced by one thread, one after the other
TURN_QUEUES: Final = 32  # looked at before other tasks have their turn
SCRUB_SECONDS: Final = 0.01  # between two stretches at least
AUDIT_SECONDS: Final = 0.5  # between two times that what has come is read
AUDIT_REST: Final = 2  # times as long where nothing had come
AUDIT_QUEUES: Final = 16  # of those to which something still comes, each time
NAMES_SECONDS: Final = 1.0  # between two looks at the names of the open ones
_logger: Final = logging.getLogger(__name__)


class Syncer:
    """Syncs the queues of one host, one after the other, with a thread for each kind of work. The
    way there and back costs more than most queues have to be read: those of a group go together.

    Args:
        scrub_bytes_per_s: so much of their store files is read once more; 0: none.

    Attributes:
        stored: syncs what is waited for, without this, as soon as a live pump has stored it.
    """

    def __init__(self, scrub_bytes_per_s: int = 0) -> None:
        self._scrub_bytes_per_s = scrub_bytes_per_s
        self._ends: dict[Queue, DiskEnd] = {}  # threads add to it: only a copy is walked over
        self._changed = Signal()
        self._nursery: trio.Nursery | None = None  # while it runs
        self._scrubbing = trio.CancelScope()
        # one for each kind of work: a sync that takes its time holds up no look and no audit
        self._syncs, self._audits, self._looks = (Together(GROUP_QUEUES) for _ in range(3))
        self._audit_turn = 0  # the place of the queue that an audit looks at first
        self._token: trio.lowlevel.TrioToken | None = None
        self.stored = StoredThread(self._soon)

    @property
    def ways(self) -> int:
        """The number of times that it went into a thread so far, with one queue or several."""
        return self._syncs.ways + self._audits.ways + self._looks.ways

    def watch(
        self,
        name: str,
        queue: Queue,
        end: Callable[[], Index],
        chains: Chains,
        damaged: Callable[[QueueDamaged], None],
        check_names: Callable[[], None],
        audited: Callable[[list[Place]], None] | None = None,
        synced: Callable[[int], None] | None = None,
        *,
        is_proved: bool,
        keeps_lost: bool = False,
    ) -> DiskEnd:
        """A queue that was opened; arguments and errors are those of `DiskEnd`."""
        watched = DiskEnd(
            name,
            queue,
            end,
            self._changed,
            chains,
            damaged,
            check_names,
            audited,
            synced,
            is_proved=is_proved,
            keeps_lost=keeps_lost,
        )
        self._ends[queue] = watched
        return watched

    def forget(self, queue: Queue) -> None:
        """The queue is about to be closed, watched or not."""
        self.stored.forget(queue)
        watched = self._ends.pop(queue, None)
        if watched is not None:
            watched.forget()

    async def settle(self, queue: Queue) -> None:
        """Brings a queue to the disk that is about to be closed."""
        watched = self._ends.get(queue)
        if watched is not None and watched.is_dirty:
            await watched.sync()

    def scrub(self, bytes_per_s: int) -> None:
        """Reads store files once more at another pace."""
        self._scrub_bytes_per_s = bytes_per_s
        self._scrubbing.cancel()
        if bytes_per_s and self._nursery is not None:
            self._scrubbing = trio.CancelScope()
            self._nursery.start_soon(self._scrub_all, bytes_per_s, self._scrubbing)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Syncs for the length of a block, and once more when that ends in order."""
        self._token = trio.lowlevel.current_trio_token()
        if not surroundings().boot_id():
            _logger.warning(
                "the machine does not tell which start it is in (/proc/sys/kernel/random/boot_id):"
                " what was not synced is compared with a copy with each start of a program"
            )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work)
            nursery.start_soon(self._work_at_once)
            nursery.start_soon(self._look_at_all)
            nursery.start_soon(self._look_at_names)
            nursery.start_soon(self._audit_all)
            self._nursery = nursery
            self.scrub(self._scrub_bytes_per_s)
            try:
                yield
            finally:
                self.stored.end()
            self._nursery = None
            nursery.cancel_scope.cancel()
        await self._sync_all(is_last=True)

    def _soon(self, call: Callable[[], None]) -> None:
        assert self._token is not None  # what has it called was given while this ran
        with suppress(trio.RunFinishedError):  # the end in order has done it
            self._token.run_sync_soon(call)

    async def _work(self) -> None:
        while True:
            while not any(end.is_dirty and not end.is_at_once for _, end in self._each()):
                await self._changed.wait()
            if not any(end.is_urgent and not end.is_at_once for _, end in self._each()):
                await trio.sleep(SYNC_SECONDS)
            await self._sync_all()

    async def _work_at_once(self) -> None:
        """Syncs what is waited for, each queue for itself: one with a slow disk holds up none."""
        at_work = set[DiskEnd]()
        async with trio.open_nursery() as nursery:
            while True:
                for _, end in self._each():
                    if end.is_at_once and end.is_dirty and end not in at_work:
                        at_work.add(end)
                        nursery.start_soon(_sync_at_once, end, at_work)
                await self._changed.wait()

    async def _look_at_all(self) -> None:
        while True:
            due = []
            for nth, end in self._each():
                if end.has_to_look:
                    due.append(end)
                await _turn_for_others(nth)
            seconds = LOOK_READ_SECONDS / max(len(due), 1)  # of all together
            await _in_groups(due, partial(DiskEnd.look, do=self._looks.do, seconds=seconds))
            await until_tick(LOOK_SECONDS)

    async def _look_at_names(self) -> None:
        while True:
            await until_tick(NAMES_SECONDS)
            are_few = not are_plenty()
            for nth, end in self._each():
                end.look_at_names(are_descriptors_few=are_few)
                await _turn_for_others(nth)

    async def _audit_all(self) -> None:
        rest_s = AUDIT_SECONDS * AUDIT_REST
        while True:
            usual_s = AUDIT_SECONDS, AUDIT_SECONDS * AUDIT_REST
            await (until_tick(rest_s) if rest_s in usual_s else trio.sleep(rest_s))
            rest_s = await self._audit_due(self._in_turn())

    def _in_turn(self) -> list[DiskEnd]:
        """Those to which something has come: all that have come to rest, and some of the others,
        of which the rest are first the next times. To read one of these costs as much as ever, and
        more comes to it."""
        ends, due, others = [end for _, end in self._each()], list[DiskEnd](), 0
        first = self._audit_turn
        for nth in range(len(ends)):
            at = (first + nth) % len(ends)
            if not ends[at].has_to_audit:
                continue
            if not ends[at].has_rested:
                others += 1
                if others > AUDIT_QUEUES:
                    continue
                self._audit_turn = at + 1
            due.append(ends[at])
        return due

    async def _audit_due(self, due: "list[DiskEnd]") -> float:
        """All for a short time together, however many they are. Then those to which nothing has
        come meanwhile to their ends: their streams are at rest. How long to rest then."""
        behind, readings = [], []

        async def audit(end: DiskEnd) -> None:
            if await end.audit_a_while(FOLLOW_SECONDS / len(due), self._audits.do):
                behind.append(end)
            else:
                readings.append(end.reading)

        await _in_groups(due, audit)
        for end in behind:
            await end.audit()
        if not due:
            return AUDIT_SECONDS * AUDIT_REST
        return rest_seconds(Reading.of_round(readings), AUDIT_SECONDS)

    def _each(self) -> Iterator[tuple[int, DiskEnd]]:
        """Every queue that is not closed meanwhile, with a number."""
        for nth, (queue, end) in enumerate(self._ends.copy().items(), 1):
            if queue in self._ends:
                yield nth, end

    async def _scrub_all(self, bytes_per_s: int, scope: trio.CancelScope) -> None:
        """One queue after the other, each as a whole."""
        with scope:
            while True:
                for queue, end in self._ends.copy().items():
                    while queue in self._ends and (count := await end.scrub_a_while()) is not None:
                        await trio.sleep(max(count / bytes_per_s, SCRUB_SECONDS))
                await trio.sleep(LOOK_SECONDS)

    async def _sync_all(self, *, is_last: bool = False) -> None:
        """Syncs the queues that are due, but for those that are synced at once by tasks of their
        own. Reading behind the stream has its own time. How far that was is written down with the
        looks: with each sync only where a look finds more, and at the end."""
        due = [end for _, end in self._each() if end.is_dirty or (is_last and end.has_to_save)]

        async def sync(end: DiskEnd) -> None:
            if end.is_dirty and (is_last or not end.is_at_once):
                await end.sync(self._syncs.do)
                if is_last:
                    await end.audit_a_while(FOLLOW_SECONDS / len(due), self._syncs.do)
            if is_last or end.has_news_to_look_at:
                await end.look(self._syncs.do, LOOK_READ_SECONDS / len(due))

        await _in_groups(due, sync)


async def _sync_at_once(end: DiskEnd, at_work: set[DiskEnd]) -> None:
    """While there is anything to sync. What comes during a sync goes with the next one."""
    try:
        while end.is_at_once and end.is_dirty:
            await end.sync()
            if end.is_dirty and end.is_hindered:
                await trio.sleep(SYNC_SECONDS)  # it is tried again, and not all the time
    finally:
        at_work.remove(end)


async def _in_groups(ends: Sequence[DiskEnd], work: Callable[[DiskEnd], Awaitable[None]]) -> None:
    """Works on so many at once as go into a thread together."""
    for at in range(0, len(ends), GROUP_QUEUES):
        async with trio.open_nursery() as nursery:
            for end in ends[at : at + GROUP_QUEUES]:
                nursery.start_soon(work, end)


async def _turn_for_others(nth: int) -> None:
    """Lets other tasks run after so many queues."""
    if nth % TURN_QUEUES == 0:
        await trio.lowlevel.checkpoint()
