"""The table store's keys about cycles, kept as Java's writers and tailers expect them.

listing.lowestCycle, listing.highestCycle   the least and greatest cycle with a file
listing.modCount                            +1 for every change of the directory
normalisedEOFsTo                            all cycles below have an end-of-file mark
"""

from typing import Final

from cqrepl.queue.tablestore import TableStore

_CYCLE_NONE_LOWEST: Final = (1 << 31) - 1
_CYCLE_NONE_HIGHEST: Final = -(1 << 31)
_ENDED_KEY: Final = "normalisedEOFsTo"


class Listing:
    """What the table store says about the directory. Change it under the write lock only."""

    def __init__(self, table: TableStore) -> None:
        self._table = table
        self._highest = table.value("listing.highestCycle", _CYCLE_NONE_HIGHEST)
        self._lowest = table.value("listing.lowestCycle", _CYCLE_NONE_LOWEST)
        self._changes = table.value("listing.modCount", 0)

    def changes(self) -> int:
        """A number that is another one after every change of the directory."""
        return self._changes.load()

    def renew(self, cycles: list[int]) -> None:
        """Records what the directory was found to hold."""
        self._lowest.store(cycles[0] if cycles else _CYCLE_NONE_LOWEST)
        self._highest.store(cycles[-1] if cycles else _CYCLE_NONE_HIGHEST)
        self._changes.add(1)

    def add(self, cycle: int) -> None:
        """Records a new store file."""
        self._lowest.lower_to(cycle)
        self._highest.raise_to(cycle)
        self._changes.add(1)

    def ended_below(self, cycle: int) -> None:
        """Records that every cycle below this one is closed."""
        self._table.value(_ENDED_KEY, cycle).raise_to(cycle)
