"""Fills queues from a table with Spark, and prints what is in each of them."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cqrepl.commands.sparkjob import SessionOptions, run_job
from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.units import plural
from cqrepl.queue import QueueLayout
from cqrepl.queue.format.rollcycle import by_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cqrepl.spark.jobs.queuefiller import Filled


class PreloadOptions(SessionOptions):
    """The options that the user chose."""

    form: str
    reading: tuple[str, ...]
    key: str
    partitions: int
    payload: str | None
    order: str | None
    block: int
    roll_cycle: str
    as_json: bool


def run_preload(table: str, out: Path, options: PreloadOptions) -> int:
    """Fills the queues below a directory, as far as they are not; the exit code."""

    def work(spark: "SparkSession") -> int:
        frame = _frame(spark, table, options["form"], options["reading"])
        return _print(_filled(frame, out, options), options["as_json"])

    return run_job("cqrepl spark preload", options, work)


def _frame(spark: "SparkSession", table: str, form: str, reading: tuple[str, ...]) -> "DataFrame":
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


def _filled(frame: "DataFrame", out: Path, options: PreloadOptions) -> "list[Filled]":
    from cqrepl.spark.jobs.preload import PreloadSettings, preload

    try:
        layout = QueueLayout.of(by_name(options["roll_cycle"]))
    except ValueError as error:
        raise BadArguments(str(error)) from error
    settings = PreloadSettings(
        key=options["key"],
        partitions=options["partitions"],
        payload=options["payload"],
        order=options["order"],
    )
    now_ms = time.time_ns() // 1_000_000
    return preload(frame, out, settings, layout=layout, now_ms=now_ms, block=options["block"])


def _print(filled: "list[Filled]", as_json: bool) -> int:
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
