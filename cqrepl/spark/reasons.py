"""Errors that say what is wrong come to the user of Spark without a Python stack.

A worker of Spark sends the whole stack of an error, ten lines and more, before the line that says
what is wrong. An error that we raise on purpose says all in its message, so the worker is told to
leave the stack out. The worker ends after an error, so no later error of it loses its stack. An
error that is not raised on purpose keeps its stack.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cqrepl.queue import QueueError
from cqrepl.spark.tableoptions import TableError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"  # pyspark looks for it when it sends an error
_OF_A_WORKER: Final = "PYTHON_WORKER_FACTORY_"


@contextmanager
def reason_only() -> Iterator[None]:
    """Has errors that the block raises on purpose leave a worker of Spark without their stack."""
    try:
        yield
    except (QueueError, TableError, OSError):
        if any(name.startswith(_OF_A_WORKER) for name in os.environ):
            os.environ[_HIDE] = "1"
        raise
