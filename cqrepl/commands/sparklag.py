"""Reads logs of acknowledgements with Spark, and prints how long they took."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cqrepl.commands.sparkjob import SessionOptions, run_job
from cqrepl.console import exitcodes, output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.lag import LagWindow

_COLUMNS = ("p50", "p90", "p99", "p99.9", "longest")


def run_lag(
    logs: Sequence[Path],
    options: SessionOptions,
    *,
    window_ms: int,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Gives out the round trips of each span of time; the exit code."""

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.jobs.lag import lag

        return _print(lag(spark, logs, window_ms=window_ms), out, plot, as_json)

    return run_job("cqrepl spark lag", options, work, logs)


def _print(windows: "list[LagWindow]", out: Path | None, plot: Path | None, as_json: bool) -> int:
    if as_json:
        for window in windows:
            output.write_text(output.json_line({"v": 1, **asdict(window)}))
    elif windows:
        output.write_text(_table(windows))
    else:
        output.write_text("no acknowledgements\n")
    output.flush()
    if out is not None:
        _write_parquet(windows, out)
    if plot is not None:
        from cqrepl.spark.jobs.lagplot import draw

        draw(windows, plot)
    return exitcodes.OK


def _table(windows: "list[LagWindow]") -> str:
    width = max(len(window.log) for window in windows)
    head = f"{'log':<{width}}  run   from, s       acks      excerpts"
    lines = [head + "".join(f"{name:>13}" for name in _COLUMNS)]
    for each in windows:
        trips = (each.p50_ns, each.p90_ns, each.p99_ns, each.p999_ns, each.longest_ns)
        start, count = f"{each.start_s:>8,.6g}", f"{each.acknowledgements:>9,}"
        lines.append(
            f"{each.log:<{width}}  {each.run:>3}  {start}  {count}  {each.excerpts:>12,}"
            + "".join(f"{ns / 1e6:>11,.3f}ms" for ns in trips)
        )
    return "\n".join(lines) + "\n"


def _write_parquet(windows: "list[LagWindow]", path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cqrepl.spark.jobs.lag import LagWindow

    types = {"log": pa.string(), "run": pa.int32(), "start_s": pa.float64()}
    names = LagWindow.__dataclass_fields__
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in names])
    rows = [asdict(window) for window in windows]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
