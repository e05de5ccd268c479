"""An audit of two copies, beside a join of their excerpts in Spark, in one interleaved run.

    python -m tests.bench.spark_audit [--rounds 5] [--count 2000000] [--size 100] [--only audit]

audit     `cqrepl.spark.jobs.audit` of two equal copies
join      both copies by the data source `chronicle`; an outer join of (index, 64-bit hash of the
          payload), and the number of rows without a partner

Both in the same session, after a round that is not counted. Excerpts a second of one copy on the
clock, and for each second of the processors; medians, and their ratio. Last, the command
`cqrepl spark audit` on two empty queues, as a whole process.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import xxhash64

from cqrepl.bench.report import scratch
from cqrepl.queue import Queue
from cqrepl.samplequeue import make_queue
from cqrepl.spark import register
from cqrepl.spark.jobs.audit import audit
from cqrepl.spark.session import SessionSettings, session
from tests.bench.rounds import asked, loaded
from tests.bench.spark_jobs import measured

CONF = {"spark.driver.memory": "2g"}


def joined(spark: SparkSession, paths: list[Path]) -> bool:
    """True when an outer join leaves nothing alone."""

    def hashes(path: Path) -> DataFrame:
        frame = spark.read.format("chronicle").load(str(path))
        return frame.select("index", xxhash64("payload").alias("hash"))

    one, other = hashes(paths[0]), hashes(paths[1])
    both = one.join(other.withColumnRenamed("hash", "held"), "index", "full_outer")
    return both.filter("hash is null or held is null or hash != held").count() == 0


def seconds(work: Callable[[], bool]) -> tuple[float, float]:
    """The seconds on the clock, and those of the processors, in this process and all below it."""

    def checked() -> None:
        if not work():
            raise RuntimeError("the copies are not the same")

    return measured(checked)


def empty_command(folder: Path) -> float:
    """Seconds of the whole command on two empty queues."""
    paths = [folder / "empty-1", folder / "empty-2"]
    for path in paths:
        Queue.open(path, create="FAST_DAILY").close()
    command = [sys.executable, "-m", "cqrepl", "spark", "audit", *map(str, paths)]
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    arguments = asked(__doc__, rounds=5, count=2_000_000, size=100, only="audit,join,empty")
    wanted = arguments.only.split(",")
    taken: dict[str, list[float]] = {each: [] for each in ("audit", "join") if each in wanted}
    processors: dict[str, list[float]] = {each: [] for each in taken}
    with scratch() as folder:
        paths = [folder / "one", folder / "two"]
        make_queue(paths[0], arguments.count, arguments.size)
        shutil.copytree(paths[0], paths[1])
        print(f"{arguments.count:,} excerpts of {arguments.size} bytes in each copy", flush=True)
        with session(SessionSettings(conf=CONF), "bench") as spark:
            register(spark)
            works = {
                "audit": lambda: audit(spark, paths).is_same,
                "join": lambda: joined(spark, paths),
            }
            for nth in range(arguments.rounds + 1):
                for kind in taken:
                    clock, each = seconds(works[kind])
                    if nth:
                        taken[kind].append(clock)
                        processors[kind].append(each)
        empty = [empty_command(folder) for _ in range(3)] if "empty" in wanted else []
    rates = {kind: arguments.count / statistics.median(each) for kind, each in taken.items()}
    for kind, rate in rates.items():
        times = " ".join(f"{each:.2f}" for each in taken[kind])
        each = arguments.count / statistics.median(processors[kind])
        print(f"{kind:<6} {rate:>12,.0f} excerpts/s of each copy   ({times} s)", end=" ")
        print(f"{each:>12,.0f} for each second of the processors")
    if len(taken) > 1:
        ratio = statistics.median(processors["join"]) / statistics.median(processors["audit"])
        print(f"audit / join: {rates['audit'] / rates['join']:.1f}, of the processors {ratio:.1f}")
    print(loaded())
    if empty:
        print(f"command on two empty queues: median {statistics.median(empty):.1f} s")
    print(f"{os.cpu_count()} processors, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
