"""`cqrepl gc`: deletes store files that every reader has passed."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import TIME, json_option, queue_argument


@click.command()
@queue_argument
@click.option("--apply", "is_applied", is_flag=True, help="Delete; without, only say what and why.")
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Keep the newest N store files; the last one with excerpts stays in any case.",
)
@click.option(
    "--keep-time", type=TIME, metavar="TIME", help="Keep what is younger, such as 72h or 5d, too."
)
@click.option(
    "--forget",
    "forgotten",
    type=click.IntRange(1, 127),
    multiple=True,
    metavar="HOST",
    help="A host that comes no more holds nothing; several times.",
)
@json_option
def gc(
    path: Path,
    is_applied: bool,
    keep: int,
    keep_time: int | None,
    forgotten: tuple[int, ...],
    as_json: bool,
) -> None:
    """Delete whole cycles that all have passed, the oldest first.

    A store file stays while a named tailer, a registered reader or a host that takes the queue has
    not passed it, while it may still be written, and while an older one stays; the reason is shown.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.gc import print_collected

    def work() -> int:
        return print_collected(
            path,
            is_applied=is_applied,
            keep=keep,
            keep_ms=keep_time,
            forgotten=forgotten,
            as_json=as_json,
        )

    sys.exit(outcome.guarded("cqrepl gc", work))
