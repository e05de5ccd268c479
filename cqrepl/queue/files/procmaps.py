"""The files that processes map, as the system's `/proc` tells."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")

# device and inode of a file. They are compared with nothing but each other: some file systems show
# numbers unlike `stat`'s
FileIdentity = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapUsers:
    """The other processes that map a file, and those of which that cannot be known."""

    known: tuple[int, ...]
    unknown: tuple[int, ...]


def identity_at(address: int) -> FileIdentity | None:
    """The file that this process maps at an address; None where that is no file.

    Raises:
        OSError: there is no `/proc`.
    """
    for start, end, identity in _maps(os.getpid()):
        if start <= address < end:
            return identity
    return None


def is_mapped_elsewhere(identity: FileIdentity, address: int) -> bool:
    """True when this process maps a file twice: at this address, and at another one.

    Raises:
        OSError: there is no `/proc`.
    """
    return any(
        found == identity and not start <= address < end for start, end, found in _maps(os.getpid())
    )


def has_open(path: Path) -> bool:
    """True when a descriptor of this process leads to the file.

    Raises:
        OSError: there is no such file, or no `/proc`.
    """
    wanted = os.stat(path)
    for each in os.listdir(_PROC / "self" / "fd"):
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.stat(_PROC / "self" / "fd" / each), wanted):
                return True
    return False


def may_map(pid: int, identities: Iterable[FileIdentity]) -> bool | None:
    """True when a process maps one of these files, False when it does not; None: not known."""
    wanted = set(identities)
    try:
        return any(identity in wanted for _, _, identity in _maps(pid))
    except ProcessLookupError:
        return False  # it has ended, or is a thread of the kernel
    except FileNotFoundError:
        return None if _exists(pid) else False  # another user's may be hidden
    except OSError:
        return None  # another user's


def users_of(identities: Iterable[FileIdentity]) -> MapUsers:
    """The other processes that map any of these files.

    Raises:
        OSError: there is no `/proc`.
    """
    wanted, own = set(identities), os.getpid()
    # the first process is there always: where it is not shown, those of other users are hidden
    pids = {1} | {int(each) for each in os.listdir(_PROC) if each.isdecimal()}
    found = {pid: may_map(pid, wanted) for pid in sorted(pids - {own})}
    return MapUsers(
        known=tuple(pid for pid, does in found.items() if does),
        unknown=tuple(pid for pid, does in found.items() if does is None),
    )


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _maps(pid: int) -> Iterator[tuple[int, int, FileIdentity]]:
    """Start, end and file of each mapping of a file."""
    for line in (_PROC / str(pid) / "maps").read_bytes().splitlines():
        span, _, _, device, inode, *_ = line.split(None, 5)
        if inode != b"0":
            start, end = (int(part, 16) for part in span.split(b"-"))
            yield start, end, (device, inode)
