"""`cqrepl append`: what comes on standard input, as excerpts."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import SIZE, Number, OneOfEach, json_option, queue_argument
from cqrepl.console.endings import ending_signals

if TYPE_CHECKING:
    from cqrepl.commands.append import AppendOptions


@click.command(cls=OneOfEach)
@queue_argument
@click.option(
    "--lines",
    "form",
    flag_value="lines",
    default=True,
    help="Each line is an excerpt: its bytes as they are, without the line feed.  [default]",
)
@click.option(
    "--length-prefixed",
    "form",
    flag_value="length-prefixed",
    help="Each excerpt stands behind its length, 4 bytes, little-endian.",
)
@click.option(
    "--json-lines",
    "form",
    flag_value="json-lines",
    help="Each line is a JSON value, and is appended as binary wire.",
)
@click.option("--whole", "form", flag_value="whole", help="All of the input is one excerpt.")
@click.option("--max", "count_max", type=click.IntRange(1), metavar="N", help="End after so many.")
@click.option(
    "--rate",
    type=Number(0.001, 1_000_000_000),
    metavar="N",
    help="At most so many a second.",
)
@click.option(
    "--durability",
    type=click.Choice(["none", "synced"]),
    default="none",
    show_default=True,
    help="synced: what was read is on the disk before more is read.",
)
@click.option(
    "--block-size",
    "block_bytes",
    type=SIZE,
    default="64MiB",
    show_default=True,
    help="As the queue's other users have it; an excerpt has at most a quarter of it.",
)
@click.option(
    "--wait-for-seconds",
    type=Number(0, 86_400),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="After another start of the machine, wait so long for a source to compare a replicated "
    "queue with its copies, before the first append.",
)
@click.option(
    "--to-copy",
    is_flag=True,
    help="Append to a copy, too, which its leader then has less than.",
)
@click.option("--create", metavar="ROLL_CYCLE", help="Make the queue if it is not there.")
@json_option
def append(path: Path, **options: "Unpack[AppendOptions]") -> None:
    """Append standard input to a queue.

    Other writers may append at the same time. What can be read without waiting goes in under one
    lock. Prints how many excerpts were appended,
    and the last index.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.append import append_input

    work = partial(append_input, path, options)
    sys.exit(outcome.guarded("cqrepl append", work, interrupted_by=ending_signals()))
