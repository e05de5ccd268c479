"""`cqrepl grid`: reads and writes the maps of a cluster, and shows their state."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cqrepl.cli.options import TIME, guest_tls, guest_tls_options, json_option

if TYPE_CHECKING:
    from cqrepl.commands.grid import SetPlace

Command = TypeVar("Command", bound=Callable[..., Any])


def _set_options(command: Command) -> Command:
    """Adds what all of them have in common."""
    at = click.option(
        "--at",
        "hosts",
        metavar="HOST:PORT[,...]",
        required=True,
        envvar="CQREPL_GRID_AT",
        show_envvar=True,
        help="Some hosts of the cluster, with commas between; the primary is found.",
    )
    name = click.option("--set", "map_set", required=True, help="Name of the map set.")
    wait = click.option(
        "--wait",
        "wait_ms",
        type=TIME,
        default="10s",
        show_default=True,
        metavar="TIME",
        help="How long a host that serves is looked for.",
    )
    return at(name(wait(guest_tls_options(command))))


def _place(hosts: str, map_set: str, wait_ms: int, *, as_json: bool = False) -> "SetPlace":
    from cqrepl.commands.grid import SetPlace

    return SetPlace(hosts, map_set, wait_ms / 1000, as_json, guest_tls())


@click.group()
def grid() -> None:
    """Read and write the maps of a cluster, and see their state.

    `cqrepl: grid:` in the file of the cluster makes map sets. Keys and values are JSON, a list for
    a tuple, or else texts: 17 is a number, '"17"' a text.

    Exit codes: 0; 1 no such entry; 2 usage; 3 no host serves, or the outcome is not known; 5 the
    grid refuses.
    """


@grid.command()
@_set_options
@json_option
def status(hosts: str, map_set: str, wait_ms: int, as_json: bool) -> None:
    """Print each group as each of the hosts has it: state, entries, peers, whom writes wait for."""
    from cqrepl.commands import grid as work

    sys.exit(work.status(_place(hosts, map_set, wait_ms, as_json=as_json)))


@grid.command()
@_set_options
@click.option("--token", help="Any copy that has this transaction may answer.")
@click.argument("name", metavar="MAP")
@click.argument("key")
def get(hosts: str, map_set: str, wait_ms: int, token: str | None, name: str, key: str) -> None:
    """Print the value of KEY in MAP."""
    from cqrepl.commands import grid as work

    sys.exit(work.get(_place(hosts, map_set, wait_ms), name, key, token))


@grid.command()
@_set_options
@click.argument("name", metavar="MAP")
@click.argument("key")
@click.argument("value")
def put(hosts: str, map_set: str, wait_ms: int, name: str, key: str, value: str) -> None:
    """Set KEY in MAP to VALUE; print the token once each synchronous replica has it."""
    from cqrepl.commands import grid as work

    sys.exit(work.put(_place(hosts, map_set, wait_ms), name, key, value))


@grid.command()
@_set_options
@click.option("--partition", type=click.IntRange(0), help="One of them; all if not given.")
@click.argument("name", metavar="MAP")
def scan(hosts: str, map_set: str, wait_ms: int, partition: int | None, name: str) -> None:
    """Print all entries of MAP: key, tabulator, value; each partition as it was at one time."""
    from cqrepl.commands import grid as work

    sys.exit(work.scan(_place(hosts, map_set, wait_ms), name, partition))


@grid.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def plan(file: Path, as_json: bool) -> None:
    """Print the hosts of each group, as FILE of a cluster has them: the first ones are synchronous.

    A group that has fewer hosts than copies wanted is degraded.
    """
    from cqrepl.commands import grid as work

    sys.exit(work.plan(file, as_json))


@grid.command()
@click.option("--key", required=True, metavar="COLUMN", help="The column with the key.")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    required=True,
    help="The partitions of the map set, as its file has them.",
)
@click.argument("table")
def sql(table: str, key: str, partitions: int) -> None:
    """Print what TABLE of PostgreSQL needs to be loaded from without a partition column: functions
    of the database that reckon the partition of a key, and an index of that.

    Give it to psql. Keys are texts, whole numbers or bytea. SQLite gets the function by itself.
    """
    from cqrepl.commands import grid as work

    sys.exit(work.sql(table, key, partitions))
