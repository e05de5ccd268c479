"""The claim of a host to the directories of its queues: it keeps out a second process of its id.

Theory of operation. Each host with a run directory keeps a file there, `host-ID-*.held`, for as
long as it runs. Its one line of JSON names the process and the directories. The host has the file
locked with `flock`. The system gives that lock back with the process's end, `kill -9` included, so
a file that is not locked was left by a process that is gone, and the next host of the id deletes
it. A host looks at the files of others and writes its own while it has the run directory itself
locked: of two that start at one time one is first.

Hosts of one id that have no directory in common, as those of two clusters, leave each other alone.
"""

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from cqrepl.net.errors import Refused
from cqrepl.net.rundirectory import NotOurs, make_directory

TURN_SECONDS: Final = 5.0  # for another host to have looked and written
LOOK_SECONDS: Final = 0.01  # between two looks whether it has
CLAIM_MAX: Final = 64 * 1024 * 1024  # bytes that are read of one
_logger: Final = logging.getLogger(__name__)


class DirectoryClaim:
    """The directories of one host, which no other process of its id gets.

    Args:
        run_dir: where the claims of this machine's hosts are; None: this one keeps out none.
    """

    def __init__(self, run_dir: Path | str | None, host_id: int) -> None:
        self._run_dir = None if run_dir is None else Path(run_dir)
        self._host_id = host_id
        self._own: tuple[int, Path] | None = None  # the file, once it is made

    async def take(self, directories: Iterable[Path]) -> None:
        """Claims these directories, and gives back all others. Where the run directory cannot be
        used, it says so and goes on without.

        Raises:
            Refused: another process runs a host of this id on one of them; all stays as it was.
        """
        if self._run_dir is None:
            return
        wanted = frozenset(os.path.realpath(each) for each in directories)
        try:
            make_directory(self._run_dir)
            async with _turn(self._run_dir):
                for path in self._run_dir.glob(f"host-{self._host_id}-*.held"):
                    if self._own is None or path != self._own[1]:
                        self._check(path, wanted)
                self._write(self._run_dir, wanted)
        except (NotOurs, OSError) as error:
            _logger.warning("a second process of this host is not kept out: %s", error)

    def end(self) -> None:
        """Gives back all directories."""
        if self._own is not None:
            file, path = self._own
            path.unlink(missing_ok=True)
            os.close(file)

    def _check(self, path: Path, wanted: frozenset[str]) -> None:
        """Looks at the claim of another process; deletes one whose process is gone.

        Raises:
            Refused: it names a directory that is wanted.
        """
        with suppress(FileNotFoundError), _opened(path) as file:
            if _locks(file):
                path.unlink(missing_ok=True)
                return
            process, held = _named(file)
            if shared := sorted(held & wanted):
                raise Refused(
                    f"{shared[0]}: one process of host {self._host_id} expected, "
                    f"process {process} runs it there already"
                )

    def _write(self, run_dir: Path, directories: frozenset[str]) -> None:
        if self._own is None:
            file, name = tempfile.mkstemp(".held", f"host-{self._host_id}-", run_dir)
            self._own = (file, Path(name))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        line = json.dumps({"process": os.getpid(), "directories": sorted(directories)})
        data = line.encode() + b"\n"
        file = self._own[0]
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))


@asynccontextmanager
async def _turn(run_dir: Path) -> AsyncIterator[None]:
    """Has the run directory locked for the length of a block.

    Raises:
        Refused: another process keeps it, as one that is stopped does.
    """
    with _opened(run_dir, os.O_DIRECTORY) as folder:
        until = trio.current_time() + TURN_SECONDS
        while not _locks(folder):
            if trio.current_time() > until:
                raise Refused(
                    f"{run_dir}: a free run directory expected, another process has had it locked "
                    f"for {TURN_SECONDS:g} s"
                )
            await trio.sleep(LOOK_SECONDS)
        yield


def _locks(file: int) -> bool:
    """Locks a file; False where another process has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _named(file: int) -> tuple[object, frozenset[str]]:
    """Process and directories that a claim names."""
    try:
        found = json.loads(os.pread(file, CLAIM_MAX, 0))
        return found["process"], frozenset(found["directories"])
    except (ValueError, KeyError, TypeError):  # its disk was full
        return "?", frozenset()


@contextmanager
def _opened(path: Path, more: int = 0) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | more)
    try:
        yield file
    finally:
        os.close(file)
