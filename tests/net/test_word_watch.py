"""The thread that looks at words for connections at rest."""

import subprocess
import sys
import threading

import trio
import trio.testing

from cqrepl.kernel.memory import WatchedWord
from cqrepl.net.ticks import until_tick
from cqrepl.net.wordwatch import WordWatch
from tests.support.nothreads import no_threads as refused
from tests.support.replicas import SECONDS, eventually

LEFT = """
import atexit, threading
import trio
from tests.net.test_word_watch import Memory, no_threads
from cqrepl.net.wordwatch import WordWatch

atexit.register(lambda: print("over" if no_threads() else "it looks yet"))
left = []

async def main():
    left.append(WordWatch().watching([Memory().word(0)], print))
    left[0].__enter__()
    print("no thread" if no_threads() else "looks")

trio.run(main)
"""


def no_threads() -> bool:
    return all(thread.name != "word watch" for thread in threading.enumerate())


class Memory:
    """Some words."""

    def __init__(self, count: int = 4) -> None:
        self.bytes = bytearray(4 * count)

    def word(self, nth: int) -> WatchedWord:
        return WatchedWord.at((0, id(self)), memoryview(self.bytes), 4 * nth)

    def change(self, nth: int) -> None:
        self.bytes[4 * nth] += 1


async def test_tells_once_of_a_word_that_changes() -> None:
    memory, watch, told = Memory(), WordWatch(), trio.Event()
    count = 0

    def tell() -> None:
        nonlocal count
        count += 1
        told.set()

    with watch.watching([memory.word(0), memory.word(3)], tell):
        memory.change(1)  # which no connection waits for
        memory.change(3)
        await told.wait()
        memory.change(0)
        await eventually(no_threads)  # nothing is left to look at
    assert count == 1


def test_it_is_over_before_the_interpreter_ends() -> None:
    """Also where an event loop is left as it stands, as one within another one's may be."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "looks\nover\n", "")


async def test_it_ends_with_the_last_and_begins_anew() -> None:
    memory, watch = Memory(), WordWatch()
    for _ in range(3):
        told = trio.Event()
        with watch.watching([memory.word(0)], told.set):
            assert not no_threads()
        await eventually(no_threads)
        assert not told.is_set()
        with watch.watching([memory.word(0)], told.set):
            memory.change(0)
            await told.wait()


async def test_those_that_look_now_and_then_do_so_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    woken = []

    async def look(after: float, seconds: float, times: int) -> None:
        await trio.sleep(after)
        for _ in range(times):
            began = trio.current_time()
            await until_tick(seconds)
            assert seconds / 2 <= trio.current_time() - began < 1.5 * seconds
            woken.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for nth in range(10):
            nursery.start_soon(look, 0.173 * nth, 1.0, 10)
        nursery.start_soon(look, 0.2, 2.0, 5)
    assert len(set(woken)) <= 12


async def test_one_that_has_left_is_not_told() -> None:
    memory, watch, told = Memory(), WordWatch(), trio.Event()
    with watch.watching([memory.word(0)], told.set):
        pass
    memory.change(0)
    await eventually(no_threads)
    await trio.testing.wait_all_tasks_blocked()
    assert not told.is_set()


async def test_without_a_thread_each_looks_itself_until_there_is_one() -> None:
    memory, watch, told = Memory(), WordWatch(), trio.Event()
    with refused(), watch.watching([memory.word(0)], told.set):
        await told.wait()
        assert not watch.watchers
    told = trio.Event()
    with watch.watching([memory.word(0)], told.set):
        assert not told.is_set()
        memory.change(0)
        with trio.fail_after(SECONDS):
            await told.wait()
    await eventually(no_threads)
