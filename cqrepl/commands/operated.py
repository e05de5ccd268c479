"""Alarms, and pages where they are asked for: all that runs beside a host for its operators."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from cqrepl.config.hostplan import HostPlan
from cqrepl.config.operateplan import alarm_settings, page_settings, schema_texts
from cqrepl.host import Host
from cqrepl.page.monitor import Monitor
from cqrepl.page.server import page_of
from cqrepl.page.supervisor import Supervisor
from cqrepl.service.queueschemas import QueueSchemas
from cqrepl.service.retentionrules import Retention
from cqrepl.status.snapshot import snapshot_of


@asynccontextmanager
async def operated(host: Host, plan: HostPlan) -> AsyncIterator[Monitor]:
    """For the length of a block a host that runs is looked at.

    Raises:
        ConfigError, PageRefused: pages cannot be given as the file says.
    """
    page = page_settings(plan)
    schemas = QueueSchemas(schema_texts(plan), partial(_paths, host))
    snapshot = partial(snapshot_of, host, host.control.services)
    monitor = Monitor(snapshot, alarm_settings(plan))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(monitor.run)
        nursery.start_soon(_retention(host, plan).run)
        nursery.start_soon(schemas.run)
        async with page_of(monitor, page, lambda: _is_ready(host)):
            supervisor = Supervisor(os.environ)
            async with supervisor.told(lambda: monitor.is_turning):
                yield monitor
        nursery.cancel_scope.cancel()


def _retention(host: Host, plan: HostPlan) -> Retention:
    rules = plan.process["retention"].value
    assert isinstance(rules, tuple)

    def members(name: str) -> frozenset[int]:
        queue = host.source.queues.get(name)
        takers = host.settings.source.led_takers.get(name)
        return frozenset() if queue is None or takers is None else takers

    return Retention(rules, partial(_paths, host), members)


def _paths(host: Host) -> dict[str, Path]:
    return {name: host.path_of(name) for name in (*host.source.queues, *host.sink.queues)}


def _is_ready(host: Host) -> bool:
    return bool(host.endpoint.ports) or not host.settings.net.listens
