"""Appending while writers are kept out, with the write lock for an append at a time."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cqrepl.kernel.memory import atomic_words
from cqrepl.queue import Appender, ExcerptBatch, Queue, QueueError, QueueLocked
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED, WRITE_LOCK_KEY, WordLock
from cqrepl.queue.format.errors import WrittenBetween
from cqrepl.queue.write import appender as appender_module
from tests.support import forks
from tests.support.samples import NOON_MS, check_marks, layout, noon_index, read
from tests.support.tables import is_fenced, is_free, lock_words, set_word

ONE_BEFORE = 1  # a process id that is alive and not ours: the first process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue"


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    with Queue.open_for_append(path, create=layout()) as queue:
        yield queue


def batch(sequence: int, *data: bytes, ahead: int = 0) -> ExcerptBatch:
    return ExcerptBatch.of(noon_index(ahead=ahead, sequence=sequence), data)


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.001)


def overtaken(path: Path, payload: bytes, now_ms: int = NOON_MS) -> None:
    """Another process, which saw the append lock free before it was taken, appends."""

    def append() -> None:
        appender = Queue.open_for_append(path).appender()
        appender._append_lock.holder = lambda: None  # type: ignore[method-assign]  # Java's look
        appender.append([payload], now_ms)

    assert forks.run(append) == 0


def test_the_write_lock_is_held_for_an_append_at_a_time(path: Path, queue: Queue) -> None:
    appender = queue.appender()
    appender.append([b"0"], NOON_MS)
    with appender.fenced(1.0):
        assert is_fenced(path)
        for sequence in (1, 2):
            appender.append_at(batch(sequence, b"%d" % sequence))
            assert is_fenced(path)
        assert not appender.append_now(batch(3, b"3"))  # no pen: one sees less
        appender.reserve(batch(0, b"3", ahead=1))
        appender.append_at(batch(0, b"3", ahead=1))
    assert is_free(path)
    appender.append([b"4"], NOON_MS)
    assert [data for _, data in read(path)] == [b"%d" % nth for nth in range(5)]
    check_marks(path)


def test_a_writer_in_its_append_ends_it_before(path: Path, queue: Queue) -> None:
    """A real process: it has the write lock, and has looked at the append lock."""
    appender = queue.appender()
    locked, told = os.pipe(), os.pipe()

    def work() -> None:
        other = Queue.open_for_append(path)
        writer = other.appender()
        with other._for_writing().write_lock.held(1.0):
            os.write(locked[1], b".")
            os.read(told[0], 1)
            writer._is_exclusive = True
            writer._end.refresh()
            writer.append([b"late"], NOON_MS)

    child = forks.start(work)
    os.read(locked[0], 1)

    def tell() -> None:
        until(lambda: lock_words(path)[APPEND_LOCK_KEY] == os.getpid())
        os.write(told[1], b".")

    teller = threading.Thread(target=tell)
    teller.start()
    with appender.fenced(60.0):
        assert appender.next_index == noon_index(sequence=1)
        appender.append_at(batch(1, b"next"))
    teller.join()
    assert forks.finish(child) == 0
    assert [data for _, data in read(path)] == [b"late", b"next"]


@pytest.mark.parametrize("now_ms", [NOON_MS, NOON_MS + 86_400_000], ids=["same", "later"])
@pytest.mark.parametrize("refused", [Appender.reserve, Appender.append_at])
def test_one_that_was_appended_between_is_told_once(
    path: Path, queue: Queue, now_ms: int, refused: Callable[[Appender, ExcerptBatch], None]
) -> None:
    appender = queue.appender()
    appender.append([b"0"], NOON_MS)
    with appender.fenced(1.0):
        appender.append_at(batch(1, b"1"))
        overtaken(path, b"foreign", now_ms)
        rolled = batch(0, b"2", ahead=2)  # it would follow either
        with pytest.raises(WrittenBetween) as found:
            refused(appender, rolled)
        assert found.value.end_left == noon_index(sequence=2)
        assert found.value.end_found == read(path)[-1][0] + 1
        assert [data for _, data in read(path)] == [b"0", b"1", b"foreign"]
        appender.append_at(rolled)
    assert [data for _, data in read(path)] == [b"0", b"1", b"foreign", b"2"]


def test_an_append_lock_that_is_no_longer_ours(path: Path, queue: Queue) -> None:
    appender = queue.appender()
    fence = ExitStack()
    fence.enter_context(appender.fenced(1.0))
    for holder, said in ((UNLOCKED, "no process"), (ONE_BEFORE, "process 1")):
        set_word(path, APPEND_LOCK_KEY, holder)
        with pytest.raises(QueueError, match=f"by force: {said} holds it"):
            appender.append_at(batch(0, b"x"))
    with pytest.raises(QueueError, match="by force"):
        fence.close()
    set_word(path, APPEND_LOCK_KEY, UNLOCKED)
    assert not list(path.glob("*.cq4"))
    appender.append([b"x"], NOON_MS)
    assert is_free(path)


def test_other_writers_of_this_process_wait(
    path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append lock is this process's own: it does not keep them out. With pens and without."""
    monkeypatch.setattr(appender_module, "WRITE_LOCK_TIMEOUT_S", 0.02)
    appender = queue.appender()
    with Queue.open_for_append(path) as other:
        rival = other.appender()
        rival.append([b"a"], NOON_MS)
        with appender.fenced(1.0):
            refused = _in_thread(lambda: rival.append([b"never"], NOON_MS))
            appender.append_at(batch(1, b"b"))
            refused += _in_thread(lambda: rival.append_one(b"never", NOON_MS))
        assert [type(error) for error in refused] == [QueueLocked, QueueLocked]
        rival.append([b"c"], NOON_MS)
    assert [data for _, data in read(path)] == [b"a", b"b", b"c"]


def _in_thread(work: Callable[[], object]) -> list[QueueError]:
    errors: list[QueueError] = []

    def caught() -> None:
        try:
            work()
        except QueueError as error:
            errors.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    return errors


def test_a_foreign_writer_is_waited_for_and_others_of_this_process_stay_out(
    path: Path, queue: Queue
) -> None:
    lock, rival = (WordLock(queue._for_writing().table, WRITE_LOCK_KEY) for _ in range(2))
    with lock.turn(0.0):
        assert lock.holder() is None
        set_word(path, WRITE_LOCK_KEY, ONE_BEFORE)
        with pytest.raises(QueueLocked, match="process 1 holds it"):
            lock.acquire()
        assert len(_in_thread(rival.acquire)) == 1
        set_word(path, WRITE_LOCK_KEY, UNLOCKED)
        with lock.held(0.0):
            assert lock.is_held
        assert len(_in_thread(rival.acquire)) == 1
        with pytest.raises(QueueLocked), rival.turn(0.0):
            pass
    rival.acquire()
    rival.release()


def test_a_pen_that_has_the_turn_is_waited_for(queue: Queue) -> None:
    lock = WordLock(queue._for_writing().table, WRITE_LOCK_KEY)
    with lock.held(0.0):
        pass
    if atomic_words() is None:
        return  # no kernel, no pens
    lock._turn.keep()
    with pytest.raises(QueueLocked), lock.turn(0.01):
        pass
    lock._turn.word[:] = bytes(4)
    with lock.turn(0.01):
        pass


def test_a_forked_child_has_no_turn(queue: Queue) -> None:
    lock = WordLock(queue._for_writing().table, WRITE_LOCK_KEY)
    with lock.turn(0.0):

        def work() -> None:
            lock.acquire()
            lock.release()

        assert forks.run(work) == 0


def test_an_appender_looks_at_the_append_lock_again(path: Path, queue: Queue) -> None:
    """It was taken while the write lock was waited for."""
    appender = queue.appender()
    write_lock = WordLock(queue._for_writing().table, WRITE_LOCK_KEY)
    errors: list[list[QueueError]] = []
    with write_lock.held(0.0):
        thread = threading.Thread(
            target=lambda: errors.append(_in_thread(lambda: appender.append([b"x"], NOON_MS)))
        )
        seen = _looks(appender)
        thread.start()
        assert seen.wait(60.0)
        set_word(path, APPEND_LOCK_KEY, ONE_BEFORE)
    thread.join()
    assert [type(error) for error in errors[0]] == [QueueLocked]
    assert read(path) == []


def _looks(appender: Appender) -> threading.Event:
    seen, holder = threading.Event(), appender._append_lock.holder

    def look() -> int | None:
        found = holder()
        seen.set()
        return found

    appender._append_lock.holder = look  # type: ignore[method-assign]  # the moment
    return seen


@pytest.mark.parametrize("now_ms", [NOON_MS, NOON_MS + 86_400_000], ids=["same", "later"])
@pytest.mark.parametrize("ahead", [0, 2], ids=["next", "rolled"])
def test_one_that_is_found_where_nobody_else_may_append(
    path: Path, queue: Queue, now_ms: int, ahead: int
) -> None:
    """Behind what a pen has appended, too. It is said each time, and nothing is appended."""
    queue.append_lock.acquire()
    sole = queue.appender(is_sole=True)
    for sequence in (0, 1):
        sole.append_at(batch(sequence, b"%d" % sequence))
    overtaken(path, b"foreign", now_ms)
    held = read(path)
    refused = batch(0 if ahead else 2, b"2", ahead=ahead)
    for attempt in (sole.append_at, sole.reserve, sole.append_at):
        with pytest.raises(WrittenBetween) as found:
            attempt(refused)
        assert found.value.end_left == noon_index(sequence=2)
        assert found.value.end_found == held[-1][0] + 1
    assert sole.next_index in (noon_index(sequence=2), held[-1][0] + 1)
    assert read(path) == held


def test_in_the_process_of_a_sink_nobody_else_appends(path: Path, queue: Queue) -> None:
    """The append lock names this process, and keeps none of its appenders out: the role does.
    One that has a pen already is called back from it."""
    with Queue.open_for_append(path) as other:
        rival = other.appender(to_copy=True)
        rival.append([b"0"], NOON_MS)
        queue.append_lock.acquire()
        queue.begin_following(1.0)
        sole = queue.appender(is_sole=True)
        for attempt in (rival, other.appender(to_copy=True), other.appender()):
            with pytest.raises(QueueLocked, match=f"process {os.getpid()} keeps the append lock"):
                attempt.append([b"never"], NOON_MS)
            with pytest.raises(QueueLocked):
                attempt.append_one(b"never", NOON_MS)
        sole.append_at(batch(1, b"1"))
        queue.append_lock.release()
        rival.append([b"2"], NOON_MS)
    assert [data for _, data in read(path)] == [b"0", b"1", b"2"]


def test_a_lock_that_an_earlier_process_of_this_id_has_left_keeps_nobody_out(
    path: Path, queue: Queue
) -> None:
    """As in containers, where each process may have the same id."""
    queue.note_follower(is_follower=True)
    set_word(path, APPEND_LOCK_KEY, os.getpid())
    queue.appender(to_copy=True).append([b"0"], NOON_MS)
    assert [data for _, data in read(path)] == [b"0"]


def test_following_does_not_begin_while_a_writer_is_in_its_append(path: Path, queue: Queue) -> None:
    queue.append_lock.acquire()
    queue.appender()
    set_word(path, WRITE_LOCK_KEY, ONE_BEFORE)
    with pytest.raises(QueueLocked, match="process 1 holds it"):
        queue.begin_following(0.0)
    assert not queue.is_follower
    set_word(path, WRITE_LOCK_KEY, UNLOCKED)
