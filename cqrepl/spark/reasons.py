"""Errors that say what is wrong come to the user of Spark without a Python stack.

A worker of Spark sends the whole stack of an error, ten lines and more, before the one that says
what is wrong. What we raise on purpose says all by itself, so the worker is told to leave the
stack out; it ends behind an error, so nothing else is told by it. An error that nobody has meant
keeps its stack.
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
    """What is raised in a block on purpose leaves a worker of Spark without its stack."""
    try:
        yield
    except (QueueError, TableError, OSError):
        if any(name.startswith(_OF_A_WORKER) for name in os.environ):
            os.environ[_HIDE] = "1"
        raise
