"""Hosts that never wait are found, though no time passes where they run."""

import trio
from trio.testing import MockClock

from cqrepl.testing.standstill import Standstill


def test_a_task_that_goes_round_in_circles_is_named() -> None:
    async def circles() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def main() -> set[str]:
        async with trio.open_nursery() as nursery:
            watch = Standstill(nursery.cancel_scope)
            trio.lowlevel.add_instrument(watch)
            nursery.start_soon(circles)
            nursery.start_soon(trio.sleep, 3600)
        return watch.busy

    (name,) = trio.run(main, clock=MockClock(autojump_threshold=0.0))
    assert name.endswith("circles")


def test_tasks_that_sleep_are_not() -> None:
    async def main() -> set[str]:
        with trio.CancelScope() as scope:
            watch = Standstill(scope)
            trio.lowlevel.add_instrument(watch)
            for _ in range(30_000):
                await trio.sleep(0.001)
        return watch.busy

    assert not trio.run(main, clock=MockClock(autojump_threshold=0.0))
