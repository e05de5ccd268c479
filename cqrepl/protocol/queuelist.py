"""The names of the queues of both sides: each side names its own, in pages, and then the changes.

To a peer that names its queues, a source offers nothing before the peer's first list has ended, and
no queue that the peer does not name. So neither side waits for an answer that cannot come, and a
queue that can be taken later is offered then.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from cqrepl.protocol.events import QueuesNamed
from cqrepl.protocol.messages.names import QUEUES, QUEUES_ADDED, QUEUES_CSP, QUEUES_REMOVED
from cqrepl.protocol.messages.queuenames import QueueNames, read_queue_names, write_queue_names
from cqrepl.protocol.outbox import Outbox
from wire import Reader

PAGE_NAMES: Final = 400  # of 128 characters at most: below the 64 KiB of a small document
NAME_MAX: Final = 128  # characters; a longer one is of no queue of ours
NAMES_MAX: Final = 65_536  # that are kept of a peer's


class OwnQueues:
    """Our half: names our queues to the peer.

    What changes while the peer takes nothing is kept by name, so it never grows beyond the names.
    """

    csp = QUEUES_CSP
    deadline = math.inf

    def __init__(self, queues: QueueNames) -> None:
        self._first = deque(_pages(queues)) or deque([QueueNames()])
        self._added = QueueNames()
        self._removed = QueueNames()
        self._is_over = False

    def change(self, added: QueueNames, removed: QueueNames) -> None:
        """Notes the names that come and go, to be told to the peer."""
        if not self._is_over:
            self._added = (self._added - removed) | added
            self._removed = (self._removed - added) | removed

    def produce(self, room: int) -> bytes:
        if self._first:
            first = self._first.popleft()
            return write_queue_names(QUEUES, first, more=bool(self._first))
        page = next(_pages(self._removed), None)
        if page is not None:
            self._removed -= page
            return write_queue_names(QUEUES_REMOVED, page)
        page = next(_pages(self._added), None)
        if page is not None:
            self._added -= page
            return write_queue_names(QUEUES_ADDED, page)
        return b""

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        return False

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def closed(self, reason: str) -> None:
        self._is_over = True
        self._first.clear()
        self._added = self._removed = QueueNames()


class PeerQueues:
    """The peer's half: keeps what it names."""

    csp = QUEUES_CSP
    deadline = math.inf

    def __init__(self, outbox: Outbox) -> None:
        self.is_known = False  # the first list has ended
        self._sources: set[str] = set()
        self._sinks: set[str] = set()
        self._outbox = outbox

    @property
    def queues(self) -> QueueNames:
        """All that it has; a view, which changes."""
        return QueueNames(sources=self._sources, sinks=self._sinks)

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if name not in (QUEUES, QUEUES_ADDED, QUEUES_REMOVED):
            return False
        named, more = read_queue_names(reader)
        sinks = {each for each in named.sinks if len(each) <= NAME_MAX}
        if name == QUEUES_REMOVED:
            self._sources -= named.sources
            self._sinks -= named.sinks
            return True
        if len(self._sources) + len(self._sinks) + len(named) > NAMES_MAX:
            self._outbox.refuse(f"more than {NAMES_MAX} names of queues")
            return True
        self._sources |= {each for each in named.sources if len(each) <= NAME_MAX}
        self._sinks |= sinks
        if name == QUEUES and not more and not self.is_known:
            self.is_known = True
            sinks = self._sinks
        if self.is_known and (sinks or name == QUEUES):
            self._outbox.tell(QueuesNamed(sinks=frozenset(sinks)))
        return True

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        return b""

    def closed(self, reason: str) -> None:
        """Nothing is held."""


def _pages(queues: QueueNames) -> Iterator[QueueNames]:
    """The same names, as few at a time as fit into a document."""
    sources, sinks = iter(sorted(queues.sources)), iter(sorted(queues.sinks))
    while True:
        page = QueueNames(
            sources=frozenset(islice(sources, PAGE_NAMES // 2)),
            sinks=frozenset(islice(sinks, PAGE_NAMES // 2)),
        )
        if not len(page):
            return
        yield page
