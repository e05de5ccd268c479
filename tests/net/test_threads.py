"""Work of several tasks that goes into a thread together. Ways are counted, and not time."""

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio
import trio.testing

from cqrepl.net import threads
from cqrepl.net.threads import NoThread, Together, in_thread
from cqrepl.queue import Queue
from cqrepl.queue.files.syncedmark import load_synced
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk.syncer import GROUP_QUEUES, Syncer
from tests.support.nothreads import no_threads
from tests.support.replicas import SECONDS, eventually
from tests.support.samples import fill
from tests.support.triothreads import none_kept

COUNT = 3 * GROUP_QUEUES
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


def test_between_two_pieces_others_have_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread of the program that the first one has woken goes on before the second."""
    interval, woken, done = sys.getswitchinterval(), threading.Event(), list[str]()

    def wait() -> None:
        woken.wait(SECONDS)
        done.append("other")

    other = threading.Thread(target=wait)
    other.start()
    # it has its turn, however late the machine gives it one
    monkeypatch.setattr(time, "sleep", lambda _: other.join(SECONDS))
    try:
        sys.setswitchinterval(SECONDS)  # nothing takes the interpreter away from a thread
        threads._do_all([threads._Piece(woken.set), threads._Piece(lambda: done.append("second"))])
    finally:
        sys.setswitchinterval(interval)
        woken.set()
        other.join()
    assert done == ["other", "second"]


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


async def test_the_files_of_many_queues_are_looked_at_and_synced_together(tmp_path: Path) -> None:
    syncer, queues = Syncer(), []
    for number in range(COUNT):
        fill(tmp_path / str(number), "FAST_DAILY", {0: 3})
        queues.append(Queue.open(tmp_path / str(number)))
    ends = [
        syncer.watch(
            each.path.name, each, each.next_index, Chains(each.cycles), raised, each.check_name,
            is_proved=True,
        )
        for each in queues
    ]  # fmt: skip
    async with syncer.running():
        for end in ends:
            end.note()
        await eventually(lambda: all(end.index_synced >= 0 for end in ends))
        await eventually(lambda: not any(end.has_to_look for end in ends))
        assert 2 * COUNT // GROUP_QUEUES <= syncer.ways < COUNT
    for each in queues:
        syncer.forget(each)
        each.close()


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


async def test_an_error_of_the_work_is_not_taken_for_that() -> None:
    def work() -> None:
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError):
        await in_thread(work)


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
