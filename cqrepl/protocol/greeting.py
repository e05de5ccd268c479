"""The first document of each side: who we are, whom we expect, and what we take.

Ids are written from the receiver's point of view: `remote_id` on the wire is the sender's own.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import Final

from cqrepl.protocol.capabilities import CORE_CAPABILITIES, RUNS_CAPABILITY
from cqrepl.protocol.errors import RemoteProtocolError
from cqrepl.protocol.events import said_by_peer
from cqrepl.protocol.messages import WIRE_TYPES, UberHandler, read_routing
from cqrepl.protocol.messages.announcement import GUEST, HOST, Announcement
from cqrepl.protocol.settings import ProtocolSettings
from cqrepl.protocol.subhandler import HandlerKind
from wire import Reader, WireError

GUEST_ID: Final = 0
ANY_HOST: Final = 0  # expected by a guest that does not know whom it dials
_BINARY: Final = 0x80  # set in every code that a binary document can start with
_HOST_SHIFT: Final = 48
_GUEST_CIDS: Final = 0x7FFF


def _allowed(host_id: int, guest: str, right: str, queue: str) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """The description of our side of one connection, and of what our side accepts.

    Args:
        is_dialler: our side dialled; the settings then name exactly one remote id.
        takes: the queues that a sink takes from the network.
        programs: of each program, the rows that it adds to the handler table.
        takes_guests: a peer that is no member is let in.
        refusal: why a peer may not do something with a queue: its host id and guest's name, the
            right, the queue; empty where it may.
        cid_first: cids that we choose count up from here; 0 for those of our host id.
    """

    settings: ProtocolSettings = field(default_factory=ProtocolSettings)
    is_dialler: bool
    takes: Set[str] = frozenset()
    programs: tuple[tuple[HandlerKind, ...], ...] = ()
    takes_guests: bool = True
    refusal: Callable[[int, str, str, str], str] = _allowed
    cid_first: int = 0

    @property
    def dialled_id(self) -> int:
        """The id that a dialler expects."""
        return next(iter(self.settings.remote_ids), ANY_HOST)

    @property
    def own_cid_first(self) -> int:
        """The first cid that we choose: both sides differ, as their host ids do."""
        high = _GUEST_CIDS if self.settings.guest else self.settings.host_id
        return self.cid_first or (high << _HOST_SHIFT) + 1

    @property
    def announcement(self) -> Announcement:
        """The announcement of our side."""
        guest = self.settings.guest
        needed = frozenset[str]().union(*(kind.needs for kinds in self.programs for kind in kinds))
        if self.settings.runs and not guest:  # which has no queues
            needed |= {RUNS_CAPABILITY}
        return Announcement(
            capabilities=CORE_CAPABILITIES | needed, role=GUEST if guest else HOST, name=guest
        )


def uber_of(
    config: ConnectionConfig,
    peer_id: int,
    wire_type: str = "BINARY_LIGHT",
    *,
    announces: bool,
    refused: str = "",
) -> UberHandler:
    """Our UberHandler for a peer, as that peer is to read it.

    Args:
        refused: why the peer is not let in.
    """
    own = GUEST_ID if config.settings.guest else config.settings.host_id
    return UberHandler(
        remote_id=own,
        local_id=peer_id,
        wire_type=wire_type,
        announcement=replace(config.announcement, refused=refused) if announces else None,
    )


def read_uber(body: memoryview) -> UberHandler:
    """The peer's UberHandler.

    Raises:
        RemoteProtocolError: the document is none.
    """
    if not body or not body[0] & _BINARY:
        raise RemoteProtocolError("a binary UberHandler expected, text or nothing came")
    try:
        handler = read_routing(Reader(body)).handler
    except WireError as error:
        raise RemoteProtocolError(f"an UberHandler expected, got {error}") from error
    if not isinstance(handler, UberHandler):
        raise RemoteProtocolError("an UberHandler expected before any other document")
    return handler


def is_guest(handler: UberHandler) -> bool:
    """True for a peer that is no member: it has id 0 and says so."""
    announced = handler.announcement
    return handler.remote_id == GUEST_ID and announced is not None and announced.role == GUEST


def refusal(handler: UberHandler, config: ConnectionConfig) -> str | None:
    """The reason that the two sides do not go together; None when they do."""
    announced = handler.announcement
    if announced is not None and announced.refused and config.is_dialler:
        return said_by_peer(announced.refused)
    settings = config.settings
    own = GUEST_ID if settings.guest else settings.host_id
    if handler.remote_id == own and not is_guest(handler):
        return f"both sides have host id {own}"
    if handler.local_id != own and not (is_guest(handler) and handler.local_id == ANY_HOST):
        return f"the peer expects host id {handler.local_id}, this side has {own}"
    if is_guest(handler):
        if settings.guest or not config.takes_guests:
            return "a host expected, a guest came"
    elif settings.remote_ids and handler.remote_id not in settings.remote_ids:
        wanted = ", ".join(str(each) for each in sorted(settings.remote_ids))
        return f"host id {wanted} expected, {handler.remote_id} came"
    if handler.wire_type not in WIRE_TYPES:
        wanted = " or ".join(sorted(WIRE_TYPES))
        return f"wire type {wanted} expected, {handler.wire_type!r} came"
    return None
