"""A forked process under strace: which system calls it makes that write, and dying before one.

    calls = write_calls(work, log)           every call of a whole run, in order
    die_before(work, calls[9], log)          the same run, killed on entering its tenth call

strace counts each call by its name, so a call is a name and its number among those of that name.
Stores into mapped memory are no system calls: points between those are for other tests.
"""

import ctypes
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support import forks
from tests.support.requirements import require

# a question mark: some of them are not there on every machine
_SET: Final = (
    "?write,?pwrite64,?writev,?pwritev,?pwritev2,?sendfile,?copy_file_range"
    ",?truncate,?ftruncate,?fallocate,?msync,?fsync,?fdatasync,?sync_file_range"
    ",?open,?creat,?openat,?openat2,?mkdir,?mkdirat"
    ",?rename,?renameat,?renameat2,?link,?linkat,?symlink,?unlink,?unlinkat,?rmdir"
)
_OPENING: Final = ("open", "openat", "openat2")  # those that create; the rest only read
_PR_SET_PTRACER: Final = 0x59616D61
_CALL: Final = re.compile(r"^\d+ +(\w+)\(", re.MULTILINE)


class Call(NamedTuple):
    """One system call of a run."""

    name: str
    number: int  # among those of its name, from 1


def require_strace(folder: Path) -> None:
    """Skips the running test where a process cannot be traced."""
    if shutil.which("strace") is None:
        require("strace", "no strace on the path")
    try:
        write_calls(lambda: None, folder / "trial")
    except UntraceableError as error:
        require("strace", str(error))


class UntraceableError(Exception):
    """strace does not run here."""


def write_calls(work: Callable[[], None], log: Path) -> list[Call]:
    """The calls of a run that write or create, in their order."""
    with _traced(work, log) as pid:
        code = forks.finish(pid)
    assert code == 0, f"ended with {code}"
    seen: Counter[str] = Counter()
    calls = []
    for line in log.read_text().splitlines():
        match = _CALL.match(line)
        if match is not None:
            name = match.group(1)
            seen[name] += 1
            if name not in _OPENING or "O_CREAT" in line:
                calls.append(Call(name, seen[name]))
    return calls


def die_before(work: Callable[[], None], call: Call, log: Path) -> tuple[int, int]:
    """Runs until a call and dies in its place: process id, and exit code as `forks.finish`."""
    injected = f"inject={call.name}:signal=KILL:when={call.number}"
    with _traced(work, log, "-e", injected) as pid:
        return pid, forks.finish(pid)


@contextmanager
def _traced(work: Callable[[], None], log: Path, *options: str) -> Iterator[int]:
    """A forked process that works as soon as strace holds it."""
    gate = os.pipe()
    pid = forks.start(lambda: _wait_and_work(gate[0], work))
    command = ["strace", "-f", "-s", "1", "-e", f"trace={_SET}", *options]
    strace = subprocess.Popen(
        [*command, "-o", str(log), "-p", str(pid)], stderr=subprocess.PIPE, text=True
    )
    assert strace.stderr is not None
    with strace:
        said = strace.stderr.readline()
        if "attached" not in said:
            forks.kill(pid)
            raise UntraceableError(f"strace cannot trace a process here: {said.strip()}")
        os.write(gate[1], b"!")
        yield pid
    os.close(gate[0])
    os.close(gate[1])


def _wait_and_work(gate: int, work: Callable[[], None]) -> None:
    # strace is no ancestor of ours: where that matters, it must be let in
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(2**64 - 1))
    os.read(gate, 1)
    work()
