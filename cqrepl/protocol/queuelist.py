"""Which queues the two sides have: each names its own, in pages, then what changes.

A source offers nothing to a peer that names its queues before the first list has ended, and nothing
that the peer does not name. So nobody waits for an answer that cannot come, and a queue that can be
taken later is offered then.
"""

import math
from itertools import islice
from typing import Final

from cqrepl.protocol.events import QueuesNamed
from cqrepl.protocol.messages.names import QUEUES, QUEUES_ADDED, QUEUES_CSP, QUEUES_REMOVED
from cqrepl.protocol.messages.queuenames import QueueNames, read_queue_names, write_queue_names
from cqrepl.protocol.outbox import Outbox
from wire import Reader

PAGE_NAMES: Final = 400  # of 128 characters at most: below the 64 KiB of a small document
NAMES_MAX: Final = 65_536  # that are kept of a peer's


class OwnQueues:
    """Our half: names our queues to the peer."""

    csp = QUEUES_CSP
    deadline = math.inf

    def __init__(self) -> None:
        self._pages: list[tuple[str, QueueNames]] = []
        self._has_begun = False

    def begin(self, queues: QueueNames) -> None:
        """The first list."""
        assert not self._has_begun
        self._has_begun = True
        self._add(QUEUES, queues, at_least_one=True)

    def change(self, added: QueueNames, removed: QueueNames) -> None:
        """What is different from now on."""
        assert self._has_begun
        self._add(QUEUES_REMOVED, removed)
        self._add(QUEUES_ADDED, added)

    def produce(self, room: int) -> bytes:
        if not self._pages:
            return b""
        name, queues = self._pages.pop(0)
        more = name == QUEUES and bool(self._pages) and self._pages[0][0] == QUEUES
        return write_queue_names(name, queues, more=more)

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        return False

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def closed(self, reason: str) -> None:
        self._pages.clear()

    def _add(self, name: str, queues: QueueNames, *, at_least_one: bool = False) -> None:
        sources, sinks = iter(sorted(queues.sources)), iter(sorted(queues.sinks))
        while True:
            page = QueueNames(
                sources=frozenset(islice(sources, PAGE_NAMES // 2)),
                sinks=frozenset(islice(sinks, PAGE_NAMES // 2)),
            )
            if not len(page) and not at_least_one:
                return
            at_least_one = False
            self._pages.append((name, page))


class PeerQueues:
    """The peer's half: keeps what it names."""

    csp = QUEUES_CSP
    deadline = math.inf

    def __init__(self, outbox: Outbox) -> None:
        self.queues = QueueNames()
        self.is_known = False  # the first list has ended
        self._outbox = outbox

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if name not in (QUEUES, QUEUES_ADDED, QUEUES_REMOVED):
            return False
        named, more = read_queue_names(reader)
        self.queues = self.queues - named if name == QUEUES_REMOVED else self.queues | named
        if len(self.queues) > NAMES_MAX:
            self.queues = self.queues - named
            self._outbox.refuse(f"more than {NAMES_MAX} names of queues")
        self.is_known = self.is_known or (name == QUEUES and not more)
        if self.is_known:
            self._outbox.tell(QueuesNamed())
        return True

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        return b""

    def closed(self, reason: str) -> None:
        """Nothing is held."""
