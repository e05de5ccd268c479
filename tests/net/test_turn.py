"""One receiver of a socket at a time."""

import trio
from trio.testing import wait_all_tasks_blocked

from cqrepl.net.readturn import ReadTurn


async def read_on(
    turn: ReadTurn, arrivals: trio.MemoryReceiveChannel[int], said: list[str]
) -> None:
    while True:
        count = await turn.read(arrivals.receive)
        said.append(f"read {count}")


async def test_the_reader_gives_way_and_goes_on() -> None:
    turn, said = ReadTurn(), list[str]()
    send, arrivals = trio.open_memory_channel[int](9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_on, turn, arrivals, said)
        await send.send(1)
        await wait_all_tasks_blocked()
        for _ in range(2):
            async with turn.taken() as is_taken:
                assert is_taken
                said.append("taken")
                await send.send(2)
                await wait_all_tasks_blocked()
                assert said[-1] == "taken"
                assert arrivals.receive_nowait() == 2
            await wait_all_tasks_blocked()
        await send.send(3)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert said == ["read 1", "taken", "read None", "taken", "read None", "read 3"]


async def test_what_the_reader_has_is_acted_on_first() -> None:
    turn, said = ReadTurn(), list[str]()
    send, arrivals = trio.open_memory_channel[int](9)

    async def take() -> None:
        async with turn.taken():
            said.append("taken")

    async with trio.open_nursery() as nursery:
        assert await turn.read(_returning(1)) == 1
        nursery.start_soon(take)  # while the reader acts on what it has read
        await wait_all_tasks_blocked()
        assert said == []
        nursery.start_soon(read_on, turn, arrivals, said)
        await wait_all_tasks_blocked()
        assert said == ["taken", "read None"]
        nursery.cancel_scope.cancel()
    send.close()


async def test_a_reader_with_too_much_to_do_keeps_its_turn() -> None:
    turn = ReadTurn()
    async with turn.taken() as is_taken:  # there is no reader to give way
        assert not is_taken
        assert await turn.read(_returning(5)) == 5
    assert await turn.read(_returning(6)) == 6


async def test_the_turn_comes_back_from_a_taker_that_is_cancelled() -> None:
    turn = ReadTurn()
    with trio.move_on_after(0.01):
        async with turn.taken():
            raise AssertionError
    assert await turn.read(_returning(5)) == 5


class _returning:
    def __init__(self, count: int) -> None:
        self._count = count

    async def __call__(self) -> int:
        await trio.lowlevel.checkpoint()
        return self._count
