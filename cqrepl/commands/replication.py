"""Runs a source, a sink or a host as a command: until it is done, has stopped, or a signal comes.

The first SIGTERM, SIGHUP or Ctrl-C ends in order, the second one at once.
"""

import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypedDict, TypeVar

import trio

from cqrepl.commands import outcome
from cqrepl.commands.progress import show_progress
from cqrepl.commands.reachlog import log_reaches
from cqrepl.commands.screen import Screen
from cqrepl.commands.tlsfiles import tls_of
from cqrepl.console.endings import ending_signals
from cqrepl.console.exitcodes import (
    DAMAGED,
    DISK_FULL,
    INTERRUPTED,
    OK,
    REFUSED,
    STOPPED,
    USAGE,
    BadArguments,
)
from cqrepl.console.loglines import LISTENING, LogChoice
from cqrepl.host import Host
from cqrepl.protocol import StopReason, WireShape
from cqrepl.queue import NotAQueue
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.settings import HostOptions
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source

_logger: Final = logging.getLogger(__name__)
MEND_SECONDS: Final = 2.0  # from a stop to the leave of a sink that puts right its copy
STAY_SECONDS: Final = 1.0  # between two looks whether other queues have stopped
Replicator = TypeVar("Replicator", Source, Sink, Host)


class ReplicationOptions(TypedDict):
    """The options that the user chose, of those that a source and a sink have in common."""

    listen: tuple[str, ...]
    connect: tuple[str, ...]
    host_id: int
    remote_ids: tuple[int, ...]
    heartbeat_interval: int
    heartbeat_timeout: int
    max_excerpt: int
    scrub: int
    limit_rate: int
    wire_shape: str
    runs: bool
    verbose: bool
    quiet: bool
    log_json: bool
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_crl: Path | None


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of a run in which nothing failed: its exit code."""

    code: int


def host_options(
    options: ReplicationOptions, *, gives_up: bool, pauser: str = "balanced"
) -> HostOptions:
    """The arguments that both `serve_` functions take, from the options that both commands have.

    Raises:
        BadArguments: there are several hosts to dial, and no id for each of them; or the command
            ends once it is done, and so dials one host only; or a file of TLS is missing.
    """
    connect, ids = options["connect"], options["remote_ids"]
    several = _dialled(connect, ids, gives_up=gives_up) if len(connect) > 1 else None
    return {
        "gives_up": gives_up,
        "pauser": pauser,
        "listen": options["listen"] or None,
        "connect": several or next(iter(connect), None),
        "host_id": options["host_id"],
        "remote_ids": () if several else ids,
        "heartbeat_interval_ms": options["heartbeat_interval"],
        "heartbeat_timeout_ms": options["heartbeat_timeout"],
        "payload_max": options["max_excerpt"],
        "scrub_bytes_per_s": options["scrub"],
        "limit_bytes_per_s": options["limit_rate"],
        "wire_shape": WireShape(options["wire_shape"]),
        "runs": options["runs"],
        "tls": tls_of(options),
    }


def _dialled(addresses: Sequence[str], ids: Sequence[int], *, gives_up: bool) -> dict[int, str]:
    """Several addresses that are dialled, by the ids of their hosts."""
    if gives_up:
        raise BadArguments(
            "one --connect expected by a command that ends once it is done (--until-caught-up, "
            f"--once), {len(addresses)} came: run one command for each"
        )
    if len(set(ids)) != len(addresses) or len(ids) != len(addresses):
        given = ", ".join(map(str, ids)) or "none"
        raise BadArguments(
            f"with {len(addresses)} --connect as many --remote-id expected, the host ids of these "
            f"peers in the same order, each another; {given} came"
        )
    return dict(zip(ids, addresses, strict=True))


def directories(queues: Mapping[str, Path]) -> Mapping[str, Path]:
    """The same queues, none of which is in the place of a file: that is a mistake of the user's,
    which ends a command of several queues, too. What else cannot be opened stops alone.

    Raises:
        NotAQueue: one is.
    """
    for path in queues.values():
        if path.is_file():
            raise NotAQueue("expected a queue directory, found a file", path=path)
    return queues


def log_choice(options: Mapping[str, object]) -> LogChoice:
    """The choice of what is shown of the log, from the options of a command."""
    host_id = options["host_id"]
    assert isinstance(host_id, int)
    verbosity = int(options["verbose"] is True) - int(options["quiet"] is True)
    as_json = options["log_json"] is True
    return LogChoice(verbosity=verbosity, as_json=as_json, host_id=host_id)


def run_command(
    name: str,
    serve: Callable[[], AbstractAsyncContextManager[Replicator]],
    finished: Callable[[Replicator], Awaitable[list[Stop]]] | None,
    choice: LogChoice | None = None,
    *,
    stays: Callable[[], bool] = _never,
) -> int:
    """Serves until `finished` returns or something else ends it; gives the exit code.

    Args:
        name: how lines on stderr begin.
        finished: waits for the command's own end, and gives the queues that have stopped all the
            same; None for a command that runs until it is told.
        choice: what of the log is shown; None: the usual.
        stays: true where it goes on though all of its queues have stopped, as it can be told what
            to do; asked once it serves.

    The ports that are listened on are logged at once.
    """
    screen = Screen(sys.stderr)
    choice = choice or LogChoice()
    handler = logging.StreamHandler(screen)
    handler.setFormatter(choice.formatter(name))
    logging.basicConfig(level=choice.level, handlers=[handler], force=True)
    show = partial(_show, screen=screen, choice=choice, has_end=finished is not None)
    run = partial(trio.run, _run, serve, finished, show, stays)
    say = partial(_say_error, choice) if choice.as_json or choice.verbosity > 0 else None
    return outcome.guarded(name, run, interrupted_by=(), say=say)


def _say_error(choice: LogChoice, error: Exception) -> None:
    _logger.error("%s", error, exc_info=error if choice.verbosity > 0 else None)


async def _show(
    replicator: Source | Sink | Host, *, screen: Screen, choice: LogChoice, has_end: bool
) -> None:
    """Shows how far it is, until it is cancelled: drawn on a terminal, in lines elsewhere."""
    if screen.is_terminal and not choice.as_json:
        if choice.verbosity >= 0:
            await show_progress(replicator, screen)
    elif not has_end:  # one that has tells by its end
        await log_reaches(replicator)


def code_of_stops(stops: list[Stop]) -> int:
    """The exit code once these queues have stopped: the gravest of them."""
    if not stops:
        return OK
    reasons = {stop.reason for stop in stops}
    if StopReason.DAMAGED in reasons:
        return DAMAGED
    if any(stop.is_disk_full for stop in stops):
        return DISK_FULL
    if reasons != {StopReason.REFUSED}:
        return STOPPED
    return USAGE if all(stop.is_no_queue for stop in stops) else REFUSED


async def _run(
    serve: Callable[[], AbstractAsyncContextManager[Replicator]],
    finished: Callable[[Replicator], Awaitable[list[Stop]]] | None,
    show: Callable[[Replicator], Awaitable[None]],
    stays: Callable[[], bool],
) -> int:
    ended: list[_Ended] = []
    first_signal = trio.Event()
    with trio.open_signal_receiver(*ending_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, ended, first_signal, nursery.cancel_scope)
            async with AsyncExitStack() as stack:
                replicator = await _enter(stack, serve())
                for address in replicator.endpoint.listens:
                    _logger.info(LISTENING, address)
                code = await _until_over(replicator, finished, first_signal, show, stays)
                if not ended:
                    ended.append(_Ended(code))
            nursery.cancel_scope.cancel()
    return ended[0].code


async def _enter(
    stack: AsyncExitStack, service: AbstractAsyncContextManager[Replicator]
) -> Replicator:
    try:
        return await stack.enter_async_context(service)
    except ValueError as error:  # of the arguments; any later one is a fault of our own
        raise BadArguments(str(error)) from error


async def _until_over(
    replicator: Replicator,
    finished: Callable[[Replicator], Awaitable[list[Stop]]] | None,
    first_signal: trio.Event,
    show: Callable[[Replicator], Awaitable[None]],
    stays: Callable[[], bool],
) -> int:
    """Waits for the first of these: a signal, the command's own end, or the stop of all queues,
    for which one that stays does not end."""
    code = OK

    async with trio.open_nursery() as nursery:

        async def wait_signal() -> None:
            await first_signal.wait()
            nursery.cancel_scope.cancel()

        async def wait_finished() -> None:
            nonlocal code
            if finished is not None:
                code = code_of_stops(await finished(replicator))
                nursery.cancel_scope.cancel()

        async def wait_stopped() -> None:
            nonlocal code
            if finished is None:
                await _wait_stopped(replicator)
                if stays():
                    await _stay(replicator)
                elif replicator.endpoint.listens:
                    await _outlive_peers(replicator)
            else:  # it is to end in any case
                await _wait_stuck(replicator)
            code = code_of_stops(replicator.stops)
            nursery.cancel_scope.cancel()

        for wait in (wait_signal, wait_finished, wait_stopped):
            nursery.start_soon(wait)
        nursery.start_soon(show, replicator)
    return code


async def _wait_stuck(replicator: Source | Sink | Host) -> None:
    """Waits until nothing gets any further; a host of both ways has no end of its own."""
    if isinstance(replicator, Host):
        await replicator.wait_stopped()
    else:
        await replicator.wait_stuck()


async def _wait_stopped(replicator: Replicator) -> None:
    """Waits until every queue has stopped; where copies differ, a sink may put right its own."""
    while True:
        await replicator.wait_stopped()
        if all(stop.reason is not StopReason.DIVERGED for stop in replicator.stops):
            return
        await trio.sleep(MEND_SECONDS)
        with trio.move_on_after(0.0):
            await replicator.wait_stopped()
            return


async def _stay(replicator: Replicator) -> None:
    """Says that all queues have stopped, once for all that has stopped them, for ever."""
    why = "this host stays, for 'cqrepl status', 'resume', 'reload'"
    await _say_stopped(replicator, why, lambda: False)


async def _outlive_peers(replicator: Replicator) -> None:
    """One that listens goes on where its queues have stopped for what a peer holds or says: the
    next peer may do better. Returns where none would, as our own files are why."""
    why = "it came of the peers that there were; this process listens on"
    await _say_stopped(replicator, why, lambda: _has_stopped_itself(replicator))


def _has_stopped_itself(replicator: Source | Sink | Host) -> bool:
    halves = (replicator.source, replicator.sink) if isinstance(replicator, Host) else (replicator,)
    names = frozenset[str]().union(*(each.names for each in halves))
    return names <= {stop.name for stop in replicator.stops if stop.is_ours}


async def _say_stopped(replicator: Replicator, why: str, is_over: Callable[[], bool]) -> None:
    """Says why it goes on though all queues have stopped, once for all that has stopped them."""
    said: frozenset[str] = frozenset()
    while not is_over():
        stops = frozenset(map(str, replicator.stops))
        if stops - said:
            said = stops
            _logger.error("every queue has stopped: %s", why)
        await trio.sleep(STAY_SECONDS)
        await _wait_stopped(replicator)


async def _watch_signals(
    signals: AsyncIterator[int],
    ended: list[_Ended],
    first_signal: trio.Event,
    everything: trio.CancelScope,
) -> None:
    async for number in signals:
        if ended:
            everything.cancel()
            return
        ended.append(_Ended(INTERRUPTED if number == signal.SIGINT else OK))
        first_signal.set()
