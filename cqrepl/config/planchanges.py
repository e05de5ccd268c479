"""Finds what a new version of a cluster's file changes for a host that runs by an older one.

Queues come and go, and masters and limits change, while the host runs. Any other change is reported
as one that needs a restart; until then the old value stays in effect.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cqrepl.config.hostplan import HostPlan
from cqrepl.replicator.settings import HostSettings, SinkSettings, SourceSettings

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewValue:
    """A key's value by the older version, and by the newer one, as people write them."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMaster:
    """A queue that another host is to stream.

    Args:
        takers: ids of the hosts that take it from this one then.
    """

    name: str
    path: Path
    old: int
    new: int
    takers: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChange:
    """A queue that is to have other members.

    Args:
        settings: by the newer version.
    """

    name: str
    settings: HostSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanges:
    """The differences.

    Args:
        sources, sinks: names and directories of queues that are new, by what becomes of them.
        removed: names of those that are there no more.
        masters: queues whose master is another one.
        members: queues whose members are others.
        values: keys with other values that are taken on; names as in `config show`.
        restart: the same of those that are not.
    """

    sources: Mapping[str, Path]
    sinks: Mapping[str, Path]
    removed: tuple[str, ...]
    masters: tuple[NewMaster, ...]
    members: tuple[MemberChange, ...]
    values: Mapping[str, NewValue]
    restart: Mapping[str, NewValue]


def changes_between(old: HostPlan, new: HostPlan) -> PlanChanges:
    """The differences between two plans of one host."""
    before, after = _paths(old), _paths(new)
    both = sorted(before.keys() & after.keys())
    other = {
        name: NewValue(old=old.process[name].written, new=setting.written)
        for name, setting in new.process.items()
        if old.process[name].value != setting.value
    }
    is_live = {name: old.process[name].key.is_live for name in other}
    restart = {f"cqrepl.{name}": each for name, each in other.items() if not is_live[name]}
    restart |= dict(_of_host(old.settings, new.settings))
    for name in both:
        restart |= dict(_of_queue(old, new, name))
        if not _may_change_master(old, new, name):
            values = old.masters[name], new.masters[name]
            key = f"queues.{name}: masterId"
            restart[key] = NewValue(old=str(values[0]), new=str(values[1]))
    return PlanChanges(
        sources={name: path for name, path in new.sources.items() if name not in before},
        sinks={name: path for name, path in new.sinks.items() if name not in before},
        removed=tuple(sorted(before.keys() - after.keys())),
        masters=tuple(
            NewMaster(
                name=name,
                path=after[name],
                old=old.masters[name],
                new=new.masters[name],
                takers=new.settings.source.takers[name],
            )
            for name in both
            if before[name] == after[name]
            and old.masters[name] != new.masters[name]
            and _may_change_master(old, new, name)
        ),
        members=tuple(
            MemberChange(name=name, settings=new.settings)
            for name in both
            if old.settings.members.get(name) != new.settings.members.get(name)
        ),
        values={f"cqrepl.{name}": each for name, each in other.items() if is_live[name]},
        restart=restart,
    )


def merged(old: HostPlan, new: HostPlan) -> HostPlan:
    """The plan of a host that runs by the older one, with all of the newer one that it takes on
    while it runs; masters are as before."""
    process = {
        name: setting if setting.key.is_live else old.process[name]
        for name, setting in new.process.items()
    }
    kept = _paths(old).keys() & _paths(new).keys()
    sources = _merged_paths(old.sources, new.sources, kept)
    sinks = _merged_paths(old.sinks, new.sinks, kept)
    same = {name for name in kept & sinks.keys() if old.masters[name] == new.masters[name]}
    sources = {name: path for name, path in sources.items() if name not in same}
    sources |= {name: sinks[name] for name in same & new.passed_on}
    settings = _merged_settings(old.settings, new.settings, kept)
    takers = _merged_values(old.settings.source.takers, new.settings.source.takers, kept - same)
    led = _merged_values(
        old.settings.source.led_takers, new.settings.source.led_takers, kept - same
    )
    givers = _merged_values(old.settings.sink.masters, new.settings.sink.masters, kept - same)
    settings = replace(
        settings,
        source=replace(settings.source, takers=takers, led_takers=led),
        sink=replace(settings.sink, masters=givers),
    )
    return HostPlan(
        file=new.file,
        settings=replace(settings, sources=sources, sinks=sinks),
        sources=sources,
        sinks=sinks,
        process=process,
        masters={
            name: old.masters[name] if name in kept else master_id
            for name, master_id in new.masters.items()
        },
        otherwise=new.otherwise,
        config=new.config,
    )


def with_master(plan: HostPlan, change: NewMaster) -> HostPlan:
    """The plan once another host streams this queue."""
    sources, sinks = dict(plan.sources), dict(plan.sinks)
    own = plan.settings.protocol.host_id
    for role in (sources, sinks):
        role.pop(change.name, None)
    (sources if change.new == own else sinks)[change.name] = change.path
    masters = dict(plan.settings.sink.masters) | {change.name: change.new}
    sink = replace(plan.settings.sink, masters=masters)
    takers = dict(plan.settings.source.takers) | {change.name: change.takers}
    source = replace(plan.settings.source, takers=takers)
    settings = replace(plan.settings, source=source, sink=sink, sources=sources, sinks=sinks)
    first = dict(plan.masters) | {change.name: change.new}
    return replace(plan, sources=sources, sinks=sinks, settings=settings, masters=first)


def with_members(plan: HostPlan, change: MemberChange) -> HostPlan:
    """The plan once a queue has other members."""
    name, settings, new = change.name, plan.settings, change.settings
    source = replace(
        settings.source,
        policies=_with(settings.source.policies, new.source.policies, name),
        takers=_with(settings.source.takers, new.source.takers, name),
        led_takers=_with(settings.source.led_takers, new.source.led_takers, name),
    )
    members = _with(settings.members, new.members, name)
    return replace(plan, settings=replace(settings, source=source, members=members))


def _with(old: Mapping[str, Value], new: Mapping[str, Value], name: str) -> Mapping[str, Value]:
    """The older values, with that of one queue as in the newer ones."""
    left = {each: value for each, value in old.items() if each != name}
    return {**left, name: new[name]} if name in new else left


def _paths(plan: HostPlan) -> dict[str, Path]:
    return {**plan.sources, **plan.sinks}


def _may_change_master(old: HostPlan, new: HostPlan, name: str) -> bool:
    """False for another first host of a queue that has routes: who holds all of it, and who takes
    it from whom then, no two hosts can settle. Others follow it another way while they run."""
    if old.masters[name] == new.masters[name]:
        return True
    found = [each.process["routes"].value for each in (old, new)]
    return not any(isinstance(routes, dict) and name in routes for routes in found)


def _of_host(old: HostSettings, new: HostSettings) -> Iterator[tuple[str, NewValue]]:
    """The changes of the settings that all connections are made with."""
    beats = (old.protocol.heartbeat, new.protocol.heartbeat)
    for name, values in (
        ("heartbeatIntervalMs", [each.interval_ms for each in beats]),
        ("heartbeatTimeoutMs", [each.timeout_ms for each in beats]),
    ):
        if values[0] != values[1]:
            yield f"context.{name}", NewValue(old=str(values[0]), new=str(values[1]))
    ids = [", ".join(map(str, sorted(each.protocol.remote_ids))) for each in (old, new)]
    if ids[0] != ids[1]:
        yield "hosts", NewValue(old=ids[0], new=ids[1])
    for host_id in sorted(old.net.peers.keys() & new.net.peers.keys()):
        was, now = old.net.peers[host_id], new.net.peers[host_id]
        if was != now:
            yield f"host {host_id}: connectUri", NewValue(old=str(was), new=str(now))
    if old.net.listen != new.net.listen:
        yield "connectUri", NewValue(old=str(old.net.listen), new=str(new.net.listen))


def _of_queue(old: HostPlan, new: HostPlan, name: str) -> Iterator[tuple[str, NewValue]]:
    """The changes of the settings that a queue is opened with."""
    was, now = _paths(old)[name], _paths(new)[name]
    masters = [each.masters[name] for each in (old, new)]
    if was != now:  # also where its role changes, and the base paths are two
        yield f"queues.{name}: path", NewValue(old=str(was), new=str(now))
    if was != now and masters[0] != masters[1]:
        yield f"queues.{name}: masterId", NewValue(old=str(masters[0]), new=str(masters[1]))
    for key, values in (
        ("acknowledge", [each.settings.source.asks_ack(name) for each in (old, new)]),
        ("sourceId", [each.settings.source.source_ids.get(name) for each in (old, new)]),
        ("exclusive", [name in each.settings.source.exclusive for each in (old, new)]),
    ):
        if name in old.sources and values[0] != values[1]:
            yield f"queues.{name}: {key}", NewValue(old=_text(values[0]), new=_text(values[1]))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _merged_paths(
    old: Mapping[str, Path], new: Mapping[str, Path], kept: Set[str]
) -> dict[str, Path]:
    added = {name: path for name, path in new.items() if name not in kept}
    return {name: path for name, path in old.items() if name in kept} | added


def _merged_settings(old: HostSettings, new: HostSettings, kept: Set[str]) -> HostSettings:
    return replace(
        old,
        net=replace(
            old.net,
            guests_max=new.net.guests_max,
            guest_bytes_per_s=new.net.guest_bytes_per_s,
            limits=new.net.limits,
            limit_bytes_per_s=new.net.limit_bytes_per_s,
            rights=new.net.rights,
            cost=new.net.cost,
            tls=replace(
                old.net.tls,
                ca=new.net.tls.ca or old.net.tls.ca,
                cert=new.net.tls.cert or old.net.tls.cert,
                key=new.net.tls.key or old.net.tls.key,
                crl=new.net.tls.crl,
            ),
        ),
        protocol=replace(old.protocol, payload_max=new.protocol.payload_max),
        source=_merged_source(old.source, new.source, kept),
        sink=_merged_sink(old.sink, new.sink, kept),
        scrub_bytes_per_s=new.scrub_bytes_per_s,
        members=_merged_values(old.members, new.members, kept),
    )


def _merged_source(old: SourceSettings, new: SourceSettings, kept: Set[str]) -> SourceSettings:
    return replace(
        old,
        returns=new.returns,
        all_tailers=new.all_tailers,
        unacknowledged=(old.unacknowledged & kept) | (new.unacknowledged - kept),
        exclusive=(old.exclusive & kept) | (new.exclusive - kept),
        source_ids=_merged_values(old.source_ids, new.source_ids, kept),
        made_with=_merged_values(old.made_with, new.made_with, kept),
    )


def _merged_sink(old: SinkSettings, new: SinkSettings, kept: Set[str]) -> SinkSettings:
    return replace(
        old,
        any_cycle=new.any_cycle,
        puts_aside=new.puts_aside,
        routes=new.routes,
        start_locked=new.start_locked,
        roll_cycles=_merged_values(old.roll_cycles, new.roll_cycles, kept),
    )


def _merged_values(
    old: Mapping[str, Value], new: Mapping[str, Value], kept: Set[str]
) -> dict[str, Value]:
    """Of queues that stay, the older ones."""
    stay = {name: value for name, value in old.items() if name in kept}
    return stay | {name: value for name, value in new.items() if name not in kept}
