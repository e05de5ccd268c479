"""Files mapped into memory, shared with every process that maps them: the only user of mmap.

Theory of operation. A mapping covers a whole file from byte 0 to the size it had when it was
mapped. Other processes make files longer (never shorter), so a position read from a file may lie
beyond the mapping: `cover` maps anew. Views given out before stay valid; the old mapping goes when
the last of them does.

Touching a page behind the end of a file kills the process. Hence `check` asks for the size once per
batch, and a file that has become shorter is reported as damaged instead of being read.

Storing into a hole of a sparse file on a full disk kills the process too. Hence whoever stores
first calls `reserve`, which allocates and so turns a full disk into an `OSError`. A file grows
under an exclusive record lock over all of it, as Java does it, so that two processes do not set
sizes against each other.

Record locks belong to the process, and all of a file's go when the process closes any descriptor
of that file. `RECORD_LOCK_GUARD` is therefore held while such a lock is, and whenever a file is
closed.
"""

import fcntl
import mmap
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from cqrepl.queue.atomics import Words
from cqrepl.queue.errors import QueueDamaged

RECORD_LOCK_GUARD: Final = threading.RLock()


class Mapping:
    """One file, mapped. `data` is all of its bytes, `words` their aligned words."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Opens and maps a file.

        Raises:
            QueueDamaged: there is something else under that name.
        """
        self.path = path
        self.writable = writable
        access = os.O_RDWR if writable else os.O_RDONLY
        # a pipe of that name must not keep us waiting
        self._descriptor = os.open(path, access | os.O_CLOEXEC | os.O_NONBLOCK)
        self._map: mmap.mmap | None = None
        self.data = memoryview(b"")
        self.words = Words(self.data)
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise QueueDamaged("expected a regular file", path=path)
            self._remap(self.file_size())
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
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        mine = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def check(self) -> int:
        """The file's size now, which is at least what is mapped.

        Raises:
            QueueDamaged: the file has become shorter than what is mapped of it.
        """
        size = self.file_size()
        if size < self.length:
            raise QueueDamaged(
                f"expected at least {self.length} bytes, the file was cut to {size}", path=self.path
            )
        return size

    def cover(self, end: int) -> bool:
        """Maps what the file has grown by, if `end` lies beyond; true when it is covered then."""
        if end > self.length:
            size = self.check()
            if size > self.length:
                self._remap(size)
        return end <= self.length

    def reserve(self, start: int, end: int) -> None:
        """Allocates the bytes from `start` to `end`, and maps them; the file grows if it must.

        Raises:
            OSError: no space, or a limit on file sizes.
        """
        assert self.writable
        assert 0 <= start < end
        if end > self.file_size():
            with RECORD_LOCK_GUARD:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
                try:
                    os.posix_fallocate(self._descriptor, start, end - start)
                finally:
                    fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
        else:
            os.posix_fallocate(self._descriptor, start, end - start)
        self.cover(end)

    def close(self) -> None:
        """Unmaps and closes. Views that are still held keep their pages until they go."""
        with RECORD_LOCK_GUARD:
            self._unmap()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _remap(self, size: int) -> None:
        with RECORD_LOCK_GUARD:  # a mapping holds a copy of the descriptor, closed with it
            self._unmap()
            if size == 0:
                return  # nothing to map; only a writer that died at once leaves such a file
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if self.writable else 0)
            self._map = mmap.mmap(self._descriptor, size, mmap.MAP_SHARED, protection)
            self.data = memoryview(self._map)
            self.words = Words(self.data)

    def _unmap(self) -> None:
        self.words.release()
        self.data.release()
        self.data = memoryview(b"")
        self.words = Words(self.data)
        mapped, self._map = self._map, None
        if mapped is not None:
            with suppress(BufferError):  # views of a batch are out: it goes with the last of them
                mapped.close()
