"""`cqrepl spark doctor`: can Spark jobs run here? And what it prints."""

import json
from typing import Any

import click

from cqrepl.cli.options import json_option
from cqrepl.cli.sparkoptions import session_settings, spark_options


@click.command()
@spark_options
@json_option
def doctor(as_json: bool, **options: Any) -> None:
    """Look whether jobs can run: pyspark, Java, a session, what its workers run on, a queue.

    Exits 1 if something fails.
    """
    import sys

    from cqrepl.commands import outcome

    sys.exit(outcome.guarded("cqrepl spark doctor", lambda: _examine(options, as_json)))


def _examine(options: dict[str, Any], as_json: bool) -> int:
    from importlib.util import find_spec

    from cqrepl.console import exitcodes, output
    from cqrepl.spark.doctor import Grade, examine

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
