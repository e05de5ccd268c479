"""Disks of which a test says when a sync ends, and how."""

import errno
import math
import os
import re
import threading
from typing import Final

from cqrepl.surroundings import Surroundings

WAIT_S: Final = 60.0


class FailingDisk(Surroundings):
    """Files do not get there.

    Args:
        of: a pattern that the paths of these files have; all, where none is given.
        failures: so many syncs fail, and the next ones do not.
    """

    def __init__(self, of: str = "", failures: float = math.inf) -> None:
        self.failures = failures
        self._of = of

    def sync(self, descriptor: int) -> None:
        if self.failures > 0 and re.search(self._of, path_of(descriptor)):
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    sync_names = sync


class SlowDisk(Surroundings):
    """A sync takes until it is let through; or fails then.

    Args:
        of: as with `FailingDisk`.
    """

    def __init__(self, of: str = "", *, is_slow: bool = True, fails: bool = False) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.is_slow = is_slow
        self.fails = fails
        self._of = of

    def sync(self, descriptor: int) -> None:
        if self.is_slow and re.search(self._of, path_of(descriptor)):
            self.begun.set()
            assert self.goes_on.wait(WAIT_S)
            if self.fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)


def path_of(descriptor: int) -> str:
    """The path of an open file."""
    return os.readlink(f"/proc/self/fd/{descriptor}")
