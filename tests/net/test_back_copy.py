"""A sink that is ahead: what the source lost comes back, at exactly its indexes."""

import hashlib
import shutil
from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import Queue, format_index
from cqrepl.replicator.outgoing import backcopy
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.relay import Relay
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    TAKEN,
    acked,
    at,
    copied,
    eventually,
    held_by_another_process,
    joined,
    live_source,
    more_excerpts,
    sink_stopped,
    stopped,
)
from tests.support.samples import NOON_MS, Excerpts, fill, layout, noon_index, noon_path, read
from tests.support.scripted import scripted
from tests.support.tables import is_fenced, is_free

DAY_MS = 86_400_000


def ahead(tmp_path: Path, common: int, more: dict[int, int]) -> tuple[Path, Path, Excerpts]:
    """An original that lost all but the first excerpts of what its copy has."""
    original, copy = tmp_path / "q", tmp_path / "copy"
    if common:
        fill(original, "FAST_DAILY", {0: common})
        shutil.copytree(original, copy)
    else:
        with Queue.open_for_append(original, create=layout()):
            pass
    if more.get(0):
        if common:
            more_excerpts(copy, common, more[0])
        else:
            fill(copy, "FAST_DAILY", {0: more[0]})
    for days, count in more.items():
        if days:
            with Queue.open_for_append(copy, create=layout()) as queue:
                queue.appender().append([b"%d" % n for n in range(count)], NOON_MS + days * DAY_MS)
    return original, copy, read(copy)


def only(source: Source) -> Stop:
    (stop,) = source.stops
    return stop


@pytest.mark.parametrize("source_dials", [False, True])
@pytest.mark.parametrize(
    ("common", "more"),
    [(10, {0: 15}), (10, {1: 300}), (10, {0: 3, 1: 2, 4: 600}), (0, {0: 200}), (0, {2: 5})],
)
async def test_what_the_source_lost_comes_back(
    tmp_path: Path, common: int, more: dict[int, int], source_dials: bool
) -> None:
    original, copy, everything = ahead(tmp_path, common, more)
    async with joined(original, copy, source_dials=source_dials) as (source, sink):
        await copied(copy, original)
        await eventually(lambda: is_free(original))
        with Queue.open_for_append(original) as queue:  # and on it goes, with new ones
            last = queue.appender().append([b"new"], NOON_MS + 9 * DAY_MS)
        await acked(source, last)
        assert not source.stops
        assert not sink.stops
    assert read(original)[:-1] == everything
    assert_same(original, copy)
    assert is_free(original)
    assert is_free(copy)


async def test_a_back_copy_of_many_batches_and_a_long_excerpt(tmp_path: Path) -> None:
    original, copy, _ = ahead(tmp_path, 5, {0: 1})
    with Queue.open_for_append(copy) as queue:
        appender = queue.appender()
        appender.append([bytes([n]) * 1000 for n in range(200)] * 5, NOON_MS)
        appender.append([bytes(2_000_000), b"", b"x"], NOON_MS)
    async with joined(original, copy):
        await copied(copy, original)
    assert_same(copy, original)


async def test_other_queues_stream_meanwhile(tmp_path: Path) -> None:
    original, copy, _ = ahead(tmp_path, 5, {0: 50})
    written = fill(tmp_path / "r", "FAST_DAILY", {0: 40})
    queues = {"q": original, "r": tmp_path / "r"}
    copies = {"q": copy, "r": tmp_path / "copy-r"}
    async with serve_source(queues, listen=LOOPBACK, **(BEATS | TAKEN)) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):
            await acked(source, written[-1][0], "r")
            await copied(copy, original)
    assert read(tmp_path / "copy-r") == written


async def test_cut_in_the_middle_of_a_back_copy(tmp_path: Path) -> None:
    """The locks are given back, and the next connection copies the rest."""
    original, copy, _ = ahead(tmp_path, 5, {0: 1})
    with Queue.open_for_append(copy) as queue:
        appender = queue.appender()
        for _ in range(10):
            appender.append([bytes(1000)] * 500, NOON_MS)
    before = len(read(original))
    cut_after = 2_000_000  # towards the dialler, which is the source here
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
        async with Relay(sink.port, cut_after=cut_after).running() as relay:
            async with serve_source({"q": original}, connect=at(relay.port), **(BEATS | TAKEN)):
                await eventually(lambda: relay.connections == 2)
                assert len(read(original)) > before
                await copied(copy, original)
    assert is_free(original)


async def test_locked_for_others_while_it_lasts(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with live_source(tmp_path / "q") as source:
        async with scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(noon_index(sequence=7))
            await eventually(lambda: is_fenced(tmp_path / "q"))
            await sink.send(
                peer.excerpts(noon_index(sequence=5), b"5", b"6", cid=cid),
                peer.end_of_stream(cid),
            )
            await eventually(lambda: is_free(tmp_path / "q"))
            assert [data for _, data in read(tmp_path / "q")[5:]] == [b"5", b"6"]
            # the next one that is written here streams at once
            more_excerpts(tmp_path / "q", 7, 1)
            assert (await sink.hear("re"))[0]["re"][0] == noon_index(sequence=7)


async def in_the_way(
    path: Path, local: Excerpts, returned: list[bytes]
) -> tuple[list[Stop], list[peer.Message]]:
    """A writer of this host wrote between the offer and the sink's answer, which is ahead."""
    async with live_source(path) as source:
        async with scripted(source.port, 2, 1) as sink:
            await sink.hear("csp", 2)  # the offer says 5
            if local:
                with Queue.open_for_append(path) as queue:
                    queue.appender().append([data for _, data in local], NOON_MS)
            _, cid = await sink.answer(noon_index(sequence=5 + len(returned)))
            await sink.send(
                peer.excerpts(noon_index(sequence=5), *returned, cid=cid),
                peer.end_of_stream(cid),
            )
            await eventually(lambda: bool(source.stops) or streams(source))
            if not source.stops:
                with Queue.open_for_append(path) as queue:
                    queue.appender().append([b"on"], NOON_MS)
                await sink.hear("re")
            return list(source.stops), sink.all("re")


def streams(source: Source) -> bool:
    """True once the back copy is over and has given its locks back."""
    sessions = [each for each in source.endpoint.sessions if isinstance(each, SourceSession)]
    return any(each.tailer for session in sessions for each in session.outgoing.values())


@pytest.mark.parametrize("returned", [[b"a", b"b"], [b"a", b"b", b"c", b""], [b"a", b"b", b"c"]])
async def test_same_bytes_of_a_local_writer_pass(tmp_path: Path, returned: list[bytes]) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    stops, streamed = await in_the_way(tmp_path / "q", [(0, b"a"), (0, b"b")], returned)
    assert stops == []
    next_index = noon_index(sequence=5 + len(returned))
    assert [message["re"][:2] for message in streamed] == [(next_index, b"on")]
    there = [data for _, data in read(tmp_path / "q")[5:]]
    assert there == [data or b"\x8f" for data in returned] + [b"on"]


async def test_other_bytes_of_a_local_writer_diverge(tmp_path: Path) -> None:
    """Both indexes and digests in the message; nothing is overwritten and nothing added."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    stops, streamed = await in_the_way(
        tmp_path / "q", [(0, b"a"), (0, b"mine")], [b"a", b"theirs", b"c"]
    )
    (stop,) = stops
    assert stop.reason is StopReason.DIVERGED
    assert format_index(noon_index(sequence=6)) in stop.message
    for data in (b"mine", b"theirs"):
        assert hashlib.sha256(data).hexdigest() in stop.message
    assert streamed == []
    assert [data for _, data in read(tmp_path / "q")[5:]] == [b"a", b"mine"]
    assert is_free(tmp_path / "q")


async def test_a_local_writer_in_another_cycle_diverges(tmp_path: Path) -> None:
    """The sink goes on in the old cycle, which the local writer has closed."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    async with live_source(path) as source:
        async with scripted(source.port, 2, 1) as sink:
            await sink.hear("csp", 2)
            with Queue.open_for_append(path) as queue:
                queue.appender().append([b"tomorrow"], NOON_MS + DAY_MS)
            _, cid = await sink.answer(noon_index(ahead=1, sequence=2))
            await sink.send(peer.excerpts(noon_index(sequence=5), b"today", cid=cid))
            await eventually(lambda: bool(source.stops))
    assert only(source).reason is StopReason.DIVERGED
    assert format_index(noon_index(sequence=5)) in only(source).message
    assert read(path)[5:] == [(noon_index(ahead=1), b"tomorrow")]


async def test_a_gap_in_what_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    async with live_source(path) as source:
        async with scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(noon_index(sequence=9))
            await sink.send(peer.excerpts(noon_index(sequence=6), b"x", cid=cid))
            await stopped(source)
            await eventually(lambda: is_free(path))
    stop = only(source)
    assert stop.reason is StopReason.GAP
    for sequence in (5, 6):
        assert format_index(noon_index(sequence=sequence)) in stop.message
    assert len(read(path)) == 5


async def test_a_queue_that_another_process_has_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source does not take the lock from a living process: it stops and names the process."""
    monkeypatch.setattr(backcopy, "LOCK_SECONDS", 0.05)
    original, copy, _ = ahead(tmp_path, 5, {0: 5})
    with held_by_another_process(original) as pid:
        async with joined(original, copy) as (source, _):
            await stopped(source)
    assert only(source).reason is StopReason.REFUSED
    assert str(pid) in only(source).message
    assert len(read(original)) == 5


async def test_an_excerpt_in_the_copy_that_is_too_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink stops that queue and names the index; the other queue and the process go on."""
    original, copy, _ = ahead(tmp_path, 5, {0: 1})
    with Queue.open_for_append(copy) as queue:
        queue.appender().append([bytes(9000)], NOON_MS)
    written = fill(tmp_path / "r", "FAST_DAILY", {0: 40})
    queues = {"q": original, "r": tmp_path / "r"}
    copies = {"q": copy, "r": tmp_path / "copy-r"}
    async with serve_source(queues, listen=LOOPBACK, **(BEATS | TAKEN)) as source:
        async with serve_sink(copies, connect=at(source.port), payload_max=4096, **BEATS) as sink:
            await sink_stopped(sink, "q")
            await acked(source, written[-1][0], "r")
            (stop,) = sink.stops
            more = more_excerpts(tmp_path / "r", 40, 2)
            await acked(source, more[-1][0], "r")
    assert format_index(noon_index(sequence=6)) in stop.message
    assert read(tmp_path / "copy-r") == written + more


async def test_a_damaged_copy(tmp_path: Path) -> None:
    """Found in the middle of a back copy: that queue of the sink stops."""
    original, copy, _ = ahead(tmp_path, 5, {0: 1})
    with Queue.open_for_append(copy) as queue:
        queue.appender().append([b"d" * 100] * 5000, NOON_MS)
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
        file = noon_path(copy)
        data = file.read_bytes()
        with file.open("r+b") as store:
            store.seek(data.index(b"d" * 100, 450_000) + 100)
            store.write(b"\xff\xff\xff\x3f")  # a document that ends behind the file
        async with serve_source({"q": original}, connect=at(sink.port), **(BEATS | TAKEN)):
            await stopped(sink)
        (stop,) = sink.stops
    assert stop.reason is StopReason.DAMAGED
    assert str(file) in stop.message
    assert is_free(original)
