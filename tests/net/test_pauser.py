"""The idle tailer's pauses."""

import trio
from trio.testing import MockClock

from cqrepl.kernel.live import Pausing
from cqrepl.net.writerpauser import POLLS, SLEEP_SECONDS, WriterPauser
from cqrepl.replicator.queues import Signal, until


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


async def test_others_run_between_polls() -> None:
    pauser, ran = WriterPauser(), []

    async def other() -> None:
        ran.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(3):
            await pauser.pause(trio.Event())
        assert ran


async def test_wake_ends_a_sleep_at_once(mock_clock: MockClock) -> None:
    """The clock stands still here: only the wake-up can end the sleep."""
    pauser, wake = WriterPauser(), trio.Event()
    for _ in range(POLLS):
        await pauser.pause(wake)
    wake.set()
    await pauser.pause(wake)


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
