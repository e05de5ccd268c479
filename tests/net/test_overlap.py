"""Of a source that cannot prove what it holds, as Java's, the last excerpts come again."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.agreement.overlap import OVERLAP_EXCERPTS
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.sink import serve_sink
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.relay import Relay, forward_all
from tests.support.replicas import (
    LOOPBACK,
    acked,
    eventually,
    joined,
    live_sink,
    live_source,
    stopped,
)
from tests.support.samples import Excerpts, digests, fill, noon_index, noon_path, read
from tests.support.scripted import Scripted, scripted

CID: Final = 901
RULE: Final = "cannot prove what it holds"
MORE: Final = [b"one more", b"and one"]


async def begin(source: Scripted, next_index: int, *, name: str = "q", cid: int = CID) -> int:
    """Offers a queue as Java does; from which index on the sink wants it."""
    answer = await source.offer(name, cid, next_index, cqrepl={})
    wanted: int = answer["nextIndexRequired"]
    return wanted


def sent(excerpts: Iterable[tuple[int, bytes]], cid: int = CID) -> bytes:
    return b"".join(peer.excerpt(index, data, cid=cid) for index, data in excerpts)


def behind(index: int) -> Excerpts:
    """The excerpts from this index on that the source has and the copy lacks."""
    return [(index + n, data) for n, data in enumerate(MORE)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if RULE in each]


@pytest.mark.parametrize(
    ("counts", "ahead", "sequence"),
    [
        ({0: 3}, 0, 0),
        ({0: OVERLAP_EXCERPTS}, 0, 0),
        ({0: OVERLAP_EXCERPTS + 7}, 0, 7),
        ({0: 5, 2: 3}, 2, 0),
        ({0: 5, 2: OVERLAP_EXCERPTS + 1}, 2, 1),
    ],
    ids=str,
)
async def test_what_is_equal_comes_again_and_is_dropped(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    counts: dict[int, int],
    ahead: int,
    sequence: int,
) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", counts)
    end, start = written[-1][0] + 1, noon_index(ahead=ahead, sequence=sequence)
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            assert await begin(source, end + len(MORE)) == start
            await source.send(sent([*(each for each in written if each[0] >= start)]))
            await source.hear_stored(end - 1)
            await source.send(sent(behind(end)))
            await source.hear_stored(end + len(MORE) - 1)
        assert not sink.stops
    assert read(tmp_path / "q") == written + behind(end)
    said = warnings(caplog)
    assert len(said) == (1 if start > written[0][0] else 0)
    assert all(f"{end - start} excerpts, from {format_index(start)} on" in each for each in said)


@pytest.mark.parametrize("place", [7, 8, OVERLAP_EXCERPTS, OVERLAP_EXCERPTS + 6])
async def test_the_first_difference_stops_the_queue(tmp_path: Path, place: int) -> None:
    """It is named with both digests, and nothing that is behind it is appended."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: OVERLAP_EXCERPTS + 7})
    end = written[-1][0] + 1
    theirs = [
        (index, b"other" if at >= place else data) for at, (index, data) in enumerate(written)
    ]
    before = noon_path(tmp_path / "q").read_bytes()
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            start = await begin(source, end + len(MORE))
            await source.send(sent([each for each in theirs if each[0] >= start] + behind(end)))
            await stopped(sink)
            assert all(each["idx"] < written[place][0] for each in source.all("idx"))
    (stop,) = sink.stops
    assert stop.reason is StopReason.DIVERGED
    index = written[place][0]
    (mine,), (other,) = digests([written[place]]), digests([theirs[place]])
    assert (
        f"diverged at {format_index(index)}: stored {mine[1]}, received {other[1]}" in stop.message
    )
    assert noon_path(tmp_path / "q").read_bytes() == before


async def test_a_batch_that_is_known_in_part(tmp_path: Path) -> None:
    """One write of the source ends behind the end of the copy."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 20})
    end = written[-1][0] + 1
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await begin(source, end + len(MORE))
            await source.send(sent(written + behind(end)))
            await source.hear_stored(end + 1)
    assert read(tmp_path / "q") == written + behind(end)


async def test_a_source_that_passes_over_what_is_here(tmp_path: Path) -> None:
    """Its cycle has fewer excerpts than the copy's, and it goes on in a later one."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 20})
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await begin(source, noon_index(ahead=1, sequence=1))
            await source.send(sent([*written[:15], (noon_index(ahead=1), b"later")]))
            await stopped(sink)
    (stop,) = sink.stops
    assert stop.reason is StopReason.DIVERGED
    assert f"diverged at {format_index(written[15][0])}" in stop.message
    assert read(tmp_path / "q") == written


async def test_a_source_that_has_removed_the_whole_cycle(tmp_path: Path) -> None:
    """Nothing of it can come again: it goes on behind, as retention allows."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 20})
    later = noon_index(ahead=1)
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await begin(source, later + 1)
            await source.send(sent([(later, b"later")]))
            await source.hear_stored(later)
        assert not sink.stops
    assert read(tmp_path / "q") == [*written, (later, b"later")]


async def test_nothing_is_asked_again_of_a_source_that_has_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The index that is asked for tells it how much comes back."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 20})
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK) as sink:
        async with scripted(sink.port, 1, 2) as source:
            assert await begin(source, noon_index(sequence=12)) == written[-1][0] + 1
            await source.hear("eos")
            returned = [each["re"][:2] for each in source.all("re")]
    assert returned == written[12:]
    (said,) = warnings(caplog)
    assert "has less than this copy" in said


async def test_each_connection_asks_and_warns_once_for_each_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = {name: tmp_path / name for name in ("q", "r")}
    for path in paths.values():
        written = fill(path, "FAST_DAILY", {0: 4, 1: 4})
    end, start = written[-1][0] + 1, noon_index(ahead=1)
    async with serve_sink(paths, listen=LOOPBACK) as sink:
        for host in (1, 1):
            caplog.clear()
            async with scripted(sink.port, host, 2) as source:
                for cid, name in enumerate(paths, CID):
                    assert await begin(source, end, name=name, cid=cid) == start
                    await source.send(sent(written[4:], cid))
                await source.hear_stored(end - 1)
                # what a peer brings about again within a second is told at its end
                await eventually(lambda: len(warnings(caplog)) == len(paths))
            await eventually(lambda: all(queue.owner is None for queue in sink.queues.values()))


async def test_a_source_that_can_prove_sends_nothing_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 20})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    with Queue.open_for_append(tmp_path / "q") as queue:
        queue.appender().append_at(ExcerptBatch.of(written[-1][0] + 1, MORE))
    async with (
        live_source(tmp_path / "q", runs=True) as source,
        Relay(source.port, on_document=forward_all).running() as relay,
        live_sink(tmp_path / "copy", relay.port, runs=True),
    ):
        await acked(source, written[-1][0] + len(MORE))
        (answer,) = [
            each["handler"][1]
            for raw in relay.documents_from("sink")
            for each in peer.decoded(raw)
            if "SourceReplicationHandler" in str(each.get("handler"))
        ]
        assert answer["nextIndexRequired"] == written[-1][0] + 1
        (run,) = [
            each["run"][1]
            for raw in relay.documents_from("source")
            for each in peer.decoded(raw)
            if "run" in each
        ]
        assert run == MORE
    assert_same(tmp_path / "q", tmp_path / "copy")
    assert not warnings(caplog)


async def test_what_came_again_is_not_logged_as_appended(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 20})
    end, log = written[-1][0] + 1, tmp_path / "log"
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK, append_log=log) as sink:
        async with scripted(sink.port, 1, 2) as source:
            await begin(source, end + len(MORE))
            await source.send(sent(written + behind(end)))
            await source.hear_stored(end + 1)
    entries = [ENTRY.unpack(data) for _, data in read(log)]
    assert sum(count for _, _, _, count, _ in entries) == len(MORE)
    assert entries[-1][0] == end + 1
