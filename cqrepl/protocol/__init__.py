"""The replication protocol as a state machine: bytes and time in, events and bytes out."""

from cqrepl.protocol.connection import Connection
from cqrepl.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from cqrepl.protocol.events import StopReason
from cqrepl.protocol.greeting import PAYLOAD_MAX, ConnectionConfig
from cqrepl.protocol.messages import QueueShape, Role, WireShape

__all__ = [
    "PAYLOAD_MAX",
    "Connection",
    "ConnectionConfig",
    "LocalProtocolError",
    "ProtocolError",
    "QueueShape",
    "RemoteProtocolError",
    "Role",
    "StopReason",
    "WireShape",
]
