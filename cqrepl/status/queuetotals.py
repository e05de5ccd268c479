"""All that is counted of one queue since the start of its host: one table.

A field names what it counts, for people, and where it is taken from. `cqrepl status --json`, the
metrics and the page of the queue go through the fields: a new counter is a field here, and the
place that counts it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from cqrepl.kernel.board import AckLevel
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.passedcopies import CopyDisk
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.durations import Durations, TimeCounts

Times = Mapping[str, TimeCounts]
_WORD: Final = "counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTotal:
    """The meaning of a field.

    Args:
        metric: its name among the metrics, without its unit's suffix `_total`; of times it ends in
            `_seconds`.
        says: a sentence.
        label: a few words, for tables.
        of_source, of_sink: take it from a queue in that role; None where that role has none.
    """

    metric: str
    says: str
    label: str
    of_source: Callable[[SourceQueue], Any] | None = None
    of_sink: Callable[[SinkQueue], Any] | None = None


def _counted(**given: Any) -> dict[str, QueueTotal]:
    return {_WORD: QueueTotal(**given)}


def _waits(queue: SourceQueue) -> Times:
    return {level.name.lower(): each.now() for level, each in queue.leading.waited.items()}


def _syncs(durations: Durations | None) -> Times:
    return {} if durations is None else {AckLevel.SYNCED.name.lower(): durations.now()}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTotals:
    """The counts of one queue in one role; None for those that the role has not."""

    excerpts: int | None = field(
        default=None,
        metadata=_counted(
            metric="cqrepl_queue_excerpts",
            says="Excerpts that were sent, or taken in, since the start.",
            label="excerpts since the start",
            of_source=lambda queue: queue.counters.drained().sent_once.excerpts,
            of_sink=lambda queue: queue.counters.drained().received.excerpts,
        ),
    )
    bytes: int | None = field(
        default=None,
        metadata=_counted(
            metric="cqrepl_queue_payload_bytes",
            says="Bytes of their payloads.",
            label="bytes of payload",
            of_source=lambda queue: queue.counters.drained().sent_once.payload_bytes,
            of_sink=lambda queue: queue.counters.drained().received.payload_bytes,
        ),
    )
    returned: int | None = field(
        default=None,
        metadata=_counted(
            metric="cqrepl_queue_returned_excerpts",
            says="Excerpts that sinks have given back.",
            label="excerpts that came back",
            of_source=lambda queue: queue.returned_excerpts,
        ),
    )
    unknown: int | None = field(
        default=None,
        metadata=_counted(
            metric="cqrepl_queue_unknown_waits",
            says="Waits that ended without knowing whether hosts have what they waited for.",
            label="waits that ended without knowing",
            of_source=lambda queue: queue.leading.unknown_waits,
        ),
    )
    waits: Times | None = field(
        default=None,
        metadata=_counted(
            metric="cqrepl_acknowledgement_seconds",
            says="How long programs here waited until as many hosts as their policy says had it.",
            label="waits for hosts",
            of_source=_waits,
        ),
    )
    syncs: Times | None = field(
        default=None,
        metadata=_counted(
            metric="cqrepl_sync_seconds",
            says="How long syncs of the files of the queue to the disk took.",
            label="syncs",
            of_source=lambda queue: _syncs(
                None if isinstance(queue.disk, CopyDisk) else queue.disk.sync_times
            ),
            of_sink=lambda queue: _syncs(queue.disk.sync_times if queue.is_open else None),
        ),
    )

    def values(self) -> dict[str, object]:
        """Them as plain values; those that the role has."""
        found: dict[str, object] = {}
        for name, _ in table():
            value = getattr(self, name)
            if isinstance(value, Mapping):
                value = {
                    level: {"counts": list(each.counts), "seconds": each.seconds}
                    for level, each in value.items()
                }
            if value is not None:
                found[name] = value
        return found


def table() -> Iterator[tuple[str, QueueTotal]]:
    """The fields, and what each counts."""
    for each in fields(QueueTotals):
        yield each.name, each.metadata[_WORD]


def totals_of(queue: SourceQueue | SinkQueue) -> QueueTotals:
    """The counts of a queue as they are now; in the host's own thread."""
    if isinstance(queue, SourceQueue):
        takes = {name: each.of_source for name, each in table() if each.of_source}
        return QueueTotals(**{name: take(queue) for name, take in takes.items()})
    takes_in = {name: each.of_sink for name, each in table() if each.of_sink}
    return QueueTotals(**{name: take(queue) for name, take in takes_in.items()})
