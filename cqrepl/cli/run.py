"""`cqrepl run`: one host of a cluster, with all of its queues."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import QUEUE_DIR, OneOfEach, cluster_options, log_options, run_dir_option


@click.command(cls=OneOfEach)
@click.option(
    "--config",
    "-c",
    "path",
    metavar="FILE",
    type=QUEUE_DIR,
    required=True,
    envvar="CQREPL_CONFIG",
    show_envvar=True,
    help="The file of the cluster; `cqrepl config schema` shows what can be in it.",
)
@cluster_options
@run_dir_option
@click.option(
    "--join",
    type=click.Choice(["auto", "replay", "snapshot"]),
    help="How the services of this host come to their state: by a replay of the queue from its "
    "start, or by a snapshot of another host; that of the file if not given.",
)
@click.option(
    "--page",
    metavar="HOST:PORT",
    help="Give status page, metrics and health there, such as 127.0.0.1:9010; that of the file if "
    "not given. Takes the extra 'page'.",
)
@log_options
def run(path: Path, **options: object) -> None:
    """Run one host of a cluster: stream the queues that it is the master of, take in all others.

    There is one connection between any two hosts: the one with the higher id dials, the other one
    listens; a host without an address only dials. A queue is taken only from its master. Queues of
    ours that are not there are made.
    """
    if options["host_id"] is None:
        raise click.UsageError("Missing option '--host-id' (env var: 'CQREPL_HOST_ID').")
    from cqrepl.commands.run import run_host

    sys.exit(run_host(path, options))
