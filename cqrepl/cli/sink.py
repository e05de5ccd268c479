"""`cqrepl sink`: takes queues in from sources."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import SIZE, OneOfEach
from cqrepl.cli.replication import named_queues, replication_options

if TYPE_CHECKING:
    from cqrepl.commands.sink import SinkOptions


@click.command(cls=OneOfEach)
@replication_options(default_id=2, default_remote=1)
@click.option(
    "--roll-cycle",
    default="FAST_DAILY",
    show_default=True,
    help="Of a new queue whose source does not say its own, as Java's do not.",
)
@click.option(
    "--once",
    is_flag=True,
    help="End when a source ends in order. A Java source cannot say so: from it, the end of the "
    "stream between two messages is taken as orderly.",
)
@click.option(
    "--touch-ahead",
    type=SIZE,
    metavar="SIZE",
    help="Bytes of each queue's file that are brought into memory ahead of what is written; 0: "
    "none. By default 8MiB where there are three processors. Takes the native kernel.",
)
@click.option(
    "--append-log",
    type=click.Path(path_type=Path),
    help="Log when excerpts were appended into a queue in this directory (with several queues: one "
    "each, below it).",
)
@click.option(
    "--min-free",
    type=SIZE,
    default="0",
    show_default=True,
    metavar="SIZE",
    help="Where less is free on the disk of a queue, it pauses until there is more; looked at once "
    "a second. 0: it takes all that there is.",
)
@click.option(
    "--any-cycle",
    is_flag=True,
    help="Take a first index that is of a day far from this host's clock. Else the queue stops and "
    "says by which roll cycles it would be near.",
)
@click.option(
    "--on-divergence",
    type=click.Choice(["stop", "quarantine"]),
    default="stop",
    show_default=True,
    help="What becomes of a queue that differs from its source's: it stops; or what it has from "
    "the first differing index on goes below quarantine/, and is taken again from the source.",
)
def sink(queues: tuple[str, ...], **options: "Unpack[SinkOptions]") -> None:
    """Take queues in from sources.

    Only the names given here are accepted from the network. A queue that is not there is made like
    the source's. The sink holds each queue's append lock as long as it runs.
    """
    names = named_queues(queues)
    from cqrepl.commands.sink import run_sink

    sys.exit(run_sink(names, options))
