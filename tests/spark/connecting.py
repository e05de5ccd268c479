"""A client of Spark Connect, as a program of its own: it has no Java, and prints what it found.

python -m tests.spark.connecting sc://127.0.0.1:15002 read /data/queues/orders
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from cqrepl.queue import Queue
from cqrepl.spark import from_wire, in_index_order, register, to_wire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(spark: "SparkSession", queue: Path) -> object:
    """The number of excerpts that a frame finds, and the number that the table function finds."""
    sql = f"SELECT * FROM chronicle_range('{queue}', NULL, NULL)"
    frame = spark.read.format("chronicle").load(str(queue))
    return {"frame": frame.count(), "range": len(spark.sql(sql).collect())}


def typed(spark: "SparkSession", queue: Path) -> object:
    """The numbers of a field of documents, by the source and by a function, and back again."""
    schema = '{"properties": {"qty": {"type": "integer"}}, "required": ["qty"]}'
    frame = spark.read.format("chronicle").option("schema", schema).load(str(queue))
    plain = spark.read.format("chronicle").option("payload", "raw").load(str(queue))
    read = plain.select(from_wire("payload", schema).alias("each")).select("each.qty")
    made = read.selectExpr("named_struct('qty', qty) as each")
    again = made.select(to_wire("each", schema).alias("payload"))
    return {
        "source": sorted(row.qty for row in frame.select("qty").collect()),
        "function": sorted(row.qty for row in read.collect()),
        "again": sorted(bytes(row.payload).hex() for row in again.collect()),
    }


def write(spark: "SparkSession", queue: Path) -> object:
    """Makes a copy by a frame, and Parquet files by a stream."""
    frame = in_index_order(spark.read.format("chronicle").load(str(queue)), 2)
    writer = frame.write.format("chronicle").option("like", str(queue)).mode("append")
    writer.save(str(queue.with_name("copy")))
    out, checkpoint = str(queue.with_name("out")), str(queue.with_name("checkpoint"))
    stream = spark.readStream.format("chronicle").load(str(queue)).writeStream.format("parquet")
    stream = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    assert stream.start(out).awaitTermination(300)
    return spark.read.parquet(out).count()


def jobs(spark: "SparkSession", queue: Path) -> object:
    """Every job, over the queue and its copy."""
    from cqrepl.spark.failures import JobFailed
    from cqrepl.spark.jobs.archive import archive
    from cqrepl.spark.jobs.audit import audit
    from cqrepl.spark.jobs.lag import lag
    from cqrepl.spark.jobs.preload import PreloadSettings, preload
    from cqrepl.spark.jobs.rebuild import rebuild
    from cqrepl.spark.jobs.restore import restore
    from cqrepl.spark.session import SessionSettings, session

    kept, copy = queue.with_name("archive"), queue.with_name("copy")
    archived = archive(spark, queue, kept)[0].count
    made = restore(spark, kept, queue.with_name("restored")).made
    rebuilt = rebuild(spark, [queue, copy], queue.with_name("rebuilt")).count
    with Queue.open(queue) as opened:
        layout = opened.layout
    rows = spark.createDataFrame([(f"ключ {nth}", nth) for nth in range(20)], "k string, n bigint")
    filled = preload(
        rows, queue.with_name("maps"), PreloadSettings(key="k", partitions=3), layout=layout,
        now_ms=1_700_000_000_000,
    )  # fmt: skip
    try:
        lag(spark, [queue])
        told = ""
    except JobFailed as error:
        told = str(error)
    with session(SessionSettings(), "orders") as there:
        is_same_session = there is spark
    return {
        "same": audit(spark, [queue, copy], reads_all=True).is_same,
        "archived": archived,
        "restored": len(made),
        "rebuilt": rebuilt,
        "preloaded": sum(each.excerpts for each in filled),
        "lag": told,
        "session": is_same_session,
    }


def tables(spark: "SparkSession", queue: Path) -> object:
    """The answers to statements about tables that a `DROP` would delete with a queue."""
    ask = spark.guards_queues._ask  # type: ignore[attr-defined]  # pyspark types no own attributes
    ask("CREATE TABLE elsewhere (index bigint) USING chronicle")  # by a program that registers less
    ask("CREATE TABLE moved (index bigint) USING chronicle")
    ask(f"ALTER TABLE moved SET LOCATION '{queue}'")
    ask("CREATE DATABASE some")
    ask("CREATE TABLE some.moved (index bigint) USING chronicle")
    ask(f"ALTER TABLE some.moved SET LOCATION '{queue}'")
    ask("DECLARE VARIABLE dropping STRING DEFAULT 'DROP TABLE moved'")
    spark.sql(f"CREATE TABLE mine USING chronicle OPTIONS (path '{queue}')")
    making = "CREATE TABLE other (index bigint COMMENT '--') USING chronicle"
    said = {
        statement: said_of(partial(spark.sql, statement))
        for statement in (
            making,
            "/* it */ create or replace table other\n(index bigint)\nusing `chronicle`",
            f"CREATE TABLE other USING chronicle OPTIONS (paths '[\"{queue}\"]')",
            "CREATE TABLE other LIKE mine",
            f'EXECUTE IMMEDIATE "{making}"',
            f"BEGIN {making}; ALTER TABLE other SET LOCATION '{queue}'; DROP TABLE other; END",
            f"ALTER TABLE elsewhere SET LOCATION '{queue}'",
            f"EXECUTE IMMEDIATE \"ALTER TABLE elsewhere SET LOCATION '{queue}'\"",
            "DROP TABLE moved",
            "DROP TABLE IF EXISTS default.moved",
            "DROP TABLE IDENTIFIER('mo' || 'ved')",
            "DROP DATABASE some CASCADE",
            "EXECUTE IMMEDIATE dropping",
            "BEGIN DROP TABLE moved; END",
            "BEGIN EXECUTE IMMEDIATE dropping; END",
        )
    }
    said["dropTable"] = said_of(lambda: spark.catalog.dropTable("moved"))
    schema = spark.table("mine").select("index").schema
    said["createTable"] = said_of(
        lambda: spark.catalog.createTable("other", source="chronicle", schema=schema)
    )
    found = {
        "count": spark.table("mine").count(),
        "immediate": spark.sql("EXECUTE IMMEDIATE 'SELECT ' || :a", args={"a": "3"}).collect(),
        "script": spark.sql("BEGIN DROP TABLE mine; SELECT 4; END").collect(),
    }
    return {**found, "said": said, "unregistered": unregistered(spark, queue)}


def unregistered(spark: "SparkSession", queue: Path) -> list[str]:
    """The errors in a session that has not registered the source, like each of another language."""
    builder: Any = type(spark).builder
    other = builder.remote(sys.argv[1]).create()
    return [
        said_of(partial(other.sql, statement))
        for statement in (
            "CREATE TABLE its (index bigint) USING chronicle",
            f"ALTER TABLE elsewhere SET LOCATION '{queue}'",
            "DROP TABLE moved",
            "BEGIN DROP TABLE moved; END",
        )
    ]


def said_of(what: Callable[[], object]) -> str:
    """The first line of the error that something raises; "" for none."""
    from cqrepl.spark.tableoptions import TableError

    try:
        what()
    except (TableError, PySparkException) as error:
        return str(error).splitlines()[0]
    return ""


_WHAT: Final[dict[str, Callable[["SparkSession", Path], object]]] = {
    each.__name__: each for each in (read, typed, write, jobs, tables)
}


def main(url: str, *words: str) -> None:
    """Does one or more things with queues, and prints a line for each."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    spark = builder.remote(url).getOrCreate()
    register(spark)
    for what, path in zip(words[::2], words[1::2], strict=True):
        print(json.dumps(_WHAT[what](spark, Path(path))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
