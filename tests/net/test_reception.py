"""A reception that can be broken off."""

import trio
from trio.testing import wait_all_tasks_blocked

from cqrepl.net.reception import Reception


async def test_what_comes_is_received() -> None:
    send, arrivals = trio.open_memory_channel[int](1)
    await send.send(5)
    assert await Reception().read(arrivals.receive) == 5


async def test_a_reception_is_broken_off_and_nothing_is_lost() -> None:
    reception, said = Reception(), list[int | None]()
    send, arrivals = trio.open_memory_channel[int](9)

    async def read_on() -> None:
        while True:
            said.append(await reception.read(arrivals.receive))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_on)
        await wait_all_tasks_blocked()
        reception.interrupt()
        await wait_all_tasks_blocked()
        await send.send(1)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert said == [None, 1]


async def test_who_does_not_wait_is_not_interrupted() -> None:
    reception = Reception()
    reception.interrupt()
    send, arrivals = trio.open_memory_channel[int](1)
    await send.send(5)
    assert await reception.read(arrivals.receive) == 5
