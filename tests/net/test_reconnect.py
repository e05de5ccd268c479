"""Connections that are cut at any byte, and hosts that come back on a second one."""

import random
import shutil
from pathlib import Path

import pytest
import trio

from cqrepl.net.pump import Pump
from cqrepl.queue import Queue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.relay import Relay
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    at,
    copied,
    eventually,
    live_sink,
    live_source,
    more_excerpts,
    received,
)
from tests.support.samples import NOON_MS, Excerpts, fill, layout, read
from tests.support.scripted import scripted

ROLLED = {0: 3000, 1: 50, 3: 3000}


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Excerpts]:
    """A queue that tests only read, and what is in it."""
    path = tmp_path_factory.mktemp("rolled") / "q"
    return path, fill(path, "FAST_DAILY", ROLLED, per_batch=1000)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("source_dials", [False, True])
async def test_cut_once_at_any_byte(
    rolled: tuple[Path, Excerpts], tmp_path: Path, seed: int, source_dials: bool
) -> None:
    """In the greeting, inside of a frame, between two: the copy ends equal, nothing twice."""
    original, written = rolled
    copy = tmp_path / "copy"
    # towards the dialler go the frames, or else the greeting and the acknowledgements
    bytes_max = 1500 if source_dials else sum(len(data) for _, data in written)
    cut_after = random.Random(seed).randrange(1, bytes_max)
    if source_dials:
        async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
            async with Relay(sink.port, cut_after=cut_after).running() as relay:
                async with serve_source({"q": original}, connect=at(relay.port), **BEATS) as source:
                    await acked(source, written[-1][0])
    else:
        async with live_source(original) as source:
            async with Relay(source.port, cut_after=cut_after).running() as relay:
                async with live_sink(copy, relay.port):
                    await acked(source, written[-1][0])
                    assert relay.connections == 2
    assert read(copy) == written


async def test_cut_many_times(rolled: tuple[Path, Excerpts], tmp_path: Path) -> None:
    """Each time as soon as something new has come through."""
    original, written = rolled
    copy = tmp_path / "copy"
    seen = 0
    async with live_source(original) as source:
        async with Relay(source.port).running() as relay:
            async with live_sink(copy, relay.port) as sink:
                for _ in range(5):
                    await received(sink, seen + 1)
                    relay.reset()
                    seen = sink.queues["q"].received_excerpts
                    if seen == len(written):
                        break
                await acked(source, written[-1][0])
                assert relay.connections >= 2
                assert sink.queues["q"].received_excerpts == len(written), "something came twice"
    assert read(copy) == written


async def test_source_is_replaced_while_the_sink_lives(
    rolled: tuple[Path, Excerpts], tmp_path: Path
) -> None:
    original, written = rolled
    copy = tmp_path / "copy"
    port = reserved_port()
    async with live_sink(copy, port) as sink:
        for _ in range(3):
            before = sink.queues["q"].received_excerpts
            async with live_source(original, listen=at(port)):
                await received(sink, min(before + 1, len(written)))
        async with live_source(original, listen=at(port)) as source:
            await acked(source, written[-1][0])
    assert read(copy) == written


async def test_an_acknowledgement_that_was_lost_is_made_up_for(tmp_path: Path) -> None:
    """Stored, and cut before the source heard of it: the next connection tells."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(original, "FAST_DAILY", {0: 3})
    async with live_source(original) as source:
        async with scripted(source.port, 2, 1) as sink:  # takes what comes, and says nothing more
            _, cid = await sink.answer(0)
            await sink.send(peer.end_of_stream(cid))
            await sink.hear("re", 3)
            assert source.queues["q"].acknowledged == -1
        shutil.copytree(original, copy)
        async with live_sink(copy, source.port):
            await acked(source, written[-1][0])
    with Queue.open(original) as queue:
        assert queue.acknowledged_index == written[-1][0]


async def test_an_acknowledgement_that_was_overtaken_takes_nothing_back(tmp_path: Path) -> None:
    """A sink may say again what it said before: who waits for the newer one has seen it."""
    original = tmp_path / "q"
    written = fill(original, "FAST_DAILY", {0: 3})
    async with live_source(original) as source, scripted(source.port, 2, 1) as sink:
        _, cid = await sink.answer(0)
        await sink.send(peer.end_of_stream(cid))
        await sink.hear("re", 3)
        await sink.send(*(peer.acknowledgement(written[at][0], cid=cid) for at in (2, 0, 1)))
        await acked(source, written[-1][0])
        assert source.queues["q"].marks[2].acknowledged == written[-1][0]


async def test_second_connection_of_a_host_wins(tmp_path: Path) -> None:
    """The old connection hangs in a relay without being cut: half-open, unknown to both sides."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 100})
    async with live_source(original) as source:
        async with Relay(source.port).running() as relay:
            async with live_sink(tmp_path / "old", relay.port):
                await copied(original, tmp_path / "old")
                relay.close_gate()
                more_excerpts(original, 100, 20)
                async with live_sink(copy, source.port):  # the same host id
                    await copied(original, copy)
                    assert [pump.ended_why for pump in pumps(source)] == [""]
                    await eventually(lambda: len(source.endpoint.sessions) == 1)
                relay.open_gate()


async def test_old_connection_of_a_source_gives_its_queue_back(tmp_path: Path) -> None:
    """A listening sink: the source comes again while the sink still believes in the old one."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 100})
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
        async with Relay(sink.port).running() as relay:
            async with serve_source({"q": original}, connect=at(relay.port), **BEATS):
                await copied(original, copy)
                relay.close_gate()
                more_excerpts(original, 100, 20)
                async with serve_source({"q": original}, connect=at(sink.port), **BEATS) as again:
                    with trio.fail_after(SECONDS):
                        await again.wait_caught_up()
                    assert_same(original, copy)
                relay.open_gate()


async def test_a_second_source_of_a_queue_is_not_answered(tmp_path: Path) -> None:
    """Another host offers the queue that is taken: it is told nothing, and nothing is mixed."""
    original, other, copy = tmp_path / "q", tmp_path / "other", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 100})
    fill(other, "FAST_DAILY", {0: 100, 1: 5})
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
        async with serve_source({"q": original}, connect=at(sink.port), **BEATS):
            await copied(original, copy)
            async with serve_source(
                {"q": other}, connect=at(sink.port), host_id=7, **BEATS
            ) as second:
                await eventually(lambda: len(sink.endpoint.sessions) == 2)
                await eventually(lambda: any(s.has_offered for s in offering(second)))
                assert_same(original, copy)
                assert not sink.stops


async def test_peer_that_falls_silent_is_left_and_found_again(tmp_path: Path) -> None:
    """Nothing is cut: only the heartbeat can tell."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open_for_append(original, create=layout()) as queue:
        queue.appender().append([b"one"], NOON_MS)
    beats = {"heartbeat_interval_ms": 500, "heartbeat_timeout_ms": 1000}
    async with live_source(original, **beats) as source:
        async with Relay(source.port).running() as relay:
            async with live_sink(copy, relay.port, **beats):
                await copied(original, copy)
                relay.close_gate()
                await eventually(lambda: not source.endpoint.sessions)
                more_excerpts(original, 1, 5)
                relay.open_gate()
                await copied(original, copy)


def pumps(source: Source) -> list[Pump]:
    return list(source.endpoint._live)


def offering(source: Source) -> list[SourceSession]:
    return [each for each in source.endpoint.sessions if isinstance(each, SourceSession)]
