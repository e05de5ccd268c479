"""Tells of a queue that streams, and of which something stays unproved.

After a power cut the stream itself proves what is there, within a moment: by chains before it
begins, by the bytes that come again, or by what the other side takes. While anything is unproved
nothing of it counts as synced, none of it is read once more, and no copy is passed on. So where the
stream goes on and proves nothing for some seconds, that is said once, and told to those that wait.
"""

import logging
from typing import Final

from cqrepl.queue.format.index import Index, format_index
from cqrepl.surroundings import monotonic

UNPROVED_SECONDS: Final = 5.0
_logger: Final = logging.getLogger(__name__)


class UnprovedWatch:
    """Watches one queue for a part that stays unproved.

    Attributes:
        why: it is unproved for so long; None: it is not.
    """

    def __init__(self, name: str) -> None:
        self.why: str | None = None
        self._name = name
        self._from: Index | None = None
        self._since = 0.0  # by the monotonic clock

    def look(self, unproved_from: Index | None, *, is_streaming: bool) -> None:
        """Takes the state of the copy; called once a second.

        Args:
            unproved_from: of the queue's `DiskEnd`.
        """
        now, start = monotonic(), unproved_from if is_streaming else None
        if start != self._from:
            self.why, self._from, self._since = None, start, now
        elif start is not None and self.why is None and now - self._since > UNPROVED_SECONDS:
            self.why = (
                f"what is from {format_index(start)} on is unproved since the machine was started"
                " again, or a sync failed, though the stream is on"
            )
            _logger.warning("queue %r: %s", self._name, self.why)
