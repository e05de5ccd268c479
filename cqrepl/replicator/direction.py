"""Turns the queues of one host round: from what it streams to what it takes in, and back.

Theory of operation. A queue is at each moment the source's, the sink's, or on its way. On its way
from the source to the sink the append lock of the queue is held without a break (`AppendFence`): it
is taken before the source lets go, and given to the sink, which keeps it. On the way back the sink
lets go first, with all of it on the disk. Once one half has begun to let go, nothing cancels what
is left of the way: a queue that neither half has would be lost to the program until a restart.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Set
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import trio

from cqrepl.net.errors import Refused
from cqrepl.net.threads import in_thread
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.epochs import NUMBER_MAX, Epoch, Epochs, History
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.marks.hostmarks import NOTHING_SENT
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.ownwriters import OwnWriters
from cqrepl.replicator.queuestate.appendfence import AppendFence
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from cqrepl.surroundings import surroundings

HAND_OVER_SECONDS: Final = 10.0  # for the other host to be ready, when a queue changes its master
LOOK_SECONDS: Final = 0.05  # between two looks for that
_logger: Final = logging.getLogger(__name__)


class Direction:
    """Turns queues round; the caller holds the turn of the queue.

    Args:
        writers: the appenders of the program.
    """

    def __init__(self, source: Source, sink: Sink, writers: OwnWriters) -> None:
        self._source = source
        self._sink = sink
        self._writers = writers
        self._changing = 0  # blocks that are at it
        self._turns: dict[str, trio.Lock] = {}
        self._given_to: dict[str, int] = {}  # hosts, by the queues that are on their way there

    @property
    def is_changing(self) -> bool:
        """True while a queue comes, goes, or is on its way."""
        return bool(self._changing)

    def turn(self, name: str) -> trio.Lock:
        """Is held while something is done about one queue, by the operator or as another host asks
        for a promise: one thing after the other."""
        return self._turns.setdefault(name, trio.Lock())

    @contextmanager
    def changing(self) -> Iterator[None]:
        """For the length of a block queues come and go. Connections stay: each has both directions
        from its start. Where queues go another way afterwards, peers are left that know of no end
        of a queue, as Java's: they come again."""
        before = self._kind
        self._changing += 1
        try:
            yield
        finally:
            self._changing -= 1
            self._source.look()
            self._sink.changed.set()
            if self._kind != before:
                self._source.endpoint.renew_fixed("its queues go other ways now")

    @property
    def _kind(self) -> tuple[bool, bool]:
        return bool(self._source.names), bool(self._sink.queues)

    async def close_writer(self, name: str, why: str) -> None:
        """The program appends nothing more to a queue, and hears why."""
        writer = self._writers.take(name)
        if writer is not None:
            await in_thread(partial(writer.close, f"queue {name!r}: {why}"))

    async def hand_over(self, name: str, master_id: int) -> None:
        """Gives a queue that is streamed to another host, where no epoch says who leads it: once
        that host is connected and has all of it, and no writer of this machine gets in any more.

        Raises:
            Refused: that is not so within `HAND_OVER_SECONDS`; the queue is streamed as before.
            QueueError, OSError: writers cannot be kept out, or what it knows of its leaders may not
                be on the disk; it is streamed as before.
        """
        queue = self._source.queues[name]
        # appends go on meanwhile
        if not await self.until_so(lambda: self._is_connected(master_id)):
            raise Refused(f"queue {name!r} stays here: host {master_id} is away")
        with ExitStack() as stack:
            fence = await in_thread(partial(AppendFence, queue.path, queue.hold))
            stack.callback(fence.lift)
            if not await self.until_so(partial(self._source.has_all, name, master_id)):
                has = "has not all of it" if self._is_connected(master_id) else "is away"
                raise Refused(f"queue {name!r} stays here: host {master_id} {has}")
            # until it follows that one, this host is known to have streamed it last
            await in_thread(queue.epochs.note_streaming)
            stack.pop_all()
            await self._take_in(queue, f"host {master_id} is its master now", fence)

    async def take_over(self, name: str, master_id: int) -> None:
        """Streams a queue that is taken in, where no epoch says who leads it: once its old master
        is connected and takes it in.

        Raises:
            Refused: that is not so within `HAND_OVER_SECONDS`, or it has stopped; it is taken in as
                before.
            QueueError, OSError: it cannot be opened the other way; it is taken in as before.
        """
        queue = self._sink.queues[name]
        if queue.life.stop is not None:
            raise Refused(str(queue.life.stop))
        if not await self.until_so(partial(self.is_given_back, name, master_id)):
            is_there = self._is_connected(master_id)
            has = "has not given it back: reload there first" if is_there else "is not connected"
            raise Refused(f"queue {name!r} stays with host {master_id}, which {has}")
        # what the old master had last may come back from there
        await self._stream(queue, [master_id], lambda: None)

    async def step_down(
        self,
        queue: SourceQueue,
        epoch: int,
        leader: int,
        why: str = "",
        members: frozenset[int] = frozenset(),
        fence: AppendFence | None = None,
    ) -> None:
        """Promises a queue that is streamed to the host that leads in an epoch, and takes it in.

        Args:
            leader: this host where it gives up the lead by itself: it promises the next epoch to
                itself and does not begin it. So it leads again only in an epoch that is made for
                it, also after a restart; any other host may have that number (`KeptEpochs`).
            why: it leads no longer; empty: because that host leads.
            members: of the queue in that epoch; empty where they are not known.
            fence: stands before the queue already; it is the caller's where this fails.

        Raises:
            Fenced: the epoch, or a higher one, is promised to another host.
            QueueError, OSError: writers cannot be kept out, or the promise may not be on the disk;
                the queue is streamed as before.
        """
        with ExitStack() as stack:
            if fence is None:
                fence = await in_thread(partial(AppendFence, queue.path, queue.hold))
                stack.callback(fence.lift)
            with trio.CancelScope(shield=True):
                await in_thread(partial(queue.epochs.promise, epoch, leader, members))
                stack.pop_all()
                # one that the operator gives away goes on with its new master
                is_given = self._given_to.get(queue.name) == leader
                is_paused = queue.life.hold.reason is not None and not is_given
                leads = f"host {leader} leads it in epoch {epoch}"
                if leader == self._own:
                    leads = f"it is to lead in epoch {epoch}, which begins anew"
                why = why or leads
                await self._take_in(queue, why, fence, stays_paused=is_paused)

    @asynccontextmanager
    async def quiet(
        self, name: str, hosts: Set[int], others: Set[int], count: int
    ) -> AsyncIterator[AppendFence]:
        """For the length of a block no writer of this machine gets in; and at its begin copies have
        all of a queue that is streamed: each of some hosts, and so many of these others.

        Raises:
            Refused: that is not so within `HAND_OVER_SECONDS`.
            QueueError, OSError: writers cannot be kept out.
        """
        queue = self._source.queues[name]

        def having() -> Set[int]:
            return {each for each in hosts | others if self._source.has_all(name, each)}

        # appends go on until they are near
        await self.until_so(lambda: all(self._is_connected(each) for each in hosts))
        fence = await in_thread(partial(AppendFence, queue.path, queue.hold))
        try:
            if not await self.until_so(
                lambda: hosts <= having() and len(having() & others) >= count
            ):
                lacking = ", ".join(f"host {each}" for each in sorted((hosts | others) - having()))
                raise Refused(f"queue {name!r}: {lacking} has not all of it")
            yield fence
        finally:
            fence.lift()  # where it was not given on

    @contextmanager
    def giving(self, name: str, host_id: int) -> Iterator[None]:
        """For the length of a block the operator gives a queue to another host."""
        self._given_to[name] = host_id
        try:
            yield
        finally:
            self._given_to.pop(name, None)

    async def give_up(self, name: str, why: str) -> None:
        """This host gives up the lead of a queue by itself, and takes it in.

        Raises:
            Refused: it does not lead the queue.
            QueueError, OSError: as `step_down`; it leads as before.
        """
        queue, own = self._source.queues.get(name), self._own
        if queue is None or queue.copy is not None:
            known = self._sink.queues[name].epochs.now
        else:
            known = queue.epochs.now
        if queue is None or queue.copy is not None or not known.may_lead(own):
            raise Refused(f"queue {name!r}: this host does not lead it{_leader_of(known, own)}")
        if known.promised >= NUMBER_MAX:
            raise Refused(f"queue {name!r}: there is no epoch above {known.promised}")
        why = f"it gave up the lead, in epoch {known.promised}: {why}"
        await self.step_down(queue, known.promised + 1, own, why, known.members)
        _logger.info("queue %r: %s", name, why)

    async def _take_in(
        self, queue: SourceQueue, why: str, fence: AppendFence, *, stays_paused: bool = False
    ) -> None:
        """Takes a queue from the source, and takes it in. This host leads it no longer: the program
        hears so first, whatever comes of the rest.

        Args:
            fence: stands before the queue; it is not lifted.
            stays_paused: the copy is paused by hand, as the queue was. Not where the operator gives
                it away: the new master waits until this host names it as one that it takes in.
        """
        name = queue.name
        with self.changing(), ExitStack() as stack, trio.CancelScope(shield=True):
            stack.callback(fence.end)
            queue.leading.fence(why)
            for let_go in (self.close_writer, self._source.remove):
                await self._let_go(let_go, name, why)  # it leads no longer for all that
            await self._sink.take_in_again(name, queue.path, queue.epochs, fence)
            if stays_paused:
                await self._sink.pause(name)

    async def lead(
        self, queue: SinkQueue, epoch: Epoch, history: History, others: Iterable[int]
    ) -> None:
        """Begins an epoch that is promised to this host, and streams a queue that is taken in.

        Args:
            history: of what comes before the epoch.
            others: the hosts that may have what this one lacks, and give it back.

        Raises:
            Fenced: another epoch was promised meanwhile; the queue is taken in as before.
            QueueError, OSError: it cannot be opened, or what it holds or begins may not be on the
                disk; it is taken in as before.
        """
        begin = partial(queue.epochs.open, epoch.number, epoch.leader, epoch.start, history)
        # what a copy has that promised too late may come back from there
        await self._stream(queue, others, begin)

    async def stream_led(self, queue: SinkQueue) -> None:
        """Streams a queue that is taken in, and that this host leads by its epochs, as was not
        known until now."""
        with self.changing(), trio.CancelScope(shield=True):
            await self._let_go(self._sink.remove, queue.name)
            self._source.stream_again(queue.name, queue.path, queue.epochs)

    async def stream_anew(self, name: str, epochs: KeptEpochs) -> None:
        """Streams the queue that is in the directory of one that is streamed now: it is another
        directory than was opened.

        Args:
            epochs: of what is there now.

        Raises:
            QueueError, OSError: there is none that can be read; all is as before.
        """
        path, why = self._source.queues[name].path, "it is opened anew"
        Queue.open(path).close()  # none is made where it is gone, as it would be at a start
        with self.changing(), trio.CancelScope(shield=True):
            await self._let_go(self.close_writer, name, why)
            await self._let_go(self._source.remove, name, why)
            self._source.stream_again(name, path, epochs)

    async def _let_go(
        self, let_go: Callable[..., Awaitable[None]], name: str, *more: object
    ) -> None:
        """Takes a queue from the program or a half. What fails is logged: it goes all the same, or
        neither half would have it."""
        try:
            await let_go(name, *more)
        except (QueueError, OSError) as error:
            _logger.warning("queue %r: it was not closed in order: %s", name, error)

    async def _stream(
        self, queue: SinkQueue, givers: Iterable[int], begin: Callable[[], None]
    ) -> None:
        """Takes a queue from the sink, and streams it; as before where that cannot be done.

        Args:
            givers: hosts that may give back what this one lacks.
            begin: is called in a thread, when the queue is on the disk and closed.
        """
        name, path, epochs = queue.name, queue.path, queue.epochs
        with self.changing(), trio.CancelScope(shield=True):
            try:
                await self._sink.remove(name)  # it is on the disk then
                await in_thread(begin)
                streamed = self._source.open(name, path, epochs)
            except BaseException:
                await self._sink.take_in_again(name, path, epochs)
                await self._sink.follow(name, queue.master_id)
                raise
            for host_id in givers:
                streamed.marks_of(host_id).raise_sent(NOTHING_SENT)
            self._source.add(streamed)

    @property
    def _own(self) -> int:
        return self._source.endpoint.protocol.host_id

    def _is_connected(self, host_id: int) -> bool:
        return host_id in self._source.endpoint.connections

    def is_given_back(self, name: str, master_id: int) -> bool:
        """True where the old master is connected, and names the queue as one that it takes in: it
        has locked it by then."""
        connection = self._source.endpoint.connections.get(master_id)
        named = None if connection is None else connection[0].connection.peer_queues
        return named is not None and name in named.sinks

    async def until_so(self, is_so: Callable[[], bool]) -> bool:
        """Waits for at most `HAND_OVER_SECONDS` until something is so; whether it is."""
        with trio.move_on_after(surroundings().rarely("hand over", HAND_OVER_SECONDS, 0.01, 0.6)):
            while not is_so():
                await trio.sleep(LOOK_SECONDS)
        return is_so()


def _leader_of(known: Epochs, own: int) -> str:
    """Words that name the host that leads, or is to; none where this host knows of none."""
    if known.promised_to in (0, own):
        return ""
    epoch = f" in epoch {known.promised}" if known.promised else ""
    return f": host {known.promised_to} leads it{epoch}"
