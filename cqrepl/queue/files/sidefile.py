"""Opens side files: those beside the store files of a queue that only `cqrepl` reads and writes.

Theory of operation. Anything can have taken the name of one: a pipe, which keeps its reader waiting
for a writer that never comes; a device, a socket, a directory; a link, which leads to a file that
is none of the queue's. So each is opened without waiting and without following a link, and is used
only when it is a regular file. All else is an `OSError` that says what was found, as for a file
that may not be read: it is in the way, and says nothing of what the queue holds.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from cqrepl.queue.files.mapping import open_at_once
from cqrepl.surroundings import surroundings

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def open_side_file(path: Path, flags: int) -> int:
    """A descriptor of the file, to be closed by the caller; `flags` as for `os.open`.

    Raises:
        FileNotFoundError: there is none, and none was to be made.
        OSError: it cannot be opened, or is no regular file.
    """
    try:
        descriptor = open_at_once(path, flags | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        with suppress(FileNotFoundError):  # it could not be made, as where all is read-only
            _refuse(path, os.lstat(path).st_mode)
        raise error from None
    try:
        _refuse(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_side_file(path: Path, bytes_max: int | None = None) -> bytes:
    """The bytes of a side file; the first `bytes_max` of them where it has more.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: the file cannot be read, or is no regular file.
    """
    descriptor = open_side_file(path, os.O_RDONLY)
    with open(descriptor, "rb", closefd=True) as file:
        return file.read(-1 if bytes_max is None else bytes_max)


def replace_side_file(path: Path, data: bytes, *, is_synced: bool) -> None:
    """Puts a file with these bytes in the place of the one that is there, as a whole.

    Args:
        is_synced: the bytes are on the disk before the file has its name.

    Raises:
        OSError: it cannot be written. The old one stays.
    """
    new = path.with_name(f"{path.name}.{surroundings().process_id()}")
    # left by a process that was killed; or whatever else has this name
    surroundings().unlink(new, missing_ok=True)
    try:
        descriptor = open_side_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            surroundings().write(descriptor, data, 0)
            if is_synced:
                surroundings().sync(descriptor)
        finally:
            os.close(descriptor)
        surroundings().rename(new, path)
    finally:
        surroundings().unlink(new, missing_ok=True)


def _refuse(path: Path, mode: int) -> None:
    """Does nothing for a regular file."""
    if stat.S_ISREG(mode):
        return
    found = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a device")
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(number, f"expected a regular file, found {found}", str(path))
