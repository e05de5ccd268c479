"""`cqrepl source`: streams queues to sinks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import HOSTS, RETURNS, OneOfEach
from cqrepl.cli.replication import named_queues, replication_options

if TYPE_CHECKING:
    from cqrepl.commands.source import SourceOptions


@click.command(cls=OneOfEach)
@replication_options(default_id=1, default_remote=2)
@click.option("--no-ack", is_flag=True, help="Do not ask sinks for acknowledgements.")
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End once one sink has acknowledged everything that was there at the start.",
)
@click.option(
    "--ack-log",
    type=click.Path(path_type=Path),
    help="Log each acknowledgement into a queue in this directory (with several queues: one each, "
    "below it).",
)
@click.option(
    "--pauser",
    type=click.Choice(["busy", "balanced", "sleepy"]),
    default="balanced",
    show_default=True,
    help="How to wait for the next excerpt: busy never sleeps and keeps a core for each sink, "
    "sleepy sleeps milliseconds.",
)
@click.option(
    "--accept-returns",
    type=RETURNS,
    default="known",
    show_default=True,
    metavar="known|none|HOST,...",
    help="Whose back copy is taken. known: of hosts that the queue was streamed to before and that "
    "prove that they hold what it holds. HOST,...: of hosts with these ids, too.",
)
@click.option(
    "--return-excerpts",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Most excerpts of one back copy.",
)
@click.option(
    "--return-seconds",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="Longest back copy; it keeps writers out.",
)
@click.option(
    "--wait-for",
    type=HOSTS,
    default="all",
    show_default=True,
    metavar="all|none|HOST,...",
    help="Which sinks --wait-for-seconds is for: those that are known to have a copy, none, or of "
    "those the ones with these ids.",
)
@click.option(
    "--wait-for-seconds",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="After another start of the machine, so long no sink gets what a power cut may have torn "
    "before a known sink's copy was compared.",
)
@click.option(
    "--tailers",
    type=click.Choice(["replicated", "all"]),
    default="replicated",
    show_default=True,
    help="Which named tailers sinks keep the positions of: those whose names begin replicated:, or "
    "all.",
)
def source(queues: tuple[str, ...], **options: "Unpack[SourceOptions]") -> None:
    """Stream queues to sinks.

    An acknowledged excerpt is in the sink's mapped file: it survives kill -9 on either host, and a
    power cut on one of them.
    """
    if options["no_ack"] and options["until_caught_up"]:
        raise click.UsageError("--until-caught-up needs acknowledgements: it excludes --no-ack")
    names = named_queues(queues)
    from cqrepl.commands.source import run_source

    sys.exit(run_source(names, options))
