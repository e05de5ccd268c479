"""A queue's write lock and append lock: longs in the table store that hold a process id.

Theory of operation. Unlocked is the least long; locked is the holder's process id (some old
versions put a thread id into the upper half, so only the lower half is compared). Taking and giving
back are compare-and-set.

A wait for a living holder counts half a second at most from one look to the next: where this
process did not run for longer, as on a machine that stood still, the holder did not either.

A lock whose holder is dead is taken over at once. Our own process id in a lock that this process
does not hold was left by an earlier process of the same id (usual in containers, where every first
process is number 1), and counts as dead. A lock whose holder may be alive is never taken.

A process id may be given to another process, which then seems to hold what the dead one left. So
there is a key of ours beside each lock, `cqrepl.write.lock.start` beside `chronicle.write.lock`:

    take    word: unlocked -> id     then  start: (id, start time of the process)
    give    start: 0                 then  word: id -> unlocked

A lock that names a living process is taken over when its start key names the same process id with
another start time, and that process does not map the table store. The second condition is for Java,
which knows nothing of the key: a Java process of that id could have taken the lock later, on top of
what a killed process of ours left in the key. A process that uses a lock maps the table store; the
table lock is held from looking to taking over, so none can begin to use it in between. Where any
of this cannot be read, the holder counts as alive. The two stores to the start key are plain ones:
they tell who held the lock, and never whether it is held.

Two threads of one process look alike in the word, so a turn for each lock of each file stands in
front of it; that turn also tells whether this process holds the lock. It is a mutex, to wait at,
and a word beside it, for pens (`pens`), which wait for nothing and know no Python:

    0  the turn is free           1  a pen has it        2  the thread with the mutex has it

A process that keeps the turn and gives only the word back lets other processes write between, and
none of its own threads.

A forked child holds none of its parent's locks, and finds the mutexes free. Pens that it has from
its parent would store the parent's process id, so they find their turn taken for ever.

A process id must mean the same to all writers: they run in one process id name space.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from cqrepl.kernel.memory import atomic_words
from cqrepl.queue.files.atomics import INT64_MIN
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.errors import QueueError, QueueLocked
from cqrepl.surroundings import surroundings

UNLOCKED: Final = INT64_MIN
WRITE_LOCK_KEY: Final = "chronicle.write.lock"
APPEND_LOCK_KEY: Final = "chronicle.append.lock"
_START_NONE: Final = 0
_START_BITS: Final = 41  # of clock ticks since the machine was started: 600 years
_PID_MASK: Final = 0xFFFFFFFF
_PAUSE_S: Final = 0.000_05
_STEP_MAX_S: Final = 0.5  # so much counts of the time from one look to the next
_PROC: Final = Path("/proc")


class _Turn:
    """The turn of one lock, which one thread of this process has at a time; `word` is its word of 4
    bytes."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.word = memoryview(bytearray(4))
        native = atomic_words()
        self._words = None if native is None else native(self.word)  # no kernel, no pens

    def take(self) -> bool:
        """False while a pen has it. The mutex is held, so 2 is what an interrupted call left."""
        words = self._words
        return words is None or words.exchange_4(0, 0, 2) or words.load_4(0) == 2

    def give(self) -> None:
        """Gives it back if the holder of the mutex has it."""
        if self._words is not None:
            self._words.exchange_4(0, 2, 0)

    def keep(self) -> None:
        """Keeps the turn taken for ever."""
        if self._words is not None:
            self._words.store_4(0, 1)


class _Turns:
    """One turn for each lock of each table store, and process. A forked child has them all anew."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[tuple[int, int, str, int], _Turn] = {}
        os.register_at_fork(after_in_child=self._renew)

    def of(self, key: tuple[int, int, str, int]) -> _Turn:
        with self._guard:
            if key not in self._turns:
                self._turns[key] = _Turn()
            return self._turns[key]

    def forget(self, process: int) -> None:
        """Those of one process."""
        with self._guard:
            self._turns = {key: turn for key, turn in self._turns.items() if key[-1] != process}

    def _renew(self) -> None:
        self._guard = threading.Lock()
        turns, self._turns = self._turns, {}
        for turn in turns.values():
            turn.keep()


_turns: Final = _Turns()


def forget_turns(process: int) -> None:
    """A process only begins, and has no threads that hold anything: one of the laboratory, whose
    ids come again, while files get the numbers of others that are gone."""
    _turns.forget(process)


class LockWords(NamedTuple):
    """All that a pen needs to lock and unlock as a `WordLock` does.

    Args:
        table, turn: the memory of the table store, and the turn's word.
        word, start: positions in the table store of the lock's word and its start key.
        process, process_start: the numbers to store there.
    """

    table: memoryview
    turn: memoryview
    word: int
    start: int
    process: int
    process_start: int


class WordLock:
    """One lock word of a table store, as this process sees it."""

    def __init__(self, table: TableStore, key: str) -> None:
        self._path = table.path
        self._key = key
        self._table = table
        self._value = table.value(key, UNLOCKED)
        self._start = table.value(f"{key.replace('chronicle', 'cqrepl', 1)}.start", _START_NONE)
        self._identity = (*table.identity, key)
        self._mine = 0  # the process that this object was last used in,
        self._packed = _START_NONE  # what it stores beside the lock,
        self._held_by: int | None = None  # whether it holds it,
        self._turn_of: int | None = None  # and whether the turn stays its own when it does not
        self._turn: _Turn

    @property
    def is_held(self) -> bool:
        """True while this very object holds the lock."""
        return self._held_by is not None and self._held_by == surroundings().process_id()

    @property
    def is_sure(self) -> bool:
        """True while this very object holds the lock, and its word says so."""
        return self._value.load() == self._mine and self.is_held

    @property
    def is_held_beside(self) -> bool:
        """True while another object of this process holds the lock. The word tells nothing of that:
        it may be an earlier process of this id that it names."""
        own = surroundings().process_id()
        if self.is_held or self.holder() != own:
            return False
        if self._mine != own:
            self._enter_process()
        return self._turn.mutex.locked()

    def holder(self) -> int | None:
        """The process id in the lock, of a living or of a dead process; None when unlocked."""
        return holder_of(self._value.load())

    def acquire(self, timeout_s: float = 0.0) -> None:
        """Takes the lock, at once from a dead holder.

        Raises:
            QueueLocked: a process that may be alive held it all the time.
        """
        if self._mine != surroundings().process_id():
            self._enter_process()
        clock = surroundings().monotonic
        begun = clock()
        self._take_turn(timeout_s)
        looked = clock()
        left_s = timeout_s - (looked - begun)
        try:
            while not self._exchange_in():
                holder = self.holder()
                if left_s <= 0 and holder is not None:
                    raise self._locked(holder)
                surroundings().sleep(_PAUSE_S)
                now = clock()
                left_s -= min(now - looked, _STEP_MAX_S)
                looked = now
        except BaseException:
            self._give_turn()
            raise
        self._start.put(self._packed)
        self._held_by = self._mine

    def check_free(self) -> None:
        """Changes nothing.

        Raises:
            QueueLocked: a process that may be alive holds it.
        """
        holder = self.holder()
        if holder is not None and is_alive(holder):
            raise self._locked(holder)

    def try_acquire(self) -> bool:
        """Takes the lock if that is possible now; true if it is."""
        try:
            self.acquire()
        except QueueLocked:
            return False
        return True

    def release(self) -> None:
        """Gives the lock back.

        Raises:
            QueueError: the word no longer names this process: `free_lock` took it away by force.
        """
        assert self.is_held
        self._held_by = None
        taken_away = self._value.load() != self._mine
        if not taken_away:
            self._start.put(_START_NONE)
            taken_away = not self._value.exchange(self._mine, UNLOCKED)
        self._give_turn()
        if taken_away:
            raise self.taken_away()

    def taken_away(self) -> QueueError:
        """The error when the word names another process, or none, while this one holds the lock."""
        holder = self.holder()
        return QueueError(
            f"expected {self._key} to be held by process {self._mine}, it was taken away by force:"
            f" {'no process' if holder is None else f'process {holder}'} holds it",
            path=self._path,
        )

    def words(self) -> LockWords:
        """The words that a pen of this process needs to hold this lock."""
        if self._mine != surroundings().process_id():
            self._enter_process()
        return LockWords(
            table=self._table.view(),
            turn=self._turn.word,
            word=self._value.position,
            start=self._start.position,
            process=self._mine,
            process_start=self._packed,
        )

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Holds the lock for the length of a block; a child forked in it leaves it to its parent.

        Raises:
            QueueLocked, QueueError: as `acquire` and `release`.
        """
        self.acquire(timeout_s)
        try:
            yield
        finally:
            if self.is_held:
                self.release()

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[None]:
        """Keeps the other threads of this process from the lock for the length of a block, whether
        this object holds it or not: they wait as if it did. Of one thread at a time.

        Raises:
            QueueLocked: another thread had it all the time.
        """
        if self._mine != surroundings().process_id():
            self._enter_process()
        clock = surroundings().monotonic
        mine, deadline = self._mine, clock() + timeout_s
        self._take_turn(timeout_s)
        try:
            while not self._turn.take():  # a pen has it, for a moment
                if clock() >= deadline:
                    raise self._locked(mine)
                surroundings().sleep(_PAUSE_S)
            self._turn_of = mine
            yield
        finally:
            if self._turn_of is not None and self.is_held:
                self.release()  # a signal ended the block just as it had taken the lock
            self._turn_of = None
            if mine == surroundings().process_id():  # a forked child leaves it to its parent
                self._give_turn()

    def release_dead(self) -> None:
        """Unlocks if the holder is dead, as every writer does on opening a queue."""
        if self.try_acquire():
            self.release()

    @property
    def _keeps_turn(self) -> bool:
        return self._turn_of is not None and self._turn_of == surroundings().process_id()

    def _take_turn(self, timeout_s: float) -> None:
        if self._keeps_turn:
            return
        if not self._turn.mutex.acquire(timeout=timeout_s if surroundings().has_threads else 0):
            raise self._locked(self._mine)

    def _give_turn(self) -> None:
        if not self._keeps_turn:
            self._turn.give()
            self._turn.mutex.release()

    def _enter_process(self) -> None:
        """Takes note of the process that uses this object now: at first, or after a fork."""
        mine = surroundings().process_id()
        self._packed = _pack(mine, _own_start_of(mine))
        self._turn = _turns.of((*self._identity, mine))
        self._mine = mine  # last: another thread may be about to use the rest

    def _exchange_in(self) -> bool:
        """Our process id into the word, if it is free or its holder is dead. The mutex is held."""
        if not self._turn.take():
            return False
        if self._exchange_word():
            return True
        if not self._keeps_turn:
            self._turn.give()
        return False

    def _exchange_word(self) -> bool:
        value = self._value.load()
        holder = value & _PID_MASK
        if value == UNLOCKED or holder == self._mine or not is_alive(holder):
            return self._value.exchange(value, self._mine)
        if not self._names_another_process(holder):
            return False
        with self._table.locked():
            return not self._may_be_held(value) and self._value.exchange(value, self._mine)

    def _names_another_process(self, holder: int) -> bool:
        """True when a process of this id took the lock, and the one that has the id now did not."""
        noted = self._start.load()
        now = start_of(holder)
        return now is not None and noted >> _START_BITS == holder and noted != _pack(holder, now)

    def _may_be_held(self, value: int) -> bool:
        """False only when this word was left by a process that is no longer there."""
        holder = value & _PID_MASK
        return is_alive(holder) and not (
            self._names_another_process(holder) and not self._table.may_be_mapped_by(holder)
        )

    def _locked(self, holder: int) -> QueueLocked:
        return QueueLocked(
            f"expected {self._key} to be free, process {holder} holds it",
            holder=holder,
            path=self._path,
        )


def start_of(pid: int) -> int | None:
    """The start time of a process, in clock ticks since the machine was started; None if that is
    unknown."""
    if (known := surroundings().start_of(pid)) is not None:
        return known
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19])  # field 22 of the line; the second one may hold anything
    except (OSError, IndexError, ValueError):
        return None


# a child has another one, and in time perhaps the id of a process that has ended
_own_starts: Final[dict[int, int]] = {}
os.register_at_fork(after_in_child=_own_starts.clear)


def _own_start_of(pid: int) -> int | None:
    """The start time of this process, as `start_of` has it. It is read once, as each lock of each
    of many queues asks for it."""
    if (known := surroundings().start_of(pid)) is not None:
        return known
    start = _own_starts.get(pid) or start_of(pid)
    if start is not None:
        _own_starts[pid] = start
    return start


def _pack(pid: int, start: int | None) -> int:
    """A process and its start time in one positive long; 0 when it does not fit."""
    if start is None or start >> _START_BITS or pid >> (63 - _START_BITS):
        return _START_NONE
    return (pid << _START_BITS) | start


def holder_of(word: int) -> int | None:
    """The process id in a lock word, of a living or of a dead process; None when unlocked."""
    return None if word == UNLOCKED else word & _PID_MASK


def free_lock(path: Path, key: str, holder: int) -> bool:
    """Unlocks a lock that is held by this process id, alive or dead; false if it no longer is.

    For people who know better than any program: a writer that is alive after all, and another one
    that follows it, destroy a queue between them.

    Args:
        path: of the table store.

    Raises:
        FileNotFoundError, QueueError: as `TableStore`.
    """
    table = TableStore(path, writable=True)
    try:
        value = table.find(key)
        word = UNLOCKED if value is None else value.load()
        if value is None or holder_of(word) != holder:
            return False
        return value.exchange(word, UNLOCKED)
    finally:
        table.close()


def is_alive(pid: int) -> bool:
    """False only when no process of this id can be running."""
    if pid <= 0:
        return False
    if (known := surroundings().is_alive(pid)) is not None:
        return known
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return pid < 1 << 31  # another user's process; beyond that no process id exists
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """True for a process that has ended and waits for its parent to take notice.

    A process whose first thread has ended looks like one too; threads that run show as tasks.
    """
    folder = _PROC / str(pid)
    try:
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        return state in (b"Z", b"X") and len(list((folder / "task").iterdir())) <= 1
    except (OSError, IndexError):
        return False


def is_held_elsewhere(table_path: Path, key: str) -> bool:
    """True while another process that may be alive holds the lock; changes nothing."""
    try:
        table = TableStore(table_path, writable=False)
    except FileNotFoundError:
        return False
    try:
        value = table.find(key)
        holder = None if value is None else holder_of(value.load())
    finally:
        table.close()
    # our own id: of a lock that a thread here holds, which a repair then waits for, or of an
    # earlier process of that id
    return holder is not None and holder != surroundings().process_id() and is_alive(holder)
