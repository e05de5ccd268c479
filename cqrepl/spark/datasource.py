"""The data source `chronicle`: queues as tables, to be read in batch and as streams.

    from cqrepl.spark import register
    register(spark)
    spark.read.format("chronicle").option("fromIndex", "0x451600000000").load("queues/orders")

A DataFrame is a snapshot: the planner looks at the files once, at the first action on it.

There is no `pushFilters` on purpose. Spark keeps the plan that it made for a filtered query and
uses it for the next one on the same DataFrame, which then has too few rows (tests/spark shows it).
Ranges are options instead. Nothing is pruned either: columns are chosen by the option `columns`, or
by `.schema(...)`.

Spark asks for the schema first, in a process of the driver, so options are checked there; but not
where the user gives a schema, so each further entrance checks them too.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from cqrepl.queue import Queue
from cqrepl.spark.columns import arrow_schema, spark_schema
from cqrepl.spark.finding import Finder
from cqrepl.spark.options import (
    Bounds,
    OptionError,
    ReadOptions,
    bounds,
    read_options,
    stream_options,
    write_options,
)
from cqrepl.spark.partitions import SplitPartition, partitions_of
from cqrepl.spark.ranges import IndexRange, present
from cqrepl.spark.reading import read_split
from cqrepl.spark.streaming import ChronicleStreamReader
from cqrepl.spark.writing import ChronicleStreamWriter, ChronicleWriter

FORMAT = "chronicle"


def register(spark: SparkSession) -> None:
    """Makes `format("chronicle")` known to a session; once more replaces it."""
    spark.dataSource.register(ChronicleSource)


class ChronicleSource(DataSource):
    """Queues as one table of excerpts."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return FORMAT

    def schema(self) -> str:
        """The columns that were chosen.

        Raises:
            OptionError: an option cannot be used.
        """
        options = read_options(self.options)
        Finder(options.finding)
        return spark_schema(options.columns, options.payload)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads what is there when the query is planned.

        Raises:
            OptionError: an option cannot be used, or a column is no column of a queue.
        """
        options = read_options(self.options)
        return ChronicleReader(options, bounds(self.options), planned_schema(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads what is appended, micro-batch by micro-batch.

        Raises:
            OptionError: an option cannot be used, or a column is no column of a queue.
        """
        options = read_options(self.options)
        stream = stream_options(self.options)
        return ChronicleStreamReader(options, stream, planned_schema(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes rows at exactly their indexes.

        Raises:
            OptionError, ValueError, QueueError: as `ChronicleWriter`.
        """
        return ChronicleWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Writes micro-batches at exactly their indexes.

        Raises:
            OptionError, ValueError, QueueError: as `ChronicleStreamWriter`.
        """
        return ChronicleStreamWriter(write_options(self.options), schema, overwrite)


def planned_schema(schema: StructType, options: ReadOptions) -> "pa.Schema":
    """The Arrow schema of what Spark has planned.

    Raises:
        OptionError: a column is no column of a queue, or of another type.
    """
    fields = [(one.name, one.dataType.simpleString(), one.nullable) for one in schema.fields]
    return arrow_schema(fields, options.payload)


class ChronicleReader(DataSourceReader):
    """Plans and reads a batch."""

    def __init__(self, options: ReadOptions, wanted: Bounds, schema: "pa.Schema") -> None:
        self._options = options
        self._wanted = wanted
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """What the tasks are to read.

        Raises:
            OptionError: there is no queue.
            QueueError: one cannot be read.
        """
        options = self._options
        found = Finder(options.finding).find()
        if not found:
            paths = ", ".join(options.finding.paths)
            raise OptionError("path", "a pattern that a queue matches", repr(paths))
        ranges: list[IndexRange] = []
        for path in found.values():
            with Queue.open(path) as queue:
                ranges += present(queue, *self._wanted.indexes(queue.layout))
        return partitions_of(ranges, found, options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The record batches of one task."""
        if isinstance(partition, SplitPartition):  # Spark makes an empty one where there is none
            yield from read_split(partition, self._schema, self._options)
