"""A running host reads the file of its cluster again, and takes on what has changed.

What cannot be changed while it runs is told with its key, and stays as it is. With a file that is
wrong, or a new queue that cannot be opened, all of it does.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import trio

from cqrepl.config.hostplan import HostPlan, check_places, plan_host
from cqrepl.config.planchanges import (
    NewMaster,
    NewValue,
    PlanChanges,
    changes_between,
    merged,
    with_master,
    with_members,
)
from cqrepl.config.queuepatterns import new_names
from cqrepl.console import exitcodes
from cqrepl.host import Host
from cqrepl.net.controlsocket import Values
from cqrepl.net.errors import NetError
from cqrepl.net.threads import in_thread
from cqrepl.queue import QueueError
from cqrepl.replicator.hostroles import check_no_routes
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.status.controldesk import FAILED

LOOK_SECONDS: Final = 4.0  # between two looks for directories
_logger: Final = logging.getLogger(__name__)


class Reloader:
    """Knows by which plan a host runs.

    Args:
        read: reads the file; the host's plan by it. It is called in a thread.
        made: the plan that it was started with.
    """

    def __init__(self, read: Callable[[], HostPlan], made: HostPlan) -> None:
        self._read = read
        self._plan = made

    async def reload(self, host: Host) -> Values:
        """Reads the file and has the host follow it; what has changed, as the answer to the verb.

        Raises:
            ConfigError: the file is wrong, or a queue has to be moved first, as at a start; nothing
                was changed.
            Refused: a queue that has had a promotion has routes; or as `Host.change`.
            QueueError, OSError: as `Host.change`; nothing was changed.
        """
        new = await in_thread(self._read)
        found = changes_between(self._plan, new)
        then = merged(self._plan, new)
        await in_thread(partial(check_places, then))
        await in_thread(partial(check_no_routes, then.settings))
        await host.change(then.settings)
        self._plan = then
        added = list(_added(host, found))
        refused: dict[str, str] = {}
        to_come: dict[str, str] = {}
        for each in found.masters:
            try:
                to_come[each.name] = await self._follow(host, each)
            except (NetError, QueueError, OSError, ValueError) as error:
                refused[each.name] = str(error)
        for change in found.members:
            then = with_members(self._plan, change)
            try:
                to_come[change.name] = await host.change_members(change.name, then.settings)
                self._plan = then
            except (NetError, QueueError, OSError, ValueError) as error:
                refused[change.name] = str(error)
        host.tell_other_leaders()
        lines = [*map(str, added), *_lines(found, refused, to_come)] or ["nothing has changed"]
        for line in lines:
            _logger.info("by operator: %s", line)
        code = exitcodes.STOPPED if found.restart else exitcodes.OK
        code = exitcodes.REFUSED if refused else code
        return _fields(found, added, refused) | {"said": lines, "code": code}

    async def watch(self, host: Host) -> None:
        """Takes in for ever the queues whose directories are new and fit a pattern of the file; of
        what the file says otherwise by now nothing is taken on."""
        told = ""
        while True:
            await trio.sleep(LOOK_SECONDS)
            try:
                async with host.control.turn:
                    await self._take_in_new(host)
                told = ""
            except FAILED as error:
                if told != str(error):  # once, and not with each look
                    _logger.error("a new directory is not taken in: %s", error)
                told = str(error)

    async def _take_in_new(self, host: Host) -> None:
        made = self._plan
        own, known = made.settings.protocol.host_id, made.sources.keys() | made.sinks.keys()
        if not await in_thread(lambda: new_names(made.config, own, made.masters.keys())):
            return
        new = await in_thread(lambda: plan_host(made.config, own, made.process, known))
        found = changes_between(made, new)
        then = merged(made, new)
        await in_thread(partial(check_places, then))
        await in_thread(partial(check_no_routes, then.settings))
        await host.change(then.settings)
        self._plan = then
        for each in _added(host, found):
            _logger.info("%s", each)

    async def _follow(self, host: Host, change: NewMaster) -> str:
        """Has another host be the master of a queue; a line where that is to come yet.

        Raises:
            NetError, QueueError, OSError, ValueError: that cannot be, and why.
        """
        then = with_master(self._plan, change)
        to_come = await host.change_master(change.name, then.settings)
        self._plan = then
        return to_come


@dataclass(frozen=True, slots=True, kw_only=True)
class _Added:
    """A queue that is new.

    Args:
        why: it is not what the file says.
    """

    name: str
    role: str
    path: Path
    why: str = ""

    def __str__(self) -> str:
        return f"queue {self.name!r} is added: {self.role}, {self.path}{self.why}"


def _added(host: Host, found: PlanChanges) -> Iterator[_Added]:
    """The queues that a host has now, and had not: each as the file says, or, where there was a
    promotion, as that does."""
    source, sink = _Role("source", host.source.queues), _Role("sink", host.sink.queues)
    passed_on = found.sources.keys() & found.sinks.keys()
    for paths, role, other in ((found.sources, source, sink), (found.sinks, sink, source)):
        for name, path in paths.items():
            is_so = name in role.queues or name in passed_on
            queue = None if is_so else other.queues.get(name)
            if queue is None:
                yield _Added(name=name, role=role.name, path=path)
            else:
                now = queue.epochs.now
                why = f", by epoch {now.promised}, which was promised to host {now.promised_to}"
                yield _Added(name=name, role=other.name, path=path, why=why)


class _Role(NamedTuple):
    """A role of a host, and the queues it has that role for."""

    name: str
    queues: Mapping[str, SourceQueue] | Mapping[str, SinkQueue]


def _lines(
    found: PlanChanges, refused: Mapping[str, str], to_come: Mapping[str, str]
) -> Iterator[str]:
    for name in found.removed:
        yield f"queue {name!r} is removed"
    for name, value in found.values.items():
        yield f"{name} is {_shown(value.new)}, was {_shown(value.old)}"
    for each in found.masters:
        if to_come.get(each.name):
            yield to_come[each.name]
        elif each.name not in refused:
            yield f"queue {each.name!r} is streamed from host {each.new}, was from host {each.old}"
    for change in found.members:
        if to_come.get(change.name):
            yield to_come[change.name]
        elif change.name not in refused:
            yield f"queue {change.name!r} has other members"
    for why in refused.values():
        yield f"refused: {why}"
    for name, value in found.restart.items():
        yield f"needs a restart: {name} stays {_shown(value.old)}, to be {_shown(value.new)}"


def _shown(value: str) -> str:
    return value or "unset"


def _fields(found: PlanChanges, added: Iterable[_Added], refused: Mapping[str, str]) -> Values:
    return {
        "added": {each.name: {"role": each.role, "path": str(each.path)} for each in added},
        "removed": list(found.removed),
        "masters": {
            each.name: {"from": each.old, "to": each.new}
            for each in found.masters
            if each.name not in refused
        },
        "refused": dict(refused),
        "changed": _values(found.values),
        "restart": _values(found.restart),
    }


def _values(found: Mapping[str, NewValue]) -> dict[str, dict[str, str]]:
    return {name: {"from": each.old, "to": each.new} for name, each in found.items()}
