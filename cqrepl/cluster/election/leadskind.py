"""The two halves of what hosts say to each other about which of them leads (`messages.leads`).

Neither half decides anything: what comes is handed to the program, and what it says is sent.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.leads import (
    HEARS,
    LEADS,
    Hears,
    Leads,
    read_hears,
    read_leads,
    read_lease,
    write_hears,
    write_leads,
    write_lease,
)
from cqrepl.protocol.subhandler import LinkView, SubHandler
from wire import Reader, Writer

ELECTS_CAPABILITY: Final = "elects"
CSP: Final = "/cluster"
_WAITING_MAX: Final = 64  # documents of a peer that takes none: the oldest ones are worth nothing


class LeadsTold(NamedTuple):
    """A peer has said which queues it leads; `by` is the half that answers."""

    by: "Hearing"
    leads: Leads


class HearsTold(NamedTuple):
    """A peer has answered that."""

    host_id: int
    hears: Hears


class OtherLease(NamedTuple):
    """A peer has another lease than this host, in milliseconds."""

    host_id: int
    lease_ms: int


class _Half:
    """The part that sends."""

    deadline = math.inf

    def __init__(self, csp: str, link: LinkView) -> None:
        self.csp = csp
        self.link = link
        self.cid: Cid | None = None  # once it is registered
        self._waiting: deque[bytes] = deque(maxlen=_WAITING_MAX)

    def _say(self, document: bytes) -> None:
        if self.cid is not None:
            self._waiting.append(document)
            self.link.wake(self.cid)

    def tick(self, now: float) -> None:
        """Nothing is due."""

    def produce(self, room: int) -> bytes:
        return self._waiting.popleft() if self._waiting else b""

    def closed(self, reason: str) -> None:
        self.cid = None
        self._waiting.clear()


class Telling(_Half):
    """Our half where this host says which queues it leads."""

    def say(self, leads: Leads) -> None:
        """Says this."""
        self._say(write_leads(leads))

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if name != HEARS:
            return False
        self.link.tell(HearsTold(self.link.remote_id, read_hears(reader)))
        return True


class Hearing(_Half):
    """Our half where the peer does."""

    def answer(self, hears: Hears) -> None:
        """Says this."""
        self._say(write_hears(hears))

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if name != LEADS:
            return False
        self.link.tell(LeadsTold(self, read_leads(reader)))
        return True


@dataclass(frozen=True, slots=True)
class LeadsKind:
    """The row of the handler table.

    Args:
        members: the hosts that may register it.
        lease_ms: of this host.
    """

    members: frozenset[int]
    lease_ms: int
    alias: str = "!LeadsHandler"
    needs: frozenset[str] = frozenset({ELECTS_CAPABILITY})
    takes_guests: bool = False

    def read_body(self, fields: Mapping[str, Reader]) -> int:
        return read_lease(fields)

    def write_body(self, writer: Writer, body: object) -> None:
        assert isinstance(body, int)
        write_lease(writer, body)

    def accept(
        self, csp: str, cid: Cid, body: object, link: LinkView, now: float
    ) -> SubHandler | str:
        assert isinstance(body, int)
        if link.remote_id not in self.members:
            return f"host {link.remote_id} is none of this cluster"
        if body != self.lease_ms:
            link.tell(OtherLease(link.remote_id, body))
            return f"expected a lease of {self.lease_ms} ms, got {body}"
        hearing = Hearing(csp, link)
        hearing.cid = cid
        return hearing
