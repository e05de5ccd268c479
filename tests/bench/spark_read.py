"""Reading a queue through Spark, beside the best that Spark could do, in one interleaved run.

    python -m tests.bench.spark_read [--rounds 5] [--count 2000000] [--size 256] [--columns index]
                                     [--what scan|count|where]

ready     a data source whose tasks yield one batch, made before, again and again: the same number
          of excerpts, of the same size and columns, at no cost of its own
queue     the data source `chronicle` on a queue: the scan in Java
python    the data source `chronicle_python` on it
parquet   `spark.read.parquet` on the same data, not compressed, the same columns of it

All go into Spark's sink `noop`; or are counted; or a hundredth of them, by a condition on `index`,
goes there. Excerpts a second on the clock, and for each second of the
processors (of Java and all its Python workers); medians, and ratios of medians.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from cqrepl.bench.report import scratch
from cqrepl.queue import Queue
from cqrepl.samplequeue import make_queue
from cqrepl.spark import register
from cqrepl.spark.datasource import ChronicleSource
from cqrepl.spark.sparktypes import struct_type
from cqrepl.spark.tableoptions import COLUMNS_USUAL, read_options
from cqrepl.spark.taskreader import settle_worker
from tests.bench.rounds import asked, loaded

TASKS = 8
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(slots=True)
class Rates:
    """The rates of one way of reading, a number for each round."""

    wall: list[float] = field(default_factory=list)
    processors: list[float] = field(default_factory=list)


class ReadyReader(DataSourceReader):
    """Yields one batch of a queue as often as is needed."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        source = ChronicleSource({name: options[name] for name in ("path", "columns")})
        reader = source.reader(schema)
        batch = next(iter(reader.read(reader.partitions()[0])))
        assert isinstance(batch, pa.RecordBatch)
        self._count = int(options["count"]) // TASKS
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self._batch = sink.getvalue().to_pybytes()

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle_worker()
        batch = pa.ipc.open_stream(self._batch).read_next_batch()
        for start in range(0, self._count, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, self._count - start))


class ReadySource(DataSource):
    """Batches that are ready."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return struct_type(read_options({"path": "q", "columns": self.options["columns"]}))

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(schema, dict(self.options))


def session(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", str(folder))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(ReadySource)
    return spark


def processor_seconds() -> dict[int, float]:
    """The processor time of each process below this one, its waited-for children included."""
    seconds = {}
    for each in psutil.Process().children(recursive=True):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds[each.pid] = times.user + times.system + times.children_user + times.children_system
    return seconds


def measure(frame: DataFrame, count: int, rates: Rates, what: str, first: int) -> None:
    """Reads everything, counts it, or reads a hundredth of it, once."""
    before, began = processor_seconds(), time.perf_counter()
    if what == "count":
        assert frame.count() == count
    else:
        if what == "where":
            low = first + count // 2
            frame = frame.where(f"index >= {low} and index < {low + count // 100}")
        frame.write.format("noop").mode("overwrite").save()
    rates.wall.append(count / (time.perf_counter() - began))
    after = processor_seconds()
    used = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    rates.processors.append(count / used)


def main() -> None:
    usual = {"columns": ",".join(COLUMNS_USUAL), "what": "scan"}
    options = asked(__doc__, rounds=5, count=2_000_000, size=256, **usual)
    with scratch() as folder:
        queue, parquet = folder / "queue", folder / "parquet"
        make_queue(queue, options.count, options.size)
        spark = session(folder)
        with Queue.open(queue) as opened:
            first = opened.first_index() or 0
        reader = spark.read.format("chronicle")
        reader.load(str(queue)).write.option("compression", "none").parquet(str(parquet))
        reader = reader.option("columns", options.columns)
        python = spark.read.format("chronicle_python").option("columns", options.columns)
        ready = spark.read.format("ready").option("count", options.count)
        ready = ready.option("columns", options.columns)
        frames: dict[str, Callable[[], DataFrame]] = {
            "ready": lambda: ready.load(str(queue)),
            "queue": lambda: reader.load(str(queue)),
            "python": lambda: python.load(str(queue)),
            "parquet": lambda: spark.read.parquet(str(parquet)).select(*options.columns.split(",")),
        }
        rates = {name: Rates() for name in frames}
        for frame in frames.values():
            measure(frame(), options.count, Rates(), options.what, first)  # warms up
        for _ in range(options.rounds):
            for name, frame in frames.items():
                measure(frame(), options.count, rates[name], options.what, first)
        spark.stop()
    show(rates, options.count, options.size, options.rounds)


def show(rates: dict[str, Rates], count: int, size: int, rounds: int) -> None:
    print(f"{count:,} excerpts of {size} bytes, {rounds} rounds, {loaded()}")
    wall, processors = (
        {name: statistics.median(getattr(found, each)) for name, found in rates.items()}
        for each in ("wall", "processors")
    )
    for name in rates:
        print(f"{name:<8} {wall[name]:>12,.0f} excerpts/s", end=" ")
        print(f"{processors[name]:>12,.0f} for each second of the processors")
    for name in ("ready", "python", "parquet"):
        print(f"queue / {name:<8} {wall['queue'] / wall[name]:.2f} on the clock,", end=" ")
        print(f"{processors['queue'] / processors[name]:.2f} of the processors")


if __name__ == "__main__":
    main()
