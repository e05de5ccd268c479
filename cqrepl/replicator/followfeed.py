"""Feeds a service with all that a queue holds, in order, on each host that has a copy.

Theory of operation. A service keeps state that is made of the excerpts of one queue, a group's log:
the same excerpts in the same order make the same state on each host. The feed reads this host's
copy, whether the host leads the queue or follows, and calls the service: one call at a time, in a
thread, never in the event loop; in a laboratory in a task. So what a service does with an excerpt
is written once, and a host that comes to lead has the state already.

A copy may hold a tail that its leader never had. It goes to quarantine, and other excerpts come
under the same indexes. Then the state goes back (`rewind`) to the newest of these that is not above
the first index that went, and the feed goes on from there:

    what it has       where the service has taken nothing of the tail
    a checkpoint      of this host (`Checkpoints`)
    nothing           if the copy has the start of the queue
    a snapshot        of another host (`Checkpoints.fetch`)

On a host that follows the thread stays for a while where it has applied something, and looks for
more itself: the way through the event loop and back into a thread takes longer than most services
take for an excerpt, and what a leader waits for is that it was applied.

A tail is noticed by the store file that the feed reads: it has lost its name, and is in a folder of
`quarantine/` with a report (`queue.files.cutreports`). Folders that came while no file was open are
looked for too. What was applied is told to the source only once the file was looked at.
"""

import io
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol, TypeVar

import trio

from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.errors import Refused
from cqrepl.net.threads import in_thread
from cqrepl.net.wordwatch import word_watch
from cqrepl.protocol.programfault import Contained
from cqrepl.queue import ExcerptBatch, NotAQueue, Queue, QueueCut, QueueError, Tailer
from cqrepl.queue.files.cutreports import cut_folders, first_cut
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.queue.format.index import Index, format_index
from cqrepl.queue.format.logpos import START, LogPos, position_at
from cqrepl.replicator.copystart import begins_behind, first_index_of, lost_start
from cqrepl.replicator.fitness import WhyUnfit
from cqrepl.replicator.hostend import HostEnded
from cqrepl.surroundings import surroundings

NOTHING: Final = -1
BATCHES_MAX: Final = 16  # applied in one step, before other tasks hear of it
AWAKE_SECONDS: Final = 0.1  # so long after an excerpt the feed looks for the next one itself
LOOK_SECONDS: Final = 1.0  # to the next look, where no word tells
RETRY_SECONDS: Final = 0.25  # to the next attempt to open a copy that is not there yet
_AWAKE_PAUSE_SECONDS: Final = 0.001
_STAY_PAUSE_SECONDS: Final = 0.000_05  # of the thread that stays
_logger: Final = logging.getLogger(__name__)
T = TypeVar("T")


class Follower(Protocol):
    """A service: its state, which is made of the excerpts of one queue.

    The feed calls one function at a time. None of them may ask for the time, for chance, or for
    anything else that is not the same on each host.
    """

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        """Takes excerpts, which follow those of the last call.

        Args:
            batch: valid until this returns.
            committed: everything up to this index is as safe as the queue's policy wants it. What
                is beyond may yet go to quarantine: readers are shown nothing of it.
        """

    def snapshot(self, out: BinaryIO) -> None:
        """Writes the state; the feed knows the position that it is of."""

    def restore(self, source: BinaryIO, at: LogPos) -> None:
        """Takes a state in the place of the one that it has.

        Args:
            source: as `snapshot` has written it; empty, at `START`, for the state of nothing.
        """


class FedQueue(Protocol):
    """The parts of a host's queue that a feed needs."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...

    def committed_here(self) -> int | None:
        """The index up to which a queue that this host leads is safe; None where it follows."""

    def asking(self, why_unfit: WhyUnfit) -> AbstractContextManager[None]:
        """Has elections ask the service whether it can serve, for the length of a block."""

    def applied(self, index: int) -> None:
        """A service here has taken everything up to an index.

        Raises:
            Refused: this host leads.
            HostEnded: the host has ended.
        """


class Saved(NamedTuple):
    """A state that was saved, and has been found as it was written."""

    pos: LogPos
    source: BinaryIO


class Checkpoints(Protocol):
    """The states of one queue that were saved on this host. All but `fetch` is called in the feed's
    thread."""

    def newest(self, to: LogPos | None) -> Saved | None:
        """The newest one whose index is not above that of `to`, None for any; what is above, or is
        damaged, is put aside. None where there is none."""

    def is_due(self, index: int, committed: int, records: int) -> bool:
        """True when a state is to be saved at this next index, or one that was saved can be given
        its name.

        Args:
            records: the number of excerpts that the feed has applied.
        """

    def save(
        self, pos: LogPos, committed: int, records: int, snapshot: Callable[[BinaryIO], None]
    ) -> None:
        """Does so. What is above `committed` gets no name yet."""

    async def fetch(self, name: str, to: LogPos | None) -> Saved | None:
        """A state that another host has saved, whose index is not above that of `to`; None where no
        host gives one."""

    async def begin_of(self, name: str) -> int:
        """The index that the queue begins at on other hosts, where they lack its start; 0 where
        they have it, or no host says."""

    @property
    def refusals(self) -> list[str]:
        """Why no host gave a state, the last time."""


class CannotJoin(QueueError):
    """A host has no way to the state of a group: no checkpoint of its own, no start of the queue,
    and no host that gives a snapshot."""


class ServiceFailed(Exception):
    """A service has raised an error, which is the cause of this one: it is called no more."""


class JoinBy(StrEnum):
    """The ways to state that a host which starts may take."""

    AUTO = "auto"  # its own checkpoint, else the start of its copy, else another host's snapshot
    REPLAY = "replay"  # the start of its copy
    SNAPSHOT = "snapshot"  # another host's


class _StartUnsureError(Exception):
    """A copy has excerpts, and the feed nothing: does the copy have the start of the queue?"""


class _Step(NamedTuple):
    """Args:
    has_more: more is there to be read.
    word: changes when there is; None where none tells.
    has_stayed: nothing has come for some time.
    """

    has_more: bool
    word: WatchedWord | None
    has_stayed: bool = False


class FollowFeed:
    """The feed of one service. It lasts as long as the block of `running`.

    Args:
        queue: of a running host.
        checkpoints: None: nothing is saved, and a rewind begins at the start.
        join: the way to state at the start.

    Attributes:
        path: directory of the queue.
        position: of the state that the service has.
        fault: the error that has ended the feed; None while it runs.
        rewinds: so often the state went back.
        records: so many excerpts were applied, in this run.
        has_start: its state is one from where the copy begins, or from before.
    """

    def __init__(
        self,
        queue: FedQueue,
        follower: Follower,
        checkpoints: Checkpoints | None = None,
        join: JoinBy = JoinBy.AUTO,
    ) -> None:
        self.name = queue.name
        self.position = START
        self.fault: Exception | None = None
        self._host_queue = queue
        self.path: Path = queue.path
        self._follower = follower
        self._checkpoints = checkpoints
        self._join = join
        self._has_begun = False  # it has its first state
        self.has_start = checkpoints is None  # or a state from where the copy begins
        self._limiter = trio.CapacityLimiter(1)
        self._wake = trio.Event()
        self._moved = trio.Event()
        self._rests = False  # until there is more: another task may have a step taken
        self._steps_elsewhere = 0  # such steps under way
        self._word: WatchedWord | None = None
        self._awake_until = 0.0
        self._ends = False  # its thread is not to stay
        self._failed: Exception | None = None  # a step that another task has had taken
        self._queue: Queue | None = None
        self._tailer: Tailer | None = None
        self._folders = cut_folders(self.path)
        self._checks = False  # a task waits until it is known that the state is the queue's
        self._checked = NOTHING  # so far it is, as of the last such look
        self._trouble = ""
        self.rewinds = 0
        self.records = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For the length of a block the service is called."""
        try:
            async with trio.open_nursery() as nursery:
                with self._host_queue.asking(self.why_unfit):
                    nursery.start_soon(self._run)
                    try:
                        yield
                    finally:
                        self._ends = True
                nursery.cancel_scope.cancel()
        finally:
            self._close()

    def committed(self) -> int:
        """The index up to which the queue is as safe as its policy wants it; -1 for nothing. Where
        appends wait for no host, as far as each other host has it."""
        committed = self._host_queue.committed_here()
        queue = self._queue
        if committed is not None or queue is None:
            return NOTHING if committed is None else committed
        try:
            return queue.acknowledged_index
        except (QueueError, OSError):
            return NOTHING

    def wake(self) -> None:
        """There is something to be read. In the event loop."""
        self._wake.set()

    async def after(self, work: Callable[[], T]) -> T:
        """The result of `work`, as of an append, which is done in a thread; the state has what was
        appended then, without another way into a thread. Where the feed has something else to do,
        the state has it later: see `reached`."""
        if not self._rests or not self._limiter.available_tokens:
            result = await in_thread(work)
            self._wake.set()
            return result

        def do() -> tuple[T, _Step | None]:
            result = work()
            if not self._rests:  # it has begun something else meanwhile
                return result, None
            steps: list[_Step] = []
            with Contained(self._fail_later):
                steps.append(self._step(saves=False))
            return result, steps[0] if steps else None

        self._steps_elsewhere += 1
        try:
            result, step = await in_thread(do, limiter=self._limiter)
        finally:
            self._steps_elsewhere -= 1
        if step is not None:
            self._word = step.word
            self._awake_until = trio.current_time() + AWAKE_SECONDS
            self._tell_moved()
        if step is None or step.has_more:
            self._wake.set()
        return result

    def _fail_later(self, error: Exception) -> None:
        """It is raised by the next step, of the feed's own."""
        self._failed = error

    def why_unfit(self, end: int | None) -> str:
        """The reason why the service cannot serve what is made of the queue, so its host is not to
        lead it; empty where it can.

        Args:
            end: the next index of the copy; None: how far the service is does not matter.
        """
        if self.fault is not None:
            return f"its service has ended: {self.fault}"
        if not self._has_begun:
            return "its service has no state yet"
        at = self.position.index
        if end is not None and at < end:
            return f"its service is at {format_index(at)}, and the copy at {format_index(end)}"
        return ""

    async def caught_up(self, index: int) -> None:
        """Returns once the state has everything up to `index`, and holds nothing that went to
        quarantine.

        Raises:
            CannotJoin, Exception: the feed has ended; its fault.
        """
        self._checked = NOTHING
        while self._checked < index:
            self._raise_fault()
            self._checks = True
            self._wake.set()
            await self._moved.wait()
            await trio.sleep(_AWAKE_PAUSE_SECONDS)

    async def reached(self, index: int) -> None:
        """Returns once the state has everything up to `index`.

        Raises:
            CannotJoin, Exception: as `caught_up`.
        """
        while self.position.index <= index:
            self._raise_fault()
            await self._moved.wait()

    async def moved(self) -> None:
        """Returns once the service has been given more, or its state has gone back."""
        await self._moved.wait()

    async def save(self) -> None:
        """Saves the state now, due or not."""
        if self._checkpoints is not None:
            save = partial(self._save, self._checkpoints, self.committed())
            self._wake.set()  # the thread may stay
            await in_thread(save, limiter=self._limiter)

    def _raise_fault(self) -> None:
        if self.fault is not None:
            raise self.fault

    async def _run(self) -> None:
        try:
            await self._begin()
            while True:
                await self._take_step()
        except (QueueError, OSError, ServiceFailed) as error:
            self.fault = error
            _logger.error("queue %r: its service stops here: %s", self.name, error)
            self._tell_moved()

    async def _begin(self) -> None:
        """Takes the newest state that was saved, of which the queue may not have all yet."""
        self._folders = cut_folders(self.path)
        if self._join is JoinBy.SNAPSHOT:
            await self._take_snapshot(None, ["a snapshot was asked for"])
        else:
            await self._go_back(None)
        self._has_begun = True

    async def _take_step(self) -> None:
        wake = self._wake
        try:
            step = await in_thread(self._steps, limiter=self._limiter)
        except _StartUnsureError:
            await self._look_for_start()
            return
        except QueueCut as cut:
            self._trouble = ""
            await self._rewind(cut.cut_from)
            return
        except (QueueError, OSError) as error:
            if isinstance(error, CannotJoin):
                raise
            self._note_trouble(error)
            await in_thread(self._close, limiter=self._limiter)
            with trio.move_on_after(RETRY_SECONDS):
                await wake.wait()
            self._wake = trio.Event()
            return
        self._trouble = ""
        self._tell_moved()
        if not step.has_more:
            await self._pause(step)

    def _note_trouble(self, error: QueueError | OSError) -> None:
        """Said once: a copy that comes yet has none of its files."""
        if str(error) != self._trouble and not isinstance(error, NotAQueue):
            _logger.warning("queue %r: its service waits: %s", self.name, error)
        self._trouble = str(error)

    async def _pause(self, step: _Step) -> None:
        self._word, self._rests = step.word, step.word is not None
        try:
            await self._rest(is_awake=self._rests and not step.has_stayed)
        finally:
            self._rests = False

    async def _rest(self, *, is_awake: bool) -> None:
        awake = AWAKE_SECONDS if surroundings().has_threads and is_awake else 0.0
        self._awake_until = trio.current_time() + awake
        while self._word is not None and trio.current_time() < self._awake_until:
            if not self._steps_elsewhere and self._word.has_changed:
                return
            with trio.move_on_after(_AWAKE_PAUSE_SECONDS):
                await self._wake.wait()
            if self._wake.is_set():
                break
        word = self._word
        with trio.move_on_after(LOOK_SECONDS if word is not None else RETRY_SECONDS):
            if word is None:
                await self._wake.wait()
            else:
                with word_watch().watching([word], self._wake.set):
                    await self._wake.wait()
        self._wake = trio.Event()

    def _tell_moved(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    async def _rewind(self, cut_from: int) -> None:
        """The queue was cut: the state goes back to what is not above."""
        await in_thread(self._close, limiter=self._limiter)
        others = first_cut(self.path, self._folders)
        to = Index(cut_from if others is None else min(cut_from, others))
        self._folders = cut_folders(self.path)
        was = self.position
        if was.index > to:
            self.rewinds += 1
        await self._go_back(LogPos(was.epoch, to))
        told = "queue %r: what its service had taken from %s on went to quarantine: it was at %s"
        told += ", and goes on from %s"
        _logger.warning(told, self.name, format_index(to), was, self.position)
        self._checked = NOTHING
        self._tell_moved()

    async def _go_back(self, to: LogPos | None) -> None:
        """Takes a state that is not above a position; at the start, where none is given, any.

        Raises:
            CannotJoin: there is no way to one.
        """
        lacking = await in_thread(partial(self._restore_own, to), limiter=self._limiter)
        if lacking:
            await self._take_snapshot(to, lacking)

    async def _take_snapshot(self, to: LogPos | None, lacking: Sequence[str]) -> None:
        """Takes the state of another host.

        Args:
            lacking: why there is no other way.

        Raises:
            CannotJoin: no host gives one, or a snapshot was not to be taken.
        """
        saved, why = None, ["there are no hosts to ask"]
        if self._join is JoinBy.REPLAY and to is None:
            why = ["a replay was asked for"]
        elif self._checkpoints is not None:
            saved = await self._checkpoints.fetch(self.name, to)
            why = self._checkpoints.refusals
        if saved is not None and await in_thread(partial(begins_behind, self.path, saved.pos)):
            saved.source.close()
            why = [f"what one gave is of {saved.pos}, and the copy begins behind that"]
            saved = None
        if saved is None:
            text = f"expected a way to the state of group {self.name!r}: {'; '.join(lacking)}; no"
            text += f" host that is connected gives a snapshot: {', '.join(why)}"
            raise CannotJoin(text, path=self.path)
        await in_thread(partial(self._restore, saved), limiter=self._limiter)

    async def _look_for_start(self) -> None:
        """Before anything is applied of a copy that this host has taken in: where other hosts have
        no start of the queue, nor has the copy, though it does not know."""
        assert self._checkpoints is not None
        begin = await self._checkpoints.begin_of(self.name)
        first = await in_thread(partial(first_index_of, self.path), limiter=self._limiter)
        if begin and (first is None or first >= begin):
            lost = f"its copy begins at {format_index(first or begin)}, as on the host it came from"
            await self._take_snapshot(None, ["it has no checkpoint of its own", lost])
        self.has_start = True

    def _restore_own(self, to: LogPos | None) -> list[str]:
        """Goes back by what this host has; else the ways that it lacks, for people."""
        saved = None if self._checkpoints is None else self._checkpoints.newest(to)
        if saved is not None and to is None and self._join is JoinBy.REPLAY:
            saved.source.close()
            saved = None
        if to is not None and self.position.index <= to.index:
            if saved is not None:
                saved.source.close()
            return []
        if saved is None:
            lost = lost_start(self.path)
            if lost:
                return ["it has no checkpoint of its own", lost]
            saved = Saved(START, io.BytesIO())
        if to is None and saved.pos == START == self.position:
            return []  # it has just been made
        self._restore(saved)
        return []

    def _restore(self, saved: Saved) -> None:
        self._close()  # it reads on from another index
        self.has_start |= saved.pos != START
        with saved.source:
            self._call(partial(self._follower.restore, saved.source, saved.pos))
        self.position = saved.pos
        _logger.info("queue %r: its service has the state of %s", self.name, saved.pos)

    def _steps(self) -> _Step:
        """Applies what is there; where the host follows, also what comes soon after it."""
        step, records, until = self._step(), -1, 0.0
        stays = surroundings().has_threads and self._host_queue.committed_here() is None
        while stays and step.word is not None and not self._is_wanted():
            if self.records != records:
                records, until = self.records, time.monotonic() + AWAKE_SECONDS
            if step.word.has_changed:
                step = self._step()
            elif time.monotonic() >= until:
                return step._replace(has_stayed=True)
            else:
                time.sleep(_STAY_PAUSE_SECONDS)
        return step

    def _is_wanted(self) -> bool:
        """True where the event loop has something to be done, or waits to hear of a step."""
        return self._ends or self._wake.is_set() or self._moved.statistics().tasks_waiting > 0

    def _step(self, *, saves: bool = True) -> _Step:
        """Applies what is there.

        Args:
            saves: a state that is due is saved now, and not with the next step.
        """
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        tailer = self._opened()
        if not self._knows_start():
            return _Step(has_more=False, word=None)
        for _ in range(BATCHES_MAX):
            batch = tailer.next_batch()
            if batch is None:
                break
            self._apply(tailer, batch)
        if self._checks and batch is None:
            tailer.check_cut()
            self._checks, self._checked = False, self.position.index - 1
        if self._checkpoints is not None:
            committed = self.committed()
            if self._checkpoints.is_due(self.position.index, committed, self.records):
                if not saves:
                    return _Step(has_more=True, word=tailer.watched())
                self._save(self._checkpoints, committed)
        return _Step(batch is not None, tailer.watched() if batch is None else None)

    def _knows_start(self) -> bool:
        """False where the copy is empty yet, which may come without the start of the queue.

        Raises:
            _StartUnsureError: it has come.
        """
        if not self.has_start:
            assert self._queue is not None
            self.has_start = self._host_queue.committed_here() is not None
            if not self.has_start and self._queue.first_index() is not None:
                raise _StartUnsureError
        return self.has_start

    def _apply(self, tailer: Tailer, batch: ExcerptBatch) -> None:
        assert batch.index_first >= self.position.index
        self._call(partial(self._follower.apply, batch, self.committed()))
        self.records += len(batch)
        self.position = LogPos(self.position.epoch, Index(batch.index_last + 1))
        tailer.check_cut()  # else a source would be told of what it never had
        with suppress(Refused, HostEnded):  # this host leads, or is about to end
            self._host_queue.applied(batch.index_last)

    def _call(self, call: Callable[[], None]) -> None:
        """Calls the service.

        Raises:
            ServiceFailed: it has raised an error.
        """
        faults: list[Exception] = []
        with Contained(faults.append):
            call()
        if faults:
            told = "queue %r: the service has failed: %r"
            _logger.error(told, self.name, faults[0], exc_info=faults[0])
            raise ServiceFailed(f"the service has failed: {faults[0]!r}") from faults[0]

    def _save(self, checkpoints: Checkpoints, committed: int) -> None:
        pos = self._at()
        snapshot = self._follower.snapshot
        self._call(partial(checkpoints.save, pos, committed, self.records, snapshot))

    def _at(self) -> LogPos:
        """The position with the epoch of the copy, as it is on the disk."""
        self.position = position_at(load_epochs(self.path).history, self.position.index)
        return self.position

    def _opened(self) -> Tailer:
        if self._tailer is not None:
            return self._tailer
        cut = first_cut(self.path, self._folders)
        if cut is not None:
            raise QueueCut(cut, self.position.index, path=self.path)
        self._queue = queue = Queue.open(self.path)
        queue.keep_marks_open()
        self._tailer = queue.tailer(self.position.index)
        return self._tailer

    def _close(self) -> None:
        tailer, self._tailer = self._tailer, None
        queue, self._queue = self._queue, None
        if tailer is not None:
            tailer.close()
        if queue is not None:
            queue.close()
