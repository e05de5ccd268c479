"""Marks above the end of a queue: they tell that excerpts are gone.

Theory of operation. Writers and hosts keep marks beside the excerpts: up to where those were sent,
acknowledged, and brought to the disk. A mark rises behind the excerpts, and what takes excerpts off
on purpose lowers it first. So one that is above the end tells that the end was lost: store files
were removed or cut, or older ones put back. What is appended then gets indexes that others know
with other excerpts.

A power cut may keep a mark and take the excerpts. What was acknowledged is lost then all the same.
What was only sent, or is called synced by Java, which waits for no disk, may never have got
anywhere: such a mark tells nothing in another start of the machine.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from cqrepl.queue.files.chroniclemarks import (
    ACKNOWLEDGED_KEY,
    OWN_SYNCED_KEY,
    SENT_KEY,
    SYNCED_KEY,
)
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.keptmarks import marks_of, read_slots
from cqrepl.queue.files.listing import BOOT_KEY, boot_digest
from cqrepl.queue.files.markslots import FORGOTTEN, MarkLevel
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, SyncedMark, load_synced
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.errors import QueueDamaged, QueueError
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Index,
    format_index,
    sequence_of,
)
from cqrepl.queue.read.count import end_index

ACCEPT_LOST: Final = "cqrepl repair QUEUE --apply"
_SAID: Final = {
    MarkLevel.ACKNOWLEDGED: "what host {} has acknowledged",
    MarkLevel.SYNCED: "what host {} has on its disk",
    MarkLevel.APPLIED: "what host {} has applied",
    MarkLevel.SENT: "what host {} was sent",
}


class LostMark(NamedTuple):
    """A mark that is above the end of a queue.

    Args:
        last: the greatest excerpt that the queue is known to have had.
        witness: the mark that tells it.
        end: the queue's next index.
    """

    last: int
    witness: str
    end: Index

    def __str__(self) -> str:
        return (
            f"expected excerpts up to {format_index(self.last)}, as the mark of {self.witness}"
            f" says, found the end at {format_index(self.end)}"
        )

    def refusal(self, cycles: Cycles, met: QueueError | None = None) -> QueueDamaged:
        """The error of an append that is refused for this mark.

        Args:
            met: the error that it has met.
        """
        before = "" if met is None else f"{met.reason}; "
        why = (
            f"{before}{self}: nothing is appended until a copy has given back what is missing;"
            f" {ACCEPT_LOST} accepts the loss"
        )
        return QueueDamaged(why, path=cycles.path, index=self.end)


def lost_mark(cycles: Cycles, keys: Mapping[str, int] | None = None) -> LostMark | None:
    """The greatest mark above the end of a queue; None where all are at or below it.

    Args:
        keys: of the table store, where that is open; None: they are read.

    Raises:
        QueueError: the queue's end cannot be found.
        OSError: its marks cannot be read.
    """
    marks = _marks(cycles, _keys(cycles) if keys is None else keys)
    found = max(marks, key=lambda each: each[0], default=(FORGOTTEN, ""))
    if found[0] <= NEXT_OF_EMPTY:
        return None
    end = end_index(cycles)  # behind the marks: both rise meanwhile
    return LostMark(*found, end) if found[0] >= end else None


def _marks(cycles: Cycles, keys: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """All marks that tell of an excerpt, and what of each; those of hosts come first, and of each
    what it has."""
    synced = load_synced(cycles.path)
    has_sent = not _is_of_another_boot(keys, synced)
    for host, levels in marks_of(keys, read_slots(cycles.path)).items():
        for level, said in _SAID.items():
            if has_sent or level is not MarkLevel.SENT:
                yield levels.get(level, FORGOTTEN), said.format(host)
    if synced is not None and sequence_of(synced.end, cycles.shift) != SEQUENCE_FIRST:
        yield synced.end - 1, f"what is on the disk ({SYNCED_FILE_NAME})"
    for key, counts in (
        (ACKNOWLEDGED_KEY, True),
        (OWN_SYNCED_KEY, True),
        (SENT_KEY, has_sent),
        (SYNCED_KEY, has_sent),
    ):
        if counts:
            yield keys.get(key.lower(), FORGOTTEN), key


def _keys(cycles: Cycles) -> dict[str, int]:
    try:
        table = TableStore(cycles.table_path, writable=False)
    except FileNotFoundError:
        return {}
    try:
        return table.keys()
    finally:
        table.close()


def may_be_power_cut(cycles: Cycles) -> bool:
    """True where a power cut may have taken what was only sent.

    Raises:
        QueueError, OSError: the marks cannot be read.
    """
    return _is_of_another_boot(_keys(cycles), load_synced(cycles.path))


def _is_of_another_boot(keys: Mapping[str, int], synced: SyncedMark | None) -> bool:
    if synced is not None:
        return not synced.is_of_this_boot
    return keys.get(BOOT_KEY.lower(), FORGOTTEN) not in (FORGOTTEN, boot_digest())
