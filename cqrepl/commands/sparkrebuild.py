"""Makes a lost queue anew from its copies, and prints what was taken from which."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqrepl.commands.sparkaudit import difference_row, line_of
from cqrepl.commands.sparkjob import SessionOptions, run_job
from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.rebuild import Rebuilt


def run_rebuild(
    copies: Sequence[Path],
    target: Path,
    options: SessionOptions,
    *,
    prefer: Path | None,
    part_bytes: int,
    as_json: bool,
) -> int:
    """Makes the queue unless copies clash; the exit code.

    Args:
        part_bytes: what a task makes of a large cycle at least, about.
    """

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.jobs.rebuild import rebuild

        rebuilt = rebuild(spark, copies, target, prefer=prefer, task_bytes=part_bytes)
        return _print(rebuilt, target, as_json)

    return run_job("cqrepl spark rebuild", options, work, copies)


def _print(rebuilt: "Rebuilt", target: Path, as_json: bool) -> int:
    paths = rebuilt.audit.paths
    rows = [difference_row(each) for each in rebuilt.clashes]
    for row in rows:
        output.write_text(_json(row) if as_json else line_of(row, paths))
    for copy, cycle in rebuilt.audit.unknown:
        row = {"kind": "unknown", "copy": str(paths[copy]), "cycle": cycle}
        text = f"unknown  where cycle {cycle} ended in {paths[copy]}: more may have been there\n"
        output.write_text(_json(row) if as_json else text)
    for each in rebuilt.taken:
        first, last = f"{each.index_first:#x}", f"{each.index_last:#x}"
        count = each.index_last - each.index_first + 1
        row = {"kind": "taken", "copy": str(paths[each.copy]), "index_first": first}
        row |= {"index_last": last, "count": count}
        text = f"taken    {first}..{last}  {plural(count, 'excerpt')} of {paths[each.copy]}\n"
        output.write_text(_json(row) if as_json else text)
    if not as_json:
        said = f"{target}: {plural(rebuilt.count, 'excerpt')}"
        if rebuilt.clashes:
            said = "nothing was made: --prefer COPY_DIR says which copy is right"
        output.write_text(f"{said}\n")
    output.flush()
    return exitcodes.STOPPED if rebuilt.clashes else exitcodes.OK


def _json(row: dict[str, Any]) -> str:
    return output.json_line({"v": 1, **row})
