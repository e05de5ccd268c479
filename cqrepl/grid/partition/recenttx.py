"""The last transactions of a group's log, to count those that a client's copy lacks yet."""

from collections import deque
from typing import Final, NamedTuple

from cqrepl.service.fieldwords import FieldWords

KEPT_MAX: Final = 10_000


class _Recent(NamedTuple):
    at: int  # its index
    partition: int
    maps: str  # with blanks between


class RecentTx:
    """As many as `KEPT_MAX`, as they came to this host. Any thread may count them."""

    def __init__(self) -> None:
        self._kept: deque[_Recent] = deque(maxlen=KEPT_MAX)

    def note(self, index: int, said: FieldWords) -> None:
        """One more."""
        self._kept.append(_Recent(index, said.number("part"), said.text("maps")))

    def after(self, partition: int, name: str, index: int) -> int:
        """The number of transactions behind an index that have changed a map in a partition."""
        count = 0
        for each in reversed(tuple(self._kept)):
            if each.at <= index:
                break
            count += each.partition == partition and name in each.maps.split()
        return count
