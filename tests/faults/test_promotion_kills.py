"""The new leader dies at each synced write of its promotion: killed, or by a power cut.

Another promotion, or a restart where the epoch had begun, ends right: all copies hold what the
longest one held, the old source follows when it comes back, and what it had alone is in quarantine.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from cqrepl.queue import QueueLocked
from cqrepl.queue.files.epochfile import load_epochs
from tests.faults.test_real_power_cuts import PowerCuts, until
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import last_of, more_excerpts
from tests.support.requirements import require
from tests.support.samples import fill, noon_index, read

PROGRAM = Path(__file__).with_name("promotedhost.py")
NEVER = 0
POINTS_MAX = 100
SHORT = 7  # every so many points, without the long runs


class HostProcess:
    """One of the hosts.

    Args:
        before: words of a command that runs it elsewhere.
    """

    def __init__(self, said: Path, before: list[str], *words: object) -> None:
        command = [*before, sys.executable, "-P", str(PROGRAM), *map(str, words)]
        with said.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.hears() == "up", said.read_text()

    def tell(self, word: str) -> str:
        """Send a word to the process; its answer, empty when it dies over the word."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self.hears()

    def hears(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        """In order, or it is dead already."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@contextmanager
def running(said: Path, before: list[str], *words: object) -> Iterator[HostProcess]:
    host = HostProcess(said, before, *words)
    try:
        yield host
    finally:
        host.end()


class Promotion:
    """Host 2 has 5 excerpts, host 3 has 9, and the old source these and 3 that no other host has.

    Args:
        mounted: the file system that host 2 has its copy on, whose power is cut.
    """

    def __init__(self, folder: Path, at: int, mounted: PowerCuts | None) -> None:
        self._folder = folder
        self._at = at
        self._mounted = mounted
        self._ports = ",".join(str(reserved_port()) for _ in range(3))
        own = folder if mounted is None else mounted.path / folder.name
        self.paths = {1: folder / "1" / "a", 2: own / "2" / "a", 3: folder / "3" / "a"}
        self.held = fill(self.paths[3], "FAST_DAILY", {0: 5})
        shutil.copytree(self.paths[3], self.paths[2])
        self.held = [*self.held, *more_excerpts(self.paths[3], 5, 4)]
        shutil.copytree(self.paths[3], self.paths[1])
        more_excerpts(self.paths[1], 9, 3, seed=71)
        os.sync()

    def _running(self, host_id: int, at: int = NEVER) -> AbstractContextManager[HostProcess]:
        before = self._mounted.elsewhere if self._mounted and host_id == 2 else []
        mounted = [self._mounted.path] if self._mounted and at else []
        said, path = self._folder / f"said{host_id}", self.paths[host_id]
        return running(said, before, host_id, self._ports, path, at, *mounted)

    def dies(self) -> bool:
        """False where there is no such point any more. However it goes, it ends right."""
        with self._running(3):
            with self._running(2, self._at) as host:
                has_died = not self._promoted(host)
            if has_died and self._mounted is not None:
                self._mounted.cut()
            with self._running(2) as host:
                if host.tell("leads") == "leads False":
                    assert self._promoted(host)
                self._check(2)
                self._append()
                with self._running(1):
                    self._follow()
        epochs = load_epochs(self.paths[2])
        for host_id in (1, 3):
            assert_same(self.paths[2], self.paths[host_id])
            assert load_epochs(self.paths[host_id]).history == epochs.history
        (tail,) = (self.paths[1] / "quarantine").iterdir()
        assert len(read(tail)) == 3
        return has_died

    def _promoted(self, host: HostProcess) -> bool:
        """False where it dies; while its peer is not connected yet it is refused."""
        while (said := host.tell("promote")).startswith("refused"):
            assert "2 copies expected to promise, 1 does" in said, said
        assert said == "" or said.split()[::2] == ["promoted", str(noon_index(sequence=9))], said
        return bool(said)

    def _check(self, host_id: int) -> None:
        assert read(self.paths[host_id]) == self.held

    def _append(self) -> None:
        """Append once host 3 has given back what a power cut may have torn. Until then no process
        may append."""
        while True:
            with suppress(QueueLocked):
                more_excerpts(self.paths[2], 9, 2)
                return
            time.sleep(0.02)

    def _follow(self) -> None:
        last = noon_index(sequence=10)
        until(lambda: all(last_of(self.paths[each]) == last for each in (1, 3)))


def points(folder: Path, mounted: PowerCuts | None, step: int) -> int:
    for tried, at in enumerate(range(1, POINTS_MAX, step)):
        own = folder / f"at{at}"
        own.mkdir()
        if not Promotion(own, at, mounted).dies():
            return tried
    raise AssertionError(f"a promotion of fewer than {POINTS_MAX} points expected")


STEPS = [SHORT, pytest.param(1, marks=pytest.mark.long)]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_synced_write(tmp_path: Path, step: int) -> None:
    assert points(tmp_path, None, step) * step > 10


@pytest.mark.parametrize("step", STEPS)
def test_the_power_is_cut_at_each_synced_write(tmp_path: Path, step: int) -> None:
    if os.geteuid() != 0:
        require("root", "root mounts a file system")
    mounted = PowerCuts(tmp_path)
    try:
        assert points(tmp_path, mounted, step) * step > 10
    finally:
        mounted.end()
