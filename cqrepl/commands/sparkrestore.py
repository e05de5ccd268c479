"""Makes a queue of an archive, and prints what the archive holds."""

from pathlib import Path
from typing import TYPE_CHECKING

from cqrepl.commands.sparkarchive import print_manifest
from cqrepl.commands.sparkjob import SessionOptions, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_restore(
    archive: Path | str,
    target: Path,
    options: SessionOptions,
    *,
    part_bytes: int,
    as_json: bool,
) -> int:
    """Makes the cycles that the queue does not have yet; the exit code.

    Args:
        part_bytes: what a task makes of a large cycle at least, about.
    """

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.jobs.restore import restore

        restored = restore(spark, archive, target, task_bytes=part_bytes)
        new = f"{len(restored.made):,} of them made now"
        return print_manifest(restored.manifest, new, as_json=as_json)

    return run_job("cqrepl spark restore", options, work, archives=[archive])
