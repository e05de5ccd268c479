"""A queue of a host as a `cqrepl.Queue`, for code that takes one.

What such code appends waits as the policy of the queue says, which a plain queue knows nothing of:
which hosts have an excerpt only the host that streams it knows.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.queue import Queue
from cqrepl.queue.format.errors import used_after_close
from cqrepl.replicator.leadership import Appended

Payload = bytes | memoryview
# what a host's queue does with excerpts, the time that decides their cycle, and a policy
Append = Callable[[Sequence[Payload], int | None, AckPolicy | None], Appended]


class OpenedQueue(Queue):
    """One queue of a running host, opened for threads of its program; made by `HostQueue.open`. It
    is read as any other. An appender of its own, as `appender` gives it, waits for no host."""

    _append_by: Append

    @classmethod
    def of(cls, path: Path, append: Append) -> Self:
        """The queue in a directory.

        Args:
            append: of the host.

        Raises:
            NotAQueue, QueueDamaged: as `Queue.open`.
        """
        queue = cls.open(path)
        queue._append_by = append
        return queue

    def append(
        self,
        payload: Payload,
        *,
        now_ms: int | None = None,
        policy: AckPolicy | None = None,
        to_copy: bool = False,
    ) -> Appended:
        """Appends one excerpt; its index. See `append_many`."""
        return self.append_many([payload], now_ms=now_ms, policy=policy)

    def append_many(
        self,
        payloads: Sequence[Payload],
        *,
        now_ms: int | None = None,
        policy: AckPolicy | None = None,
        to_copy: bool = False,
    ) -> Appended:
        """Appends excerpts under one lock, and waits until a policy calls them safe; the index of
        the last, and how the wait has ended. From any thread.

        Args:
            now_ms: what decides the cycle, milliseconds since 1970; by default the clock's time.
            policy: as for `cqrepl.HostQueue.append_many`.
            to_copy: changes nothing: what its host takes in, only that appends to.

        Raises:
            Refused: the queue is taken in; with a policy also, it is not open yet.
            HostEnded: the host has ended.
            QueueLocked, QueueError, OSError: as `Queue.append_many`; or this one is closed.
            SteppedDown, AckUnknown, WaitEnded, RuntimeError, ValueError: as `Leading.append`.
        """
        if self._is_closed:
            raise used_after_close("queue", self.path)
        return self._append_by(payloads, now_ms, policy)
