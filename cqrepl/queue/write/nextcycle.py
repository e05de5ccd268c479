"""Store files that are made ready before their cycle begins.

Theory of operation. A writer of a new cycle looks for `<name>.precreated` beside `<name>.cq4`,
and renames it: Java's writers too, whose pre-toucher makes such files. Readers, and all that lists
a queue, know only what ends in `.cq4`. Ours are whole when they get that name (`making`): header
and index pages are on the disk, as after a power cut a writer would trust them; what follows is
allocated, and its pages are in memory.

A writer's helper makes the next cycle's file when the clock comes near it, if that cycle is long
enough and the writer stands in the present one: a tenth of the cycle before its end, and no more
than a minute. A file that was not taken goes when its cycle has been passed, or with the helper.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.maker import READY, make_file, precreated_path
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.format.storeimage import store_image
from cqrepl.surroundings import surroundings

_CYCLE_MIN_MS: Final = 60_000
_EARLY_MAX_MS: Final = 60_000
_TOUCHED_MIN: Final = 1 << 20


def precreate(cycles: Cycles, layout: QueueLayout, cycle: Cycle, touched_bytes: int) -> Path | None:
    """Makes a cycle's store file ready, so many bytes of it allocated and in memory; where it is.

    None when the cycle has a store file, or one that is ready.

    Raises:
        QueueError: no file can be named for this cycle.
        OSError: no space. Nothing is left of it.
    """
    path = cycles.path_of(cycle)
    ready = precreated_path(path)
    if path.exists() or ready.exists():
        return None
    image = store_image(layout.index_count, layout.index_spacing)
    if not make_file(ready, image, touched_bytes=touched_bytes, is_synced=True):
        return None
    if path.exists():  # another writer made its own: ours goes, unless it was taken
        surroundings().unlink(ready, missing_ok=True)
    return ready


def remove_passed(cycles: Cycles, below: int) -> None:
    """Removes the files that were made ready for lower cycles, also those never finished."""
    for name in os.listdir(cycles.path):
        stem, ready, _ = name.partition(READY)
        cycle = cycles.cycle_of(stem) if ready else None
        if cycle is not None and cycle < below:
            with suppress(OSError):  # gone, or a later writer removes it
                surroundings().unlink(cycles.path / name)


class NextCycle:
    """Makes the file of a writer's next cycle ready in time. For one thread."""

    def __init__(self, cycles: Cycles, layout: QueueLayout, touched_max: int) -> None:
        self._cycles = cycles
        self._layout = layout
        self._touched_max = touched_max
        self._cycle = Cycle(-1)  # where the writer stands
        self._is_made = False
        self._path: Path | None = None

    def stands_in(self, cycle: Cycle) -> None:
        """Takes note of the writer's cycle; what was ready for lower ones goes.

        Raises:
            OSError: the directory cannot be listed.
        """
        if cycle != self._cycle:
            self._cycle, self._is_made, self._path = cycle, False, None
            remove_passed(self._cycles, cycle + 1)  # this one has its file

    def wait_s(self, now_ms: int | None = None) -> float | None:
        """Seconds until the next file is to be made; None if it is not, as things are."""
        length_ms = self._layout.roll_cycle.length_ms
        if self._cycle < 0 or self._is_made or length_ms < _CYCLE_MIN_MS:
            return None
        if now_ms is None:
            now_ms = surroundings().wall_ms()
        end_ms = self._cycles.ends_ms(self._cycle)
        if now_ms >= end_ms:
            return None  # behind the clock: its next cycle may be any
        return max(end_ms - min(length_ms // 10, _EARLY_MAX_MS) - now_ms, 0) / 1000

    def make(self, position: int) -> None:
        """Makes the next file, touched as far as the present one is written, within limits.

        Raises:
            OSError: no space.
        """
        self._is_made = True  # tried, at least
        touched = min(max(position, _TOUCHED_MIN), self._touched_max)
        self._path = precreate(self._cycles, self._layout, Cycle(self._cycle + 1), touched)

    def forget(self) -> None:
        """Removes the file that was made, if no writer has taken it."""
        if self._path is not None:
            surroundings().unlink(self._path, missing_ok=True)
            self._path = None
