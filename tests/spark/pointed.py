"""A driver of its own that runs jobs as it is told, and that may be killed.

    python -P -m tests.spark.pointed ROOT [MASTER]

It reads the names of jobs, a line each time, and runs those of one line side by side, each below
`work` in its own folder of the root. It answers with a line of JSON: for each job the one line that
a command would print, or null where it has ended well. A job's folder has the file `ended` then.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import QueueError, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.spark.points import VARIABLE, WORK
from tests.spark.queues import CYCLE, DAY_MS
from tests.spark.quickjava import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 3
MANY: Final = ("queue", "less")
LOCAL: Final = "local[9,3]"  # one more than all jobs, each of which may stand still in a task
SETTINGS: Final = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": OPTIONS,
    # so little data is done before code for it would be made
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.task.maxFailures": "3",  # tasks that are killed are tried again
}


def archive(spark: "SparkSession", work: Path) -> None:
    from cqrepl.spark.jobs.archive import archive as job

    job(spark, work / "queue", work / "out", with_open=True, task_bytes=1)


def restore(spark: "SparkSession", work: Path) -> None:
    """Gives `large` back from `archived` as `back`, its large cycle by two tasks."""
    from cqrepl.spark.jobs.restore import restore as job

    job(spark, work / "archived", work / "back", task_bytes=1)


def rebuild(spark: "SparkSession", work: Path) -> None:
    """Makes `new` of two copies of which none is whole, its large cycle by two tasks."""
    from cqrepl.spark.jobs.rebuild import rebuild as job

    job(spark, [work / "large1", work / "large2"], work / "new", task_bytes=1)


def audit(spark: "SparkSession", work: Path) -> None:
    """Compares `queue` with `same`, and with `less`; what is told goes into `told`."""
    from cqrepl.spark.jobs.audit import audit as job

    found = [job(spark, [work / "queue", work / other], task_bytes=1) for other in ("same", "less")]
    told = [(each.is_same, each.count, [str(one) for one in each.differences]) for each in found]
    (work.parent / "told").write_text(json.dumps(told))


def preload(spark: "SparkSession", work: Path) -> None:
    """Fills queues in `filled` with the rows of `table`."""
    from cqrepl.spark.jobs.preload import PreloadSettings
    from cqrepl.spark.jobs.preload import preload as job

    frame = spark.read.parquet(str(work / "table"))
    settings = PreloadSettings(key="symbol", partitions=PARTITIONS, payload="text", order="id")
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    job(frame, work / "filled", settings, layout=layout, now_ms=CYCLE * DAY_MS, block=10)


def write(spark: "SparkSession", work: Path) -> None:
    from cqrepl.spark import in_index_order

    frame = spark.read.format("chronicle").option("splitExcerpts", 100).load(str(work / "queue"))
    writer = in_index_order(frame, 3).write.format("chronicle")
    writer.option("like", str(work / "queue")).mode("append").save(str(work / "written"))


def write_many(spark: "SparkSession", work: Path) -> None:
    """Writes the rows of `queue` and `less` to queues of these names in `many`."""
    from cqrepl.spark import in_index_order

    reader = spark.read.format("chronicle").option("splitExcerpts", 100)
    frame = reader.load([str(work / name) for name in MANY])
    writer = in_index_order(frame, 3, "queue").write.format("chronicle")
    writer = writer.options(like=str(work), queueColumn="queue")
    writer.mode("append").save(str(work / "many"))


def rebuild_manifest(spark: "SparkSession", work: Path) -> None:
    from cqrepl.spark.jobs.manifestmaker import make_manifest

    make_manifest(spark, work / "archived", queue=work / "large", replaces=True, is_applied=True)


JOBS: Final[Mapping[str, Callable[["SparkSession", Path], None]]] = {
    job.__name__: job
    for job in (archive, restore, rebuild, audit, preload, write, write_many, rebuild_manifest)
}


def on_cluster() -> dict[str, str]:
    """The settings by which executors on this machine are as the workers of a local session."""
    environment = {name: os.environ[name] for name in ("PYTHONPATH", VARIABLE)}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": OPTIONS,
        "spark.executor.cores": "1",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
    }


def main() -> None:
    from cqrepl.spark import register
    from cqrepl.spark.failures import JobFailed, one_line
    from cqrepl.spark.session import SessionSettings, session

    root, master = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else LOCAL
    conf = SETTINGS if master == LOCAL else {**SETTINGS, **on_cluster()}

    def said_by(job: str) -> str | None:
        said = None
        try:
            with one_line():
                JOBS[job](spark, root / job / WORK)
        except (JobFailed, QueueError, BadArguments, OSError) as error:
            said = f"{type(error).__name__}: {error}"
        (root / job / "ended").touch()
        return said

    with (
        session(SessionSettings(master=master, conf=conf), "points") as spark,
        ThreadPoolExecutor(len(JOBS)) as threads,
    ):
        register(spark)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        print(json.dumps(gateway.proc.pid), flush=True)
        for line in sys.stdin:
            print(json.dumps(list(threads.map(said_by, line.split()))), flush=True)


if __name__ == "__main__":
    main()
