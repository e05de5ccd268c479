"""The plan of one host of a cluster: the hosts it reaches and how, and its role for each queue."""

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cqrepl.config.clusterfile import (
    ClusterConfig,
    HostEntry,
    Setting,
    Settings,
    likeness,
    load_cluster,
    nearest,
)
from cqrepl.config.electionplan import election_settings, group_places, with_groups
from cqrepl.config.errors import ConfigError
from cqrepl.config.keykinds import VARIABLE_PREFIX
from cqrepl.config.keys import OTHER_VARIABLES, process_keys
from cqrepl.config.queuemembers import options_by_queue
from cqrepl.config.queuepatterns import with_patterns
from cqrepl.config.routes import Routes
from cqrepl.config.tlskeys import tls_settings
from cqrepl.config.valuekinds import HOST_ID_SIGN, OTHERS, Unfit
from cqrepl.config.yamltree import shown
from cqrepl.net.address import Address
from cqrepl.net.limits import LimitSettings
from cqrepl.net.rights import Rights
from cqrepl.net.settings import NetSettings, pausing_named
from cqrepl.net.tlssettings import PlainSettings
from cqrepl.protocol import AckPolicy, ProtocolSettings, WireShape
from cqrepl.protocol.ackpolicy import PRESETS
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.replicator.agreement.consent import ReturnSettings
from cqrepl.replicator.settings import NO_HOST, HostSettings, SinkSettings, SourceSettings

ALONE: Final = PRESETS["queue-unacknowledged"]  # of a group with one member
_TCP: Final = "tcp://"
_SHOWN: Final = 60  # characters of the name of a variable
_ALIKE: Final = 0.8  # and more: a variable that was meant to be another one


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """All that a host is started with.

    Args:
        file: of the cluster.
        sources: names and directories of the queues that it streams.
        sinks: the same of those that it takes in.
        process: the settings of the process, by the names of their keys.
        masters: of each queue, the host that has it first of all.
        otherwise: where each queue would be, were it taken in and not streamed, or streamed and not
            taken in.
        addresses: where hosts are dialled, by their ids; of those that have one.
        config: of which it was made, with patterns as the file has them.
    """

    file: str
    settings: HostSettings
    sources: Mapping[str, Path]
    sinks: Mapping[str, Path]
    process: Settings
    masters: Mapping[str, int]
    otherwise: Mapping[str, Path]
    addresses: Mapping[int, str] = field(default_factory=dict)
    config: ClusterConfig

    @property
    def passed_on(self) -> frozenset[str]:
        """The queues that it takes in and streams."""
        return frozenset(self.sources.keys() & self.sinks.keys())


def in_effect(
    config: ClusterConfig, environ: Mapping[str, str], flags: Settings
) -> dict[str, Setting]:
    """The settings of a process: a flag goes before a variable, that before the file.

    Args:
        environ: the variables of the process.
        flags: those that were given, by the names of their keys.

    Raises:
        ConfigError: a variable has no value of its kind, or is most likely misspelled.
    """
    _check_variables(environ)
    found: dict[str, Setting] = {}
    for name, key in process_keys().items():
        text = environ.get(key.variable)
        if name in flags:
            found[name] = flags[name]
        elif text:
            try:
                found[name] = Setting(key=key, value=key.kind.parse(text), origin=key.variable)
            except Unfit as error:
                raise ConfigError(f"variable {key.variable}", None, str(error)) from None
            except (ValueError, KeyError):
                message = f"{key.kind.wanted} expected, {shown(text)} came"
                raise ConfigError(f"variable {key.variable}", None, message) from None
        else:
            found[name] = config.process.get(name) or Setting(
                key=key, value=key.default, origin="default"
            )
    return found


def _check_variables(environ: Mapping[str, str]) -> None:
    """Does nothing unless a variable is named almost like one of ours: it is misspelled then. All
    others belong to other programs.

    Raises:
        ConfigError: a variable is misspelled.
    """
    known = sorted(OTHER_VARIABLES | {key.variable for key in process_keys().values()})
    names = [each.removeprefix(VARIABLE_PREFIX) for each in known]
    for variable, text in environ.items():
        if not text or variable in known or not variable.upper().startswith(VARIABLE_PREFIX):
            continue
        name = variable[len(VARIABLE_PREFIX) :]
        near = nearest(name, names)
        if likeness(name, near) >= _ALIKE:
            message = (
                f"one of cqrepl's variables expected; the nearest one is '{VARIABLE_PREFIX}{near}'"
            )
            raise ConfigError(f"variable {variable[:_SHOWN]}", None, message)


class AddressBook:
    """The addresses of the hosts of a cluster.

    Raises:
        ConfigError: the address of a host is not known, two hosts have the same, or two cannot
            reach each other.
    """

    def __init__(self, config: ClusterConfig, process: Settings) -> None:
        self._config = config
        names = process["addresses"].value
        assert isinstance(names, dict)
        self._names: dict[str, Address] = names
        self.by_host: dict[int, Address | None] = {}
        for host_id, host in sorted(config.hosts.items()):
            address = None if host.uri is None else self._address(host, host.uri)
            if address is not None and address in self.by_host.values():
                other = next(each for each, known in self.by_host.items() if known == address)
                message = f"an address that is no other host's expected, host {other} has {address}"
                raise ConfigError(config.path, host.spot, f"{message} too")
            self.by_host[host_id] = address
        self._check_reach()

    def dialled_by(self, host_id: int) -> dict[int, Address]:
        """The hosts that this one dials: those with a lower id; all, if it has no address."""
        has_address = self.by_host[host_id] is not None
        return {
            other: address
            for other, address in self.by_host.items()
            if address is not None and other != host_id and (other < host_id or not has_address)
        }

    def _address(self, host: HostEntry, uri: str) -> Address:
        if uri in self._names:
            return self._names[uri]
        path, spot = self._config.path, host.spot
        try:
            address = Address.parse(uri.removeprefix(_TCP))
        except ValueError:
            message = "HOST:PORT, or a name that 'addresses' has one for, expected for 'connectUri'"
            raise ConfigError(path, spot, f"{message}, {shown(uri)} came") from None
        if not address.port:
            raise ConfigError(path, spot, f"a port from 1 to 65535 expected, {shown(uri)} came")
        return address

    def _check_reach(self) -> None:
        """Two hosts without an address cannot meet: neither may have a queue for the other."""
        hosts = self._config.hosts
        silent = [host_id for host_id, address in self.by_host.items() if address is None]
        masters = {queue.master_id: queue.name for queue in self._config.queues.values()}
        if name := masters.get(NO_HOST):  # any host may lead it
            masters |= dict.fromkeys(silent, name)
        for host_id in silent:
            if host_id in masters and len(silent) > 1:
                other = next(each for each in silent if each != host_id)
                message = (
                    f"'connectUri' expected for host {shown(hosts[host_id].name)} or "
                    f"{shown(hosts[other].name)}, neither has one: queue {masters[host_id]!r} "
                    "of the one does not reach the other"
                )
                raise ConfigError(self._config.path, hosts[host_id].spot, message)


def plan_host(
    config: ClusterConfig, host_id: int, process: Settings, kept: Set[str] = frozenset()
) -> HostPlan:
    """The plan of this host of the cluster. It looks for directories that fit patterns.

    Args:
        process: the settings, as `in_effect` gives them.
        kept: queues that the host has, whose directories need not be there.

    Raises:
        ConfigError: there is no such host, or its settings do not fit together.
    """
    read = config
    config = with_groups(with_patterns(config, host_id, kept), process)
    book = AddressBook(config, process)
    if host_id not in config.hosts:
        ids = ", ".join(str(each) for each in sorted(config.hosts))
        message = f"the id of a host ({ids}) expected, this host has {host_id}"
        raise ConfigError(config.path, None, message)
    options = options_by_queue(config, process)
    places = group_places(config, process)
    members = {name: each.members for name, each in places.items()} | {
        name: each.members for name, each in options.items() if each.members
    }
    routes = Routes(config, process["routes"], book.by_host, members)
    election = election_settings(config, process, members)
    all_queues = config.queues.values()
    queues = [each for each in all_queues if host_id in members.get(each.name, config.hosts)]
    out = {each.name: each.path for each in queues if each.master_id == host_id}
    into = {each.name: each.path for each in queues if each.master_id != host_id}
    sinks = _below(config, "baseSinkPath", host_id, into)
    sources = _below(config, "baseSourcePath", host_id, out)
    sources |= {name: sinks[name] for name in into if routes.takers(name, host_id)}
    try:
        settings = _host_settings(config, host_id, process, book, routes)
        sink = settings.sink
        masters = {each.name: sink.masters[each.name] for each in queues}
        exclusive = frozenset(
            each.name
            for each in queues
            if (each.is_group and not places[each.name].is_shared) or options[each.name].exclusive
        )
        locked = frozenset(each.name for each in queues if options[each.name].start_lock)
        settings = replace(
            settings,
            source=replace(settings.source, exclusive=exclusive),
            sink=replace(sink, masters=masters, start_locked=locked),
        )
    except ValueError as error:
        raise ConfigError(config.path, None, str(error)) from None
    return HostPlan(
        file=config.path,
        settings=replace(
            settings,
            sources=sources,
            sinks=sinks,
            election=election,
            members={each.name: members[each.name] for each in queues if each.name in members},
        ),
        sources=sources,
        sinks=sinks,
        process=process,
        masters={each.name: each.master_id for each in all_queues},
        otherwise=_below(config, "baseSinkPath", host_id, out)
        | _below(config, "baseSourcePath", host_id, into),
        addresses={each: str(at) for each, at in book.by_host.items() if at is not None},
        config=read,
    )


def check_places(plan: HostPlan) -> None:
    """Does nothing unless a queue lies in the directory of the host's other role, and not in that
    of the role it has by the file.

    Such a queue was not moved when another host became its master. The host would make an empty
    queue in the right directory, which would lead, or be a copy of excerpts to come. No host would
    look at what the old queue holds, or keep programs from appending to it.

    Raises:
        ConfigError: a queue has to be moved first.
    """
    for name, other in plan.otherwise.items():
        is_taken_in = name in plan.sinks
        path = plan.sinks[name] if is_taken_in else plan.sources[name]
        if _holds_queue(path) or not _holds_queue(other):
            continue
        if is_taken_in and not _was_streamed(other, plan.settings.protocol.host_id):
            continue
        role = "takes it in" if is_taken_in else "is its master"
        message = (
            f"queue {name!r}: a directory {path} expected, as this host {role}, there is"
            f" {other}: move that one there, or give both ways one directory by 'basePath'"
        )
        raise ConfigError(plan.file, None, message)


def _was_streamed(path: Path, host_id: int) -> bool:
    """True when a host of this id has streamed the queue in a directory: the queue keeps marks of
    other hosts, and none of this one. Hosts of one machine may have the same directories in
    different roles."""
    try:
        with Queue.open(path) as queue:
            hosts = queue.host_marks.load().keys()
    except (QueueError, OSError):
        return False  # what it is, is not known
    return bool(hosts) and host_id not in hosts


def _holds_queue(path: Path) -> bool:
    try:
        return holds_queue(path)
    except OSError:
        return False  # the host that opens it tells


def read_settings(
    path: Path | str, host_id: int, *, environ: Mapping[str, str] | None = None
) -> HostSettings:
    """The settings that `cqrepl run -c PATH --host-id HOST_ID` runs a host with, for a program that
    runs one itself.

    Args:
        environ: variables that go before the file; None for those of the process.

    Raises:
        ConfigError: the file or a variable is wrong; the error names file, line and column.
    """
    config = load_cluster(Path(path))
    process = in_effect(config, os.environ if environ is None else environ, {})
    plan = plan_host(config, host_id, process)
    check_places(plan)
    return plan.settings


def _below(
    config: ClusterConfig, base: str, host_id: int, queues: Mapping[str, Path]
) -> dict[str, Path]:
    """The directories of queues below a base path."""
    given = config.context[base].value or config.context["basePath"].value
    folder = Path(str(given).replace(HOST_ID_SIGN, str(host_id)))
    return {name: folder / path for name, path in queues.items()}


def _host_settings(
    config: ClusterConfig, host_id: int, process: Settings, book: AddressBook, routes: Routes
) -> HostSettings:
    values = {name: each.value for name, each in process.items()}
    listen = values["listen"] or book.by_host[host_id]
    assert isinstance(listen, Address | None)
    _check_limits(config, process["limitRate"])
    _check_plain(config, process["tls.plain"])
    net = NetSettings(
        listen=listen,
        peers=book.dialled_by(host_id),
        pausing=pausing_named(_text(values["pauser"])),
        guests_max=_integer(values["guests"]),
        guest_bytes_per_s=_integer(values["guestRate"]),
        limits=_limits(values["limitRate"]),
        limit_bytes_per_s=_rates(values["limitRate"]).get(OTHERS, 0),
        tls=tls_settings(values, host_id),
        rights=_rights(values["rights"]),
        cost=_cost(values),
    )
    protocol = ProtocolSettings(
        host_id=host_id,
        remote_ids=frozenset(config.hosts) - {host_id},
        heartbeat=config.heartbeat,
        payload_max=_integer(values["maxExcerpt"]),
        shape=WireShape(values["wireShape"]),
        runs=bool(values["runs"]),
    )
    return HostSettings(
        net=net,
        protocol=protocol,
        source=_source_settings(config, host_id, process, routes),
        sink=_sink_settings(config, host_id, values, routes),
        scrub_bytes_per_s=_integer(values["scrub"]),
        run_dir=_path(values["runDir"]),
    )


def _source_settings(
    config: ClusterConfig, host_id: int, process: Settings, routes: Routes
) -> SourceSettings:
    values = {name: each.value for name, each in process.items()}
    queues = config.queues.values()
    wait_for = _hosts(values["source.waitFor"])
    return SourceSettings(
        unacknowledged=frozenset(each.name for each in queues if not each.acknowledge),
        policies=_policies(config, process, routes, host_id),
        takers={each.name: routes.takers(each.name, host_id) for each in queues},
        led_takers={
            each.name: routes.takers(each.name, host_id, leader_id=host_id) for each in queues
        },
        source_ids={each.name: each.source_id for each in queues if each.source_id is not None},
        made_with=_roll_cycles(config, values),
        ack_log=_path(values["source.ackLog"]),
        returns=ReturnSettings(
            hosts=_hosts(values["source.acceptReturns"]),
            excerpts_max=_integer(values["source.returnExcerpts"]),
            seconds_max=_integer(values["source.returnSeconds"]),
        ),
        wait_for_seconds=_integer(values["source.waitForSeconds"]),
        wait_for=wait_for,
        all_tailers=values["source.tailers"] == "all",
    )


def _policies(
    config: ClusterConfig, process: Settings, routes: Routes, host_id: int
) -> dict[str, AckPolicy]:
    """The policy of each queue that has one, with the hosts that take the queue in where this host
    leads it: by the file, or because it was made the leader since.

    Raises:
        ConfigError: one is of no queue, waits for a host that does not take its queue in, or for
            more hosts than do.
    """
    setting = process["ack"]
    assert isinstance(setting.value, dict)
    found: dict[str, AckPolicy] = {}
    groups = {
        name: each.own_policy or PRESETS[each.policy]
        if routes.takers(name, host_id, leader_id=host_id)
        else ALONE
        for name, each in group_places(config, process).items()
    }
    for name, policy in (groups | setting.value).items():
        try:
            made = _policy(config, name, policy, routes)
            master_id = config.queues[name].master_id
            sinks = routes.takers(name, host_id, leader_id=host_id)
            found[name] = made if host_id == master_id else _led(policy, host_id, master_id, sinks)
        except ValueError as error:
            raise setting.wrong(config.path, str(error), name) from None
    return found


def _policy(config: ClusterConfig, name: str, policy: AckPolicy, routes: Routes) -> AckPolicy:
    queue = config.queues.get(name)
    if queue is None:
        near = nearest(name, config.queues)
        raise ValueError(f"a queue expected, {shown(name)} came; the nearest one is {near!r}")
    sinks = routes.takers(name, queue.master_id)  # who acknowledges to it
    others = sorted((policy.hosts or frozenset()) - sinks)
    if others:
        ids = ", ".join(str(each) for each in sorted(sinks))
        raise ValueError(f"queue {name!r}: ids of its sinks ({ids}) expected, {others[0]} came")
    if policy.hosts_min != 0 and not queue.acknowledge:
        raise ValueError(f"queue {name!r}: 'acknowledge: true' expected, as its policy waits")
    try:
        return policy.among(sinks)
    except ValueError as error:
        raise ValueError(f"queue {name!r}: {error}") from None


def _led(policy: AckPolicy, host_id: int, master_id: int, sinks: frozenset[int]) -> AckPolicy:
    """The policy where a host leads the queue in place of its master: it does not wait for itself.
    Where it is named, the master, which takes the queue in from it then, is waited for instead."""
    if policy.hosts is None or host_id not in policy.hosts:
        return policy.among(sinks)
    return replace(policy, hosts=(policy.hosts - {host_id}) | ({master_id} - {NO_HOST}))


def _sink_settings(
    config: ClusterConfig, host_id: int, values: Mapping[str, object], routes: Routes
) -> SinkSettings:
    touch_ahead = values["sink.touchAhead"]
    return SinkSettings(
        roll_cycle=_text(values["sink.rollCycle"]),
        roll_cycles=_roll_cycles(config, values),
        masters={name: routes.giver(name, host_id) for name in config.queues},
        routes=routes.by_queue,
        touch_ahead_bytes=None if touch_ahead is None else _integer(touch_ahead),
        append_log=_path(values["sink.appendLog"]),
        any_cycle=values["sink.anyCycle"] is True,
        puts_aside=values["sink.onDivergence"] == "quarantine",
    )


def _roll_cycles(config: ClusterConfig, values: Mapping[str, object]) -> dict[str, str]:
    usual = _text(values["sink.rollCycle"])
    return {each.name: each.roll_cycle or usual for each in config.queues.values()}


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value


def _check_limits(config: ClusterConfig, setting: Setting) -> None:
    """Does nothing where each limit is for a host of the cluster.

    Raises:
        ConfigError: there is no such host.
    """
    for host_id in _limits(setting.value):
        if host_id not in config.hosts:
            ids = ", ".join(str(each) for each in sorted(config.hosts))
            message = f"the id of a host ({ids}) expected, {host_id} came"
            raise setting.wrong(config.path, message, str(host_id))


def _check_plain(config: ClusterConfig, setting: Setting) -> None:
    """Does nothing where each host without TLS is one of the cluster.

    Raises:
        ConfigError: one is not.
    """
    plain = setting.value
    unknown = plain.hosts - config.hosts.keys() if isinstance(plain, PlainSettings) else ()
    for host_id in sorted(unknown):
        ids = ", ".join(str(each) for each in sorted(config.hosts))
        raise setting.wrong(
            config.path, f"plain: the id of a host ({ids}) expected, {host_id} came"
        )


def _cost(values: Mapping[str, object]) -> LimitSettings:
    handshake = values["limits.handshake"]
    assert isinstance(handshake, float)
    return LimitSettings(
        connections=_integer(values["limits.connections"]),
        per_address=_integer(values["limits.perAddress"]),
        unauthenticated=_integer(values["limits.unauthenticated"]),
        handshake_seconds=handshake,
        guest_requests_per_s=_integer(values["limits.guestRequests"]),
    )


def _rights(value: object) -> Rights:
    assert isinstance(value, Rights)
    return value


def _rates(value: object) -> dict[str, int]:
    assert isinstance(value, dict)
    return value


def _limits(value: object) -> dict[int, int]:
    """The limits of single hosts."""
    return {int(host): rate for host, rate in _rates(value).items() if host != OTHERS}


def _text(value: object) -> str:
    assert isinstance(value, str)
    return value


def _path(value: object) -> Path | None:
    assert isinstance(value, Path | None)
    return value


def _hosts(value: object) -> frozenset[int] | None:
    assert isinstance(value, frozenset | None)
    return value
