"""Writes the items of old store files again, where they are few, so that the files may go.

Theory of operation. Retention takes whole store files, the oldest first, and none that holds an
item. So the oldest ones are looked at: one of which the items are at most a quarter of the bytes is
emptied by `KEEP` records at the end of the log; the first one that has more, or is not old enough,
stays, and all behind it. A KEEP says no more than where an item stands: one of an item that has
gone meanwhile has no effect. Its file goes only once saved states have it (`StorageService`).
"""

from collections.abc import Callable, Container
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from cqrepl.persist.storage.records import StorageRecord, decode_record
from cqrepl.persist.storage.storagecore import WrittenRecord
from cqrepl.persist.storage.storagenumbers import Numberer
from cqrepl.queue import Cycle, Index, Queue, QueueError, cycle_of
from wire import WireError

LIVE_MAX: Final = 0.25  # of the bytes of a store file that is emptied


class Compacted(Protocol):
    """The parts of a service that are needed here."""

    @property
    def age_min_ms(self) -> int: ...
    def live_below(self, ref: int) -> list[tuple[int, int, int, int]]: ...
    def write(self, make: Callable[[Numberer], StorageRecord | None]) -> WrittenRecord | None: ...
    def now(self) -> int: ...


def compact(service: Compacted, path: Path) -> int:
    """Empties the store files that may be; the number of items that were written again.

    Raises:
        NotLeader, QueueError, OSError: as `write`; or the log cannot be read.
    """
    count = 0
    with Queue.open(path) as queue:
        shift, roll = queue.layout.roll_cycle.shift, queue.layout.roll_cycle.length_ms
        last = queue.last_index()
        if last is None:
            return 0
        for cycle in queue.cycles.listing():
            is_old = (cycle + 1) * roll <= service.now() - service.age_min_ms
            if cycle >= cycle_of(last, shift) or not is_old:
                break
            below = service.live_below((cycle + 1) << shift)
            live = {at: (id_, gen, index) for id_, gen, index, at in below}
            if not live:
                continue
            if not _is_sparse(queue, cycle, live.keys()):
                break
            for at in sorted(live):
                count += _keep(service, queue, at, live[at])
    return count


def _is_sparse(queue: Queue, cycle: Cycle, live: Container[int]) -> bool:
    """True where few of a file's bytes are items that are there."""
    shift = queue.layout.roll_cycle.shift
    kept = total = 0
    with closing(queue.tailer(Index(cycle << shift))) as tailer:
        while (batch := tailer.next_batch()) is not None:
            for index, data in batch:
                if cycle_of(Index(index), shift) > cycle:
                    return kept <= total * LIVE_MAX
                total += len(data)
                kept += len(data) if index in live else 0
    return kept <= total * LIVE_MAX


def _keep(service: Compacted, queue: Queue, at: int, item: tuple[int, int, int]) -> bool:
    id_, gen, index = item
    with closing(queue.tailer(Index(at))) as tailer:
        excerpt = tailer.next_excerpt()
        if excerpt is None or excerpt.index != at:
            return False  # it was removed meanwhile, and its file has gone
        try:
            record = decode_record(excerpt.data)
        except WireError as error:
            raise QueueError(f"expected an item: {error}", index=Index(at)) from error
    data = record.item
    if data is None or (record.id, record.index, record.gen) != (id_, index, gen):
        got = f"got {record.op.value} {record.index} of {record.id:#x}"
        raise QueueError(f"expected item {index} of {id_:#x}, {got}", index=Index(at))
    return service.write(lambda numbering: numbering.keep(id_, index, gen, data)) is not None
