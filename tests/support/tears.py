"""Tears an excerpt as a power cut does: it leaves sectors that read as zeros."""

from pathlib import Path

from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index, cycle_of
from cqrepl.queue.read.tornsectors import SECTOR_BYTES
from cqrepl.surroundings import Surroundings


def tear(path: Path, index: int, first: int, stop: int | None) -> int:
    """Takes sectors of an excerpt, counted from the one that holds its header; how many bytes.

    Args:
        first: 1 at least.
        stop: the sector behind the last one; None: to the end of the excerpt.
    """
    with Queue.open(path) as queue:
        batch = queue.tailer(index).next_batch(count_max=1)
        assert batch is not None
        file = queue.cycles.path_of(cycle_of(Index(index), queue.layout.roll_cycle.shift))
        offset, end = batch.offsets[0], batch.offsets[0] + batch.lengths[0]
    header = (offset - 4) // SECTOR_BYTES * SECTOR_BYTES
    start = header + first * SECTOR_BYTES
    if stop is not None:
        end = min(end, header + stop * SECTOR_BYTES)
    assert offset <= start < end
    with file.open("r+b") as store:
        store.seek(start)
        store.write(bytes(end - start))
    return end - start


class Restarted(Surroundings):
    def boot_id(self) -> bytes:
        return b"another start of the machine"
