"""`cqrepl repair`: puts right what dead writers and damage left beside the excerpts."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cqrepl.cli.options import (
    ADDRESS,
    INDEX,
    guest_tls,
    guest_tls_options,
    json_option,
    queue_argument,
)

if TYPE_CHECKING:
    from cqrepl.net.address import Address


@click.command()
@queue_argument
@click.option("--apply", "is_applied", is_flag=True, help="Do it; without, only say what.")
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --apply: first copy the files to be changed into this new directory.",
)
@click.option(
    "--quarantine",
    "index",
    type=INDEX,
    metavar="INDEX",
    help="Instead: take everything from this index on off the queue, into a queue of its own.",
)
@click.option(
    "--reseed",
    is_flag=True,
    help="Instead: take off all excerpts, so that the queue is taken anew from its source.",
)
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Instead: closed store files that are missing, or not what they were, and an end that is "
    "gone, count as they are now: no copy has them any more.",
)
@click.option(
    "--accept-begin",
    is_flag=True,
    help="Instead: what its source has before the first excerpt of a copy counts as taken off: the "
    "copy goes on without it.",
)
@click.option(
    "--accept-unproved",
    is_flag=True,
    help="Instead: what a power cut may have torn, and no copy has proved, counts as it is.",
)
@click.option(
    "--from",
    "host",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="Instead: take closed store files that are missing, or not what they were, from another "
    "host that listens there.",
)
@click.option(
    "--remote-id",
    type=click.IntRange(1, 127),
    help="With --from: the id of that host; 1 if unsaid.",
)
@click.option(
    "--name", help="With --from: the queue's name there; that of the directory if unsaid."
)
@guest_tls_options
@json_option
def repair(
    path: Path,
    is_applied: bool,
    backup: Path | None,
    index: int | None,
    reseed: bool,
    accept_missing: bool,
    accept_begin: bool,
    accept_unproved: bool,
    host: "Address | None",
    remote_id: int | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Put right what writers left undone, and damage beside excerpts.

    Rebuilds index pages, write positions, the listing and missing end-of-file marks. Says what it
    would store where, and why; with --apply it does so, under the queue's write lock. No excerpt is
    changed. Exits 4 if damage remains that cannot be repaired in place.

    A mark above the end tells that excerpts are missing, and keeps appends out until a copy has
    given them back. With --apply you declare that no copy has them any more: the marks are lowered
    to the end. No other process may have the queue open then.

    Of two copies that have diverged, --quarantine INDEX takes the tail off the one that is wrong;
    then it follows the other one again. The tail is kept below its directory, in quarantine/, as a
    queue with a report. No other process may have the queue open.

    With --from, what a closed cycle held when it was closed is held against its store file. Those
    that are missing between others, hold less, or other excerpts, come from the other host, and
    take their places once they are what was noted. The old ones go to quarantine/.

    With --accept-missing you declare that no copy has those files any more: what they held is
    forgotten, and the queue is what is there; likewise excerpts at its end that are known to have
    been on the disk, for which no other process may have the queue open. A copy that has one still
    counts as diverged then. A source or sink that runs has to be started again. With
    --accept-unproved you declare that what a power cut may have torn is good as it is; no other
    process may have the queue open.

    A source stops a queue where the copy lacks store files before its first one, though the notes
    of the copy do not tell that any was taken off: they came late, or were removed by hand, or the
    copy was begun from later files. With --accept-begin the copy does without them: its source
    takes up the stream with the next connection, and what is missing there counts as acknowledged.
    """
    chosen = [
        option
        for option, is_given in (
            ("--quarantine", index is not None),
            ("--reseed", reseed),
            ("--accept-missing", accept_missing),
            ("--accept-begin", accept_begin),
            ("--accept-unproved", accept_unproved),
            ("--from", host is not None),
        )
        if is_given
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
    if backup is not None and chosen:
        raise click.UsageError(f"--backup does not go with {chosen[0]}")
    if host is None and (remote_id is not None or name is not None):
        raise click.UsageError("--remote-id and --name go with --from")
    if backup is not None and not is_applied:
        raise click.UsageError("--backup goes with --apply")
    from cqrepl.commands import outcome
    from cqrepl.commands.acceptance import print_begin, print_missing, print_unproved
    from cqrepl.commands.fetch import print_fetch
    from cqrepl.commands.quarantine import print_quarantine
    from cqrepl.commands.repair import print_repair

    tls = guest_tls()

    def work() -> int:
        if host is not None:
            return print_fetch(
                path, name, host, remote_id or 1, is_applied=is_applied, as_json=as_json, tls=tls
            )
        if index is not None or reseed:
            return print_quarantine(path, index, is_applied=is_applied, as_json=as_json)
        if accept_begin:
            return print_begin(path, is_applied=is_applied, as_json=as_json)
        if accept_missing:
            return print_missing(path, is_applied=is_applied, as_json=as_json)
        if accept_unproved:
            return print_unproved(path, is_applied=is_applied, as_json=as_json)
        return print_repair(path, is_applied=is_applied, backup=backup, as_json=as_json)

    sys.exit(outcome.guarded("cqrepl repair", work))
