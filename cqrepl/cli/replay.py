"""`cqrepl replay`: a range of a queue again, as a new queue."""

import sys
from functools import partial
from pathlib import Path

import click

from cqrepl.cli.options import INDEX, MOMENT, QUEUE_DIR, json_option, queue_argument
from cqrepl.console.endings import ending_signals

_EPILOG = """\b
Excerpts keep their order, payloads and cycles; in each cycle they are counted from 0. A replay
that was killed is begun again by the same command. A queue that holds something else is left as
it is, exit code 2. --json is for programs.
"""


@click.command(epilog=_EPILOG)
@queue_argument
@click.argument("target", metavar="NEW_DIR", type=QUEUE_DIR)
@click.option("--from", "index_first", type=INDEX, metavar="INDEX", default="first",
              help="Begin there.")  # fmt: skip
@click.option("--until", "index_last", type=INDEX, metavar="INDEX", help="End there.")
@click.option(
    "--from-time", "from_ms", type=MOMENT, metavar="TIME", help="Begin with the cycle it lies in."
)
@click.option(
    "--until-time", "until_ms", type=MOMENT, metavar="TIME", help="End before it, at a cycle's end."
)
@json_option
def replay(
    path: Path,
    target: Path,
    index_first: int,
    index_last: int | None,
    from_ms: int | None,
    until_ms: int | None,
    as_json: bool,
) -> None:
    """Copy a range of a queue to a new queue, for what is to read it once more."""
    from cqrepl.commands import outcome
    from cqrepl.commands.replay import ReplayOptions, replay_queue

    options = ReplayOptions(index_first, index_last, from_ms, until_ms, as_json)
    work = partial(replay_queue, path, target, options)
    sys.exit(outcome.guarded("cqrepl replay", work, interrupted_by=ending_signals()))
