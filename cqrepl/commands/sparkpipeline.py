"""Runs a pipeline over queues, once or again and again; checks its file; tells what it has done."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqrepl.commands import outcome
from cqrepl.commands.sparkjob import SessionOptions, missing, run_job
from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.queue import format_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.pipelinefile import PipelinePlan, TypedView

_NAME = "cqrepl spark pipeline"


def run_pipeline_file(
    file: Path, options: SessionOptions, *, every_s: float | None, as_json: bool
) -> int:
    """Runs it; the exit code: 1 where something did not go on.

    Args:
        every_s: runs it again so long after each end; None: once.
    """

    found: list[PipelinePlan] = []

    def checked() -> int:
        found.append(_read(file))
        return exitcodes.OK

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.datasource import register
        from cqrepl.spark.pipeline import run_pipeline

        register(spark)
        while True:
            run = run_pipeline(spark, found[0])
            for row in run.rows:
                _print(row, as_json=as_json)
            for fault in run.faults:
                output.write_error(f"{_NAME}: {fault}")
            if every_s is None:
                return exitcodes.STOPPED if run.faults else exitcodes.OK
            time.sleep(every_s)

    code = outcome.guarded(_NAME, checked)
    return code if code != exitcodes.OK else run_job(_NAME, options, work)


def check_pipeline_file(file: Path) -> int:
    """Says what a file has; the exit code."""

    def work() -> int:
        plan = _read(file)
        for each in plan.queues:
            archive = each.archive or "no archive"
            fields = "" if each.typed is None else f", {_fields_of(each.typed)}"
            output.write_text(f"{each.pattern}  {len(each.copies)} copies, {archive}{fields}\n")
        for table in plan.tables:
            output.write_text(f"{table.name}  to {table.to} {table.path}\n")
        output.write_text(f"state {plan.state}\n")
        output.flush()
        return exitcodes.OK

    return outcome.guarded(f"{_NAME} check", work)


def _fields_of(view: "TypedView") -> str:
    """The view of a schema in words.

    Raises:
        BadArguments: the schema is none.
    """
    from cqrepl.spark.schemachoice import typed_schema
    from cqrepl.spark.tableoptions import OptionError

    try:
        count = len(typed_schema(view.schema, view.event).shape.members)
    except OptionError as error:
        raise exitcodes.BadArguments(f"view {view.name}: {error}") from error
    return f"{plural(count, 'field')} in the view {view.name}"


def show_pipeline(file: Path, *, as_json: bool) -> int:
    """Prints the last row of each step; the exit code: 1 where one did not go on."""

    def work() -> int:
        plan = _read(file)
        from cqrepl.spark.pipeline import latest_rows

        rows = [row for _, row in sorted(latest_rows(plan.state).items())]
        for row in rows:
            _print(row, as_json=as_json)
        return exitcodes.STOPPED if any(row.get("fault") for row in rows) else exitcodes.OK

    return outcome.guarded(f"{_NAME} status", work)


def _read(file: Path) -> "PipelinePlan":
    try:
        from cqrepl.spark.pipelinefile import read_pipeline
    except ImportError as error:
        raise missing(error) from error
    return read_pipeline(file)


def _print(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.write_text(output.json_line(row))
    else:
        hidden = ("v", "at_ms", "queue", "name", "step", "fault")
        told = ", ".join(
            f"{key} {format_index(value) if key == 'index_last' else value}"
            for key, value in row.items()
            if key not in hidden
        )
        output.write_text(f"{row['queue']}  {row['step']}: {row.get('fault') or told}\n")
    output.flush()
