"""How a host of the laboratory is started: as a source or a sink, or as `cqrepl run` starts it."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple

from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.net.program import Program
from cqrepl.replicator.host import Host, serve_host
from cqrepl.replicator.settings import HostOptions
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from cqrepl.testing.network import address_of
from cqrepl.testing.plan import SOURCE

PORT: Final = 7000
HEARTBEAT_MS: Final = 500
TIMEOUT_MS: Final = 2000
LIAR_HOST: Final = 99  # a member of each cluster, which only dials

Node = Source | Sink | Host

# flow mappings, as Chronicle's documentation has them
_CLUSTER: Final = """\
!QueueReplicationCfg {{
  cluster: {{
    context: !QueueClusterContext {{
      heartbeatIntervalMs: {interval},
      heartbeatTimeoutMs: {timeout},
      baseSourcePath: "{base}",
      baseSinkPath: "{base}",
    }}
    {hosts}
  }},
  queues: {{
    {queues}
  }},
  cqrepl: {{ runs: {runs}, sink: {{ touchAhead: 0 }}{rest} }}
}}
"""


class HostStart(NamedTuple):
    """How a host is started.

    Args:
        host: its id.
        program: the handlers of its own that it has.
        ack_log: the queue into which its source logs acknowledgements.
        runs: it sends and takes runs, with peers that do the same.
        acks: how many hosts the policy of each queue waits for; 0 for queues without one.
    """

    host: int
    program: Program | None
    ack_log: Path | None
    runs: bool
    acks: int = 0


def serving_one_way(start: HostStart, path: Path, name: str) -> AbstractAsyncContextManager[Node]:
    """The source, host 1, or one of its sinks."""
    place = f"{address_of(SOURCE)}:{PORT}"
    options: HostOptions = {
        "host_id": start.host,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "heartbeat_timeout_ms": TIMEOUT_MS,
        "runs": start.runs,
    }
    queues = {name: path}
    if start.host == SOURCE:
        options["listen"] = place
        return serve_source(queues, program=start.program, ack_log=start.ack_log, **options)
    options["connect"] = place
    return serve_sink(queues, program=start.program, touch_ahead_bytes=0, **options)


def serving_of_cluster(
    start: HostStart, hosts: Iterable[int], base: Path, names: Mapping[int, str]
) -> AbstractAsyncContextManager[Node]:
    """A host of a cluster, as `cqrepl run` starts it.

    Args:
        hosts: the ids of all of them; one that only lies is known, and listens nowhere.
        base: the directory of all of its queues.
        names: of the queues, by the ids of their masters.
    """
    plan = plan_of(start, hosts, base, names)
    return serve_host(plan.settings, sources=plan.sources, sinks=plan.sinks, program=start.program)


def plan_of(
    start: HostStart, hosts: Iterable[int], base: Path, names: Mapping[int, str]
) -> HostPlan:
    """What `cqrepl run` would do with the file of such a cluster."""
    queues = [f"{name}: {{ acknowledge: true, masterId: {each} }}" for each, name in names.items()]
    rest = "" if start.ack_log is None else f', source: {{ ackLog: "{start.ack_log}" }}'
    if start.acks:
        policies = [f"{name}: {{ level: appended, from: {start.acks} }}" for name in names.values()]
        rest += f", ack: {{ {', '.join(policies)} }}"
    text = _CLUSTER.format(
        interval=HEARTBEAT_MS,
        timeout=TIMEOUT_MS,
        base=base,
        hosts="\n    ".join(map(_entry, hosts)),
        queues=",\n    ".join(queues),
        runs=str(start.runs).lower(),
        rest=rest,
    )
    config = read_cluster(text.encode(), "cluster.yaml")
    return plan_host(config, start.host, in_effect(config, {}, {}))


def _entry(host: int) -> str:
    uri = "" if host == LIAR_HOST else f', connectUri: "{_place(host)}"'
    return f"host{host}: {{ hostId: {host}{uri} }}"


def _place(host: int) -> str:
    return f"{address_of(host)}:{PORT}"
