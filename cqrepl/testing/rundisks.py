"""The place where the disks of a run are: in memory, where the system has that.

A run that is killed cannot remove them. So each run holds a lock on its folder, and the next one
removes folders that have been there for a while and whose lock nothing holds.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
PREFIX: Final = "cqrepl-run-"
LEFT_AFTER_SECONDS: Final = 60.0  # a younger one may be about to be locked


@contextmanager
def folder_of_a_run(parent: Path | None = None) -> Iterator[Path]:
    """A folder for the disks of a run; it is removed behind the block.

    Args:
        parent: where it is made.
    """
    where = parent or (_MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir()))
    remove_left(where)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left(where: Path) -> None:
    """Removes what runs have left that were killed."""
    for folder in where.glob(f"{PREFIX}*"):
        try:
            is_old = time.time() - folder.stat().st_mtime > LEFT_AFTER_SECONDS
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if is_old else None
        except OSError:  # its run has removed it, or it is another user's
            continue
        if lock is None:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # its run goes on
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
