"""The closed table of all keys: Chronicle's, and ours below `cqrepl`."""

from collections.abc import Mapping
from typing import Final

from cqrepl.cluster.checkpoints import CheckpointSettings
from cqrepl.config.gridkinds import GRID
from cqrepl.config.keykinds import (
    REQUIRED,
    VARIABLE_PREFIX,
    Key,
    Section,
    section_of,
    unused_key,
)
from cqrepl.config.operatekeys import ALARMS, LIMITS, PAGE, TLS
from cqrepl.config.persistkinds import PERSIST
from cqrepl.config.queueoptions import QUEUE_OPTIONS
from cqrepl.config.retentionkinds import RETENTIONS
from cqrepl.config.rightskeys import RIGHTS
from cqrepl.config.servicekinds import CHECKPOINT, RETENTION, TASKS
from cqrepl.config.valuekinds import (
    ADDRESSES,
    ARGUMENTS,
    BOOLEAN,
    GROUPS,
    LISTENING,
    PATH,
    POLICIES,
    ROLL_CYCLE,
    ROUTES,
    SCHEMAS,
    TEXT,
    ZOOKEEPER,
    choice,
    hosts_or,
    integer,
    rates,
    size,
    time,
)
from cqrepl.net.address import Address
from cqrepl.net.rights import ALL_USUAL
from cqrepl.net.settings import LIMIT_MAX, NetSettings
from cqrepl.protocol import HeartbeatSettings, ProtocolSettings, WireShape
from cqrepl.protocol.settings import EXCERPT_MAX, INTERVAL_MIN_MS, TIMEOUT_MIN_MS
from cqrepl.replicator.electionsettings import LEASE_SECONDS, LEASE_SECONDS_MIN, ElectionKind
from cqrepl.replicator.followfeed import JoinBy
from cqrepl.replicator.settings import HostSettings, SinkSettings, SourceSettings

# those of no key: of options, of the kernel, of builds and of tests
OTHER_VARIABLES: Final = frozenset(
    VARIABLE_PREFIX + each
    for each in (
        "CONFIG",
        "HOST_ID",
        "KERNEL",
        "BUILD_KERNEL",
        "REQUIRE",
        "TALLY",
        "SPARK_SCAN",
        "SPARK_JARS",
    )
)
_LEASE_SECONDS_MAX: Final = 3600.0
_MS_MAX: Final = 10**9
_SIZE_MAX: Final = 1 << 40
HOST_ID: Final = integer(1, 127)


_BEATS: Final = HeartbeatSettings()
_PROTOCOL: Final = ProtocolSettings()
_NET: Final = NetSettings(listen=Address("127.0.0.1", 0))
_SOURCE: Final = SourceSettings()
_SINK: Final = SinkSettings()

CONTEXT: Final = section_of(
    "context",
    ("!QueueClusterContext",),
    Key(
        name="heartbeatIntervalMs",
        kind=integer(INTERVAL_MIN_MS, _MS_MAX),
        says="time between heartbeats, on connections that this host dials",
        default=_BEATS.interval_ms,
    ),
    Key(
        name="heartbeatTimeoutMs",
        kind=integer(TIMEOUT_MIN_MS, _MS_MAX),
        says="silence that ends a connection; above the interval",
        default=_BEATS.timeout_ms,
    ),
    Key(name="baseSourcePath", kind=PATH, says="directory of the queues that are streamed"),
    Key(name="baseSinkPath", kind=PATH, says="directory of the queues that are taken in"),
    Key(name="basePath", kind=PATH, says="directory of both; $hostId stands for the host's id"),
    Key(
        name="wireType",
        kind=choice("BINARY_LIGHT", "BINARY"),
        says="both are the same bytes here",
        default="BINARY_LIGHT",
        tag="!WireType",
    ),
    unused_key("retryInterval"),
    unused_key("affinityCPU"),
    unused_key("pauserSupplier"),
    unused_key("replicationPauserSupplier"),
    unused_key("serverThreadingStrategy"),
    unused_key("procPrefix"),
    unused_key("localName"),
    unused_key("localIdentifier"),
)

HOST: Final = section_of(
    "host",
    ("!HostDetails",),
    Key(name="hostId", kind=HOST_ID, says="its id; each has its own", default=REQUIRED),
    Key(
        name="connectUri",
        kind=TEXT,
        says="HOST:PORT where it listens and is dialled, or a name out of `addresses`; a host "
        "without one only dials",
    ),
    unused_key("tcpBufferSize"),
)

QUEUE: Final = section_of(
    "queue",
    ("!ReplicatedQueueCfg",),
    Key(name="path", kind=PATH, says="directory below the base path; the queue's name if none"),
    Key(
        name="acknowledge",
        kind=BOOLEAN,
        says="sinks acknowledge what they have stored",
        default=False,
    ),
    Key(
        name="masterId",
        kind=HOST_ID,
        says="the host that streams it; all others take it in. May be left out where an election "
        "says who leads",
    ),
    Key(
        name="sourceId",
        kind=integer(0, 32767),
        says="what sinks are told as its source id; that of the queue if not given",
    ),
    Key(
        name="rollCycle",
        kind=ROLL_CYCLE,
        says="of a queue that is made here; that of `cqrepl: sink:` if not given",
    ),
)

SOURCE: Final = section_of(
    "source",
    (),
    Key(
        name="ackLog",
        kind=PATH,
        says="each acknowledgement is logged into a queue there (with several queues: below it)",
    ),
    Key(
        name="acceptReturns",
        kind=hosts_or("known", frozenset()),
        says="whose back copy is taken: of hosts that are known and prove what they hold, and of "
        "these; or of no host",
        default=_SOURCE.returns.hosts,
        is_live=True,
    ),
    Key(
        name="returnExcerpts",
        kind=integer(1, 10**12),
        says="most excerpts of one back copy",
        default=_SOURCE.returns.excerpts_max,
        is_live=True,
    ),
    Key(
        name="returnSeconds",
        kind=integer(1, 10**6),
        says="longest back copy; it keeps writers out",
        default=int(_SOURCE.returns.seconds_max),
        is_live=True,
    ),
    Key(
        name="waitFor",
        kind=hosts_or("all", None),
        says="which sinks `waitForSeconds` is for",
        default=_SOURCE.wait_for,
    ),
    Key(
        name="waitForSeconds",
        kind=integer(0, 10**6),
        says="after another start of the machine, so long no sink gets what a power cut may have "
        "torn before a known sink's copy was compared",
        default=int(_SOURCE.wait_for_seconds),
    ),
    Key(
        name="tailers",
        kind=choice("replicated", "all"),
        says="which named tailers sinks keep the positions of: those whose names begin "
        "`replicated:`, or all",
        default="all" if _SOURCE.all_tailers else "replicated",
        is_live=True,
    ),
)

SINK: Final = section_of(
    "sink",
    (),
    Key(
        name="rollCycle",
        kind=ROLL_CYCLE,
        says="of a new queue where nothing else says it",
        default=_SINK.roll_cycle,
    ),
    Key(
        name="touchAhead",
        kind=size(0, _SIZE_MAX),
        says="bytes of each queue's file that are brought into memory ahead of what is written; "
        "8MiB with three processors if not given",
        default=_SINK.touch_ahead_bytes,
    ),
    Key(
        name="appendLog",
        kind=PATH,
        says="when excerpts were appended is logged into a queue there (with several: below it)",
    ),
    Key(
        name="anyCycle",
        kind=BOOLEAN,
        says="take a first index of a day far from this host's clock",
        default=_SINK.any_cycle,
        is_live=True,
    ),
    Key(
        name="onDivergence",
        kind=choice("stop", "quarantine"),
        says="what becomes of a copy that differs from its source's queue",
        default="quarantine" if _SINK.puts_aside else "stop",
        is_live=True,
    ),
)

CLUSTER: Final = section_of(
    "cluster",
    (),
    Key(
        name="election",
        kind=choice(*(each.value for each in ElectionKind)),
        says="which host asks for promises when a leader is gone: by-hand: one that an operator "
        "promotes; majority: one of the members that hear no leader; zookeeper: the first of the "
        "candidates there. majority where 'cluster' is "
        "there without it",
        default=ElectionKind.BY_HAND.value,
    ),
    Key(
        name="leaseTimeout",
        kind=time(LEASE_SECONDS_MIN, _LEASE_SECONDS_MAX),
        says="a leader that was not heard for so long is replaced; one that no majority hears "
        "steps down. All hosts have the same",
        default=LEASE_SECONDS,
    ),
    Key(
        name="zookeeper",
        kind=ZOOKEEPER,
        says="where candidates stand with election: zookeeper",
    ),
    Key(
        name="groups",
        kind=GROUPS,
        says="queues g0, g1, ... for services, led by member 0, 1, ... of `members` first, each of "
        "which gets its group back when all is quiet unless `preferred` is false",
    ),
    Key(
        name="checkpoint",
        kind=CHECKPOINT,
        says="when services save their state: once `interval` is over or so many `records` have "
        "come; so many are kept, in `snapshots` of the queue or below `directory`",
        default=CheckpointSettings(),
    ),
    Key(
        name="retention",
        kind=RETENTION,
        says="a store file of a group goes once it is of this age, the older checkpoint that is "
        "kept has passed it, and each member has",
        default=24 * 3_600_000,
    ),
    Key(
        name="join",
        kind=choice(*(each.value for each in JoinBy)),
        says="how a host that starts comes to the state of its services: by what it has, else by "
        "what others have; only by a replay of its copy; only by a snapshot of another host",
        default=JoinBy.AUTO.value,
    ),
    Key(
        name="onRole",
        kind=ARGUMENTS,
        says="a command that is run, without a shell, with QUEUE ROLE EPOCH behind its arguments "
        "whenever this host has another role",
        default=(),
    ),
)

PROCESS: Final = section_of(
    "cqrepl",
    (),
    Key(
        name="listen",
        kind=LISTENING,
        says="address to listen on, where that is not the connectUri",
    ),
    Key(
        name="addresses",
        kind=ADDRESSES,
        says="HOST:PORT of each name that stands as a connectUri",
        default={},
    ),
    Key(
        name="ack",
        kind=POLICIES,
        says="when what is written to a queue counts as safe: level (appended, synced, applied), "
        "from (none, any, all, majority or a number), hosts, timeout, on_timeout (warn, fail, "
        "block, step_down) and window; or the name of a preset",
        default={},
    ),
    Key(
        name="queues",
        kind=QUEUE_OPTIONS,
        says="of queues, whose names may be patterns: members, the hosts that have a copy, all if "
        "not given; exclusive, the process of the host that leads alone appends; startLock, under "
        "an election, no writer gets in before this host leads",
        default={},
        is_live=True,
    ),
    Key(
        name="tasks",
        kind=TASKS,
        says="boards of tasks, each with the group that is its log, and workerLease, attempts, "
        "backoff, keepFinished and maxTasks",
        default={},
    ),
    Key(
        name="persist",
        kind=PERSIST,
        says="groups of storages, each with a queue p-GROUP, and p-GROUP-LOG for each log that an "
        "engine writes itself (ownLog); defaults, with mode (async, sync) and ackTimeout, of "
        "storages that are given none; properties, a file of the replication of FIX Antenna",
        default={},
    ),
    Key(name="grid", kind=GRID, says="map sets, each with its maps and copies", default={}),
    Key(
        name="retention",
        kind=RETENTIONS,
        says="of queues, whose names may be patterns: a host deletes store files that all have "
        "passed, but for the newest `keep`, and those younger than `keepTime`; with `freeBelow` "
        "only while less of the disk is free. It looks each `interval`",
        default=(),
        prefix="QUEUE_",  # one of a cluster has the variable without
    ),
    Key(
        name="schemas",
        kind=SCHEMAS,
        says="JSON Schema of the documents of queues, whose names may be patterns: a host keeps it "
        "as `schema.json` in the directory of each, where commands and programs find it",
        default={},
    ),
    Key(
        name="rights",
        kind=RIGHTS,
        says="what hosts (by ids, or `hosts`) and guests (by names, or `guests`) may "
        "do with queues, whose names may be patterns; nothing else then",
        default=ALL_USUAL,
        is_live=True,
    ),
    Key(
        name="routes",
        kind=ROUTES,
        says="hosts that take a queue not from its master, but from another host that takes it in",
        default={},
        is_live=True,
    ),
    Key(
        name="maxExcerpt",
        kind=size(1, EXCERPT_MAX),
        says="longest excerpt; a queue that holds a longer one stops there",
        default=_PROTOCOL.payload_max,
        is_live=True,
    ),
    Key(
        name="scrub",
        kind=size(0, _SIZE_MAX),
        says="bytes of store files that are read once more each second; 0: none",
        default=HostSettings(net=_NET).scrub_bytes_per_s,
        is_live=True,
    ),
    Key(
        name="runs",
        kind=BOOLEAN,
        says="many excerpts go in one document, to and from peers that do the same",
        default=_PROTOCOL.runs,
    ),
    Key(
        name="wireShape",
        kind=choice(*(each.value for each in WireShape)),
        says="layout of the set-up messages that are written; both are read",
        default=_PROTOCOL.shape.value,
    ),
    Key(
        name="pauser",
        kind=choice("busy", "balanced", "sleepy"),
        says="how to wait for the next excerpt",
        default=_NET.pausing.name.lower(),
    ),
    Key(
        name="runDir",
        kind=PATH,
        says="directory of the socket at which `cqrepl status` asks; that of the service or login "
        "if not given",
    ),
    Key(
        name="guests",
        kind=integer(0, 1_000_000),
        says="peers that are no members, at a time",
        default=_NET.guests_max,
        is_live=True,
    ),
    Key(
        name="guestRate",
        kind=size(1, _SIZE_MAX),
        says="bytes a second that each of them may send",
        default=_NET.guest_bytes_per_s,
        is_live=True,
    ),
    Key(
        name="limitRate",
        kind=rates(LIMIT_MAX),
        says="bytes of excerpts a second that a host is sent, what is live before what catches up: "
        "for all hosts, or as {2: 10MiB, others: 0} for each; 0: any number",
        default={},
        is_live=True,
    ),
)
# below `cqrepl`
PARTS: Final[Mapping[str, Section]] = {
    "source": SOURCE,
    "sink": SINK,
    "cluster": CLUSTER,
    "tls": TLS,
    "limits": LIMITS,
    "page": PAGE,
    "alarms": ALARMS,
}
ROOT_TAGS: Final = frozenset({"!QueueReplicationCfg", "!ChronicleQueueReplicationCfg"})


def process_keys() -> dict[str, Key]:
    """All keys below `cqrepl`, by their names with that of their part."""
    found = dict(PROCESS.keys)
    for part, section in PARTS.items():
        found |= {f"{part}.{name}": key for name, key in section.keys.items()}
    return found
