"""Many threads at one board: what one of them waits for wakes that one, once."""

import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Final

import pytest

from cqrepl.kernel import plain
from cqrepl.kernel.interface import AckLevel, MarkBoard, Waited
from tests.support.sleepers import SECONDS, Sleeper, asleep

APPENDED: Final = AckLevel.APPENDED
THREADS: Final = 64


@pytest.fixture(params=["plain", "native"])
def board(request: pytest.FixtureRequest) -> MarkBoard:
    kernel: ModuleType = plain
    if request.param == "native":
        kernel = pytest.importorskip("cqrepl._native", reason="no native kernel")
    made: MarkBoard = kernel.Bell().board()
    return made


@pytest.fixture
def long_turns() -> Iterator[None]:
    """No thread that waits for the interpreter looks meanwhile whether it may have it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SECONDS)
    yield
    sys.setswitchinterval(before)


def each_for_its_own(board: MarkBoard) -> list[Sleeper]:
    """Threads of which the first one waits for index 1, the second one for index 2, and so on."""
    return [
        Sleeper(partial(board.wait, index, 1, APPENDED, None, SECONDS))
        for index in range(1, THREADS + 1)
    ]


@pytest.mark.usefixtures("long_turns")
@pytest.mark.parametrize("step", [1, 9])
def test_a_step_wakes_only_those_whose_wait_it_ends(board: MarkBoard, step: int) -> None:
    """Neither the mark itself nor the waits of others that end wake the rest: they sleep on."""
    sleepers = each_for_its_own(board)
    slept, row = asleep(sleepers), board.row(2)
    for reached in range(step, THREADS + step, step):
        row.raise_to(APPENDED, reached)
        assert {each.ended() for each in sleepers[reached - step : reached]} == {Waited.REACHED}
        row.raise_to(AckLevel.SYNCED, reached)
        row.raise_to(APPENDED, reached - 1)  # what is lower
        assert asleep(sleepers[reached:]) == slept[reached:]


@pytest.mark.usefixtures("long_turns")
def test_one_step_wakes_each_thread_once(board: MarkBoard) -> None:
    """The board wakes each thread once. A thread sleeps further only for the interpreter, which one
    thread has at a time: once as it comes back, and once more each time that a thread which came
    later has been quicker. If the board woke each thread with each of the others, all of them
    together would sleep some thousand times."""
    sleepers = each_for_its_own(board)
    slept = asleep(sleepers)
    board.row(2).raise_to(APPENDED, THREADS)
    assert {each.ended() for each in sleepers} == {Waited.REACHED}
    again = [each.sleeps_in_all - before for each, before in zip(sleepers, slept, strict=True)]
    assert sum(again) <= 8 * THREADS, again
