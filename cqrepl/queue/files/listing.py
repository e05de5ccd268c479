"""The table store's keys about cycles, kept as Java's writers and tailers expect them.

    listing.lowestCycle, listing.highestCycle   the least and greatest cycle with a file
    listing.modCount                            +1 for every change of the directory
    normalisedEOFsTo                            all cycles below have an end-of-file mark
    chronicle.lastIndexMSynced                  greatest index passed to msync, in Java perhaps
                                                without waiting for it

and three of our own:

    cqrepl.synced        the greatest index that an appender of ours has made durable
    cqrepl.boot          a digest of the machine's start that our last writer knew
    cqrepl.endsChecked   (cycle, digest of all lower cycles that have a file, and of the start)

Java looks for missing end-of-file marks from `normalisedEOFsTo` on and misses some below it, such
as those of cycles that were backfilled. So our appenders look at every file, but at each once only:
a closed file stays closed, as long as no power cut takes the mark. `endsChecked` says which cycles
were found closed or were closed; it counts only while exactly those have files below its cycle, and
until the machine starts again. So opening an appender opens no older file, however many there are.
"""

import zlib
from typing import Final

from cqrepl.queue.files.chroniclemarks import (
    COPY_OF_KEY,
    FOLLOWER_KEY,
    FOLLOWS,
    OWN_SYNCED_KEY,
    SYNCED_KEY,
)
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.index import Cycle
from cqrepl.surroundings import surroundings

CYCLE_NONE_LOWEST: Final = (1 << 31) - 1
CYCLE_NONE_HIGHEST: Final = -(1 << 31)
HIGHEST_KEY: Final = "listing.highestCycle"
CHANGES_KEY: Final = "listing.modCount"
_ENDED_KEY: Final = "normalisedEOFsTo"
_CHECKED_KEY: Final = "cqrepl.endsChecked"
BOOT_KEY: Final = "cqrepl.boot"
_NONE: Final = -1
_DIGEST_BITS: Final = 32


class Listing:
    """The keys of the table store that tell of the directory. Change them under the write lock
    only."""

    def __init__(self, table: TableStore) -> None:
        self._table = table
        self._highest = table.value(HIGHEST_KEY, CYCLE_NONE_HIGHEST)
        self._lowest = table.value("listing.lowestCycle", CYCLE_NONE_LOWEST)
        self._changes = table.value(CHANGES_KEY, 0)
        self._checked = table.value(_CHECKED_KEY, _NONE)
        self._boot_seen = table.value(BOOT_KEY, _NONE)
        self._boot = boot_digest()

    def changes(self) -> int:
        """A number that is another one after every change of the directory."""
        return self._changes.load()

    def check_name(self) -> None:
        """Does nothing while the directory is the one that was opened: its table store is.

        Raises:
            QueueDamaged: it is not.
        """
        self._table.check_name()

    @property
    def changes_position(self) -> int:
        """The position of the number `changes` in the table store."""
        return self._changes.position

    def note_change(self) -> None:
        """Has all writers look anew at what there is, before they append again."""
        self._changes.add(1)

    def is_follower(self) -> bool:
        """True when the queue is a copy that a sink has taken in."""
        value = self._table.find(FOLLOWER_KEY)
        return value is not None and value.load() == FOLLOWS

    def copy_of(self) -> int:
        """The id of the host that it was taken in from last; 0 where that is not known."""
        value = self._table.find(COPY_OF_KEY)
        return 0 if value is None else max(value.load(), 0)

    def renew(self, cycles: list[Cycle]) -> None:
        """Records what the directory was found to hold."""
        self._lowest.store(cycles[0] if cycles else CYCLE_NONE_LOWEST)
        self._highest.store(cycles[-1] if cycles else CYCLE_NONE_HIGHEST)
        self._changes.add(1)

    def add(self, cycle: Cycle) -> None:
        """Records a new store file."""
        self._lowest.lower_to(cycle)
        self._highest.raise_to(cycle)
        self._changes.add(1)

    def ended_below(self, cycle: Cycle, cycles: list[Cycle]) -> None:
        """Records that every one of these cycles that is below this one is closed."""
        self._table.value(_ENDED_KEY, cycle).raise_to(cycle)
        checked = (cycle << _DIGEST_BITS) | self._digest(cycle, cycles)
        self._checked.store(checked)

    def open_from(self, cycle: Cycle) -> None:
        """Records that of this cycle and those above nothing is known to be closed."""
        ended = self._table.find(_ENDED_KEY)
        if ended is not None:
            ended.lower_to(cycle)
        self._checked.store(_NONE)

    def checked_below(self, cycles: list[Cycle]) -> int:
        """Every one of these cycles that is below the answer is known to be closed."""
        checked = self._checked.load()
        cycle = checked >> _DIGEST_BITS
        if checked < 0 or checked % (1 << _DIGEST_BITS) != self._digest(cycle, cycles):
            return 0
        return cycle

    def is_restarted(self) -> bool:
        """True when the machine was started since our last writer opened the queue."""
        return self._boot_seen.load() not in (_NONE, self._boot)

    def note_start(self) -> None:
        """Records that a writer has seen the queue since the machine was started.

        Raises:
            OSError: the record did not reach the disk.
        """
        if self._boot_seen.load() != self._boot:
            self._boot_seen.store(self._boot)
            self.sync()  # before any excerpt: a power cut must not leave those and lose this

    def synced(self) -> int:
        """The greatest index that an appender of ours has made durable; -1 for none."""
        value = self._table.find(OWN_SYNCED_KEY)
        return _NONE if value is None else value.load()

    def synced_to(self, index: int) -> None:
        """Records that everything up to an index is durable; Java is told so, too."""
        own = self._table.value_within(OWN_SYNCED_KEY, _NONE, KEY_END_MAX)
        if own is not None:
            own.raise_to(index)
        self._table.value(SYNCED_KEY, _NONE).raise_to(index)

    def sync(self) -> None:
        """Returns when the table store is on the disk.

        Raises:
            OSError: it may never get there.
        """
        self._table.sync()

    def _digest(self, below: int, cycles: list[Cycle]) -> int:
        names = " ".join(str(cycle) for cycle in cycles if cycle < below)
        return zlib.crc32(names.encode(), self._boot)


def boot_digest() -> int:
    """Stands for the machine's present start."""
    return zlib.crc32(surroundings().boot_id())
