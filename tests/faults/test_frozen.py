"""Peers that stop for a while, and networks that swallow everything: only the heartbeat tells."""

import random
import re
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from tests.faults.lossylink import ADDRESSES, FAIR, Weather, hosts
from tests.support import peer
from tests.support.commands import Command, commands
from tests.support.processes import send
from tests.support.relay import Relay
from tests.support.replicas import at, copied, eventually, last_of, more_excerpts
from tests.support.samples import fill, noon_index, read
from tests.support.scripted import scripted

BEATS = ("--heartbeat-interval", "500ms", "--heartbeat-timeout", "1s")
PATIENT = ("--heartbeat-interval", "500ms", "--heartbeat-timeout", "5m")
SILENT = re.compile(r"closed: nothing received for [\d.]+ s")
CONNECTED = re.compile("connected$", re.M)
NOTICED_SECONDS = 60.0  # far more than it takes: time-out and interval
SECONDS = 120.0  # for all that a pair is to do


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process does nothing at all for the length of a block."""
    assert send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pid, signal.SIGCONT)


@asynccontextmanager
async def replicating(
    folder: Path, *, source_dials: bool = False, beats: Sequence[str] = BEATS
) -> AsyncIterator[list[Command]]:
    """Source and sink, connected, and with everything copied."""
    original, copy = folder / "q", folder / "copy"
    fill(original, "FAST_DAILY", {0: 50})
    paths = {"source": f"q={original}", "sink": f"q={copy}"}
    async with commands(SECONDS) as start:
        first, second = ("sink", "source") if source_dials else ("source", "sink")
        listening = await start(first, paths[first], "--listen", "127.0.0.1:0", *beats)
        address = at(await listening.port())
        dialling = await start(second, paths[second], "--connect", address, *beats)
        await copied(original, copy)
        yield [dialling, listening] if source_dials else [listening, dialling]
        await dialling.terminate()
        await listening.terminate()


@pytest.mark.parametrize(("victim", "source_dials"), [(0, False), (1, True)])
async def test_frozen_longer_than_the_timeout(
    tmp_path: Path, victim: int, source_dials: bool
) -> None:
    """The awake side notices in time; after the thaw everything written meanwhile is copied."""
    async with replicating(tmp_path, source_dials=source_dials) as sides:
        awake = sides[1 - victim]
        with frozen(sides[victim].pid):
            with trio.fail_after(NOTICED_SECONDS):
                await awake.says(SILENT)
            more_excerpts(tmp_path / "q", 50, 30)
        await copied(tmp_path / "q", tmp_path / "copy")
    assert len(read(tmp_path / "copy")) == 80


async def test_frozen_for_a_moment_is_nothing(tmp_path: Path) -> None:
    """Nothing that was sent meanwhile is lost, and the connection is the same."""
    async with replicating(tmp_path, beats=PATIENT) as (source, sink):
        with frozen(sink.pid), Queue.open(tmp_path / "q") as queue:
            last = more_excerpts(tmp_path / "q", 50, 30)[-1][0]
            await eventually(lambda: queue.sent_index == last)
        await copied(tmp_path / "q", tmp_path / "copy")
        assert len(CONNECTED.findall(source.said)) == 1


async def test_swallowed_in_a_relay(tmp_path: Path) -> None:
    """Both sockets stay open and nothing comes through: both sides notice."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 50})
    async with commands(SECONDS) as start:
        source = await start("source", original, "--listen", "127.0.0.1:0", *BEATS)
        async with Relay(await source.port()).running() as relay:
            sink = await start("sink", f"q={copy}", "--connect", at(relay.port), *BEATS)
            await copied(original, copy)
            relay.close_gate()
            more_excerpts(original, 50, 30)
            with trio.fail_after(NOTICED_SECONDS):
                await source.says(SILENT)
                await sink.says(SILENT)
            relay.open_gate()
            await copied(original, copy)
            await sink.terminate()
            await source.terminate()


async def test_cut_in_the_middle_of_a_frame(tmp_path: Path) -> None:
    """The half frame is dropped; the next connection begins with that very excerpt."""
    async with commands(SECONDS) as start:
        sink = await start("sink", f"q={tmp_path / 'q'}", "--listen", "127.0.0.1:0")
        port = await sink.port()
        index, wanted = noon_index(), [b"0", b"1" * 500, b"2"]
        for half in (1, 250, 499):
            async with scripted(port, 1, 2) as source:
                answer = await source.offer("q", 901, index + 3)
                known = 0 if answer["nextIndexRequired"] == 0 else 1
                frames = peer.excerpts(index, *wanted, cid=901)  # what is known comes again
                cut = frames.index(wanted[1]) + half
                await source.send(frames[:cut])
                if not known:
                    await source.hear("idx")
            await eventually(lambda: last_of(tmp_path / "q") == index)
        async with scripted(port, 1, 2) as source:
            answer = await source.offer("q", 901, index + 3)
            assert answer["nextIndexRequired"] == index
            await source.send(peer.excerpts(index, *wanted, cid=901))
            while (await source.hear("idx"))[-1]["idx"] != index + 2:
                await source.hear("idx", len(source.all("idx")) + 1)
        assert "in the middle of a document" in sink.said
        await sink.terminate()
    assert [data for _, data in read(tmp_path / "q")] == wanted


# a network of two machines


@pytest.mark.parametrize("source_dials", [False, True])
async def test_t7_half_open(tmp_path: Path, source_dials: bool) -> None:
    """The cable between two machines is pulled: no end of stream, no reset. Both notice, and find
    each other again."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 50})
    first, second = ("sink", "source") if source_dials else ("source", "sink")
    paths = {"source": f"q={original}", "sink": f"q={copy}"}
    async with (
        hosts(random.Random(1)) as both,
        commands(SECONDS, before=both.entering(0)) as start_here,
        commands(SECONDS, before=both.entering(1)) as start_there,
    ):
        place = ("--listen", f"{ADDRESSES[0]}:0")
        listening = await start_here(first, paths[first], *place, *BEATS)
        place = ("--connect", f"{ADDRESSES[0]}:{await listening.port()}")
        dialling = await start_there(second, paths[second], *place, *BEATS)
        await copied(original, copy)
        both.line.weather = Weather(cut=frozenset({0, 1}))
        more_excerpts(original, 50, 30)
        with trio.fail_after(NOTICED_SECONDS):
            await listening.says(SILENT)
            await dialling.says(SILENT)
        assert len(read(copy)) == 50
        both.line.weather = FAIR
        await copied(original, copy)
        await dialling.terminate()
        await listening.terminate()
