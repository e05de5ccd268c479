"""A process stands still and goes on; a trio that does not have what this takes is noticed here."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cqrepl.surroundings import Surroundings, within
from cqrepl.testing.cluster import running_cluster
from cqrepl.testing.freezer import Freezer


class Clockwork:
    """Two processes that look at the time every second."""

    def __init__(self) -> None:
        self.processes = (Surroundings(), Surroundings())
        self.times: tuple[list[float], list[float]] = ([], [])

    async def run(self, nth: int) -> None:
        with within(self.processes[nth]):
            while True:
                await trio.sleep(1.0)
                self.times[nth].append(trio.current_time())


async def test_only_a_frozen_process_stands_still(autojump_clock: MockClock) -> None:
    freezer, works = Freezer(), Clockwork()
    trio.lowlevel.add_instrument(freezer)
    async with trio.open_nursery() as nursery:
        for nth in (0, 1):
            nursery.start_soon(works.run, nth)
        await trio.sleep(2.5)
        freezer.freeze(works.processes[0])
        freezer.freeze(works.processes[0])  # again changes nothing
        await trio.sleep(5.0)
        assert works.times[0] == pytest.approx([1.0, 2.0])
        freezer.thaw(works.processes[0])
        freezer.thaw(works.processes[0])
        await trio.sleep(1.8)  # not to an instant at which a process wakes, too
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(freezer)
    assert works.times[0] == pytest.approx([1.0, 2.0, 7.5, 8.5])
    assert works.times[1] == pytest.approx(list(range(1, 10)))


async def test_what_is_cancelled_while_it_is_frozen_ends_afterwards(
    autojump_clock: MockClock,
) -> None:
    freezer, process = Freezer(), Surroundings()
    trio.lowlevel.add_instrument(freezer)
    ended = trio.Event()

    async def work() -> None:
        with within(process):
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await trio.sleep(1)
        freezer.freeze(process)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
            assert not ended.is_set()
            freezer.thaw(process)
    trio.lowlevel.remove_instrument(freezer)
    assert ended.is_set()


async def test_a_frozen_sink_gets_all_later(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running_cluster(tmp_path, 2) as cluster:
        await cluster.settled()
        process = cluster.hosts[2].freeze()
        assert process is not None
        cluster.append(b"meanwhile")
        await trio.sleep(10.0)  # the source has closed the connection by now
        assert not cluster.is_settled(cluster.hosts[2])
        cluster.hosts[2].thaw(process)
        await cluster.settled()
        assert cluster.content(1) == cluster.content(2)
