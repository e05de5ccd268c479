"""Threads at a board: each is woken when what it waits for has come, and only then."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, ModuleType
from typing import Final

import pytest

from cqrepl.kernel import plain
from cqrepl.kernel.interface import AckLevel, LoopBell, MarkBoard, Waited
from tests.support.descriptors import is_readable

LONG_S: Final = 60.0  # a wait that ends before its time or not at all
INDEX: Final = 0x4516_0000_0007


@pytest.fixture(params=["plain", "native"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "plain":
        return plain
    native: ModuleType = pytest.importorskip("cqrepl._native", reason="no native kernel")
    return native


@pytest.fixture
def bell(kernel: ModuleType) -> LoopBell:
    made: LoopBell = kernel.Bell()
    return made


@pytest.fixture
def board(bell: LoopBell) -> MarkBoard:
    return bell.board()


class Waiting(threading.Thread):
    """A thread that waits at a board, and how that stood then."""

    def __init__(self, wait: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._wait = wait
        self._stand: Waited | None = None
        self.start()

    def run(self) -> None:
        self._stand = Waited(self._wait())

    @property
    def stand(self) -> Waited:
        """The answer that the wait has given. Waits until the thread has ended."""
        self.join(LONG_S)
        assert self._stand is not None
        return self._stand

    @property
    def goes_on(self) -> bool:
        """True where it has not ended within a moment."""
        self.join(0.05)
        return self._stand is None


@contextmanager
def waiting(
    board: MarkBoard,
    *,
    count: int = 1,
    hosts: list[int] | None = None,
    level: AckLevel = AckLevel.APPENDED,
) -> Iterator[Waiting]:
    """A thread that waits for the index, which has ended with the block."""
    thread = Waiting(lambda: board.wait(INDEX, count, level, hosts, LONG_S))
    assert thread.goes_on
    yield thread
    assert not thread.is_alive()


def test_a_mark_wakes_a_thread(board: MarkBoard) -> None:
    row = board.row(2)
    with waiting(board) as thread:
        row.raise_to(AckLevel.APPENDED, INDEX - 1)
        row.raise_to(AckLevel.SYNCED, INDEX)
        assert thread.goes_on
        row.raise_to(AckLevel.APPENDED, INDEX + 5)
        assert thread.stand is Waited.REACHED


def test_a_level_counts_no_further_than_what_is_appended(board: MarkBoard) -> None:
    row = board.row(2)
    row.raise_to(AckLevel.SYNCED, INDEX)
    assert not board.has(INDEX, 1, AckLevel.SYNCED, None)
    with waiting(board, level=AckLevel.SYNCED) as thread:
        row.raise_to(AckLevel.APPENDED, INDEX - 1)
        assert thread.goes_on
        row.raise_to(AckLevel.APPENDED, INDEX)
        assert thread.stand is Waited.REACHED
    assert board.has(INDEX, 1, AckLevel.SYNCED, None)


def test_so_many_hosts_have_to_have_it(board: MarkBoard) -> None:
    with waiting(board, count=2) as thread:
        board.row(2).raise_to(AckLevel.APPENDED, INDEX)
        board.row(2).raise_to(AckLevel.APPENDED, INDEX + 1)
        assert thread.goes_on
        board.row(3).raise_to(AckLevel.APPENDED, INDEX)
        assert thread.stand is Waited.REACHED


def test_what_is_there_is_not_waited_for(board: MarkBoard) -> None:
    board.row(2).raise_to(AckLevel.APPENDED, INDEX)
    assert board.wait(INDEX, 1, AckLevel.APPENDED, None, None) == Waited.REACHED
    board.end()
    assert board.wait(INDEX, 1, AckLevel.APPENDED, None, None) == Waited.REACHED
    board.row(2).lower_to(AckLevel.APPENDED, INDEX - 1)
    assert board.wait(INDEX, 1, AckLevel.APPENDED, None, None) == Waited.ENDED


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_time_runs_out(board: MarkBoard, seconds: float) -> None:
    began = time.monotonic()
    assert board.wait(INDEX, 1, AckLevel.APPENDED, None, seconds) == Waited.UNKNOWN
    assert time.monotonic() - began >= seconds


@pytest.mark.parametrize("seconds", [None, 1e300, float("inf")])
def test_a_wait_without_a_limit(board: MarkBoard, seconds: float | None) -> None:
    thread = Waiting(lambda: board.wait(INDEX, 1, AckLevel.APPENDED, None, seconds))
    assert thread.goes_on
    board.row(2).raise_to(AckLevel.APPENDED, INDEX)
    assert thread.stand is Waited.REACHED


def test_the_end_wakes_all(board: MarkBoard) -> None:
    with waiting(board) as one, waiting(board, count=2) as other:
        board.end()
        assert (one.stand, other.stand) == (Waited.ENDED, Waited.ENDED)
    board.go_on()
    with waiting(board) as later:
        board.row(2).raise_to(AckLevel.APPENDED, INDEX)
        assert later.stand is Waited.REACHED


def test_the_bell_rings_once(bell: LoopBell, board: MarkBoard) -> None:
    def rings() -> bool:
        rung = is_readable(bell.fileno())
        bell.clear()
        return rung

    board.watch(INDEX, 1, AckLevel.APPENDED, None)
    assert not rings()
    board.row(2).raise_to(AckLevel.APPENDED, INDEX)
    assert rings()
    board.row(2).raise_to(AckLevel.APPENDED, INDEX + 1)
    assert not rings()
    board.watch(INDEX, 1, AckLevel.APPENDED, None)
    assert rings()
    board.unwatch(board.watch(INDEX, 2, AckLevel.APPENDED, None))
    board.row(3).raise_to(AckLevel.APPENDED, INDEX)
    assert not rings()


def test_a_board_outlives_its_bell(kernel: ModuleType) -> None:
    board: MarkBoard = kernel.Bell().board()
    board.watch(INDEX, 1, AckLevel.APPENDED, None)
    board.row(2).raise_to(AckLevel.APPENDED, INDEX)
    assert board.marks(AckLevel.APPENDED) == [(2, INDEX)]


def test_a_mark_that_rises_as_a_thread_begins_to_wait_is_not_missed(board: MarkBoard) -> None:
    rows = [board.row(2), board.row(3)]
    for index in range(1, 1000):
        thread = Waiting(partial(board.wait, index, 2, AckLevel.APPENDED, None, LONG_S))
        for row in rows:
            row.raise_to(AckLevel.APPENDED, index)
        assert thread.stand is Waited.REACHED


def test_a_signal_ends_a_wait_without_a_limit(board: MarkBoard) -> None:
    class Rang(Exception):
        pass

    def ring(number: int, frame: FrameType | None) -> None:
        raise Rang

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Rang):
            board.wait(INDEX, 1, AckLevel.APPENDED, None, None)
    finally:
        signal.signal(signal.SIGALRM, before)


class Word:
    """Eight bytes that a board raises."""

    def __init__(self, value: int = -1) -> None:
        self.buffer = memoryview(bytearray(24))
        self._longs = self.buffer.cast("q")
        self._longs[1] = value

    @property
    def value(self) -> int:
        assert (self._longs[0], self._longs[2]) == (0, 0)
        return self._longs[1]


def test_a_word_rises_to_what_so_many_hosts_hold(board: MarkBoard) -> None:
    word = Word()
    board.row(1).raise_to(AckLevel.APPENDED, INDEX)
    board.keep_safe(word.buffer, 8, 2, AckLevel.APPENDED, [1, 2, 3])
    assert word.value == -1
    board.row(4).raise_to(AckLevel.APPENDED, INDEX)
    assert word.value == -1
    board.row(2).raise_to(AckLevel.APPENDED, INDEX - 5)
    assert word.value == INDEX - 5
    board.row(3).raise_to(AckLevel.APPENDED, INDEX - 3)
    assert word.value == INDEX - 3
    board.row(2).raise_to(AckLevel.APPENDED, INDEX + 9)
    assert word.value == INDEX
    board.row(2).lower_to(AckLevel.APPENDED, 5)
    board.row(3).raise_to(AckLevel.APPENDED, INDEX - 2)
    assert word.value == INDEX


def test_a_word_of_what_was_raised_before_rises_at_once(board: MarkBoard) -> None:
    board.row(0).raise_to(AckLevel.APPENDED, INDEX)
    word, other = Word(), Word(INDEX + 3)
    board.keep_safe(word.buffer, 8, 1, AckLevel.APPENDED, None)
    assert word.value == INDEX
    board.keep_safe(other.buffer, 8, 1, AckLevel.APPENDED, None)
    board.row(1).raise_to(AckLevel.APPENDED, INDEX + 4)
    assert (word.value, other.value) == (INDEX, INDEX + 4)


def test_a_level_raises_a_word_no_further_than_what_is_appended(board: MarkBoard) -> None:
    word, row = Word(), board.row(1)
    board.keep_safe(word.buffer, 8, 1, AckLevel.SYNCED, None)
    row.raise_to(AckLevel.SYNCED, INDEX)
    assert word.value == -1
    row.raise_to(AckLevel.APPENDED, INDEX - 1)
    assert word.value == INDEX - 1
    row.claiming(INDEX).raise_to(AckLevel.APPENDED, INDEX + 1)
    assert word.value == INDEX - 1


def test_a_word_that_is_given_back_stays(board: MarkBoard) -> None:
    word = Word()
    board.keep_safe(word.buffer, 8, 1, AckLevel.APPENDED, None)
    board.keep_none_safe()
    board.keep_none_safe()
    board.row(1).raise_to(AckLevel.APPENDED, INDEX)
    assert word.value == -1


@pytest.mark.parametrize("position", [-8, 4, 17, 24])
def test_a_word_has_to_be_there(board: MarkBoard, position: int) -> None:
    word = Word()
    with pytest.raises((AssertionError, OverflowError)):
        board.keep_safe(word.buffer, position, 1, AckLevel.APPENDED, None)
    with pytest.raises(AssertionError):
        board.keep_safe(word.buffer.toreadonly(), 8, 1, AckLevel.APPENDED, None)
    board.row(1).raise_to(AckLevel.APPENDED, INDEX)
    assert word.value == 0 - 1
