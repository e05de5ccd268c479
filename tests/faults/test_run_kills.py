"""A sink that is killed while it stores runs: before a write of them, and between that write and
the store of the first header word, which makes them readable.

The sink runs under strace, which kills it on entering a `pwritev`, or stops it where one has just
been done. After each kill the copy is a part of the source and nothing else. The next sink takes it
over as it was left, and in the end it is the source.
"""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cqrepl.kernel import live
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.files.storefile import START, StoreFile
from tests.faults.test_real_power_cuts import listening, until
from tests.faults.tracing import require_strace
from tests.support.copies import assert_same
from tests.support.processes import send, written_pid
from tests.support.replicas import at, last_of
from tests.support.samples import check_marks, noon_index, payloads, read

BIN: Final = Path(sys.executable).parent
SECONDS: Final = 120.0
CYCLES: Final = 2
PER_CYCLE: Final = 60_000  # four runs at least: more than all kills leave behind
PER_BATCH: Final = 1000
STOPPED: Final = "stopped by SIGSTOP"
KILLED: Final = f"killed by {signal.SIGKILL.name}"


def make_original(path: Path) -> None:
    numbers = iter(payloads(CYCLES * PER_CYCLE))
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        for ahead in range(CYCLES):
            for first in range(0, PER_CYCLE, PER_BATCH):
                index = noon_index(ahead=ahead, sequence=first)
                batch = ExcerptBatch.of(index, [next(numbers) for _ in range(PER_BATCH)])
                queue.appender().append_at(batch)


def dead_runs(copy: Path) -> int:
    """In how many store files bytes stand behind the end, and no header before them."""
    count = 0
    for path in copy.glob("*.cq4"):
        store = StoreFile.open(path, 0, writable=False)
        assert store is not None
        try:
            end = store.walk(START).place.position
        finally:
            store.close()
        with path.open("rb") as file:
            file.seek(end)
            behind = file.read(64)
        count += behind[:4] == bytes(4) and behind[4:] != bytes(len(behind) - 4)
    return count


class Sinks:
    def __init__(self, folder: Path, port: int) -> None:
        self.copy = folder / "copy"
        self._folder = folder
        self._words = [
            *(str(BIN / "cqrepl"), "sink", f"q={self.copy}", "--connect", at(port)),
            *("--runs", "--touch-ahead", "0"),
        ]

    def killed_before(self, nth: int) -> None:
        """One dies on entering its `nth` write of runs."""
        with self._traced(f"signal=KILL:when={nth}") as log:
            until(lambda: KILLED in log.read_text())

    def killed_behind(self, nth: int) -> None:
        """One dies when its `nth` write of runs is done, and nothing after it."""
        with self._traced(f"signal=STOP:when={nth}") as log:
            until(lambda: STOPPED in log.read_text())
            assert dead_runs(self.copy) == 1
            pid = written_pid(self._folder / "pid")
            assert pid is not None
            assert send(pid, signal.SIGKILL)

    def finish(self, original: Path) -> None:
        """One takes all that is left, and ends in order."""
        with subprocess.Popen(self._words) as process:
            try:
                until(lambda: last_of(self.copy) == last_of(original))
            finally:
                process.terminate()
            assert process.wait(SECONDS) == 0

    @contextmanager
    def _traced(self, injected: str) -> Iterator[Path]:
        """One runs under strace, and is dead after the block; the log of its writes."""
        log, file = self._folder / "log", self._folder / "pid"
        log.write_text("")
        file.unlink(missing_ok=True)  # of the one before
        strace = ["strace", "-f", "-s", "1", "-o", str(log), "-e", "trace=pwritev"]
        strace += ["-e", f"inject=pwritev:{injected}"]
        script = 'echo $$ > "$0"; exec "$@"'
        with subprocess.Popen([*strace, "sh", "-c", script, str(file), *self._words]) as process:
            try:
                yield log
            finally:
                if (pid := written_pid(file)) is not None:
                    send(pid, signal.SIGKILL)
                process.wait(SECONDS)


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel stores runs as it does frames")
def test_a_sink_killed_around_writes_of_runs(tmp_path: Path) -> None:
    require_strace(tmp_path)
    original = tmp_path / "original"
    make_original(original)
    excerpts, chance = read(original), random.Random(1)
    words = ("source", f"q={original}", "--runs")
    with listening(tmp_path / "said", *words) as port:
        sinks = Sinks(tmp_path, port)
        for kill in (sinks.killed_behind, sinks.killed_before) * 3:
            kill(chance.randint(1, 2))
            there = read(sinks.copy)
            assert there == excerpts[: len(there)]
            assert len(there) < len(excerpts)
        sinks.finish(original)
    assert_same(original, sinks.copy)
    check_marks(sinks.copy)
