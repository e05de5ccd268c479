"""Makes a session of Spark the active one of a thread.

Spark looks up the source that a frame is written to (`frame.write.format(...)`, `writeStream`) in
the active session of the calling thread, and not in the session of the frame. A thread that has
made no session has no active one: there Spark finds no source (`DATA_SOURCE_NOT_FOUND`). Reading
does not depend on the active session.
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
