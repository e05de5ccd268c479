"""Tasks over ranges of queues, each with what tells the queue. Knows nothing of Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cqrepl.queue import Queue
from cqrepl.spark.jobs.blocks import TASK_BYTES, tasks_of
from cqrepl.spark.ranges import IndexRange
from cqrepl.spark.witness import Witness, check_witness, opened_queues, witnesses_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTask:
    """The ranges of one queue that one task reads."""

    ranges: tuple[IndexRange, ...]
    witness: Witness

    @contextmanager
    def opened(self) -> Iterator[Queue]:
        """The queue, where the task runs.

        Raises:
            QueueError: it is another one than the driver saw, or none.
        """
        with Queue.open(self.witness.queue) as queue:
            check_witness(queue, self.witness)
            yield queue


def seen_tasks(ranges: Sequence[IndexRange], task_bytes: int = TASK_BYTES) -> list[SeenTask]:
    """The ranges of one queue as tasks that each read about so much (`tasks_of`)."""
    with opened_queues() as opened:
        return [
            SeenTask(ranges=task, witness=witnesses_of(task, opened)[0])
            for task in tasks_of(ranges, task_bytes)
        ]
