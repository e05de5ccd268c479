"""`cqrepl source` and `cqrepl sink` as processes of their own, and what the system tells of them.

What they say goes to a file, so it need not be taken from them while time is measured. A process
that is still running when its block is left is killed.
"""

import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cqrepl.console.loglines import port_told
from cqrepl.queue import QueueError

WAIT_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.002
_MIB: Final = 1 << 20
_INTERRUPTIONS: Final = (signal.SIGINT, signal.SIGTERM)


class Running:
    """One running process."""

    def __init__(self, pid: int, title: str, said: Path) -> None:
        self.pid = pid
        self._code: int | None = None  # its exit code, once it has ended
        self._title = title
        self._said = said
        self._cpu_s = 0.0

    def port(self) -> int:
        """The port that it listens on, as soon as it says so."""
        while (port := port_told(self._text())) is None:
            if self._reap():
                raise self._failed()
            time.sleep(LOOK_SECONDS)
        return port

    def check(self) -> None:
        """Does nothing while it runs.

        Raises:
            QueueError: it has ended, and was not asked to.
        """
        if self._reap():
            raise self._failed()

    def has_ended(self) -> bool:
        """True when it has ended, however it did."""
        return self._reap()

    def wait(self, seconds: float = WAIT_SECONDS, *, look_seconds: float = LOOK_SECONDS) -> float:
        """Waits for its end; the seconds of processor time that it took, in all its threads.

        Args:
            look_seconds: time between two looks, which take some of a processor.

        Raises:
            QueueError: it failed, or did not end in time.
        """
        deadline = time.monotonic() + seconds
        while not self._reap():
            if time.monotonic() > deadline:
                raise QueueError(f"the {self._title} did not end within {seconds:g} s")
            time.sleep(look_seconds)
        if self._code != 0:
            raise self._failed()
        return self._cpu_s

    def has_failed(self) -> bool:
        """True when it has ended, and not well."""
        return self._reap() and self._code != 0

    def kill(self) -> None:
        """Ends it at once, if it still runs; may be called again."""
        if not self._reap():
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)

    def cpu_s(self) -> float:
        """Processor time of its living threads so far, to the nanosecond.

        Raises:
            QueueError: it has ended.
        """
        self.check()
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def private_mib(self) -> float:
        """Memory that no file backs, now; 0 when it is just ending.

        `RssAnon`, a counter: `smaps_rollup` has the same as `Anonymous`, but walks the pages for
        it, which would slow down what is measured. What is mapped of queue files is not in it: it
        is the page cache's, and goes when other processes need the room.
        """
        try:
            text = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0.0
        found = re.search(r"^RssAnon:\s+(\d+) kB", text, re.MULTILINE)
        return 0.0 if found is None else int(found[1]) * 1024 / _MIB

    def _reap(self) -> bool:
        """True when it has ended; `wait4` tells what it took."""
        if self._code is not None:
            return True
        ended, status, usage = os.wait4(self.pid, os.WNOHANG)
        if not ended:
            return False
        self._code = os.waitstatus_to_exitcode(status)
        self._cpu_s = usage.ru_utime + usage.ru_stime
        return True

    def _text(self) -> str:
        """The text that the process has written so far. Its file is there once the process runs."""
        return self._said.read_text(errors="replace") if self._said.exists() else ""

    def _failed(self) -> QueueError:
        lines = self._text().strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        return QueueError(f"the {self._title} ended with exit code {self._code}: {last}")


def wait_all(processes: Sequence[Running], seconds: float = WAIT_SECONDS) -> None:
    """Waits until all of them have ended, or one has failed: the others may fail for want of it,
    and later.

    Raises:
        QueueError: that one failed, or they did not end in time.
    """
    deadline = time.monotonic() + seconds
    while not all(each.has_ended() for each in processes):
        _check_all(processes)
        if time.monotonic() > deadline:
            raise QueueError(f"not all processes ended within {seconds:g} s")
        time.sleep(LOOK_SECONDS)
    _check_all(processes)


def _check_all(processes: Sequence[Running]) -> None:
    for each in processes:
        if each.has_failed():
            each.check()


@contextmanager
def running(folder: Path, module: str, *arguments: object) -> Iterator[Running]:
    """Runs `python -m MODULE ARGUMENTS...` as long as the block lasts, at most.

    Args:
        folder: for the file that takes what it says.
    """
    words = [str(each) for each in arguments]
    title = " ".join([module.rpartition(".")[2], *words[:1]])
    said = folder / f"said-{time.monotonic_ns()}"
    # an interruption between the start of a process and the block that ends it would leave it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTIONS)
    one: Running | None = None
    try:
        pid = _spawn([sys.executable, "-P", "-m", module, *words], said, mask)
        one = Running(pid, title, said)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield one
    finally:
        if one is not None:
            one.kill()
            said.unlink(missing_ok=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _spawn(command: list[str], said: Path, mask: Iterable[int]) -> int:
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(said), os.O_WRONLY | os.O_CREAT, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsigmask=mask,
    )


def source_options(pauser: str | None) -> Sequence[str]:
    """The options of a source for how it waits; none unless that was chosen."""
    return () if pauser is None else ("--pauser", pauser)
