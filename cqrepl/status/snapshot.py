"""A snapshot of what a host does right now, as plain values: `v` is the version of their form.

    a host    {"v": 1, "host": 1, "process": 4711, "release": "0.1.0", "listens": "127.0.0.1:9001",
               "peers": [...], "queues": [...], "services": {...}, "tls": {...}}
    a service by the name of its queue: {"board", "serves": this host does, "tasks", "workers",
               "fault": why it has ended here, "checkpoint": "epoch 1, 0x..."}
    a peer    {"host": 2, "state": "connected" | "away", "name": "host 2 at 127.0.0.1:41522",
               "limit": bytes of excerpts a second that it is sent, null for any number,
               "tls": "plain", or the subject and the URIs of the peer's certificate; null: away}
    tls       null where this host has no TLS; else {"certificate": subject and URIs of its own,
              "ends": in seconds since 1970, "warning": what is wrong, or about to be; or empty}
    a queue   {"name", "role": "source", "path", "last", "excerpts", "bytes", "state", "sinks"}
              {"name", "role": "sink", "path", "last", "excerpts", "bytes", "state", "master",
              "lag"}
              both with "epoch": null where no host was ever promoted, else {"number": of the
              latest that this host has promised, "leader": the host that leads in it, "start": its
              first index, null where it has not begun as far as is known here, "leads": whether
              this host does}
              both with "path_of_hosts": of a sink the ids of the hosts that it came by, when it was
              offered last; of a source these with its own, where it is taken in here, too: else
              none. One that is passed on stands there twice
              both with "unproved": why something of it is, though it has streamed for five seconds;
              null where it is not
              both with "election": null where an operator promotes hosts; else {"by": "majority" |
              "zookeeper", "state": of the election here, "leader": the host that is heard, or this
              one, null for none, "members": [...], "preferred": the one that leads first, "lease":
              seconds of `leaseTimeout`, "lease_left": seconds that the lease of this host which
              leads holds on, "hear": members that hear it, "cannot_elect": members that keep all
              others from electing, "refused": why it was not elected last, "on_role": what was
              wrong with the last command of `onRole`}
              of a source "returned": how many excerpts that it lacked sinks have given back since
              the start
              of a source that is open "unknown": how many waits by a policy have ended without
              knowing whether hosts have what they waited for
              both with what `queuetotals` counts: "excerpts", "bytes"; "waits" and "syncs", by
              level: {"counts": of times up to each of `BOUNDS`, the last one above all, "seconds":
              all together}
    a sink    {"host": 2, "state", "sent", "excerpts", "bytes", "acknowledged", "claims", "lag",
              "kept_back"}
    kept_back of a sink, and of a queue that is taken in: {"synced": why no more is known to be so,
              "applied": the same}; only those that there is a reason for

Indexes are texts, `0x...`, or null where there is none. `excerpts` and `bytes` were sent, or taken
in, since the start: of a sink to it, of a queue to the sink that was sent most, so that an excerpt
counts once for any number of sinks. `lag` counts excerpts that a sink has not acknowledged, or was
not sent where none acknowledges; null where that spans cycles. Of a queue that is taken in it
counts what its copy lacks of what the source told that it had when the stream began; null where
that is not known. `claims` is of a sink that cannot prove what it holds: the index up to which it
says that it has all, and was not sent it. No mark counts that. A state is `live`, `away` (no
connection), `waits` (connected, and not streaming), `paused: ...` or `stopped: ...`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from cqrepl._version import VERSION
from cqrepl.cluster.election.electiondesk import ElectionDesk
from cqrepl.kernel.board import AckLevel
from cqrepl.net.link import Session
from cqrepl.net.pump import Pump
from cqrepl.queue import QueueError
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of, format_index
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.hostparts import HostParts
from cqrepl.replicator.incoming.copylevels import kept_back
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.marks.counters import Tally
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.status.queuetotals import totals_of
from cqrepl.surroundings import surroundings

VERSION_OF_FORM: Final = 1
_NS: Final = 1_000_000_000
Values = dict[str, object]
Services = Mapping[str, Callable[[], Mapping[str, object]]]


class ShownHost(HostParts, Protocol):
    """The parts of a host that are shown."""

    @property
    def elections(self) -> ElectionDesk | None: ...


def snapshot_of(host: ShownHost, services: Services | None = None) -> Values:
    """The values that tell what a host does right now; in its own thread.

    Args:
        services: what those that run beside it say of themselves, by their queues.
    """
    endpoint = host.endpoint
    connections = endpoint.connections
    peers = sorted(endpoint.protocol.remote_ids | connections.keys())
    return {
        "v": VERSION_OF_FORM,
        "host": endpoint.protocol.host_id,
        "process": os.getpid(),
        "release": VERSION,
        "listens": ", ".join(map(str, endpoint.listens)) or None,
        "peers": [_peer(host, each, connections.get(each)) for each in peers],
        "queues": [
            *_late(host),
            *(_source(host, each, peers) for each in host.source.queues.values()),
            *(_sink(host, each) for each in host.sink.queues.values()),
        ],
        "tls": _tls(host),
        "services": {name: dict(told()) for name, told in (services or {}).items()},
    }


def _election(host: ShownHost, name: str) -> Values | None:
    return None if host.elections is None else host.elections.fields(name)


def _peer(host: HostParts, host_id: int, connection: tuple[Pump, Session] | None) -> Values:
    limit = host.endpoint.settings.limit_of(host_id) or None
    if connection is None:
        return {"host": host_id, "state": "away", "name": None, "limit": limit, "tls": None}
    pump = connection[0]
    line = host.endpoint.gate.line_of(pump)
    return {
        "host": host_id,
        "state": "connected",
        "name": pump.label,
        "limit": limit,
        "tls": "plain" if line is None else str(line.peer),
    }


def _tls(host: HostParts) -> Values | None:
    credentials = host.endpoint.gate.credentials
    if credentials is None:
        return None
    return {
        "certificate": str(credentials.own),
        "ends": credentials.own.ends,
        "warning": credentials.warning(surroundings().wall_ns() / _NS),
    }


def _late(host: HostParts) -> Iterator[Values]:
    for name in host.source.late:
        word = host.source.late_word(name)
        yield {"name": name, "role": "source", "state": word, "sinks": []}


def _source(host: ShownHost, queue: SourceQueue, peers: Iterable[int]) -> Values:
    totals = totals_of(queue)  # first of all: it has lanes tell what they have done
    is_passed_on = queue.copy is not None
    takers = host.settings.source.takers_of(queue.name, is_passed_on=is_passed_on)
    shown = [each for each in peers if takers is None or each in takers]
    last = trouble = None
    try:
        last = queue.queue.last_index()
    except (QueueError, OSError) as error:
        trouble = str(error)
    return {
        "name": queue.name,
        "role": "source",
        "path": str(queue.path),
        "last": _shown(last),
        **totals.values(),
        "state": queue.life.word(trouble),
        "epoch": _epoch(host, queue),
        "election": _election(host, queue.name),
        "path_of_hosts": list(queue.passed_by),
        "unproved": queue.unproved.why,
        "sinks": [_sink_of(host, queue, each, last) for each in shown],
    }


def _sink_of(host: HostParts, queue: SourceQueue, host_id: int, last: Index | None) -> Values:
    marks = queue.marks_of(host_id)
    sent = queue.counters.sent_to.get(host_id, Tally())
    state = _state_of(host, queue, host_id)
    for stop in host.source.stops:
        if (stop.name, stop.host_id) == (queue.name, host_id):
            state = f"stopped: {stop.message}"
    mark = marks.acknowledged if host.source.asks_ack(queue.name) else marks.sent
    try:
        lag = _lag(queue, mark, last)
    except (QueueError, OSError):
        lag = None  # the state of the queue tells why
    return {
        "host": host_id,
        "state": state,
        "sent": _shown(marks.sent),
        "excerpts": sent.excerpts,
        "bytes": sent.payload_bytes,
        "acknowledged": _shown(marks.acknowledged),
        "claims": _shown(_claims_of(host, queue, host_id)),
        "lag": lag,
        "kept_back": _kept_back(queue.kept_back().get(host_id, {})),
    }


def _state_of(host: HostParts, queue: SourceQueue, host_id: int) -> str:
    connection = host.endpoint.connections.get(host_id)
    if connection is None:
        return "away"
    words = [each.word(queue.name) for each in sessions_of(SourceSession, [connection[1]])]
    return words[0] if words else "waits"


def _claims_of(host: HostParts, queue: SourceQueue, host_id: int) -> int | None:
    connection = host.endpoint.connections.get(host_id)
    sessions = [] if connection is None else sessions_of(SourceSession, [connection[1]])
    found = [each for session in sessions for each in session.outgoing.values()]
    return max((each.claims for each in found if each.queue is queue), default=None)


def _lag(queue: SourceQueue, mark: int, last: Index | None) -> int | None:
    """Excerpts behind a mark; None where that spans cycles, and would have to be counted."""
    if last is None or last <= mark:
        return 0
    shift = queue.queue.layout.roll_cycle.shift
    if mark > 0:
        return last - mark if cycle_of(Index(mark), shift) == cycle_of(last, shift) else None
    first = queue.queue.first_index()
    is_one_cycle = first is not None and cycle_of(first, shift) == cycle_of(last, shift)
    return last - first + 1 if first is not None and is_one_cycle else None


def _lag_of_copy(queue: SinkQueue) -> int | None:
    """Excerpts that a copy lacks of those that its source told of; None where that is not known."""
    if queue.owner is None or not queue.is_open:
        return None
    if queue.offered_end == NEXT_OF_EMPTY:
        return 0
    told, held = Index(queue.offered_end - 1), queue.known_last
    if held is None:
        return None
    shift = queue.queue.layout.roll_cycle.shift
    if held < told and cycle_of(Index(held), shift) != cycle_of(told, shift):
        return None
    return max(told - held, 0)


def _epoch(host: HostParts, queue: SourceQueue | SinkQueue) -> Values | None:
    if not queue.epochs.are_known or not queue.epochs.now.promised:
        return None
    now = queue.epochs.now
    return {
        "number": now.promised,
        "leader": now.promised_to,
        "start": format_index(now.history[-1].start) if now.is_begun else None,
        "leads": isinstance(queue, SourceQueue) and now.may_lead(host.endpoint.protocol.host_id),
    }


def _sink(host: ShownHost, queue: SinkQueue) -> Values:
    return {
        "name": queue.name,
        "role": "sink",
        "path": str(queue.path),
        "last": _shown(queue.known_last),
        **totals_of(queue).values(),
        "state": queue.life.word,
        "master": queue.master_id,
        "lag": _lag_of_copy(queue),
        "epoch": _epoch(host, queue),
        "election": _election(host, queue.name),
        "path_of_hosts": list(queue.way.passed_by),
        "unproved": queue.unproved.why,
        "kept_back": _kept_back(kept_back(queue)) if queue.is_open else {},
    }


def _kept_back(whys: Mapping[AckLevel, str]) -> Values:
    return {level.name.lower(): why for level, why in whys.items() if why}


def _shown(index: int | None) -> str | None:
    return None if index is None or index <= 0 else format_index(index)
