"""Makes the manifest of an archive anew, of its parts, and prints what they hold and lack."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cqrepl.commands.sparkarchive import print_manifest
from cqrepl.commands.sparkjob import SessionOptions, run_job
from cqrepl.console import exitcodes, output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.manifestmaker import MadeManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions:
    """The options that the user chose; see `make_manifest`."""

    queue: Path | None
    roll_cycle: str | None
    is_applied: bool
    replaces: bool


def run_rebuild_manifest(
    path: Path | str, chosen: ManifestOptions, options: SessionOptions, *, as_json: bool
) -> int:
    """Says what a manifest would hold, or writes it; the exit code."""

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.failures import JobFailed
        from cqrepl.spark.jobs.archiveplace import ArchiveChanged
        from cqrepl.spark.jobs.manifestmaker import make_manifest

        try:
            found = make_manifest(
                spark,
                path,
                queue=chosen.queue,
                roll_cycle=chosen.roll_cycle,
                replaces=chosen.replaces,
                is_applied=chosen.is_applied,
            )
        except ArchiveChanged as error:
            raise JobFailed(str(error), exitcodes.REFUSED) from error
        return _print(found, is_applied=chosen.is_applied, as_json=as_json)

    queues = [] if chosen.queue is None else [chosen.queue]
    return run_job("cqrepl spark archive rebuild-manifest", options, work, queues)


def _print(found: "MadeManifest", *, is_applied: bool, as_json: bool) -> int:
    layout = found.manifest.layout
    for doubt in found.doubts:
        names = [
            f"{layout.roll_cycle.file_name(cycle, layout.epoch)}.cq4"
            for cycle in dict.fromkeys((doubt.first, doubt.last))
        ]
        row = {"v": 1, "doubt": doubt.text, "files": names, "cycles": doubt.last - doubt.first + 1}
        text = f"{' to '.join(names)}  {doubt.text}\n"
        output.write_text(output.json_line(row) if as_json else text)
    done = "the manifest is made anew" if is_applied else "nothing was changed: --apply writes it"
    print_manifest(found.manifest, done, as_json=as_json)
    return exitcodes.STOPPED if found.doubts else exitcodes.OK
