"""`cqrepl spark pipeline`: audits, archives and tables of many queues, by one file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import json_option
from cqrepl.cli.sparkoptions import spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions


_FILE = click.Path(path_type=Path)


@click.group(invoke_without_command=True)
@click.option("-c", "--config", type=_FILE, metavar="FILE", help="The file of the pipeline.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Run it again so long after each end, until it is stopped.",
)
@spark_options
@json_option
@click.pass_context
def pipeline(
    ctx: click.Context,
    config: Path | None,
    every: float | None,
    as_json: bool,
    **options: "Unpack[SessionOptions]",
) -> None:
    """Compare queues with their copies, archive them, and make tables of them.

    `-c FILE` runs it once. A run that was killed is begun again, and nothing comes twice. What
    differs, or cannot be read, is named on standard error, and is neither archived nor released
    any further; the exit code is 1 then. docs/spark.md has the file.
    """
    if ctx.invoked_subcommand is not None:
        return
    if config is None:
        raise click.UsageError("-c FILE expected, none came")
    from cqrepl.commands.sparkpipeline import run_pipeline_file

    sys.exit(run_pipeline_file(config, options, every_s=every, as_json=as_json))


@pipeline.command()
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Look at the file of a pipeline, and say what it has; needs no Java."""
    from cqrepl.commands.sparkpipeline import check_pipeline_file

    sys.exit(check_pipeline_file(file))


@pipeline.command()
@click.argument("file", type=_FILE)
@json_option
def status(file: Path, as_json: bool) -> None:
    """Say what the last run has done with each queue and table; needs no Java."""
    from cqrepl.commands.sparkpipeline import show_pipeline

    sys.exit(show_pipeline(file, as_json=as_json))
