"""Tasks over Spark Connect, where a client has no `sparkContext`: each is a row of a frame, in a
partition of its own.

Tasks and answers travel as Spark's own RDDs carry them, by the pickles of pyspark: the client and
the workers of its server trust each other with code anyway.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.functions import spark_partition_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA: Final = "nth int, answer binary"
_MANY: Final = 1 << 16  # rows of a range that has a part for each processor


def run_over_connect(
    spark: "SparkSession", run: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any]
) -> list[Any]:
    """All answers of all tasks, in the order of the tasks.

    Args:
        run: is called in a worker, with one task.
    """
    pickles: Any = CPickleSerializer()  # without types in pyspark
    rows = {"nth": pa.array(range(len(tasks)), pa.int32()), "task": list(map(pickles.dumps, tasks))}

    def answered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                for answer in run([pickles.loads(row["task"])]):
                    numbers = pa.array([row["nth"]], pa.int32())
                    yield pa.record_batch({"nth": numbers, "answer": [pickles.dumps(answer)]})

    frame = spark.createDataFrame(pa.table(rows)).repartitionById(len(tasks), "nth")
    found = frame.mapInArrow(answered, _SCHEMA).collect()
    return [pickles.loads(row["answer"]) for row in sorted(found, key=lambda row: row["nth"])]


def parallelism_over_connect(spark: "SparkSession") -> int:
    """The number of tasks that the server of a session runs at once."""
    return spark.range(_MANY).select(spark_partition_id()).distinct().count()
