"""Looks whether Spark jobs can run: what is installed, Java, a session, its workers, a queue.

Each check builds on those before it, so what follows a failed one is not tried.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cqrepl._version import VERSION
from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import Queue
from cqrepl.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.session import SessionSettings

_TASKS: Final = 8
_INSTALL: Final = "pip install 'cqrepl[spark]'"
_EVERYWHERE: Final = f"{_INSTALL} on each host, or --ship, which takes everything but pyarrow along"


class Grade(Enum):
    """The grade of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report; `fix` is what to do about it."""

    grade: Grade
    name: str
    text: str
    fix: str = ""


def examine(settings: "SessionSettings | None") -> Iterator[Check]:
    """All checks, as far as they can be made.

    Args:
        settings: of the session to try; None if pyspark cannot be imported.
    """
    yield _ok("python", f"{sys.version.split()[0]} in {sys.executable}")
    if settings is None:
        yield Check(grade=Grade.FAIL, name="pyspark", text="not installed", fix=_INSTALL)
        return
    import pyarrow
    import pyspark

    yield _ok("pyspark", pyspark.__version__)
    yield _ok("pyarrow", pyarrow.__version__)
    try:
        java = find_java()
    except BadArguments as error:
        yield Check(grade=Grade.FAIL, name="java", text=str(error))
        return
    yield _ok("java", f"{java.version or 'of unknown version'} in {java.home}")
    yield from _in_session(settings)


def _in_session(settings: "SessionSettings") -> Iterator[Check]:
    from cqrepl.spark.failures import JobFailed
    from cqrepl.spark.session import session

    began, name = time.monotonic(), "session"
    try:
        with session(settings, "cqrepl spark doctor") as spark:
            yield _ok(name, f"{settings.master}, started in {time.monotonic() - began:.1f} s")
            name = "workers"
            yield from _workers(spark, is_local=settings.is_local)
            name = "queue"
            if settings.is_local:
                yield _queue(spark)
    except JobFailed as error:
        fix = _EVERYWHERE if "No module named" in str(error) else ""
        yield Check(grade=Grade.FAIL, name=name, text=str(error), fix=fix)


def _workers(spark: "SparkSession", *, is_local: bool) -> Iterator[Check]:
    """Check that the workers run on the same versions and kernel as the driver."""
    from cqrepl.spark.jobs.tasks import run_tasks

    def work(_: int) -> Iterator[dict[str, str]]:
        yield describe_worker()

    answers = run_tasks(spark, "asked", work, range(_TASKS))
    here = describe_worker()
    for found in sorted({tuple(answer.items()) for answer in answers}):
        worker = dict(found)
        text = ", ".join(f"{name} {version}" for name, version in worker.items())
        same = {name: worker[name] == here[name] for name in worker if name != "host"}
        if not same["cqrepl"]:
            yield Check(grade=Grade.WARN, name="workers", text=text, fix=_EVERYWHERE)
        elif not is_local and not same["kernel"]:
            fix = "build the native kernel there, too: cargo, then pip install"
            yield Check(grade=Grade.WARN, name="workers", text=text, fix=fix)
        else:
            yield _ok("workers", text)


def describe_worker() -> dict[str, str]:
    """The host, the versions and the kernel that this process runs on, by name."""
    import socket

    import pyarrow

    from cqrepl.kernel import choose

    return {
        "host": socket.gethostname(),
        "Python": sys.version.split()[0],
        "cqrepl": VERSION,
        "kernel": choose.NAME,
        "pyarrow": pyarrow.__version__,
    }


def _queue(spark: "SparkSession") -> Check:
    """Writes two excerpts, and has Spark read them."""
    from cqrepl.spark import register

    with tempfile.TemporaryDirectory(prefix="cqrepl-doctor-") as folder:
        path = Path(folder) / "queue"
        with Queue.open(path, create="FAST_DAILY") as queue:
            queue.append_many([b"one", b"two"])
        register(spark)
        frame = spark.read.format("chronicle").load(str(path))
        found = sorted(bytes(row["payload"]) for row in frame.select("payload").collect())
    if found != [b"one", b"two"]:
        return Check(grade=Grade.FAIL, name="queue", text=f"two excerpts written, {found} read")
    return _ok("queue", "two excerpts written, and read by Spark")


def _ok(name: str, text: str) -> Check:
    return Check(grade=Grade.OK, name=name, text=text)
