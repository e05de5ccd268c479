"""Runs a job of `cqrepl spark` in a session of its own, and ends as all commands do.

Nothing of Spark is imported before a job runs; where it is missing, one line says so.
"""

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from cqrepl.commands import outcome
from cqrepl.console import output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import NotAQueue, Queue, QueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.session import SessionSettings


class SessionOptions(TypedDict):
    """The options that the user chose for the session in which a job runs."""

    master: str
    conf: tuple[str, ...]
    ship: bool
    verbose: bool


def run_job(
    name: str,
    options: SessionOptions,
    work: "Callable[[SparkSession], int]",
    queues: Sequence[Path] = (),
    archives: Sequence[Path | str] = (),
) -> int:
    """Runs a job in a session of its own; the exit code.

    Args:
        queues: have to be there; looked at before Spark takes its time to start.
        archives: so, too, with a manifest that can be read.
    """
    return outcome.guarded(name, lambda: _in_session(name, options, work, queues, archives))


def _check_queues(paths: Sequence[Path]) -> None:
    """Does nothing where queues are, even damaged ones: that is for the job to tell.

    Raises:
        NotAQueue: something else is there, or nothing.
    """
    for path in paths:
        try:
            Queue.open(path).close()
        except NotAQueue:
            raise
        except QueueError:
            continue


def _in_session(
    name: str,
    options: SessionOptions,
    work: "Callable[[SparkSession], int]",
    queues: Sequence[Path],
    archives: Sequence[Path | str],
) -> int:
    settings = session_settings(options)
    _check_queues(queues)
    for archive in archives:
        from cqrepl.spark.jobs.archivefiles import read_manifest
        from cqrepl.spark.jobs.archiveplace import place_of

        read_manifest(place_of(archive))
    from cqrepl.spark.failures import JobFailed
    from cqrepl.spark.session import session

    try:
        with session(settings, name) as spark:
            _take_interrupts()
            return work(spark)
    except JobFailed as error:
        output.write_error(f"{name}: {error}")
        return error.code


def _take_interrupts() -> None:
    """Makes Ctrl-C an ordinary interrupt, as in all commands.

    Spark's own handler talks to Java in the middle of another call, and its client logs both.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.NullHandler())


def missing(error: ImportError) -> BadArguments:
    """The error that tells the user which package of the extra is not installed."""
    return BadArguments(f"{error.name} is not installed: pip install 'cqrepl[spark]'")


def session_settings(options: SessionOptions) -> "SessionSettings":
    """The settings of a session, from what the user chose.

    Raises:
        BadArguments: they cannot be, or pyspark is not installed.
    """
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
        raise missing(error) from error
    assert pyarrow.__version__
    assert pyspark.__version__
    from cqrepl.spark.session import SessionSettings

    return SessionSettings(
        master=options["master"], conf=conf, ship=options["ship"], verbose=options["verbose"]
    )
