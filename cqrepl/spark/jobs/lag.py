"""Measures how far sinks were behind: round trips over time, from logs of `source --ack-log`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from cqrepl.queue import Queue
from cqrepl.spark.jobs.blocks import TASK_BYTES, read_pieces
from cqrepl.spark.jobs.roundtrips import PERCENTILES, AckRun, joined_runs, run_of, runs_in
from cqrepl.spark.jobs.seentasks import SeenTask, seen_tasks
from cqrepl.spark.jobs.tasks import Answer, run_tasks
from cqrepl.spark.lostends import check_end
from cqrepl.spark.ranges import present

WINDOW_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LagWindow:
    """Round trips of one log in one span of time.

    Args:
        run: counts the starts of the machine that the log spans, from 0.
        start_s: since the first window of the run.
    """

    log: str
    run: int
    start_s: float
    acknowledgements: int
    excerpts: int
    payload_bytes: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    longest_ns: int


def lag(
    spark: SparkSession,
    logs: Sequence[Path | str],
    *,
    window_ms: int = WINDOW_MS,
    task_bytes: int = TASK_BYTES,
) -> list[LagWindow]:
    """Percentiles of the round trips in each window of time, in the order of the logs.

    Args:
        task_bytes: of store file that a task reads, about.

    Raises:
        QueueError: there is no queue, or no log of acknowledgements in it.
        QueueDamaged: a log cannot be read, or has lost its end.
    """
    window_ns = window_ms * 1_000_000
    paths = [Path(log).absolute() for log in logs]
    tasks: list[tuple[int, SeenTask]] = []
    for nth, path in enumerate(paths):
        with Queue.open(path) as queue:
            check_end(queue)
            tasks += [(nth, task) for task in seen_tasks(present(queue), task_bytes)]

    def work(task: tuple[int, SeenTask]) -> Iterator[Answer]:
        nth, seen = task
        with seen.opened() as queue:
            for each in seen.ranges:
                pieces = read_pieces(queue, each.index_first, each.index_last)
                for run in runs_in(pieces, window_ns):
                    yield {"log": nth, **run.fields()}

    answers = run_tasks(spark, "measured", work, tasks)
    found: list[LagWindow] = []
    for nth, path in enumerate(paths):
        runs = joined_runs(run_of(answer) for answer in answers if answer["log"] == nth)
        for number, run in enumerate(runs):
            found += _windows(path.name, number, run, window_ns)
    return found


def _windows(log: str, number: int, run: AckRun, window_ns: int) -> Iterator[LagWindow]:
    first = min(run.windows)
    for nth, window in sorted(run.windows.items()):
        p50, p90, p99, p999 = (window.percentile_ns(percent) for percent in PERCENTILES)
        yield LagWindow(
            log=log,
            run=number,
            start_s=(nth - first) * window_ns / 1e9,
            acknowledgements=window.acknowledgements,
            excerpts=window.excerpts,
            payload_bytes=window.payload_bytes,
            p50_ns=p50,
            p90_ns=p90,
            p99_ns=p99,
            p999_ns=p999,
            longest_ns=window.longest_ns,
        )
