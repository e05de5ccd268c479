"""The turns of threads at a processor: a thread that wakes can have one soon that another one has.

A sink's live pump sleeps until something comes, and then has work of microseconds. Linux lets it
wait up to a few milliseconds for the thread that runs there, unless it has asked for turns shorter
than that thread's. That works from Linux 6.12 on; before, the request is taken and does nothing.
The request takes no privilege, and gives no more of a processor: only the same in smaller turns.
"""

import ctypes
import os
import platform
import struct
import threading
from contextlib import suppress
from functools import cache
from typing import Final

_TURN_NS: Final = 100_000  # the shortest that is taken
_RESET_ON_FORK: Final = 1  # threads that are started from here have turns of the usual length
# size, policy, flags, nice, priority, runtime (the turn), deadline, period
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
_OTHER: Final = 0  # the usual policy
_SYSTEM_CALLS: Final = {"x86_64": 314, "aarch64": 274}  # sched_setattr
_settled: Final = threading.local()


def wake_soon() -> None:
    """Short turns for this thread; once, and nothing where the system does not know them."""
    if not hasattr(_settled, "is_done"):
        _settled.is_done = True
        with suppress(OSError, AttributeError):
            _ask_for_turns()


def _ask_for_turns() -> None:
    call = _SYSTEM_CALLS.get(platform.machine())
    if call is None or os.sched_getscheduler(0) != _OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, _OTHER, _RESET_ON_FORK, nice, 0, _TURN_NS, 0, 0)
    _libc().syscall(call, 0, attributes, 0)  # refused: it stays as it was


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
