"""Queues that stop: the message says where, the rest goes on, and nothing is overwritten."""

import hashlib
from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import (
    AtomicsMissing,
    Diverged,
    ExcerptTooLarge,
    IndexGap,
    LayoutMismatch,
    NotAQueue,
    Queue,
    QueueDamaged,
    QueueError,
    QueueLayout,
    QueueLocked,
    format_index,
)
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.agreement.firstindex import ClockBehind
from cqrepl.replicator.queuestate.stops import Stop, reason_of
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support import peer
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    acked,
    at,
    copied,
    eventually,
    joined,
    live_sink,
    live_source,
    more_excerpts,
    sink_stopped,
    stopped,
)
from tests.support.samples import NOON_MS, fill, layout, noon_index, noon_path, read
from tests.support.scripted import SHAPE, Scripted, scripted

TWO = ("q", "r")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bytes_of(path: Path) -> dict[str, bytes]:
    """All store files of a queue, without the space that is allocated behind them."""
    return {file.name: file.read_bytes().rstrip(b"\0") for file in sorted(path.glob("*.cq4"))}


def only(replicator: Source | Sink) -> Stop:
    (stop,) = replicator.stops
    return stop


# the sink


async def test_t11_divergence_stops_that_queue_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = {name: tmp_path / name for name in TWO}
    for path in paths.values():
        fill(path, "FAST_DAILY", {0: 10})
    mine = read(paths["q"])
    before = bytes_of(paths["q"])
    async with serve_sink(paths, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            for cid, name in enumerate(TWO, 901):
                await source.offer_held(name, cid, mine)
            count = len(source.all("idx"))
            same = [data for _, data in mine[3:7]]
            await source.send(peer.excerpts(noon_index(sequence=3), *same, cid=901))
            acks = await source.hear("idx", count + 1)
            assert acks[-1]["idx"] == noon_index(sequence=6)
            other = peer.excerpts(noon_index(sequence=8), mine[8][1], b"other", b"new", cid=901)
            await source.send(other)
            await sink_stopped(sink, "q")
            await source.send(peer.excerpts(noon_index(sequence=10), b"new", cid=902))
            acks = await source.hear("idx", len(acks) + 1)
            assert acks[-1]["idx"] == noon_index(sequence=10)
            assert len(source.all("idx")) == len(acks), "an index that diverged is acknowledged"
        stop = only(sink)
    assert (stop.name, stop.reason) == ("q", StopReason.DIVERGED)
    assert format_index(noon_index(sequence=9)) in stop.message
    assert digest(mine[9][1]) in stop.message
    assert digest(b"other") in stop.message
    assert sum(stop.message in message for message in caplog.messages) == 1
    assert bytes_of(paths["q"]) == before
    assert read(paths["r"])[-1] == (noon_index(sequence=10), b"new")


async def test_gap_stops_that_queue_only(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in TWO}
    held = fill(paths["q"], "FAST_DAILY", {0: 10})
    before = bytes_of(paths["q"])
    async with serve_sink(paths, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await source.offer_held("q", 901, held)
            await source.offer("r", 902, noon_index(sequence=10))
            await source.send(peer.excerpts(noon_index(sequence=12), b"far", cid=901))
            await sink_stopped(sink, "q")
            await source.send(peer.excerpts(noon_index(ahead=1), b"new", cid=902))
            await source.hear_stored(noon_index(ahead=1))
        stop = only(sink)
    assert (stop.name, stop.reason) == ("q", StopReason.GAP)
    assert format_index(noon_index(sequence=10)) in stop.message
    assert format_index(noon_index(sequence=12)) in stop.message
    assert bytes_of(paths["q"]) == before
    assert read(paths["r"]) == [(noon_index(ahead=1), b"new")]


async def test_a_source_that_says_no_layout(tmp_path: Path) -> None:
    """As Java's do not: a new queue gets the roll cycle that the user said."""
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK, roll_cycle="FAST_HOURLY") as sink:
        async with scripted(sink.port, 1, 2) as source:
            answer = await source.offer("q", 901, cqrepl={})
            assert "cqrepl" not in answer
            await source.send(peer.excerpts(noon_index("FAST_HOURLY"), b"x", cid=901))
            await source.hear("idx")
    with Queue.open(tmp_path / "q") as queue:
        assert queue.layout.roll_cycle.name == "FAST_HOURLY"


async def test_stopped_queue_stays_stopped(tmp_path: Path) -> None:
    """A new connection does not start it again: a person has to look first."""
    paths = {name: tmp_path / name for name in TWO}
    async with serve_sink(paths, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await source.offer("q", 901)
            await source.send(peer.excerpts(noon_index(sequence=1), b"x", cid=901))
            await sink_stopped(sink, "q")
        async with scripted(sink.port, 1, 2) as source:
            assert await answered_queues(source) == ["r"]
    assert len(sink.stops) == 1


async def answered_queues(source: Scripted) -> list[str]:
    """Offers both queues, of which the sink answers the second one at least."""
    for cid, name in enumerate(TWO, 901):
        handler = peer.sink_handler(0, name=name, **SHAPE)
        await source.send(peer.register(f"/replication/{name}/2", cid, handler))
    await source.hear("eos")
    answers = [message["handler"][1] for message in source.all("handler")]
    return [answer["queueName"] for answer in answers if "queueName" in answer]


async def test_queue_takes_from_one_connection_at_a_time(tmp_path: Path) -> None:
    """A source of another host that offers it too gets no answer, until the first one is gone."""
    paths = {name: tmp_path / name for name in TWO}
    async with serve_sink(paths, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as first:
            await first.offer("q", 901)
            async with scripted(sink.port, 7, 2) as second:
                assert await answered_queues(second) == ["r"]
                await first.send(peer.excerpts(noon_index(), b"x", cid=901))
                await first.hear("idx")
        await eventually(lambda: not sink.endpoint.sessions)
        async with scripted(sink.port, 7, 2) as second:
            assert (await second.offer("q", 901, noon_index()))["queueName"] == "q"
        assert not sink.stops


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        (QueueLayout.of(by_name("FAST_HOURLY")), "FAST_DAILY"),
        (QueueLayout.of(by_name("FAST_DAILY"), 3_600_000), "FAST_DAILY"),
        (QueueLayout.of(by_name("DAILY")), "LARGE_DAILY"),
    ],
)
async def test_other_layout_is_refused_naming_both(
    tmp_path: Path, theirs: QueueLayout, mine: str
) -> None:
    with Queue.open_for_append(tmp_path / "q", create=theirs) as queue:
        queue.appender().append([b"x"], NOON_MS)
        shown = f"{theirs.roll_cycle.name}, epoch {theirs.epoch}"
    fill(tmp_path / "copy", mine, {0: 1})
    before = bytes_of(tmp_path / "copy")
    async with joined(tmp_path / "q", tmp_path / "copy") as (_, sink):
        await stopped(sink)
    assert only(sink).reason is StopReason.REFUSED
    assert shown in only(sink).message
    assert f"{mine}, epoch 0" in only(sink).message
    assert bytes_of(tmp_path / "copy") == before


@pytest.mark.parametrize(
    "shape",
    [
        {"rollCycle": "WEEKLY"},
        {"rollCycle": "NOBODYS"},
        {"rollCycle": "../x"},
        {"indexCount": 0},
        {"indexCount": 7},
        {"indexCount": 1 << 40},
        {"indexSpacing": -1},
        {"indexSpacing": 3},
        {"epoch": -(1 << 63)},
        {"epoch": (1 << 63) - 1},
    ],
)
async def test_a_layout_that_nobody_has(tmp_path: Path, shape: dict[str, object]) -> None:
    """A hostile source: refused, and no queue is made of it, or a queue that works."""
    asked = {"cqrepl": peer.SHAPE_FIELDS | shape}
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await source.send(
                peer.register("/replication/q/2", 901, peer.sink_handler(0, name="q", **asked)),
                peer.select(901),
            )
            await eventually(lambda: bool(sink.stops) or sink.queues["q"]._queue is not None)
        for stop in sink.stops:
            assert stop.reason in (StopReason.REFUSED, StopReason.FAILED)
            assert "\n" not in stop.message
    assert bytes_of(tmp_path / "q") == {}


async def test_index_that_no_file_can_have(tmp_path: Path) -> None:
    """The queue stops; the connection and the process go on."""
    paths = {name: tmp_path / name for name in TWO}
    async with serve_sink(paths, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            for cid, name in enumerate(TWO, 901):
                await source.offer(name, cid)
            await source.send(peer.excerpts(0x7FFFFFFF << 32, b"x", cid=901))
            await sink_stopped(sink, "q")
            await source.send(peer.excerpts(noon_index(), b"x", cid=902))
            await source.hear("idx")


# the source


async def test_excerpt_larger_than_the_limit(tmp_path: Path) -> None:
    """The source stops there and names the index; what stands before it is replicated."""
    sizes = {"q": [10, 20, 5000, 10], "r": [10, 20, 4096]}
    for name, each in sizes.items():
        with Queue.open_for_append(tmp_path / name, create=layout()) as queue:
            queue.appender().append([bytes(size) for size in each], NOON_MS)
    copies = {name: tmp_path / "copies" / name for name in TWO}
    queues = [tmp_path / name for name in TWO]
    async with serve_source(queues, listen=LOOPBACK, payload_max=4096, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            await acked(source, noon_index(sequence=1), "q")
            await acked(source, noon_index(sequence=2), "r")
            await eventually(lambda: bool(source.stops))
    stop = only(source)
    assert (stop.name, stop.reason) == ("q", StopReason.FAILED)
    assert format_index(noon_index(sequence=2)) in stop.message
    assert "5000 bytes, expected at most 4096" in stop.message
    assert [len(data) for _, data in read(copies["q"])] == [10, 20]
    assert [len(data) for _, data in read(copies["r"])] == [10, 20, 4096]


async def test_excerpt_larger_than_the_sink_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink closes that connection and says why; what stands before is stored."""
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        queue.appender().append([b"small"], NOON_MS)
        queue.appender().append([bytes(20_000)], NOON_MS)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port, payload_max=4096):
            await acked(source, noon_index())
            await eventually(lambda: "at most" in caplog.text)
    assert read(tmp_path / "copy") == [(noon_index(), b"small")]


async def test_hole_at_the_source_that_retention_made(tmp_path: Path) -> None:
    """The sink's next index stood in a file that is gone: a gap, not a jump."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 10})
    async with joined(original, copy):
        await copied(original, copy)
    before = bytes_of(copy)
    more_excerpts(original, 10, 5)
    with Queue.open_for_append(original) as queue:
        queue.appender().append([b"later"], NOON_MS + 86_400_000)
    noon_path(original).unlink()
    async with joined(original, copy) as (source, sink):
        await stopped(source)
        assert not sink.stops
    stop = only(source)
    assert stop.reason is StopReason.GAP
    assert format_index(noon_index(sequence=10)) in stop.message
    assert format_index(noon_index(ahead=1)) in stop.message
    assert bytes_of(copy) == before


async def test_damage_found_while_streaming(tmp_path: Path) -> None:
    """One queue of two stops; what stands before the damage and the other queue are replicated."""
    for name in TWO:
        with Queue.open_for_append(tmp_path / name, create=layout()) as queue:
            queue.appender().append([b"a" * 40] * 3, NOON_MS)
    copies = {name: tmp_path / "copies" / name for name in TWO}
    queues = [tmp_path / name for name in TWO]
    async with serve_source(queues, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            for name in TWO:
                await acked(source, noon_index(sequence=2), name)
            file = noon_path(tmp_path / "q")
            data = bytearray(file.read_bytes())
            end = data.rindex(b"a" * 40) + 40
            with file.open("r+b") as store:  # a header that claims more than the file holds
                store.seek(end)
                store.write((1 << 29).to_bytes(4, "little"))
            await eventually(lambda: bool(source.stops))
            more_excerpts(tmp_path / "r", 3, 5)
            await acked(source, noon_index(sequence=7), "r")
    assert only(source).name == "q"
    assert only(source).reason is StopReason.DAMAGED
    assert str(file) in only(source).message


@pytest.mark.parametrize("count", [200, 500])
async def test_a_wrong_length_where_no_slot_tells_reaches_no_sink(
    tmp_path: Path, count: int
) -> None:
    """An excerpt swallows its neighbour: all behind would come under the index before its own."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: count})
    file = noon_path(tmp_path / "q")
    with Queue.open(tmp_path / "q") as queue:
        batch = queue.tailer().next_batch(count_max=100)
        assert batch is not None
        header, behind = batch.offsets[80] - 4, batch.offsets[82] - 4
    with file.open("r+b") as store:
        store.seek(header)
        store.write((behind - header - 4).to_bytes(4, "little"))
    copies = {"q": tmp_path / "copy"}
    async with serve_source([tmp_path / "q"], listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            await eventually(lambda: bool(source.stops))
    assert only(source).reason is StopReason.DAMAGED
    assert str(file) in only(source).message
    copied_now = read(copies["q"]) if copies["q"].exists() else []
    assert copied_now == written[: len(copied_now)]
    assert len(copied_now) <= 80


@pytest.mark.parametrize("wanted", [1 << 62, (1 << 63) - 1, -1, -(1 << 63)])
async def test_t13_a_sink_that_asks_for_an_absurd_index(tmp_path: Path, wanted: int) -> None:
    """The queue stops on that connection; a good sink is served before, during and after."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with scripted(source.port, 9, 1) as sink:
            _, cid = await sink.answer(wanted)
            await sink.send(peer.end_of_stream(cid))
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, written[-1][0])
                await eventually(lambda: bool(source.stops))
        async with live_sink(tmp_path / "another", source.port):
            await copied(tmp_path / "q", tmp_path / "another")
    assert read(tmp_path / "q") == written


async def test_the_same_stop_again_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A sink that comes back and back makes no list grow."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        for _ in range(3):
            async with scripted(source.port, 9, 1) as sink:
                await sink.answer(-1)
                await stopped(source)
            await eventually(lambda: not source.endpoint.sessions)
        stop = only(source)
    assert caplog.messages.count(str(stop)) == 1


# what the reasons are


def test_reasons_of_errors() -> None:
    reasons = {
        IndexGap(1, 2, "x"): StopReason.GAP,
        Diverged(1, "a", "b"): StopReason.DIVERGED,
        LayoutMismatch("x"): StopReason.REFUSED,
        ClockBehind("x"): StopReason.REFUSED,
        QueueLocked("x", holder=1): StopReason.REFUSED,
        NotAQueue("x"): StopReason.REFUSED,
        QueueDamaged("x"): StopReason.DAMAGED,
        ExcerptTooLarge(1, 2, 1): StopReason.FAILED,
        AtomicsMissing("x"): StopReason.FAILED,
        QueueError("x"): StopReason.FAILED,
    }
    for error, reason in reasons.items():
        assert reason_of(error) is reason
        stop = Stop.of("q", error)
        hint = stop.message.removeprefix(str(error))
        assert stop == Stop(name="q", reason=reason, message=str(error) + hint)
        assert hint.endswith("--quarantine 0x1 --apply") == (reason is StopReason.DIVERGED)
        assert bool(hint) == (reason is StopReason.DIVERGED)
        assert ("cqrepl quarantine q --apply" in hint) == bool(hint)
    elsewhere = Diverged(1, "a", "b", is_before=True)
    assert Stop.of("q", elsewhere).message == str(elsewhere)  # the place is not known
    assert Stop.of("q", OSError(28, "No space")).reason is StopReason.FAILED
    assert str(Stop.of("q", QueueError("x"))) == "queue 'q' stopped (failed): x"
