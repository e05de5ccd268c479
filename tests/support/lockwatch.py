"""Watches from outside how long the write lock of a queue names one process."""

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, Self

from cqrepl.queue.files.locks import WRITE_LOCK_KEY, holder_of, is_alive
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore

_LOOK_S: Final = 0.005
_STEP_MAX_S: Final = 0.1  # so much counts of the time from one look to the next


class LockWatch:
    """Looks at the write lock all the time, in a thread.

    Time in which the thread itself did not run counts nowhere: a machine that stands still, or is
    much too busy, holds up whoever holds the lock and whoever waits for it.

    Args:
        names: of processes, by their ids.

    Attributes:
        lost_s: the seconds that did not count.
        dead_s: the longest that the lock named a process that had ended.
        living_s: the longest that it named one process that was alive, without a break.
        living: which one that was, and what it did.
    """

    def __init__(self, path: Path, names: Mapping[int, str]) -> None:
        self.lost_s = self.dead_s = self.living_s = 0.0
        self.living = "none"
        self._path = path
        self._names = names
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lock watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join()

    def __str__(self) -> str:
        return (
            f"a dead holder for {self.dead_s:.2f} s at most, a living one for"
            f" {self.living_s:.2f} s: {self.living}; {self.lost_s:.2f} s did not count"
        )

    def _watch(self) -> None:
        with closing(TableStore(self._path / FILE_NAME, writable=False)) as table:
            word = table.find(WRITE_LOCK_KEY)
            assert word is not None, "expected a queue that has a write lock"
            looked, named, held_s = time.monotonic(), None, 0.0
            while not self._is_over.wait(_LOOK_S):
                now = time.monotonic()
                step = min(now - looked, _STEP_MAX_S)
                self.lost_s += now - looked - step
                looked, before, named = now, named, holder_of(word.load())
                held_s = held_s + step if named is not None and named == before else 0.0
                if named is not None and held_s:
                    self._note(named, held_s)

    def _note(self, holder: int, held_s: float) -> None:
        if not is_alive(holder):
            self.dead_s = max(self.dead_s, held_s)
        elif held_s > self.living_s:
            self.living_s = held_s
            self.living = f"process {holder}, {self._names.get(holder, 'a writer')}"
            self.living += f", in state {_state_of(holder)}"


def _state_of(process: int) -> str:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return "unknown"
    return status.rpartition(")")[2].split()[0]
