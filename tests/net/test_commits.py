"""Up to where a queue is safe: sinks are told, keep it, and their readers see no more."""

from pathlib import Path

import pytest
import trio

from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy, From
from cqrepl.queue import NotAQueue, Queue
from cqrepl.replicator.safereader import SafeReader
from cqrepl.replicator.source import serve_source
from tests.support.replicas import BEATS, LOOPBACK, eventually, joined, live_sink, more_excerpts
from tests.support.samples import fill, noon_index

LAST = noon_index(sequence=2)
SECONDS = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    return tmp_path / "q"


def acknowledged(path: Path) -> int:
    """The acknowledged mark of a queue, which Java's readers go by; -2 while there is no queue."""
    try:
        with Queue.open(path) as queue:
            return queue.acknowledged_index
    except NotAQueue:
        return -2  # it is not there yet


def read(path: Path, start: int = 0) -> list[int]:
    """The indexes that a reader sees, who sees only what is safe."""
    found: list[int] = []
    with Queue.open(path) as queue, SafeReader(queue, start) as reader:
        while (batch := reader.next_batch()) is not None:
            found += [index for index, _ in batch]
    return found


@pytest.mark.usefixtures("has_pump")
async def test_a_sink_is_told_up_to_where_its_queue_is_safe(path: Path) -> None:
    copy = path.with_name("copy")
    async with joined(path, copy) as (source, sink):
        await source.wait_acked(LAST)
        await eventually(lambda: sink.queues["q"].beyond.committed == LAST, SECONDS)
        await eventually(lambda: acknowledged(copy) == LAST)
        more = more_excerpts(path, 3, 20)
        await eventually(lambda: acknowledged(copy) == more[-1][0], SECONDS)
    assert acknowledged(copy) == more[-1][0], "it is kept"
    assert read(copy)[-1] == more[-1][0]


@pytest.mark.usefixtures("has_pump")
async def test_no_more_is_called_safe_than_the_policy_does(path: Path) -> None:
    """Two sinks have to have it: what one has is stored there, and no reader sees it."""
    policy = AckPolicy(from_=From.ALL, hosts=frozenset({2, 3}))
    one, two = path.with_name("one"), path.with_name("two")
    async with serve_source([path], listen=LOOPBACK, policies={"q": policy}, **BEATS) as source:
        async with live_sink(one, source.port, host_id=2):
            await source.board().wait_acked(LAST, hosts=[2])
            await trio.sleep(0.3)
            assert acknowledged(one) == acknowledged(path) == -1
            assert read(one) == read(path) == []
            async with live_sink(two, source.port, host_id=3):
                await eventually(lambda: acknowledged(one) == acknowledged(two) == LAST, SECONDS)
                await eventually(lambda: acknowledged(path) == LAST, SECONDS)
                for copy in (one, two, path):
                    assert read(copy) == [LAST - 2, LAST - 1, LAST]
                    assert read(copy, LAST) == [LAST]
            more = more_excerpts(path, 3, 20)
            await source.board().wait_acked(more[-1][0], hosts=[2])
            await trio.sleep(0.3)
            assert read(one) == read(path) == [LAST - 2, LAST - 1, LAST]


async def test_it_may_be_what_is_synced(path: Path) -> None:
    policy = AckPolicy(level=AckLevel.SYNCED)
    copy = path.with_name("copy")
    async with serve_source([path], listen=LOOPBACK, policies={"q": policy}, **BEATS) as source:
        async with live_sink(copy, source.port):
            await eventually(lambda: acknowledged(copy) == acknowledged(path) == LAST, SECONDS)


def test_a_reader_goes_by_what_it_is_given(path: Path) -> None:
    safe = -1
    with Queue.open(path) as queue, SafeReader(queue, safe=lambda: safe) as reader:
        assert reader.next_batch() is None
        for safe in range(LAST - 2, LAST + 1):
            batch = reader.next_batch()
            assert batch is not None
            assert [index for index, _ in batch] == [safe]
            assert reader.next_batch() is None
