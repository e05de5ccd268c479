"""Queues that are new to a sink: several are agreed on at a time, and each in its order."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cqrepl.queue.files.keptidentity import KeptIdentity
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.identity import Identity
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from cqrepl.surroundings import Surroundings, within
from tests.support.disks import SlowDisk
from tests.support.replicas import BEATS, LOOPBACK, at, copied, eventually, more_excerpts
from tests.support.samples import fill

COUNT = 20
NAMES = [f"q{number:02}" for number in range(COUNT)]
SLOW, *QUICK = NAMES  # the first one that is offered, and answered


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    for name in NAMES:
        fill(tmp_path / name, "FAST_DAILY", {0: 3})
    return {name: tmp_path / name for name in NAMES}


def copies_of(paths: dict[str, Path]) -> dict[str, Path]:
    return {name: path.with_name(f"copy-{name}") for name, path in paths.items()}


def slow(paths: dict[str, Path]) -> SlowDisk:
    """A disk on which the sync of one table store takes until it is let through."""
    return SlowDisk(f"{re.escape(str(paths[SLOW] / FILE_NAME))}$")


@asynccontextmanager
async def hosts(
    paths: dict[str, Path], *, source_disk: Surroundings | None, sink_disk: Surroundings | None
) -> AsyncIterator[tuple[Source, Sink]]:
    """A source and a new sink of all queues, each with its own disk."""
    async with AsyncExitStack() as stack:
        with within(source_disk or Surroundings()):
            serving = serve_source(paths, listen=LOOPBACK, **BEATS)
            source = await stack.enter_async_context(serving)
        with within(sink_disk or Surroundings()):
            taking = serve_sink(copies_of(paths), connect=at(source.port), **BEATS)
            sink = await stack.enter_async_context(taking)
        for disk in (source_disk, sink_disk):
            if isinstance(disk, SlowDisk):
                stack.callback(disk.goes_on.set)  # no end waits for its threads
        yield source, sink


def identity(path: Path) -> Identity | None:
    return KeptIdentity(path / FILE_NAME).load()


def has_all(sink: Sink, names: list[str]) -> bool:
    return all(sink.queues[name].received_excerpts >= 3 for name in names)


async def ended_well(source: Source, sink: Sink, paths: dict[str, Path]) -> None:
    """Every queue is whole at the sink, and has its source's identity there."""
    await eventually(lambda: has_all(sink, NAMES))
    for name, copy in copies_of(paths).items():
        await copied(paths[name], copy)
        assert identity(copy) == identity(paths[name]) is not None
    assert not source.stops
    assert all(queue.life.stop is None for queue in sink.queues.values())


async def test_a_source_s_slow_disk_holds_up_no_other_queue(paths: dict[str, Path]) -> None:
    """No sink hears of an identity before it is on the source's disk."""
    disk = slow(paths)
    async with hosts(paths, source_disk=disk, sink_disk=None) as (source, sink):
        await eventually(lambda: disk.begun.is_set() and has_all(sink, QUICK))
        assert not sink.queues[SLOW].received_excerpts
        assert identity(copies_of(paths)[SLOW]) is None
        disk.goes_on.set()
        await ended_well(source, sink, paths)


async def test_a_sink_s_slow_disk_holds_up_no_other_queue(paths: dict[str, Path]) -> None:
    """And no excerpt is asked for before the identity is on the disk."""
    disk = slow(copies_of(paths))
    async with hosts(paths, source_disk=None, sink_disk=disk) as (source, sink):
        await eventually(lambda: disk.begun.is_set() and has_all(sink, QUICK))
        assert not sink.queues[SLOW].received_excerpts
        disk.goes_on.set()
        await ended_well(source, sink, paths)


async def test_one_that_a_sink_lets_go_of_meanwhile_comes_again(paths: dict[str, Path]) -> None:
    """The source hears of it while it still works on that queue."""
    disk = slow(paths)
    async with hosts(paths, source_disk=disk, sink_disk=None) as (source, sink):
        await eventually(lambda: disk.begun.is_set() and has_all(sink, QUICK))
        await sink.pause(SLOW)
        await eventually(lambda: is_withdrawn(source))
        disk.goes_on.set()
        await sink.resume(SLOW)
        await ended_well(source, sink, paths)


async def test_one_that_a_source_lets_go_of_meanwhile_comes_again(paths: dict[str, Path]) -> None:
    """The sink hears of it while it still works on that queue."""
    disk = slow(copies_of(paths))
    async with hosts(paths, source_disk=None, sink_disk=disk) as (source, sink):
        await eventually(lambda: disk.begun.is_set() and has_all(sink, QUICK))
        await source.pause(SLOW)
        more_excerpts(paths[QUICK[0]], 3, 1)  # it comes behind that word
        await eventually(lambda: sink.queues[QUICK[0]].received_excerpts == 4)
        disk.goes_on.set()
        source.resume(SLOW)
        await ended_well(source, sink, paths)


def is_withdrawn(source: Source) -> bool:
    sessions = sessions_of(SourceSession, source.endpoint.sessions)
    return any(SLOW in session.progress.withdrawn for session in sessions)
