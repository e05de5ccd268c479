"""`cqrepl spark doctor`: can Spark jobs run here?"""

import sys
from typing import TYPE_CHECKING, Unpack

import click

from cqrepl.cli.options import json_option
from cqrepl.cli.sparkoptions import spark_options

if TYPE_CHECKING:
    from cqrepl.commands.sparkjob import SessionOptions


@click.command()
@spark_options
@json_option
def doctor(as_json: bool, **options: "Unpack[SessionOptions]") -> None:
    """Look whether jobs can run: pyspark, Java, a session, what its workers run on, a queue.

    Exits 1 if something fails.
    """
    from cqrepl.commands.sparkdoctor import run_doctor

    sys.exit(run_doctor(options, as_json=as_json))
