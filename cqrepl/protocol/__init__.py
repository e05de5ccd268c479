"""The replication protocol as a state machine: bytes and time in, events and bytes out."""

from cqrepl.protocol.connection import Connection, ConnectionConfig
from cqrepl.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from cqrepl.protocol.events import StopReason
from cqrepl.protocol.messages import QueueShape, WireShape
from cqrepl.protocol.uber import Role

__all__ = [
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
