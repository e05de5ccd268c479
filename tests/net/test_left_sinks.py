"""A source that is to end judges a sink that is gone by how things stood then."""

from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.commands.replication import code_of_stops
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.queuestate import queues
from cqrepl.replicator.source import Source
from tests.net.test_lost_files import COUNTS, ROLL, lose, until_noted
from tests.support.commands import commands
from tests.support.replicas import (
    LOOPBACK,
    SECONDS,
    acked,
    at,
    eventually,
    joined,
    live_sink,
    live_source,
    stopped,
)
from tests.support.samples import fill, noon_path


@pytest.fixture(autouse=True)
def not_so_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "STUCK_SECONDS", 0.5)


async def stuck(source: Source) -> int:
    """Waits until nothing goes on; the exit code that a command ends with then."""
    with trio.fail_after(SECONDS):
        await source.wait_stuck()
    return code_of_stops(source.stops)


def left(source: Source) -> bool:
    return not source.endpoint.sessions


async def test_it_left_because_the_queue_stopped_there(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    fill(tmp_path / "copy", "FAST_HOURLY", {0: 1})
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await stopped(sink)
            await eventually(lambda: bool(source.stops))
        await eventually(partial(left, source))
        assert await stuck(source) == 5


async def test_it_left_without_having_the_queue(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    fill(tmp_path / "other", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with commands(SECONDS) as start:
            sink = await start("sink", tmp_path / "other", "--connect", at(source.port))
            await eventually(lambda: "connected" in sink.said)
            await eventually(lambda: "does not offer it" in sink.said)
            await sink.terminate()
        await eventually(partial(left, source))
        assert await stuck(source) == 5


async def test_one_that_left_in_the_middle_is_waited_for(tmp_path: Path) -> None:
    """It may come again: nothing has stopped."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port):
            await eventually(lambda: not left(source))
        await eventually(partial(left, source))
        with trio.move_on_after(1.0):
            await source.wait_stuck()
            raise AssertionError


async def test_it_was_killed_and_our_own_queue_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink might have given back what was lost; no other host is there."""
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        await until_noted(source, sink)
    async with live_source(tmp_path / "q") as source, commands(SECONDS) as start:
        copy = f"q={tmp_path / 'copy'}"
        sink_process = await start("sink", copy, "--connect", at(source.port))
        await eventually(lambda: "connected" in sink_process.said)
        await sink_process.kill()
        await eventually(partial(left, source))
        assert noon_path(tmp_path / "q", ROLL, ahead=1).exists()
        lose(tmp_path / "q", "gone")
        await eventually(lambda: bool(source.stops))
        assert await stuck(source) == 4


async def test_a_sink_that_no_source_had_anything_for(tmp_path: Path) -> None:
    """Its source ends in order before it has waited long enough."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with commands(SECONDS) as start:
        source = await start("source", tmp_path / "q", "--listen", LOOPBACK)
        to = at(await source.port())
        sink = await start("sink", tmp_path / "other", "--connect", to, "--once")
        await eventually(lambda: "does not offer it" in sink.said)
        await source.terminate()
        assert await sink.exit_code() == 5
        assert "no source that is connected has a queue of this name" in sink.said
