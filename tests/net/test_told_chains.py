"""A source compares what copies tell of themselves in groups, and leaves out nothing."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.queue.format.index import Cycle, Index, Sequence, index_of
from cqrepl.replicator.outgoing.lineagedesk import (
    AUDITED_MAX,
    AUDITED_PAUSE_SECONDS,
    AUDITED_TOGETHER,
    LineageDesk,
)
from cqrepl.replicator.queuestate.queues import Signal

SHIFT = 32
CHAIN = bytes(16)


class Chains:
    """Of a queue whose copy is equal; it counts what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def at(self, index: int) -> bytes:
        self.asked.append(index)
        return CHAIN


class Desk:
    """A desk with some queues, and what it compares of them."""

    def __init__(self, count: int) -> None:
        self.queues = {
            Cid(cid): SimpleNamespace(
                cid=cid,
                shift=SHIFT,
                is_going_on=True,
                audited=0,
                queue=SimpleNamespace(chains=c, disk=SimpleNamespace(prove=lambda index: None)),
            )
            for cid, c in enumerate([Chains() for _ in range(count)], 1)
        }
        outgoing: Any = self.queues
        connection: Any = SimpleNamespace(has_events=False)
        returns: Any = None
        self._desk = LineageDesk(outgoing, returns, connection, Signal())

    def tell(self, cid: int, cycle: int) -> None:
        index = index_of(Cycle(cycle), Sequence(5), SHIFT)
        self._desk.note(ev.CopyAudited(cid=Cid(cid), name="q", index=index, chain=CHAIN))

    def asked(self) -> int:
        return sum(len(each.queue.chains.asked) for each in self.queues.values())

    def run(self, count: int) -> float:
        """Works until so much is compared; how long it rested meanwhile."""

        async def step(cid: Cid, do: Callable[[Any], Awaitable[None]]) -> None:
            await do(self.queues[cid])

        async def work() -> float:
            pump: Any = SimpleNamespace(wake=lambda: None, look=lambda: None)
            begun = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._desk.work, pump, step)
                while self.asked() < count:
                    await trio.sleep(0.001)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            return trio.current_time() - begun

        return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0.05))


def test_where_queues_have_told_of_several_cycles_none_waits_behind_a_pause() -> None:
    """They would tell faster than is compared, and some would never have their turn."""
    desk = Desk(2 * AUDITED_TOGETHER)
    for cid in desk.queues:
        for cycle in range(3):
            desk.tell(cid, cycle)
    assert desk.run(6 * AUDITED_TOGETHER) < 3 * AUDITED_PAUSE_SECONDS  # where one each is left
    for each in desk.queues.values():
        assert [index >> SHIFT for index in each.queue.chains.asked] == [0, 1, 2]
        assert each.audited == each.queue.chains.asked[-1]


def test_a_queue_of_which_something_was_left_out_does_not_count_as_compared() -> None:
    desk = Desk(2)
    for cycle in range(AUDITED_MAX + 1):
        desk.tell(1, cycle)
    desk.tell(2, 0)
    desk.run(AUDITED_MAX + 1)
    assert desk.queues[Cid(1)].audited == 0
    assert desk.queues[Cid(2)].audited == index_of(Cycle(0), Sequence(5), SHIFT)


def test_of_one_cycle_the_last_that_was_told_is_compared() -> None:
    desk = Desk(1)
    desk.tell(1, 0)
    last = Index(index_of(Cycle(0), Sequence(5), SHIFT) + 3)
    desk._desk.note(ev.CopyAudited(cid=Cid(1), name="q", index=last, chain=CHAIN))
    desk.run(1)
    assert desk.queues[Cid(1)].queue.chains.asked == [last]
