"""Archive, restore and preload, beside a plain copy of the same data by Spark, in turn.

    python -m tests.bench.spark_jobs [--rounds 3] [--count 2000000] [--size 100] [--only copy,rows]

copy      `spark.read.parquet` of the queue's (index, payload), written as Parquet again (zstd)
archive   `cqrepl.spark.jobs.archive` of the queue, into an empty directory
restore   `cqrepl.spark.jobs.restore` of that archive
preload   `cqrepl.spark.jobs.preload`: the payloads by a key of text, in the order of `index`, into
          8 queues
rows      the same with whole rows of (key, index, payload) as binary wire; a tenth of the rows

Excerpts for each second of the processors (of Java and all Python processes), medians of rounds
after one that is not counted, and their ratio to `copy`. On a shared machine only these mean much.
"""

import math
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

from cqrepl.bench.report import scratch
from cqrepl.queue import QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.samplequeue import make_queue
from cqrepl.spark.jobs.archive import archive
from cqrepl.spark.jobs.preload import PreloadSettings, preload
from cqrepl.spark.jobs.restore import restore
from tests.bench.rounds import asked, loaded
from tests.bench.spark_read import processor_seconds, session

PARTITIONS = 8
KEYS = 1000
NOW_MS = 1_700_000_000_000


def own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def used(work: Callable[[], object]) -> float:
    """Seconds of the processors that something takes, in this process and below it."""
    before, own = processor_seconds(), own_seconds()
    work()
    after = processor_seconds()
    below = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    return below + own_seconds() - own


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of the processors, of this process and all below it."""
    began = time.perf_counter()
    processors = used(work)
    return time.perf_counter() - began, processors


def filled(frame: DataFrame, out: Path, payload: str | None) -> None:
    settings = PreloadSettings(key="key", partitions=PARTITIONS, payload=payload, order="index")
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    preload(frame, out, settings, layout=layout, now_ms=NOW_MS)


def jobs(
    spark: SparkSession, folder: Path, count: int
) -> dict[str, tuple[int, Callable[[], object]]]:
    """The jobs that are measured, each with the number of excerpts that it treats."""
    queue, plain, table = folder / "queue", folder / "plain", folder / "table"
    spark.read.format("chronicle").option("columns", "index,payload").load(
        str(queue)
    ).write.parquet(str(plain))
    keyed = spark.read.parquet(str(plain)).selectExpr(
        f"concat('key-', pmod(hash(index), {KEYS})) key", "index", "payload"
    )
    keyed.write.parquet(str(table))
    rows = spark.read.parquet(str(table))
    few = rows.limit(count // 10).repartition(4)
    few.write.parquet(str(folder / "few"))
    few_read = spark.read.parquet(str(folder / "few"))
    return {
        "copy": (count, lambda: spark.read.parquet(str(plain)).write.parquet(str(folder / "copy"))),
        "archive": (count, lambda: archive(spark, queue, folder / "archived", with_open=True)),
        "restore": (count, lambda: restore(spark, folder / "archived", folder / "back")),
        "preload": (count, lambda: filled(rows, folder / "filled", "payload")),
        "rows": (count // 10, lambda: filled(few_read, folder / "whole", None)),
    }


def main() -> None:
    options = asked(
        __doc__, rounds=3, count=2_000_000, size=100, only="copy,archive,restore,preload,rows"
    )
    wanted = options.only.split(",")
    with scratch() as folder:
        make_queue(folder / "queue", options.count, options.size)
        spark = session(folder)
        spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
        found = jobs(spark, folder, options.count)
        found = {name: work for name, work in found.items() if name in wanted}
        rates: dict[str, list[float]] = {name: [] for name in found}
        for nth in range(options.rounds + 1):
            for made in ("copy", "archived", "back", "filled", "whole"):
                shutil.rmtree(folder / made, ignore_errors=True)
            for name, (count, work) in found.items():
                rate = count / used(work)
                if nth:
                    rates[name].append(rate)
        spark.stop()
    print(f"{options.count:,} excerpts of {options.size} bytes, {loaded()}")
    plain = statistics.median(rates["copy"]) if "copy" in rates else math.nan
    for name, each in rates.items():
        rate = statistics.median(each)
        print(f"{name:<8} {rate:>12,.0f} for each second of the processors, {rate / plain:.2f}")


if __name__ == "__main__":
    main()
