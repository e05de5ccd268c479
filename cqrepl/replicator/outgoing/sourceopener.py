"""Opens the queues of a source, and closes them."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from cqrepl.kernel import live
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.marks.ackboard import AckBell
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.keptepochs import KeptEpochs
from cqrepl.replicator.queuestate.logs import log_paths
from cqrepl.replicator.settings import SourceSettings


class SourceOpener:
    """Opens the queues of one source, and closes them.

    Args:
        settings: for those that are opened next.
    """

    def __init__(self, settings: SourceSettings, syncer: Syncer) -> None:
        self.settings = settings
        self.bell = AckBell()
        self._found = live.FoundRuns() if live.AVAILABLE else None
        self._syncer = syncer
        self._open: list[SourceQueue] = []
        self._logs: dict[str, Path | None] = {}

    def place_logs(self, names: Iterable[str]) -> None:
        """Chooses where the logs of acknowledgements are: that depends on the number of queues."""
        self._logs = log_paths(self.settings.ack_log, names)

    def open(
        self,
        name: str,
        path: Path,
        copy: SinkQueue | None = None,
        passed_by: tuple[int, ...] = (),
        epochs: KeptEpochs | None = None,
    ) -> SourceQueue:
        """Opens one; see `SourceQueue`.

        Raises:
            OSError: no descriptor can be had.
            QueueLocked: it is exclusive, and another process has its append lock.
            QueueError: the directory holds no queue that can be read.
        """
        log = self._logs.get(name)
        runs = None if self._found is None else self._found.of_queue()
        queue = SourceQueue(
            name, path, log, self._syncer, self.settings, self.bell, runs, copy, passed_by, epochs
        )
        if queue.hold is not None:
            try:
                queue.hold.take()
            except BaseException:
                queue.close()
                raise
        self._open.append(queue)
        return queue

    async def close(self, queue: SourceQueue) -> None:
        """Closes one, in order."""
        self._open.remove(queue)
        try:
            await self._syncer.settle(queue.queue)
        finally:
            queue.close()

    def close_all(self) -> None:
        """Closes those that are left."""
        with ExitStack() as stack:
            for queue in self._open:
                stack.callback(queue.close)
