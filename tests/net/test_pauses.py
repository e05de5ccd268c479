"""A queue that the machine keeps from going on for now: it is tried again, and the rest goes on."""

import os
import re
import resource
from pathlib import Path

import pytest
import trio.testing

from cqrepl.queue import NotAQueue
from cqrepl.replicator.queuestate.pause import (
    FIRM_SECONDS,
    PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    Pause,
    is_passing,
)
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.source import serve_source
from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import BEATS, at
from tests.support.samples import fill


@pytest.fixture
def brisk_hosts() -> None:
    """Pauses are as long as users have them."""


async def test_queues_that_find_no_descriptor_come_later(tmp_path: Path) -> None:
    """None stops for good; the sink is a process of its own, which opens all of them at once."""
    names = [f"q{nth}" for nth in range(12)]
    written = {name: fill(tmp_path / name, "FAST_DAILY", {0: 3}) for name in names}
    copies = [f"{name}={tmp_path / 'copies' / name}" for name in names]
    port = reserved_port()
    async with commands() as start:
        sink = await start("sink", *copies, "--connect", at(port))
        await sink.says(re.compile("cannot connect"))
        soft, hard = resource.prlimit(sink.pid, resource.RLIMIT_NOFILE)
        few = len(os.listdir(f"/proc/{sink.pid}/fd")) + 20
        resource.prlimit(sink.pid, resource.RLIMIT_NOFILE, (few, hard))
        sources = {name: tmp_path / name for name in names}
        async with serve_source(sources, listen=at(port), **BEATS) as source:
            await sink.says(re.compile("Too many open files"))
            resource.prlimit(sink.pid, resource.RLIMIT_NOFILE, (soft, hard))
            for name in names:
                await source.wait_acked(written[name][-1][0], name)
            assert not source.stops
        await sink.terminate()
        assert "stopped" not in sink.said
    for name in names:
        assert_same(tmp_path / name, tmp_path / "copies" / name)


def test_what_passes() -> None:
    assert is_passing(OSError(28, "No space left on device"))
    refused = NotAQueue("expected a queue directory", path=Path("q"))
    assert not is_passing(refused)
    refused.__cause__ = PermissionError(13, "Permission denied")
    assert is_passing(refused)
    refused.__cause__ = FileNotFoundError(2, "No such file or directory")
    assert not is_passing(refused)


async def test_pauses_become_longer_until_something_gets_through(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pause, trouble = Pause(), Stop.of("q", OSError(28, "No space left on device"))
    assert pause.is_over
    lengths = []
    for _ in range(6):
        pause.begin(trouble.message, is_told=True)
        lengths.append(pause.until - trio.current_time())
        await trio.sleep(lengths[-1])
        assert pause.is_over
        assert pause.is_on
    assert lengths[:2] == pytest.approx([PAUSE_SECONDS, 2 * PAUSE_SECONDS])
    assert lengths[-1] == PAUSE_SECONDS_MAX
    pause.forget()
    assert not pause.is_on
    pause.begin(trouble.message, is_told=False)
    assert pause.is_over


async def test_a_pause_is_news_once(autojump_clock: trio.testing.MockClock) -> None:
    """A full disk may have room for a little each time; it goes on once it does so for a while."""
    pause, trouble = Pause(), Stop.of("q", OSError(28, "No space left on device"))
    news = [pause.begin(trouble.message, is_told=True)]
    for _ in range(5):
        pause.forget()
        await trio.sleep(FIRM_SECONDS / 2)
        assert not pause.takes_firm()
        news.append(pause.begin(trouble.message, is_told=True))
        await trio.sleep(2 * FIRM_SECONDS)
        assert not pause.takes_firm()
    assert news == [True] + [False] * 5
    assert pause.begin("Too many open files", is_told=True)
    pause.forget()
    await trio.sleep(FIRM_SECONDS)
    assert [pause.takes_firm(), pause.takes_firm()] == [True, False]
    assert pause.begin(trouble.message, is_told=True)
