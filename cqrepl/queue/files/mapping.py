"""Files mapped into memory, shared with every process that maps them: the only user of mmap.

Theory of operation. A mapping covers a whole file from byte 0 to the size it had when it was
mapped. Other processes make files longer (never shorter), so a position read from a file may lie
beyond the mapping: `cover` maps what is new. A file that has grown once is mapped anew, with
addresses reserved behind it (the native kernel's `FileMap`), where the next pieces are mapped: what
is mapped then stays. Where there are no such addresses, it is mapped anew each time. Views given
out before stay valid; the old mapping goes when the last of them does.

Touching a page behind the end of a file kills the process. Hence `check` asks for the size once per
batch, and a file that has become shorter is reported as damaged instead of being read.

Storing into a hole of a sparse file on a full disk kills the process too. Hence a writer
first calls `reserve`, which allocates and so turns a full disk into an `OSError`. A file grows
under an exclusive record lock over all of it, as Java does it, so that two processes do not set
sizes against each other.

The system reads ahead where a page is touched that is not in memory: up to 8 MiB, which takes 13 ms
where they are still to be written, and brings nothing. So who stands at the end says so
(`grows_from`); what is behind a writer or a reader that has caught up is read as usual.

Record locks belong to the process, and all of a file's go when the process closes any descriptor
of that file. `RECORD_LOCK_GUARD` is therefore held while such a lock is, and whenever a file is
closed.

What is stored reaches the disk when the kernel pleases, page by page in any order, until `sync`
says that it is there. All that this package stores into a file goes through few functions: the
`store_*`, `exchange_*` and `put_8` of `Words`, `Mapping.write`, and the kernel's `lay_excerpts` as
`storewriter` calls it, and the kernel's pen, which does what those do (`fastappend`): long batches
it also writes to the file itself, and allocates what is mapped for them. Files change size
in `Mapping.reserve` and `Mapping.allocate_ahead`, and names in `os.rename`; and all that is made
durable is so by `Mapping.sync` and `Mapping.sync_directory`. What no reader can see yet is stored
and synced by `maker`, and shown by `os.link`. Calls that reach a disk go through `surroundings()`.

`sync` is one fdatasync: on Linux that takes in what was stored through any mapping of the file, in
any process, and the size and blocks needed to read it back. It lets other threads run, which the
mapping's own flush does not, and costs the same (0.15 and 0.22 ms on the reference machine).
"""

import errno
import fcntl
import mmap
import os
import resource
import stat
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from cqrepl.kernel.memory import MappedFile, file_map, page_populator
from cqrepl.queue.files.atomics import Words
from cqrepl.queue.files.procmaps import FileIdentity, identity_at, may_map
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.surroundings import surroundings

_ROOM_MIN: Final = 4 << 30
_ROOM_SHARE: Final = 4  # for so many times its size is there room where a file has grown


class _Guard:
    """A re-entrant mutex that a forked child finds free, no matter which thread held it."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._mutex = threading.RLock()

    def __enter__(self) -> None:
        self._mutex.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mutex.release()


RECORD_LOCK_GUARD: Final = _Guard()
# what a file has that is not mapped; never released
_NOTHING: Final = memoryview(b"")
_LEASE_LOOKS: Final = 1000
_LEASE_PAUSE_S: Final = 0.001
_NO_WORDS: Final = Words(_NOTHING)


class Mapping:
    """One file, mapped. `data` is all of its bytes, `words` their aligned words."""

    def __init__(self, path: Path, *, writable: bool, keeps_views: bool = False) -> None:
        """Opens and maps a file.

        Args:
            keeps_views: `data` and `words` stay usable until `close` for those that took them
                before the file was mapped anew: threads share them, and the file grows seldom.

        Raises:
            QueueDamaged: there is something else under that name.
        """
        self.path = path
        self.writable = writable
        self._keeps_views = keeps_views
        self._descriptor = open_to_write(path) if writable else open_to_read(path)
        self._map: MappedFile | None = None
        self._left: list[MappedFile] = []  # by mapping anew; still to be unmapped
        self.unmaps_later = False
        self._grows_from: int | None = None
        self.data, self.words = _NOTHING, _NO_WORDS
        try:
            status = os.fstat(self._descriptor)
            self.identity = identity_in(status)  # what tells this file from all others
            if not stat.S_ISREG(status.st_mode):
                raise QueueDamaged("expected a regular file", path=path)
            self._remap(status.st_size)
        except BaseException:
            self.close()
            raise

    @property
    def length(self) -> int:
        """Number of bytes mapped."""
        return len(self.data)

    @property
    def descriptor(self) -> int:
        """The file's only descriptor; for record locks."""
        return self._descriptor

    def file_size(self) -> int:
        """The size the file has now."""
        return os.fstat(self._descriptor).st_size

    def is_current(self) -> bool:
        """True while the path still names this file."""
        try:
            return identity_in(os.stat(self.path)) == self.identity
        except FileNotFoundError:
            return False

    def check(self) -> int:
        """The file's size now, which is at least what is mapped.

        Raises:
            QueueDamaged: the file has become shorter than what is mapped of it.
        """
        return self._whole_status().st_size

    def check_named(self) -> None:
        """Does nothing while the file is as long as what is mapped of it, and a name leads to it:
        what is stored in one without is lost.

        Raises:
            QueueDamaged: it was cut, or removed.
        """
        if not self._whole_status().st_nlink:
            raise QueueDamaged(
                "expected the file that is appended to, it was removed", path=self.path
            )

    def _whole_status(self) -> os.stat_result:
        """The status of the file, which is at least as long as what is mapped of it.

        Raises:
            QueueDamaged: the file has become shorter.
        """
        status, length = os.fstat(self._descriptor), len(self.data)
        if status.st_size < length:
            raise QueueDamaged(
                f"expected at least {length} bytes, the file was cut to {status.st_size}",
                path=self.path,
            )
        return status

    def cover(self, end: int) -> bool:
        """Maps what the file has grown by, if `end` lies beyond; true when it is covered then."""
        if end > len(self.data):
            size = self.check()
            if size > len(self.data):
                self._remap(size)
        return end <= len(self.data)

    def grows_from(self, position: int) -> None:
        """Says that all behind this position is still to be written: the system reads nothing ahead
        there."""
        if self._grows_from is None and self._map is not None:
            self._grows_from = position
            self._map.comes_singly(position)

    def reserve(self, start: int, end: int, length: int = 0) -> None:
        """Allocates the bytes from `start` to `end`, and maps them; the file grows if it must.

        Args:
            length: a file that grows gets at least this length, where it may. All of it is mapped,
                so that it is mapped anew less often; what is not allocated of it is a hole.

        Raises:
            OSError: no space, or a limit on file sizes.
        """
        self._allocate(start, end, length)
        self.cover(end)

    def allocate_ahead(self, start: int, end: int) -> bool:
        """Allocates the bytes from `start` to `end` and maps none of them; false once it is closed.

        May be called by another thread than the one that uses the mapping.

        Raises:
            OSError: no space, or a limit on file sizes.
        """
        with RECORD_LOCK_GUARD:  # against `close`: the descriptor's number may be another's then
            if self._descriptor < 0:
                return False
            self._allocate(start, end, end)
            return True

    def populate(self, start: int, end: int) -> None:
        """Has the pages in memory that hold what is mapped of these bytes; they stay as they are.

        May be called by another thread than the one that uses, renews or closes the mapping. Does
        nothing once it is closed, and with the plain kernel.

        Raises:
            OSError: the file was cut, there is no space for a hole in it, or Linux is too old.
        """
        populate = page_populator()
        mapped = self._map
        if populate is None or mapped is None:
            return
        try:
            with mapped.view() as view:
                populate(view, min(start, len(view)), min(end, len(view)))
        except ValueError:
            return  # closed since
        finally:
            with RECORD_LOCK_GUARD:  # the last reference closes a copy of the descriptor
                del mapped

    def write(self, position: int, data: bytes | bytearray) -> None:
        """Stores bytes that no reader looks at yet."""
        self.data[position : position + len(data)] = data

    def sync(self, start: int, end: int) -> None:
        """Returns when what is stored between these positions is on the disk.

        Everything stored in the file before is too; callers count on no more than they ask for.

        Raises:
            OSError: it may never get there, even if a later call succeeds.
        """
        assert 0 <= start < end <= self.length
        surroundings().sync(self._descriptor)

    @staticmethod
    def sync_directory(path: Path) -> None:
        """Returns when the names in a directory are on the disk.

        Raises:
            OSError: they may never get there.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            surroundings().sync_names(descriptor)
        finally:
            os.close(descriptor)

    def may_be_mapped_by(self, pid: int) -> bool:
        """False only when this process certainly does not map the file."""
        try:
            identity = self.identity_in_maps()
        except OSError:
            return True  # it cannot be compared
        return identity is None or may_map(pid, [identity]) is not False

    def identity_in_maps(self) -> FileIdentity | None:
        """The file, as `/proc` shows that a process maps it; None where that has no address.

        Raises:
            OSError: there is no `/proc`.
        """
        return None if self.words.address is None else identity_at(self.words.address)

    def unmap_left(self) -> None:
        """Unmaps what mapping anew has left; needed where `unmaps_later` is set.

        That takes 30 us for each MiB that was touched. May be called by another thread.
        """
        with RECORD_LOCK_GUARD:
            while self._left:
                with suppress(BufferError):  # views of a batch are out: it goes with the last one
                    self._left.pop().close()

    def close(self) -> None:
        """Unmaps and closes. Views that are still held keep their pages until they go."""
        with RECORD_LOCK_GUARD:
            self._unmap()
            self.unmap_left()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _allocate(self, start: int, end: int, length: int) -> None:
        assert self.writable
        assert 0 <= start < end
        if end > self.file_size():
            with RECORD_LOCK_GUARD:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
                try:
                    surroundings().allocate(self._descriptor, start, end - start)
                    if length > self.file_size():
                        with suppress(OSError):  # a limit: then it is longer when it must be
                            os.ftruncate(self._descriptor, length)
                finally:
                    fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
        else:
            surroundings().allocate(self._descriptor, start, end - start)

    def _remap(self, size: int) -> None:
        with RECORD_LOCK_GUARD:  # a plain map holds a copy of the descriptor, closed with it
            mapped, has_grown = self._map, self._map is not None
            if mapped is not None and not self._keeps_views:
                self._release()
            if mapped is None or not mapped.extend(self._descriptor, size):
                if mapped is not None and not self._keeps_views:
                    self._map = None
                    self._left.append(mapped)
                    if not self.unmaps_later:
                        self.unmap_left()
                if size == 0:
                    return  # nothing to map; only a writer that died at once leaves such a file
                kind = file_map() or _PlainMap
                room = _room_for(size) if has_grown else size
                mapped = kind(self._descriptor, size, room, self.writable)
                if self._grows_from is not None:
                    mapped.comes_singly(self._grows_from)
                if self._map is not None:
                    self._left.append(self._map)
            # other threads take one of these at any time: each is usable before it stands there
            data = mapped.view()
            self._map, self.words, self.data = mapped, Words(data), data

    def _release(self) -> None:
        self.words.release()
        self.data.release()
        self.data, self.words = _NOTHING, _NO_WORDS

    def _unmap(self) -> None:
        mapped, self._map = self._map, None
        if mapped is not None:
            self._release()
            self._left.append(mapped)


class _PlainMap:
    """The same as the native kernel's `FileMap`, without room to grow."""

    def __init__(self, descriptor: int, length: int, _room: int, is_writable: bool) -> None:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if is_writable else 0)
        self._mapped = mmap.mmap(descriptor, length, mmap.MAP_SHARED, protection)

    def extend(self, _descriptor: int, _length: int) -> bool:
        return False

    def comes_singly(self, position: int) -> None:
        page = position // mmap.PAGESIZE * mmap.PAGESIZE
        if page < len(self._mapped):
            self._mapped.madvise(mmap.MADV_RANDOM, page)

    def view(self) -> memoryview:
        return memoryview(self._mapped)

    def close(self) -> None:
        self._mapped.close()


def _room_for(size: int) -> int:
    """The size up to which a file of this size is to grow without being mapped anew. That takes
    addresses alone; where they are limited, there are none to spare."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return size if limit != resource.RLIM_INFINITY else max(_ROOM_MIN, _ROOM_SHARE * size)


def named_identity(path: Path) -> tuple[int, int] | None:
    """The device and inode number of the file of this name, which tell it from others; None while
    there is none."""
    try:
        return identity_in(os.stat(path))
    except OSError:
        return None


def identity_in(status: os.stat_result) -> tuple[int, int]:
    """The device and inode number of a file, which tell it from every other file of the machine
    that is open, or has a name."""
    return status.st_dev, status.st_ino


def open_to_read(path: Path) -> int:
    """A descriptor of a file of the queue's, to read, to be closed by the caller.

    Raises:
        OSError: it cannot be opened.
    """
    return open_at_once(path, os.O_RDONLY)


def open_at_once(path: Path, flags: int) -> int:
    """A descriptor, as `os.open` gives it, of a file that is never waited for, as a pipe would be.
    The system refuses that while another one holds a lease of the file: who asks for its users
    (`fileusers`) holds one for an instant, so this tries again for a while.

    Raises:
        OSError: it cannot be opened.
    """
    for _ in range(_LEASE_LOOKS):
        with suppress(BlockingIOError):
            return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        surroundings().sleep(_LEASE_PAUSE_S)
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)


def open_to_write(path: Path, flags: int = 0) -> int:
    """A descriptor of a file of the queue's, to read and write, to be closed by the caller.

    No link is followed: it leads to a file that is none of the queue's, and a user who may set
    links in its directory would have us write there.

    Raises:
        QueueDamaged: it is a symbolic link.
        OSError: it cannot be opened.
    """
    try:
        return open_at_once(path, os.O_RDWR | os.O_NOFOLLOW | flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            check_no_link(path)
        raise


def close_file(descriptor: int) -> None:
    """Closes a descriptor of a file of the queue's: not while this process has a record lock."""
    with RECORD_LOCK_GUARD:
        os.close(descriptor)


def check_no_link(path: Path) -> None:
    """Checks that a path is no symbolic link.

    Raises:
        QueueDamaged: it is one.
        OSError: it is one that the system cannot follow, as when it leads to itself.
    """
    if path.is_symlink():
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(path)
        raise QueueDamaged(
            "expected a regular file, found a symbolic link: nothing is written through one",
            path=path,
        )


def check_name(path: Path, identity: tuple[int, int]) -> None:
    """Does nothing while a path leads to this file, or where that cannot be told now.

    Raises:
        QueueDamaged: the file was removed, or another one has taken its name.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
        if identity_in(status) == identity:
            return
        found = "another one has taken its name"
        if stat.S_ISLNK(status.st_mode):
            os.stat(path)
            found = "a symbolic link has taken its name"
    except (FileNotFoundError, NotADirectoryError):
        found = "it was removed"
    except OSError:
        return
    raise QueueDamaged(f"expected the file that is open here, {found}", path=path)
