"""What a queue tells its peer of its layout."""

from cqrepl.protocol import QueueShape
from cqrepl.queue import QueueLayout


def shape_of(layout: QueueLayout) -> QueueShape:
    """The layout as it goes over the wire, so that both sides hold the same indexes."""
    return QueueShape(
        roll_cycle=layout.roll_cycle.name,
        epoch=layout.epoch,
        index_count=layout.index_count,
        index_spacing=layout.index_spacing,
    )
