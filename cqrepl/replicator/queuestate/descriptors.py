"""Too few file descriptors: some are kept for what must go on, and queues are opened one by one.

A connection, or a store file that begins, needs a descriptor when there is no time to look for one.
So no queue takes the last ones. Where few are left, queues are opened one after the other: two that
open at once may each get half of what they need, and none of them goes on.
"""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SPARE: Final = 12  # for a listener, a connection, a store file that begins
PLENTY: Final = 256  # with so many left, queues that open at once do not look at it
_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)
_one_by_one: Final = threading.Lock()


def is_none_left(error: BaseException) -> bool:
    """True for an error over too few descriptors, or that was made of one."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in _NONE_LEFT


@contextmanager
def spare_descriptors() -> Iterator[bool]:
    """Keeps some descriptors for the length of a block, and frees them behind it: of many queues
    none takes the last, which a connection needs. False where there are not even so many."""
    kept: list[int] = []
    with suppress(OSError):  # there are even fewer
        while len(kept) < SPARE:
            kept.append(_any())
    try:
        yield len(kept) == SPARE
    finally:
        for each in kept:
            os.close(each)


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """For the length of a block a queue is opened; any thread may do so.

    Raises:
        OSError: so few are left that it would take the last ones.
    """
    if are_plenty():
        yield
        return
    with _one_by_one:
        with spare_descriptors() as are_there:
            pass  # what goes on meanwhile finds them
        if not are_there:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        yield


def are_plenty() -> bool:
    """False where queues that open at once look how many are left."""
    try:
        lowest = _any()
    except OSError:
        return False
    os.close(lowest)
    # the lowest that is free has about the number of those that are taken
    return lowest + PLENTY < resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _any() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
