"""Archives a queue as Parquet, and prints what the archive holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqrepl.commands.sparkjob import SessionOptions, run_job
from cqrepl.console import exitcodes, output
from cqrepl.console.units import format_bytes, plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.archivefiles import ArchivedCycle, Manifest


def run_archive(
    path: Path,
    out: Path,
    options: SessionOptions,
    *,
    with_open: bool,
    verify: bool,
    replace: bool,
    as_json: bool,
) -> int:
    """Adds what is not in the archive yet; the exit code."""

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.failures import JobFailed
        from cqrepl.spark.jobs.archive import archive
        from cqrepl.spark.jobs.archiveplan import ArchiveDiffers

        try:
            manifest, count = archive(
                spark, path, out, with_open=with_open, verify=verify, replace=replace
            )
        except ArchiveDiffers as error:
            raise JobFailed(str(error), exitcodes.STOPPED) from error
        return print_manifest(manifest, f"{count:,} of them new", as_json=as_json)

    return run_job("cqrepl spark archive", options, work, [path])


def print_manifest(manifest: "Manifest", new: str, *, as_json: bool) -> int:
    """Prints a line for each cycle of an archive, and what of it is new; the exit code."""
    for cycle in manifest.cycles:
        row = _row(cycle)
        if as_json:
            output.write_text(output.json_line({"v": 1, **row}))
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
