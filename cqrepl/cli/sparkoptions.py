"""What the commands of `cqrepl spark` have in common: where they run, and how they end.

Nothing of Spark is imported before a command runs; where it is missing, one line says so.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cqrepl.cli.options import Command, Converted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.session import SessionSettings

LOCAL: Final = "local[*]"
DIRECTORY: Final = click.Path(path_type=Path)


def _file_to_write(text: str) -> Path:
    """A file that can be made, as it is only found out at the end of a job otherwise."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"a file in a directory that is there expected, {text!r} came")
    return path


FILE: Final = Converted("file", _file_to_write)


def spark_options(command: Command) -> Command:
    """Adds the options that say where a job runs."""
    for option in reversed(
        (
            click.option(
                "--master",
                default=LOCAL,
                show_default=True,
                metavar="URL",
                help="Where it runs: this machine, or spark://host:7077.",
            ),
            click.option(
                "--conf",
                multiple=True,
                metavar="KEY=VALUE",
                help="A setting of Spark, such as spark.executor.memory=2g; may be given again.",
            ),
            click.option(
                "--ship",
                is_flag=True,
                help="Send this installation to the executors, which then need only Python and"
                " pyarrow.",
            ),
            click.option("-v", "--verbose", is_flag=True, help="Show what Spark itself says."),
        )
    ):
        command = option(command)
    return command


def run_job(
    name: str,
    options: dict[str, Any],
    work: "Callable[[SparkSession], int]",
    queues: Sequence[Path] = (),
) -> None:
    """Runs a job in a session of its own and ends the process with its exit code.

    Args:
        options: what `spark_options` gave.
        queues: have to be there; looked at before Spark takes its time to start.
    """
    from cqrepl.commands import outcome

    sys.exit(outcome.guarded(name, lambda: _in_session(name, options, work, queues)))


def _check_queues(paths: Sequence[Path]) -> None:
    """Does nothing where queues are, in whatever state: that is for the job to tell.

    Raises:
        NotAQueue: something else is there, or nothing.
    """
    from cqrepl.queue import NotAQueue, Queue, QueueError

    for path in paths:
        try:
            Queue.open(path).close()
        except NotAQueue:
            raise
        except QueueError:
            continue


def _in_session(
    name: str,
    options: dict[str, Any],
    work: "Callable[[SparkSession], int]",
    queues: Sequence[Path],
) -> int:
    settings = session_settings(options)
    _check_queues(queues)
    from cqrepl.spark.failures import JobFailed
    from cqrepl.spark.session import session

    try:
        with session(settings, name) as spark:
            _take_interrupts()
            return work(spark)
    except JobFailed as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.code


def _take_interrupts() -> None:
    """Makes Ctrl-C an ordinary interrupt, as in all commands.

    Spark's own handler talks to Java amid whatever is said to it, and its client logs both.
    """
    import logging
    import signal
    import threading

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())


def session_settings(options: dict[str, Any]) -> "SessionSettings":
    """The settings of a session, from what `spark_options` gave.

    Raises:
        BadArguments: they cannot be, or pyspark is not installed.
    """
    from cqrepl.console.exitcodes import BadArguments

    conf = {}
    for text in options["conf"]:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise BadArguments(f"--conf: spark.KEY=VALUE expected, {text!r} came")
        conf[key] = value
    try:
        import pyarrow
        import pyspark
    except ImportError as error:
        raise BadArguments(f"{error.name} is not installed: pip install 'cqrepl[spark]'") from error
    assert pyarrow.__version__
    assert pyspark.__version__
    from cqrepl.spark.session import SessionSettings

    return SessionSettings(
        master=options["master"], conf=conf, ship=options["ship"], verbose=options["verbose"]
    )
