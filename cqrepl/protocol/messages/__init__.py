"""Every message of the protocol: dataclass on one side, wire document on the other.

The only home of wire field names. Set-up messages are written in one of two shapes, and both are
read; all other messages have one.

    shape          network                          seed
    known from     Java's public classes            the protocol's overview
    UberHandler    meta-data: handler               data: handler; its body names a cluster
    sub-handlers   one meta-data document:          two documents: meta-data csp, cid; then handler,
                   csp, cid, handler                as data for replication, else as meta-data
    names          event names; the UberHandler's   field names
                   is a field name

A message is known by the first name of its document. In a handler's body fields are found by name,
in any order; unknown ones are skipped, so that later versions can add some.
"""

from cqrepl.protocol.messages.announcement import TerminatorHandler, UberHandler
from cqrepl.protocol.messages.envelope import (
    Routing,
    read_routing,
    write_cid,
    write_registration,
    write_uber,
)
from cqrepl.protocol.messages.excerpts import (
    ns_item,
    read_acknowledgement,
    read_replication_event,
    write_acknowledgement,
    write_end_of_stream,
    write_replication_event,
)
from cqrepl.protocol.messages.liveness import HeartbeatHandler, write_heartbeat
from cqrepl.protocol.messages.names import (
    ACKNOWLEDGED,
    CID,
    CSP,
    END_OF_STREAM,
    EVENT,
    HANDLER,
    HEARTBEAT,
    HEARTBEAT_CSP,
    NANOS,
    RUN,
    SINK_HANDLER,
    SOURCE_HANDLER,
    WIRE_TYPES,
    WireShape,
)
from cqrepl.protocol.messages.offer import EXTENSION_VERSION, QueueShape, ReplicationHandler
from cqrepl.protocol.messages.registry import HANDLERS, Handler, HandlerRow
from cqrepl.protocol.messages.unknown import UnknownHandler

__all__ = [
    "ACKNOWLEDGED",
    "CID",
    "CSP",
    "END_OF_STREAM",
    "EVENT",
    "EXTENSION_VERSION",
    "HANDLER",
    "HANDLERS",
    "HEARTBEAT",
    "HEARTBEAT_CSP",
    "NANOS",
    "RUN",
    "SINK_HANDLER",
    "SOURCE_HANDLER",
    "WIRE_TYPES",
    "Handler",
    "HandlerRow",
    "HeartbeatHandler",
    "QueueShape",
    "ReplicationHandler",
    "Routing",
    "TerminatorHandler",
    "UberHandler",
    "UnknownHandler",
    "WireShape",
    "ns_item",
    "read_acknowledgement",
    "read_replication_event",
    "read_routing",
    "write_acknowledgement",
    "write_cid",
    "write_end_of_stream",
    "write_heartbeat",
    "write_registration",
    "write_replication_event",
    "write_uber",
]
