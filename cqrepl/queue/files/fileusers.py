"""The processes that use files of a queue: nothing is taken from under one that does.

Theory of operation. The system lets a file be leased for writing only while no other descriptor of
it is open and no other mapping of it is there, whosever it is and wherever that process runs: so a
lease that is granted is the proof that the file is unused. It is given back at once. Three things
keep the system from answering:

    this process uses the file   the descriptors and mappings of the process count like all others
    EACCES                       the file is another user's, and this process is not privileged
    another error                the file system knows no leases

Then `/proc` is read, which tells of the processes that this one may look into. In the first case
those are all that count; in the others a process that cannot be looked into counts as one that uses
the file. So a caller asks before it opens the queue, and once more when it has the locks.

Other threads of this process may close the file between the two questions, as one that reads behind
a stream does: the lease was refused, and nothing here has the file open by then. So where a file
seems to be another process's both questions are asked again.
"""

import errno
import fcntl
import os
import signal
from collections.abc import Iterable
from contextlib import closing
from enum import Enum, auto
from pathlib import Path
from typing import Final

from cqrepl.queue.files.mapping import Mapping, close_file
from cqrepl.queue.files.procmaps import MapUsers, has_open, is_mapped_elsewhere, users_of
from cqrepl.queue.format.errors import QueueLocked

_QUESTIONS: Final = 8  # before a file counts as another process's


class Use(Enum):
    """The system's answer for one file."""

    NONE = auto()  # no process uses it
    OTHERS = auto()  # another process uses it
    OURS = auto()  # this process does, and others may
    UNTOLD = auto()  # the system does not answer


def check_unused(queue: Path, files: Iterable[Path]) -> None:
    """Does nothing when no other process uses any of these files of a queue.

    Raises:
        QueueLocked: one does, or that cannot be ruled out.
        OSError: a file cannot be written, or there is no `/proc`.
    """
    uses = {path: _use_of(path) for path in files}
    in_doubt = [path for path, use in uses.items() if use is not Use.NONE]
    if not in_doubt:
        return
    users = users_of_files(in_doubt)
    found = set(uses.values())
    if users.known:
        names = ", ".join(str(pid) for pid in users.known)
        raise _in_use(queue, f"found {names}: end it first", users.known[0])
    if Use.OTHERS in found:
        raise _in_use(queue, "found one that this user cannot look into: end it first", 0)
    if Use.UNTOLD in found and users.unknown:
        told = f"{len(users.unknown)} that this user cannot look into: do this as the files' owner"
        raise _in_use(queue, f"found {told}", users.unknown[0])


def users_of_files(paths: Iterable[Path]) -> MapUsers:
    """The other processes that map any of these files, and those that cannot be looked into.

    Raises:
        OSError: a file cannot be written, which tells an address; or there is no `/proc`.
    """
    identities = set()
    for path in paths:
        with closing(Mapping(path, writable=True)) as mapping:
            identity = mapping.identity_in_maps()
            if identity is not None:
                identities.add(identity)
    return users_of(identities)


def _use_of(path: Path) -> Use:
    for _ in range(_QUESTIONS):
        use = _leased(path)
        if use is not Use.OTHERS:
            return use
        if _is_ours(path):
            return Use.OURS
    return Use.OTHERS


def _leased(path: Path) -> Use:
    """The answer of the system, for which this process is a process like all others."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Use.NONE
    except OSError:
        return Use.UNTOLD
    try:
        # sent to who has a lease that is in another's way; the usual one would end this process
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            return Use.UNTOLD
        return Use.OTHERS
    finally:
        close_file(descriptor)
    return Use.NONE


def _is_ours(path: Path) -> bool:
    """True when this process uses the file, by a descriptor or by a mapping alone."""
    if has_open(path):
        return True
    with closing(Mapping(path, writable=True)) as mapping:
        identity, address = mapping.identity_in_maps(), mapping.words.address
        return (
            identity is not None and address is not None and is_mapped_elsewhere(identity, address)
        )


def _in_use(queue: Path, found: str, holder: int) -> QueueLocked:
    why = f"no other process expected that has the queue open, {found}"
    return QueueLocked(why, holder=holder, path=queue)
