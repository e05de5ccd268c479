"""`cqrepl spark archive` and `restore`: a queue as Parquet, and back. And what they print."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cqrepl.cli.options import json_option, queue_argument
from cqrepl.cli.sparkoptions import DIRECTORY, run_job, spark_options

if TYPE_CHECKING:
    from cqrepl.spark.jobs.archivefiles import ArchivedCycle, Manifest


@click.command()
@queue_argument
@click.argument("out", metavar="ARCHIVE_DIR", type=DIRECTORY)
@click.option("--with-open", is_flag=True, help="Archive the cycle that is still written, too.")
@click.option("--verify", is_flag=True, help="Read the new parts back, and compare digests.")
@spark_options
@json_option
def archive(
    path: Path, out: Path, with_open: bool, verify: bool, as_json: bool, **options: Any
) -> None:
    """Archive a queue as Parquet, by day and cycle, with a manifest.

    Run again, it adds the cycles that have been closed since. Nothing is ever deleted from the
    queue. `restore` gives it back, index for index.
    """

    def work(spark: Any) -> int:
        from cqrepl.spark.jobs.archive import archive as run

        manifest, count = run(spark, path, out, with_open=with_open, verify=verify)
        return _print(manifest, f"{count:,} of them new", as_json)

    run_job("cqrepl spark archive", options, work, [path])


@click.command()
@click.argument("archive", metavar="ARCHIVE_DIR", type=DIRECTORY)
@click.argument("target", metavar="QUEUE_DIR", type=DIRECTORY)
@spark_options
@json_option
def restore(archive: Path, target: Path, as_json: bool, **options: Any) -> None:
    """Make a queue of an archive: every excerpt under the index that it had.

    The digests in the manifest are checked. What is in the queue already is compared, never
    overwritten, so a run that was cut off can be repeated.
    """

    def work(spark: Any) -> int:
        from cqrepl.spark.jobs.restore import restore as run

        restored = run(spark, archive, target)
        return _print(restored.manifest, f"{len(restored.made):,} of them made now", as_json)

    run_job("cqrepl spark restore", options, work)


def _print(manifest: "Manifest", new: str, as_json: bool) -> int:
    from cqrepl.console import exitcodes, output
    from cqrepl.console.units import format_bytes, plural

    for cycle in manifest.cycles:
        row = _row(cycle)
        if as_json:
            output.write_text(json.dumps({"v": 1, **row}, separators=(",", ":")) + "\n")
        else:
            size = format_bytes(row["payload_bytes"])
            state = "closed" if cycle.is_closed else "open"
            span = f"{row['index_first']}..{row['index_last']}"
            output.write_text(
                f"{cycle.file}  {cycle.day}  {span}  {cycle.count:,} excerpts  {size}  {state}\n"
            )
    if not as_json:
        cycles, excerpts = plural(len(manifest.cycles), "cycle"), plural(manifest.count, "excerpt")
        output.write_text(f"{cycles}, {new}; {excerpts}\n")
    output.flush()
    return exitcodes.OK


def _row(cycle: "ArchivedCycle") -> dict[str, Any]:
    return {
        "cycle": cycle.cycle,
        "day": cycle.day,
        "file": cycle.file,
        "closed": cycle.is_closed,
        "index_first": f"{cycle.index_first:#x}",
        "index_last": f"{cycle.index_last:#x}",
        "excerpts": cycle.count,
        "payload_bytes": sum(part.payload_bytes for part in cycle.parts),
        "parts": len(cycle.parts),
    }
