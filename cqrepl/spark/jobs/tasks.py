"""Runs Python over a list of tasks in Spark, and gives what comes out to the driver.

Each task is one partition, and is carried to no other one: so many tasks cost each no more. No
DataFrame is in between, which would ask for pandas. What a task
answers travels as JSON, a line for each answer; it is a summary, never excerpts.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pyspark.sql import SparkSession

from cqrepl.spark.activesession import java_of
from cqrepl.spark.failures import one_line
from cqrepl.spark.jobs.connecttasks import parallelism_over_connect, run_over_connect
from cqrepl.spark.taskreader import settle_worker

Task = TypeVar("Task")
Found = TypeVar("Found")
Answer = dict[str, Any]

_PAUSE_S: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"


def run_tasks(
    spark: SparkSession,
    what: str,
    work: Callable[[Task], Iterable[Answer]],
    tasks: Sequence[Task],
) -> list[Answer]:
    """All answers of all tasks, in the order of the tasks. Progress shows on a terminal.

    Args:
        what: the word for it in the line of progress.
        work: what is done with a task; run in a worker.

    Raises:
        JobFailed: a task has failed; the message is the one line that says why.
    """

    def texts(task: Task) -> Iterator[str]:
        for answer in work(task):
            yield json.dumps(answer)

    return [json.loads(text) for text in run_for_objects(spark, what, texts, tasks)]


def run_for_objects(
    spark: SparkSession,
    what: str,
    work: Callable[[Task], Iterable[Found]],
    tasks: Sequence[Task],
) -> list[Found]:
    """As `run_tasks`, for answers that are objects which can be pickled.

    Raises:
        JobFailed: as `run_tasks`.
    """
    if not tasks:
        return []

    def run(own: Iterable[Task]) -> Iterator[Found]:
        settle_worker()
        for task in own:
            yield from work(task)

    with progress(spark, what), one_line():
        if java_of(spark) is None:
            return run_over_connect(spark, run, tasks)
        return spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(run).collect()


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that run at once; at least 1."""
    if java_of(spark) is None:
        return max(1, parallelism_over_connect(spark))
    return max(1, spark.sparkContext.defaultParallelism)


@contextmanager
def handed(spark: SparkSession, value: Found) -> Iterator[Callable[[], Found]]:
    """Hands a value to all tasks of a block: a worker takes it once, and not in each of its tasks.
    Over Spark Connect, which has no broadcast, it travels with each."""
    if java_of(spark) is None:
        yield lambda: value
        return
    sent = spark.sparkContext.broadcast(value)
    try:
        yield lambda: sent.value
    finally:
        sent.unpersist()


@contextmanager
def progress(spark: SparkSession, what: str) -> Iterator[None]:
    """Shows how many tasks are done while a block runs; nothing where stderr is no terminal, or
    over Spark Connect, which does not tell."""
    if sys.stderr is None or not sys.stderr.isatty() or java_of(spark) is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(spark, what, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()


def _show(spark: SparkSession, what: str, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(_PAUSE_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if total:
            sys.stderr.write(f"{_CLEAR_LINE}{what}: {done:,} of {total:,} tasks")
            sys.stderr.flush()
