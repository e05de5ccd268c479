"""Work of several tasks that goes into a thread together. Ways are counted, and not time."""

import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from cqrepl.net.reception import Reception
from cqrepl.net.scheduler import wake_soon
from cqrepl.net.threads import NoThread, Together, in_thread
from cqrepl.queue import Queue
from cqrepl.queue.files.syncedmark import load_synced
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk.syncer import Syncer
from tests.support.nothreads import no_threads
from tests.support.replicas import SECONDS, eventually
from tests.support.samples import fill
from tests.support.triothreads import none_kept

T = TypeVar("T")


async def test_what_comes_at_once_goes_together_and_each_task_gets_its_own() -> None:
    together, found = Together(3), dict[int, tuple[int, str]]()

    def work(number: int) -> tuple[int, str]:
        return number, threading.current_thread().name

    async def do(number: int) -> None:
        found[number] = await together.do(partial(work, number))

    async with trio.open_nursery() as nursery:
        for number in range(7):
            nursery.start_soon(do, number)
    assert together.ways == 3
    assert all(number == given for number, (given, _) in found.items())
    own = threading.current_thread().name
    assert len(found) == 7
    assert own not in {name for _, name in found.values()}


async def test_an_error_is_that_of_one_task() -> None:
    together, good = Together(8), list[int]()

    async def fails() -> None:
        with pytest.raises(ValueError, match="the second"):
            await together.do(lambda: int("the second"))

    async def does() -> None:
        good.append(await together.do(lambda: 1))

    async with trio.open_nursery() as nursery:
        for task in (does, fails, does):
            nursery.start_soon(task)
    assert good == [1, 1]
    assert together.ways == 1
    assert await together.do(lambda: 2) == 2


async def test_a_cancelled_task_waits_for_its_work_and_holds_up_no_other() -> None:
    together, done = Together(1), list[str]()
    begun, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        goes_on.wait(SECONDS)  # a test that has failed ends as well
        done.append("first")

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(together.do, wait)
                await eventually(begun.is_set)  # tasks that start together start in any order
                inner.start_soon(together.do, partial(done.append, "second"))
                nursery.start_soon(together.do, partial(done.append, "third"))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                goes_on.set()
        assert set(done) >= {"first", "second"}  # those go on though no task waits
    assert sorted(done) == ["first", "second", "third"]
    with trio.CancelScope() as late:
        late.cancel()
        await together.do(partial(done.append, "not begun"))
    assert "not begun" not in done


async def test_what_waits_for_its_way_leaves_a_queue_alone_that_was_closed(tmp_path: Path) -> None:
    """Another may have opened it since, and cut its end off, say: no mark tells of more."""
    fill(tmp_path, "FAST_DAILY", {0: 3})
    syncer, queue = Syncer(), Queue.open(tmp_path)
    end = syncer.watch(
        "q", queue, queue.next_index, Chains(queue.cycles), raised, queue.check_name, is_proved=True
    )

    async def late(work: Callable[[], T]) -> T:
        syncer.forget(queue)
        queue.close()
        return work()

    end.note()
    await end.sync(late)
    await end.sync()
    await end.look(late)
    assert not await end.audit_a_while(1.0)
    assert load_synced(tmp_path) is None


async def test_that_no_thread_can_be_had_is_an_error_of_the_machine() -> None:
    done = list[str]()
    together = Together(4)
    with none_kept(), no_threads():
        with pytest.raises(NoThread, match="can't start new thread"):
            await in_thread(partial(done.append, "never"))
        with pytest.raises(OSError, match="can't start new thread"):
            await together.do(partial(done.append, "never"))
    await together.do(partial(done.append, "together"))
    await in_thread(partial(done.append, "alone"))
    assert done == ["together", "alone"]


async def test_a_queue_is_synced_once_there_are_threads_again(tmp_path: Path) -> None:
    fill(tmp_path, "FAST_DAILY", {0: 3})
    syncer, queue = Syncer(), Queue.open(tmp_path)
    end = syncer.watch(
        "q", queue, queue.next_index, Chains(queue.cycles), raised, queue.check_name, is_proved=True
    )
    end.sync_at_once()
    async with syncer.running():
        with none_kept(), no_threads():
            end.note()
            await eventually(lambda: end.is_hindered)
            assert end.index_synced == -1
        await eventually(lambda: end.index_synced >= 0)
    syncer.forget(queue)
    queue.close()


def raised(error: Exception) -> None:
    raise AssertionError from error


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


def in_a_thread(look: list[str], nice: int) -> None:
    own = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, own, nice)
    for _ in range(2):
        wake_soon()
    look.append(str(os.getpriority(os.PRIO_PROCESS, own)))
    look.append(str(os.sched_getscheduler(own) & ~os.SCHED_RESET_ON_FORK))
    told = Path(f"/proc/self/task/{own}/sched")
    look.append(told.read_text() if told.exists() else "")


def test_its_turns_are_short_and_its_priority_is_what_it_was() -> None:
    look: list[str] = []
    thread = threading.Thread(target=in_a_thread, args=(look, 5))
    thread.start()
    thread.join()
    nice, policy, told = look
    assert (nice, policy) == ("5", "0")
    slice_ns = re.search(r"slice\s*:\s*([0-9]+)", told)
    if slice_ns is None:
        pytest.skip("this Linux does not tell the length of turns")
    assert int(slice_ns[1]) == 100_000
