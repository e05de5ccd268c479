"""The one place that reaches into trio: a trio that has it no more is noticed here."""

import trio

from cqrepl.testing.order import ordered_by


def order(seed: str) -> list[int]:
    """In which order 50 tasks run that all become ready at once."""
    ran: list[int] = []

    async def main() -> None:
        async def task(number: int) -> None:
            await trio.lowlevel.checkpoint()
            ran.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(task, number)

    with ordered_by(seed):
        trio.run(main)
    return ran


def test_a_seed_is_an_order() -> None:
    assert order("a") == order("a")
    assert order("a") != order("b")


def test_trio_is_as_it_was_afterwards() -> None:
    scheduler = trio._core._run
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r
    order("a")
    assert (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r) == before
