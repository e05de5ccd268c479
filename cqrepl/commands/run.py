"""Runs one host of a cluster until the command is over."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.commands import replication
from cqrepl.commands.config import Options, plan
from cqrepl.commands.controldesk import ControlDesk
from cqrepl.commands.reloader import Reloader
from cqrepl.commands.replication import log_choice
from cqrepl.console.endings import ending_signals
from cqrepl.replicator.host import Host, serve_host
from cqrepl.status.controlsocket import asked_at
from cqrepl.status.rundirectory import usual_directory
from cqrepl.status.snapshot import snapshot_of

_TERMINAL: Final = "/dev/tty"


def run_host(path: Path, options: Options) -> int:
    """Streams and takes in the queues of one host; the exit code."""
    return replication.run_command(
        "cqrepl run", partial(_serve, path, options), None, log_choice(options)
    )


@asynccontextmanager
async def _serve(path: Path, options: Options) -> AsyncIterator[Host]:
    """Runs a host that can be asked what it does, and told what to do."""
    made = plan(path, options)
    given = made.process["runDir"].value
    directory = given if isinstance(given, Path) else usual_directory(os.environ)
    async with serve_host(made.settings, sources=made.sources, sinks=made.sinks) as host:
        host_id = made.settings.protocol.host_id
        desk = ControlDesk(host, Reloader(path, options, made))
        async with asked_at(directory, host_id, lambda: snapshot_of(host), desk.do):
            async with _reloading(desk):
                yield host


@asynccontextmanager
async def _reloading(desk: ControlDesk) -> AsyncIterator[None]:
    """For the length of a block SIGHUP has the file read again. One that comes as the terminal goes
    ends the command, as it does all others; one that is ignored, as under `nohup`, stays so."""
    if signal.SIGHUP not in ending_signals():
        yield
        return
    has_terminal = _has_terminal()
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_reload_all, hangups, desk, has_terminal)
            yield
            nursery.cancel_scope.cancel()


async def _reload_all(hangups: AsyncIterator[int], desk: ControlDesk, has_terminal: bool) -> None:
    async for _ in hangups:
        if has_terminal and not _has_terminal():
            os.kill(os.getpid(), signal.SIGTERM)  # it ends in order
            return
        await desk.do({"do": "reload"})


def _has_terminal() -> bool:
    try:
        os.close(os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
