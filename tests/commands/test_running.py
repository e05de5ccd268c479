"""The way a command runs, and the exit code that it ends with, in this process."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from cqrepl.commands import replication
from cqrepl.console.endings import ending_signals
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source
from tests.support import peer
from tests.support.invoke import Invoke
from tests.support.replicas import BEATS, LOOPBACK, at, live_source
from tests.support.samples import noon_index
from tests.support.scripted import scripted

Serve = Callable[[], AbstractAsyncContextManager[Source]]


@pytest.fixture
def serve(queue: Path, invoke: Invoke) -> Serve:
    """Serves a small queue; `invoke` puts the logging back."""
    return lambda: live_source(queue)


async def at_once(source: Source) -> list[Stop]:
    await trio.lowlevel.checkpoint()
    return []


def test_own_end(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    assert replication.run_command("cqrepl source", serve, at_once) == 0
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("cqrepl source: listening on 127.0.0.1:")


def test_nothing_is_said_by_one_that_dials(
    queue: Path, invoke: Invoke, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        def dialling() -> AbstractAsyncContextManager[Source]:
            return live_source(queue, listen=None, connect=f"127.0.0.1:{port}")

        assert replication.run_command("cqrepl source", dialling, at_once) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)]
)
def test_signals(serve: Serve, number: int, code: int) -> None:
    async def never(source: Source) -> list[Stop]:
        os.kill(os.getpid(), number)
        await trio.sleep_forever()

    assert replication.run_command("cqrepl source", serve, never) == code


def test_stop_of_all_queues(queue: Path, invoke: Invoke) -> None:
    def sink() -> AbstractAsyncContextManager[Sink]:
        return serve_sink({"q": queue}, listen=LOOPBACK, **BEATS)

    async def with_a_gap(sink: Sink) -> list[Stop]:
        async with scripted(sink.port, 1, 2) as source:
            await source.offer("q", 901, noon_index(sequence=5))
            await source.send(peer.excerpts(noon_index(sequence=9), b"x", cid=901))
            await trio.sleep_forever()

    assert replication.run_command("cqrepl sink", sink, with_a_gap) == 1


def test_arguments_that_do_not_fit(invoke: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    def nothing() -> AbstractAsyncContextManager[Source]:
        return live_source(Path("x"), host_id=0)

    assert replication.run_command("cqrepl source", nothing, at_once) == 2
    assert capsys.readouterr().err == "cqrepl source: a host id from 1 to 127 expected, 0 came\n"


def test_fault_of_our_own_is_not_hidden(serve: Serve) -> None:
    """Only what the user or the world did wrong becomes a line."""

    async def broken(source: Source) -> list[Stop]:
        await trio.lowlevel.checkpoint()
        raise ValueError("a bug")

    with pytest.raises(ExceptionGroup):
        replication.run_command("cqrepl source", serve, broken)


def test_unreachable_peer(
    queue: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cqrepl.net.dialer.GIVE_UP_SECONDS", 0.05)

    def dialling() -> AbstractAsyncContextManager[Source]:
        return live_source(queue, listen=None, connect=at(1), gives_up=True)

    async def caught_up(source: Source) -> list[Stop]:
        await source.wait_caught_up()
        return []

    assert replication.run_command("cqrepl source", dialling, caught_up) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cqrepl source: 127.0.0.1:1 not reached within 0.05 s: ")


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    """As under `nohup`."""
    assert signal.SIGHUP in ending_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert signal.SIGHUP not in ending_signals()
