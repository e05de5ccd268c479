"""A process that listens outlives a strange peer that is alone connected, and serves the next."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from cqrepl import HostSettings, blocking
from cqrepl.queue import Queue
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.format.index import Index
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support import peer
from tests.support.commands import Command, commands
from tests.support.copies import assert_same
from tests.support.invoke import Invoke
from tests.support.replicas import BEATS, at, copied, eventually, more_excerpts
from tests.support.samples import fill, noon_index, noon_path
from tests.support.scripted import scripted

LISTEN = ("--listen", "127.0.0.1:0", "--heartbeat-timeout", "60s")
STAYS = re.compile("every queue has stopped: it came of the peers that there were")


@asynccontextmanager
async def listening(role: str, queue: Path, *words: object) -> AsyncIterator[Command]:
    """A command that has said that it outlives its peers by the end of the block; then it serves
    each peer that comes, and ends in order."""
    async with commands(120) as start:
        command = await start(role, f"q={queue}", *LISTEN, *words)
        await command.port()
        yield command
        await command.terminate()


# strange sinks, and what they ask for


async def asks_for_no_index(port: int, host_id: int) -> None:
    async with scripted(port, host_id, 1) as sink:
        await sink.answer(-7)
        await trio.sleep_forever()


async def gives_back_with_a_gap(port: int, host_id: int) -> None:
    async with scripted(port, host_id, 1) as sink:
        _, cid = await sink.answer(noon_index(ahead=1, sequence=7))
        await sink.send(peer.excerpts(noon_index(ahead=1, sequence=6), b"x", cid=cid))
        await trio.sleep_forever()


@pytest.mark.parametrize("strange", [asks_for_no_index, gives_back_with_a_gap])
async def test_a_source(tmp_path: Path, strange: Callable[[int, int], Awaitable[None]]) -> None:
    """A sink of another id is served while the strange one is connected, and after it left."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 5})
    noon_path(path).unlink()
    async with listening("source", path, "--accept-returns", "9") as source:
        port = await source.port()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(strange, port, 9)
            await source.says(re.compile("host 9: queue 'q' stopped"))
            await source.says(STAYS)
            async with serve_sink({"q": tmp_path / "copy"}, connect=at(port), **BEATS):
                await copied(path, tmp_path / "copy")
                nursery.cancel_scope.cancel()
        with Queue.open(path) as queue:
            queue.append(b"buy 100")
        async with serve_sink({"q": tmp_path / "copy"}, connect=at(port), **BEATS):
            await copied(path, tmp_path / "copy")


async def test_a_source_whose_sink_is_an_older_copy_than_what_is_kept(tmp_path: Path) -> None:
    """The copy ends before the first index that the source has since `gc`."""
    path, old = tmp_path / "q", tmp_path / "old"
    fill(path, "FAST_DAILY", {0: 5, 1: 5, 2: 5})
    fill(old, "FAST_DAILY", {0: 2})
    noon_path(path).unlink()
    noon_path(path, ahead=1).unlink()
    async with listening("source", path) as source:
        port = await source.port()
        async with serve_sink({"q": old}, connect=at(port), host_id=9, **BEATS) as sink:
            await source.says(re.compile("host 9: queue 'q' stopped"))
            await source.says(STAYS)
            await eventually(lambda: bool(sink.stops))
        async with serve_sink({"q": tmp_path / "copy"}, connect=at(port), **BEATS):
            await copied(path, tmp_path / "copy")


@pytest.mark.parametrize("host_id", [1, 9])
@pytest.mark.parametrize("kind", ["roll cycle", "another queue"])
async def test_a_sink(tmp_path: Path, kind: str, host_id: int) -> None:
    """A source of another id, or of the same one, is taken from once the strange one has gone."""
    path, copy, strange = (tmp_path / name for name in ("q", "copy", "strange"))
    fill(path, "FAST_DAILY", {0: 5})
    async with serve_source({"q": path}, listen="127.0.0.1:0", **BEATS) as source:
        async with serve_sink({"q": copy}, connect=at(source.port), **BEATS):
            await copied(path, copy)
    if kind == "roll cycle":
        fill(strange, "FAST_HOURLY", {0: 5})
    else:
        fill(strange, "FAST_DAILY", {0: 5})
        with Queue.open(strange) as queue:
            assert queue.identity.keep(new_identity)
    async with listening("sink", copy) as sink:
        port = await sink.port()
        async with serve_source(
            {"q": strange}, connect=at(port), host_id=host_id, remote_ids=[2], **BEATS
        ) as other:
            await sink.says(re.compile(rf"host {host_id} at \S+ queue 'q' stopped"))
            await sink.says(STAYS)
            await eventually(lambda: bool(other.stops))
            if host_id != 1:
                await flows(path, copy, port, 5)
        await flows(path, copy, port, 5 if host_id == 1 else 7)
    assert_same(path, copy)


async def flows(path: Path, copy: Path, port: int, start: int) -> None:
    """The right source comes, and its sink takes what is new."""
    more_excerpts(path, start, 2)
    async with serve_source({"q": path}, connect=at(port), remote_ids=[2], **BEATS):
        await copied(path, copy)


async def far_index(port: int) -> None:
    async with scripted(port, 9, 2) as source:
        await source.offer("q", 901)
        await source.send(peer.excerpts(noon_index(ahead=30_000), b"x", cid=901))
        await trio.sleep_forever()


async def gap(port: int) -> None:
    async with scripted(port, 9, 2) as source:
        await source.offer("q", 901)
        await source.send(peer.excerpts(Index(noon_index(sequence=2)), b"x", cid=901))
        await trio.sleep_forever()


@pytest.mark.parametrize("strange", [far_index, gap])
async def test_a_sink_that_is_sent_what_does_not_follow(
    tmp_path: Path, strange: Callable[[int], Awaitable[None]]
) -> None:
    """Another source goes on while the strange one is still connected."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    fill(path, "FAST_DAILY", {0: 5})
    async with listening("sink", copy) as sink:
        port = await sink.port()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(strange, port)
            await sink.says(re.compile(r"host 9 at \S+ queue 'q' stopped"))
            await sink.says(STAYS)
            await flows(path, copy, port, 5)
            nursery.cancel_scope.cancel()


def test_a_command_that_dials_ends_with_the_code_of_what_it_met(
    invoke: Invoke, tmp_path: Path
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    fill(tmp_path / "copy", "FAST_HOURLY", {0: 5})
    ours = HostSettings.of(listen="127.0.0.1:0", sources={"q": tmp_path / "q"})
    with blocking.Host(ours) as host:
        result = invoke("sink", f"q={tmp_path / 'copy'}", "--connect", at(host.port))
    assert result.exit_code == 5
