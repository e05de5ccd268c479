"""Two copies are compared before anything moves between them."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from cqrepl.protocol import StopReason
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue import Diverged, ExcerptBatch, IndexGap, Queue
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.format.index import Index, format_index
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.replicator.agreement.divergence import Compared, DivergenceSearch
from cqrepl.replicator.agreement.lineage import FilesChanged, check_lineage, held
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source
from cqrepl.surroundings import Surroundings
from tests.support.copies import assert_same
from tests.support.reading import cycles_of
from tests.support.replicas import acked, eventually, joined, stopped
from tests.support.samples import fill, layout, noon_index, noon_path, read

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


def test_chains_at_any_index(tmp_path: Path) -> None:
    """In any order, from cached points or not, they are the same."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 5000, 1: 30})
    known = Chains(cycles_of(tmp_path / "q"))
    indexes = [Index(noon_index(sequence=n)) for n in (4999, 1, 0, 2500, 5000, 2500, 4097)]
    indexes += [Index(noon_index(ahead=1, sequence=n)) for n in (30, 7)]
    for index in indexes:
        assert known.at(index) == Chains(cycles_of(tmp_path / "q")).at(index)
    assert len({known.at(index) for index in indexes}) == len(set(indexes))
    for beyond in (noon_index(sequence=5001), noon_index(ahead=1, sequence=31)):
        with pytest.raises(IndexGap):
            known.at(Index(beyond))
    with pytest.raises(IndexGap):
        known.at(Index(noon_index(ahead=5, sequence=1)))


def test_a_replaced_file_has_other_chains(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 50})
    other(tmp_path / "other", {0: 50})
    chains, end = Chains(cycles_of(tmp_path / "q")), Index(noon_index(sequence=50))
    before = chains.at(end)
    noon_path(tmp_path / "other").rename(noon_path(tmp_path / "q"))
    assert chains.at(end) != before


def test_what_is_said_is_checked(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5, 1: 5})
    chains, end = Chains(cycles_of(tmp_path / "q")), noon_index(ahead=1, sequence=5)
    own = held(chains, end, held(chains, end, NOTHING, 32), 32)
    check_lineage(chains, end, own, 32, "host 2")
    with pytest.raises(Diverged, match="received nothing by host 2"):
        check_lineage(chains, end, NOTHING, 32, "host 2")


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


def test_a_file_has_one_place(tmp_path: Path) -> None:
    here = Surroundings()
    (tmp_path / "file").touch()
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    assert here.place_of(tmp_path / "file") == here.place_of(tmp_path / "hard") != 0
    (tmp_path / "link").symlink_to(tmp_path)
    assert here.place_of(tmp_path) == here.place_of(tmp_path / "link") != 0
    (tmp_path / "other").mkdir()
    assert here.place_of(tmp_path / "other") != here.place_of(tmp_path)
    assert here.place_of(tmp_path / "none") == 0


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


async def test_that_nothing_can_be_proved_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cqrepl.replicator.agreement.lineage.has_chains", lambda: False)
    async with serve_sink({"q": tmp_path / "copy"}, listen="127.0.0.1:0"):
        pass
    assert "no library for hashes" in caplog.text


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
