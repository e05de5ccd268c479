"""Which session of Spark is the active one of a thread.

Spark looks for the source that a frame is written to (`frame.write.format(...)`, `writeStream`)
among those of the calling thread's active session, and not of the frame's own: where there is
none, as in a thread that has not made one, it finds no source (`DATA_SOURCE_NOT_FOUND`). Reading
does not depend on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def activate(spark: "SparkSession") -> None:
    """Makes a session the active one of the calling thread, from now on."""
    java = java_of(spark)
    if java is not None:
        java.setActiveSession(java)


@contextmanager
def active(spark: "SparkSession") -> Iterator[None]:
    """Makes a session the active one of the calling thread, for the length of a block."""
    java = java_of(spark)
    if java is None:
        yield
        return
    before = java.getActiveSession()
    java.setActiveSession(java)
    try:
        yield
    finally:
        if before.isDefined():
            java.setActiveSession(before.get())
        else:
            java.clearActiveSession()


def java_of(spark: "SparkSession") -> Any:
    """The session as Java has it; None where Spark Connect is between, whose server sees to it."""
    return getattr(spark, "_jsparkSession", None)
