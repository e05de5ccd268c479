"""Where handlers put their answers: bytes for the peer, events for the shell."""

from collections import deque

from cqrepl.protocol.events import Event, RegistrationRefused
from cqrepl.protocol.messages import WireShape

# acknowledgements are merged while more than this waits, so that a peer that reads nothing costs
# little
CROWDED_BYTES = 64 * 1024


class Outbox:
    """Collects bytes and events in order."""

    __slots__ = ("data", "events", "refused", "shape")

    def __init__(self, shape: WireShape) -> None:
        self.data = bytearray()
        self.events: deque[Event] = deque()
        self.shape = shape
        self.refused = 0

    def send(self, *documents: bytes) -> None:
        """Appends documents that belong together."""
        for document in documents:
            self.data += document

    def tell(self, event: Event) -> None:
        """Appends an event."""
        self.events.append(event)

    def refuse(self, message: str) -> None:
        """One registration or message is not acted on; the connection goes on, up to a limit."""
        self.refused += 1
        self.events.append(RegistrationRefused(message=message, count=self.refused))

    @property
    def is_crowded(self) -> bool:
        """True while the peer takes its bytes too slowly for small messages to be added freely."""
        return len(self.data) > CROWDED_BYTES
