"""A queue as a program leads it: appending, and waiting until a policy calls it safe."""

import logging
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import PRESETS, AckPolicy, From, OnTimeout
from cqrepl.queue import Appender, Queue
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, Leading, SteppedDown
from cqrepl.replicator.marks.ackboard import AckBell, WaitEnded
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support import peer
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    eventually,
    joined,
    live_sink,
    live_source,
)
from tests.support.samples import fill, noon_index
from tests.support.scripted import scripted
from tests.support.sleepers import Sleeper, asleep

T = TypeVar("T")
APPENDED, SYNCED, APPLIED = AckLevel
ANY = AckPolicy(timeout_seconds=SECONDS)
SHORT = AckPolicy(timeout_seconds=0.05, hosts=frozenset({7}), on_timeout=OnTimeout.WARN)
LAST = noon_index(sequence=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    return tmp_path / "q"


async def in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


async def test_what_is_appended_is_waited_for_as_the_policy_says(path: Path) -> None:
    async with live_source(path) as source, AsyncExitStack() as stack:
        for host_id in (2, 3):
            sink = live_sink(path.with_name(f"copy{host_id}"), source.port, host_id=host_id)
            await stack.enter_async_context(sink)
        leading = source.leading()
        both = replace(ANY, from_=From.ALL, hosts=frozenset({2, 3}), level=SYNCED)

        def work() -> int:
            index = leading.append([b"one", b"two"], policy=both)
            marks = leading.marks()
            assert all(marks[host][SYNCED] >= index for host in (2, 3))
            assert leading.commit_index(both) == index
            assert leading.commit_index(replace(both, hosts=frozenset({2, 7}))) == -1
            return index

        index = await in_thread(work)
        assert await source.wait_acked(index, policy=both) is AckOutcome.ACKED
        assert await leading.wait_acked(index, both) is AckOutcome.ACKED
        assert await leading.wait_acked(index) is AckOutcome.ACKED


async def test_nobody_is_waited_for_where_the_policy_says_so(path: Path) -> None:
    async with live_source(path) as source:
        leading = source.leading()
        index = await in_thread(partial(leading.append, [b"x"], policy=AckPolicy(from_=From.NONE)))
        assert leading.commit_index(AckPolicy(from_=From.NONE)) == index
        assert leading.commit_index() == -1
        assert leading.marks() == {}


async def test_the_policy_of_the_queue_holds_where_a_call_gives_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"listen": LOOPBACK, "policies": {"q": SHORT}, **BEATS}
    async with serve_source([path], **options) as source:
        leading = source.leading("q")
        assert leading.policy == SHORT
        assert await in_thread(partial(leading.wait, LAST)) is AckOutcome.UNKNOWN
        assert await leading.wait_acked(LAST) is AckOutcome.UNKNOWN
        assert await source.wait_acked(LAST) is AckOutcome.UNKNOWN
        index = await in_thread(partial(leading.append, [b"x"]))
        assert caplog.messages[-1].startswith("queue 'q': it is not known whether hosts have")
        assert hex(index) in caplog.messages[-1]


async def test_policies_in_turn_are_each_waited_for_as_they_say(path: Path) -> None:
    """The result that the last of the policies waits for is kept."""
    async with live_source(path) as source, live_sink(path.with_name("copy"), source.port):
        leading = source.leading()
        await leading.wait_acked(LAST, ANY)
        nobody = AckPolicy(from_=From.NONE)
        synced = replace(ANY, level=SYNCED)

        def work() -> None:
            for _ in range(3):
                assert leading.wait(LAST, ANY) is AckOutcome.ACKED
                assert leading.wait(LAST, SHORT) is AckOutcome.UNKNOWN
                assert leading.wait(LAST, nobody) is AckOutcome.ACKED
                assert leading.wait(LAST, synced) is AckOutcome.ACKED
            with pytest.raises(ValueError, match="an index expected"):
                leading.wait(-1, ANY)

        await in_thread(work)


@pytest.mark.parametrize("is_task", [True, False], ids=["task", "thread"])
async def test_when_the_time_is_over_it_is_not_known(
    path: Path, is_task: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No policy has it told that a write has failed."""
    caplog.set_level(logging.WARNING, "cqrepl.replicator.leadership")
    async with live_source(path) as source:
        leading = source.leading()
        calls: list[str] = []
        leading.on_step_down = lambda: calls.append("stepped down")

        async def wait(on_timeout: OnTimeout) -> AckOutcome:
            policy = replace(SHORT, on_timeout=on_timeout)
            if is_task:
                return await leading.wait_acked(LAST, policy)
            return await in_thread(partial(leading.wait, LAST, policy))

        assert await wait(OnTimeout.WARN) is AckOutcome.UNKNOWN
        (message,) = caplog.messages
        assert "not known whether hosts have 0x" in message
        assert "hosts=7" in message
        with pytest.raises(AckUnknown, match=r"'q': it is not known whether .* have 0x"):
            await wait(OnTimeout.FAIL)
        assert issubclass(AckUnknown, TimeoutError)
        assert not calls
        assert await wait(OnTimeout.STEP_DOWN) is AckOutcome.STEPPED_DOWN
        assert calls == ["stepped down"]
        assert leading.has_stepped_down


async def test_one_that_has_stepped_down_appends_no_more(path: Path) -> None:
    policy = replace(SHORT, on_timeout=OnTimeout.STEP_DOWN)
    async with live_source(path) as source:
        leading = source.leading()
        with pytest.raises(SteppedDown, match="not known whether hosts have"):
            await in_thread(partial(leading.append, [b"stays"], policy=policy))
        with pytest.raises(SteppedDown, match="has stepped down"):
            await in_thread(partial(leading.append, [b"is not written"]))
        last = leading.commit_index(AckPolicy(from_=From.NONE))
        leading.lead_again()
        assert await in_thread(partial(leading.append, [b"is written"])) > last >= LAST


@pytest.mark.parametrize("is_task", [True, False], ids=["task", "thread"])
async def test_one_that_blocks_goes_on_until_it_comes(path: Path, is_task: bool) -> None:
    policy = AckPolicy(timeout_seconds=0.01, on_timeout=OnTimeout.BLOCK)
    async with live_source(path) as source, trio.open_nursery() as nursery:
        leading = source.leading()
        outcomes: list[AckOutcome] = []

        async def wait() -> None:
            if is_task:
                outcomes.append(await leading.wait_acked(LAST, policy))
            else:
                outcomes.append(await in_thread(partial(leading.wait, LAST, policy)))

        nursery.start_soon(wait)
        await trio.sleep(0.1)
        assert not outcomes
        async with live_sink(path.with_name("copy"), source.port):
            await eventually(lambda: bool(outcomes))
        assert outcomes == [AckOutcome.ACKED]


async def test_a_preset_is_a_policy_like_any_other(path: Path) -> None:
    """The preset waits 10 ms until a program has taken the excerpt, else it logs one line."""
    async with joined(path, path.with_name("copy")) as (source, sink):
        leading = source.leading()
        policy = PRESETS["persist-synchronous"]
        await source.wait_acked(LAST)
        assert await in_thread(partial(leading.wait, LAST, policy)) is AckOutcome.UNKNOWN
        sink.applied(LAST)
        waited = partial(leading.wait, LAST, policy, SECONDS)
        assert await in_thread(waited) is AckOutcome.ACKED


async def test_what_waits_is_bounded_by_the_window(path: Path) -> None:
    policy = AckPolicy(window=3, timeout_seconds=0.05, on_timeout=OnTimeout.FAIL)
    async with serve_source([path], listen=LOOPBACK, policies={"q": policy}, **BEATS) as source:
        leading = source.leading()

        def work() -> int:
            leading.append([b"1", b"2"])
            last = leading.append([b"3"])
            for payloads in ([b"4"], [b"4", b"5"]):
                with pytest.raises(AckUnknown):
                    leading.append(payloads)
            return last

        last = await in_thread(work)
        copy = {"q": path.with_name("copy")}
        async with serve_sink(copy, connect=f"127.0.0.1:{source.port}", **BEATS):
            await source.wait_acked(last, policy=ANY)
            assert await in_thread(partial(leading.append, [b"4"])) > last


async def test_nobody_knows_which_hosts_are_all(path: Path) -> None:
    every = AckPolicy(from_=From.ALL)
    async with live_source(path) as source:
        leading = source.leading()
        with pytest.raises(ValueError, match="it is not known which are all"):
            await leading.wait_acked(LAST, every)
        with pytest.raises(ValueError, match="it is not known which are all"):
            await in_thread(partial(leading.wait, LAST, every))
        assert leading.commit_index(every) == -1
        with pytest.raises(RuntimeError, match="waits with wait_acked"):
            leading.wait(LAST, ANY)


async def test_a_wait_ends_with_its_source(path: Path) -> None:
    ends: list[str] = []

    def work(leading: Leading) -> None:
        try:
            leading.wait(LAST, replace(ANY, hosts=frozenset({7})))
        except WaitEnded as error:
            ends.append(error.why)

    async with trio.open_nursery() as nursery:
        async with live_source(path) as source:
            leading = source.leading()
            nursery.start_soon(trio.to_thread.run_sync, partial(work, leading))
            await trio.sleep(0.05)
    assert ends == ["the source has closed"]
    with pytest.raises(ValueError, match="its source has closed"):
        leading.append([b"x"])


@pytest.fixture
def long_turns() -> Iterator[None]:
    """No thread gives up the interpreter because another one has waited for it a while."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(10.0)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("long_turns")
@pytest.mark.skipif(not live.AVAILABLE, reason="threads of the plain kernel wait in Python")
def test_a_thread_that_waits_is_woken_for_its_own_wait_alone(tmp_path: Path) -> None:
    """Not for each mark that rises meanwhile, nor for the waits of others."""
    board = AckBell().board("q")
    leading = Leading("q", tmp_path, board, AckPolicy(timeout_seconds=SECONDS))
    row = board.row(2)
    slept: dict[int, int] = {}
    begun = threading.Barrier(33)

    def work(index: int) -> None:
        begun.wait(SECONDS)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        assert leading.wait(index) is AckOutcome.ACKED
        slept[index] = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before

    threads = [threading.Thread(target=work, args=(1000 + nth,)) for nth in range(32)]
    for thread in threads:
        thread.start()
    begun.wait(SECONDS)
    for index in range(1032):
        row.raise_to(APPENDED, index)
    for thread in threads:
        thread.join(SECONDS)
    assert len(slept) == 32
    # the wait itself, and turns of the interpreter's lock before and after it
    assert max(slept.values()) < 100, slept


async def test_each_acknowledgement_wakes_the_thread_that_waits_for_it(tmp_path: Path) -> None:
    """Many others wait; a live pump takes it, or the event loop."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 64})
    async with live_source(tmp_path / "q") as source, scripted(source.port, 2, 1) as sink:
        _, cid = await sink.answer(0)
        await sink.send(peer.end_of_stream(cid))
        await sink.hear("re", len(written))
        leading = source.leading()
        sleepers = [Sleeper(partial(leading.wait, index, ANY)) for index, _ in written]
        slept = await in_thread(partial(asleep, sleepers))
        for nth, (index, _) in enumerate(written):
            assert sleepers[nth].state == ("S", slept[nth])
            await sink.send(peer.acknowledgement(index, cid=cid))
            assert await in_thread(sleepers[nth].ended) is AckOutcome.ACKED


async def test_an_append_is_not_closed_under(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is removed in the midst, or its host ends: what was begun is appended whole."""
    found, begins, goes_on = list[int](), threading.Event(), threading.Event()
    append = Appender.append

    def slow(appender: Appender, payloads: list[bytes], now_ms: int | None = None) -> int:
        begins.set()
        assert goes_on.wait(SECONDS)
        return append(appender, payloads, now_ms)

    async with live_source(path) as source:
        leading = source.leading()
        monkeypatch.setattr(Appender, "append", slow)
        worker = threading.Thread(target=lambda: found.append(leading.append([b"one", b"two"])))
        worker.start()
        await eventually(begins.is_set)
    with pytest.raises(ValueError, match="its source has closed"):
        leading.append([b"three"])
    goes_on.set()
    await in_thread(worker.join)
    with Queue.open(path) as queue:
        assert [queue.last_index()] == found
        assert queue.count() == 5
    assert leading._queue is None
