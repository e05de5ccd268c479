"""A token: the place of a transaction in the log of its group, for readers anywhere.

`str` gives a text that travels, `Token.parse` takes it back. The epoch is part of it: after a
fail-over another record may stand at the same index, and its token is another one.
"""

from dataclasses import dataclass
from typing import Self

from cqrepl.grid.errors import GridRefused
from cqrepl.queue.format.index import INDEX_MAX

_PARTS = 5


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Args:
        grid: the id of the group's log.
        group: the number of the group, from 0.
    """

    map_set: str
    grid: str
    group: int
    epoch: int
    index: int

    def __str__(self) -> str:
        return f"{self.map_set}/{self.group}/{self.grid}/{self.epoch}/{self.index:x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The token of such a text.

        Raises:
            GridRefused: it is none.
        """
        parts = text.rsplit("/", _PARTS - 1)
        try:
            map_set, group, grid, epoch, index = parts
            token = cls(map_set, grid, int(group), int(epoch), int(index, 16))
            if min(token.group, token.epoch) < 0 or not -1 <= token.index <= INDEX_MAX:
                raise ValueError
            return token
        except ValueError:
            wanted = "expected a token such as MAPSET/GROUP/GRID/EPOCH/INDEX"
            raise GridRefused(f"{wanted}, got {text[:80]!r}") from None

    def check(self, map_set: str, grid: str) -> None:
        """Does nothing for a token of this log.

        Raises:
            GridRefused: it is of another one.
        """
        if (self.map_set, self.grid) != (map_set, grid):
            wanted = f"expected a token of map set {map_set!r}, log {grid}, group {self.group}"
            raise GridRefused(f"{wanted}, got one of map set {self.map_set!r}, log {self.grid}")
