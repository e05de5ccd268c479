"""Turns a failure in Spark into one line and an exit code.

An error that a task raised reaches the driver as text: a Java stack around a Python one. Of that
text the last line of the Python stack says what happened, and its first word is the class. Errors
that we raise ourselves come without a Python stack (`spark.reasons`), behind Spark's own words.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cqrepl.console import exitcodes
from cqrepl.queue.format.errors import NO_ROOM

# the last line of a Python stack: a class with its module, or a built-in one, and what it says
_LAST_LINE: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|\b[A-Z]\w+)): (.+)$")
# one that came without a stack
# or from the scan in Java, behind its own class
_OURS: Final = re.compile(r"\bcqrepl(?!\.spark\.Fault\b)(?:\.[a-z_]+)*\.([A-Z]\w+): (.+)")
_ERRNO: Final = re.compile(r"^\[Errno (\d+)\]")  # what the system has refused
_STACK: Final = "Traceback (most recent call last):"
# what stands before the reason: of the call, and on the line of the reason
_CALLING: Final = "An error occurred while calling"
_JAVA_CLASS: Final = re.compile(r"^: (?:[\w$]+\.)+[\w$]+: ")
_CODES: Final = {
    "QueueDamaged": exitcodes.DAMAGED,
    "LayoutMismatch": exitcodes.REFUSED,
    "QueueLocked": exitcodes.REFUSED,
}


class JobFailed(Exception):
    """A job that ended early. The message is one line for people; `code` the exit code."""

    def __init__(self, text: str, code: int = exitcodes.USAGE) -> None:
        super().__init__(text)
        self.code = code


@contextmanager
def one_line() -> Iterator[None]:
    """Turns what Spark raises in a block into `JobFailed`."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if is_interrupted(error):
            raise KeyboardInterrupt from error
        raise failure_of(str(error)) from None


def is_interrupted(error: BaseException | None) -> bool:
    """True when an interrupt came before it: what is said to Java after one fails."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def failure_of(text: str) -> JobFailed:
    """The failure that the text of an error of Spark tells about."""
    lines = [line.strip() for line in text.splitlines()]
    stack = max((n for n, line in enumerate(lines) if _STACK in line), default=-1)
    matches = [_LAST_LINE.match(line) for line in (lines[stack + 1 :] if stack >= 0 else ())]
    for match in [*matches, *(_OURS.search(line) for line in lines)]:
        if match is not None:
            name = match[1].rpartition(".")[2]
            reason = match[2].strip()
            return JobFailed(reason, _code_of(name, reason))
    said = [line for line in lines if line and not line.startswith(_CALLING)]
    reason = _JAVA_CLASS.sub("", said[0]) if said else "it gave no reason"
    return JobFailed(f"Spark: {reason}")


def _code_of(name: str, reason: str) -> int:
    """The exit code for an error of this class that says this."""
    errno = _ERRNO.match(reason)
    if errno is not None and int(errno[1]) in NO_ROOM:
        return exitcodes.DISK_FULL
    return _CODES.get(name, exitcodes.USAGE)
