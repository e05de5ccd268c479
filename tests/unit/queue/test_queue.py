import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cqrepl.kernel import choose, plain
from cqrepl.queue import (
    AtomicsMissing,
    ExcerptBatch,
    LayoutMismatch,
    NotAQueue,
    Queue,
    QueueDamaged,
    QueueError,
    QueueLayout,
    Tailer,
)
from cqrepl.queue.files import atomics
from cqrepl.queue.format.index import INDEX_MAX, Index
from tests.support.goldens import unpack
from tests.support.samples import NOON_MS, fill, layout, noon_index, noon_path, read

# ---------------------------------------------------------------- what is no queue


def test_a_path_that_does_not_exist(path: Path) -> None:
    for opened in (Queue.open, Queue.open_for_append):
        with pytest.raises(NotAQueue, match="expected a queue directory, found none") as error:
            opened(path)
        assert str(path) in str(error.value)
    assert not path.exists()


def test_a_path_that_is_a_file(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(NotAQueue, match="expected a queue directory, found a file"):
        Queue.open(path)
    with pytest.raises(NotAQueue):
        Queue.open_for_append(path, create=layout())


def test_a_directory_without_anything_of_a_queue(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("hello")
    with pytest.raises(NotAQueue, match=r"no metadata\.cq4t and no store file"):
        Queue.open(path)
    with pytest.raises(NotAQueue, match=r"expected a queue with metadata\.cq4t"):
        Queue.open_for_append(path)


def test_store_files_of_an_unknown_name(path: Path) -> None:
    path.mkdir()
    (path / "backup.cq4").write_bytes(b"")
    with pytest.raises(NotAQueue, match=r"got 'backup'"):
        Queue.open(path)


def test_a_foreign_store_file_beside_a_table_store(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    (path / "20240305-10F.cq4").write_bytes(b"")
    with pytest.raises(NotAQueue, match=r"found 20240305-10F\.cq4: move it away"):
        Queue.open(path)


def test_version_4_by_its_table(path: Path) -> None:
    path.mkdir()
    (path / "directory-listing.cq4t").write_bytes(b"")
    for create in (None, layout()):
        with pytest.raises(NotAQueue, match="version 4"):
            Queue.open_for_append(path, create=create)
    with pytest.raises(NotAQueue, match="version 4"):
        Queue.open(path)


@pytest.mark.parametrize(
    ("field", "error", "words"),
    [
        # each store file says itself when it rolls, as in version 4
        (b"\xc4roll" + 6 * b"\x8f", NotAQueue, "version 4"),
        (b"\xcadetaFormat", QueueDamaged, "'dataFormat' was expected"),
    ],
)
def test_another_field_in_the_header_of_a_store_file(
    path: Path, field: bytes, error: type[QueueError], words: str
) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    store = noon_path(path)
    store.write_bytes(store.read_bytes().replace(b"\xcadataFormat", field))
    with pytest.raises(error, match=words) as found:
        Queue.open(path)
    assert found.value.path == store


def test_a_table_store_that_is_a_directory(path: Path) -> None:
    (path / "metadata.cq4t").mkdir(parents=True)
    with pytest.raises(QueueDamaged, match="expected a regular file"):
        Queue.open(path)


def test_a_store_file_that_is_a_pipe_keeps_nobody_waiting(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    os.mkfifo(noon_path(path, ahead=1))
    with pytest.raises(QueueDamaged, match="expected a regular file"):
        Queue.open(path)


@pytest.mark.parametrize("name", ["metadata.cq4t", "20240305F.cq4"])
def test_refused_permission_tells_nothing_of_the_queue(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    real_open = os.open

    def refuse(file: Path, *options: int) -> int:
        if Path(file).name == name:
            raise PermissionError(13, "Permission denied")
        return real_open(file, *options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(QueueError, match=f"{name}: cannot be opened: Permission denied") as refused:
        Queue.open(path)
    assert type(refused.value) is QueueError


def test_a_directory_that_may_not_be_listed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, "FAST_DAILY", {0: 1})

    def refuse(directory: Path) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(QueueError, match="queue: cannot be opened: Permission denied"):
        Queue.open(path)


# ---------------------------------------------------------------- layouts


def test_a_new_queue_is_empty_and_keeps_its_layout(path: Path) -> None:
    wanted = replace(layout("TEN_MINUTELY"), epoch=18_000_000, source_id=7)
    with Queue.open_for_append(path, create=wanted) as queue:
        assert queue.layout == wanted
    with Queue.open(path) as queue:
        assert queue.layout == wanted
        assert (queue.first_index(), queue.last_index(), queue.next_index()) == (None, None, 0)
        assert queue.tailer().next_batch() is None


def test_own_indexing_numbers_are_kept_in_the_store_files(path: Path) -> None:
    wanted = replace(layout(), index_count=8, index_spacing=2)
    with Queue.open_for_append(path, create=wanted) as queue:
        queue.appender().append([b"x"] * 100, NOON_MS)
    with Queue.open_for_append(path, create=wanted) as queue:
        assert queue.layout == wanted
        queue.appender().append([b"y"] * 28, NOON_MS)
    assert len(read(path)) == 128
    with pytest.raises(LayoutMismatch) as mismatch:
        Queue.open_for_append(path, create=layout())
    assert "indexCount 8" in str(mismatch.value)
    assert "indexCount 4096" in str(mismatch.value)


@pytest.mark.parametrize(
    "other", [layout("FAST_HOURLY"), replace(layout(), epoch=1000)], ids=["roll cycle", "epoch"]
)
def test_another_layout_is_refused_and_changes_nothing(path: Path, other: QueueLayout) -> None:
    Queue.open_for_append(path, create=layout()).close()
    before = (path / "metadata.cq4t").read_bytes()
    with pytest.raises(LayoutMismatch, match=r"expected .* found FAST_DAILY epoch 0"):
        Queue.open_for_append(path, create=other)
    assert (path / "metadata.cq4t").read_bytes() == before
    Queue.open_for_append(path, create=replace(layout(), source_id=3)).close()


def test_a_lost_table_store_is_made_again_only_for_the_right_names(path: Path) -> None:
    written = fill(path, "FAST_HOURLY", {0: 3, 2: 1})
    (path / "metadata.cq4t").unlink()
    assert read(path) == written
    with pytest.raises(LayoutMismatch, match=r"found 20240305-12F\.cq4"):
        Queue.open_for_append(path, create=layout("FAST_DAILY"))
    assert not (path / "metadata.cq4t").exists()
    with Queue.open_for_append(path, create=layout("FAST_HOURLY")) as queue:
        assert queue.next_index() == written[-1][0] + 1


# ---------------------------------------------------------------- reading changes nothing


def test_reading_changes_nothing_in_a_read_only_directory(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 2: 4})
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}
    for file in (*path.iterdir(), path):
        file.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert read(path) == written
    finally:
        path.chmod(0o755)
    assert before == {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in path.iterdir()}


def test_a_removed_store_file_does_not_hide_the_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, "FAST_DAILY", {0: 3, 2: 4})
    with Queue.open(path) as queue:
        listed = queue._cycles.listing()
        noon_path(path, ahead=2).unlink()
        monkeypatch.setattr(queue._cycles, "listing", lambda: listed)
        assert queue.last_index() == noon_index(sequence=2)
        assert queue.first_index() == noon_index()


# ---------------------------------------------------------------- marks


def test_marks_only_rise(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open(path) as queue:
        assert (queue.sent_index, queue.acknowledged_index) == (-1, -1)
        for index in (noon_index(sequence=1), noon_index(), noon_index(sequence=2)):
            assert queue.raise_sent(index)
        assert queue.raise_acknowledged(noon_index(sequence=1))
        assert queue.sent_index == noon_index(sequence=2)
    with Queue.open(path) as queue:
        assert queue.sent_index == noon_index(sequence=2)
        assert queue.acknowledged_index == noon_index(sequence=1)


def test_without_a_table_store_there_are_no_marks(tmp_path: Path) -> None:
    with Queue.open(unpack("no_metadata", tmp_path)) as queue:
        assert not queue.raise_sent(5)
        assert not queue.raise_acknowledged(5)
        assert queue.sent_index == -1


def test_marks_that_nobody_made_yet(tmp_path: Path) -> None:
    """A table store without these keys reads as if nothing was sent; raising adds them."""
    path = unpack("fast_daily_basic", tmp_path)
    raw = (path / "metadata.cq4t").read_bytes()
    at = raw.index(b"\xb9\x1dchronicle.lastIndexReplicated") - 4
    (path / "metadata.cq4t").write_bytes(raw[:at] + bytes(len(raw) - at))
    with Queue.open(path) as queue:
        assert queue.sent_index == -1
        assert queue.raise_sent(7)
        assert queue.sent_index == 7


# ---------------------------------------------------------------- without libatomic


def test_without_libatomic_reading_works_and_writing_names_the_package(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fill(path, "FAST_DAILY", {0: 30})
    monkeypatch.setattr(choose, "KERNEL", plain)
    monkeypatch.setattr(atomics, "_library", lambda: None)
    assert read(path) == written
    with Queue.open(path) as queue:
        assert not queue.raise_sent(noon_index())
    with pytest.raises(AtomicsMissing, match="libatomic1 or libatomic; comes with gcc") as error:
        Queue.open_for_append(path)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- closing


def test_closing_gives_the_append_lock_back_and_unmaps(path: Path) -> None:
    queue = Queue.open_for_append(path, create=layout())
    queue.append_lock.acquire()
    queue.appender().append_at(ExcerptBatch.of(noon_index(), [b"x"]))
    queue.tailer().next_batch()
    assert queue.raise_sent(noon_index())
    queue.close()
    queue.close()
    assert not queue.raise_sent(noon_index())
    maps = Path("/proc/self/maps").read_text()
    assert str(path) not in maps
    with Queue.open_for_append(path) as again:
        assert again.append_lock.holder() is None


def test_what_is_closed_is_forgotten(path: Path) -> None:
    """A source makes a tailer for each connection, for as long as it lives."""
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open(path) as queue:
        for _ in range(50):
            queue.tailer(noon_index(sequence=1)).close()
        assert len(queue._opened) == 1


def test_what_is_used_after_its_close_says_so(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 9})
    queue = Queue.open(path)
    tailer, named = queue.tailer(), queue.named_tailer("x")
    backward, appender = queue.backward(), queue.appender()
    assert queue.read_columns(0, INDEX_MAX)
    assert queue.append(b"one more", now_ms=NOON_MS)
    queue.close()
    uses: list[tuple[str, Callable[[], object]]] = [
        ("reader", lambda: next(iter(tailer))),
        ("reader", lambda: next(iter(named))),
        ("reader", lambda: next(iter(backward))),
        ("appender", lambda: appender.append([b"lost"], NOON_MS)),
        ("appender", lambda: queue.append(b"lost", now_ms=NOON_MS)),
        ("appender", lambda: queue.append_many([b"lost"], now_ms=NOON_MS)),
        ("queue", lambda: queue.read_columns(0, INDEX_MAX)),
        ("queue", queue.tailer),
        ("queue", lambda: queue.tailer(repair=True)),
        ("queue", queue.backward),
        ("queue", lambda: queue.named_tailer("y")),
        ("queue", lambda: queue.named_position("y")),
        ("queue", queue.appender),
        ("queue", queue.first_index),
        ("queue", queue.last_index),
        ("queue", lambda: queue.last_index_before(Index(noon_index(sequence=1)))),
        ("queue", queue.next_index),
        ("queue", queue.count),
        ("queue", lambda: queue.seek_time(0, lambda payload: 0)),
    ]
    for what, use in uses:
        with pytest.raises(QueueError, match=f"{path}: expected an open {what}, it was closed"):
            use()
    with Queue.open(path) as again:
        assert again.count() == 10


def test_a_reader_that_a_close_overtakes_is_closed_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes the queue between the two."""
    fill(path, "FAST_DAILY", {0: 9})
    queue = Queue.open(path)
    made: list[Tailer] = []

    def overtaken(*arguments: Any, **more: Any) -> Tailer:
        made.append(Tailer(*arguments, **more))
        queue.close()
        return made[0]

    monkeypatch.setattr("cqrepl.queue.queue.Tailer", overtaken)
    with pytest.raises(QueueError, match="expected an open queue, it was closed"):
        queue.tailer(noon_index(sequence=1))
    assert made[0].is_closed
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_leaving_by_an_error_closes_too(path: Path) -> None:
    queue = Queue.open_for_append(path, create=layout())
    queue.append_lock.acquire()
    with pytest.raises(ZeroDivisionError), queue:
        raise ZeroDivisionError
    with Queue.open_for_append(path) as again:
        assert again.append_lock.try_acquire()


def test_the_last_excerpt_before_an_index(path: Path) -> None:
    """A cycle's first index stands behind the last excerpt of an earlier cycle, not a number."""
    written = fill(path, "FAST_DAILY", {0: 3, 2: 2})
    with Queue.open(path) as queue:
        for index, expected in [
            (noon_index(sequence=2), written[1][0]),
            (noon_index(sequence=3), written[2][0]),
            (noon_index(ahead=1), written[2][0]),
            (noon_index(ahead=2), written[2][0]),
            (noon_index(ahead=2, sequence=2), written[4][0]),
            (noon_index(ahead=9), written[4][0]),
            (noon_index(), None),
        ]:
            assert queue.last_index_before(Index(index)) == expected


def test_marks_beyond_the_end_are_lowered(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open(path) as queue:
        assert queue.raise_sent(noon_index(sequence=9))
        assert queue.raise_acknowledged(noon_index(sequence=5))
        queue.lower_marks(noon_index(sequence=7))
        assert queue.sent_index == noon_index(sequence=7)
        assert queue.acknowledged_index == noon_index(sequence=5)
        queue.lower_marks(-1)
        assert queue.sent_index == queue.acknowledged_index == -1
    with Queue.open(path) as queue:
        assert queue.sent_index == -1
        assert queue.is_of_this_boot


def test_a_queue_says_which_one_it_is(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_HOURLY") as queue:
        assert repr(queue) == f"<Queue '{tmp_path / 'q'}', FAST_HOURLY>"
    assert repr(queue) == f"<Queue '{tmp_path / 'q'}', FAST_HOURLY, closed>"


@pytest.mark.parametrize("place", ["last", None, 1.5, b"0"])
def test_a_reader_is_placed_by_a_number(tmp_path: Path, place: Any) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        with pytest.raises(TypeError, match=r"expected an index, .*next_index\(\).* got ") as told:
            queue.tailer(place)
        assert str(told.value).endswith(f"got {place!r}")
        if place is not None:
            with pytest.raises(TypeError, match=r"expected an index, .*None for the last one"):
                queue.backward(place)
