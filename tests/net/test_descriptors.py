"""Too few file descriptors, in this process."""

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.descriptors import SPARE, is_none_left, opening, spare_descriptors
from cqrepl.replicator.queuestate.logs import ENTRY, WAITING_BYTES_MAX, EntryLog, LogKind
from cqrepl.surroundings import Surroundings, within
from tests.support.samples import fill, read


@contextmanager
def only(more: int) -> Iterator[None]:
    """No more than so many descriptors are left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # none is to become free meanwhile
    highest, kept = max(map(int, os.listdir("/proc/self/fd"))), [-1]
    while kept[-1] <= highest:  # whatever is free below is taken
        kept.append(os.open(os.devnull, os.O_RDONLY))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(kept) + 1 + more, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in kept[1:]:
            os.close(each)


def test_a_queue_is_opened_where_some_are_left_over(tmp_path: Path) -> None:
    with opening(tmp_path):
        pass
    with only(SPARE), opening(tmp_path):
        taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(SPARE)]  # they are free again
        for each in taken:
            os.close(each)


@pytest.mark.parametrize("more", [0, 1, SPARE - 1])
def test_a_queue_does_not_take_the_last_ones(tmp_path: Path, more: int) -> None:
    with only(more):
        with pytest.raises(OSError, match="Too many open files") as caught, opening(tmp_path):
            pass
        assert is_none_left(caught.value)
        with spare_descriptors() as are_there:
            assert not are_there


def test_an_appender_that_finds_too_few_keeps_none(tmp_path: Path) -> None:
    """Each retry of a queue that pauses would take two more, until none is left at all."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open_for_append(path) as queue:
        before, made = opened_in(path), []
        for more in range(SPARE):
            with only(more), suppress(QueueError, OSError):
                queue.appender().close()
                made.append(more)
            assert opened_in(path) == before, more
        assert 0 not in made
        assert SPARE - 1 in made


def test_a_queue_that_is_locked_later_does_not_take_the_last_ones(tmp_path: Path) -> None:
    """It was opened at the start, with fewer; and it keeps none while it pauses."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    queue = SinkQueue("q", path, by_name("FAST_DAILY"), 0, None, Syncer())
    with only(SPARE - 1), pytest.raises(OSError, match="Too many open files") as caught:
        queue.lock()
    queue.make_room(caught.value)
    assert opened_in(path) == []
    queue.prepare(None, 1, is_compared=True)
    with only(SPARE):
        queue.lock()
    assert queue.next_index == queue.appender.next_index
    queue.close()
    assert opened_in(path) == []


class Tomorrow(Surroundings):
    """A clock that is a day ahead: logs roll."""

    def wall_ns(self) -> int:
        return super().wall_ns() + 86_400_000_000_000


def test_a_log_that_finds_too_few_as_it_rolls_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries that were noted meanwhile are logged then, in their order."""
    caplog.set_level("INFO")
    log = EntryLog(tmp_path / "log", "q", LogKind.APPENDED)
    entries = [ENTRY.pack(nth, 0, 0, 1, 8) for nth in range(9)]
    log.note(entries[0])
    with within(Tomorrow()):
        for more in range(SPARE):  # it may fail at any step of its way
            with only(more):
                log.note(entries[1] if not more else b"")
                log.retry()
                if more == 0:
                    log.note(b"".join(entries[2:4]))
        log.retry()
        log.note(entries[4])
    said = [line for line in caplog.messages if "logged" in line]
    assert len(said) == 2, said
    assert "appended excerpts are not logged for now: " in said[0]
    assert "Too many open files" in said[0]
    assert said[1] == "queue 'q': appended excerpts are logged again"
    log.close()
    assert [data for _, data in read(tmp_path / "log")] == entries[:5]


def test_of_what_waits_for_a_log_only_so_much_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry, room = ENTRY.pack(1, 0, 0, 1, 8), WAITING_BYTES_MAX // ENTRY.size
    log = EntryLog(tmp_path / "log", "q", LogKind.ACKNOWLEDGEMENTS)
    with only(0):
        log.note(entry)
        log.note(entry * room)
        log.note(entry)
    log.retry()
    assert "acknowledgements are logged again; entries lost: 2" in caplog.text
    log.close()
    assert "entries lost: 2" in caplog.messages[-1]
    assert len(read(tmp_path / "log")) == room


def opened_in(path: Path) -> list[str]:
    """The files of a directory that this process has open, once for each descriptor."""
    found = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return sorted(name for name in found if Path(name).parent == path)
