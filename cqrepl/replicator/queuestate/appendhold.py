"""Keeps other processes out of an exclusive queue while this host leads it.

Theory of operation. The append lock, which a leader leaves to local writers, is held from when the
queue is streamed. Writers of this process pass: they find their own process in it. What takes the
lock itself, as a back copy or the turn to another host, has it given back first, and taken again
where the host leads on. In that moment a writer of another process may append once; whatever takes
the lock looks for that.
"""

import logging
import threading
from pathlib import Path
from typing import Final

from cqrepl.queue import Queue, QueueError

_logger: Final = logging.getLogger(__name__)


class AppendHold:
    """Holds the append lock of one queue from `take` to `give_back`. Any thread may call it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: Queue | None = None
        self._guard = threading.Lock()

    def take(self) -> None:
        """Keeps other processes out.

        Raises:
            QueueLocked: another process has the lock.
            QueueError, OSError: the queue cannot be opened.
        """
        with self._guard:
            if self._queue is not None:
                return
            queue = Queue.open_for_append(self._path)
            try:
                queue.append_lock.acquire()
            except BaseException:
                queue.close()
                raise
            self._queue = queue

    def take_again(self) -> None:
        """The same after `give_back`; what fails is logged, as the host leads on without it."""
        try:
            self.take()
        except (QueueError, OSError) as error:
            _logger.warning("%s: other processes may append: %s", self._path, error)

    def give_back(self) -> None:
        """Other processes may have the lock."""
        with self._guard:
            if self._queue is not None:
                self._queue.close()
                self._queue = None
