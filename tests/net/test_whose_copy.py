"""A sink locks what is its copy, and nothing that it was pointed at by mistake."""

import os
from pathlib import Path
from typing import Any

import pytest

from cqrepl.protocol import StopReason
from cqrepl.queue import ExcerptBatch, Queue, QueueLocked
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED
from cqrepl.replicator.agreement.lineage import check_lineage
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.copies import assert_same
from tests.support.replicas import (
    acked,
    held_by_another_process,
    joined,
    opened_by_another_process,
    stopped,
)
from tests.support.samples import fill, layout, noon_batch, noon_index, payloads, read
from tests.support.tables import keys_of

LOOPBACK = "127.0.0.1:0"


def locked_by(path: Path) -> int | None:
    value = keys_of(path).get(APPEND_LOCK_KEY.lower(), UNLOCKED)
    return None if value == UNLOCKED else value


def is_follower(path: Path) -> bool:
    with Queue.open(path) as queue:
        return queue.is_follower


async def test_a_queue_of_others_is_not_locked(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    with Queue.open_for_append(tmp_path / "copy", create=layout()) as queue:
        queue.appender().append_at(ExcerptBatch.of(noon_index(), [b"foreign"] * 7))
    async with serve_sink({"q": tmp_path / "copy"}, listen=LOOPBACK) as sink:
        assert locked_by(tmp_path / "copy") is None
        address = f"127.0.0.1:{sink.port}"
        async with serve_source({"q": tmp_path / "q"}, connect=address) as source:
            await stopped(sink)
            await stopped(source)
            assert sink.stops[0].reason is StopReason.DIVERGED
            assert locked_by(tmp_path / "copy") is None
    assert [data for _, data in read(tmp_path / "copy")] == [b"foreign"] * 7
    assert not is_follower(tmp_path / "copy")


async def test_a_sink_alone_keeps_no_writer_out_of_its_sources_queue(tmp_path: Path) -> None:
    """Its source is down, and so was the application: nothing tells yet that it is wrong here."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with serve_sink({"q": tmp_path / "q"}, listen=LOOPBACK):
        with Queue.open(tmp_path / "q") as queue:
            queue.append(b"more")
    assert not is_follower(tmp_path / "q")


async def test_its_own_copy_is_locked_from_the_start(tmp_path: Path) -> None:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
        assert locked_by(tmp_path / "copy") == os.getpid()
    assert locked_by(tmp_path / "copy") is None
    assert is_follower(tmp_path / "copy")
    async with serve_sink({"q": tmp_path / "copy"}, listen=LOOPBACK):
        assert locked_by(tmp_path / "copy") == os.getpid()


async def test_a_copy_by_other_means_becomes_one_when_it_is_compared(tmp_path: Path) -> None:
    for name in ("q", "copy"):
        fill(tmp_path / name, "FAST_DAILY", {0: 3})
    with opened_by_another_process(tmp_path / "copy"):
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
            with Queue.open(tmp_path / "q") as queue:
                last = queue.append(b"more")
            await acked(source, last)
            assert not sink.stops
            assert locked_by(tmp_path / "copy") == os.getpid()
    assert is_follower(tmp_path / "copy")


async def test_a_queue_that_another_process_has_locked(tmp_path: Path) -> None:
    fill(tmp_path / "copy", "FAST_DAILY", {0: 3})
    with held_by_another_process(tmp_path / "copy") as holder:
        with pytest.raises(QueueLocked) as caught:
            async with serve_sink({"q": tmp_path / "copy"}, listen=LOOPBACK):
                raise AssertionError
        assert caught.value.holder == holder


async def test_what_is_written_to_a_copy_while_it_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared again, with what was written."""
    for name in ("q", "copy"):
        fill(tmp_path / name, "FAST_DAILY", {0: 3})
    seen: list[Any] = []

    def late(*arguments: Any) -> None:
        if not seen:
            with Queue.open_for_append(tmp_path / "copy") as queue:
                batch = noon_batch("FAST_DAILY", 4)
                queue.appender().append_at(batch.part(3, 4))
        seen.append(arguments)
        check_lineage(*arguments)

    monkeypatch.setattr("cqrepl.replicator.outgoing.lineagedesk.check_lineage", late)
    with opened_by_another_process(tmp_path / "copy"):
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
            await acked(source, noon_index(sequence=3))
            assert not sink.stops
    assert len(seen) == 2
    assert read(tmp_path / "q")[-1][1] == payloads(4)[-1]
    assert_same(tmp_path / "q", tmp_path / "copy")
