"""Queues that Java wrote: read exactly, copied index for index, and made whole by an append."""

from pathlib import Path

import pytest

from cqrepl.queue import NotAQueue, Queue, QueueLayout
from cqrepl.queue.files.tablestore import table_header_image
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.format.storeimage import store_image
from cqrepl.queue.read.count import nth_last_index
from tests.support.goldens import OLD, READABLE, WRITABLE, Manifest, manifest, unpack
from tests.support.reading import down_of
from tests.support.samples import check_marks, digests, read, rest_of


@pytest.fixture(params=READABLE)
def golden(request: pytest.FixtureRequest) -> Manifest:
    return manifest(request.param)


def test_every_way_of_reading_gives_what_java_wrote(golden: Manifest, tmp_path: Path) -> None:
    """The way up stops where Java stops; no other way is stopped by a cycle without its end."""
    path = unpack(golden.name, tmp_path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    indexes = [index for index, _ in golden.digests]
    every = range(0, len(indexes), max(1, len(indexes) // 9))
    with Queue.open(path) as queue:
        layout, cycles = queue.layout, queue.cycles
        assert (layout.roll_cycle.name, layout.epoch) == (golden.roll_cycle_name, golden.epoch)
        assert layout.index_count == golden.index_count
        assert layout.index_spacing == golden.index_spacing
        assert digests(rest_of(queue.tailer())) == golden.digests[: golden.java_reads]
        for limits in ((), (7,)):
            assert digests(down_of(queue.backward(), *limits))[::-1] == golden.digests
        ends = queue.first_index(), queue.last_index(), queue.next_index(), queue.count()
        assert ends == (indexes[0], indexes[-1], indexes[-1] + 1, len(indexes))
        assert nth_last_index(cycles, len(indexes) + 1) == indexes[0]
        for nth in every:
            batch = queue.tailer(indexes[nth]).next_batch(count_max=1)
            assert batch is not None
            assert digests([(i, bytes(data)) for i, data in batch]) == [golden.digests[nth]]
            assert nth_last_index(cycles, len(indexes) - nth) == indexes[nth]
            for last in every:
                assert queue.count(indexes[nth], indexes[last]) == max(0, last - nth + 1)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_copy_is_the_same_queue(golden: Manifest, tmp_path: Path) -> None:
    path = unpack(golden.name, tmp_path)
    with (
        Queue.open(path) as source,
        Queue.open_for_append(tmp_path / "copy", create=source.layout) as sink,
    ):
        appender = sink.appender()
        for first in sorted(
            {index >> source.layout.roll_cycle.shift for index, _ in golden.digests}
        ):
            tailer = source.tailer(first << source.layout.roll_cycle.shift)
            while (batch := tailer.next_batch(count_max=97)) is not None:
                if appender.next_index <= batch.index_first:
                    appender.append_at(batch)
                appender.compare(batch)
    assert digests(read(tmp_path / "copy")) == golden.digests
    check_marks(tmp_path / "copy")


@pytest.mark.parametrize("name", WRITABLE)
def test_an_append_in_a_later_cycle_makes_the_queue_readable(name: str, tmp_path: Path) -> None:
    golden = manifest(name)
    path = unpack(golden.name, tmp_path)
    create = None if golden.has_metadata else QueueLayout.of(by_name(golden.roll_cycle_name))
    with Queue.open_for_append(path, create=create) as queue:
        appender = queue.appender()
        last = appender.append([b"new", b""], 1_900_000_000_000)
        appender.append([b"last"], 0)  # a clock set back never leads back
    found = read(path)
    assert digests(found[:-3]) == golden.digests
    assert found[-3:] == [(last - 1, b"new"), (last, b"\x8f"), (last + 1, b"last")]


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize("time_ms", [0, 1_900_000_000_000])
def test_an_append_to_a_queue_of_an_old_version_is_refused_and_changes_nothing(
    name: str, time_ms: int, tmp_path: Path
) -> None:
    path = unpack(name, tmp_path)
    before = {file.name: file.read_bytes() for file in path.glob("*.cq4")}
    with Queue.open_for_append(path) as queue, pytest.raises(NotAQueue) as raised:
        queue.append(b"new", now_ms=time_ms)
    assert "appending to it is not supported" in str(raised.value)
    assert {file.name: file.read_bytes() for file in path.glob("*.cq4")} == before


@pytest.mark.parametrize("name", WRITABLE)
def test_new_files_start_with_the_bytes_of_java(name: str, tmp_path: Path) -> None:
    """The bytes are the same up to the index2index page. Behind it only marks differ, which
    `check_marks` looks at."""
    golden = manifest(name)
    path = unpack(golden.name, tmp_path)
    image = bytearray(store_image(golden.index_count, golden.index_spacing))
    for store in path.glob("*.cq4"):
        theirs = bytearray(store.read_bytes()[:216])
        theirs[0x40:0x50] = bytes(16)  # writePosition and sequence
        theirs[0xB0:0xB8] = bytes(8)  # lastIndex
        assert theirs == image[:216]
    if golden.has_metadata and golden.name != "roll_time":  # roll times are kept, never written
        with Queue.open(path) as queue:
            header = table_header_image(queue.layout)
        assert (path / "metadata.cq4t").read_bytes()[: len(header)] == header


def test_weekly_is_refused_by_name(tmp_path: Path) -> None:
    path = unpack("weekly", tmp_path)
    for opened in (Queue.open, Queue.open_for_append):
        with pytest.raises(NotAQueue, match="WEEKLY is not supported"):
            opened(path)
    (path / "metadata.cq4t").unlink()
    with pytest.raises(NotAQueue, match="WEEKLY is not supported"):
        Queue.open(path)
