"""A file of a queue, read by `pread`: for files that are damaged, foreign, or just being written.

Theory of operation. Nothing is mapped, so a file that is cut under our hands gives fewer bytes, not
a signal; nothing is locked and nothing written. What a mapping shows is what `pread` gives, as both
are views of the same pages. Reading is not atomic, though: a word that matters is read by itself,
8 bytes or fewer on a multiple of their number, and what looks wrong is looked at twice.
"""

import os
import stat
from array import array
from pathlib import Path
from typing import Final, Self

from cqrepl.queue.files.mapping import RECORD_LOCK_GUARD, open_to_read
from cqrepl.queue.format.errors import QueueDamaged

LONG_BYTES: Final = 8
_WORD_BYTES: Final = 4
_POSITION_MAX: Final = 1 << 62  # the system takes no position much above
_BLOCK_BYTES: Final = 512  # the unit of `st_blocks` on every file system


class FileBytes:
    """An open file. Bytes behind its end read as nothing, words as 0."""

    def __init__(self, path: Path) -> None:
        """Opens a file.

        Raises:
            QueueDamaged: there is something else under that name.
        """
        self.path = path
        self._descriptor = open_to_read(path)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self.close()
            raise QueueDamaged("expected a regular file", path=path, position=0)

    def size(self) -> int:
        """The size of the file now."""
        return os.fstat(self._descriptor).st_size

    def allocated(self) -> int:
        """The number of bytes that the file takes on the disk."""
        return os.fstat(self._descriptor).st_blocks * _BLOCK_BYTES

    def read(self, position: int, length: int) -> bytes:
        """Bytes from `position` on; fewer than `length` at the end of the file, none outside."""
        if not 0 <= position <= _POSITION_MAX:
            return b""
        return os.pread(self._descriptor, length, position)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fills a buffer from `position` on, and answers how far."""
        filled = 0
        while filled < len(buffer):
            came = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
            if came == 0:
                break
            filled += came
        return filled

    def word(self, position: int) -> int:
        """The unsigned 32-bit word there; 0 behind the end of the file."""
        data = self.read(position, _WORD_BYTES)
        return int.from_bytes(data, "little") if len(data) == _WORD_BYTES else 0

    def long(self, position: int) -> int:
        """The signed 64-bit word there; 0 behind the end of the file."""
        data = self.read(position, LONG_BYTES)
        return int.from_bytes(data, "little", signed=True) if len(data) == LONG_BYTES else 0

    def longs(self, position: int, count: int) -> "array[int]":
        """So many 64-bit words; fewer at the end of the file."""
        data = self.read(position, count * LONG_BYTES)
        values = array("q")
        values.frombytes(data[: len(data) // LONG_BYTES * LONG_BYTES])
        return values

    def close(self) -> None:
        """Closes the file."""
        with RECORD_LOCK_GUARD:  # closing drops this process's record locks on the file
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
