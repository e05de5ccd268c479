"""A queue's write lock and append lock: longs in the table store that hold a process id.

Theory of operation. Unlocked is the least long; locked is the holder's process id (some old
versions put a thread id into the upper half, so only the lower half is compared). Taking and giving
back are compare-and-set.

A lock whose holder is dead is taken over at once. Our own process id in a lock that this process
does not hold was left by an earlier process of the same id (usual in containers, where every first
process is number 1), and counts as dead. A lock whose holder may be alive is never taken.

Two threads of one process look alike in the word, so a mutex for each lock of each file stands in
front of it; that mutex is also what tells whether this process holds the lock.

A process id must mean the same to all writers: they run in one process id name space.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cqrepl.queue.atomics import INT64_MIN
from cqrepl.queue.errors import QueueError, QueueLocked
from cqrepl.queue.tablestore import TableStore

UNLOCKED: Final = INT64_MIN
WRITE_LOCK_KEY: Final = "chronicle.write.lock"
APPEND_LOCK_KEY: Final = "chronicle.append.lock"
# ours, beside Java's: held with the other two while a sink copies back into a source queue. After a
# kill it tells a source's append lock, which is to be given back, from a sink's, which is to stay.
BACK_COPY_LOCK_KEY: Final = "cqrepl.backCopy.lock"
_PID_MASK: Final = 0xFFFFFFFF
_PAUSE_S: Final = 0.000_05
_PROC: Final = Path("/proc")

_mutexes: dict[tuple[int, int, str], threading.Lock] = {}
_mutexes_guard: Final = threading.Lock()


class WordLock:
    """One lock word of a table store, as this process sees it."""

    def __init__(self, table: TableStore, key: str) -> None:
        self._path = table.path
        self._key = key
        self._value = table.value(key, UNLOCKED)
        self._is_held = False
        with _mutexes_guard:
            self._mutex = _mutexes.setdefault((*table.identity, key), threading.Lock())

    @property
    def is_held(self) -> bool:
        """True while this very object holds the lock."""
        return self._is_held

    def holder(self) -> int | None:
        """The process id in the lock, of a living or of a dead process; None when unlocked."""
        value = self._value.load()
        return None if value == UNLOCKED else value & _PID_MASK

    def acquire(self, timeout_s: float = 0.0) -> None:
        """Takes the lock, at once from a dead holder.

        Raises:
            QueueLocked: a process that may be alive held it all the time.
        """
        deadline = time.monotonic() + timeout_s
        if not self._mutex.acquire(timeout=timeout_s):
            raise self._locked(os.getpid())
        while not self._exchange_in():
            holder = self.holder()
            if time.monotonic() >= deadline and holder is not None:
                self._mutex.release()
                raise self._locked(holder)
            time.sleep(_PAUSE_S)
        self._is_held = True

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
            QueueError: the word no longer names this process: somebody took it away by force.
        """
        assert self._is_held
        self._is_held = False
        taken_away = not self._value.exchange(os.getpid(), UNLOCKED)
        self._mutex.release()
        if taken_away:
            raise QueueError(
                f"expected {self._key} to be held by process {os.getpid()},"
                f" found {self._value.load()}",
                path=self._path,
            )

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Holds the lock for the length of a block."""
        self.acquire(timeout_s)
        try:
            yield
        finally:
            self.release()

    def release_dead(self) -> None:
        """Unlocks if the holder is dead, as every writer does on opening a queue."""
        if self.try_acquire():
            self.release()

    def _exchange_in(self) -> bool:
        """Our process id into the word, if it is free or its holder is dead. The mutex is held."""
        mine = os.getpid()
        value = self._value.load()
        if value != UNLOCKED and value & _PID_MASK != mine and is_alive(value & _PID_MASK):
            return False
        return self._value.exchange(value, mine)

    def _locked(self, holder: int) -> QueueLocked:
        return QueueLocked(
            f"expected {self._key} to be free, process {holder} holds it",
            holder=holder,
            path=self._path,
        )


def is_alive(pid: int) -> bool:
    """False only when no process of this id can be running."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return pid < 1 << 31  # somebody else's process; beyond that no process id exists
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """True for a process that has ended and waits for its parent to take notice.

    A process whose first thread has ended while others run looks like one too; those show as tasks.
    """
    folder = _PROC / str(pid)
    try:
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        return state in (b"Z", b"X") and len(list((folder / "task").iterdir())) <= 1
    except (OSError, IndexError):
        return False
