"""A queue of a running host, as a program that embeds the host has it.

A program appends to what is streamed from here, and waits for who has it; what is taken in it can
only read. An append may take long: another process may hold the write lock, and the first one after
a power cut waits for a sink. So no task of the event loop does it itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cqrepl.net.errors import Refused
from cqrepl.net.threads import in_thread
from cqrepl.protocol.ackpolicy import AckPolicy, check_policy
from cqrepl.queue import QueueLocked
from cqrepl.replicator.fitness import WhyUnfit
from cqrepl.replicator.hostend import ended_by
from cqrepl.replicator.hostparts import HostParts
from cqrepl.replicator.leadership import AckOutcome, Appended, Leading
from cqrepl.replicator.marks.ackboard import AckBoard
from cqrepl.replicator.openedqueue import OpenedQueue, Payload
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue


def check_alone(policy: AckPolicy | None, n: int | None, hosts: Iterable[int] | None) -> None:
    """A policy says itself how many hosts are waited for, and which.

    Raises:
        ValueError: something else does so too.
        TypeError: it is no policy.
    """
    check_policy(policy)
    if policy is not None and (n is not None or hosts is not None):
        raise ValueError("expected a policy, or a number of hosts and their ids, got both")


class HostQueue:
    """One queue of a running host; made by `Host.queue`.

    Attributes:
        name: its name on the wire.
    """

    def __init__(self, host: HostParts, name: str) -> None:
        self.name = name
        self._host = host

    @property
    def is_streamed(self) -> bool:
        """True for a queue that is streamed from here; it is taken in otherwise."""
        return self.name in self._host.source.names and self.name not in self._host.sink.queues

    @property
    def path(self) -> Path:
        """Its directory; that of a queue that is taken in may not be there yet.

        Raises:
            Refused: the queue was removed from the host.
        """
        try:
            return self._host.path_of(self.name)
        except ValueError:
            raise Refused(self._no_source()) from None

    @property
    def board(self) -> AckBoard:
        """The board that tells how far each sink is; any thread may wait at it.

        Raises:
            Refused: the queue is taken in, or not open yet.
        """
        return self._streamed().board

    @property
    def leading(self) -> Leading:
        """Appends and waits as a policy says, from any thread.

        Raises:
            Refused: the queue is taken in, or not open yet.
        """
        return self._streamed().leading

    @property
    def given_policy(self) -> AckPolicy | None:
        """The queue's own policy, by a configuration or a program; None where it has none."""
        opened = self._host.source.queues.get(self.name)
        if opened is not None:
            return opened.leading.given
        return self._host.settings.source.policies.get(self.name)

    def committed_here(self) -> int | None:
        """The index up to which a queue that is streamed from here is as safe as its policy wants
        it; -1 for nothing. Where its appends wait for no host, every other host has it. None for a
        queue that is not streamed from here."""
        opened = self._host.source.queues.get(self.name)
        if opened is None or not self.is_streamed:
            return None
        leading = opened.leading
        if leading.given is not None and leading.given.hosts_min != 0:
            return leading.safe_index()
        marks, others = opened.board.marks, self._host.settings.protocol.remote_ids
        if others or marks:
            return min(marks.get(each, -1) for each in others or marks)
        return opened.queue.next_index() - 1

    @contextmanager
    def asking(self, why_unfit: WhyUnfit) -> Iterator[None]:
        """For the length of a block this host stands for election for the queue only while a
        service finds that it can serve.

        Args:
            why_unfit: gives the reason why it cannot, empty where it can, for the next index of
                this host's copy; for None, wherever the service is.
        """
        with self._host.fitness.asking(self.name, why_unfit):
            yield

    def waited_for(self, n: int | None, hosts: Iterable[int] | None) -> AckPolicy | None:
        """The queue's own policy, where a wait names neither a number of hosts nor their ids."""
        return self.given_policy if n is None and hosts is None else None

    def open(self) -> OpenedQueue:
        """The queue as a `cqrepl.Queue`, for threads of the program, which close it: its `append`
        and `append_many` wait as those here do, and take a policy.

        Raises:
            NotAQueue, QueueDamaged: as `Queue.open`.
            Refused: the queue was removed from the host.
        """
        return OpenedQueue.of(self.path, self.append_here)

    async def append(
        self, payload: Payload, *, now_ms: int | None = None, policy: AckPolicy | None = None
    ) -> Appended:
        """Appends one excerpt; its index. See `append_many`."""
        return await self.append_many([payload], now_ms=now_ms, policy=policy)

    async def append_many(
        self,
        payloads: Sequence[Payload],
        *,
        now_ms: int | None = None,
        policy: AckPolicy | None = None,
    ) -> Appended:
        """Appends excerpts under one lock, in a thread, and waits until a policy calls them safe;
        the index of the last, and how the wait has ended. A cancellation waits until they are
        appended.

        Args:
            now_ms: what decides the cycle, milliseconds since 1970; by default the clock's time.
            policy: when they count as safe. None: as the policy says that the queue was given. If
                that has a window, only the window is waited for; if the queue was given none, no
                host is. A policy with a window waits first, for what was appended with such a one
                before.

        Raises:
            Refused: the queue is taken in; with a policy, its own one too, also: it is not open
                yet.
            RuntimeError: as `Leading.admit_task`.
            HostEnded: the host has ended.
            QueueLocked, QueueError, OSError: as `Queue.append_many`; or there is no thread to be
                had now, and nothing is appended.
            SteppedDown: a policy has had this host step down, now or before. What was appended
                stays.
            AckUnknown, WaitEnded, ValueError: as `Leading.append`.
        """
        leading = self._waited_with(policy)
        if leading is None:
            return Appended(await in_thread(partial(self._append, payloads, now_ms)))
        admitted = await leading.admit_task(len(payloads), policy)
        index = await in_thread(partial(self._append, payloads, now_ms, leading))
        appended = await leading.settle_task(index, len(payloads), policy, admitted)
        self._note_drained()
        return appended

    def append_here(
        self, payloads: Sequence[Payload], now_ms: int | None, policy: AckPolicy | None = None
    ) -> Appended:
        """The same in the thread that calls, which it may hold up."""
        leading = self._waited_with(policy)
        if leading is None:
            return Appended(self._append(payloads, now_ms))
        admitted = leading.admit(len(payloads), policy)
        index = self._append(payloads, now_ms, leading)
        return leading.settle(index, len(payloads), policy, admitted)

    async def wait_acked(
        self,
        index: int,
        n: int | None = None,
        *,
        hosts: Iterable[int] | None = None,
        policy: AckPolicy | None = None,
    ) -> AckOutcome:
        """Returns when everything up to `index` is safe. A time limit is a cancel scope.

        Args:
            n: so many hosts are to have acknowledged it, without limit; None: one.
            hosts: ids of those that count; None: all.
            policy: instead of both, when it counts as safe, and how long that is waited for. With
                none of the three it is the policy that the queue was given, if it was given one.

        Raises:
            Refused: the queue is taken in.
            AckUnknown: the time of the policy is over, and it says `fail`.
            ValueError: a policy beside a number of hosts or their ids; or as `AckBoard.wait`.
            WaitEnded: as `AckBoard.wait`.
        """
        check_alone(policy, n, hosts)
        policy = policy or self.waited_for(n, hosts)
        if policy is None:
            outcome = await self.leading.wait_hosts(index, 1 if n is None else n, hosts=hosts)
        else:
            outcome = await self.leading.wait_acked(index, policy)
        self._note_drained()
        return outcome

    def applied(self, index: int) -> None:
        """A program here has taken everything up to `index` of a queue that is taken in: its source
        is told, and what waits there for `applied` goes on. From any thread.

        Raises:
            Refused: the queue is streamed from here.
            HostEnded: the host has ended.
        """
        if self._host.has_ended:
            raise ended_by(None)
        try:
            self._host.sink.applied(index, self.name)
        except ValueError:
            if self.name in self._host.sink.queues:  # it is no index
                raise
            raise Refused(self._no_sink()) from None

    def _waited_with(self, policy: AckPolicy | None) -> Leading | None:
        """The `Leading` that an append waits with; None where it waits for no host, as the queue
        was given no policy.

        Raises:
            Refused: the queue is taken in, or not open yet.
        """
        return None if policy is None and self.given_policy is None else self.leading

    def _append(
        self, payloads: Sequence[Payload], now_ms: int | None, leading: Leading | None = None
    ) -> int:
        """Appends, and gives the last index.

        Args:
            leading: that the append was admitted by; None for none.
        """
        leading = leading or self._check_streamed()
        try:
            writer = self._host.writer(self.name, self._check_streamed)
            return writer.append(payloads, now_ms)
        except (QueueLocked, Refused):
            if leading is not None:
                leading.check_leads()  # another host has come to lead meanwhile
            raise

    def _streamed(self) -> SourceQueue:
        """The queue as it is streamed; looked up once, as it may go another way in between.

        Raises:
            Refused: the queue is taken in, or not open yet.
        """
        opened = self._host.source.queues.get(self.name)
        if opened is None:
            raise Refused(self._no_source())
        return opened

    def _check_streamed(self) -> Leading | None:
        """Does nothing while the queue is streamed from here; None while it is not open yet.

        Raises:
            SteppedDown: another host leads.
            Refused: the queue is not streamed from here.
        """
        if not self.is_streamed:
            raise Refused(self._no_source())
        opened = self._host.source.queues.get(self.name)
        if opened is None:
            return None
        opened.leading.check_leads()
        return opened.leading

    def _note_drained(self) -> None:
        """Raises Java's marks: what was waited for is there."""
        opened = self._host.source.queues.get(self.name)
        if opened is not None:
            opened.counters.drained()

    def _no_sink(self) -> str:
        if self.is_streamed:
            return f"queue {self.name!r} is streamed from here: applied is what takes it in"
        return self._no_source()

    def _no_source(self) -> str:
        late = self._host.source.late.get(self.name)
        if late is not None:
            return f"queue {self.name!r} is not open yet: {late.message}"
        if self.name not in self._host.sink.queues:
            if self._host.has_queue(self.name):
                return f"queue {self.name!r} is on its way to go another way"
            return f"queue {self.name!r} is neither streamed from here nor taken in"
        return f"queue {self.name!r} is taken in here: only the host that streams it appends to it"


class OuterQueue:
    """The same for code outside of the host's event loop.

    Attributes:
        name: its name on the wire.
    """

    def __init__(self, queue: HostQueue) -> None:
        self.name = queue.name
        self._queue = queue

    @property
    def is_streamed(self) -> bool:
        """True for a queue that is streamed from here; it is taken in otherwise."""
        return self._queue.is_streamed

    @property
    def path(self) -> Path:
        """Its directory; that of a queue that is taken in may not be there yet."""
        return self._queue.path

    def open(self) -> OpenedQueue:
        """The queue as a `cqrepl.Queue`, for threads of the program; as `cqrepl.HostQueue.open`."""
        return self._queue.open()

    def applied(self, index: int) -> None:
        """A program here has taken everything up to `index` of a queue that is taken in; see
        `cqrepl.HostQueue.applied`."""
        self._queue.applied(index)
