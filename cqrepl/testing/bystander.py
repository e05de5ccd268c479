"""A reader on each host, beside replication: a process that follows the queue from its start."""

from typing import Final

import trio

from cqrepl.queue import Queue, QueueError, Tailer
from cqrepl.queue.format.index import format_index
from cqrepl.surroundings import within
from cqrepl.testing.checker import BrokenPromiseError, check_invented, digest_of
from cqrepl.testing.cluster import Stream
from cqrepl.testing.labhosts import Copy

READ_SECONDS: Final = 1.5  # between two looks


class Bystander:
    """Reads what comes, and checks that it was written, each once and in order."""

    def __init__(self, copy: Copy, stream: Stream) -> None:
        self._copy = copy
        self._stream = stream
        self._written = stream.application.written
        self._process = copy.host.machine.start("reader")
        self._queue: Queue | None = None
        self._tailer: Tailer | None = None
        self._generation: object = None
        self._last = -1

    async def run(self) -> None:
        """Follows the queue for ever; opens it anew when its disk goes on elsewhere.

        Raises:
            BrokenPromiseError: what it reads was not written, or comes again.
        """
        while True:
            await trio.sleep(READ_SECONDS)
            with within(self._process):
                self._process.give_time()
                try:
                    self._read()
                except (QueueError, OSError):
                    # told when all is quiet: on a disk that a fault has just hit it may be so
                    self._leave()

    def _read(self) -> None:
        generation = (self._copy.host.machine.path, self._written.queues)
        if self._generation != generation:
            self._leave()
        if self._tailer is None:
            if not any(self._copy.path.glob("*.cq4")):
                return
            self._generation = generation
            self._queue = Queue.open(self._copy.path)
            self._tailer = self._queue.tailer()
            self._last = -1
        found = {}
        while (batch := self._tailer.next_batch()) is not None:
            for index, data in batch:
                if index <= self._last:
                    text = f"{format_index(index)} after {format_index(self._last)}"
                    raise BrokenPromiseError("order", f"a reader of {self._copy.path} got {text}")
                found[index] = digest_of(bytes(data))
                self._last = index
        copy = self._copy
        # those are judged in the end; a link leads into the source's directory, not to a copy
        is_judged = not (copy.holds_others or copy.path.is_symlink())
        if is_judged and not self._stream.may_be_flipped(copy):
            check_invented(f"{copy.title}, as a reader sees it,", found, self._written)

    def _leave(self) -> None:
        if self._queue is not None:
            self._queue.close()
        self._queue = self._tailer = None
