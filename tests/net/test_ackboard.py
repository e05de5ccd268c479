"""Waiting for acknowledgements: in threads and in tasks, at the board of a queue."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cqrepl.kernel import live
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import AckPolicy
from cqrepl.queue import Queue
from cqrepl.queue.format.index import Index
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.leadership import Leading, SteppedDown
from cqrepl.replicator.lostcycles import lostfiles
from cqrepl.replicator.marks.ackboard import AckBell, AckBoard, WaitEnded
from cqrepl.replicator.queuestate.queues import until
from tests.support.replicas import (
    SECONDS,
    acked,
    eventually,
    gated_audits,
    in_thread,
    joined,
    live_sink,
    live_source,
    more_excerpts,
)
from tests.support.samples import NOON_MS, fill, flip_byte, noon_index, noon_path

APPENDED = AckLevel.APPENDED


def waits(board: AckBoard, index: int, n: int = 1, **more: Any) -> Callable[[], None]:
    return partial(board.wait, index, n, SECONDS, **more)


@contextmanager
def ends_with(why: str) -> Iterator[None]:
    with pytest.raises(WaitEnded) as error:
        yield
    assert why in error.value.why
    assert error.value.queue == "q"
    assert why in str(error.value)


@pytest.mark.usefixtures("has_pump")
async def test_a_thread_appends_and_waits_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})

    def work(board: AckBoard) -> None:
        with Queue.open_for_append(path) as queue:
            for number in range(200):
                index = queue.append(b"%d" % number)
                board.wait(index, 1, SECONDS)
                assert board.marks == {2: index}

    async with joined(path, tmp_path / "copy") as (source, _):
        await in_thread(partial(work, source.board()))


async def test_so_many_hosts_and_those_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    last = noon_index(sequence=2)
    async with live_source(path) as source:
        board = source.board("q")
        async with live_sink(tmp_path / "one", source.port, host_id=2):
            await in_thread(waits(board, last))
            with pytest.raises(TimeoutError, match=r"'q': 2 acknowledgements of 0x.* within 0\.05"):
                await in_thread(partial(board.wait, last, 2, 0.05))
            with pytest.raises(TimeoutError):
                await in_thread(partial(board.wait, last, timeout=0.05, hosts=[3, 7]))
            with trio.move_on_after(0.05) as limit:
                await board.wait_acked(last, hosts=[3])
            assert limit.cancelled_caught
            async with trio.open_nursery() as nursery:  # host 3 is not known yet
                nursery.start_soon(in_thread, waits(board, last, 2))
                nursery.start_soon(in_thread, waits(board, last, hosts=[3, 7]))
                nursery.start_soon(board.wait_acked, last, 2)
                await trio.sleep(0.05)
                async with live_sink(tmp_path / "other", source.port, host_id=3):
                    await board.wait_acked(last, 2, hosts=[2, 3])
                    assert board.marks == {2: last, 3: last}
        assert board.marks == {2: last, 3: last}  # they had it


async def test_what_can_never_come_is_an_error() -> None:
    board = AckBell().board("q")
    for index, n, hosts in (
        (-1, 1, None),
        (0, 0, None),
        (0, 128, None),
        (0, 1, []),
        (0, 1, [0]),
        (0, 1, [128]),
        (0, 2, [5, 5]),
    ):
        with pytest.raises(ValueError, match="expected"):
            board.wait(index, n, hosts=hosts)
        with pytest.raises(ValueError, match="expected"):
            await board.wait_acked(index, n, hosts=hosts)
    with pytest.raises(RuntimeError, match="wait_acked"):
        board.wait(0)


async def test_a_board_that_is_armed_tells_once_and_has_nothing_else_counted() -> None:
    bell, counts = AckBell(), 0
    board, other = bell.board("q"), bell.board("other")

    def count() -> None:
        nonlocal counts
        counts += 1

    async def risen(least: int) -> list[AckBoard]:
        await until(lambda: len(bell.risen) >= least, bell.has_risen)
        return bell.take_risen(2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bell.hear, count)
        for each in (board, other):
            each.arm((8, 2, APPENDED, (2, 3, 4)))
            each.row(2).raise_to(APPENDED, 9)
        await wait_all_tasks_blocked()
        assert (board.is_armed, other.is_armed, list(bell.risen)) == (True, True, [])
        board.row(4).raise_to(APPENDED, 8)
        assert await risen(1) == [board]
        assert (board.risen_to, board.is_armed, other.is_armed, counts) == (8, False, True, 0)
        board.row(4).raise_to(APPENDED, 20)  # nothing asks for it
        board.end("it has ended")
        board.arm((30, 1, APPENDED, None))
        assert not board.is_armed
        async with trio.open_nursery() as waits_too:
            waits_too.start_soon(partial(other.wait_acked, 8, 2))
            await wait_all_tasks_blocked()
            other.row(3).raise_to(APPENDED, 8)
        assert (await risen(1), counts) == ([other], 1)
        nursery.cancel_scope.cancel()


async def test_the_end_of_the_source_ends_all_waits(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3})
    last = noon_index(sequence=2)

    async def ended(wait: Callable[[], Any]) -> None:
        with ends_with("the source has closed"):
            await wait()

    async with trio.open_nursery() as nursery:
        async with joined(path, tmp_path / "copy") as (source, _):
            board = source.board()
            await acked(source, last)
            nursery.start_soon(ended, partial(in_thread, waits(board, last + 1)))
            nursery.start_soon(ended, partial(board.wait_acked, last + 1))
            await trio.sleep(0.05)
    with ends_with("the source has closed"):
        await in_thread(waits(board, last + 1))
    await in_thread(waits(board, last))


async def test_where_no_acknowledgements_are_asked_for_there_is_nothing_to_wait_for(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q", acknowledge=False) as source:
        async with live_sink(tmp_path / "copy", source.port):
            with ends_with("no acknowledgements are asked for"):
                await source.wait_acked(noon_index(sequence=2))


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_damaged_queue_ends_all_waits_unless_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_given: bool
) -> None:
    """Its file is lost, and comes back from the copy, or from nowhere."""
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.2)
    if not is_given:
        monkeypatch.setattr(lostfiles, "FETCH_CAPABILITY", "no such thing")
    path = tmp_path / "q"
    last = fill(path, "FAST_HOURLY", {0: 5, 1: 30, 2: 7})[-1][0]
    waited = 0

    async def waits_on(wait: Callable[[], Any]) -> None:
        nonlocal waited
        with nullcontext() if is_given else ends_with("expected 30 excerpts"):
            await wait()
        waited += 1

    async with joined(path, tmp_path / "copy") as (source, _):
        board = source.board()
        await acked(source, last)
        await eventually(lambda: len(source.queues["q"].queue.cycles.closed.load()) == 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits_on, partial(in_thread, waits(board, last + 1)))
            nursery.start_soon(waits_on, partial(board.wait_acked, last + 1))
            await trio.sleep(0.05)
            noon_path(path, "FAST_HOURLY", ahead=1).unlink()
            if is_given:
                await eventually(noon_path(path, "FAST_HOURLY", ahead=1).exists)
                with Queue.open_for_append(path) as queue:
                    assert queue.append(b"later", now_ms=NOON_MS + 2 * 3_600_000) == last + 1
        assert waited == 2
        await in_thread(waits(board, last))  # what is known stays known


async def test_what_is_sent_before_a_stop_may_be_acknowledged_yet(tmp_path: Path) -> None:
    """An excerpt behind those that were sent is never acknowledged."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    async with live_source(path, payload_max=1000) as source:
        board = source.board()
        async with live_sink(tmp_path / "copy", source.port), trio.open_nursery() as nursery:

            async def ends(wait: Callable[[], Any]) -> None:
                with ends_with("expected at most 1000"):
                    await wait()

            with Queue.open_for_append(path) as queue:
                good = queue.append(b"short")
                large = queue.append(bytes(2000))
            nursery.start_soon(ends, partial(in_thread, waits(board, large)))
            nursery.start_soon(ends, partial(board.wait_acked, large))
            await in_thread(waits(board, good))


async def test_what_a_copy_that_differs_has_acknowledged_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait goes on: another one may take what it has refused."""
    flipped = gated_audits(monkeypatch)
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 50})
    async with live_source(path) as source:
        board = source.board()
        async with live_sink(copy, source.port, host_id=2):
            last = more_excerpts(path, 50, 5)[-1][0]
            await in_thread(waits(board, last))
            flip_byte(noon_path(copy), written[45][1][:8], 2)
            flipped.set()
            await eventually(lambda: board.marks == {})
            assert source.stops
            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_thread, waits(board, last))
                nursery.start_soon(board.wait_acked, last)
                async with live_sink(tmp_path / "good", source.port, host_id=3):
                    await board.wait_acked(last)
                    assert board.marks == {3: last}
                    with pytest.raises(TimeoutError):
                        await in_thread(partial(board.wait, last, 2, 0.05))


async def test_a_new_leader_reads_what_earlier_ones_called_safe_and_waits_until_hosts_have_it(
    tmp_path: Path,
) -> None:
    """Its own board begins empty, whatever was told to the board of the leader before."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    bell, last, read = AckBell(), noon_index(sequence=2), list[int]()
    board, policy = bell.board("q"), AckPolicy(level=AckLevel.SYNCED, from_=1)
    leading = Leading("q", tmp_path / "q", board, policy, epoch=2, begins=Index(last + 1))

    async def reads() -> None:
        read.append(await leading.read_index())

    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reads)
            await wait_all_tasks_blocked()
            assert not read
            for level in (AckLevel.APPENDED, AckLevel.SYNCED):
                board.row(2).raise_to(level, last)
            bell.changed.set()
    assert read == [last]
    board.close("another host leads")
    board.row(2).lower_to(AckLevel.SYNCED, -1)
    with pytest.raises(SteppedDown, match="another host leads"):
        await leading.read_index()
    leading.close()


@pytest.mark.skipif(not live.AVAILABLE, reason="with the plain kernel marks rise in the event loop")
@pytest.mark.parametrize("policy", [None, AckPolicy(level=AckLevel.SYNCED)])
async def test_the_mark_in_the_table_store_rises_while_the_event_loop_is_held_up(
    tmp_path: Path, policy: AckPolicy | None
) -> None:
    policies = {} if policy is None else {"policies": {"q": policy}}
    with Queue.open_for_append(tmp_path / "source", create="FAST_DAILY") as queue:
        async with live_source(tmp_path / "source", **policies) as source:
            async with live_sink(tmp_path / "copy", source.port):
                for _ in range(100):
                    index = queue.append(b"one more")
                    until_then = time.monotonic() + 0.3
                    while queue.acknowledged_index < index and time.monotonic() < until_then:
                        time.sleep(0.001)
                    if queue.acknowledged_index >= index:
                        break
                    await acked(source, index)  # its pump had come back for a moment
                else:
                    pytest.fail("expected the pumps to raise the mark")
