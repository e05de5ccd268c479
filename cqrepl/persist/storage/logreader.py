"""Reads items from the log of a group, by the indexes of their excerpts; for any thread."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from cqrepl.queue import Index, Queue, QueueCut, QueueError, Tailer

_PASSED_MAX: Final = 64  # excerpts: to read so many costs less than to look one up
_ATTEMPTS: Final = 2  # a file that is open may have lost its name


class LogReader:
    """One reader of one directory, which it opens once it is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._queue: Queue | None = None
        self._tailer: Tailer | None = None

    def read(self, refs: Iterable[int]) -> list[bytes]:
        """The payloads of these excerpts.

        Raises:
            QueueError, OSError: they cannot be read, or are not there.
        """
        with self._guard:
            return [self._read(each) for each in refs]

    def close(self) -> None:
        """Lets go of the files."""
        with self._guard:
            self._close()

    def _read(self, ref: int) -> bytes:
        for attempt in range(_ATTEMPTS):
            try:
                return self._read_once(ref)
            except (QueueCut, QueueError, OSError):
                self._close()
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt gives or raises")

    def _read_once(self, ref: int) -> bytes:
        if self._queue is None:
            self._queue = Queue.open(self._path)
        if self._tailer is None or not 0 <= ref - self._tailer.next_index <= _PASSED_MAX:
            self._close_tailer()
            self._tailer = self._queue.tailer(ref)
        excerpt = self._tailer.next_excerpt()
        while excerpt is not None and excerpt.index < ref:  # those of other storages
            excerpt = self._tailer.next_excerpt()
        if excerpt is None or excerpt.index != ref:
            got = "none" if excerpt is None else f"{excerpt.index:#x}"
            raise QueueError(f"expected the excerpt {ref:#x}, got {got}", index=Index(ref))
        return bytes(excerpt)

    def _close_tailer(self) -> None:
        tailer, self._tailer = self._tailer, None
        if tailer is not None:
            tailer.close()

    def _close(self) -> None:
        with suppress(QueueError, OSError):
            self._close_tailer()
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
