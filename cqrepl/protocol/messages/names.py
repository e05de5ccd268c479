"""Names on the wire that stand in several messages, and the two shapes of set-up messages."""

from enum import Enum
from typing import Final

CSP: Final = "csp"
CID: Final = "cid"
HANDLER: Final = "handler"
EVENT: Final = "re"
RUN: Final = "run"  # between peers that announced it
ACKNOWLEDGED: Final = "idx"
NANOS: Final = "ns"
END_OF_STREAM: Final = "eos"
HEARTBEAT: Final = "heartbeat"
HEARTBEAT_CSP: Final = "/"
WIRE_TYPES: Final = frozenset({"BINARY_LIGHT", "BINARY"})
UBER_HANDLER: Final = "UberHandler"
HEARTBEAT_HANDLER: Final = "HeartbeatHandler"
SINK_HANDLER: Final = "SinkReplicationHandler"
SOURCE_HANDLER: Final = "SourceReplicationHandler"
TERMINATOR_HANDLER: Final = "TerminatorHandler"
QUEUES_HANDLER: Final = "QueuesHandler"  # and below: between peers that announced them
QUEUES_CSP: Final = "/cqrepl/queues"
QUEUES: Final = "queues"
QUEUES_ADDED: Final = "+"
QUEUES_REMOVED: Final = "-"
ENDED: Final = "ended"
STOPPED: Final = "stopped"
PENDING: Final = "pending"
PROVE: Final = "prove"
PROOF: Final = "proof"
PROVED: Final = "proved"
IDENTITY: Final = "identity"
SYNCED: Final = "syn"
APPLIED: Final = "apl"
WHY: Final = "why"
LEVEL: Final = "level"
COMMITTED: Final = "cmt"
TAILER: Final = "tailer"


class WireShape(Enum):
    """The layout of set-up messages in documents."""

    NETWORK = "network"
    SEED = "seed"
