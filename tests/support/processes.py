"""What the system tells about processes, by way of /proc."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """The living children of a process, of all of its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # that thread has ended meanwhile
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def kill_tree(pid: int) -> None:
    """Kills a process and all that it has started, at once as far as that can be."""
    with suppress(OSError):  # it has ended meanwhile
        for child in children_of(pid):
            kill_tree(child)
        os.kill(pid, signal.SIGKILL)


def is_there(pid: int) -> bool:
    """True while a process of this id runs, or has ended and its parent took no notice."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def private_bytes(pid: int) -> int:
    """Memory of a process that belongs to no other process and to no file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def resident_bytes(pid: int) -> int:
    """Memory of a process, mapped files included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
