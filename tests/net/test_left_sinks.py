"""A source that is to end judges a sink that is gone by how things stood then."""

from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.commands.replication import code_of_stops
from cqrepl.replicator.queuestate import queues
from cqrepl.replicator.source import Source
from tests.support.commands import commands
from tests.support.replicas import (
    LOOPBACK,
    SECONDS,
    at,
    eventually,
    live_sink,
    live_source,
    stopped,
)
from tests.support.samples import fill


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
