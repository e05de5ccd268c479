"""A host inside asyncio: calls and their cancellation, errors both ways, and the end."""

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import cqrepl
from cqrepl import HostSettings, Queue
from cqrepl.aio import AsyncioHost, AsyncioQueue, Host
from tests.net.test_blocking import Failing, Halt, source_of
from tests.support.replicas import SECONDS, at
from tests.support.samples import NOON_MS, held


def run(main: Coroutine[Any, Any, None]) -> None:
    """As a program of asyncio; nothing may be left, and no fault told to the loop."""
    told: list[dict[str, Any]] = []

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, fault: told.append(fault))
        async with asyncio.timeout(SECONDS):
            await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole(), debug=True)
    assert told == []


@asynccontextmanager
async def pair(tmp_path: Path) -> AsyncIterator[tuple[AsyncioHost, AsyncioHost]]:
    """A host that streams "q", and one that takes it in."""
    async with Host(source_of(tmp_path / "q")) as one:
        there = HostSettings.of(connect=at(one.port), sinks={"q": tmp_path / "copy"})
        async with Host(there) as two:
            yield one, two


def test_tasks_append_and_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (one, two):
            queue = one.queue("q")

            async def work(number: int) -> int:
                index = await queue.append(b"%d" % number, now_ms=NOON_MS)
                await queue.wait_acked(index, hosts=[2])
                return index

            indexes = await asyncio.gather(*map(work, range(40)))
            assert len(set(indexes)) == 40
            assert queue.board.marks == {2: max(indexes)}
            await asyncio.to_thread(queue.board.wait, max(indexes))
            last = await asyncio.to_thread(queue.leading.append, [b"x"], policy=cqrepl.AckPolicy())
            assert queue.leading.commit_index() == last
            synced = cqrepl.AckPolicy(level=cqrepl.AckLevel.SYNCED)
            last = await queue.append(b"y", policy=synced)
            assert queue.leading.marks()[2][synced.level] == last
            assert (one.stops, two.stops, two.port) == ([], [], None)
            assert (queue.is_streamed, two.queue().is_streamed) == (True, False)
            assert two.queue().path == tmp_path / "copy"
            with pytest.raises(cqrepl.Refused, match="'q' is taken in here"):
                await two.queue().append(b"no")

    run(main())
    appended = [*(b"%d" % number for number in range(40)), b"x", b"y"]
    assert sorted(held(tmp_path / "copy")) == sorted(appended)


def test_tasks_wait_as_a_policy_says(tmp_path: Path) -> None:
    """And what is for threads, or for trio, says so before it does anything."""
    synced = cqrepl.AckPolicy(level=cqrepl.AckLevel.SYNCED)
    nobody = cqrepl.AckPolicy(
        hosts=frozenset({7}), timeout_seconds=0.01, on_timeout=cqrepl.OnTimeout.FAIL
    )

    async def main() -> None:
        async with pair(tmp_path) as (one, _):
            queue = one.queue("q")
            index = await queue.append(b"a")
            assert await queue.wait_acked(index, policy=synced) is cqrepl.AckOutcome.ACKED
            assert queue.leading.marks()[2][synced.level] == index
            with pytest.raises(cqrepl.AckUnknown):
                await queue.wait_acked(index, policy=nobody)
            with pytest.raises(ValueError, match="a policy, or a number of hosts"):
                await queue.wait_acked(index, 2, policy=synced)
            with pytest.raises(RuntimeError, match=r"that of cqrepl\.aio\.Host\.queue"):
                queue.leading.wait(index, synced)
            with pytest.raises(RuntimeError, match=r"wait_acked is for trio, .* cqrepl\.aio\.Host"):
                await queue.leading.wait_acked(index, synced)
            with pytest.raises(RuntimeError, match="waits with wait_acked"):
                queue.leading.append([b"is not written"], policy=synced)

    run(main())
    assert held(tmp_path / "q") == [b"a"]


def test_a_cancellation_ends_the_task_of_trio(tmp_path: Path) -> None:
    async def main() -> None:
        async with Host(source_of(tmp_path / "q")) as host:
            queue = host.queue()
            index = await queue.append(b"a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await queue.wait_acked(index)
            seen: list[str] = []

            async def slow() -> None:
                try:
                    seen.append("begun")
                    await trio.sleep_forever()
                finally:
                    seen.append("ended")

            task = asyncio.create_task(host.call(slow))
            while not seen:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert seen == ["begun", "ended"]

    run(main())


def test_errors_of_a_call_come_out(tmp_path: Path) -> None:
    async def fails() -> None:
        raise LookupError("in trio")

    async def main() -> None:
        async with Host(source_of(tmp_path / "q")) as host:
            with pytest.raises(LookupError, match="in trio"):
                await host.call(fails)
            with pytest.raises(ValueError, match="an index expected"):
                await host.queue().wait_acked(-1)

    run(main())


async def failing(host: AsyncioHost, tmp_path: Path) -> None:
    """Waits in the block of a host whose program fails when a peer is there."""
    async with host:
        there = HostSettings.of(connect=at(host.port), sinks={"q": tmp_path / "copy"})
        async with Host(there):
            await asyncio.Event().wait()


def test_a_host_that_fails_ends_its_block(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(Halt, match="of the program"):
            await failing(Host(source_of(tmp_path / "q"), program=Failing()), tmp_path)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    run(main())


async def queue_of(host: AsyncioHost) -> AsyncioQueue:
    """Its queue, once it runs."""
    while True:
        with suppress(RuntimeError):
            return host.queue()
        await asyncio.sleep(0)


def test_a_wait_of_another_task_ends_with_the_host(tmp_path: Path) -> None:
    async def main() -> None:
        host = Host(source_of(tmp_path / "q"), program=Failing())
        block = asyncio.create_task(failing(host, tmp_path))
        queue = await queue_of(host)
        told = r"^this host has ended: of the program$"
        with pytest.raises(cqrepl.HostEnded, match=told):
            await queue.wait_acked(1 << 60)
        with pytest.raises(cqrepl.HostEnded, match=told):
            await queue.append(b"b")
        with pytest.raises(Halt, match="of the program"):
            await block

    run(main())


def test_an_error_of_the_block_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(KeyError, match="mine"):
            async with pair(tmp_path):
                raise KeyError("mine")
        task = asyncio.create_task(block_for_ever(tmp_path / "p"))
        await asyncio.sleep(0.05)
        task.cancel("from outside")
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


@pytest.mark.parametrize("turns", range(4))
def test_one_that_is_cancelled_while_it_begins_leaves_nothing_running(
    tmp_path: Path, turns: int
) -> None:
    """The event loop ends right after it."""

    async def main() -> None:
        task = asyncio.create_task(block_for_ever(tmp_path / "p"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    gc.collect()  # what was left running is told of then


async def block_for_ever(path: Path) -> None:
    async with Host(source_of(path)):
        await asyncio.Event().wait()


def test_after_its_end_it_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        host = Host(source_of(tmp_path / "q"))
        with pytest.raises(RuntimeError, match="does not run yet"):
            host.queue()
        async with host:
            queue = host.queue()
            with pytest.raises(RuntimeError, match="a host runs once"):
                await host.__aenter__()
        with pytest.raises(cqrepl.HostEnded, match=r"^this host has ended$"):
            await queue.append(b"a")
        with pytest.raises(cqrepl.HostEnded, match=r"^this host has ended$"):
            host.queue()

    run(main())


def test_no_loop_is_told_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"this is none: here it is cqrepl.blocking.Host$"):
        Host(source_of(tmp_path / "q")).__aenter__().send(None)


def test_a_queue_is_followed_in_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
            queue.append(b"0")
            seen: list[bytes] = []

            async def read() -> None:
                async for excerpt in cqrepl.aio.follow(queue.tailer()):
                    seen.append(bytes(excerpt.data))

            reader = asyncio.create_task(read())
            for count in range(1, 301):
                queue.append(b"%d" % count)
            while len(seen) < 301 and not reader.done():
                await asyncio.sleep(0)
            queue.append(b"later")
            while seen[-1:] != [b"later"] and not reader.done():
                await asyncio.sleep(0)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert seen == [*(b"%d" % count for count in range(301)), b"later"]

    run(main())


async def test_under_trio_it_says_whose_it_is(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append(b"0")
        with pytest.raises(RuntimeError, match=r"^cqrepl\.aio\.follow is for a task of asyncio"):
            await anext(aiter(cqrepl.aio.follow(queue.tailer())))
