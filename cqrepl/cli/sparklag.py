"""`cqrepl spark lag`: how long acknowledgements took, over time."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import QUEUE_DIR, TIME, json_option
from cqrepl.cli.sparkoptions import FILE, spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions


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
    **options: "Unpack[SessionOptions]",
) -> None:
    """Show how long acknowledgements took, over time.

    Reads the logs that `cqrepl source --ack-log` writes. All times are the source's own, from
    sending an excerpt to its acknowledgement. Percentiles are those of excerpts, right to half a
    percent.
    """
    if window_ms == 0:
        raise click.UsageError("--window: more than 0ms expected")

    if plot is not None:
        _check_plot(plot)
    from cqrepl.commands.sparklag import run_lag

    sys.exit(run_lag(logs, options, window_ms=window_ms, out=out, plot=plot, as_json=as_json))


def _check_plot(plot: Path) -> None:
    """Refuses what could only be refused when all has been read."""
    if plot.suffix not in (".png", ".svg"):
        raise click.UsageError(f"--plot: a file .png or .svg expected, {plot} came")
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise click.UsageError(
            "--plot: matplotlib is not installed: pip install 'cqrepl[spark,plot]'"
        )
