"""The table function `chronicle_range`: some excerpts of a queue in the midst of a query.

    SELECT * FROM chronicle_range('queues/orders', '0x451600000000', '0x451600000100')
    SELECT payload FROM chronicle_range('queues/orders', NULL, NULL, 'index,payload')

The bounds are the options `fromIndex` and `toIndex`: text or numbers, the last one not included,
NULL for none. One task reads all of it, excerpt by excerpt, so it is for ranges; whole queues are
for `format("chronicle")`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.functions import udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, UserDefinedTableFunction

from cqrepl.queue import Queue
from cqrepl.spark.ranges import present
from cqrepl.spark.reasons import reason_only
from cqrepl.spark.recordbatches import BatchMaker, arrow_schema, type_of
from cqrepl.spark.sparktypes import struct_type
from cqrepl.spark.tableoptions import OptionError, ReadOptions, bounds, read_options
from cqrepl.spark.taskreader import read_one_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "chronicle_range"


class ChronicleRange:
    """What Spark calls for `chronicle_range(path, from, to, columns)`."""

    @staticmethod
    @reason_only()
    def analyze(*arguments: AnalyzeArgument) -> AnalyzeResult:
        """The columns that come out.

        Raises:
            OptionError: an argument cannot be used, or is no constant.
        """
        if not 1 <= len(arguments) <= 4:
            raise OptionError(NAME, "path, from, to and columns", f"{len(arguments)} arguments")
        if not all(each.isConstantExpression for each in arguments):
            raise OptionError(NAME, "constant arguments", "one that depends on a row")
        options = _options(*(each.value for each in arguments))
        bounds(_texts(*(each.value for each in arguments)))
        return AnalyzeResult(struct_type(options.columns, options.payload))

    def eval(self, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows, in the order of their indexes.

        Raises:
            QueueError: the queue cannot be read.
        """
        with reason_only():
            options, wanted = _options(*values), bounds(_texts(*values))
            fields = [(name, type_of(name, options.payload), False) for name in options.columns]
            maker = BatchMaker(arrow_schema(fields, options.payload), options.payload)
            path = options.finding.paths[0]
            with Queue.open(path) as queue:
                for one in present(queue, *wanted.indexes(queue.layout)):
                    for batch in read_one_range(queue, one, queue.path.name, maker, options):
                        yield from zip(*(column.to_pylist() for column in batch), strict=True)


def register_function(spark: "SparkSession") -> None:
    """Makes `chronicle_range` known to a session; once more replaces it."""
    function = udtf(ChronicleRange, useArrow=False)
    assert isinstance(function, UserDefinedTableFunction)  # called so, it is no decorator
    spark.udtf.register(NAME, function)


def _options(*values: Any) -> ReadOptions:
    return read_options(_texts(*values))


def _texts(
    path: Any, index_from: Any = None, index_end: Any = None, columns: Any = None
) -> dict[str, str]:
    """The arguments as options of reading; NULL is none."""
    given = {"path": path, "fromIndex": index_from, "toIndex": index_end, "columns": columns}
    return {name: str(value) for name, value in given.items() if value is not None}
