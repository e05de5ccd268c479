"""The settings of a host: one node of each layer, and what its sources and sinks are to do.

`host_settings` makes the tree from the keys that the API has; the commands go the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self, TypedDict, Unpack

from cqrepl.net.address import Address
from cqrepl.net.errors import Refused
from cqrepl.net.settings import NetSettings, pausing_named
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.protocol import AckPolicy, HeartbeatSettings, ProtocolSettings, WireShape
from cqrepl.protocol.settings import PAYLOAD_MAX
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.replicator.agreement.consent import ReturnSettings
from cqrepl.replicator.electionsettings import ElectionSettings

NO_HOST: Final = 0  # in the place of a master, where the file of a cluster names none


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The settings of a host for the queues that it streams.

    Args:
        acknowledge: ask for acknowledgements.
        ack_log: directory of the log of acknowledgements; one below it for each of several queues.
        returns: whose back copy is taken.
        wait_for_seconds: after another start of the machine, what a power cut may have torn is
            streamed to no sink before a copy was compared, for so long.
        wait_for: only if one of these hosts is known to have a copy; None: any.
        unacknowledged: names of queues for which none is asked for all the same.
        policies: when what is written to a queue counts as safe, by its name: appends of a program
            wait for that. A queue without one: as soon as one host has appended it, and appends
            wait for no host.
        source_ids: what sinks are told as the source id of a queue, by its name; else its own.
        made_with: roll cycles of queues, by name: one that is not there is made with it.
        all_tailers: sinks keep where all named tailers stand; else those whose names begin
            `replicated:`.
        takers: ids of the hosts that take a queue from here by the file of the cluster, by name.
        led_takers: the same of those that do while this host leads the queue, which a promotion may
            have made it do.
        exclusive: names of queues that other processes do not append to while this host streams
            them.
    """

    acknowledge: bool = True
    unacknowledged: frozenset[str] = frozenset()
    policies: Mapping[str, AckPolicy] = field(default_factory=dict)
    source_ids: Mapping[str, int] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)
    takers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    led_takers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    exclusive: frozenset[str] = frozenset()
    ack_log: Path | None = None
    returns: ReturnSettings = field(default_factory=ReturnSettings)
    wait_for_seconds: float = WAIT_FOR_SECONDS
    wait_for: frozenset[int] | None = None
    all_tailers: bool = False

    def asks_ack(self, name: str) -> bool:
        """True when the sinks of this queue are to acknowledge."""
        return self.acknowledge and name not in self.unacknowledged

    def acks_of(self, name: str) -> int:
        """The number of copies that a write to this queue waits for; at least 1."""
        policy = self.policies.get(name)
        return 1 if policy is None else policy.hosts_min or 1

    def takers_of(self, name: str, *, is_passed_on: bool) -> frozenset[int] | None:
        """The hosts that take this queue from here; None where any may.

        Args:
            is_passed_on: it is taken in here, and not led.
        """
        return (self.takers if is_passed_on else self.led_takers).get(name)

    def waits_for(self, hosts: Iterable[int]) -> bool:
        """True when one of these hosts, which have copies, is waited for."""
        return any(self.wait_for is None or host in self.wait_for for host in hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The settings of a host for the queues that it takes in.

    Args:
        roll_cycle: of a new queue whose source does not say its own, as Java's do not.
        touch_ahead_bytes: so many bytes of each queue's file are brought into memory ahead of the
            writer, by a thread of its own; 0 for none; None for 8 MiB where there are three
            processors. The plain kernel cannot.
        append_log: directory of a log of when excerpts were appended; one below it for each of
            several queues.
        min_free_bytes: where less is free on a queue's disk, it pauses; 0: it is not looked at.
        any_cycle: take a first index that is of a day far from this host's clock.
        puts_aside: where a copy differs from its source's queue, what it has from there on goes to
            quarantine, and comes again; else the queue stops.
        roll_cycles: the same as `roll_cycle` of single queues, by name.
        start_locked: names of queues that are locked for writers from the start, whatever is known
            of their leaders.
        masters: ids of the only hosts that queues are taken from, by name; else any host's. 0:
            from none before it leads in an epoch.
        routes: of each queue that a host of the cluster takes from another one than its master, by
            name: by the id of the host that takes it, that of the other one.
    """

    roll_cycle: str = "FAST_DAILY"
    touch_ahead_bytes: int | None = None
    append_log: Path | None = None
    min_free_bytes: int = 0
    any_cycle: bool = False
    puts_aside: bool = False
    roll_cycles: Mapping[str, str] = field(default_factory=dict)
    masters: Mapping[str, int] = field(default_factory=dict)
    routes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    start_locked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The root of the tree.

    Args:
        sources: name on the wire and directory of each queue that is streamed.
        sinks: the same of each that is taken in. One that is in both, with one directory, is taken
            in from the host that `sink.masters` names, and passed on.
        scrub_bytes_per_s: so many bytes of store files are read once more, round after
            round, and compared with what they held; 0: none.
        election: how the leaders of its queues are elected; None: an operator promotes hosts.
        run_dir: directory of the socket at which `cqrepl status` and others ask the host, and tell
            it what to do: `usual_run_dir()` for theirs. It also keeps out a second host of this id
            on the same directories. None: there is none.
        members: ids of the hosts that have a copy of a queue, by its name; of any other queue all
            hosts of the cluster. Where copies have promised an epoch, its members go before these.
        awaits_leader: an election says which host leads. All queues are taken in when the host
            starts, whatever it has promised, and the masters that are named count for nothing. This
            host leads a queue once it is promoted, in a new epoch.

    Raises:
        ValueError: nodes that do not fit together.
        Refused: a host id that both sides would have.
    """

    net: NetSettings
    protocol: ProtocolSettings = field(default_factory=ProtocolSettings)
    source: SourceSettings = field(default_factory=SourceSettings)
    sink: SinkSettings = field(default_factory=SinkSettings)
    sources: Mapping[str, Path | str] = field(default_factory=dict)
    sinks: Mapping[str, Path | str] = field(default_factory=dict)
    scrub_bytes_per_s: int = 0
    run_dir: Path | str | None = None
    awaits_leader: bool = False
    members: Mapping[str, frozenset[int]] = field(default_factory=dict)
    election: ElectionSettings | None = None

    @classmethod
    def of(
        cls,
        *,
        sources: Mapping[str, Path | str] | None = None,
        sinks: Mapping[str, Path | str] | None = None,
        source: SourceSettings | None = None,
        sink: SinkSettings | None = None,
        run_dir: Path | str | None = None,
        **options: Unpack["HostOptions"],
    ) -> Self:
        """The settings of a host with these queues, from what a user gives.

        Args:
            source: what it does with those that it streams.
            sink: what with those that it takes in.
            run_dir: directory of the socket at which it can be asked; None: there is none.
            options: where and how to reach the peers: `HostOptions`.

        Raises:
            ValueError: it does not fit together; one sentence says how.
            TypeError: a value of another kind, as queues where settings go.
            Refused: a host id that both sides would have.
        """
        for name, given, kind in (
            ("source", source, SourceSettings),
            ("sink", sink, SinkSettings),
            ("sources", sources or {}, Mapping),
            ("sinks", sinks or {}, Mapping),
        ):
            if given is not None and not isinstance(given, kind):
                wanted = "names and directories of queues" if kind is Mapping else kind.__name__
                raise TypeError(f"{wanted} expected for {name!r}, {type(given).__name__} came")
        own, other = (2, 1) if sinks or not sources else (1, 2)
        made = host_settings(own, other, source=source, sink=sink, **options)
        return cls(
            net=made.net,
            protocol=made.protocol,
            source=made.source,
            sink=made.sink,
            sources=sources or {},
            sinks=sinks or {},
            scrub_bytes_per_s=made.scrub_bytes_per_s,
            run_dir=run_dir,
        )

    def __post_init__(self) -> None:
        ids = self.protocol.remote_ids
        is_unknown = bool(self.protocol.guest) and not ids
        if self.net.connect is not None and len(ids) != 1 and not is_unknown:
            raise ValueError("a side that connects expects one remote id")
        if self.protocol.host_id in ids and not self.protocol.guest:
            raise Refused(
                f"host id {self.protocol.host_id} is this side's own and the remote id: "
                "they must differ"
            )
        if self.election is not None:
            object.__setattr__(self, "awaits_leader", True)  # it is frozen
        if self.awaits_leader:
            self._await_leader()

    def _await_leader(self) -> None:
        if both := sorted(self.sources.keys() & self.sinks.keys()):
            raise ValueError(f"queue {both[0]!r}: expected no route under an election, got one")
        sinks = {**self.sources, **self.sinks}
        sink = replace(self.sink, masters=dict.fromkeys(sinks, NO_HOST))
        for name, value in (("sources", {}), ("sinks", sinks), ("sink", sink)):
            object.__setattr__(self, name, value)  # it is frozen


class HostOptions(TypedDict, total=False):
    """The options that every source and sink can be given.

    listen: `HOST:PORT`, or `:PORT` for every IPv4 address; port 0 lets the system choose: see
        `port`. Or several of them.
    connect: `HOST:PORT` of a listening peer; or of several, by the ids of their hosts, each of
        which is dialled. Exactly one of the two is given.
    host_id: 1 to 127; 1 for a source, 2 for a sink and a host of both.
    remote_ids: host ids that are accepted; any but our own when empty. One that dials expects this
        one: 2 for a source, 1 for any other, when there is none. Not given with `connect` by ids.
    heartbeat_interval_ms: time between heartbeats, at least 500; 20,000 if not given.
    heartbeat_timeout_ms: silence that ends a connection; at least 1,000 and above the interval;
        40,000 if not given.
    payload_max: longest excerpt in bytes that is sent or taken; 16 MiB if not given.
    wire_shape: layout of the set-up messages that are written.
    runs: many excerpts go in one document, where the peer takes that; so it is if not given.
    gives_up: one that dials stops after 30 s without success, one that listens 30 s after its last
        peer has gone.
    scrub_bytes_per_s: so many bytes of store files are read once more each second, round
        after round, and compared with what they held; 0, none, if not given.
    limit_bytes_per_s: so many bytes of excerpts each peer is sent a second, what is live before
        what catches up; 0, any number, if not given.
    pauser: how a source waits for the next excerpt. `busy` never sleeps and keeps a core for each
        sink; `balanced` sleeps microseconds while excerpts come; `sleepy` milliseconds.
    tls: which connections are encrypted, and by which certificates; none if not given.
    """

    listen: str | Sequence[str] | None
    connect: str | Mapping[int, str] | None
    host_id: int
    remote_ids: Iterable[int]
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    payload_max: int
    wire_shape: WireShape
    runs: bool
    gives_up: bool
    scrub_bytes_per_s: int
    limit_bytes_per_s: int
    pauser: str
    tls: TlsSettings


def host_settings(
    host_id_default: int,
    remote_id_default: int,
    *,
    source: SourceSettings | None = None,
    sink: SinkSettings | None = None,
    **options: Unpack[HostOptions],
) -> HostSettings:
    """The tree, from what a user gives.

    Raises:
        ValueError: it does not fit together; one sentence says how.
        Refused: a host id that both sides would have.
    """
    listen, connect = options.get("listen"), options.get("connect")
    ids = frozenset(options.get("remote_ids", ()))
    peers: dict[int, Address] = {}
    if isinstance(connect, Mapping):
        if listen:
            raise ValueError("addresses to listen on or to connect to expected, both came")
        peers = _peers(connect, ids)
        ids, connect = frozenset(peers), None
    elif connect is not None:
        ids = ids or frozenset({remote_id_default})
    usual = HeartbeatSettings()
    texts = (listen,) if isinstance(listen, str) else listen or ()
    listens = [Address.listening(each) for each in texts]
    net = NetSettings(
        listen=listens[0] if listens else None,
        also_listen=tuple(listens[1:]),
        connect=None if connect is None else Address.parse(connect),
        peers=peers,
        gives_up=options.get("gives_up", False),
        pausing=pausing_named(options.get("pauser", "balanced")),
        limit_bytes_per_s=options.get("limit_bytes_per_s", 0),
        tls=options.get("tls", NO_TLS),
    )
    protocol = ProtocolSettings(
        host_id=options.get("host_id", host_id_default),
        remote_ids=ids,
        heartbeat=HeartbeatSettings(
            interval_ms=options.get("heartbeat_interval_ms", usual.interval_ms),
            timeout_ms=options.get("heartbeat_timeout_ms", usual.timeout_ms),
        ),
        payload_max=options.get("payload_max", PAYLOAD_MAX),
        shape=options.get("wire_shape", WireShape.NETWORK),
        runs=options.get("runs", True),
    )
    return HostSettings(
        net=net,
        protocol=protocol,
        source=source or SourceSettings(),
        sink=sink or SinkSettings(),
        scrub_bytes_per_s=options.get("scrub_bytes_per_s", 0),
    )


def _peers(connect: Mapping[int, str], ids: frozenset[int]) -> dict[int, Address]:
    """The addresses of the hosts that are dialled.

    Raises:
        ValueError: two have the same, or ids that are accepted came beside.
    """
    if ids:
        raise ValueError("no remote ids expected beside the addresses of hosts by their ids")
    found: dict[int, Address] = {}
    for host_id, text in connect.items():
        address = Address.parse(text)
        if address in found.values():
            raise ValueError(f"an address for each host expected, {address} came twice")
        found[host_id] = address
    return found


def settings_of_host(settings: object) -> HostSettings:
    """The settings of a host, as they came.

    Raises:
        TypeError: they are something else, as the path of a file.
    """
    if isinstance(settings, HostSettings):
        return settings
    raise TypeError(
        f"settings: expected HostSettings, as cqrepl.read_settings reads them, got {settings!r}"
    )
