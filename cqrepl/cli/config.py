"""`cqrepl config`: looks at the file of a cluster, without starting anything."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import cluster_options, config_argument, json_option


@click.group()
def config() -> None:
    """Look at the configuration of a cluster.

    The file is Chronicle's `!QueueReplicationCfg`, with keys of our own below `cqrepl`.
    """


@config.command()
@config_argument
@cluster_options
def check(path: Path, **options: object) -> None:
    """Say whether a file can be used, else what was expected in which line.

    With --host-id: by that host.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.config import check_config

    sys.exit(outcome.guarded("cqrepl config", lambda: check_config(path, options)))


@config.command()
@config_argument
@cluster_options
@json_option
def show(path: Path, as_json: bool, **options: object) -> None:
    """Print the settings in effect, each with where it comes from.

    With --host-id: also whom that host dials, and what becomes of each queue there.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.config import show_config

    sys.exit(outcome.guarded("cqrepl config", lambda: show_config(path, options, as_json=as_json)))


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON Schema.")
def schema(as_json: bool) -> None:
    """Print all keys that a file may have."""
    from cqrepl.commands import outcome
    from cqrepl.commands.config import show_schema

    sys.exit(outcome.guarded("cqrepl config", lambda: show_schema(as_json=as_json)))
