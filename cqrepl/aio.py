"""A host for users of asyncio: trio runs as a guest inside their event loop.

    async with cqrepl.aio.Host(settings) as host:
        orders = host.queue("orders")
        await orders.wait_acked(await orders.append(b"buy 100"))

All hosts of an event loop share one guest run, which begins with the first and ends with the last:
a thread has one run of trio at a time. A call from asyncio runs as a task of trio; its cancellation
cancels that task and waits for it, and what the task raises is raised here. A host that fails
cancels the task whose block it is, and the failure is raised at the end of the block.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import trio

from cqrepl.cluster.promotion import Promotion
from cqrepl.host import Host as TrioHost
from cqrepl.net.eventloop import is_in_asyncio
from cqrepl.net.program import Program, programs_of
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.queue.read.namedtailer import NamedTailer
from cqrepl.queue.read.pauser import Pauser
from cqrepl.queue.read.tailer import Tailer
from cqrepl.queue.read.typeddocuments import FollowedDocuments, OnMisfit
from cqrepl.replicator.follow import Following
from cqrepl.replicator.hostend import HostEnded, Kept, ended_by, is_only_told, told_beside
from cqrepl.replicator.hostevents import HostEvents, events_of
from cqrepl.replicator.hostqueue import HostQueue, OuterQueue
from cqrepl.replicator.leadership import AckOutcome, Appended, Leading
from cqrepl.replicator.marks.ackboard import AckBoard, WaitEnded
from cqrepl.replicator.openedqueue import Payload
from cqrepl.replicator.queueposition import QueuePosition
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.settings import HostSettings, settings_of_host
from wire.objects.documents import encode

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["AsyncioHost", "AsyncioQueue", "Host", "documents", "follow"]

M = TypeVar("M", bound="DataclassInstance")

Result = TypeVar("Result")
_guests: Final[dict[asyncio.AbstractEventLoop, "_Guest"]] = {}


class _Guest:
    """The run of trio inside one event loop; ends when no host uses it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.users = 0
        self.is_ending = False
        self.done: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._begun: asyncio.Future[None] = loop.create_future()
        self._end = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    @classmethod
    async def enter(cls) -> "_Guest":
        """The run inside the event loop that runs here, which has one user more now."""
        loop = asyncio.get_running_loop()
        while (guest := _guests.get(loop)) is not None and guest.is_ending:
            await asyncio.wait([guest.done])
        if guest is None:
            guest = _guests[loop] = cls(loop)
            guest._start()
        guest.users += 1
        try:
            await asyncio.wait([guest._begun])
        except BaseException:
            guest.leave()
            if guest.is_ending:  # the loop may end behind this
                await settled(guest.done, lambda: None)
            raise
        return guest

    def leave(self) -> None:
        """One user less; see `done`."""
        self.users -= 1
        if self.users == 0:
            self.is_ending = True
            self.soon(self._end.set)

    def soon(self, work: Callable[..., object], *args: Any) -> None:
        """Calls this in the run of trio."""
        if self._token is None:
            self._begun.add_done_callback(lambda _: self.soon(work, *args))
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(work, *args)

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs this as a task of trio; it must raise nothing but trio's cancellation."""

        def begin() -> None:
            assert self._nursery is not None
            self._nursery.start_soon(work)

        self.soon(begin)

    async def call(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Runs this as a task of trio; gives or raises what it does."""
        answer: asyncio.Future[Result] = self._loop.create_future()
        scope = trio.CancelScope()

        async def run() -> None:
            kept = Kept()
            try:
                with kept, scope:
                    answer.set_result(await work())
            finally:
                if not answer.done():  # that of a call which was cancelled is not looked at
                    answer.set_exception(kept.error or ended_by(None))

        self.start(run)
        is_cancelled = await settled(answer, lambda: self.soon(scope.cancel))
        if is_cancelled:
            answer.exception()  # it is not missed
            raise asyncio.CancelledError
        return answer.result()

    def _start(self) -> None:
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            done_callback=self._finished,
            host_uses_signal_set_wakeup_fd=True,
        )

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._begun.set_result(None)
            await self._end.wait()
            nursery.cancel_scope.cancel()

    def _finished(self, outcome: Any) -> None:
        _guests.pop(self._loop, None)
        for future in (self._begun, self.done):
            if not future.done():
                future.set_result(None)
        outcome.unwrap()  # a fault of our own is the loop's to tell


async def settled(future: asyncio.Future[Any], hurry: Callable[[], object]) -> bool:
    """Waits until it is done, whatever happens meanwhile; true if the task was cancelled.

    Args:
        hurry: called for a cancellation.
    """
    is_cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            is_cancelled = True
            hurry()
    return is_cancelled


class AsyncioHost:
    """A host that runs for the length of an `async with` block, then ends in order.

    Args:
        settings: as for `cqrepl.Host`.
        program: adds handlers of its own to the connections. Its coroutines are trio's.
        programs: several that do; instead of `program`.
        events: what is called when something has changed, in a thread of its own; one or several.

    Raises:
        QueueError, Refused, Unreachable, ValueError: when it is entered, as `cqrepl.Host`.
        RuntimeError: it is entered again, or not in asyncio; or it is used before its block.
        HostEnded: it is used after its end.
    """

    def __init__(
        self,
        settings: HostSettings,
        *,
        program: Program | None = None,
        programs: Iterable[Program] = (),
        events: HostEvents | Iterable[HostEvents] | None = None,
    ) -> None:
        self.settings = settings_of_host(settings)
        self._programs = programs_of(program, programs)
        self._events = events_of(events)
        self._guest: _Guest | None = None
        self._host: TrioHost | None = None
        self._failure: BaseException | None = None
        self._scope: Final = trio.CancelScope()
        self._end: Final = trio.Event()
        self._owner: asyncio.Task[Any] | None = None  # while its block runs
        self._has_cancelled = False
        self._cancelling = 0  # requests that the owner had before

    async def __aenter__(self) -> Self:
        if not is_in_asyncio():
            instead = "cqrepl.Host" if trio.lowlevel.in_trio_task() else "cqrepl.blocking.Host"
            raise RuntimeError(f"cqrepl.aio is for asyncio, this is none: here it is {instead}")
        if self._guest is not None:
            raise RuntimeError("a host runs once: make another one")
        self._guest = await _Guest.enter()
        loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        self._guest.start(self._serve)
        is_cancelled = await settled(self._begun, self._cancel)
        if is_cancelled or self._host is None:
            self._cancel()
            is_cancelled |= await self._left()
            if is_cancelled:
                raise asyncio.CancelledError
            raise self._failure or ended_by(None)
        self._owner = asyncio.current_task()
        assert self._owner is not None
        self._cancelling = self._owner.cancelling()
        if self._over.done():  # between its begin and now
            self._cancel_owner()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        owner, self._owner = self._owner, None
        assert owner is not None
        assert self._guest is not None
        if error is None:
            self._guest.soon(self._end.set)
        else:
            self._cancel()
        is_cancelled = await self._left()
        failure = self._failure
        if self._has_cancelled:
            is_ours = owner.uncancel() <= self._cancelling
            if is_ours and failure is not None and isinstance(error, asyncio.CancelledError):
                raise failure from None
        if is_cancelled and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError
        if failure is None:
            return
        if error is None or is_only_told(error, failure):
            raise failure from None
        told_beside(error, failure)

    @property
    def port(self) -> int | None:
        """The port listened on; None for a host that only dials."""
        return self._running().port

    @property
    def stops(self) -> list[Stop]:
        """The queues that have stopped, whichever way they go."""
        return self._running().stops

    def queue(self, name: str | None = None) -> "AsyncioQueue":
        """One of its queues; see `cqrepl.Host.queue`."""
        return AsyncioQueue(self, self._running().queue(name))

    def position(self, name: str) -> QueuePosition:
        """The position of this host's copy of a queue; see `cqrepl.Host.position`."""
        return self._running().position(name)

    async def promote(self, name: str, *, accept_loss: bool = False) -> Promotion:
        """Makes this host the leader of a queue; see `cqrepl.Host.promote`."""
        promote = partial(self._running().promote, name, accept_loss=accept_loss)
        return await self.call(promote)

    async def step_down(self, name: str, why: str) -> None:
        """Gives up the lead of a queue; see `cqrepl.Host.step_down`."""
        await self.call(partial(self._running().step_down, name, why))

    async def wait_stopped(self) -> None:
        """Returns when every queue has stopped.

        Raises:
            HostEnded: the host has ended meanwhile.
        """
        await self.call(self._running().wait_stopped)

    async def call(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Runs a function for trio beside the host; gives or raises what it does.

        Raises:
            HostEnded: the host has ended.
        """
        host = self._running()
        assert self._guest is not None
        try:
            return await self._guest.call(work)
        except (HostEnded, WaitEnded):
            if host.has_ended:  # then why is known in a moment
                await asyncio.wait([self._over])
            if self._failure is None:
                raise
            raise ended_by(self._failure) from self._failure

    def _running(self) -> TrioHost:
        if self._guest is None:
            raise RuntimeError("this host does not run yet: `async with` begins it")
        if self._host is None or self._over.done():
            raise ended_by(self._failure)
        return self._host

    async def _serve(self) -> None:
        """Runs the host, as a task of trio."""
        kept = Kept()
        try:
            with kept, self._scope:
                async with TrioHost(
                    self.settings, programs=self._programs, events=self._events
                ) as host:
                    self._host = host
                    self._begun.set_result(None)
                    await self._end.wait()
        finally:
            self._failure = kept.error
            for future in (self._over, self._begun):
                if not future.done():
                    future.set_result(None)
            if self._owner is not None:
                self._cancel_owner()

    def _cancel_owner(self) -> None:
        assert self._owner is not None
        self._has_cancelled = True
        self._owner.cancel()

    def _cancel(self) -> None:
        assert self._guest is not None
        self._guest.soon(self._scope.cancel)

    async def _left(self) -> bool:
        """Waits for the end of the host, and of the run of trio after the last one; true if the
        task was cancelled meanwhile."""
        assert self._guest is not None
        is_cancelled = await settled(self._over, self._cancel)
        self._guest.leave()
        if self._guest.is_ending:
            is_cancelled |= await settled(self._guest.done, lambda: None)
        return is_cancelled


class AsyncioQueue(OuterQueue):
    """One queue of a running host, for asyncio; made by `AsyncioHost.queue`.

    Attributes:
        name: its name on the wire.
    """

    def __init__(self, host: AsyncioHost, queue: HostQueue) -> None:
        super().__init__(queue)
        self._host = host

    @property
    def board(self) -> AckBoard:
        """The board that tells how far each sink is, and at which threads wait; `Refused` for a
        queue that is taken in."""
        return self._queue.board

    @property
    def leading(self) -> Leading:
        """Appends and waits as a policy says, in threads of the program; `Refused` for a queue that
        is taken in."""
        return self._queue.leading

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
            policy: as for `cqrepl.HostQueue.append_many`.

        Raises:
            Refused: the queue is taken in; with a policy also, it is not open yet.
            HostEnded: the host has ended.
            QueueLocked, QueueError, OSError: as `Queue.append_many`.
            SteppedDown, AckUnknown, WaitEnded, ValueError: as `cqrepl.HostQueue.append_many`.
        """
        return await self._host.call(
            lambda: self._queue.append_many(payloads, now_ms=now_ms, policy=policy)
        )

    async def append_document(
        self, message: object, *, now_ms: int | None = None, policy: AckPolicy | None = None
    ) -> Appended:
        """Appends a message; its index. See `append_documents`."""
        return await self.append_documents([message], now_ms=now_ms, policy=policy)

    async def append_documents(
        self,
        messages: Iterable[object],
        *,
        now_ms: int | None = None,
        policy: AckPolicy | None = None,
    ) -> Appended:
        """Appends messages as `Queue.append_documents` lays them out, and waits as `append_many`.

        Raises:
            TypeError, ValueError: a message has no form on the wire. Nothing was appended.
            and as `append_many`.
        """
        payloads = [encode(message) for message in messages]
        return await self.append_many(payloads, now_ms=now_ms, policy=policy)

    async def wait_acked(
        self,
        index: int,
        n: int | None = None,
        *,
        hosts: Iterable[int] | None = None,
        policy: AckPolicy | None = None,
    ) -> AckOutcome:
        """Returns when everything up to `index` is safe. A time limit is `asyncio.timeout`.

        Args:
            n, hosts, policy: as for `cqrepl.HostQueue.wait_acked`.

        Raises:
            HostEnded: the host has ended.
            Refused, AckUnknown, WaitEnded, ValueError: as `cqrepl.HostQueue.wait_acked`.
        """
        return await self._host.call(
            lambda: self._queue.wait_acked(index, n, hosts=hosts, policy=policy)
        )


Host = AsyncioHost


def follow(tailer: Tailer | NamedTailer, pauser: Pauser | None = None) -> Following:
    """`cqrepl.follow` for asyncio: the excerpts that are there, then those to come, for ever;
    cancel it to end it. It needs no host.

    An excerpt's data is valid until the next one is asked for.
    """
    return Following(tailer, pauser, asyncio.sleep, _check_loop)


def documents(
    tailer: Tailer | NamedTailer,
    *kinds: type[M],
    pauser: Pauser | None = None,
    on_misfit: OnMisfit | None = None,
) -> FollowedDocuments[M]:
    """`Tailer.documents` for asyncio: the messages that are there, then those to come, for ever;
    cancel it to end it. It needs no host.

    Args:
        kinds, on_misfit: as for `Tailer.documents`.

    Raises:
        TypeError: these classes cannot be read.
    """
    return FollowedDocuments(follow(tailer, pauser), kinds, on_misfit)


def _check_loop() -> None:
    """Raises RuntimeError where no event loop of asyncio runs this."""
    if not is_in_asyncio():
        raise RuntimeError("cqrepl.aio.follow is for a task of asyncio, none runs here")
