"""The idle tailer's pauses."""

import pytest
import trio
from trio.testing import MockClock

from cqrepl.kernel.live import Pausing
from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.writerpauser import (
    REST_SECONDS,
    SLEEP_SECONDS,
    WriterPauser,
)
from cqrepl.replicator.queuestate.queues import Signal, until
from cqrepl.surroundings import Surroundings

REST_AFTER_SECONDS = Surroundings.rest_after_seconds
POLLS = Surroundings.idle_polls


async def test_polls_then_sleeps(autojump_clock: MockClock) -> None:
    pauser, start = WriterPauser(), trio.current_time()
    for _ in range(POLLS):
        await pauser.pause(trio.Event())
    assert trio.current_time() == start
    for nth in range(1, 4):
        await pauser.pause(trio.Event())
        assert abs(trio.current_time() - start - nth * SLEEP_SECONDS[Pausing.BALANCED]) < 1e-9
    pauser.reset()
    before = trio.current_time()
    await pauser.pause(trio.Event())
    assert trio.current_time() == before


async def test_wake_ends_a_sleep_at_once(mock_clock: MockClock) -> None:
    """The clock stands still here: only the wake-up can end the sleep."""
    pauser, wake = WriterPauser(), trio.Event()
    for _ in range(POLLS):
        await pauser.pause(wake)
    wake.set()
    await pauser.pause(wake)


async def test_a_wake_up_before_the_pause_is_no_poll(mock_clock: MockClock) -> None:
    """The cause of the wake-up may not have been looked at yet: a live pump may still begin."""
    pauser, set_before, waiting = WriterPauser(), trio.Event(), []
    set_before.set()
    for wake in (set_before, trio.Event()):
        await pauser.pause(wake)
        waiting.append(pauser.is_waiting)
    assert waiting == [False, True]


@pytest.mark.parametrize("pausing", [Pausing.BALANCED, Pausing.SLEEPY])
async def test_rests_when_nothing_has_come_for_long(
    pausing: Pausing, mock_clock: MockClock
) -> None:
    pauser, wanted = WriterPauser(pausing, may_rest=True), []
    for is_found in (True, False, False, True, False):
        if is_found:
            pauser.reset()
        mock_clock.jump(REST_AFTER_SECONDS / 2)
        wanted.append(pauser.wants_rest)
    assert wanted == [False, True, True, False, True]


async def test_never_rests_where_it_may_not(mock_clock: MockClock) -> None:
    pausers = [WriterPauser(), WriterPauser(Pausing.BUSY, may_rest=True)]
    mock_clock.jump(2 * REST_AFTER_SECONDS)
    assert not any(pauser.wants_rest for pauser in pausers)


async def test_looks_itself_now_and_then(autojump_clock: MockClock) -> None:
    pauser, start = await tired(autojump_clock), trio.current_time()
    await pauser.pause(trio.Event(), list)
    assert trio.current_time() == start + REST_SECONDS
    assert pauser.wants_rest


async def test_a_wake_up_ends_a_rest(mock_clock: MockClock) -> None:
    """The clock stands still, and no word changes."""
    pauser, wake = await tired(mock_clock), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pauser.pause, wake, list)
        await trio.testing.wait_all_tasks_blocked()
        wake.set()
    assert pauser.wants_rest


async def test_a_word_that_changes_ends_a_rest_for_long(mock_clock: MockClock) -> None:
    """More may have to come before there is an excerpt: a file before its header, say."""
    pauser, wake = await tired(mock_clock), trio.Event()
    memory = bytearray(4)
    word = WatchedWord.at((0, 0), memoryview(memory), 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pauser.pause, wake, lambda: [word])
        await trio.testing.wait_all_tasks_blocked()
        memory[0] = 1
    assert wake.is_set()
    assert not pauser.wants_rest
    assert not pauser.is_waiting


async def tired(clock: MockClock) -> WriterPauser:
    """One that wants to rest."""
    pauser = WriterPauser(may_rest=True)
    await pauser.pause(trio.Event())
    clock.jump(REST_AFTER_SECONDS)
    assert pauser.wants_rest
    return pauser


async def test_signal_wakes_everybody_each_time(autojump_clock: MockClock) -> None:
    changed, value, seen = Signal(), [0], []

    async def wait(least: int) -> None:
        await until(lambda: value[0] >= least, changed)
        seen.append(least)

    async with trio.open_nursery() as nursery:
        for least in (1, 1, 2):
            nursery.start_soon(wait, least)
        await trio.testing.wait_all_tasks_blocked()
        for number in (1, 2):
            value[0] = number
            changed.set()
            await trio.testing.wait_all_tasks_blocked()
            assert seen == [1, 1, 2][: number + 1]
