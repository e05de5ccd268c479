"""Limits on file sizes, and files that may not be written."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue
from tests.support.goldens import unpack
from tests.support.samples import check_marks, fill, fill_up, layout, noon_index, noon_path, read


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file can grow beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_limit_on_file_sizes_is_an_error_before_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with file_size_limit(5 << 20):
        count = fill_up(path)
        assert count > 20
    assert len(read(path)) == count
    with Queue.open_for_append(path) as queue:  # goes on where there is space again
        queue.appender().append_at(ExcerptBatch.of(noon_index(sequence=count), [b"later"]))
    assert read(path)[-1][1] == b"later"
    check_marks(path)


def test_no_space_for_a_new_cycle_leaves_the_old_one_open(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, "FAST_DAILY", {0: 3})
    before = noon_path(path).read_bytes()
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        with file_size_limit(10_000), pytest.raises(OSError, match="File too large"):
            appender.append_at(ExcerptBatch.of(noon_index(ahead=1), [b"x"]))
        assert not noon_path(path, ahead=1).exists()
        assert noon_path(path).read_bytes() == before
        assert appender.next_index == noon_index(sequence=3)
        appender.append_at(ExcerptBatch.of(noon_index(ahead=1), [b"x"]))
    assert len(read(path)) == 4


def test_no_space_for_a_new_queue(tmp_path: Path) -> None:
    with file_size_limit(1000), pytest.raises(OSError, match="File too large"):
        Queue.open_for_append(tmp_path / "queue", create=layout())
    Queue.open_for_append(tmp_path / "queue", create=layout()).close()


def test_a_mark_without_space_is_not_kept(tmp_path: Path) -> None:
    path = unpack("fast_daily_basic", tmp_path)
    with file_size_limit(1000), Queue.open(path) as queue:
        os.truncate(path / "metadata.cq4t", 65_536)
        assert not queue.raise_sent(5)
