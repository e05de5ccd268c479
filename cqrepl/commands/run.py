"""Runs one host of a cluster until the command is over."""

import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.commands import replication
from cqrepl.commands.config import Options, plan
from cqrepl.commands.operated import operated
from cqrepl.commands.replication import log_choice
from cqrepl.commands.services import Services
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import HostPlan, check_places
from cqrepl.config.queuepatterns import bases
from cqrepl.config.reloader import Reloader
from cqrepl.console.endings import ending_signals, let_hangup_in
from cqrepl.host import Host
from cqrepl.net.controlsocket import Values
from cqrepl.net.rundirectory import usual_run_dir
from cqrepl.replicator.hostroles import check_no_routes
from cqrepl.status.controldesk import FAILED, ControlDesk

_TERMINAL: Final = "/dev/tty"
_logger: Final = logging.getLogger(__name__)


def run_host(path: Path, options: Options) -> int:
    """Streams and takes in the queues of one host; the exit code."""
    served = _Served(path, options)
    choice = log_choice(options)
    return replication.run_command("cqrepl run", served.serve, None, choice, stays=served.is_asked)


class _Served:
    """A host that can be asked what it does, and told what to do."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path = path
        self._options = options
        self._host: Host | None = None
        self._has_terminal = _has_terminal()  # before it takes time to start

    def is_asked(self) -> bool:
        """True while there is a socket where an operator can tell the host to go on."""
        return self._host is not None and self._host.control.is_asked

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Host]:
        """For the length of a block it runs, and follows other versions of its file."""
        made = _plan_of_member(self._path, self._options)
        check_places(made)
        check_no_routes(made.settings)
        run_dir = made.settings.run_dir or usual_run_dir()
        made = replace(made, settings=replace(made.settings, run_dir=run_dir))
        services = Services(made)
        self._host = host = Host(made.settings, programs=services.programs)
        reloader = Reloader(partial(_plan_of_member, self._path, self._options), made)
        host.control.verbs["reload"] = partial(_reload, reloader, host)
        async with (
            host,
            services.running(host),
            operated(host, made),
            _reloading(host.control, self._has_terminal),
            _watching(reloader, host),
        ):
            yield host


def _plan_of_member(path: Path, options: Options) -> HostPlan:
    """The plan of a host that has a queue.

    Raises:
        ConfigError: it has none, or the file is wrong.
    """
    made = plan(path, options)
    if not made.sources and not made.sinks:
        own = made.settings.protocol.host_id
        message = f"expected a queue that host {own} is a member of, got none"
        if made.config.patterns:
            places = " or ".join(map(str, bases(made.config, own)))
            message = f"expected a directory below {places} that fits a pattern, got none"
        raise ConfigError(made.file, None, message)
    return made


@asynccontextmanager
async def _watching(reloader: Reloader, host: Host) -> AsyncIterator[None]:
    """For the length of a block new directories are taken in."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.watch, host)
        yield
        nursery.cancel_scope.cancel()


async def _reload(reloader: Reloader, host: Host, _asked: Values) -> Values:
    try:
        return await reloader.reload(host)
    except FAILED as error:
        _logger.error("by operator: all stays as it is: %s", error)
        raise


@asynccontextmanager
async def _reloading(desk: ControlDesk, has_terminal: bool) -> AsyncIterator[None]:
    """For the length of a block SIGHUP has the file read again. One that comes as the terminal goes
    ends the command, as it does all others; one that is ignored, as under `nohup`, stays so."""
    if signal.SIGHUP not in ending_signals():
        yield
        return
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        let_hangup_in()
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
