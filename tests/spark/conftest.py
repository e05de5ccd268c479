"""One Spark session for all tests here: starting one takes seconds, a query a fraction of one."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import child_processes, wait_for_children
from tests.spark.quickjava import OPTIONS
from tests.support.javachecks import java
from tests.support.requirements import promised, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["java", "spark"]
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": OPTIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


_java_processes: set[int] = set()
EXTRAS = ("pyspark", "pyarrow")
NOT_INSTALLED = [name for name in EXTRAS if find_spec(name) is None]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves the tests out where what they import is not installed, unless that was promised."""
    is_left_out = collection_path.match("test_*.py") and "spark" not in promised()
    return True if NOT_INSTALLED and is_left_out else None


def pytest_report_header() -> str | None:
    """The report's line that says so."""
    missing = ", ".join(NOT_INSTALLED)
    return f"tests/spark is left out: {missing} not installed" if missing else None


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """Checks as for all tests, but leaves the session's Java process, which many modules share."""
    before = child_processes()
    yield
    wait_for_children(before | _java_processes)


def spark_missing() -> str | None:
    """The reason why no session can be made here; None when one can."""
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        return "no java on the path"
    return None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session with two tasks at a time, of which each is tried three times."""
    reason = spark_missing()
    if reason is not None:
        require("spark", reason)
    from pyspark.sql import SparkSession

    from cqrepl.spark import register

    folder: Path = tmp_path_factory.mktemp("spark")
    # workers import the tests' own functions from the tree, and use this very Python
    os.environ["PYSPARK_PYTHON"] = sys.executable
    tree = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([tree, os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2,3]").appName("cqrepl tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(folder))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the gateway's subprocess and sockets
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    gateway = session.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    _java_processes.add(java.pid)
    yield session
    session.stop()
    gateway.shutdown()
    java.stdin.close()
    java.wait()
