"""Reads from /proc what the system tells about processes."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
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
    send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> bool:
    """Sends a signal to a process that may end at any moment; False when it had ended before.

    A look at the process first would say nothing: it may end between the look and the signal. Where
    the process has to be alive the caller asserts the answer.
    """
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def written_pid(file: Path) -> int | None:
    """The id that a process has written to a file as a line; None until the line is whole."""
    text = file.read_text() if file.exists() else ""
    return int(text) if text.endswith("\n") else None


def is_there(pid: int) -> bool:
    """True while a process of this id runs, or has ended and its parent took no notice."""
    return send(pid, 0)


def private_bytes(pid: int) -> int:
    """Memory of a process that belongs to no other process and to no file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def resident_bytes(pid: int) -> int:
    """Memory of a process, mapped files included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
