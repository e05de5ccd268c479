"""Claims of peers that cannot prove what they hold, as Java's, which announce nothing."""

from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing

from cqrepl import Queue
from cqrepl.replicator.safereader import SafeReader
from cqrepl.replicator.source import Source
from tests.support import peer
from tests.support.replicas import acked, eventually, live_source, more_excerpts
from tests.support.samples import Excerpts, fill, may_go, noon_index, noon_path, stored
from tests.support.scripted import Scripted, scripted
from tests.support.tables import keys_of

pytestmark = pytest.mark.usefixtures("has_pump")

SHORT = 0.1  # so long nothing happens that is not to


async def is_acked(source: Source, index: int, **more: Any) -> bool:
    """True when a wait for an index is answered; one that is not is given some time."""
    with trio.move_on_after(SHORT):
        await source.board("q").wait_acked(index, **more)
        return True
    return False


async def streams(sink: Scripted, next_index: int) -> int:
    """Has the stream begin as a sink that copies back nothing; the cid."""
    _, cid = await sink.answer(next_index)
    await sink.send(peer.end_of_stream(cid))
    return cid


def marks_of_java(path: Path) -> int:
    with Queue.open(path) as queue:
        return queue.acknowledged_index


def said_to_be_safe(path: Path, source: Source) -> Excerpts:
    leading = source.queues["q"].leading
    with Queue.open(path) as queue, SafeReader(queue, safe=leading.safe_index) as reader:
        batch = reader.next_batch()
        return [] if batch is None else stored(batch)


def has_no_mark(path: Path, source: Source) -> bool:
    """Nothing that readers, policies and `gc` go by says that any host has anything."""
    queue = source.queues["q"]
    assert queue.acknowledged == queue.leading.safe_index() == marks_of_java(path) == -1
    assert source.board("q").marks == {}
    assert said_to_be_safe(path, source) == []
    assert not any(may_go(path))
    return keys_of(path).get("cqrepl.2.idx") == 0  # it is asked, and has said nothing


async def test_a_peer_that_was_sent_nothing_answers_no_wait(tmp_path: Path) -> None:
    """It registers the end of the queue as what it wants next: a wrong directory suffices."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 3, 1: 3})
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        await streams(sink, written[-1][0] + 1)
        await eventually(lambda: keys_of(path).get("cqrepl.2.idx") == 0)
        for index, _ in (written[0], written[-1]):
            assert not await is_acked(source, index)
        assert has_no_mark(path, source)
        assert not source.has_all("q", 2)
        with trio.move_on_after(SHORT):
            await source.wait_caught_up()
            raise AssertionError("it has nothing of the queue")
    assert marks_of_java(path) == -1
    assert not any(may_go(path))


@pytest.mark.parametrize("wanted", [1, 3, 4])
async def test_what_was_sent_and_acknowledged_counts_alone(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 3, 1: 3})
    start = written[wanted][0]
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        cid = await streams(sink, start)
        await sink.hear("re", 6 - wanted)
        last = more_excerpts_of_cycle(path, 1, 3, 2)[-1][0]
        await sink.hear("re", 8 - wanted)
        await sink.send(peer.acknowledgement(last - 1, cid=cid))
        await acked(source, last - 1)
        assert await is_acked(source, start, hosts=[2])
        for index in (last, written[wanted - 1][0], written[0][0]):
            assert not await is_acked(source, index)
        assert has_no_mark(path, source)
        assert source.queues["q"].counters.acknowledged.excerpts == 7 - wanted
        waiting = trio.Event()

        async def wait_for_last() -> None:
            await acked(source, last)
            waiting.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_last)
            await sink.send(peer.acknowledgement(last, cid=cid))
            await waiting.wait()
        assert has_no_mark(path, source)


def more_excerpts_of_cycle(path: Path, ahead: int, first: int, count: int) -> Excerpts:
    with Queue.open_for_append(path) as queue:
        index = noon_index(ahead=ahead, sequence=first)
        queue.appender().append_at(peer.batch(index, *[b"more"] * count))
    return [(noon_index(ahead=ahead, sequence=first + n), b"more") for n in range(count)]


@pytest.mark.parametrize("gone", [0, 1, 2])
async def test_a_peer_that_starts_from_nothing_counts_as_ever(tmp_path: Path, gone: int) -> None:
    """Also where the first store files are gone by retention."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 3, 1: 3, 2: 3})[3 * gone :]
    for ahead in range(gone):
        noon_path(path, ahead=ahead).unlink()
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        cid = await streams(sink, 0)
        await sink.hear("re", len(written))
        await sink.send(peer.acknowledgement(written[-1][0], cid=cid))
        await acked(source, written[-1][0])
        await eventually(lambda: marks_of_java(path) == written[-1][0])
        assert source.board("q").marks == {2: written[-1][0]}
        assert source.has_all("q", 2)
        await source.wait_caught_up()
        assert said_to_be_safe(path, source) == written[:3]


@pytest.mark.parametrize("behind", [-1, 0, 1])
async def test_a_peer_goes_on_where_its_mark_stands(tmp_path: Path, behind: int) -> None:
    """Under the kept mark, of an earlier run too; else it has a claim, and the mark stays."""
    path = tmp_path / "q"
    mark = fill(path, "FAST_DAILY", {0: 4})[-1][0]
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        cid = await streams(sink, 0)
        await sink.hear("re", 4)
        await sink.send(peer.acknowledgement(mark, cid=cid))
        await acked(source, mark)
    await eventually(lambda: keys_of(path)["cqrepl.2.idx"] == mark)
    last = more_excerpts(path, 4, 3)[-1][0]
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        cid = await streams(sink, mark + 1 + behind)
        await sink.hear("re", 3 - behind)
        await sink.send(peer.acknowledgement(last, cid=cid))
        await acked(source, last)
        goes_on = behind <= 0
        assert await is_acked(source, mark + 1) == goes_on
        assert (source.board("q").marks == {2: last}) == goes_on
        kept = last if goes_on else mark
        await eventually(lambda: keys_of(path)["cqrepl.2.idx"] == kept)
        assert keys_of(path)["cqrepl.2.snt"] == kept
        assert marks_of_java(path) == kept


@pytest.mark.parametrize("is_other_run", [True, False])
@pytest.mark.parametrize("known", [True, False])
async def test_acknowledgements_that_were_lost_with_the_connection_count(
    tmp_path: Path, *, is_other_run: bool, known: bool
) -> None:
    """The peer was sent that in order, and asks for what follows."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 3, 1: 3})

    async def take_without_a_word(source: Source) -> None:
        async with scripted(source.port, 2, 1) as sink:
            cid = await streams(sink, 0)
            await sink.hear("re", 6)
            if known:
                await sink.send(peer.acknowledgement(written[1][0], cid=cid))
                await acked(source, written[1][0])
            await eventually(lambda: keys_of(path)["cqrepl.2.snt"] == written[-1][0])

    async def come_back(source: Source) -> None:
        async with scripted(source.port, 2, 1) as sink:
            await streams(sink, written[-1][0] + 1)
            await acked(source, written[-1][0])

    async with live_source(path) as source:
        await take_without_a_word(source)
        if not is_other_run:
            await come_back(source)
    if is_other_run:
        async with live_source(path) as source:
            await come_back(source)
    assert marks_of_java(path) == written[-1][0]


async def test_a_claim_ends_with_the_next_stream(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    async with live_source(path) as source:
        async with scripted(source.port, 2, 1) as sink:
            cid = await streams(sink, written[2][0])
            await sink.hear("re", 3)
            await sink.send(peer.acknowledgement(written[-1][0], cid=cid))
            await acked(source, written[-1][0])
        async with scripted(source.port, 2, 1) as sink:
            await streams(sink, written[-1][0] + 1)
            await eventually(lambda: len(source.endpoint.connections) == 1)
            index = more_excerpts(path, 5, 1)[0][0]
            await sink.hear("re")
            assert not await is_acked(source, written[3][0])
            assert not await is_acked(source, index)


async def test_what_a_named_peer_gives_back_is_evidence(tmp_path: Path) -> None:
    """The operator has said that it may: what comes before is taken on trust, and warned of."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    returned = noon_index(sequence=3)
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        _, cid = await sink.answer(returned + 2)
        back = peer.excerpts(returned, b"3", b"4", cid=cid)
        await sink.send(back, peer.end_of_stream(cid))
        await acked(source, returned + 1)
        assert source.board("q").marks == {2: returned + 1}
    assert marks_of_java(path) == returned + 1


# ------------------------------------------------------------ acknowledged, and not sent


@pytest.mark.parametrize("sent", [0, 2])
async def test_an_acknowledgement_beyond_what_was_sent_is_a_claim(
    tmp_path: Path, sent: int
) -> None:
    """It is passed over, however often: what comes behind it counts."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: sent})
    beyond = noon_index(sequence=sent + 5)
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        cid = await streams(sink, 0)
        await sink.hear("re", sent)
        await sink.send(*[peer.acknowledgement(beyond, cid=cid)] * 200)
        last = more_excerpts(path, sent, 1)[-1][0]
        await sink.hear("re", sent + 1)
        for index, _ in written:
            assert not await is_acked(source, index)
        assert not await is_acked(source, last)
        await sink.send(peer.acknowledgement(last, cid=cid))
        await acked(source, last)
        assert source.board("q").marks == {2: last}
        more_excerpts(path, sent + 1, 6)
        await sink.hear("re", sent + 7)
        assert not await is_acked(source, last + 1)
        await sink.send(peer.acknowledgement(last + 6, cid=cid))
        await acked(source, last + 6)


CAPABLE: Final[dict[str, Any]] = {"v": 1, "capabilities": ["lineage"], "role": "host"}
EMPTY = {"v": 1, "firstCycle": -1, "chain": "00" * 16, "cycles": "00" * 16}


async def test_t12_one_that_can_prove_what_it_holds_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 3})
    async with live_source(path) as source, scripted(source.port) as sink:
        hello = peer.uber(2, 1, cqrepl=CAPABLE)
        await sink.send(hello, peer.heartbeats(60_000, 30_000))
        (offer,) = [m for m in await sink.hear("csp", 2) if m["csp"] != "/"]
        cid = offer["cid"]
        answer = peer.source_handler(0, cqrepl=EMPTY)
        await sink.send(peer.register(offer["csp"], cid, answer))
        await sink.hear("proved")
        await sink.send(peer.end_of_stream(cid))
        await sink.hear("re", 3)
        await sink.send(peer.acknowledgement(written[-1][0], cid=cid))
        await acked(source, written[-1][0])
        await trio.testing.wait_all_tasks_blocked(0.05)  # a live pump has the connection
        await sink.send(peer.acknowledgement(written[-1][0] + 1, cid=cid))
        await sink.hear_end()
        assert not await is_acked(source, written[-1][0] + 1)
        assert source.board("q").marks == {2: written[-1][0]}


# ------------------------------------------------------------ shown
