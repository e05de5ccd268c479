"""The appenders that a program of a host has: one for each queue that it appends to."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from cqrepl.net.errors import Refused
from cqrepl.queue import Queue
from cqrepl.replicator.hostend import ended_by
from cqrepl.replicator.openedqueue import Payload


class OwnWriter:
    """Appends to one queue for the program; opened by the first append. Any thread may append."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._queue: Queue | None = None
        self._is_closed = False
        self._why = ""

    def append(self, payloads: Sequence[Payload], now_ms: int | None) -> int:
        """Appends them under one lock; the index of the last.

        Raises:
            HostEnded: the host has ended.
            Refused: the queue is streamed from here no longer.
            QueueLocked, QueueError, OSError: as `Queue.append_many`.
        """
        with self._lock:  # also against a close meanwhile
            if self._is_closed:
                raise Refused(self._why) if self._why else ended_by(None)
            if self._queue is None:
                self._queue = Queue.open(self._path)
            return self._queue.append_many(payloads, now_ms=now_ms)

    def close(self, why: str = "") -> None:
        """Nothing more is appended.

        Args:
            why: the host goes on without this queue, and why; empty for a host that ends.
        """
        with self._lock:
            self._is_closed, self._why = True, why
            if self._queue is not None:
                self._queue.close()


class OwnWriters:
    """One for each queue of a host that its program has appended to."""

    def __init__(self) -> None:
        self.have_ended = False  # or are about to
        self._each: dict[str, OwnWriter] = {}
        self._guard = threading.Lock()

    def of(
        self, name: str, path_of: Callable[[str], Path], check: Callable[[], object]
    ) -> OwnWriter:
        """The one of a queue.

        Args:
            check: raises where the queue is not streamed from here any more. It is asked under the
                guard of `take`, so none is made behind a turn, which would stay open then.

        Raises:
            HostEnded: the host has ended.
        """
        with self._guard:
            if self.have_ended:
                raise ended_by(None)
            check()
            if name not in self._each:
                self._each[name] = OwnWriter(path_of(name))
            return self._each[name]

    def take(self, name: str) -> OwnWriter | None:
        """The one of a queue, to be closed, if there is any: the next append opens another one."""
        with self._guard:
            return self._each.pop(name, None)

    def close_all(self) -> None:
        """Nothing more is appended to any."""
        with self._guard:
            self.have_ended = True
        for writer in self._each.values():
            writer.close()
