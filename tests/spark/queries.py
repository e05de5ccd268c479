"""Streams and frames over queues, as tests of several files begin them."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

QUERY_S = 300
COLUMNS = StructType(
    [StructField("index", LongType(), False), StructField("payload", BinaryType(), False)]
)


def drained(
    frame: DataFrame, folder: Path, form: str = "parquet", out: Path | None = None, **options: str
) -> StreamingQuery:
    writing = frame.writeStream.format(form).options(**options).trigger(availableNow=True)
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    query = writing.start(str(out or folder / "out"))
    try:
        assert query.awaitTermination(QUERY_S)
    finally:
        query.stop()
    return query


def forget_last_batch(checkpoint: Path) -> None:
    """Removes the newest entry of the commit log: Spark plans and runs that batch anew."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
    for each in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        each.unlink()
