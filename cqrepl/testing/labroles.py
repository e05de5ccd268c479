"""The start of a host of the laboratory: as a source or a sink, or as `cqrepl run` starts it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.hostplan import HostPlan, in_effect, plan_host
from cqrepl.config.reloader import Reloader
from cqrepl.host import Host, serve_host
from cqrepl.net.controlsocket import Values
from cqrepl.net.program import Program
from cqrepl.replicator.settings import HostOptions
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from cqrepl.testing.network import address_of
from cqrepl.testing.plan import SOURCE

PORT: Final = 7000
HEARTBEAT_MS: Final = 500
TIMEOUT_MS: Final = 2000
LIAR_HOST: Final = 99  # a member of each cluster, which only dials

ELECTED_WAIT_SECONDS: Final = 5.0
# of queues whose leaders are elected
ELECTED_POLICY: Final = (
    f"level: synced, from: majority, timeout: {ELECTED_WAIT_SECONDS:g}s, on_timeout: fail"
)
_BASES: Final = 'baseSourcePath: "{0}", baseSinkPath: "{0}"'

Node = Source | Sink | Host

# flow mappings, as Chronicle's documentation has them
_CLUSTER: Final = """\
!QueueReplicationCfg {{
  cluster: {{
    context: !QueueClusterContext {{
      heartbeatIntervalMs: {interval},
      heartbeatTimeoutMs: {timeout},
      {base},
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
    """The choices for the start of a host.

    Args:
        host: its id.
        programs: those that add handlers of their own.
        ack_log: the queue into which its source logs acknowledgements.
        runs: it sends and takes runs, with peers that do the same.
    """

    host: int
    programs: Sequence[Program]
    ack_log: Path | None
    runs: bool


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
        return serve_source(queues, programs=start.programs, ack_log=start.ack_log, **options)
    options["connect"] = place
    return serve_sink(queues, programs=start.programs, touch_ahead_bytes=0, **options)


# guests of a laboratory are on machines of their own
_RIGHTS: Final = (
    "hosts: [read, follow, return, lead, fetch, observe],"
    " guests: [read, fetch, submit, work, write, observe]"
)


@dataclass(kw_only=True)
class LabFile:
    """The file of a cluster as a host has it, which operators change.

    Args:
        hosts: the ids of all of them; one that only lies is known, and listens nowhere.
        masters: of the queues, by their names.
        acks: how many hosts the policy of a queue waits for, of those that have one.
        routes: from whom hosts take a queue that is passed on, by its name and their ids.
        limit: bytes of excerpts a second that each host is sent; 0 for any number.
        settings: what else stands in its `cqrepl` node.
        lease: seconds, where the leaders of the queues are elected; else 0.
        roll_cycle: of the queues that the host makes then.
    """

    hosts: Sequence[int]
    masters: dict[str, int]
    acks: Mapping[str, int] = field(default_factory=dict)
    routes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    limit: int = 0
    settings: str = ""
    lease: float = 0.0
    roll_cycle: str = ""

    def plan(self, start: HostStart, base: Path) -> HostPlan:
        """The plan that `cqrepl run` makes of the file now.

        Args:
            base: the directory of all queues of the host.
        """
        queues = [f"{name}: {{ {self._entry(name)} }}" for name in self.masters]
        rest = "" if start.ack_log is None else f', source: {{ ackLog: "{start.ack_log}" }}'
        if self.routes:
            routes = [f"{name}: {dict(vias)}" for name, vias in self.routes.items()]
            rest += f", routes: {{ {', '.join(routes)} }}"
        if self.acks:
            policies = [f"{name}: {{ {self._policy(count)} }}" for name, count in self.acks.items()]
            rest += f", ack: {{ {', '.join(policies)} }}, limitRate: {self.limit}"
        if self.lease:
            lease_ms = round(self.lease * 1000)
            rest += f", cluster: {{ election: majority, leaseTimeout: {lease_ms}ms }}"
        rest += f", {self.settings}" if self.settings else ""
        rest += f", rights: {{ '*': {{ {_RIGHTS} }} }}"
        text = _CLUSTER.format(
            interval=HEARTBEAT_MS,
            timeout=TIMEOUT_MS,
            base=f'basePath: "{base}"' if self.lease else _BASES.format(base),
            hosts="\n    ".join(map(_entry, self.hosts)),
            queues=",\n    ".join(queues),
            runs=str(start.runs).lower(),
            rest=rest,
        )
        config = read_cluster(text.encode(), "cluster.yaml")
        return plan_host(config, start.host, in_effect(config, {}, {}))

    def _entry(self, name: str) -> str:
        if self.lease:
            return f"acknowledge: true, rollCycle: {self.roll_cycle}"
        return f"acknowledge: true, masterId: {self.masters[name]}"

    def _policy(self, count: int) -> str:
        return ELECTED_POLICY if self.lease else f"level: appended, from: {count}"


def serving_by_file(start: HostStart, file: LabFile, base: Path) -> Host:
    """A host of a cluster, as `cqrepl run` starts it: it reads its file again when it is told."""
    read = partial(file.plan, start, base)
    made = read()
    served = serve_host(
        made.settings, sources=made.sources, sinks=made.sinks, programs=start.programs
    )
    reloader = Reloader(read, made)

    async def reload(_asked: Values) -> Values:
        return await reloader.reload(served)

    served.control.verbs["reload"] = reload
    return served


def _entry(host: int) -> str:
    uri = "" if host == LIAR_HOST else f', connectUri: "{_place(host)}"'
    return f"host{host}: {{ hostId: {host}{uri} }}"


def _place(host: int) -> str:
    return f"{address_of(host)}:{PORT}"
