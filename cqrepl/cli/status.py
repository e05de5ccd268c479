"""`cqrepl status`: what the hosts of this machine do right now."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import json_option, run_dir_option


@click.command()
@click.option(
    "--host-id",
    type=click.IntRange(1, 127),
    envvar="CQREPL_HOST_ID",
    show_envvar=True,
    help="Which host; without it all that run here.",
)
@run_dir_option
@click.option(
    "--max-lag",
    type=click.IntRange(min=0),
    help="A sink that lacks more excerpts than this, or is not there, is a failed check.",
)
@click.option("--watch", is_flag=True, help="Look again each second, with rates, until Ctrl-C.")
@json_option
def status(
    host_id: int | None, run_dir: Path | None, max_lag: int | None, watch: bool, as_json: bool
) -> None:
    """Print what the hosts that `cqrepl run` runs here do: peers, queues, and how far sinks are.

    Exit codes: 0; 1 a queue has stopped, or a check has failed; 3 no host answers,
    or one that runs does not.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.status import print_status, watch_status

    def work() -> int:
        if watch:
            watch_status(run_dir, host_id, as_json=as_json)
        return print_status(run_dir, host_id, max_lag, as_json=as_json)

    sys.exit(outcome.guarded("cqrepl status", work))
