"""Two copies are compared before anything moves between them."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
import trio.testing

from cqrepl.protocol import StopReason
from cqrepl.protocol.events import LineageProved
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue import Diverged, ExcerptBatch, Queue, QueueError
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.format.index import Index, format_index
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.replicator.agreement import lineage
from cqrepl.replicator.agreement.divergence import Compared, DivergenceSearch
from cqrepl.replicator.agreement.lineage import FilesChanged, held
from cqrepl.replicator.agreement.overlap import OVERLAP_EXCERPTS
from cqrepl.replicator.incoming.epochdesk import EpochDesk, TailInUse
from cqrepl.replicator.outgoing import lineagedesk
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.reading import cycles_of
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
from tests.support.samples import Excerpts, digests, fill, layout, noon_index, noon_path, read
from tests.support.scripted import Scripted, scripted

NOTHING = Lineage(first_cycle=0)


def other(path: Path, counts: dict[int, int]) -> None:
    """A queue of the same shape that holds other excerpts."""
    with Queue.open_for_append(path, create=layout()) as queue:
        for ahead, count in counts.items():
            data = [b"another %d" % n for n in range(count)]
            queue.appender().append_at(ExcerptBatch.of(noon_index(ahead=ahead), data))


def unlike(path: Path, counts: dict[int, int]) -> None:
    """A queue of excerpts that no two are alike of."""
    with Queue.open_for_append(path, create=layout()) as queue:
        for ahead, count in counts.items():
            data = [b"<%d of %d>" % (n, ahead) for n in range(count)]
            queue.appender().append_at(ExcerptBatch.of(noon_index(ahead=ahead), data))


def change(file: Path, payload: bytes) -> None:
    """One bit of an excerpt."""
    content = bytearray(file.read_bytes())
    content[content.index(payload)] ^= 1
    file.write_bytes(content)


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("*.cq4")}


def both(source: Source, sink: Sink) -> set[StopReason]:
    return {each.reason for each in (*source.stops, *sink.stops)}


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({0: 5}, {0: 8}),
        ({0: 8}, {0: 5}),
        ({0: 5}, {0: 5}),
        ({0: 5, 1: 3}, {0: 5}),
        ({0: 5}, {0: 5, 1: 3}),
        ({0: 5, 2: 3}, {0: 5, 2: 4}),
        ({0: 8}, {0: 5, 1: 3}),
        ({0: 5, 1: 3}, {0: 8}),
    ],
    ids=str,
)
async def test_a_difference_stops_both_sides_and_moves_nothing(
    tmp_path: Path, mine: dict[int, int], theirs: dict[int, int]
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", mine)
    other(tmp_path / "copy", theirs)
    before = contents(tmp_path / "q"), contents(tmp_path / "copy")
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        await stopped(sink)
        assert both(source, sink) == {StopReason.DIVERGED}
        assert "diverged " in source.stops[0].message
        assert source.queues["q"].acknowledged == -1
        assert not source.queues["q"].marks
    assert (contents(tmp_path / "q"), contents(tmp_path / "copy")) == before
    with Queue.open(tmp_path / "q") as queue:
        assert queue.acknowledged_index == -1


async def test_one_changed_byte_is_a_difference(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 300, 1: 5})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    change(noon_path(tmp_path / "copy"), written[77][1])
    (tmp_path / "copy" / CLOSED_FILE_NAME).unlink(missing_ok=True)  # else it is known who is wrong
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        await stopped(sink)
        assert both(source, sink) == {StopReason.DIVERGED}
        assert f"diverged at {format_index(written[77][0])}" in source.stops[0].message


async def test_a_cycle_that_one_side_lacks_is_a_difference(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3, 1: 3, 2: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    noon_path(tmp_path / "copy", ahead=1).unlink()
    (tmp_path / "copy" / CLOSED_FILE_NAME).unlink(missing_ok=True)  # else it tells by itself
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        assert both(source, sink) <= {StopReason.DIVERGED}


@pytest.mark.parametrize("side", ["q", "copy"])
async def test_what_retention_took_is_no_difference(tmp_path: Path, side: str) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3, 1: 3, 2: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    noon_path(tmp_path / side).unlink()
    with Queue.open_for_append(tmp_path / "q") as queue:
        queue.appender().append_at(ExcerptBatch.of(written[-1][0] + 1, [b"new"]))
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0] + 1)
        assert not both(source, sink)
    assert read(tmp_path / "q")[-4:] == read(tmp_path / "copy")[-4:]


@pytest.mark.parametrize("is_first_closed", [False, True])
async def test_an_earlier_cycle_that_came_since_is_a_difference(
    tmp_path: Path, is_first_closed: bool
) -> None:
    """As of a writer whose clock was set back while no sink was connected."""
    written = fill(tmp_path / "q", "FAST_DAILY", {3: 3, 4: 3} if is_first_closed else {3: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    fill(tmp_path / "late", "FAST_DAILY", {0: 3, 1: 2})
    noon_path(tmp_path / "late").rename(noon_path(tmp_path / "q"))
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        await stopped(sink)
        assert both(source, sink) == {StopReason.DIVERGED}
        assert f"diverged at {format_index(noon_index())}" in source.stops[0].message
        assert "begin the copy anew" in source.stops[0].message
        assert not source.board("q").marks  # a wait for it is not answered
    assert read(tmp_path / "copy") == written
    async with joined(tmp_path / "q", tmp_path / "new") as (source, _):
        await acked(source, written[-1][0])
    assert_same(tmp_path / "q", tmp_path / "new")


async def test_what_gc_took_off_a_copy_is_no_difference_though_no_note_told_of_it(
    tmp_path: Path,
) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3, 1: 3, 2: 3})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 3, 1: 3, 2: 3})
    removed = remove(cycles_of(tmp_path / "copy"), Policy())
    assert len(removed) == 2
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        assert not both(source, sink)


async def test_equal_up_to_the_shorter_end_is_equal(tmp_path: Path) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 300, 1: 20})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 300, 1: 7})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        # the second cycle's excerpts are drawn from the same seed
        await acked(source, written[-1][0])
        assert not both(source, sink)
    assert_same(tmp_path / "q", tmp_path / "copy")


@pytest.mark.parametrize("through", ["its path", "a link", "hard links"])
async def test_a_sink_is_not_kept_in_its_source_s_directory(tmp_path: Path, through: str) -> None:
    """It would keep the application out, and acknowledge what is nowhere else."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    copy = tmp_path / "q"
    if through == "a link":
        copy = tmp_path / "copy"
        copy.symlink_to(tmp_path / "q")
    elif through == "hard links":  # as of `cp -al`
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in (tmp_path / "q").iterdir():
            (copy / file.name).hardlink_to(file)
    async with joined(tmp_path / "q", copy) as (source, sink):
        await stopped(sink)
        assert sink.stops[0].reason is StopReason.REFUSED
        assert "they are the same" in sink.stops[0].message
        await eventually(lambda: bool(source.stops))
        with Queue.open_for_append(tmp_path / "q") as queue:
            assert queue.append(b"of the application") > written[-1][0]
        assert source.queues["q"].acknowledged == -1


@pytest.mark.parametrize(
    ("mine", "theirs", "changed", "first", "stored", "received"),
    [
        ({0: 300}, {0: 300}, (0, 0), (0, 0), True, True),
        ({0: 300}, {0: 300}, (0, 299), (0, 299), True, True),
        ({0: 300}, {0: 260}, (0, 137), (0, 137), True, True),
        ({0: 50, 1: 40, 3: 30, 7: 20}, {0: 50, 1: 40, 3: 30}, (1, 39), (1, 39), True, True),
        ({0: 50, 1: 40, 3: 30, 7: 20}, {0: 50, 1: 40, 3: 30}, (0, 0), (0, 0), True, True),
        ({0: 50, 1: 40, 3: 30}, {0: 50, 1: 40, 3: 30, 7: 20}, (3, 5), (3, 5), True, True),
        ({0: 50, 1: 40, 3: 30}, {0: 50, 1: 38, 3: 30}, None, (1, 38), True, False),
        ({0: 50, 1: 38, 3: 30}, {0: 50, 1: 40, 3: 30}, None, (1, 38), False, True),
        ({0: 50, 1: 40, 3: 30}, {0: 50, 3: 30}, None, (1, 0), True, False),
        ({0: 50, 3: 30}, {0: 50, 1: 40, 3: 30}, None, (0, 50), False, True),
    ],
)
async def test_the_first_difference_is_named(
    tmp_path: Path,
    mine: dict[int, int],
    theirs: dict[int, int],
    changed: tuple[int, int] | None,
    first: tuple[int, int],
    stored: bool,
    received: bool,
) -> None:
    unlike(tmp_path / "q", mine)
    unlike(tmp_path / "copy", theirs)
    if changed is not None:
        ahead, sequence = changed
        change(noon_path(tmp_path / "copy", ahead=ahead), b"<%d of %d>" % (sequence, ahead))
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        await stopped(sink)
        (stop,) = source.stops
        assert stop.reason is StopReason.DIVERGED
        where = format_index(noon_index(ahead=first[0], sequence=first[1]))
        assert stop.message.startswith(f"diverged at {where}: stored ")
        assert ("stored nothing" not in stop.message) == stored
        assert ("received nothing" not in stop.message) == received
        for path in ("q", "copy"):
            with Queue.open(tmp_path / path) as queue:
                assert format_index(queue.next_index()) in stop.message
        assert stop.message in sink.stops[0].message
        is_first = first == (0, 0)
        assert ("are they copies of one queue?" in stop.message) == is_first


@pytest.mark.parametrize("at", ["before", "at its end", "never"])
def test_a_file_that_comes_back_during_a_search_is_no_difference(tmp_path: Path, at: str) -> None:
    """As one of the copy's that was altered, and comes back from another host meanwhile."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    counts = {0: 3, 1: 3, 2: 3}
    unlike(path, counts)
    unlike(copy, counts)
    end, whole = (noon_index(ahead=ahead, sequence=3) for ahead in (2, 1))
    own, good = Chains(cycles_of(path)), Chains(cycles_of(copy))
    unlike(tmp_path / "altered", counts)
    change(noon_path(tmp_path / "altered", ahead=1), b"<1 of 1>")
    altered = Chains(cycles_of(tmp_path / "altered"))
    compared = Compared(
        end=end, theirs=held(altered, end, NOTHING, 32), own_next=end, their_next=end, who="host 2"
    )
    search = DivergenceSearch(own, compared, 32)
    found, is_back = search.begin(), False
    with pytest.raises(FilesChanged) if at == "at its end" else nullcontext():
        while isinstance(found, int):
            is_back = is_back or at == "before" or (at == "at its end" and found == whole)
            found = search.take(held(good if is_back else altered, found, NOTHING, 32))
    if at == "never":
        assert isinstance(found, Diverged)
        assert found.index == noon_index(ahead=1, sequence=1)
    elif at == "before":
        assert found is None


ROLL = "FAST_DAILY"
COUNTS = {0: 5, 1: 30, 2: 7}


async def two_copies(tmp_path: Path) -> None:
    """Make two copies that hold the same, and of which nothing is noted."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    for name in ("q", "copy"):
        (tmp_path / name / CLOSED_FILE_NAME).unlink(missing_ok=True)


def taken(tmp_path: Path, side: str, ahead: int) -> Callable[[], None]:
    """Takes a store file away; puts it back."""
    file, aside = noon_path(tmp_path / side, ahead=ahead), tmp_path / "aside"
    file.rename(aside)

    def put_back() -> None:
        if aside.exists():
            aside.rename(file)

    return put_back


@pytest.mark.parametrize("ahead", [0, 1], ids=["lowest", "middle"])
@pytest.mark.parametrize("side", ["q", "copy"])
async def test_it_is_no_difference_once_it_is_back(
    tmp_path: Path, side: str, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is missing when the offer and the answer are made, and back when they are compared."""
    await two_copies(tmp_path)
    put_back = taken(tmp_path, side, ahead)
    looks: list[Callable[..., object]] = [lineage.check_begin, lineage.check_lineage]
    for look in looks:

        def back_by_then(*claimed: object, look: Callable[..., object] = look) -> object:
            put_back()
            return look(*claimed)

        monkeypatch.setattr(lineagedesk, look.__name__, back_by_then)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await eventually(lambda: source.queues["q"].acknowledged == noon_index(ahead=2, sequence=6))
        assert source.queues["q"].late.look() is None, "no stream has passed that file"
        assert not source.stops + sink.stops
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_nor_while_the_stream_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The source's first answer to what the sink has read is wrong, as of a file that has gone."""
    written = fill(tmp_path / "q", ROLL, COUNTS)
    asked: list[Index] = []
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await acked(source, written[-1][0])
        chains = source.queues["q"].chains
        right = chains.at

        def wrong_once(index: Index) -> bytes:
            asked.append(index)
            return bytes(16) if len(asked) == 1 else right(index)

        monkeypatch.setattr(chains, "at", wrong_once)
        await eventually(lambda: len(asked) > 1)
        with Queue.open_for_append(tmp_path / "q") as queue:
            queue.appender().append_at(ExcerptBatch.of(Index(written[-1][0] + 1), [b"more"]))
        await acked(source, written[-1][0] + 1)
        before = len(asked)
        await eventually(lambda: len(asked) > before)  # it is read and compared on
        assert not source.stops + sink.stops
    assert "diverged" not in caplog.text
    assert_same(tmp_path / "q", tmp_path / "copy")


@pytest.mark.parametrize("error", [TailInUse("in use"), QueueError("cannot be locked")])
async def test_a_queue_that_is_let_go_of_while_its_copy_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As when the leader changes meanwhile: what is in the way then ends no host."""
    fill(tmp_path / "q", ROLL, COUNTS)
    real, tried = EpochDesk.follow, 0

    async def let_go_of(self: EpochDesk, event: LineageProved, *rest: Any) -> bool:
        nonlocal tried
        tried += 1
        if tried == 1:
            self._connection.withdraw_queue(event.cid, "meanwhile")
            raise error
        return await real(self, event, *rest)

    monkeypatch.setattr(EpochDesk, "follow", let_go_of)
    async with joined(tmp_path / "q", tmp_path / "copy"):
        await eventually(lambda: tried > 0)
        await trio.testing.wait_all_tasks_blocked()


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
