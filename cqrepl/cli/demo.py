"""`cqrepl demo`: makes a queue, replicates it through a cut, compares the copy; or runs a cluster
whose leaders are killed and frozen."""

import sys
from functools import partial
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
@click.option("--grid", is_flag=True, help="Three hosts with maps, loaded from SQLite.")
@click.option("--pipeline", is_flag=True, help="Two queues, and a pipeline of Spark on them.")
@click.option("--typed", is_flag=True, help="A Java service's orders, read as typed columns.")
@click.option(
    "--rows",
    type=click.IntRange(1000, 10_000_000),
    default=100_000,
    show_default=True,
    help="With --grid: rows of both tables together; with --pipeline: of both queues; with"
    " --typed --jars: orders.",
)
@click.option(
    "--jars",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="With --typed: a real Java service; DIR is tools/java/queue/target, built by Maven.",
)
@click.option(
    "--fix",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="With --persist: engines of QuickFIX/J; DIR is tools/java/fix/target, built by Maven.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(5, 3600),
    default=20,
    show_default=True,
    help="With --cluster, --persist, --grid: for so long tasks are submitted, items appended or"
    " money moved.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def demo(
    count: int,
    size: int,
    keep: Path | None,
    cluster: bool,
    persist: bool,
    grid: bool,
    pipeline: bool,
    typed: bool,
    rows: int,
    jars: Path | None,
    fix: Path | None,
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

    With --persist --fix DIR it starts a pair of FIX engines instead, whose acceptor keeps its
    sessions at the host that leads, and kills hosts, with their engines and alone. Exits 1 unless
    each message that was kept is in the last copy and has come to the initiator, no number was used
    twice, and none was set back.

    With --grid it starts three hosts on loopback that load two maps from a SQLite file, and kills a
    primary when 80 % are there; then moves money between accounts while another primary is killed.
    Exits 1 unless each row was read once, but for blocks under way, no transfer is half done, the
    database has the same, and no read with a token was older than it.

    With --pipeline it replicates two queues, has a pipeline of Spark compare, archive and derive
    them, kills that in the midst, and begins it again. Exits 1 unless each row is in each table
    once. Needs the extra spark, and Java.

    With --typed it reads the orders that a Java service has written as typed columns (as objects
    without polars), and writes signals that a method reader takes. The package brings those orders;
    with --jars DIR a real Java service writes them, and Java's method reader takes the signals.
    Exits 1 unless it is called with what the plain values say.
    """
    from cqrepl.commands import outcome
    from cqrepl.commands.demo import run_demo

    if cluster + persist + grid + pipeline + typed > 1:
        kinds = "--cluster, --persist, --grid, --pipeline and --typed"
        raise click.UsageError(f"expected one of {kinds}, got several")
    if jars is not None and not typed:
        raise click.UsageError("expected --typed with --jars, got --jars alone")
    if typed:
        from cqrepl.commands.demo import run_typed_demo

        work = partial(run_typed_demo, rows, jars, keep, as_json=as_json)
        sys.exit(outcome.guarded("cqrepl demo", work))
    if pipeline:
        from cqrepl.commands.demo import run_pipeline_demo

        name = "cqrepl demo"
        work = partial(run_pipeline_demo, rows, keep, as_json=as_json)
        sys.exit(outcome.guarded(name, work))
    if grid:
        from cqrepl.commands.demo import run_grid_demo

        name = "cqrepl demo"
        work = partial(run_grid_demo, rows, seconds, keep, as_json=as_json)
        sys.exit(outcome.guarded(name, work))
    if fix is not None and not persist:
        raise click.UsageError("expected --persist with --fix, got --fix alone")
    if fix is not None:
        from cqrepl.commands.demo import run_fix_demo

        name = "cqrepl demo"
        sys.exit(outcome.guarded(name, lambda: run_fix_demo(seconds, fix, keep, as_json=as_json)))
    if persist:
        from cqrepl.commands.demo import run_persist_demo

        name = "cqrepl demo"
        sys.exit(outcome.guarded(name, lambda: run_persist_demo(seconds, keep, as_json=as_json)))
    if cluster:
        from cqrepl.commands.demo import run_cluster_demo

        name = "cqrepl demo"
        sys.exit(outcome.guarded(name, lambda: run_cluster_demo(seconds, keep, as_json=as_json)))
    sys.exit(outcome.guarded("cqrepl demo", lambda: run_demo(count, size, keep, as_json=as_json)))
