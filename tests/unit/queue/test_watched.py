"""The word that tells a resting reader of what follows, wherever a tailer waits."""

from pathlib import Path

import pytest

from cqrepl.kernel.memory import WatchedWord
from cqrepl.queue import NotAQueue, Queue, Tailer
from cqrepl.queue.files.tablestore import FILE_NAME
from tests.support.reading import Clock, cycles_of
from tests.support.samples import NOON_MS, fill, layout, noon_path, rest_of
from wire.header import NOT_COMPLETE

DAY_MS = 86_400_000


def resting(tailer: Tailer) -> WatchedWord:
    """The word that a tailer watches when there is nothing more to be read."""
    assert tailer.next_batch() is None
    word = tailer.watched()
    assert word is not None
    assert not word.has_changed
    return word


def test_the_next_excerpt_changes_it(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open_for_append(path) as queue:
        tailer = queue.tailer()
        rest_of(tailer)
        for nth in range(300):  # past places where index pages stand
            word = resting(tailer)
            queue.append(b"%d" % nth, now_ms=NOON_MS)
            assert word.has_changed
            assert tailer.watched() is None
            assert [data for _, data in rest_of(tailer)] == [b"%d" % nth]


def test_an_excerpt_that_is_being_written_changes_it(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open_for_append(path) as queue:
        tailer = queue.tailer()
        rest_of(tailer)
        first = resting(tailer)
        stand = tailer.stand()
        assert stand is not None
        with noon_path(path).open("r+b") as file:
            file.seek(stand.position)
            file.write((NOT_COMPLETE | 5).to_bytes(4, "little"))
        assert first.has_changed
        second = resting(tailer)
        assert second.value == (NOT_COMPLETE | 5).to_bytes(4, "little")
        queue.append(b"over what was left", now_ms=NOON_MS)
        assert second.has_changed


def test_the_end_of_the_cycle_changes_it_and_so_does_the_next_file(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open_for_append(path) as queue:
        tailer = queue.tailer()
        rest_of(tailer)
        word = resting(tailer)
        queue.append(b"tomorrow", now_ms=NOON_MS + DAY_MS)
        assert word.has_changed
        assert [data for _, data in rest_of(tailer)] == [b"tomorrow"]
        assert resting(tailer)


@pytest.mark.parametrize("days", [1, 5])
def test_a_closed_cycle_is_left_when_a_file_comes(path: Path, days: int) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open_for_append(path) as queue:
        clock = Clock()
        tailer = Tailer(cycles_of(path), 0, clock)
        rest_of(tailer)
        stand = tailer.stand()
        assert stand is not None
        with noon_path(path).open("r+b") as file:
            file.seek(stand.position)
            file.write(b"\x00\x00\x00\xc0")
        word = resting(tailer)
        queue.append(b"later", now_ms=NOON_MS + days * DAY_MS)
        assert word.has_changed
        assert tailer.watched() is None
        assert [data for _, data in rest_of(tailer)] == [b"later"]
        tailer.close()


def test_the_first_file_changes_it(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().close()  # what every writer records once
        clock = Clock()
        tailer = Tailer(cycles_of(path), 0, clock)
        word = resting(tailer)
        queue.append(b"first", now_ms=NOON_MS)
        assert word.has_changed
        assert tailer.watched() is None  # so it has to be found at once
        assert [data for _, data in rest_of(tailer)] == [b"first"]
        tailer.close()


def test_a_file_without_a_header_is_waited_for_awake(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().close()
        tailer = queue.tailer()
        noon_path(path).write_bytes(bytes(4096))
        assert tailer.next_batch() is None
        assert tailer.watched() is None


def test_a_queue_whose_writers_count_nothing_is_waited_for_awake(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        rest_of(tailer)
        stand = tailer.stand()
        assert stand is not None
        with noon_path(path).open("r+b") as file:
            file.seek(stand.position)
            file.write(b"\x00\x00\x00\xc0")
        assert resting(tailer)
        (path / FILE_NAME).unlink()
        assert tailer.watched() is None


def test_a_table_store_that_is_made_anew_is_taken_up(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().close()
    clock = Clock()
    tailer = Tailer(cycles_of(path), 0, clock)
    left = resting(tailer)
    (path / FILE_NAME).rename(path / "left")
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().close()
        word = resting(tailer)
        queue.append(b"first", now_ms=NOON_MS)
    assert word.has_changed
    assert not left.has_changed
    tailer.close()
    assert not left.has_changed  # its memory is held


def test_a_file_that_has_to_grow_tells_by_what_is_recorded(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open_for_append(path) as queue:
        tailer = queue.tailer()
        rest_of(tailer)
        stand = tailer.stand()
        assert stand is not None
        position = stand.position
    with noon_path(path).open("r+b") as file:
        file.truncate(position)
    with Queue.open_for_append(path) as queue:
        tailer = queue.tailer()
        rest_of(tailer)
        assert noon_path(path).stat().st_size == position
        word = resting(tailer)
        queue.append(b"grown", now_ms=NOON_MS)
        assert word.has_changed
        assert [data for _, data in rest_of(tailer)] == [b"grown"]


def test_a_directory_that_has_gone_is_told(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().close()
        tailer = queue.tailer()
        assert tailer.next_batch() is None
        path.rename(path.with_name("gone"))
        with pytest.raises(NotAQueue):
            tailer.watched()
