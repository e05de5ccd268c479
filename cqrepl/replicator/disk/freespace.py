"""The room that a sink leaves free on a disk, as other programs need it too."""

import errno
import os
from pathlib import Path

from cqrepl.console.units import format_size


class FreeSpace:
    """The bytes that stay free on the disk of a queue; 0 for none.

    It is looked at when a queue is to be taken, and once a second while it is: what comes in
    between may take some of it.
    """

    def __init__(self, bytes_min: int, path: Path) -> None:
        self._bytes_min = bytes_min
        self._path = path

    def check(self) -> None:
        """Does nothing while so much is free, or where that cannot be told.

        Raises:
            OSError: less is.
        """
        if self._bytes_min and self._is_short():
            # no number that changes: what is the same each time is logged once
            reason = f"expected {format_size(self._bytes_min)} that stay free on its disk, less is"
            raise OSError(errno.ENOSPC, reason)

    def _is_short(self) -> bool:
        place = self._path
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            found = os.statvfs(place)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize < self._bytes_min
