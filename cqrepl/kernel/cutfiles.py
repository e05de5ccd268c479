"""The last words of a process with the plain kernel whose mapped file was cut.

Theory of operation. Touching a page behind the end of a mapped file raises SIGBUS, and the system
ends the process without a word. So does a page that a full disk has no room for. A handler of
Python's own never runs: it waits for the next bytecode, and the instruction that failed is tried
again before that, for ever. So a function of Python is made one of C (`ctypes`) and given to the
system itself, which calls it in the thread, and at the instruction, that failed. That is a copy, a
comparison or a hash of a buffer, which hold no lock of the interpreter's but the one that a thread
may take twice: Python runs well there, for the few lines that are needed. The system's list of what
is mapped tells which file it was.

The handler that was there before is put back first. So a page of any other file, or anything that
goes wrong here, is left to that one: the page is not there, and is met again at once.

The native kernel has its own (`mem/cut_files.rs`), which needs no interpreter.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from typing import Final

_MASK_BYTES: Final = 128
_SA_SIGINFO: Final = 4
_DELETED: Final = b" (deleted)"
_MAPS: Final = "/proc/self/maps"


class _SignalInfo(ctypes.Structure):
    """The beginning of `siginfo_t`."""

    _fields_ = (
        ("number", ctypes.c_int),
        ("error", ctypes.c_int),
        ("code", ctypes.c_int),
        ("address", ctypes.c_void_p),
    )


_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(_SignalInfo), ctypes.c_void_p)


class _Action(ctypes.Structure):
    """`struct sigaction` of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_char * _MASK_BYTES),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_installed: Final[list[object]] = []  # what the system may call, for the life of the process


def name_cut_files(speaker: str, code_cut: int, code_full: int) -> None:
    """See `cqrepl.kernel.memory`; the first call counts.

    Raises:
        OSError: the system takes no handler.
    """
    if _installed:
        return
    library = ctypes.CDLL(None, use_errno=True)
    previous = _Action()

    def put_back() -> None:
        library.sigaction(signal.SIGBUS, ctypes.byref(previous), None)

    def on_bus_error(_: int, info: "ctypes._Pointer[_SignalInfo]", _context: int | None) -> None:
        put_back()
        if info.contents.code > 0:  # else it was sent by a process
            _say(info.contents.address or 0, speaker, code_cut, code_full)
        else:
            os.kill(os.getpid(), signal.SIGBUS)

    handler = _Handler(on_bus_error)
    address = ctypes.cast(handler, ctypes.c_void_p).value
    action = _Action(handler=address, flags=_SA_SIGINFO)
    _installed.append(handler)
    if library.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(previous)):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _say(address: int, speaker: str, code_cut: int, code_full: int) -> None:
    """Ends the process with a line that names the file; nothing where it is none of a queue's."""
    place = next(_found(address), None)
    if place is None:
        return
    path, position = place
    try:
        size = os.stat(path).st_size
    except OSError:
        size = 0  # its name is gone
    said = os.fsencode(speaker) + b": " + path
    if position >= size:
        said += b": expected a file as long as it was, it was cut while it was in use\n"
    else:
        said += b": expected room or bytes for a page, its disk is full or fails\n"
    os.write(2, said)
    os._exit(code_cut if position >= size else code_full)


def _found(address: int) -> Iterator[tuple[bytes, int]]:
    """The file of a queue that is mapped at an address, and the position in it."""
    for line in _mappings():
        fields = line.split(None, 5)
        first, _, end = fields[0].partition(b"-")
        if not int(first, 16) <= address < int(end, 16) or len(fields) < 6:
            continue
        path = fields[5].removesuffix(b"\n").removesuffix(_DELETED)
        if path.startswith(b"/") and path.rpartition(b".")[2].startswith(b"cq"):
            yield path, int(fields[2], 16) + address - int(first, 16)


def _mappings() -> list[bytes]:
    try:
        descriptor = os.open(_MAPS, os.O_RDONLY)
    except OSError:
        os.close(0)  # there may be none left, and standard input is needed no more
        descriptor = os.open(_MAPS, os.O_RDONLY)
    with open(descriptor, "rb") as file:
        return file.readlines()
