"""Runs one host of a cluster until the command is over."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cqrepl.commands import replication
from cqrepl.commands.config import Options, plan
from cqrepl.commands.controldesk import ControlDesk
from cqrepl.config.hostplan import HostPlan
from cqrepl.replicator.host import Host, serve_host
from cqrepl.status.controlsocket import asked_at
from cqrepl.status.rundirectory import usual_directory
from cqrepl.status.snapshot import snapshot_of


def run_host(path: Path, options: Options) -> int:
    """Streams and takes in the queues of one host; the exit code."""
    return replication.run_command("cqrepl run", lambda: _serve(plan(path, options)), None)


@asynccontextmanager
async def _serve(made: HostPlan) -> AsyncIterator[Host]:
    """Runs a host that can be asked what it does."""
    given = made.process["runDir"].value
    directory = given if isinstance(given, Path) else usual_directory(os.environ)
    async with serve_host(made.settings, sources=made.sources, sinks=made.sinks) as host:
        host_id = made.settings.protocol.host_id
        async with asked_at(directory, host_id, lambda: snapshot_of(host), ControlDesk(host).do):
            yield host
