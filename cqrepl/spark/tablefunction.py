"""The table function `chronicle_range`: some excerpts of a queue in the midst of a query.

    SELECT * FROM chronicle_range('queues/orders', '0x451600000000', '0x451600000100')
    SELECT payload FROM chronicle_range('queues/orders', NULL, NULL, 'index,payload')

The bounds are the options `fromIndex` and `toIndex`: text or numbers, the last one not included,
NULL for none. One task reads all of it, excerpt by excerpt, so it is for ranges; whole queues are
for `format("chronicle")`.

What the query is planned with tells the queue, and the task looks at that first (`witness`): on a
cluster another one may lie at its path.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.functions import udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from cqrepl.queue import Queue
from cqrepl.spark.activesession import java_of
from cqrepl.spark.lostends import check_end
from cqrepl.spark.ranges import present
from cqrepl.spark.reasons import reason_only
from cqrepl.spark.recordbatches import BatchMaker, arrow_schema
from cqrepl.spark.sparktypes import struct_type
from cqrepl.spark.tablecolumns import type_of
from cqrepl.spark.tableoptions import OptionError, ReadOptions, bounds, read_options
from cqrepl.spark.taskreader import read_one_range
from cqrepl.spark.witness import Witness, check_witness, witness_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "chronicle_range"


@dataclass
class AnalyzedRange(AnalyzeResult):
    """The plan of a call: its columns, and the witness of its queue."""

    witness: Witness | None = None  # always given; what it inherits has defaults


class ChronicleRange:
    """The handler that Spark calls for `chronicle_range(path, from, to, columns)`."""

    def __init__(self, analyzed: AnalyzedRange) -> None:
        self._witness = analyzed.witness

    @staticmethod
    @reason_only()
    def analyze(*arguments: AnalyzeArgument) -> AnalyzeResult:
        """The columns that come out.

        Raises:
            OptionError: an argument cannot be used, or is no constant.
            QueueError: the queue cannot be read.
        """
        if not 1 <= len(arguments) <= 4:
            raise OptionError(NAME, "path, from, to and columns", f"{len(arguments)} arguments")
        if not all(each.isConstantExpression for each in arguments):
            raise OptionError(NAME, "constant arguments", "one that depends on a row")
        options = _options(*(each.value for each in arguments))
        wanted = bounds(_texts(*(each.value for each in arguments)))
        with Queue.open(options.finding.paths[0]) as queue:
            first, last = wanted.indexes(queue.layout, "")
            check_end(queue, last)
            ranges = present(queue, first, last)
            witness = witness_of(queue, [(one.index_first, one.index_last) for one in ranges])
        return AnalyzedRange(struct_type(options), witness=witness)

    def eval(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows, in the order of their indexes.

        Raises:
            QueueError: the queue cannot be read, or is another one than the query was planned with.
        """
        with reason_only():
            options, wanted = _options(*values), bounds(_texts(*values))
            fields = [(name, type_of(name, options.payload), False) for name in options.columns]
            maker = BatchMaker(arrow_schema(fields, options.payload), options.payload)
            path = options.finding.paths[0]
            with Queue.open(path) as queue:
                if self._witness is not None:
                    check_witness(queue, self._witness)
                for one in present(queue, *wanted.indexes(queue.layout, "")):
                    for batch in read_one_range(queue, one, queue.path.name, maker, options):
                        yield from zip(*(column.to_pylist() for column in batch), strict=True)


def register_function(spark: "SparkSession") -> None:
    """Makes `chronicle_range` known to a session; once more replaces it."""
    make: Callable[..., Any] = udtf
    if java_of(spark) is None:  # Spark Connect registers functions of a class of its own
        from pyspark.sql.connect import functions

        make = functions.udtf
    spark.udtf.register(NAME, make(ChronicleRange, useArrow=False))


def _options(*values: Any) -> ReadOptions:
    return read_options(_texts(*values))


def _texts(
    path: Any, index_from: Any = None, index_end: Any = None, columns: Any = None
) -> dict[str, str]:
    """The arguments as options of reading; NULL is none."""
    given = {"path": path, "fromIndex": index_from, "toIndex": index_end, "columns": columns}
    return {name: str(value) for name, value in given.items() if value is not None}
