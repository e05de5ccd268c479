"""The next writer meets what dead writers leave, and files that were made ahead of time."""

from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.format.index import cycle_of
from tests.support.samples import layout, noon_batch, read, stored

NAME = "TEST_DAILY"


def opened(path: Path, name: str = NAME) -> Queue:
    return Queue.open_for_append(path, create=layout(name))


def test_bytes_of_a_dead_writer_never_show(path: Path) -> None:
    """Whole-looking documents behind a 0 header: the next, shorter excerpt must hide them."""
    with opened(path, "TEST2_DAILY") as queue:
        appender = queue.appender()
        appender.append([b"first"], 0)
        writer = appender._end.writer
        assert writer is not None
        position, data = writer.place.position, writer.store.mapping.data
        fakes = b"".join((4).to_bytes(4, "little") + b"FAKE" for _ in range(200))
        data[position + 4 : position + 4 + len(fakes)] = fakes
        for size in range(40):
            appender.append([bytes(size)], 0)
            assert b"FAKE" not in [data for _, data in read(path)]
        assert len(read(path)) == 41


def test_a_half_created_file_is_put_aside(path: Path) -> None:
    with opened(path) as queue:
        appender = queue.appender()
        first = noon_batch(NAME, 9)
        store = appender._cycles.path_of(cycle_of(first.index_first, 32))
        store.write_bytes(b"\0\0\0\x80" + bytes(1000))
        appender.append_at(first)
        assert read(path) == stored(first)
    [discarded] = path.glob("*.discard")
    assert discarded.name.startswith(store.name + "-")
    assert discarded.read_bytes()[:4] == b"\0\0\0\x80"


def test_what_killed_writers_never_finished_goes(path: Path) -> None:
    with opened(path) as queue:
        first = noon_batch(NAME, 9)
        queue.appender().append_at(first)
    [store] = path.glob("*.cq4")
    (path / f"{store.stem}.precreated.77").write_bytes(bytes(1000))
    with opened(path) as queue:
        queue.appender().close()
    assert not list(path.glob("*.precreated*"))
    assert read(path) == stored(first)


@pytest.mark.parametrize("content", [b"", bytes(1 << 20), b"\0\0\0\x80" + bytes(99)])
def test_a_file_made_ahead_of_time_without_a_header_gets_one(path: Path, content: bytes) -> None:
    first = noon_batch(NAME, 9)
    with opened(path) as queue:
        appender = queue.appender()
        store = appender._cycles.path_of(cycle_of(first.index_first, 32))
        ahead = store.with_suffix(".precreated")
        ahead.write_bytes(content)
        inode = ahead.stat().st_ino
        appender.append_at(first)
        assert store.stat().st_ino == inode
    assert read(path) == stored(first)
    assert not list(path.glob("*.discard"))


def test_a_file_made_ahead_of_time_is_taken(path: Path, tmp_path: Path) -> None:
    first = noon_batch(NAME, 9)
    with opened(tmp_path / "other") as queue:
        queue.appender().reserve(first)
    [made] = (tmp_path / "other").glob("*.cq4")
    with opened(path) as queue:
        ahead = path / (made.stem + ".precreated")
        made.rename(ahead)
        inode = ahead.stat().st_ino
        queue.appender().append_at(first)
        assert (path / made.name).stat().st_ino == inode
    assert read(path) == stored(first)
