"""The place where handlers put their answers: bytes for the peer, events for the shell."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from cqrepl.protocol.events import Event, RegistrationRefused
from cqrepl.protocol.messages import WireShape
from cqrepl.queue.format.epochs import History, unmerged
from wire import WireError

# acknowledgements are merged while more than this waits, so that a peer that reads nothing costs
# little
CROWDED_BYTES = 64 * 1024


class Flushing(Protocol):
    """A handler that holds back a message while the outbox is crowded."""

    def flush(self) -> None:
        """Sends what was held back."""


class Outbox:
    """Collects bytes and events in order."""

    __slots__ = (
        "_told",
        "broken",
        "data",
        "events",
        "has_epochs",
        "has_identities",
        "has_levels",
        "has_lineage",
        "has_merged",
        "has_tailers",
        "hears_stops",
        "held",
        "refused",
        "run_payload_max",
        "shape",
        "wake",
    )

    def __init__(self, shape: WireShape) -> None:
        self.data = bytearray()
        self.events: deque[Event] = deque()
        self.shape = shape
        self.hears_stops = False  # the peer has announced that it knows what a stop is
        self.has_lineage = False  # both sides compare what they hold before anything moves
        self.has_identities = False  # and tell which queue is which
        self.has_epochs = False  # and who has led the queue from where on
        self.has_merged = False  # also where old epochs have merged
        self.has_levels = False  # a sink says what it has synced and applied
        self.has_tailers = False  # a source says where named tailers stand
        self.run_payload_max: int | None = None  # longest excerpt in a run; None: there are none
        self.broken: str | None = None  # what ends the connection, after what came before it
        self.refused = 0  # of those that count
        self._told = 0
        self.held: list[Flushing] = []  # with a message that was held back
        self.wake: Callable[[], None] = lambda: None  # tells the shell that there is something

    def send(self, *documents: bytes) -> None:
        """Appends documents that belong together."""
        for document in documents:
            self.data += document

    def epochs_told(self, history: History) -> History | None:
        """A history as the peer is told it; None for one that knows of no epochs."""
        if not self.has_epochs:
            return None
        return history if self.has_merged else unmerged(history)

    def tell(self, event: Event) -> None:
        """Appends an event."""
        self.events.append(event)

    def check(self) -> None:
        """To be called before more of what came is taken.

        Raises:
            WireError: something in it ends the connection.
        """
        if self.broken is not None:
            raise WireError(self.broken)

    def refuse(self, message: str, *, counts: bool = True) -> None:
        """One registration or message is not acted on; the connection goes on, up to a limit.

        Args:
            counts: false for what a peer without fault may say any number of times.
        """
        self.refused += counts
        self._told += 1
        self.events.append(RegistrationRefused(message=message, count=self._told))

    def flush(self) -> None:
        """Has everything sent that was held back."""
        held, self.held = self.held, []
        for each in held:
            each.flush()

    @property
    def is_crowded(self) -> bool:
        """True while the peer takes its bytes too slowly for small messages to be added freely."""
        return len(self.data) > CROWDED_BYTES
