"""A Spark session for a command: found Java, quiet, on this machine unless told otherwise.

What the Java side prints goes to a file, which is shown in part when the session cannot start. The
workers run the Python that runs this.
"""

import os
import re
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cqrepl.console import exitcodes
from cqrepl.spark.activesession import active, java_of
from cqrepl.spark.failures import JobFailed, is_interrupted, one_line
from cqrepl.spark.java import find_java
from cqrepl.spark.scanjar import jar_settings
from cqrepl.spark.shipment import beside, ship_settings

LOCAL: Final = "local[*]"
EXECUTORS_TIMEOUT_S: Final = 60.0
_CONNECT_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.1
# without types in pyspark
_launch: Final[Callable[[SparkConf, dict[str, IO[str]]], Any]] = launch_gateway
_REASON: Final = re.compile("Exception|Error|Invalid")
_QUIET: Final = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of the session that a job runs in.

    Args:
        master: `local[*]`, `spark://host:7077`, ...
        conf: settings of Spark, which go before ours.
        ship: send this installation to the executors.
        verbose: pass on Spark's own output to standard error.
    """

    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict)
    ship: bool = False
    verbose: bool = False

    @property
    def is_local(self) -> bool:
        """True when the tasks run on this machine, in the session's own Java process."""
        return self.master.startswith("local")


@contextmanager
def session(settings: SessionSettings, name: str) -> Iterator[SparkSession]:
    """A session for the length of a block, the active one of the calling thread. One that is there
    in this process is used, and stays.

    Raises:
        BadArguments: there is no Java for it.
        JobFailed: it cannot be started, the master cannot be reached, or has no executors.
    """
    there = _session_of_process()
    if there is not None:
        with active(there), one_line():
            yield there
        return
    os.environ["JAVA_HOME"] = str(find_java().home)
    # the driver tells the workers, and this is where it looks; the setting is for spark-submit
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_PYTHON"] = settings.conf.get("spark.pyspark.python", python)
    _check_reachable(settings.master)
    with tempfile.TemporaryDirectory(prefix="cqrepl-spark-") as folder:
        spark = _start(settings, name, Path(folder))
        try:
            if not settings.is_local:
                _wait_for_executors(spark, settings.master)
            with one_line():
                yield spark
        finally:
            _stop(spark)


def _session_of_process() -> SparkSession | None:
    """The active session of the calling thread, else the one that another thread has made."""
    try:
        found: Any = SparkSession.active()
    except PySparkRuntimeError:  # there is none
        return None
    # it may have been stopped; one over Spark Connect has no Java here
    stopped = found.is_stopped if java_of(found) is None else found.sparkContext._jsc is None
    return None if stopped else found


def _start(settings: SessionSettings, name: str, folder: Path) -> SparkSession:
    conf = SparkConf(loadDefaults=False)
    for key, value in _conf(settings, name, folder).items():
        conf.set(key, value)
    log = folder / "spark.log"
    try:
        with log.open("w") as out:
            gateway = _launched(conf, {} if settings.verbose else {"stdout": out, "stderr": out})
        with warnings.catch_warnings():
            # it is about versions of pandas, which no command uses
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
            return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except (PySparkException, Py4JError) as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from error
        said = log.read_text(errors="replace").splitlines() if log.exists() else []
        reasons = [line.strip() for line in said if _REASON.search(line)]
        text = reasons[0] if reasons else str(error).splitlines()[0]
        raise JobFailed(f"Spark does not start: {text}") from error


def _launched(conf: SparkConf, streams: dict[str, IO[str]]) -> Any:
    """The way to a new Java process, which is gone if we are interrupted before there is one.

    PySpark then removes the folder that Java is to tell in where it can be reached, and Java goes
    on for ever, unreachable.
    """
    before = _children()
    try:
        return _launch(conf, streams)
    except BaseException:
        for pid in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def _children() -> set[int]:
    """The processes that this one has started."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # of a thread that has ended
            found.update(map(int, path.read_text().split()))
    return found


def _conf(settings: SessionSettings, name: str, folder: Path) -> dict[str, str]:
    conf = {
        "spark.master": settings.master,
        "spark.app.name": name,
        "spark.submit.deployMode": "client",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if not settings.verbose:
        conf["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_QUIET}"
    if settings.is_local:
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 1)),
        }
    chosen = dict(settings.conf)
    ours = jar_settings()
    if "spark.jars" in chosen and ours:
        chosen["spark.jars"] = ",".join([*ours.values(), chosen["spark.jars"]])
    conf |= ours
    if settings.ship:
        chosen |= beside(ship_settings(folder), chosen)
    return conf | chosen


def _check_reachable(master: str) -> None:
    """Asks the master of a standalone cluster for a connection; Spark itself would try a minute."""
    if not master.startswith("spark://"):
        return
    address = urlsplit(master.split(",")[0])
    try:
        host, port = address.hostname, address.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise exitcodes.BadArguments(
            f"a master such as spark://host:7077 expected, {master!r} came"
        )
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        text = f"the master {master} cannot be reached: {error.strerror or error}"
        raise JobFailed(text, exitcodes.UNREACHABLE) from error


def _wait_for_executors(spark: SparkSession, master: str) -> None:
    """Waits until a cluster has given an executor; a job would wait for ever."""
    deadline = time.monotonic() + EXECUTORS_TIMEOUT_S
    status = spark.sparkContext._jsc.sc().statusTracker()  # Python's own does not tell executors
    while len(status.getExecutorInfos()) < 2:  # the driver counts as one
        if time.monotonic() >= deadline:
            text = f"{master} gave no executor within {EXECUTORS_TIMEOUT_S:.0f} s: are its workers"
            raise JobFailed(f"{text} running, with memory free?", exitcodes.UNREACHABLE)
        time.sleep(_POLL_S)


def _stop(spark: SparkSession) -> None:
    """Ends the session and its Java process, however far it is."""
    gateway = spark.sparkContext._gateway
    try:
        spark.stop()
    except (PySparkException, Py4JError, OSError):
        pass  # Java is gone already: what it was is told by another error
    finally:
        SparkContext._gateway = SparkContext._jvm = None
        if gateway is not None:
            gateway.shutdown()
            process = getattr(gateway, "proc", None)
            if process is not None:
                process.stdin.close()
                process.wait()
