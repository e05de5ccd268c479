"""Opens and makes what lies beneath the directory of a queue, however deep, and nothing elsewhere.

Theory of operation. A user who may set links in the directory could have a link where a folder is
made, as `quarantine`: what goes there would land in a directory of that user's choice. So each
component is walked from a descriptor of the directory, and no link is followed; the directory
itself may be one, as its path comes from the operator. The system does that at once (`openat2`,
with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS); where it does not know the call, or forbids it, as
some containers do, each component is opened by itself (`openat` with O_NOFOLLOW).
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

OPENAT2: Final = 437  # the number of the call, the same on all machines that this runs on
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08
_LINKED: Final = (errno.ELOOP, errno.EXDEV)  # of a link, and of one that leads out
_WALK: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o644


class _How(ctypes.Structure):
    """`struct open_how`."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_beneath(directory: Path, path: Path, flags: int) -> int:
    """A descriptor of a file beneath a directory, to be closed by the caller.

    Args:
        path: from the directory on, or the whole.
        flags: as for `os.open`.

    Raises:
        OSError: it cannot be opened, or there is a symbolic link on the way.
        ValueError: the path leads out.
    """
    parts = _parts(directory, path)
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    with _held(directory) as base:
        try:
            return _opened_at_once(base, "/".join(parts), flags)
        except OSError as error:
            if error.errno in _LINKED:
                raise _linked(directory, parts) from None
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                whole = str(directory.joinpath(*parts))
                raise OSError(error.errno, error.strerror, whole) from None
        return _walked(directory, base, parts, flags)


def make_beneath(directory: Path, path: Path) -> None:
    """Makes a directory beneath a directory, and those on the way that are missing.

    Args:
        path: from the directory on, or the whole.

    Raises:
        FileExistsError: it is there.
        OSError: it cannot be made, or there is a symbolic link on the way.
        ValueError: the path leads out.
    """
    *above, last = _parts(directory, path)
    with _held(directory) as base:
        held = os.dup(base)
        try:
            for nth, part in enumerate(above):
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=held)
                held = _stepped(directory, held, above[: nth + 1], _WALK)
            try:
                os.mkdir(last, dir_fd=held)
            except OSError as error:
                whole = str(directory.joinpath(*above, last))
                raise OSError(error.errno, error.strerror, whole) from None
        finally:
            os.close(held)


def _parts(directory: Path, path: Path) -> list[str]:
    inner = path.relative_to(directory) if path.is_relative_to(directory) else path
    if inner.is_absolute() or ".." in inner.parts or not inner.parts:
        raise ValueError(f"expected a path beneath {directory}, got {path}")
    return list(inner.parts)


@contextmanager
def _held(directory: Path) -> Iterator[int]:
    """The directory, which may be a link itself."""
    base = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield base
    finally:
        os.close(base)


def _opened_at_once(base: int, path: str, flags: int) -> int:
    mode = _MODE if flags & os.O_CREAT else 0
    how = _How(flags, mode, _BENEATH | _NO_SYMLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(
        ctypes.c_long(OPENAT2),
        ctypes.c_int(base),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(found)


def _walked(directory: Path, base: int, parts: list[str], flags: int) -> int:
    """The same, a component after the other."""
    held = os.dup(base)
    try:
        for nth in range(1, len(parts)):
            held = _stepped(directory, held, parts[:nth], _WALK)
        found = _stepped(directory, held, parts, flags)
        held = -1
        return found
    finally:
        if held >= 0:
            os.close(held)


def _stepped(directory: Path, held: int, parts: list[str], flags: int) -> int:
    """The last of these components, opened from the one before, which is closed only once that is
    done."""
    try:
        found = os.open(parts[-1], flags, _MODE, dir_fd=held)
    except OSError as error:
        whole = directory.joinpath(*parts)
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and whole.is_symlink()):
            raise _linked(directory, parts) from None
        raise OSError(error.errno, error.strerror, str(whole)) from None
    os.close(held)
    return found


def _linked(directory: Path, parts: list[str]) -> OSError:
    for nth in range(1, len(parts) + 1):
        each = directory.joinpath(*parts[:nth])
        if each.is_symlink():
            says = f"expected no symbolic link beneath {directory}, got one"
            return OSError(errno.ELOOP, says, str(each))
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(directory.joinpath(*parts)))
