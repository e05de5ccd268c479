"""The metrics of a host: one closed table, by which they are named, explained and made."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from cqrepl.page.alarms import Alarm
from cqrepl.page.hostlook import HostLook
from cqrepl.replicator.queuestate.durations import BOUNDS
from cqrepl.status.queuetotals import QueueTotal, table

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
Row = tuple[tuple[str, ...], float]
Rows = Callable[[HostLook], Iterable[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One metric.

    Args:
        labels: their values come from the configuration alone.
        rows: the values of its labels, and its own.
        counts: it only grows; its name gets `_total`.
    """

    name: str
    says: str
    labels: tuple[str, ...]
    rows: Rows
    counts: bool = False

    def family(self, sample: HostLook) -> Metric:
        """The metric, with its values."""
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        made = kind(self.name, self.says, labels=self.labels)
        for labels, value in self.rows(sample):
            made.add_metric([*labels], value)
        return made


def _queues(value: Callable[[Mapping[str, Any]], float | None]) -> Rows:
    def rows(sample: HostLook) -> Iterator[Row]:
        for queue in sample.host["queues"]:
            found = value(queue)
            if found is not None:
                yield (queue["name"], queue["role"]), float(found)

    return rows


def _sinks(value: Callable[[Mapping[str, Any]], float | None]) -> Rows:
    def rows(sample: HostLook) -> Iterator[Row]:
        for queue in sample.host["queues"]:
            for sink in queue.get("sinks", ()):
                found = value(sink)
                if found is not None:
                    yield (queue["name"], str(sink["host"])), float(found)

    return rows


def _epoch(name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda queue: queue["epoch"][name] if queue.get("epoch") else None


def _behind(sample: HostLook) -> Iterator[Row]:
    for (queue, host), seconds in sample.behind.items():
        yield (queue, str(host)), seconds


def _certificate(sample: HostLook) -> Iterator[Row]:
    if sample.host.get("tls") is not None:
        yield (), sample.host["tls"]["ends"]


_QUEUE: Final = ("queue", "role")
_SINK: Final = ("queue", "peer")
TABLE: Final = (
    Described(
        name="cqrepl_host",
        says="1 for a host that runs.",
        labels=("host", "release"),
        rows=lambda s: [((str(s.host["host"]), s.host["release"]), 1.0)],
    ),
    Described(
        name="cqrepl_peer_connected",
        says="1 while the host is connected.",
        labels=("peer",),
        rows=lambda s: [
            ((str(e["host"]),), float(e["state"] == "connected")) for e in s.host["peers"]
        ],
    ),
    Described(
        name="cqrepl_open_descriptors",
        says="File descriptors of this process.",
        labels=(),
        rows=lambda s: [((), float(s.descriptors))],
    ),
    Described(
        name="cqrepl_certificate_end_timestamp_seconds",
        says="When the certificate of this host ends, since 1970.",
        labels=(),
        rows=_certificate,
    ),
    Described(
        name="cqrepl_queue_stopped",
        says="1 while the queue has stopped.",
        labels=_QUEUE,
        rows=_queues(lambda queue: str(queue["state"]).startswith("stopped")),
    ),
    Described(
        name="cqrepl_queue_paused",
        says="1 while the queue is paused.",
        labels=_QUEUE,
        rows=_queues(lambda queue: str(queue["state"]).startswith("paused")),
    ),
    Described(
        name="cqrepl_copy_lag_excerpts",
        says="Excerpts that this copy lacks, as far as its source told.",
        labels=_QUEUE,
        rows=_queues(lambda queue: queue.get("lag") if queue["role"] == "sink" else None),
    ),
    Described(
        name="cqrepl_leader_epoch",
        says="The latest epoch that this host has promised.",
        labels=_QUEUE,
        rows=_queues(_epoch("number")),
    ),
    Described(
        name="cqrepl_is_leader",
        says="1 while this host leads the queue in that epoch.",
        labels=_QUEUE,
        rows=_queues(_epoch("leads")),
    ),
    Described(
        name="cqrepl_disk_free_bytes",
        says="Free on the disk of the queue.",
        labels=("queue",),
        rows=lambda s: [((name,), float(each.free)) for name, each in s.disks.items()],
    ),
    Described(
        name="cqrepl_disk_free_ratio",
        says="Part of the disk of the queue that is free.",
        labels=("queue",),
        rows=lambda s: [((name,), each.part_free) for name, each in s.disks.items()],
    ),
    Described(
        name="cqrepl_sink_live",
        says="1 while the sink is streamed the queue.",
        labels=_SINK,
        rows=_sinks(lambda sink: sink["state"] == "live"),
    ),
    Described(
        name="cqrepl_sink_stopped",
        says="1 while the queue has stopped at the sink.",
        labels=_SINK,
        rows=_sinks(lambda sink: str(sink["state"]).startswith("stopped")),
    ),
    Described(
        name="cqrepl_lag_excerpts",
        says="Excerpts that the sink has not acknowledged; none where that spans cycles.",
        labels=_SINK,
        rows=_sinks(lambda sink: sink["lag"]),
    ),
    Described(
        name="cqrepl_lag_seconds",
        says="For so long the sink has lacked something.",
        labels=_SINK,
        rows=_behind,
    ),
    Described(
        name="cqrepl_sent_excerpts",
        says="Excerpts that the sink was sent since the start.",
        labels=_SINK,
        rows=_sinks(lambda sink: sink["excerpts"]),
        counts=True,
    ),
    Described(
        name="cqrepl_sent_payload_bytes",
        says="Bytes of their payloads.",
        labels=_SINK,
        rows=_sinks(lambda sink: sink["bytes"]),
        counts=True,
    ),
)
_TIMED: Final = "_seconds"


def _counter(name: str, counted: QueueTotal, sample: HostLook) -> Metric:
    rows = _queues(lambda queue: queue.get(name))
    described = Described(
        name=counted.metric, says=counted.says, labels=_QUEUE, rows=rows, counts=True
    )
    return described.family(sample)


def _histogram(name: str, counted: QueueTotal, sample: HostLook) -> Metric:
    made = HistogramMetricFamily(counted.metric, counted.says, labels=(*_QUEUE, "level"))
    for queue in sample.host["queues"]:
        for level, times in queue.get(name, {}).items():
            sums = [*accumulate(times["counts"])]
            bounds = [*map(str, BOUNDS), "+Inf"]
            labels = (queue["name"], queue["role"], level)
            made.add_metric(labels, [*zip(bounds, map(float, sums), strict=True)], times["seconds"])
    return made


ALARM: Final = "cqrepl_alarm"


class _Frozen(Collector):
    def __init__(self, sample: HostLook, alarms: Iterable[Alarm]) -> None:
        self._sample = sample
        self._alarms = alarms

    def collect(self) -> Iterator[Metric]:
        for each in TABLE:
            yield each.family(self._sample)
        for name, counted in table():
            make = _histogram if counted.metric.endswith(_TIMED) else _counter
            yield make(name, counted, self._sample)
        raised = GaugeMetricFamily(ALARM, "1 for an alarm that is raised.", labels=("alarm", "of"))
        for alarm in self._alarms:
            raised.add_metric([alarm.name, alarm.subject], 1.0)
        yield raised


def names() -> frozenset[str]:
    """The names under which they are scraped."""
    found = {each.name + "_total" * each.counts for each in TABLE} | {ALARM}
    for _, counted in table():
        if counted.metric.endswith(_TIMED):
            found |= {f"{counted.metric}_{each}" for each in ("bucket", "count", "sum")}
        else:
            found.add(f"{counted.metric}_total")
    return frozenset(found)


def exposition(sample: HostLook, alarms: Iterable[Alarm]) -> bytes:
    """All of them, in the format of OpenMetrics. In any thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Frozen(sample, tuple(alarms)))
    made: Callable[[CollectorRegistry], bytes] = generate_latest
    return made(registry)
