"""Type names: a closed table, in which each class has one short name."""

import pytest

from wire.aliases import short_name

HANDLERS = "net.openhft.chronicle.network.cluster.handlers."
QUEUE = "net.openhft.chronicle.queue.impl.single."


@pytest.mark.parametrize(
    ("type_name", "short"),
    [
        (HANDLERS + "UberHandler", "UberHandler"),
        (HANDLERS + "HeartbeatHandler", "HeartbeatHandler"),
        ("net.openhft.chronicle.network.cluster.TerminatorHandler", "TerminatorHandler"),
        (
            "software.chronicle.enterprise.queue.replication.SinkReplicationHandler",
            "SinkReplicationHandler",
        ),
        (
            "software.chronicle.enterprise.queue.replication.SourceReplicationHandler",
            "SourceReplicationHandler",
        ),
        (QUEUE + "SingleChronicleQueueStore", "SCQStore"),
        (QUEUE + "SCQIndexing", "SCQSIndexing"),
        (QUEUE + "SCQMeta", "SCQMeta"),
        (QUEUE + "SCQRoll", "SCQSRoll"),
        ("net.openhft.chronicle.queue.impl.table.SingleTableStore", "STStore"),
        ("net.openhft.chronicle.wire.WireType", "WireType"),
    ],
)
def test_full_name_and_alias_are_the_same_type(type_name: str, short: str) -> None:
    assert short_name(type_name) == short_name(short) == short


@pytest.mark.parametrize(
    "type_name",
    ["", "java.lang.Runtime", HANDLERS, "uberhandler", HANDLERS + "SinkReplicationHandler", "!set"],
)
def test_any_other_name_is_no_type(type_name: str) -> None:
    assert short_name(type_name) is None
