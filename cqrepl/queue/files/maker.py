"""Makes store files, which are whole by the time they have a name that readers know.

Theory of operation. A store file whose header is not ready is waited for: by Java
for 15 seconds, with the write lock held, though the creator may be dead. So a file is filled under
`<name>.precreated.<process>`, which no process looks for, and is put in place by a hard link: that
never replaces a file, as a rename would. A creator that dies in between leaves at most such a file;
the next appender of the queue removes it once its cycle is there (`precreating`).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.mapping import check_no_link, close_file, open_to_write
from cqrepl.queue.files.storefile import SUFFIX
from cqrepl.surroundings import surroundings
from wire.header import is_ready

READY: Final = ".precreated"
_ZEROS: Final = bytes(1 << 20)


def precreated_path(path: Path) -> Path:
    """The path of the precreated file that is to become this store file."""
    return path.with_name(path.name.removesuffix(SUFFIX) + READY)


def take_precreated(path: Path, image: Callable[[], bytes], *, is_synced: bool) -> bool:
    """Puts the file in place that was made ahead of time; false when there is none.

    A file without a header gets this image: Java makes such files, or their maker has died.

    Raises:
        QueueDamaged: there is something else under that name.
        OSError: no space.
    """
    made = precreated_path(path)
    try:
        _finish(made, image, is_synced=is_synced)
        put_in_place(made, path)  # or another process's file stands there already
    except FileNotFoundError:
        return False
    return True


def make_file(
    path: Path,
    image: bytes,
    *,
    touched_bytes: int = 0,
    is_synced: bool,
    may_replace: bool = True,
) -> bool:
    """Makes a file that begins with these bytes; false when there is one of that name.

    Args:
        touched_bytes: so many are allocated and in memory.
        is_synced: the image is on the disk before the file has its name.
        may_replace: as `put_in_place`.

    Raises:
        OSError: no space. Nothing is left of it.
    """
    stem = path.name.removesuffix(SUFFIX).removesuffix(READY)
    unfinished = path.with_name(f"{stem}{READY}.{surroundings().process_id()}")
    # it may be a second name of a file that is in use
    surroundings().unlink(unfinished, missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o644)
    try:
        _lay(descriptor, image, touched_bytes, is_synced=is_synced)
        for start in range(len(image), touched_bytes, len(_ZEROS)):
            surroundings().write(descriptor, _ZEROS[: touched_bytes - start], start)
        return put_in_place(unfinished, path, may_replace=may_replace)
    finally:
        close_file(descriptor)
        surroundings().unlink(unfinished, missing_ok=True)


def put_in_place(made: Path, path: Path, *, may_replace: bool = True) -> bool:
    """Gives a whole file the name it is for; false when there is a file of that name.

    Args:
        may_replace: where there are no hard links, rename the file, for a caller that knows that no
            other process can make one: a file that got the name at this very moment would be
            replaced. False: nothing is done there.

    Raises:
        FileNotFoundError: nothing was made.
    """
    try:
        surroundings().link(made, path)
    except FileExistsError:
        return False
    except OSError:  # there are no hard links here
        if not may_replace:
            return False
        surroundings().rename(made, path)
    surroundings().unlink(made, missing_ok=True)
    return True


def _finish(made: Path, image: Callable[[], bytes], *, is_synced: bool) -> None:
    check_no_link(made)
    with FileBytes(made) as file:
        if is_ready(file.word(0)):
            return
    descriptor = open_to_write(made)
    try:
        _lay(descriptor, image(), 0, is_synced=is_synced)
    finally:
        close_file(descriptor)


def _lay(descriptor: int, image: bytes, size: int, *, is_synced: bool) -> None:
    here = surroundings()
    here.allocate(descriptor, 0, max(size, len(image)))
    here.write(descriptor, image, 0)
    if is_synced:
        here.sync(descriptor)
