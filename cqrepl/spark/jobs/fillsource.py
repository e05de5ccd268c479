"""The data source that `preload` writes rows with: one task fills one queue, from Arrow columns.

It is a data source because only to one does Spark give columns in Python without pandas. Its commit
runs in another process than the job, so the messages of the tasks go through a file.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from cqrepl.queue import QueueError, QueueLayout
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.jobs.queuefiller import Filled, fill
from cqrepl.spark.reasons import reason_only
from cqrepl.spark.taskreader import settle_worker
from cqrepl.spark.witness import file_state

FORMAT: Final = "cqrepl-fill"
PARTITION, PAYLOAD = "partition", "payload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """The settings that queues are filled by.

    Args:
        cycle: of a queue that is empty.
        block: how many excerpts are appended in one step.
        column: the name of the payload's column, for errors.
        seen: a file beside the queues, with its length and its last change as the driver sees them
            (`witness.file_state`).
    """

    out: Path
    layout: QueueLayout
    cycle: Cycle
    block: int
    column: str | None
    seen: tuple[str, int, int]

    def to_text(self) -> str:
        """For an option."""
        layout = asdict(self.layout) | {"roll_cycle": self.layout.roll_cycle.name}
        return json.dumps(asdict(self) | {"out": str(self.out), "layout": layout})

    @staticmethod
    def of(text: str) -> "Filling":
        """The settings that `to_text` has put into a text."""
        fields = json.loads(text)
        layout = fields["layout"] | {"roll_cycle": by_name(fields["layout"]["roll_cycle"])}
        fields |= {"out": Path(fields["out"]), "layout": QueueLayout(**layout)}
        return Filling(**{**fields, "seen": tuple(fields["seen"])})

    def check_seen(self) -> None:
        """Does nothing where this process sees the directory that the driver sees.

        Raises:
            QueueError: it sees another one at the same path, where a queue would be lost.
        """
        name, *wanted = self.seen
        found = file_state(self.out / name)
        if found != tuple(wanted):
            what = "no such file" if found is None else "another file"
            raise QueueError(
                f"expected the directory that the driver sees, found another one at the same path:"
                f" it has {what} {name}",
                path=self.out,
            )

    def fill(self, partition: int, payloads: Iterator["pa.BinaryArray"]) -> Filled:
        """Fills the queue of a partition."""
        path = queue_path(self.out, partition)
        return fill(path, self.layout, self.cycle, payloads, self.block)


@dataclass
class FilledMessage(WriterCommitMessage):
    """The message of a task to the commit; its fields are None when the task had no rows."""

    partition: int | None
    filled: Filled | None


class FillSource(DataSource):
    """Rows of (partition, payload), each partition in one task and in its order, into queues."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "FillWriter":
        """See `FillWriter`."""
        return FillWriter(self.options["filling"], self.options["report"])


class FillWriter(DataSourceArrowWriter):
    """Fills queues in tasks; the report has one line for each, its partition first."""

    def __init__(self, filling: str, report: str) -> None:
        self._filling = Filling.of(filling)
        self._report = report

    @reason_only()
    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Fills the queue of one partition, in a task. Excerpts are appended by index, so a task
        that is tried again goes on where the first attempt ended."""
        settle_worker()
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return FilledMessage(partition=None, filled=None)
        self._filling.check_seen()
        partition = first.column(PARTITION)[0].as_py()

        def payloads() -> Iterator["pa.BinaryArray"]:
            yield self._payloads(first, partition)
            for batch in batches:
                yield self._payloads(batch, partition)

        return FilledMessage(partition=partition, filled=self._filling.fill(partition, payloads()))

    def _payloads(self, batch: "pa.RecordBatch", partition: int) -> "pa.BinaryArray":
        found = batch.column(PARTITION)
        if found[0].as_py() != partition or len(found.unique()) != 1:
            raise QueueError(f"expected rows of partition {partition} only, found another's")
        payloads = batch.column(PAYLOAD)
        if payloads.null_count:
            raise QueueError(f"expected bytes or text in column {self._filling.column}, found null")
        return payloads

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Hands over what the tasks have told."""
        with open(self._report, "w") as out:
            for one in messages:
                if isinstance(one, FilledMessage) and one.filled is not None:
                    out.write(json.dumps([one.partition, asdict(one.filled)]) + "\n")


def queue_path(out: Path, partition: int) -> Path:
    """The queue of a partition."""
    return out / f"partition-{partition:05}"
