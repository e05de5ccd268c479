"""Type names that may occur on the wire: a closed table from Java class names to short aliases.

Java turns a type name into a class by looking it up at run time; here a name is only ever compared
with this table. A name that is not in it stays text (threat: a peer choosing what code runs).
"""

from typing import Final

NETWORK_HANDLERS: Final = "net.openhft.chronicle.network.cluster.handlers."
NETWORK_CLUSTER: Final = "net.openhft.chronicle.network.cluster."
REPLICATION: Final = "software.chronicle.enterprise.queue.replication."
QUEUE: Final = "net.openhft.chronicle.queue.impl.single."
TABLE: Final = "net.openhft.chronicle.queue.impl.table."

_CLASSES: Final[dict[str, str]] = {
    NETWORK_HANDLERS + "UberHandler": "UberHandler",
    NETWORK_HANDLERS + "HeartbeatHandler": "HeartbeatHandler",
    NETWORK_CLUSTER + "TerminatorHandler": "TerminatorHandler",
    REPLICATION + "SinkReplicationHandler": "SinkReplicationHandler",
    REPLICATION + "SourceReplicationHandler": "SourceReplicationHandler",
    QUEUE + "SingleChronicleQueueStore": "SCQStore",
    QUEUE + "SCQIndexing": "SCQSIndexing",
    QUEUE + "SCQMeta": "SCQMeta",
    QUEUE + "SCQRoll": "SCQSRoll",
    TABLE + "SingleTableStore": "STStore",
    "net.openhft.chronicle.wire.WireType": "WireType",
}
_ALIASES: Final = frozenset(_CLASSES.values())


def short_name(type_name: str) -> str | None:
    """The alias of a known type, given by its alias or its full Java name; None for any other."""
    if type_name in _ALIASES:
        return type_name
    return _CLASSES.get(type_name)


def known_names() -> dict[str, str]:
    """Every type name of the table, full or short, with its alias."""
    return _CLASSES | {alias: alias for alias in sorted(_ALIASES)}
