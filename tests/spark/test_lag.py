"""Round trips over time, from the log of a real replication and from made ones."""

import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.queue import Queue, QueueError
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.spark.jobs.blocks import read_pieces
from cqrepl.spark.jobs.lag import LagWindow, lag
from cqrepl.spark.jobs.roundtrips import joined_runs, run_of, runs_in
from tests.spark.queues import CYCLE, DAY_MS, make_queue

SECOND = 1_000_000_000
Entry = tuple[int, int, int, int, int]


def make_log(path: Path, entries: Sequence[Entry]) -> Path:
    with Queue.open(path, create="FAST_DAILY") as queue:
        for start in range(0, len(entries), 5000):
            some = [ENTRY.pack(*entry) for entry in entries[start : start + 5000]]
            queue.append_many(some, now_ms=CYCLE * DAY_MS)
    return path


def entries_from(start_ns: int, trips_ns: Sequence[int], step_ns: int) -> list[Entry]:
    """An acknowledgement of three excerpts each step, with these round trips."""
    return [
        (nth, start_ns + nth * step_ns - trip, start_ns + nth * step_ns, 3, 300)
        for nth, trip in enumerate(trips_ns)
    ]


def lag_of(spark: SparkSession, *logs: Path, window_ms: int = 1000) -> list[LagWindow]:
    return lag(spark, logs, window_ms=window_ms, task_bytes=1 << 20)


def test_percentiles_are_those_of_all_entries(spark: SparkSession, tmp_path: Path) -> None:
    """The percentiles over several tasks are right, each to half a percent."""
    chance = random.Random(5)
    trips = [int(chance.lognormvariate(13, 1.5)) for _ in range(200_000)]
    log = make_log(tmp_path / "log", entries_from(100 * SECOND, trips, SECOND // 20_000))
    windows = lag_of(spark, log)
    assert [window.start_s for window in windows] == [float(n) for n in range(10)]
    for nth, window in enumerate(windows):
        held = trips[nth * 20_000 : (nth + 1) * 20_000]
        assert (window.acknowledgements, window.excerpts) == (20_000, 60_000)
        assert window.longest_ns == max(held)
        exact = statistics.quantiles(held, n=1000, method="inclusive")
        for place, found in ((500, window.p50_ns), (900, window.p90_ns), (990, window.p99_ns)):
            assert found == pytest.approx(exact[place - 1], rel=0.01)


def test_a_restart_of_the_machine_begins_a_run(tmp_path: Path) -> None:
    """The clock falls; however the log is cut into parts, the runs are the same."""
    entries = [
        *entries_from(500 * SECOND, [1000] * 50, SECOND),
        *entries_from(3 * SECOND, [2000] * 30, SECOND),
        *entries_from(2 * SECOND, [3000] * 20, SECOND),
    ]
    log = make_log(tmp_path / "log", entries)
    with Queue.open(log) as queue:
        first, last = queue.first_index(), queue.last_index()
        assert first is not None
        assert last is not None
        for cut in (1, 20, 49, 50, 51, 80, 99):
            parts = [
                run_of(json.loads(json.dumps(run.fields())))
                for start, end in ((first, first + cut - 1), (first + cut, last))
                for run in runs_in(read_pieces(queue, start, end), 10 * SECOND)
            ]
            runs = joined_runs(parts)
            counts = [sum(w.acknowledgements for w in run.windows.values()) for run in runs]
            assert counts == [50, 30, 20]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "queue", (10,))
    with Queue.open(queue) as other:
        first = other.first_index() or 0
        with pytest.raises(QueueError, match="expected a log of acknowledgements"):
            list(runs_in(read_pieces(other, first, first + 9), SECOND))


async def replicate(folder: Path) -> int:
    """Replicates a queue with a log of acknowledgements; the number of excerpts."""
    queue = make_queue(folder / "orders", (2000, 3000))
    source_of = serve_source([queue], listen="127.0.0.1:0", ack_log=folder / "acks")
    with trio.fail_after(300):
        async with source_of as source:
            copy = {"orders": folder / "copy"}
            async with serve_sink(copy, connect=f"127.0.0.1:{source.port}"):
                await source.wait_caught_up()
    return 5000


def test_no_line_is_drawn_where_nothing_was_acknowledged() -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")

    from cqrepl.spark.jobs.lagplot import points

    trips = dict.fromkeys(("p50_ns", "p90_ns", "p99_ns", "p999_ns", "longest_ns"), 2_000_000)
    windows = [
        LagWindow(
            log="a", run=0, start_s=start, acknowledgements=1, excerpts=1, payload_bytes=1, **trips
        )
        for start in (0.0, 1.0, 4.0)
    ]
    times, shown = points(windows, "p50_ns")
    assert times == [0.0, 1.0, 2.0, 4.0]
    assert [math.isnan(trip) for trip in shown] == [False, False, True, False]
    assert shown[0] == 2.0


def test_the_command_on_a_real_log(spark: SparkSession, tmp_path: Path) -> None:
    assert spark
    count = trio.run(replicate, tmp_path)
    table, plot = tmp_path / "lag.parquet", tmp_path / "lag.svg"
    words = ["spark", "lag", str(tmp_path / "acks"), "--window", "100ms", "--json"]
    done = CliRunner().invoke(cli, [*words, "--out", str(table), "--plot", str(plot)])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(row["excerpts"] for row in rows) == count
    assert all(0 < row["p50_ns"] <= row["p99_ns"] <= row["longest_ns"] for row in rows)
    assert pq.read_table(table).column("p99_ns").to_pylist() == [row["p99_ns"] for row in rows]
    assert plot.read_text().startswith("<?xml")
    assert len((tmp_path / "lag.csv").read_text().splitlines()) == 1 + len(rows)
    shown = CliRunner().invoke(cli, words[:-1])
    assert shown.stdout.splitlines()[0].split()[-5:] == ["p50", "p90", "p99", "p99.9", "longest"]
    assert len(shown.stdout.splitlines()) == 1 + len(rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("log", "--window", "0ms"), "more than 0ms expected"),
        (("log", "--plot", "lag.pdf"), "a file .png or .svg expected, lag.pdf came"),
        (("nowhere",), "found none"),
    ],
)
def test_bad_options(spark: SparkSession, words: tuple[str, ...], said: str) -> None:
    assert spark
    done = CliRunner().invoke(cli, ["spark", "lag", *words])
    assert done.exit_code == 2
    assert said in done.stderr.splitlines()[-1]
