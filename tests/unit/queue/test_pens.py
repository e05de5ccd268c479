"""Appends through a pen: what it refuses, what follows from that, and other writers beside it."""

import os
import threading
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cqrepl.kernel.pen import Refusal, pen_type
from cqrepl.queue import (
    Appender,
    ExcerptBatch,
    Queue,
    QueueDamaged,
    QueueError,
    QueueLocked,
)
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED, WRITE_LOCK_KEY
from cqrepl.queue.format.index import Position
from cqrepl.queue.format.index import Sequence as SequenceNumber
from cqrepl.queue.write import appender as appender_module
from tests.support.kernels import kernel_named
from tests.support.samples import (
    NOON_MS,
    check_marks,
    layout,
    noon_index,
    noon_path,
    read,
)
from wire.header import META_DATA, NOT_COMPLETE

ONE_BEFORE = 1  # a process id that is alive and not ours: the first process


@pytest.fixture(autouse=True)
def native() -> None:
    kernel_named("native")
    if pen_type() is None:
        pytest.skip("CQREPL_KERNEL asks for the plain kernel")


@pytest.fixture
def queue(path: Path) -> Iterator[Queue]:
    with Queue.open_for_append(path, create=layout("TEST2_DAILY")) as queue:
        yield queue


@pytest.fixture
def appender(queue: Queue) -> Appender:
    """An appender with a pen; the cycle holds one excerpt."""
    appender = queue.appender()
    appender.append_one(b"first", NOON_MS)
    assert appender._pen is not None
    return appender


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def test_the_usual_append_does_not_go_the_long_way(
    path: Path, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Appender, "_writing", None)
    assert appender.append_one(b"a", NOON_MS) == noon_index("TEST2_DAILY", sequence=1)
    views = [memoryview(bytearray(b"c")), memoryview(b"")]
    assert appender.append([b"b", *views], NOON_MS) == noon_index("TEST2_DAILY", sequence=4)
    assert appender.next_index == noon_index("TEST2_DAILY", sequence=5)
    appender.append_at(ExcerptBatch.of(appender.next_index, [b"d", b"e"]))
    assert [data for _, data in read(path)] == [b"first", b"a", b"b", b"c", b"\x8f", b"d", b"e"]
    check_marks(path)


class Name(bytes):
    """Bytes of a program's own type."""


def test_payloads_are_copied_from_where_they_are(path: Path, appender: Appender) -> None:
    with Queue.open(path) as reading:
        batch = reading.tailer().next_batch()
        assert batch is not None
        whole = bytearray(b"0123456789")
        payloads: list[Any] = [Name(b"own"), batch.payload(0), whole, memoryview(whole)[2:5]]
        payloads.append(array("H", [0]))
        appender.append(payloads, NOON_MS)
        payloads.clear()
        whole.append(0)  # nothing holds it any more
    expected = [b"first", b"own", b"first", b"0123456789", b"234", bytes(2)]
    assert [data for _, data in read(path)] == expected
    check_marks(path)


def test_nothing_is_written_to_another_file_that_has_the_number_of_one_that_was_closed(
    tmp_path: Path,
) -> None:
    with Queue.open_for_append(tmp_path / "queue", create=layout("FAST_DAILY")) as queue:
        appender = queue.appender()
        appender.append_one(b"first", NOON_MS)
        pen, writer = appender._pen, appender._end.writer
        assert pen is not None
        assert writer is not None
        number = writer.store.mapping.descriptor
        copy = os.dup(number)
        with (tmp_path / "other").open("wb") as other:
            os.truncate(other.fileno(), 1 << 30)  # longer than what is mapped: all looks well
            os.dup2(other.fileno(), number)
        try:
            pen.append_many([bytes(b"x" * 1000)] * 60, NOON_MS)
        finally:
            os.dup2(copy, number)
            os.close(copy)
    with (tmp_path / "other").open("rb") as other:
        assert os.lseek(other.fileno(), 0, os.SEEK_HOLE) == 0  # it is one hole


# ---------------------------------------------------------------- refusals


class Case:
    """An appender with a pen, and what a refusal must not change."""

    def __init__(
        self, path: Path, queue: Queue, *, count: int = 1, payload_max: int = 1000
    ) -> None:
        self.path, self.queue = path, queue
        self.appender = queue.appender(payload_max=payload_max)
        for nth in range(count):
            self.appender.append_one(b"%d" % nth, NOON_MS)

    def hold(self, key: str, holder: int) -> None:
        self.queue._for_writing().table.value(key, 0).store(holder)

    def refuses(self, why: Refusal, payloads: Sequence[Any], now_ms: int = NOON_MS) -> None:
        """Checks that the pen refuses payloads, many or one, and changes nothing."""
        pen = self.appender._pen
        assert pen is not None
        before, place = files(self.path), (pen.sequence, pen.position)
        assert pen.append_many(payloads, now_ms) == -why
        if len(payloads) == 1:
            assert pen.append_one(payloads[0], now_ms) == -why
        assert (files(self.path), (pen.sequence, pen.position)) == (before, place)


def test_a_held_write_lock(path: Path, queue: Queue) -> None:
    case = Case(path, queue)
    with queue._for_writing().write_lock.held(1.0):
        case.refuses(Refusal.CONTENDED, [b"a"])
    case.hold(WRITE_LOCK_KEY, ONE_BEFORE)
    case.refuses(Refusal.CONTENDED, [b"a"])
    case.hold(WRITE_LOCK_KEY, os.getpid())  # left by a dead process of our number: not its affair
    case.refuses(Refusal.CONTENDED, [b"a"])
    case.appender.append_one(b"a", NOON_MS)


def test_a_held_append_lock(path: Path, queue: Queue) -> None:
    case = Case(path, queue)
    case.hold(APPEND_LOCK_KEY, ONE_BEFORE)
    case.refuses(Refusal.APPEND_LOCKED, [b"a"])
    case.hold(APPEND_LOCK_KEY, os.getpid())
    pen = case.appender._pen
    assert pen is not None
    assert pen.append_one(b"a", NOON_MS) == noon_index("TEST2_DAILY", sequence=1)


def test_what_others_have_done(path: Path, queue: Queue) -> None:
    case = Case(path, queue)
    with Queue.open_for_append(path) as other:  # lists the directory
        case.refuses(Refusal.CHANGED, [b"a"])
        case.appender.append_one(b"a", NOON_MS)
        pen, writer = case.appender._pen, case.appender._end.writer
        assert writer is not None
        for nth in range(2, 30, 4):  # walked over, even where nothing of it is recorded
            for _ in range(3):
                other.append(b"b", now_ms=NOON_MS)
            writer.store.set_back_last(
                Position(0), SequenceNumber(-1)
            )  # as if they had died over it
            last = case.appender.append_one(b"c", NOON_MS)
            assert last == noon_index("TEST2_DAILY", sequence=nth + 3)
        assert case.appender._pen is pen
        other.append_many([b"b"] * 4, now_ms=NOON_MS)  # a new index page among them
        case.refuses(Refusal.CHANGED, [b"c"])
        case.appender.append_one(b"c", NOON_MS)
    check_marks(path)


@pytest.mark.parametrize("word", [NOT_COMPLETE | 5, META_DATA | 4])
def test_what_others_have_left_behind(path: Path, queue: Queue, word: int) -> None:
    case = Case(path, queue)
    pen = case.appender._pen
    assert pen is not None
    with noon_path(path, "TEST2_DAILY").open("r+b") as file:
        file.seek(pen.position)
        file.write(word.to_bytes(4, "little"))
    case.refuses(Refusal.CHANGED, [b"a"])
    case.appender.append_one(b"a", NOON_MS)
    assert [data for _, data in read(path)] == [b"0", b"a"]
    check_marks(path)


def test_a_file_that_was_cut(path: Path, queue: Queue) -> None:
    case = Case(path, queue)
    os.truncate(noon_path(path, "TEST2_DAILY"), 4096)
    case.refuses(Refusal.CUT, [b"a"])
    with pytest.raises(QueueDamaged, match="the file was cut to 4096"):
        case.appender.append_one(b"a", NOON_MS)


def test_the_end_of_the_cycle(path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "LOOK_MS", 1 << 60)  # else the names are looked at before
    case = Case(path, queue)
    day_end = NOON_MS + 43_200_000
    case.refuses(Refusal.ROLL, [b"a"], day_end)
    pen = case.appender._pen
    assert pen is not None
    assert pen.append_one(b"a", day_end - 1) == noon_index("TEST2_DAILY", sequence=1)
    assert pen.append_one(b"a", 0) == noon_index("TEST2_DAILY", sequence=2)  # never back
    assert pen.append_one(b"a") == -Refusal.ROLL  # by the clock of the machine


def test_no_bytes_in_one_piece(path: Path, queue: Queue) -> None:
    case = Case(path, queue)
    for unfit in ("text", 5, memoryview(b"abcd")[::2]):
        case.refuses(Refusal.UNFIT, [unfit])
    with pytest.raises(TypeError):
        case.appender.append_one(memoryview(b"abcd")[::2], NOON_MS)
    assert [data for _, data in read(path)] == [b"0"]


def test_what_only_a_broken_writer_can_cause(path: Path, queue: Queue) -> None:
    appender = Case(path, queue).appender
    pen = appender._pen
    assert pen is not None
    with pytest.raises(QueueDamaged, match="expected an empty header word"):
        appender._pens.check(-Refusal.CLASH, pen, appender._end)
    with pytest.raises(QueueError, match=r"expected chronicle\.write\.lock to be held by"):
        appender._pens.check(-Refusal.LOCK_LOST, pen, appender._end)


# ---------------------------------------------------------------- other writers beside it


def test_threads_share_the_appender_of_a_queue(path: Path) -> None:
    given: list[list[int]] = [[] for _ in range(4)]

    def work(nth: int) -> None:
        for _ in range(2000):
            given[nth].append(opened.append(b"%d" % nth, now_ms=NOON_MS))

    with Queue.open(path, create="TEST8_DAILY") as opened:
        running = [threading.Thread(target=work, args=(nth,)) for nth in range(len(given))]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    stored = dict(read(path))
    assert sorted(index for mine in given for index in mine) == sorted(stored)
    assert all(stored[index] == b"%d" % nth for nth, mine in enumerate(given) for index in mine)
    assert all(mine == sorted(mine) for mine in given)
    check_marks(path)


def test_threads_wait_for_the_write_lock_at_the_same_time(
    path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that waits keeps no other one from finding out that the lock is held."""
    case = Case(path, queue)
    case.hold(WRITE_LOCK_KEY, ONE_BEFORE)
    monkeypatch.setattr(appender_module, "WRITE_LOCK_TIMEOUT_S", 0.05)
    refused: list[QueueLocked] = []

    def work() -> None:
        try:
            case.appender.append_one(b"a", NOON_MS)
        except QueueLocked as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == len(threads)
    case.hold(WRITE_LOCK_KEY, UNLOCKED)
    case.appender.append_one(b"a", NOON_MS)


def test_an_interrupted_turn_is_taken_up_again(path: Path, queue: Queue) -> None:
    case = Case(path, queue)
    lock = queue._for_writing().write_lock
    assert lock._turn.take()  # and it is not given back
    case.refuses(Refusal.CONTENDED, [b"a"])
    case.appender.append_one(b"a", NOON_MS)
    assert case.appender._pen is not None
    assert case.appender._pen.append_one(b"b", NOON_MS) > 0
