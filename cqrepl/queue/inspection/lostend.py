"""Is the end of a queue known? Finds traces of excerpts that its store files do not have.

Theory of operation. A queue that has lost its last file, or the last excerpts of it, looks like one
that is behind: readers go as far as they can, and it may get the rest back from its copies. A
comparison of copies must not call it equal up to there. Writers and replication leave traces: the
table store names the highest cycle, `closed.cqmanifest` what closed ones held, `synced.cqmark` up
to where excerpts were on the disk. All of them are read first, and only ever fall behind, so what
they promise must be there when the files are looked at. A last file without a header may be one
that is just being made; it is looked at again for a while.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.listing import CYCLE_NONE_HIGHEST, HIGHEST_KEY
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.format.index import (
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Sequence,
    cycle_of,
    format_index,
    index_of,
    sequence_of,
)
from cqrepl.queue.format.rollcycle import CYCLE_MAX
from cqrepl.queue.read.count import count_in

MAKING_S: Final = 2.0  # in which a file that is being made has got its header
_LOOK_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LostEnd:
    """From `index` on it is unknown what a queue held; `path` is the store file concerned, and
    `what` what is not as expected of it."""

    cycle: Cycle
    index: int
    path: Path
    what: str

    @property
    def text(self) -> str:
        """The same with the path."""
        return f"{self.path}: {self.what}"


def lost_end(
    cycles: Cycles, *, making_s: float = MAKING_S, if_promised: bool = False
) -> LostEnd | None:
    """The reason why the end of a queue is not known; None where no trace tells of a later end.

    Args:
        making_s: for so many seconds a last file without a header counts as one being made.
        if_promised: report such a file only where excerpts of it are known to have been on the
            disk; else the process that made it has died over it, and no excerpt is lost.

    Raises:
        QueueError: the last store file is damaged, or the directory cannot be read.
        OSError: what is noted cannot be read.
    """
    promised, witness = _highest(cycles)
    synced = load_synced(cycles.path)
    listed = cycles.listing()
    last = listed[-1] if listed else Cycle(-1)
    if promised > last:
        what = f"expected a store file, as {witness} says; it is not there"
        return _from(cycles, promised, 0, what)
    if not listed:
        return None
    promises = synced is not None and synced.end > index_of(last, SEQUENCE_FIRST, cycles.shift)
    if (promises or not if_promised) and not _is_ready(cycles, last, making_s):
        path = cycles.path_of(last)
        size = path.stat().st_size if path.exists() else 0
        what = f"expected a store file, found {size} bytes without a header"
        return _from(cycles, last, 0, what)
    return None if synced is None else _unsynced(cycles, last, Index(synced.end))


def _highest(cycles: Cycles) -> tuple[Cycle, str]:
    """The highest cycle that is known to have had a file, and who knows; -1 for none."""
    noted = [each.cycle for each in cycles.closed.load().values() if each.excerpts]
    highest, witness = max(noted, default=Cycle(-1)), CLOSED_FILE_NAME
    try:
        table = TableStore(cycles.table_path, writable=False)
    except FileNotFoundError:
        return highest, witness
    try:
        key = table.find(HIGHEST_KEY)
        told = CYCLE_NONE_HIGHEST if key is None else key.load()
    finally:
        table.close()
    if highest < told <= CYCLE_MAX:  # a word that is no cycle at all tells of none
        return Cycle(told), f"{HIGHEST_KEY} in {FILE_NAME}"
    return highest, witness


def _is_ready(cycles: Cycles, cycle: Cycle, making_s: float) -> bool:
    deadline = time.monotonic() + making_s
    while True:
        store = cycles.open(cycle)
        if store is not None:
            store.close()
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_PAUSE_S)


def _unsynced(cycles: Cycles, last: Cycle, end: Index) -> LostEnd | None:
    """Excerpts that were on the disk, and are not there."""
    cycle, sequence = cycle_of(end, cycles.shift), sequence_of(end, cycles.shift)
    if sequence == SEQUENCE_FIRST:
        return None  # nothing of this cycle was
    if cycle > last:  # a repair takes the highest cycle back, and leaves the mark
        what = f"expected a store file, as {SYNCED_FILE_NAME} says; it is not there"
        return _from(cycles, cycle, 0, what)
    if not cycles.has(cycle):
        return None  # retention
    found = count_in(cycles, cycle, sequence)
    if found >= sequence:
        return None
    wanted = format_index(index_of(cycle, Sequence(sequence - 1), cycles.shift))
    what = (
        f"expected excerpts up to {wanted}, as {SYNCED_FILE_NAME} says; found {found} of {sequence}"
    )
    return _from(cycles, cycle, found, what)


def _from(cycles: Cycles, cycle: Cycle, sequence: int, what: str) -> LostEnd:
    index = index_of(cycle, Sequence(sequence), cycles.shift)
    return LostEnd(cycle=cycle, index=index, path=cycles.path_of(cycle), what=what)
