"""Examines whether Spark jobs can run here, and prints a line for each check."""

import json
from importlib.util import find_spec

from cqrepl.commands import outcome
from cqrepl.commands.sparkjob import SessionOptions, session_settings
from cqrepl.console import exitcodes, output
from cqrepl.spark.doctor import Grade, examine


def run_doctor(options: SessionOptions, *, as_json: bool) -> int:
    """Makes all checks and prints them as they are made; the exit code."""
    return outcome.guarded("cqrepl spark doctor", lambda: _examine(options, as_json))


def _examine(options: SessionOptions, as_json: bool) -> int:
    is_there = find_spec("pyspark") is not None and find_spec("pyarrow") is not None
    code = exitcodes.OK
    for check in examine(session_settings(options) if is_there else None):
        if as_json:
            row = {"v": 1, "grade": check.grade.value, "name": check.name, "text": check.text}
            output.write_text(json.dumps(row | {"fix": check.fix}) + "\n")
        else:
            fix = f"  fix: {check.fix}" if check.fix else ""
            output.write_text(f"{check.grade.value:<5} {check.name:<9} {check.text}{fix}\n")
        output.flush()
        if check.grade is Grade.FAIL:
            code = exitcodes.STOPPED
    return code
