"""The jar with the scan in Java, and which of the two sources of queues a session has.

Theory of operation. Spark takes a class of Java that has the name of a source before one that is
registered from Python. So where the jar is on the class path, `chronicle` is the scan in Java, and
the source in Python is `chronicle_python`, which the scan hands writing to. CQREPL_SPARK_SCAN says
which is wanted:

    auto     the scan in Java, where its jar is; else the source in Python
    native   the scan in Java, or an error
    python   the source in Python, also where the jar is
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from cqrepl.console.exitcodes import BadArguments
from cqrepl.spark.activesession import java_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE: Final = "CQREPL_SPARK_SCAN"
JAR: Final = Path(__file__).with_name("cqrepl-spark.jar")
_MODES: Final = ("auto", "native", "python")
_CLASS: Final = "cqrepl.spark.ChronicleProvider"
_PROPERTY: Final = "cqrepl.spark."


def wanted_scan() -> str:
    """One of `auto`, `native` and `python`.

    Raises:
        BadArguments: the variable is something else, or the jar is wanted and not there.
    """
    mode = os.environ.get(VARIABLE, "auto")
    if mode not in _MODES:
        raise BadArguments(f"{VARIABLE}: expected auto, native or python, found {mode!r}")
    if mode == "native" and not JAR.exists():
        raise BadArguments(f"{VARIABLE}=native: expected {JAR}, it was not built: make spark-jar")
    return mode


def jar_settings() -> dict[str, str]:
    """The settings of a session that has the jar from its start."""
    return {"spark.jars": str(JAR)} if wanted_scan() != "python" and JAR.exists() else {}


def offer_scan(spark: "SparkSession", *, keeps_tables: bool) -> bool:
    """Sees to it that a session has the scan in Java, if it can and is to; true where it has.

    The scan is told this Python, which plans for it.
    """
    mode, java = wanted_scan(), java_of(spark)
    if java is None:  # over Spark Connect the server has it, or has not
        return False
    system = _jvm(spark).java.lang.System
    system.setProperty(_PROPERTY + "scan", mode)
    system.setProperty(_PROPERTY + "python", sys.executable)
    system.setProperty(_PROPERTY + "pythonpath", str(Path(__file__).resolve().parents[2]))
    system.setProperty(_PROPERTY + "keepstables", "true" if keeps_tables else "false")
    if _is_loaded(spark):
        return True
    if mode == "python" or not JAR.exists():
        return False
    loader = _loader(spark)
    try:
        loader.addURL(_jvm(spark).java.net.URI(JAR.as_uri()).toURL())
        spark.sparkContext._jsc.addJar(str(JAR))
    except Py4JError:  # another loader than Spark's own
        if mode == "native":
            raise BadArguments(f"{VARIABLE}=native: start the session with --jars {JAR}") from None
        return False
    return _is_loaded(spark)


def _jvm(spark: "SparkSession") -> Any:
    return spark.sparkContext._jvm


def _loader(spark: "SparkSession") -> Any:
    return _jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()


def _is_loaded(spark: "SparkSession") -> bool:
    try:
        _loader(spark).loadClass(_CLASS)
    except Py4JError:
        return False
    return True
