"""`cqrepl spark rebuild`: a lost queue from the best parts of its copies. And what it prints."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cqrepl.cli.options import QUEUE_DIR, json_option
from cqrepl.cli.sparkaudit import difference_row, line_of
from cqrepl.cli.sparkoptions import DIRECTORY, run_job, spark_options

if TYPE_CHECKING:
    from cqrepl.spark.jobs.rebuild import Rebuilt


@click.command()
@click.argument("copies", metavar="COPY_DIR...", type=QUEUE_DIR, nargs=-1, required=True)
@click.option(
    "--to", "target", type=DIRECTORY, metavar="QUEUE_DIR", required=True, help="The new queue."
)
@click.option(
    "--prefer", type=QUEUE_DIR, metavar="COPY_DIR", help="The copy that wins where copies differ."
)
@spark_options
@json_option
def rebuild(
    copies: tuple[Path, ...], target: Path, prefer: Path | None, as_json: bool, **options: Any
) -> None:
    """Make a lost queue anew from whatever any of its copies holds.

    Damaged copies are read as far as they can be. Where copies hold other bytes under the same
    index nothing is made, the indexes are shown, and the exit code is 1: --prefer says which copy
    is right. The copies are not changed.
    """

    def work(spark: Any) -> int:
        from cqrepl.spark.jobs.rebuild import rebuild as run

        return _print(run(spark, copies, target, prefer=prefer), target, as_json)

    run_job("cqrepl spark rebuild", options, work)


def _print(rebuilt: "Rebuilt", target: Path, as_json: bool) -> int:
    from cqrepl.console import exitcodes, output
    from cqrepl.console.units import plural

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
    return json.dumps({"v": 1, **row}, separators=(",", ":")) + "\n"
