"""A position in the log of a group, which is a queue that hosts lead by turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cqrepl.queue.format.epochs import Epoch
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, format_index


@dataclass(frozen=True, slots=True, order=True)
class LogPos:
    """All excerpts before `index`, as they were once `epoch` had begun.

    Positions are totally ordered: a later epoch is above an earlier one, whatever their indexes.

    Args:
        epoch: number of the epoch of the last excerpt before `index`; 0: no epoch had begun.
        index: the first index that is not in it; 0 for nothing at all.
    """

    epoch: int
    index: Index

    def __str__(self) -> str:
        return f"epoch {self.epoch}, {format_index(self.index)}"


START: Final = LogPos(0, NEXT_OF_EMPTY)


def position_at(history: Sequence[Epoch], index: int) -> LogPos:
    """The position at an index of a queue with these epochs."""
    begun = [each.number for each in history if each.start < index]
    return LogPos(begun[-1] if begun else 0, Index(index))


def is_on(history: Sequence[Epoch], pos: LogPos) -> bool:
    """True where a queue with these epochs has gone through a position. Of epochs that have merged
    each counts as gone through."""
    begun = [each for each in history if each.start < pos.index]
    if not begun:
        return pos.epoch == 0
    return begun[-1].number <= pos.epoch <= begun[-1].reach
