"""The data source `chronicle`: queues as tables, to be read in batch and as streams.

    from cqrepl.spark import register
    register(spark)
    spark.read.format("chronicle").option("fromIndex", "0x451600000000").load("queues/orders")

A DataFrame is a snapshot. The planner looks at the files once, at the first action on it; by then
the queues have grown, so where they ended is noted when the schema is asked for, which is when the
DataFrame is made (option `snapshot`). A schema that the user gives is not asked for.

There is no `pushFilters` on purpose. Spark keeps the plan that it made for a filtered query and
uses it for the next one on the same DataFrame, which then has too few rows (tests/spark shows it).
Ranges are options instead. Nothing is pruned either: columns are chosen by the option `columns`, or
by `.schema(...)`.

Spark asks for the schema first, in a process of the driver, so options are checked there; but not
where the user gives a schema, so each further entrance checks them too.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

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
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cqrepl.queue import NEXT_OF_EMPTY, NotAQueue, Queue
from cqrepl.spark.activesession import activate, java_of
from cqrepl.spark.catalogtable import (
    created_options,
    metadata_of,
    options_for_reading,
    options_for_writing,
)
from cqrepl.spark.lostends import check_end
from cqrepl.spark.offsets import capped
from cqrepl.spark.partitions import SplitPartition, partitions_of
from cqrepl.spark.queuefinder import Finder
from cqrepl.spark.ranges import IndexRange, present
from cqrepl.spark.reasons import reason_only
from cqrepl.spark.recordbatches import arrow_schema
from cqrepl.spark.scanjar import offer_scan
from cqrepl.spark.schemachoice import kept_options, options_with_schema
from cqrepl.spark.sparktypes import check_typed, struct_type
from cqrepl.spark.streamreader import ChronicleStreamReader, RefusedStream
from cqrepl.spark.tablefunction import register_function
from cqrepl.spark.tableguard import guard_tables
from cqrepl.spark.tablekeeper import keep_tables
from cqrepl.spark.tableoptions import (
    Bounds,
    OptionError,
    ReadOptions,
    TableError,
    bounds,
    stream_options,
    write_options,
)
from cqrepl.spark.tablewriter import ChronicleStreamWriter, ChronicleWriter
from cqrepl.spark.taskreader import read_split

FORMAT = "chronicle"
FORMAT_IN_PYTHON = "chronicle_python"


def register(spark: SparkSession) -> None:
    """Makes `format("chronicle")` and `chronicle_range` known to a session; once more replaces
    them. Tables of its catalog keep their options from now on. The session becomes the active one
    of the calling thread, which writing asks for."""
    activate(spark)
    has_java = java_of(spark) is not None
    has_scan = offer_scan(spark, keeps_tables=has_java)
    source = ChronicleSource if has_java else ConnectSource
    if not has_scan:
        spark.dataSource.register(source)
    spark.dataSource.register(source.in_python())
    register_function(spark)
    if has_java:
        keep_tables(spark, FORMAT)
    else:
        guard_tables(spark, FORMAT)


class ChronicleSource(DataSource):
    """Queues as one table of excerpts."""

    _needs_path = False  # of each table that is made
    _ends: dict[Path, int] | None = None  # when the DataFrame was made; travels with this object

    @classmethod
    def name(cls) -> str:
        """The name of this source that a user gives to `format`."""
        return FORMAT

    @classmethod
    def in_python(cls) -> "type[ChronicleSource]":
        """The same source under the name that it has beside the scan in Java."""
        return PythonSource if cls is ChronicleSource else PythonConnectSource

    @reason_only()
    def schema(self) -> StructType:
        """The columns that were chosen; those of a table of the catalog keep its options.

        Raises:
            OptionError: an option cannot be used.
        """
        created = created_options(self.options)
        if created is not None:
            options = options_with_schema(created)
            if self._needs_path and "path" not in created:
                raise OptionError("path", "the directory of a queue, or a pattern of some", "none")
            return struct_type(options, metadata_of(kept_options(created, options)))
        options = options_with_schema(self.options)
        found = Finder(options.finding).find()
        self._ends = {path: _end_of(path) for path in found.values()}
        return struct_type(options)

    @reason_only()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads what the queues hold when the query is planned.

        Raises:
            TableError: an option cannot be used, or a column is no column of a queue.
        """
        given = options_for_reading(self.options, schema.fields)
        options, wanted = options_with_schema(given, schema.names), bounds(given)
        ends = self._ends if wanted.is_of_load else None
        return ChronicleReader(options, wanted, planned_schema(schema, options), ends)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads what is appended, micro-batch by micro-batch.

        Where an option cannot be used, or a column is no column of a queue, what comes raises that
        as soon as it is asked for an offset.
        """
        try:
            given = options_for_reading(self.options, schema.fields)
            options, stream = options_with_schema(given, schema.names), stream_options(given)
            return ChronicleStreamReader(options, stream, planned_schema(schema, options))
        except TableError as error:
            return RefusedStream(error)

    @reason_only()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes rows at exactly their indexes.

        Raises:
            TableError, QueueError: as `ChronicleWriter`.
        """
        options = write_options(options_for_writing(self.options))
        return ChronicleWriter(options, schema, overwrite)

    @reason_only()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Writes micro-batches at exactly their indexes.

        Raises:
            TableError, QueueError: as `ChronicleStreamWriter`.
        """
        options = write_options(options_for_writing(self.options))
        return ChronicleStreamWriter(options, schema, overwrite)


class ConnectSource(ChronicleSource):
    """The same over Spark Connect, where no table can be kept from being Spark's own afterwards."""

    _needs_path = True


class PythonSource(ChronicleSource):
    """The source in Python, beside the scan in Java."""

    @classmethod
    def name(cls) -> str:
        """As it is registered, and as the scan in Java looks for it."""
        return FORMAT_IN_PYTHON


class PythonConnectSource(ConnectSource):
    """The same over Spark Connect."""

    @classmethod
    def name(cls) -> str:
        """As above."""
        return FORMAT_IN_PYTHON


def _end_of(path: Path) -> int:
    """One past the last excerpt; 0 where there is no queue, which the reading itself tells."""
    try:
        with Queue.open(path) as queue:
            return queue.next_index()
    except NotAQueue:
        return NEXT_OF_EMPTY


def planned_schema(schema: StructType, options: ReadOptions) -> "pa.Schema":
    """The Arrow schema of what Spark has planned.

    Raises:
        OptionError: a column is no column of a queue, or of another type.
    """
    if options.typed is not None:
        check_typed(schema, options)
        return to_arrow_schema(schema, timezone="UTC")
    fields = [(one.name, one.dataType.simpleString(), one.nullable) for one in schema.fields]
    return arrow_schema(fields, options.payload)


class ChronicleReader(DataSourceReader):
    """Plans and reads a batch."""

    def __init__(
        self,
        options: ReadOptions,
        wanted: Bounds,
        schema: "pa.Schema",
        ends: dict[Path, int] | None = None,
    ) -> None:
        """Reads no further than `ends`, where they are given, and no other queues."""
        self._ends = ends
        self._options = options
        self._wanted = wanted
        self._schema = schema

    @reason_only()
    def partitions(self) -> Sequence[InputPartition]:
        """The splits that the tasks read, one each.

        Raises:
            OptionError: there is no queue.
            QueueError: one cannot be read.
        """
        options = self._options
        found = Finder(options.finding).find()
        if not found:
            paths = ", ".join(options.finding.paths)
            raise OptionError("path", "a pattern that a queue matches", repr(paths))
        self._wanted.check_names(found)
        ranges: list[IndexRange] = []
        for name, path in found.items():
            with Queue.open(path) as queue:
                first, last = self._wanted.indexes(queue.layout, name)
                check_end(queue, last)
                found_now = present(queue, first, last)  # up to its end, which that looks at
                if self._ends is not None:
                    found_now = capped(found_now, self._ends.get(path, NEXT_OF_EMPTY))
                ranges += found_now
        return partitions_of(ranges, found, options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The record batches of one task."""
        if isinstance(partition, SplitPartition):  # Spark makes an empty one where there is none
            with reason_only():
                yield from read_split(partition, self._schema, self._options)
