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
@click.option(
    "--seconds",
    type=click.FloatRange(5, 3600),
    default=20,
    show_default=True,
    help="With --cluster: for so long tasks are submitted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def demo(
    count: int, size: int, keep: Path | None, cluster: bool, seconds: float, as_json: bool
) -> None:
    """Make a queue, replicate it through a cut, compare the copy.

    Starts a real source and a real sink on loopback, cuts their connection once on the way, and
    compares the two queues index by index. Exits 1 unless they are identical.

    With --cluster it starts three hosts on loopback that elect their leader, and submits tasks to
    them; kills the leader, freezes the next one, has both come back, and prints each change of the
    leader. Exits 1 unless all that was accepted is finished, once.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.demo import run_demo

    if cluster:
        from cqrepl.commands.demo import run_cluster_demo

        name = "cqrepl demo"
        sys.exit(outcome.guarded(name, lambda: run_cluster_demo(seconds, keep, as_json=as_json)))
    sys.exit(outcome.guarded("cqrepl demo", lambda: run_demo(count, size, keep, as_json=as_json)))
