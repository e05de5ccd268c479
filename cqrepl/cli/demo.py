"""`cqrepl demo`: makes a queue, replicates it through a cut, compares the copy; or runs a cluster
whose leaders are killed and frozen."""

import sys
from pathlib import Path

import click

from cqrepl.cli.options import COUNT_MAX, EXCERPT_SIZE


@click.command()
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=1_000_000, show_default=True)
@click.option(
    "--size", type=EXCERPT_SIZE, default="256", show_default=True, help="Bytes of an excerpt."
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep both queues in DIR, which must be empty or not there.",
)
@click.option("--cluster", is_flag=True, help="Three hosts that elect, and tasks on them.")
@click.option("--persist", is_flag=True, help="Three hosts that keep sequences.")
@click.option(
    "--seconds",
    type=click.FloatRange(5, 3600),
    default=20,
    show_default=True,
    help="With --cluster, --persist: for so long tasks are submitted, or items appended.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def demo(
    count: int,
    size: int,
    keep: Path | None,
    cluster: bool,
    persist: bool,
    seconds: float,
    as_json: bool,
) -> None:
    """Make a queue, replicate it through a cut, compare the copy.

    Starts a real source and a real sink on loopback, cuts their connection once on the way, and
    compares the two queues index by index. Exits 1 unless they are identical.

    With --cluster it starts three hosts on loopback that elect their leader, and submits tasks to
    them; kills the leader, freezes the next one, has both come back, and prints each change of the
    leader. Exits 1 unless all that was accepted is finished, once.

    With --persist it starts three hosts on loopback that elect their leader, appends to eight
    sequences, each time until a backup has applied the item, and kills the leader on the way. Exits
    1 unless each acknowledged item is on the disk of those that are left, no number was used twice,
    and the next leader has gone on.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.demo import run_demo

    if cluster and persist:
        raise click.UsageError("expected --cluster or --persist, got both")
    if persist:
        from cqrepl.commands.demo import run_persist_demo

        name = "cqrepl demo"
        sys.exit(outcome.guarded(name, lambda: run_persist_demo(seconds, keep, as_json=as_json)))
    if cluster:
        from cqrepl.commands.demo import run_cluster_demo

        name = "cqrepl demo"
        sys.exit(outcome.guarded(name, lambda: run_cluster_demo(seconds, keep, as_json=as_json)))
    sys.exit(outcome.guarded("cqrepl demo", lambda: run_demo(count, size, keep, as_json=as_json)))
