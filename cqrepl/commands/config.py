"""Checks the file of a cluster, shows what is in effect, and lists the keys."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cqrepl.config import schema
from cqrepl.config.clusterfile import ClusterConfig, Setting, load_cluster
from cqrepl.config.electionplan import with_groups
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import AddressBook, HostPlan, check_places, in_effect, plan_host
from cqrepl.config.keys import process_keys
from cqrepl.config.queuepatterns import with_patterns
from cqrepl.config.serviceplan import plan_services
from cqrepl.config.yamltree import shown
from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.replicator.settings import NO_HOST
from wire.text.terminal import one_line

Options = Mapping[str, object]  # as `cli.options.cluster_options` has them


def process_settings(config: ClusterConfig, options: Options) -> dict[str, Setting]:
    """The settings of this process: of the file, of its variables, of its flags."""
    flags = {}
    for name, flag in (
        ("listen", "--listen"),
        ("runDir", "--run-dir"),
        ("cluster.join", "--join"),
        ("page.listen", "--page"),
    ):
        given = options.get(flag.removeprefix("--").replace("-", "_"))
        if given is not None:
            flags[name] = _flag(name, flag, str(given))
    addresses = options["addresses"]
    if addresses:
        assert isinstance(addresses, Sequence)
        text = ",".join(str(each) for each in addresses)
        flags["addresses"] = _flag("addresses", "--address", text)
    return in_effect(config, os.environ, flags)


def plan(path: Path, options: Options) -> HostPlan:
    """The plan, made from this file, of the host that the options name.

    Raises:
        ConfigError: something in the file or the options is wrong.
    """
    config = load_cluster(path)
    host_id = options["host_id"]
    assert isinstance(host_id, int)
    return plan_host(config, host_id, process_settings(config, options))


def _flag(name: str, flag: str, text: str) -> Setting:
    key = process_keys()[name]
    try:
        return Setting(key=key, value=key.kind.parse(text), origin=flag)
    except ValueError:
        message = f"{key.kind.wanted} expected, {shown(text)} came"
        raise ConfigError(flag, None, message) from None


def check_config(path: Path, options: Options) -> int:
    """Looks whether a file can be used, as a whole or by one host; the exit code."""
    config = load_cluster(path)
    plan = _plan_named(config, options)
    config = with_groups(config, process_settings(config, options))
    if plan is not None:
        check_places(plan)  # of directories that are here, where that host is this one
    hosts, queues = plural(len(config.hosts), "host"), plural(len(config.queues), "queue")
    patterns = f", {plural(len(config.patterns), 'pattern')}" if config.patterns else ""
    output.write_text(f"{path}: {hosts}, {queues}{patterns}\n")
    for name, spot in config.ignored:
        output.write_text(f"{path}:{spot.line}: {name!r} has no effect here\n")
    output.flush()
    return exitcodes.OK


def _plan_named(config: ClusterConfig, options: Options) -> HostPlan | None:
    """The plan of the host that the options name; None where they name none. What can be wrong
    with one is wrong with all of them, or with how they reach each other."""
    process = process_settings(config, options)
    host_id = options["host_id"]
    if host_id is not None:
        assert isinstance(host_id, int)
        plan = plan_host(config, host_id, process)
        plan_services(plan)
        return plan
    plan_services(plan_host(config, min(config.hosts), process))
    return None


def show_config(path: Path, options: Options, *, as_json: bool) -> int:
    """Prints the settings in effect; the exit code."""
    config = load_cluster(path)
    process = process_settings(config, options)
    host_id = options["host_id"]
    if isinstance(host_id, int):
        config = with_patterns(config, host_id)
    config = with_groups(config, process)
    settings = dict(config.context) | {f"cqrepl.{name}": each for name, each in process.items()}
    plan = _plan_named(config, options)
    book = AddressBook(config, process)
    if as_json:
        line: dict[str, object] = {"v": 1, "path": str(path)}
        line["settings"] = {
            name: {"value": each.written, "from": each.origin} for name, each in settings.items()
        }
        line["hosts"] = [
            {"id": each, "name": config.hosts[each].name, "address": str(address or "")}
            for each, address in book.by_host.items()
        ]
        if plan is not None:
            line |= {
                "host": plan.settings.protocol.host_id,
                "dials": sorted(plan.settings.net.peers),
            }
            line["sources"] = {name: str(place) for name, place in plan.sources.items()}
            line["sinks"] = {name: str(place) for name, place in plan.sinks.items()}
        output.write_text(json.dumps(line) + "\n")
    else:
        for text in _lines(config, settings, book, plan):
            output.write_text(one_line(text) + "\n")
    output.flush()
    return exitcodes.OK


def _lines(
    config: ClusterConfig,
    settings: Mapping[str, Setting],
    book: AddressBook,
    plan: HostPlan | None,
) -> Iterator[str]:
    rows = [(name, each.written, each.origin) for name, each in settings.items()]
    wide = [max(len(row[at]) for row in rows) for at in (0, 1)]
    for name, value, origin in rows:
        yield f"{name:{wide[0]}}  {value:{wide[1]}}  {origin}"
    yield ""
    for host_id, address in book.by_host.items():
        where = "only dials" if address is None else str(address)
        name = config.hosts[host_id].name
        yield f"host {host_id}  {name}  {where}{_link(plan, host_id)}"
    yield ""
    for pattern in config.patterns:
        yield f"queues {pattern.name}  from {_giver(pattern.master_id)}  one for each directory"
    for queue in config.queues.values():
        asks = "acknowledged" if queue.acknowledge else "not acknowledged"
        if plan is None:
            yield f"queue {queue.name}  from {_giver(queue.master_id)}  {asks}"
        elif queue.name in plan.passed_on:
            place, giver = plan.sinks[queue.name], plan.settings.sink.masters[queue.name]
            yield f"queue {queue.name}  sink of host {giver}, passed on  {place}  {asks}"
        elif queue.name in plan.sources:
            yield f"queue {queue.name}  source  {plan.sources[queue.name]}  {asks}"
        elif queue.name not in plan.sinks:
            yield f"queue {queue.name}  not here: this host is none of its members  {asks}"
        else:
            place = plan.sinks[queue.name]
            giver = plan.settings.sink.masters[queue.name]
            yield f"queue {queue.name}  sink of {_giver(giver)}  {place}  {asks}"


def _giver(host_id: int) -> str:
    return "the host that is elected" if host_id == NO_HOST else f"host {host_id}"


def _link(plan: HostPlan | None, host_id: int) -> str:
    if plan is None:
        return ""
    if host_id == plan.settings.protocol.host_id:
        return "  this host"
    return "  is dialled" if host_id in plan.settings.net.peers else "  dials"


def show_schema(*, as_json: bool) -> int:
    """Prints all keys; the exit code."""
    if as_json:
        output.write_text(json.dumps(schema.json_schema(), indent=2) + "\n")
    else:
        for line in schema.lines():
            output.write_text(line + "\n")
    output.flush()
    return exitcodes.OK
