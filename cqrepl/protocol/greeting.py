"""The first document of each side: who we are, whom we expect, and what we take.

Ids are written from the receiver's point of view: `remote_id` on the wire is the sender's own.
"""

from dataclasses import dataclass
from typing import Final

from cqrepl.protocol.errors import RemoteProtocolError
from cqrepl.protocol.messages import WIRE_TYPES, Role, UberHandler, WireShape, read_routing
from wire import Reader, WireError

PAYLOAD_MAX: Final = 16 * 1024 * 1024
_BINARY: Final = 0x80  # set in every code that a binary document can start with


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """What our side is and accepts.

    Args:
        remote_ids: host ids that the peer may have; empty for any but our own. A dialler
            names exactly one.
        queue_names: the queues that a sink takes from the network.
        cid_first: cids that we choose count up from here; the peer must not choose the same.
    """

    role: Role
    is_dialler: bool
    host_id: int
    remote_ids: frozenset[int] = frozenset()
    queue_names: frozenset[str] = frozenset()
    heartbeat_interval_ms: int = 20_000
    heartbeat_timeout_ms: int = 40_000
    payload_max: int = PAYLOAD_MAX
    shape: WireShape = WireShape.NETWORK
    cid_first: int = 1


def uber_of(config: ConnectionConfig, peer_id: int, wire_type: str = "BINARY_LIGHT") -> UberHandler:
    """Our UberHandler for a peer, as that peer is to read it."""
    return UberHandler(remote_id=config.host_id, local_id=peer_id, wire_type=wire_type)


def read_uber(body: memoryview, config: ConnectionConfig) -> UberHandler:
    """The peer's UberHandler.

    Raises:
        RemoteProtocolError: the document is none, or this side does not accept what it says.
    """
    if not body or not body[0] & _BINARY:
        raise RemoteProtocolError("a binary UberHandler expected, text or nothing came")
    try:
        handler = read_routing(Reader(body)).handler
    except WireError as error:
        raise RemoteProtocolError(f"an UberHandler expected, got {error}") from error
    if not isinstance(handler, UberHandler):
        raise RemoteProtocolError("an UberHandler expected before any other document")
    _check(handler, config)
    return handler


def _check(handler: UberHandler, config: ConnectionConfig) -> None:
    if handler.remote_id == config.host_id:
        raise RemoteProtocolError(f"both sides have host id {config.host_id}")
    if handler.local_id != config.host_id:
        raise RemoteProtocolError(
            f"the peer expects host id {handler.local_id}, this side has {config.host_id}"
        )
    if config.remote_ids and handler.remote_id not in config.remote_ids:
        wanted = ", ".join(str(each) for each in sorted(config.remote_ids))
        raise RemoteProtocolError(f"host id {wanted} expected, {handler.remote_id} came")
    if handler.wire_type not in WIRE_TYPES:
        wanted = " or ".join(sorted(WIRE_TYPES))
        raise RemoteProtocolError(f"wire type {wanted} expected, {handler.wire_type!r} came")
