"""`cqrepl verify`: are copies of a queue the same?"""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import INDEX, QUEUE_DIR, json_option


@click.command()
@click.argument("paths", metavar="QUEUE_DIR...", type=QUEUE_DIR, nargs=-1, required=True)
@click.option("--from", "index_from", type=INDEX, metavar="INDEX", help="Compare from there on.")
@click.option("--to", "index_to", type=INDEX, metavar="INDEX", help="Compare up to there.")
@click.option(
    "--common", is_flag=True, help="Compare up to the end of the shortest: for a copy being made."
)
@click.option("--digests", is_flag=True, help="Show the chain of each cycle and copy.")
@click.option("--first", is_flag=True, help="End at the first difference.")
@click.option(
    "--quick",
    is_flag=True,
    help="Read no excerpt: compare numbers, ends, and what side files say; tell what was not read.",
)
@json_option
def verify(
    paths: tuple[Path, ...],
    index_from: int | None,
    index_to: int | None,
    common: bool,
    digests: bool,
    first: bool,
    quick: bool,
    as_json: bool,
) -> None:
    """Compare copies of a queue, index by index and byte by byte.

    What differs is named by kind and place. Each copy is held against its own index pages, marks
    and side files too; of one QUEUE_DIR alone only that.

    Takes no lock and changes nothing. Exits 1 unless all copies hold the same excerpts, in files of
    their own, 4 if one is damaged or cannot be read to its end. Where nothing was compared, as of
    a range without excerpts, it exits 1, too, unless it is all of queues that are empty.
    """
    if common and index_to is not None:
        raise click.UsageError("--common and --to do not go together")
    if quick and (common or digests or index_from is not None or index_to is not None):
        raise click.UsageError("--quick goes with --first and --json only")
    index_first, index_last = index_from or 0, index_to
    if index_last is not None and index_first > index_last:
        raise click.UsageError(f"--from {index_first:#x} lies behind --to {index_last:#x}")
    from cqrepl.commands import outcome
    from cqrepl.commands.verify import Comparison

    comparison = Comparison(
        paths=paths,
        index_first=index_first,
        index_last=index_last,
        common=common,
        digests=digests,
        only_first=first,
        quick=quick,
        as_json=as_json,
    )
    sys.exit(outcome.guarded("cqrepl verify", comparison.run))
