"""A source that has lost its end: its marks claim no more than it has."""

from pathlib import Path

import pytest

from cqrepl import Source
from cqrepl.queue import Queue
from tests.support.copies import assert_same
from tests.support.replicas import acked, eventually, joined, live_sink, live_source
from tests.support.samples import fill, noon_index


async def test_marks_are_lowered_and_rise_with_what_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a backup was put back: the table store knows more than the store file has."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 9})
    fill(tmp_path / "less", "FAST_DAILY", {0: 4})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    for file in (tmp_path / "less").glob("*.cq4"):
        file.rename(tmp_path / "q" / file.name)
    caplog.clear()
    async with live_source(tmp_path / "q") as source:
        assert source.queues["q"].marks[2].acknowledged == written[3][0]
        assert "host 2 may return it" in caplog.text
    with Queue.open(tmp_path / "q") as queue:
        assert queue.acknowledged_index == written[3][0]
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
        assert source.queues["q"].marks[2].acknowledged == written[-1][0]
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_each_copy_counts_once_one_has_given_back_the_end(tmp_path: Path) -> None:
    """The second one has all that the first one has given back, and is sent nothing."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    fill(tmp_path / "less", "FAST_DAILY", {0: 4})
    last = written[-1][0]

    async def all_acked(source: Source) -> None:
        marks = source.queues["q"].marks
        await eventually(lambda: all(each.acknowledged == last for each in marks.values()))
        assert marks.keys() == {2, 3}

    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "two", source.port):
            async with live_sink(tmp_path / "three", source.port, host_id=3):
                await eventually(lambda: len(source.queues["q"].marks) == 2)
                await all_acked(source)
    for file in (tmp_path / "less").glob("*.cq4"):
        file.rename(tmp_path / "q" / file.name)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "two", source.port):
            await acked(source, last)
            async with live_sink(tmp_path / "three", source.port, host_id=3):
                await all_acked(source)
    assert_same(tmp_path / "q", tmp_path / "three")


async def test_a_queue_that_lost_all_knows_its_hosts(
    tmp_path: Path,
) -> None:
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
    for file in (tmp_path / "q").glob("*.cq4"):
        file.unlink()
    async with live_source(tmp_path / "q") as source:
        (marks,) = source.queues["q"].marks.values()  # that there is such a host stays known
        assert marks.acknowledged == -1
        assert marks.sent == 0
        assert source.queues["q"].acknowledged == -1


async def test_its_readers_go_back_to_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else they would pass over what gets the same indexes. At the start of a later cycle nothing
    more was read."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 9})
    end, later = written[4][0], noon_index(ahead=1)
    stands = {"replicated:a": written[7][0], "b": written[8][0] + 1, "c": end}
    with Queue.open(tmp_path / "q") as queue:
        for name, index in stands.items():
            queue.named_position(name).move(index)
    fill(tmp_path / "less", "FAST_DAILY", {0: 4})
    for file in (tmp_path / "less").glob("*.cq4"):
        file.rename(tmp_path / "q" / file.name)
    async with live_source(tmp_path / "q"):
        pass
    with Queue.open(tmp_path / "q") as queue:
        found = {name: queue.named_position(name).load() for name in stands}
        assert queue.named_position("replicated:a").version() == 1
        assert found == dict.fromkeys(stands, end)
    assert "its readers 'replicated:a', 'b' had read more" in caplog.text
    caplog.clear()
    with Queue.open(tmp_path / "q") as queue:
        queue.named_position("d").move(later)
    async with live_source(tmp_path / "q"):
        pass
    with Queue.open(tmp_path / "q") as queue:
        assert queue.named_position("d").load() == later
    assert "had read more" not in caplog.text
