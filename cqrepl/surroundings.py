"""The surroundings of a process: clocks, its id, chance, threads, and calls that reach a disk.

Everything that replication takes from the machine besides trio's own clock and sockets comes
through `surroundings()`. The default is the machine itself, one call away. A laboratory has several
hosts in one process: it makes one object for each, and `within` hands it down to all that is called
or started in a block, as trio hands down the context of a task to those that it starts.

Not everything can be handed down so. What runs in a thread of our own (touching ahead, the word
watch) asks for nothing here, and the native kernel looks at the system's clock itself; in a
laboratory there are no such threads, and `has_threads` says so; the kernel is given the time.
"""

import ctypes
import errno
import hashlib
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_STATX_BORN: Final = struct.Struct("<I76xqI")  # what is known; seconds, nanoseconds
_AT_FDCWD: Final = -100
NO_THREAD: Final = "can't start new thread"
_statx: Final = getattr(ctypes.CDLL(None), "statx", None)


T = TypeVar("T")


class Surroundings:
    """The machine. A subclass stands for another one."""

    has_threads = True
    """False where all runs in the thread of the event loop: what is to run in a thread runs there,
    and native pumps take steps, in which they do what is there and wait for nothing."""

    rest_after_seconds = 1.0
    """For so long does a writer that finds nothing look itself, before the word watch does."""

    idle_polls = 50
    """So many of its first looks only let other tasks run; it sleeps between the next ones."""

    # what only asks the system is the system's own function: it is called for each batch
    process_id: Callable[[], int] = staticmethod(os.getpid)
    monotonic_ns: Callable[[], int] = staticmethod(time.monotonic_ns)
    monotonic: Callable[[], float] = staticmethod(time.monotonic)

    def boottime(self) -> float:
        """Seconds by a clock that no person sets, and that goes on while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def is_alive(self, process: int) -> bool | None:
        """True when there is a process of this id; None: the system knows."""
        return None

    def start_of(self, process: int) -> int | None:
        """The time at which a process was started, in clock ticks since the machine was; None: the
        system knows."""
        return None

    def boot_id(self) -> bytes:
        """The id that the machine gives its present start; empty where it gives none."""
        try:
            told = _boot_id()
        except OSError:
            return b""
        return told if told.strip() else b""  # a container may have an empty file there

    def place_of(self, file: Path) -> int:
        """A number of 8 bytes that two processes see only for one and the same file or directory,
        by whatever path, mount or hard link; 0 where there is none."""
        try:
            status = os.stat(file)
        except OSError:
            return 0
        place = b"%d %d %s" % (status.st_dev, status.st_ino, self.boot_id())
        return int.from_bytes(hashlib.sha256(place).digest()[:8], "little", signed=True)

    def wall_ns(self) -> int:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.wall_ns() // 1_000_000

    def processor_seconds(self) -> float:
        """The seconds that this thread has had a core so far."""
        return time.thread_time()

    def give_time(self) -> None:
        """Tells the native kernel what time it is, where it cannot know."""

    def thread_seconds(self) -> float:
        """The seconds that work takes which would be done in a thread, where there are none."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Stops this thread."""
        time.sleep(seconds)

    def rarely(self, name: str, usual: T, *_others: T) -> T:
        """The usual one of several choices, all of which are legal. A laboratory takes one of the
        others now and then: they are rare, and what goes wrong with them is rarer still.

        Args:
            name: of the choice, which a laboratory makes so in some processes only.
        """
        return usual

    def uniform(self, least: float, most: float) -> float:
        """A number by chance, to spread load: it keeps no secret."""
        return random.uniform(least, most)

    def random_bytes(self, count: int) -> bytes:
        """Bytes by chance that no other call gets, on this machine or another."""
        return os.urandom(count)

    def file_age(self, descriptor: int) -> float:
        """Seconds since the file was last written."""
        return time.time() - os.fstat(descriptor).st_mtime

    def file_number(self, path: Path, status: os.stat_result) -> int:
        """A number of 63 bits that a file keeps, whatever its name, and no later one has.

        A file system gives the number of a removed file to the next one, so the time at which the
        file was made is in it, where that is known.
        """
        place = b"%d %d" % (status.st_ino, born_ns(path))
        return int.from_bytes(hashlib.sha256(place).digest()[:8], "little") >> 1

    # ---- the disk: as the calls of `os`, which see errors of the system as OSError --------------

    def allocate(self, descriptor: int, start: int, length: int) -> None:
        os.posix_fallocate(descriptor, start, length)

    def write(self, descriptor: int, data: bytes, position: int) -> None:
        """All of it: the system may write a part, as where space ends."""
        written = 0
        while written < len(data):
            count = os.pwrite(descriptor, memoryview(data)[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count

    def sync(self, descriptor: int) -> None:
        """Returns when what is in the file is on the disk."""
        os.fdatasync(descriptor)

    def sync_names(self, descriptor: int) -> None:
        """Returns when the names in a directory are on the disk."""
        os.fsync(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Gives a file or directory another name; a file that has that name goes."""
        os.rename(path, to)

    def link(self, path: Path, to: Path) -> None:
        """Gives a file a second name, which there must not be."""
        os.link(path, to)

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        """Removes a name of a file."""
        path.unlink(missing_ok=missing_ok)


_MACHINE: Final = Surroundings()
_here: Final[ContextVar[Surroundings]] = ContextVar("surroundings", default=_MACHINE)


@cache
def _boot_id() -> bytes:
    return _BOOT_ID.read_bytes()


# Those of what runs now. It is the getter itself, as it is called several times for each batch.
surroundings: Final[Callable[[], Surroundings]] = _here.get


def monotonic() -> float:
    """Seconds, by the clock of what runs now."""
    return _here.get().monotonic()


def born_ns(path: Path) -> int:
    """The time at which a file was made, in nanoseconds since 1970; 0 where the system does not
    say."""
    if _statx is None:
        return 0
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found) != 0:
        return 0
    known, seconds, nanoseconds = _STATX_BORN.unpack_from(found)
    return seconds * 1_000_000_000 + nanoseconds if known & _STATX_BTIME else 0


def is_no_thread(error: RuntimeError) -> bool:
    """True for the error of a start of a thread where there is none to be had now, as where a limit
    of processes is reached. CPython has no error of its own for that."""
    return str(error) == NO_THREAD


def begun(thread: threading.Thread) -> bool:
    """Starts a thread; false where there is none to be had now."""
    try:
        thread.start()
    except RuntimeError as error:
        if not is_no_thread(error):
            raise
        return False
    return True


def sync_path(path: Path) -> None:
    """Returns when a file, or the names in a directory, are on the disk.

    Raises:
        OSError: it cannot be opened, or may not be on the disk.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _here.get().sync_names(descriptor)
    finally:
        os.close(descriptor)


def make_synced(directory: Path) -> None:
    """Makes a directory, and those above it, where they are not there; their names are on the disk.

    Raises:
        OSError: it cannot be made, or may not be on the disk.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_path(path.parent)


@contextmanager
def within(these: Surroundings) -> Iterator[None]:
    """Hands them down for the length of a block."""
    token = _here.set(these)
    try:
        yield
    finally:
        _here.reset(token)
