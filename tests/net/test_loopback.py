"""Sources and sinks as a library, in this process, over loopback."""

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.kernel import memory
from cqrepl.net.pump import Pump
from cqrepl.net.roster import Roster
from cqrepl.protocol import Connection, WireShape
from cqrepl.protocol.states import ConnectionState
from cqrepl.queue import ExcerptBatch, Queue, QueueLocked
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.relay import Relay, forward_all
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    at,
    copied,
    eventually,
    joined,
    live_sink,
    live_source,
    more_excerpts,
    received,
)
from tests.support.samples import NOON_MS, Excerpts, fill, layout, noon_index, read
from tests.support.scripted import scripted
from wire import Reader, WireError

ROLLED = {0: 700, 1: 1, 3: 40}  # skips a cycle


@pytest.mark.parametrize("source_dials", [False, True])
async def test_one_sink(tmp_path: Path, source_dials: bool) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(original, "FAST_DAILY", ROLLED)
    async with joined(original, copy, source_dials=source_dials) as (source, sink):
        await acked(source, written[-1][0])
        assert (source.port is None) == source_dials
        assert read(copy) == written
        assert sink.queues["q"].received_excerpts == len(written)
        assert source.queues["q"].sent_excerpts == len(written)
        assert source.queues["q"].sent_bytes == sum(len(data) for _, data in written)
        assert not source.stops
        assert not sink.stops
    assert read(copy) == written
    with Queue.open(original) as queue:
        assert queue.sent_index == queue.acknowledged_index == written[-1][0]


async def test_no_acknowledgements(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(original, "FAST_DAILY", ROLLED)
    async with live_source(original, acknowledge=False) as source:
        async with live_sink(copy, source.port) as sink:
            await received(sink, len(written))
            assert source.queues["q"].acknowledged == -1
    assert read(copy) == written


@pytest.mark.parametrize("shape", ["network", "seed"])
async def test_both_shapes_of_messages(tmp_path: Path, shape: str) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    more = {"wire_shape": WireShape(shape)}
    async with live_source(tmp_path / "q", **more) as source:
        async with live_sink(tmp_path / "copy", source.port, **more):
            await acked(source, written[-1][0])
    assert read(tmp_path / "copy") == written


async def test_empty_excerpts_and_one_of_a_mebibyte(tmp_path: Path) -> None:
    """A frame that is longer than the usual buffer, between ones without a byte."""
    sizes = (0, 0, 1 << 20, 0, 300_000, 7)
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.appender().append([bytes([7]) * size for size in sizes], NOON_MS)
    written = read(tmp_path / "q")
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    assert read(tmp_path / "copy") == written


async def test_several_queues_on_one_connection(tmp_path: Path) -> None:
    """Also of different roll cycles; the sink makes each like its source."""
    names = {"daily": "FAST_DAILY", "hourly": "FAST_HOURLY", "large": "LARGE_DAILY", "old": "DAILY"}
    written = {q: fill(tmp_path / q, cycle, {0: 300, 1: 3}) for q, cycle in names.items()}
    originals = [tmp_path / name for name in names]
    copies = {name: tmp_path / "copies" / name for name in names}
    async with serve_source(originals, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            for name in names:
                await acked(source, written[name][-1][0], name)
            with pytest.raises(ValueError, match="one of the queues"):
                await source.wait_acked(0)
            with pytest.raises(ValueError, match="'nobody' came"):
                await source.wait_acked(0, "nobody")
        assert len(source.endpoint.sessions) <= 1
    for name in names:
        assert read(copies[name]) == written[name]


@pytest.mark.parametrize("ahead", [0, 1 << 20])
async def test_what_is_touched_ahead_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ahead: int
) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        appender = queue.appender()
        for nth in range(12):
            last = appender.append([bytes([nth]) * 999] * 1000, NOON_MS + nth // 8 * 86_400_000)
    async with joined(tmp_path / "q", tmp_path / "copy", touch_ahead_bytes=ahead) as (source, sink):
        await acked(source, last)
        has_helper = sink.queues["q"].toucher is not None
    assert has_helper == (ahead > 0 and memory.page_populator() is not None)
    assert ("nothing is touched ahead" in caplog.text) == (ahead > 0 and not has_helper)
    assert "touch-ahead" not in {thread.name for thread in threading.enumerate()}
    assert_same(tmp_path / "q", tmp_path / "copy")
    for name in ("20240305F.cq4", "20240306F.cq4"):
        one, other = ((tmp_path / each / name).read_bytes() for each in ("q", "copy"))
        assert one.rstrip(b"\0") == other.rstrip(b"\0")


async def test_a_queue_that_the_sink_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not offered, and the queue that is known goes on."""
    caplog.set_level("INFO")
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    fill(tmp_path / "secret", "FAST_DAILY", {0: 10})
    queues = [tmp_path / "q", tmp_path / "secret"]
    async with serve_source(queues, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, written[-1][0], "q")
            assert not source.stops
    assert "queue 'secret': the peer does not take it now" in caplog.text
    assert "refused" not in caplog.text
    assert [path.name for path in tmp_path.iterdir() if path.name == "copy"] == ["copy"]


async def test_a_sink_of_a_source_that_is_started_later(tmp_path: Path) -> None:
    """The dialler tries again until the peer listens."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 30})
    port = reserved_port()
    async with live_sink(tmp_path / "copy", port):
        async with live_source(tmp_path / "q", listen=at(port)) as source:
            await acked(source, written[-1][0])


async def test_empty_queue_is_made_and_caught_up(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout("LARGE_HOURLY")):
        pass
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        with trio.fail_after(SECONDS):
            await source.wait_caught_up()
    with Queue.open(tmp_path / "copy") as copy:
        assert copy.layout.roll_cycle.name == "LARGE_HOURLY"
        assert copy.last_index() is None


async def test_caught_up_means_what_was_there_at_the_start(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", ROLLED)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port):
            with trio.fail_after(SECONDS):
                await source.wait_caught_up()
            assert source.queues["q"].acknowledged == written[-1][0]


async def test_source_ends_while_a_sink_is_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letting one in can take a moment, in which the end is announced: nothing is offered then."""
    fill(tmp_path / "q", "FAST_DAILY", ROLLED)
    knocked = trio.Event()
    offered = []

    async def let_in_late(self: Roster, host_id: int, pump: Pump) -> None:
        knocked.set()
        await eventually(lambda: pump.connection.state is ConnectionState.ENDING)

    monkeypatch.setattr(Roster, "enter", let_in_late)
    monkeypatch.setattr(Connection, "offer_queue", lambda *args, **more: offered.append(args))
    async with live_source(tmp_path / "q") as source:
        assert source.port is not None
        async with await trio.open_tcp_stream("127.0.0.1", source.port) as stream:
            await stream.send_all(peer.uber(2, 1))
            await knocked.wait()
            (session,) = source.endpoint.sessions
            assert isinstance(session, SourceSession)
            await source.endpoint._end()
    assert session.is_settled
    assert not offered


@pytest.mark.usefixtures("unhurried_ends")
async def test_sink_ends_while_the_source_streams(tmp_path: Path) -> None:
    """The sink acknowledges what it took in before it goes; the source goes on without it."""
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        appender = queue.appender()
        for _ in range(20):
            appender.append([bytes(1000)] * 1000, NOON_MS)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await received(sink, 1)
        await eventually(lambda: not source.endpoint.sessions)
        assert source.endpoint.ended_orderly.is_set()
        there = read(tmp_path / "copy")
        assert source.queues["q"].acknowledged <= there[-1][0]
        async with live_sink(tmp_path / "copy", source.port):
            await copied(tmp_path / "q", tmp_path / "copy")


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Locks are given back, and both directories can be used by another process at once."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    async with joined(tmp_path / "q", tmp_path / "copy"):
        await copied(tmp_path / "q", tmp_path / "copy")
        with pytest.raises(QueueLocked):
            async with serve_sink([tmp_path / "copy"], listen=LOOPBACK):
                raise AssertionError("two sinks of one queue")
    for path in (tmp_path / "q", tmp_path / "copy"):
        with Queue.open_for_append(path) as queue:
            assert queue.append_lock.holder() is None
            queue.appender(to_copy=True).append([b"free"], NOON_MS)
            assert queue.last_index() == noon_index(sequence=10)


LONG_ROLLED = {0: 3000, 1: 50, 3: 3000}


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Excerpts]:
    """A queue that tests only read, and what is in it."""
    path = tmp_path_factory.mktemp("rolled") / "q"
    return path, fill(path, "FAST_DAILY", LONG_ROLLED, per_batch=1000)


@pytest.mark.parametrize("seed", range(3))
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


def pumps(source: Source) -> list[Pump]:
    return list(source.endpoint._live)


RUNS: dict[str, Any] = {"runs": True}


def names(relay: Relay, sender: str) -> Counter[str]:
    """The number of data documents of each name that one side has sent."""
    found: Counter[str] = Counter()
    for entry in relay.entries:
        if entry.direction.startswith(sender) and entry.kind == "data":
            try:
                found[Reader(entry.raw[4:]).read_name() or ""] += 1
            except WireError:
                found["?"] += 1
    return found


def written(path: Path, payloads: list[bytes]) -> int:
    """A new queue; the index of the last excerpt."""
    batch = ExcerptBatch.of(noon_index(), payloads)
    with Queue.open_for_append(path, create="FAST_DAILY") as queue:
        queue.appender().append_at(batch)
    return batch.index_last


@pytest.mark.parametrize("source_runs", [True, False])
@pytest.mark.parametrize("sink_runs", [True, False])
async def test_only_between_peers_that_both_have_them(
    tmp_path: Path, source_runs: bool, sink_runs: bool
) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    last = fill(original, "FAST_DAILY", {0: 3000, 2: 40})[-1][0]
    async with live_source(original, runs=source_runs) as source:
        async with Relay(source.port, on_document=forward_all).running() as relay:
            async with live_sink(copy, relay.port, runs=sink_runs) as sink:
                await acked(source, last)
                await received(sink, 3040)
    said = names(relay, "source")
    if source_runs and sink_runs:
        assert said["run"] > 0
        assert said["re"] < 100
    else:
        assert (said["run"], said["re"]) == (0, 3040)
    assert read(copy) == read(original)
    assert_same(original, copy)


async def test_excerpts_of_all_lengths(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    lengths = [1, 2, 3, 4, 5, 0, 300_000, 70_000, 7, 8, 65_535, 65_536, *range(1, 600)]
    last = written(original, [bytes([1 + at % 251]) * each for at, each in enumerate(lengths)])
    async with live_source(original, **RUNS) as source:
        async with live_sink(copy, source.port, **RUNS):
            await acked(source, last)
    assert read(copy) == read(original)
    assert_same(original, copy)


async def test_across_index_pages_and_what_comes_later(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    last = fill(original, "TEST2_DAILY", {0: 150, 1: 30})[-1][0]
    async with live_source(original, **RUNS) as source:
        async with live_sink(copy, source.port, **RUNS):
            await acked(source, last)
            for _ in range(5):
                last = more(original, 50)
                await acked(source, last)
    assert read(copy) == read(original)
    assert_same(original, copy)


def more(path: Path, count: int) -> int:
    """Excerpts behind those that are there; the index of the last one."""
    with Queue.open_for_append(path) as queue:
        batch = ExcerptBatch.of(queue.next_index(), [b"%d" % at for at in range(count)])
        queue.appender().append_at(batch)
    return batch.index_last


async def test_nothing_is_offered_on_a_connection_that_has_just_ended(tmp_path: Path) -> None:
    """The queue comes to the host before its session has noticed the end."""
    last = fill(tmp_path / "q", "FAST_DAILY", {0: 3})[-1][0]
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
        (session,) = source.endpoint.sessions
        assert isinstance(session, SourceSession)
        session._connection.receive_end(trio.current_time())
        session._offers.offered.discard("q")
        session.offer_late("q")
        assert "q" not in session._offers.offered
