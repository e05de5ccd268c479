"""One run at a time changes an archive. Knows nothing of Spark.

The file `_lock` is locked for as long as a run takes and names its owner; a process that dies gives
the lock back. Each run begins with the manifest that the one before has written, so none of them
loses a cycle.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cqrepl.queue import QueueLocked
from cqrepl.surroundings import make_synced

LOCK: Final = "_lock"  # readers of Parquet pass such names by
_OWNER_BYTES: Final = 512


@contextmanager
def locked_archive(archive: Path) -> Iterator[None]:
    """Keeps all other runs out of an archive while a block runs; makes its directory.

    Raises:
        QueueLocked: another run is busy with it; which one is said.
        OSError: the lock cannot be made.
    """
    make_synced(archive)
    path = archive / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _locked(path, os.pread(descriptor, _OWNER_BYTES, 0)) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path, data: bytes) -> QueueLocked:
    pid, _, host = data.decode(errors="replace").strip().partition(" ")
    owner = f"process {pid} on {host}" if host else "another process"
    holder = int(pid) if pid.isdecimal() else 0
    text = f"expected no other run in this archive, found one of {owner}"
    return QueueLocked(text, holder=holder, path=path)
