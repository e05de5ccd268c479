"""The three descriptors that every process is to have: standard input, output and error.

Theory of operation. A process that is started without one of them gives its number to the next file
that it opens. What is said there later, by us, by a library, or by the last words of a process that
dies, is written into that file then: into a queue. So each of them that is closed leads to nothing,
from the first moment on, and for all that it starts.
"""

import os
import sys
from typing import Final

_DESCRIPTORS: Final = (0, 1, 2)


def fill_closed_streams() -> None:
    """Has closed ones lead to nothing. What is said to nobody is no error; that a command has no
    input, or no output for what it was asked for, it finds by `sys.stdin` and `sys.stdout`."""
    for descriptor in _DESCRIPTORS:  # upwards: each file that is opened gets the lowest free number
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # by those that it starts
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
