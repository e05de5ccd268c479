"""The layout of a new copy, made like that of its source's queue."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from cqrepl.protocol import QueueShape
from cqrepl.queue import LayoutMismatch, QueueLayout
from cqrepl.queue.format.rollcycle import RollCycle, by_name

# a peer may ask for any index layout within these; beyond, one store file would fill a disk
_INDEX_COUNT: Final = range(8, 128 * 1024 + 1)
_INDEX_SPACING: Final = range(1, 16 * 1024 * 1024 + 1)


def layout_like(
    offer: QueueShape | None, source_id: int, usual: RollCycle, path: Path
) -> QueueLayout:
    """The layout of a new copy.

    Args:
        offer: what the source says of its own; None where it says nothing, as Java's do not.
        usual: the roll cycle where it does not say its own.
        path: of the copy.

    Raises:
        LayoutMismatch: nothing like it can be made.
    """
    if offer is None:
        return QueueLayout.of(usual)
    made = _of_roll_cycle(offer, usual, path)
    count = made.index_count if offer.index_count is None else offer.index_count
    spacing = made.index_spacing if offer.index_spacing is None else offer.index_spacing
    if (
        count not in _INDEX_COUNT
        or spacing not in _INDEX_SPACING
        or count & (count - 1)
        or spacing & (spacing - 1)
    ):
        raise LayoutMismatch(f"index {count}/{spacing} cannot be made here", path=path)
    return replace(made, index_count=count, index_spacing=spacing, source_id=source_id)


def _of_roll_cycle(offer: QueueShape, usual: RollCycle, path: Path) -> QueueLayout:
    """The usual layout of the roll cycle that the source says, with its epoch."""
    try:
        roll_cycle = usual if offer.roll_cycle is None else by_name(offer.roll_cycle)
    except ValueError as error:
        raise LayoutMismatch(str(error), path=path) from error
    return QueueLayout.of(roll_cycle, offer.epoch)
