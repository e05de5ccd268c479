"""The locks of the entries of one group. It knows no clock: a caller that cannot have one waits.

A lock is of one key of one map of one partition, or of the whole map in that partition, which
`clear` needs. An owner takes all that a commit needs at once or nothing, so commits never wait for
each other in a circle; pessimistic transactions take one after the other, and may.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class LockPlace(NamedTuple):
    """A key of a map in a partition.

    Args:
        key: None for all keys.
    """

    partition: int
    map: str
    key: bytes | None


class LockTable:
    """The locks that are held, and by whom."""

    def __init__(self) -> None:
        self._owners: dict[LockPlace, int] = {}
        self._held: dict[int, set[LockPlace]] = {}  # by owner
        self._keys: Counter[LockPlace] = Counter()  # of each map, locks of single keys

    def take(self, owner: int, places: Iterable[LockPlace]) -> LockPlace | None:
        """Takes all of them; the first one that another owner has, and then takes none."""
        wanted = list(dict.fromkeys(places))
        for each in wanted:
            if self._is_taken(owner, each):
                return each
        mine = self._held.setdefault(owner, set())
        for each in wanted:
            if each not in mine:
                self._owners[each] = owner
                mine.add(each)
                if each.key is not None:
                    self._keys[each._replace(key=None)] += 1
        return None

    def _is_taken(self, owner: int, place: LockPlace) -> bool:
        whole = place._replace(key=None)
        if self._owners.get(whole, owner) != owner:
            return True
        if place.key is not None:
            return self._owners.get(place, owner) != owner
        mine = sum(
            each.key is not None and each._replace(key=None) == whole
            for each in self._held.get(owner, ())
        )
        return self._keys[whole] > mine

    def holds(self, owner: int, place: LockPlace) -> bool:
        """True where it has this lock."""
        return self._owners.get(place) == owner

    def release(self, owner: int) -> bool:
        """Gives back all of its locks; false where it had none."""
        places = self._held.pop(owner, set())
        for each in places:
            del self._owners[each]
            if each.key is not None:
                whole = each._replace(key=None)
                self._keys[whole] -= 1
                if not self._keys[whole]:
                    del self._keys[whole]
        return bool(places)

    def __len__(self) -> int:
        return len(self._owners)
