"""`cqrepl spark preload`: queues from a table. And what it prints."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cqrepl.cli.options import json_option
from cqrepl.cli.sparkoptions import DIRECTORY, run_job, spark_options

if TYPE_CHECKING:
    from cqrepl.spark.jobs.queuefiller import Filled


@click.command()
@click.argument("table")
@click.argument("out", metavar="DIR", type=DIRECTORY)
@click.option(
    "--format", "form", default="parquet", show_default=True, metavar="NAME",
    help="How Spark reads TABLE: parquet, json, csv, orc, chronicle, ...; or `table`, by its name.",
)  # fmt: skip
@click.option("--option", "reading", multiple=True, metavar="KEY=VALUE", help="For that format.")
@click.option("--key", required=True, metavar="COLUMN", help="The column that decides the queue.")
@click.option(
    "--partitions", type=click.IntRange(1, 100_000), required=True, metavar="N",
    help="How many queues.",
)  # fmt: skip
@click.option(
    "--payload", metavar="COLUMN",
    help="The column that is the excerpt. [default: the whole row, as binary wire]",
)  # fmt: skip
@click.option(
    "--block", type=click.IntRange(1), default=10_000, show_default=True, metavar="N",
    help="Excerpts that are appended in one step.",
)  # fmt: skip
@click.option("--roll-cycle", default="FAST_DAILY", show_default=True, help="Of the new queues.")
@spark_options
@json_option
def preload(
    table: str, out: Path, form: str, reading: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Fill queues from a table: each row into the queue of its key's partition.

    The partition is the CRC-32 of the key as binary wire, modulo N, on every machine and in every
    language. A run that was cut off is repeated: what is there is compared, the rest appended.
    """

    def work(spark: Any) -> int:
        frame = _frame(spark, table, form, reading)
        return _print(_filled(frame, out, options), as_json)

    run_job("cqrepl spark preload", options, work)


def _frame(spark: Any, table: str, form: str, reading: tuple[str, ...]) -> Any:
    from cqrepl.console.exitcodes import BadArguments

    if form == "table":
        return spark.table(table)
    if form == "chronicle":
        from cqrepl.spark import register

        register(spark)
    reader = spark.read.format(form)
    for text in reading:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadArguments(f"--option: KEY=VALUE expected, {text!r} came")
        reader = reader.option(name, value)
    return reader.load(table)


def _filled(frame: Any, out: Path, options: dict[str, Any]) -> "list[Filled]":
    import time

    from cqrepl.console.exitcodes import BadArguments
    from cqrepl.queue import QueueLayout
    from cqrepl.queue.format.rollcycle import by_name
    from cqrepl.spark.jobs.preload import PreloadSettings, preload

    try:
        layout = QueueLayout.of(by_name(options["roll_cycle"]))
    except ValueError as error:
        raise BadArguments(str(error)) from error
    settings = PreloadSettings(
        key=options["key"], partitions=options["partitions"], payload=options["payload"]
    )
    now_ms = time.time_ns() // 1_000_000
    return preload(frame, out, settings, layout=layout, now_ms=now_ms, block=options["block"])


def _print(filled: "list[Filled]", as_json: bool) -> int:
    from cqrepl.console import exitcodes, output
    from cqrepl.console.units import plural

    for each in filled:
        if as_json:
            output.write_text(json.dumps({"v": 1, **asdict(each)}) + "\n")
        else:
            count = plural(each.excerpts, "excerpt")
            output.write_text(f"{each.path}  {count}, {each.written:,} of them written now\n")
    if not as_json:
        excerpts, written = sum(f.excerpts for f in filled), sum(f.written for f in filled)
        output.write_text(
            f"{plural(len(filled), 'queue')}, {plural(excerpts, 'excerpt')},"
            f" {written:,} of them written now\n"
        )
    output.flush()
    return exitcodes.OK
