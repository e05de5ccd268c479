"""`cqrepl persist`: sequences and queues that a backup has when an append returns."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cqrepl.cli.options import guest_tls, guest_tls_options, json_option

Command = TypeVar("Command", bound=Callable[..., Any])


def _group_options(command: Command) -> Command:
    """Adds what the commands that ask hosts have in common."""
    at = click.option(
        "--at",
        "hosts",
        metavar="HOST:PORT[,...]",
        required=True,
        envvar="CQREPL_PERSIST_AT",
        show_envvar=True,
        help="Hosts of the cluster that are asked, with commas between.",
    )
    group = click.option(
        "--group",
        required=True,
        metavar="GROUP",
        help="The group of storages, by its name below `cqrepl: persist:`.",
    )
    return at(group(guest_tls_options(json_option(command))))


@click.group()
def persist() -> None:
    """Look at persistent storages, and at what configures them.

    Exit codes: 0; 1 storages are damaged or differ; 2 usage; 3 a host is not reached, or has no
    such group; 5 there is no such storage.
    """


@persist.command()
@_group_options
def ls(hosts: str, group: str, as_json: bool) -> None:
    """Print the storages of a GROUP, as the first host has them that answers.

    For each its kind, number of items, next index, generation (the number of resets), how its
    writes wait (async, sync with their time; - where no program of that host has opened it), and
    damage. The last line names the backups that have applied all, where that host leads.
    """
    from cqrepl.commands import storagelist as work

    sys.exit(work.list_storages(hosts, group, guest_tls(), as_json=as_json))


@persist.command()
@_group_options
@click.argument("name")
def show(hosts: str, group: str, name: str, as_json: bool) -> None:
    """Print all that the first host that answers has of the storage NAME."""
    from cqrepl.commands import storagelist as work

    sys.exit(work.show_storage(hosts, group, name, guest_tls(), as_json=as_json))


@persist.command()
@_group_options
def verify(hosts: str, group: str, as_json: bool) -> None:
    """Compare the storages of a GROUP between all these hosts.

    Each sums the items up that all of them have, read from its own log. Where they stand at one
    position of the log, what there is has to be equal too. Exits 1 unless all is.
    """
    from cqrepl.commands import storagelist as work

    sys.exit(work.verify_storages(hosts, group, guest_tls(), as_json=as_json))


@persist.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def check(path: Path, as_json: bool) -> None:
    """Print what each property of a FIX Antenna FILE does here.

    FILE is a Java properties file: that of the replication service (fej.replication.*), or
    fixengine.properties of an engine. Classes that it names are words, none is loaded.

    Exit codes: 0; 2 a property cannot be used, or FILE cannot be read.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.propertiescheck import check_properties

    sys.exit(outcome.guarded("cqrepl persist", lambda: check_properties(path, as_json=as_json)))
