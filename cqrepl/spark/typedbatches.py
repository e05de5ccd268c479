"""Fields of documents as the record batches that Spark takes.

Theory of operation. The fields are made by the native codec, of all excerpts of a batch at once;
only those that are asked for. A call of another method is no row, so the columns of queues are
those of the rows that there are. What does not fit the schema is a row with its bytes, or none, or
an error (option `misfits`); each task logs how many there were.
"""

import logging

import pyarrow as pa
import pyarrow.compute as pc

from cqrepl.arrow.typedrows import TypedRows
from cqrepl.console.units import plural
from cqrepl.kernel.batch import gather_payloads, number_from
from cqrepl.queue import ExcerptBatch, QueueError
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.read.columns import Columns
from cqrepl.spark.recordbatches import BatchMaker
from cqrepl.spark.tableoptions import ReadOptions
from cqrepl.spark.typedschema import ERROR, MISFIT

_logger = logging.getLogger(__name__)


class TypedBatchMaker:
    """Makes record batches of one schema, that of the plan, from excerpts of one cycle."""

    def __init__(self, schema: "pa.Schema", options: ReadOptions) -> None:
        typed = options.typed
        assert typed is not None
        self._schema = schema
        self._misfits = options.misfits
        self._columns = {name: found for name in schema.names if (found := typed.column_of(name))}
        of_queues = [schema.field(name).with_name(of) for name, of in self._columns.items()]
        self._maker = BatchMaker(pa.schema(of_queues), options.payload)
        self._members = [each for each in typed.shape.members if each.name in schema.names]
        keeps = options.misfits == "keep"
        self._rows = TypedRows(typed.kind, self._members, keep_misfits=keeps)

    def make(self, batch: ExcerptBatch, name: str, cycles: Cycles) -> "pa.RecordBatch":
        """The rows of some excerpts of the queue of this name, as a tailer gives them.

        Raises:
            QueueError: one does not fit, and that is to be an error.
        """
        data, starts = gather_payloads(batch.data, batch.offsets, batch.lengths)
        indexes = number_from(batch.index_first, len(batch))
        columns = Columns(
            indexes=indexes, offsets=starts, payload=data, next_index=batch.index_last + 1
        )
        made = pa.Table.from_batches(self._rows.batches(columns), schema=self._rows.schema)
        if self._misfits == "fail" and self._rows.misfits:
            raise QueueError(f"{name}: {self._rows.kept_misfits[0].error}")
        arrays = [column.combine_chunks() for column in made.columns]
        given: dict[str, pa.Array] = {}
        if self._columns:
            of_queue = self._maker.make(batch, name, cycles)
            if made.num_rows < len(batch):
                of_queue = of_queue.take(pc.subtract(arrays[0], indexes[0]))
            given |= zip(self._columns, of_queue.columns, strict=True)
        given |= zip([each.name for each in self._members], arrays[1:], strict=False)
        if self._misfits == "keep":
            given |= {MISFIT: arrays[-2], ERROR: arrays[-1]}
        return pa.RecordBatch.from_arrays(
            [
                given[field.name].cast(field.type)
                if field.name in given
                else pa.nulls(made.num_rows, field.type)
                for field in self._schema
            ],
            schema=self._schema,
        )

    def tell(self) -> None:
        """Logs how many excerpts do not fit, if some do not."""
        if self._rows.misfits:
            count = plural(self._rows.misfits, "excerpt")
            first = self._rows.kept_misfits[0].error
            _logger.warning("%s without the fields of the schema, the first: %s", count, first)
