"""Of the pages that Spark has for an error, the one line that says what happened."""

import pytest

from cqrepl.spark.failures import failure_of
from tests.spark.conftest import spark_missing
from tests.support.requirements import require

IN_A_TASK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
cqrepl.queue.format.errors.QueueDamaged: data/orders: expected a header, found 17 at position 40

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""
MISSING = """Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'cqrepl'
"""
OF_JAVA = """An error occurred while calling o44.load.
: org.apache.spark.SparkException: [X] Y is not there.
\tat org.apache.spark.Something
"""
WITHOUT_STACK = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: \
cqrepl.spark.tableoptions.OptionError: option x: expected a, found b
 SQLSTATE: 38000"""
WITHIN_A_LINE = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback \
(most recent call last):
  File "worker.py", line 1, in main
cqrepl.queue.format.errors.QueueDamaged: q: expected a, found b
 SQLSTATE: 38000"""

NO_ROOM = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
OSError: [Errno 28] No space left on device: '/q'
"""


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        (IN_A_TASK, "data/orders: expected a header, found 17 at position 40", 4),
        (MISSING, "No module named 'cqrepl'", 2),
        (NO_ROOM, "[Errno 28] No space left on device: '/q'", 6),
        (WITHOUT_STACK, "option x: expected a, found b", 2),
        (WITHIN_A_LINE, "q: expected a, found b", 4),
        (OF_JAVA, "Spark: [X] Y is not there.", 2),
        ("[TABLE_OR_VIEW_NOT_FOUND] no table", "Spark: [TABLE_OR_VIEW_NOT_FOUND] no table", 2),
        ("", "Spark: it gave no reason", 2),
    ],
)
def test_one_line(text: str, said: str, code: int) -> None:
    reason = spark_missing()
    if reason is not None:
        require("spark", reason)

    failure = failure_of(text)
    assert (str(failure), failure.code) == (said, code)
