"""`cqrepl doctor`: looks whether this machine suits a host."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import QUEUE_DIR, cluster_options, json_option, run_dir_option


@click.command()
@click.argument("queues", metavar="[QUEUE_DIR]...", type=QUEUE_DIR, nargs=-1)
@click.option(
    "--config",
    "-c",
    "path",
    metavar="FILE",
    type=QUEUE_DIR,
    envvar="CQREPL_CONFIG",
    show_envvar=True,
    help="The file of a cluster: what one of its hosts takes is looked at, too.",
)
@cluster_options
@run_dir_option
@click.option(
    "--bundle",
    metavar="FILE",
    type=QUEUE_DIR,
    help="Store all of it, status, versions and the file of the cluster in a new tar.gz, for those "
    "who help: no payloads, and of keys and tokens only the paths.",
)
@json_option
def doctor(
    queues: tuple[Path, ...],
    path: Path | None,
    bundle: Path | None,
    as_json: bool,
    **options: object,
) -> None:
    """Say whether this machine suits a host, with a remedy for what does not.

    Looks at the kernel in use, limits, clock, processes that are seen, disks and file systems of
    queues; with a file, at it, certificates, ports, and whether other hosts answer.

    Exit codes: 0; 1 something fails; 2 usage.
    """
    if path is not None and options["host_id"] is None:
        raise click.UsageError("Missing option '--host-id' (env var: 'CQREPL_HOST_ID').")
    from cqrepl.commands import outcome
    from cqrepl.commands.doctor import examine

    def work() -> int:
        return examine(path, options, queues, bundle, as_json=as_json)

    sys.exit(outcome.guarded("cqrepl doctor", work))
