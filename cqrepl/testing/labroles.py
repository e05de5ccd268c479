"""How a host of the laboratory is started: as a source or a sink, or as `cqrepl run` starts it."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

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
  cqrepl: {{ sink: {{ touchAhead: 0 }}{rest} }}
}}
"""


def serving_one_way(
    host: int, path: Path, name: str, *, program: Program | None, ack_log: Path | None
) -> AbstractAsyncContextManager[Node]:
    """The source, host 1, or one of its sinks."""
    place = f"{address_of(SOURCE)}:{PORT}"
    options: HostOptions = {
        "host_id": host,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "heartbeat_timeout_ms": TIMEOUT_MS,
    }
    queues = {name: path}
    if host == SOURCE:
        options["listen"] = place
        return serve_source(queues, program=program, ack_log=ack_log, **options)
    options["connect"] = place
    return serve_sink(queues, program=program, touch_ahead_bytes=0, **options)


def serving_of_cluster(
    host: int,
    hosts: Iterable[int],
    base: Path,
    names: Mapping[int, str],
    *,
    program: Program | None,
    ack_log: Path | None,
    acks: int,
) -> AbstractAsyncContextManager[Node]:
    """A host of a cluster, as `cqrepl run` starts it.

    Args:
        hosts: the ids of all of them; one that only lies is known, and listens nowhere.
        base: the directory of all of its queues.
        names: of the queues, by the ids of their masters.
        acks: how many hosts the policy of each queue waits for; 0 for queues without one.
    """
    plan = plan_of(host, hosts, base, names, ack_log, acks)
    return serve_host(plan.settings, sources=plan.sources, sinks=plan.sinks, program=program)


def plan_of(
    host: int,
    hosts: Iterable[int],
    base: Path,
    names: Mapping[int, str],
    ack_log: Path | None = None,
    acks: int = 0,
) -> HostPlan:
    """What `cqrepl run` would do with the file of such a cluster."""
    queues = [f"{name}: {{ acknowledge: true, masterId: {each} }}" for each, name in names.items()]
    rest = "" if ack_log is None else f', source: {{ ackLog: "{ack_log}" }}'
    if acks:
        policies = [f"{name}: {{ level: appended, from: {acks} }}" for name in names.values()]
        rest += f", ack: {{ {', '.join(policies)} }}"
    text = _CLUSTER.format(
        interval=HEARTBEAT_MS,
        timeout=TIMEOUT_MS,
        base=base,
        hosts="\n    ".join(map(_entry, hosts)),
        queues=",\n    ".join(queues),
        rest=rest,
    )
    config = read_cluster(text.encode(), "cluster.yaml")
    return plan_host(config, host, in_effect(config, {}, {}))


def _entry(host: int) -> str:
    uri = "" if host == LIAR_HOST else f', connectUri: "{_place(host)}"'
    return f"host{host}: {{ hostId: {host}{uri} }}"


def _place(host: int) -> str:
    return f"{address_of(host)}:{PORT}"
