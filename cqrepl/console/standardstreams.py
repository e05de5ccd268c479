"""The three descriptors that every process is to have: standard input, output and error; and what
is written where the encoding of standard output does not have it.

Theory of operation. A process that is started without one of them gives its number to the next file
that it opens. What is said there later, by us, by a library, or by the last words of a process that
dies, is written into that file then: into a queue. So each of them that is closed leads to nothing,
from the first moment on, and for all that it starts.
"""

import codecs
import io
import os
import sys
from typing import Final

_DESCRIPTORS: Final = (0, 1, 2)
_ESCAPED: Final = "cqrepl.escaped"
_BYTE_SURROGATES: Final = range(0xDC80, 0xDD00)  # what Python makes of odd bytes in a file's name


def fill_closed_streams() -> None:
    """Has closed standard streams lead to `/dev/null`. A message that no reader gets is no error.
    A command finds by `sys.stdin` and `sys.stdout` that it has no input, or no output for its
    results."""
    for descriptor in _DESCRIPTORS:  # upwards: each file that is opened gets the lowest free number
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # by those that it starts
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def escape_what_is_not_encoded() -> None:
    """Has standard output write what its encoding does not have, a payload's letters in a locale
    of bytes, as `\\u00fc`, which JSON has, too; and file names that are no text as their bytes."""
    codecs.register_error(_ESCAPED, _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPED)


def _escaped(error: UnicodeError) -> tuple[bytes, int]:
    """A codec's handler: what to write for what it cannot encode, and where it goes on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    written = b"".join(_bytes_for(letter) for letter in error.object[error.start : error.end])
    return written, error.end


def _bytes_for(letter: str) -> bytes:
    if ord(letter) in _BYTE_SURROGATES:
        return letter.encode("ascii", "surrogateescape")
    units = letter.encode("utf-16-be", "surrogatepass")
    pairs = (units[start : start + 2] for start in range(0, len(units), 2))
    return b"".join(b"\\u" + unit.hex().encode() for unit in pairs)
