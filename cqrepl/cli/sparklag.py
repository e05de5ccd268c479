"""`cqrepl spark lag`: how long acknowledgements took, over time. And what it prints."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cqrepl.cli.options import QUEUE_DIR, TIME, json_option
from cqrepl.cli.sparkoptions import FILE, run_job, spark_options

if TYPE_CHECKING:
    from cqrepl.spark.jobs.lag import LagWindow

_COLUMNS = ("p50", "p90", "p99", "p99.9", "longest")


@click.command()
@click.argument("logs", metavar="ACK_LOG_DIR...", type=QUEUE_DIR, nargs=-1, required=True)
@click.option(
    "--window", "window_ms", type=TIME, default="1m", show_default=True, metavar="TIME",
    help="Length of the spans of time.",
)  # fmt: skip
@click.option("--out", type=FILE, metavar="FILE", help="Write the table as Parquet, too.")
@click.option(
    "--plot", type=FILE, metavar="FILE", help="Draw it as .png or .svg, and a .csv beside it."
)
@spark_options
@json_option
def lag(
    logs: tuple[Path, ...],
    window_ms: int,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show how long acknowledgements took, over time.

    Reads the logs that `cqrepl source --ack-log` writes. All times are the source's own, from
    sending an excerpt to its acknowledgement. Percentiles are those of excerpts, right to half a
    percent.
    """
    if window_ms == 0:
        raise click.UsageError("--window: more than 0ms expected")

    def work(spark: Any) -> int:
        from cqrepl.spark.jobs.lag import lag as run

        windows = run(spark, logs, window_ms=window_ms)
        return _print(windows, out, plot, as_json)

    if plot is not None:
        _check_plot(plot)
    run_job("cqrepl spark lag", options, work)


def _check_plot(plot: Path) -> None:
    """Refuses what could only be refused when all has been read."""
    if plot.suffix not in (".png", ".svg"):
        raise click.UsageError(f"--plot: a file .png or .svg expected, {plot} came")
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise click.UsageError(
            "--plot: matplotlib is not installed: pip install 'cqrepl[spark,plot]'"
        )


def _print(windows: "list[LagWindow]", out: Path | None, plot: Path | None, as_json: bool) -> int:
    from cqrepl.console import exitcodes, output

    if as_json:
        for window in windows:
            output.write_text(json.dumps({"v": 1, **asdict(window)}, separators=(",", ":")) + "\n")
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
