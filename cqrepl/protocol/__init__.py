"""The replication protocol as a state machine: bytes and time in, events and bytes out."""

from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.protocol.connection import Connection
from cqrepl.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from cqrepl.protocol.events import StopReason
from cqrepl.protocol.greeting import ConnectionConfig
from cqrepl.protocol.messages import QueueShape, WireShape
from cqrepl.protocol.settings import PAYLOAD_MAX, HeartbeatSettings, ProtocolSettings
from cqrepl.protocol.subhandler import HandlerKind, LinkView, SubHandler

__all__ = [
    "PAYLOAD_MAX",
    "AckPolicy",
    "Connection",
    "ConnectionConfig",
    "HandlerKind",
    "HeartbeatSettings",
    "LinkView",
    "LocalProtocolError",
    "ProtocolError",
    "ProtocolSettings",
    "QueueShape",
    "RemoteProtocolError",
    "StopReason",
    "SubHandler",
    "WireShape",
]
