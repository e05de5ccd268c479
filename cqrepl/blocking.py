"""A host in a program that has no event loop: a thread of its own runs it, any thread uses it.

    with cqrepl.blocking.Host(settings) as host:
        orders = host.queue("orders")
        orders.wait_acked(orders.append(b"buy 100"), timeout=10)

An append is made by the thread that calls, and a wait sleeps at the board of the queue: neither
goes through the host's thread. What goes wrong there comes out where the host is used next, and
where its block ends.
"""

import errno
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

import trio

from cqrepl.cluster.promotion import Promotion
from cqrepl.host import Host as TrioHost
from cqrepl.net.eventloop import is_in_asyncio
from cqrepl.net.program import Program, programs_of
from cqrepl.net.threads import NoThread
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.replicator.hostend import Kept, ended_by, is_only_told, told_beside
from cqrepl.replicator.hostevents import HostEvents, events_of
from cqrepl.replicator.hostqueue import HostQueue, OuterQueue, check_alone
from cqrepl.replicator.leadership import AckOutcome, Appended, Leading
from cqrepl.replicator.marks.ackboard import AckBoard, WaitEnded
from cqrepl.replicator.openedqueue import OpenedQueue, Payload
from cqrepl.replicator.queueposition import QueuePosition
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.settings import HostSettings, settings_of_host
from cqrepl.surroundings import NO_THREAD, begun, surroundings

__all__ = ["BlockingHost", "BlockingQueue", "Host"]


class BlockingHost:
    """A host that runs for the length of a `with` block, then ends in order.

    Args:
        settings: as for `cqrepl.Host`.
        program: adds handlers of its own to the connections; called in the host's thread.
        programs: several that do; instead of `program`.
        events: what is called when something has changed, in a thread of its own.

    Raises:
        QueueError, Refused, Unreachable, ValueError: when it is entered, as `cqrepl.Host`.
        OSError: when it is entered, and there is no thread to be had; it may be tried again.
        RuntimeError: it is entered again, or in an event loop, which it would hold up; and where it
            is used before its block, or in a process that was forked.
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
        self._process: int | None = None  # that of its thread
        self._thread = threading.Thread(target=self._run, name="cqrepl host", daemon=True)
        self._begun = threading.Event()  # or it never will
        self._over = threading.Event()
        self._host: TrioHost | None = None
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope: Final = trio.CancelScope()
        self._end: Final = trio.Event()
        self._is_cancelled = False

    def __enter__(self) -> Self:
        _check_in_no_loop()
        if self._process is not None:
            raise RuntimeError("a host runs once: make another one")
        self._process = surroundings().process_id()
        if not begun(self._thread):
            self._process = None
            raise NoThread(errno.EAGAIN, NO_THREAD)
        try:
            self._begun.wait()
        except BaseException:
            self._cancel()
            self._join()
            raise
        if self._host is None:
            self._join()
            raise self._failure or ended_by(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_elsewhere:  # nothing of it is here that could be ended
            return
        if error is None:
            self._soon(self._end.set)
        else:
            self._cancel()
        self._join()
        if self._failure is None:
            return
        if error is None or is_only_told(error, self._failure):
            raise self._failure from None
        told_beside(error, self._failure)

    @property
    def port(self) -> int | None:
        """The port listened on; None for a host that only dials."""
        return self._running().port

    @property
    def stops(self) -> list[Stop]:
        """The queues that have stopped, whichever way they go."""
        return self._running().stops

    def queue(self, name: str | None = None) -> "BlockingQueue":
        """One of its queues; see `cqrepl.Host.queue`."""
        return BlockingQueue(self, self._running().queue(name))

    def position(self, name: str) -> QueuePosition:
        """The position of this host's copy of a queue; see `cqrepl.Host.position`."""
        _check_in_no_loop()
        found: list[QueuePosition] = []

        async def look() -> None:
            found.append(host.position(name))

        host = self._running()
        self._call(look, None)
        return found[0]

    def promote(self, name: str, *, accept_loss: bool = False) -> Promotion:
        """Makes this host the leader of a queue; see `cqrepl.Host.promote`."""
        _check_in_no_loop()
        done: list[Promotion] = []

        async def promote() -> None:
            done.append(await host.promote(name, accept_loss=accept_loss))

        host = self._running()
        self._call(promote, None)
        return done[0]

    def step_down(self, name: str, why: str) -> None:
        """Gives up the lead of a queue; see `cqrepl.Host.step_down`."""
        _check_in_no_loop()
        self._call(partial(self._running().step_down, name, why), None)

    def wait_stopped(self, timeout: float | None = None) -> None:
        """Returns when every queue has stopped.

        Args:
            timeout: in seconds; None for no limit.

        Raises:
            TimeoutError: some queue goes on.
            HostEnded: the host has ended meanwhile.
        """
        _check_in_no_loop()
        self._call(self._running().wait_stopped, timeout)

    def check(self) -> None:
        """Does nothing while the host runs.

        Raises:
            HostEnded, RuntimeError: as the class has it.
        """
        if self._process is None:
            raise RuntimeError("this host does not run yet: `with` begins it")
        if self._is_elsewhere:
            raise RuntimeError("this host runs in the process that was forked: make one here")
        if self._over.is_set():
            raise ended_by(self._failure)

    def told(self, ended: WaitEnded) -> Exception:
        """The error to raise for a wait that has ended: what has ended the host, if anything."""
        assert self._host is not None
        if self._host.has_ended:  # it may be over by now, too: the wait had begun before
            self._over.wait()
        return ended if self._failure is None else ended_by(self._failure)

    @property
    def _is_elsewhere(self) -> bool:
        return self._process != surroundings().process_id()

    def _running(self) -> TrioHost:
        self.check()
        assert self._host is not None
        return self._host

    def _run(self) -> None:
        with Kept() as kept:
            trio.run(self._serve)
        self._failure = kept.error
        self._over.set()
        self._begun.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            if self._is_cancelled:  # before there was a token
                return
            async with TrioHost(
                self.settings, programs=self._programs, events=self._events
            ) as host:
                self._host = host
                self._begun.set()
                await self._end.wait()

    def _call(self, work: Callable[[], Awaitable[None]], timeout: float | None) -> None:
        async def limited() -> bool:
            with trio.move_on_after(float("inf") if timeout is None else timeout) as limit:
                await work()
            return not limit.cancelled_caught

        try:
            is_done = trio.from_thread.run(limited, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            self._over.wait()
            raise ended_by(self._failure) from self._failure
        if not is_done:
            raise TimeoutError(f"not within {timeout} s")

    def _soon(self, work: Callable[[], object]) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # that is what was wanted
                self._token.run_sync_soon(work)

    def _cancel(self) -> None:
        self._is_cancelled = True
        self._soon(self._scope.cancel)

    def _join(self) -> None:
        """Waits for the thread; what interrupts that hurries it, and goes on from here."""
        try:
            self._thread.join()
        except BaseException:
            self._cancel()
            self._thread.join()
            raise


class BlockingQueue(OuterQueue):
    """One queue of a running host, for threads; made by `BlockingHost.queue`.

    Attributes:
        name: its name on the wire.
    """

    def __init__(self, host: BlockingHost, queue: HostQueue) -> None:
        super().__init__(queue)
        self._host = host

    @property
    def board(self) -> AckBoard:
        """The board that tells how far each sink is; `Refused` for a queue that is taken in."""
        self._host.check()
        return self._queue.board

    @property
    def leading(self) -> Leading:
        """Appends and waits as a policy says; `Refused` for a queue that is taken in."""
        self._host.check()
        return self._queue.leading

    def open(self) -> OpenedQueue:
        """The queue as a `cqrepl.Queue`, for threads, which close it: its `append` and
        `append_many` do as those here, and take a policy.

        Raises:
            NotAQueue, QueueDamaged: as `Queue.open`.
            HostEnded, RuntimeError: the host has ended, or is another process's.
        """
        self._host.check()
        return OpenedQueue.of(self.path, self._append_here)

    def append(
        self, payload: Payload, *, now_ms: int | None = None, policy: AckPolicy | None = None
    ) -> Appended:
        """Appends one excerpt; its index. See `append_many`."""
        return self.append_many([payload], now_ms=now_ms, policy=policy)

    def append_many(
        self,
        payloads: Sequence[Payload],
        *,
        now_ms: int | None = None,
        policy: AckPolicy | None = None,
    ) -> Appended:
        """Appends excerpts under one lock, and waits until a policy calls them safe; the index of
        the last, and how the wait has ended. From any thread.

        Args:
            now_ms: what decides the cycle, milliseconds since 1970; by default the clock's time.
            policy: as for `cqrepl.HostQueue.append_many`.

        Raises:
            Refused: the queue is taken in; with a policy also, it is not open yet.
            HostEnded, RuntimeError: the host has ended, or is another process's.
            QueueLocked, QueueError, OSError: as `Queue.append_many`.
            SteppedDown, AckUnknown, WaitEnded, RuntimeError, ValueError: as `Leading.append`.
        """
        return self._append_here(payloads, now_ms, policy)

    def _append_here(
        self, payloads: Sequence[Payload], now_ms: int | None, policy: AckPolicy | None
    ) -> Appended:
        self._host.check()
        try:
            return self._queue.append_here(payloads, now_ms, policy)
        except WaitEnded as ended:
            told = self._host.told(ended)
            raise told from told.__cause__

    def wait_acked(
        self,
        index: int,
        n: int | None = None,
        timeout: float | None = None,
        *,
        hosts: Iterable[int] | None = None,
        policy: AckPolicy | None = None,
    ) -> AckOutcome:
        """Returns when everything up to `index` is safe.

        Args:
            n, hosts: so many hosts, of these, are to have acknowledged it; as `AckBoard.wait`.
            timeout: in seconds; None for that of the policy, and for no limit without one.
            policy: instead of `n` and `hosts`, when it counts as safe; as `Leading.wait`. With none
                of the three it is the policy that the queue was given, if it was given one.

        Raises:
            HostEnded: the host has ended, in other ways than in order.
            AckUnknown: as `Leading.wait`.
            ValueError: a policy beside a number of hosts or their ids; or as `AckBoard.wait`.
            Refused, TimeoutError, WaitEnded, RuntimeError: as `AckBoard.wait`.
        """
        check_alone(policy, n, hosts)
        try:
            policy = policy or self._queue.waited_for(n, hosts)
            leading = self.leading
            if policy is not None:
                return leading.wait(index, policy, timeout)
            return leading.wait_hosts_here(index, 1 if n is None else n, timeout, hosts=hosts)
        except WaitEnded as ended:
            told = self._host.told(ended)
            raise told from told.__cause__


def _check_in_no_loop() -> None:
    for is_in, instead in (
        (trio.lowlevel.in_trio_task, "cqrepl.Host"),
        (is_in_asyncio, "cqrepl.aio.Host"),
    ):
        if is_in():
            raise RuntimeError(
                f"cqrepl.blocking would hold up the event loop: here it is {instead}"
            )


Host = BlockingHost
