"""Brings files of a queue to the disk, for code that does so once, and notes a failure.

The system tells only once of what it could not write. So the process that is told notes it in the
queue's synced mark: no mark rises then before the machine is started again (`syncedmark`).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cqrepl.queue.files.mapping import close_file, open_to_read
from cqrepl.queue.files.syncedmark import note_failed_sync
from cqrepl.surroundings import surroundings


@contextmanager
def failures_noted(queue: Path) -> Iterator[None]:
    """For the length of a block in which a file of this queue is synced."""
    try:
        yield
    except OSError as error:
        if error.filename is None:  # else it was not opened, and nothing was synced
            with suppress(OSError):  # the error that is raised tells as well
                note_failed_sync(queue)
        raise


def sync_file(queue: Path, file: Path) -> None:
    """Returns when a file of this queue is on the disk, with what others have stored there.

    Raises:
        OSError: it cannot be opened, or may never get there.
    """
    descriptor = open_to_read(file)
    try:
        with failures_noted(queue):
            surroundings().sync_names(descriptor)
    finally:
        close_file(descriptor)
