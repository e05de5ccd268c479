"""A service has the state of its queue on each host, and goes back where the queue was cut."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from cqrepl import AckLevel, AckPolicy, ExcerptBatch, Queue, QueueCut
from cqrepl.net.threads import in_thread
from cqrepl.queue.format.epochs import Epoch
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.logpos import LogPos, is_on, position_at
from cqrepl.queue.quarantine import quarantine
from cqrepl.replicator import followfeed
from cqrepl.replicator.followfeed import FollowFeed, ServiceFailed
from tests.support.ledgers import Ledger, Place, fed
from tests.support.promotions import cluster
from tests.support.replicas import eventually, more_excerpts
from tests.support.samples import NOON_MS, fill, noon_index, read

T = TypeVar("T")


class Failing(Ledger):
    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        raise ZeroDivisionError("a mistake of the service")


def test_positions_are_ordered_and_have_the_epoch_of_what_is_before_them() -> None:
    history = (Epoch(2, 1, Index(10)), Epoch(5, 3, Index(20)))
    found = [position_at(history, index) for index in (0, 10, 11, 20, 21, 300)]
    assert [each.epoch for each in found] == [0, 0, 2, 2, 5, 5]
    assert found == sorted(found)
    assert all(is_on(history, each) for each in found)
    assert not is_on(history, LogPos(3, Index(15)))
    assert not is_on(history, LogPos(2, Index(21)))
    assert LogPos(1, Index(100)) < LogPos(2, Index(60))
    assert str(LogPos(2, Index(255))) == "epoch 2, 0xff"


@pytest.mark.parametrize("cut", [0, 1, 4, 7])
def test_a_tailer_tells_from_which_index_on_the_queue_was_cut(tmp_path: Path, cut: int) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5, 1: 2})
    with Queue.open(tmp_path / "q") as queue:
        tailer = queue.tailer()
        assert len(list(tailer)) == 7
        tailer.check_cut()
        start = noon_index(sequence=cut) if cut < 5 else noon_index(ahead=1, sequence=1)
        quarantine(tmp_path / "q", start)
        with pytest.raises(QueueCut, match="went to quarantine with everything from") as error:
            tailer.check_cut()
        assert error.value.cut_from == start


def test_a_tailer_goes_into_no_later_cycle_behind_a_cut(tmp_path: Path) -> None:
    """The file that it has read to the end is not the queue's, while the next one is."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 1})
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        batch = tailer.next_batch()
        assert batch is not None
        assert len(batch) == 5
        quarantine(path, noon_index(sequence=2))
        with Queue.open_for_append(path) as writer:
            writer.appender().append_at(ExcerptBatch.of(noon_index(ahead=1), [b"later"]))
        with pytest.raises(QueueCut):
            tailer.next_batch()


async def test_what_is_there_is_applied_and_then_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5, 1: 300})
    async with fed(path) as (feed, ledger, place):
        await feed.caught_up(written[-1][0])
        assert ledger.held == written
        assert feed.position == LogPos(0, Index(written[-1][0] + 1))
        with Queue.open(path) as queue:
            index = queue.append(b"more")
        await feed.reached(index)
        assert ledger.held == read(path)
        assert place.told[-1] == index


async def test_what_is_appended_by_way_of_the_feed_is_in_the_state_at_once(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    async with fed(path) as (feed, ledger, place):
        await feed.reached(written[-1][0])
        with Queue.open(path) as queue:
            for _ in range(20):
                await trio.testing.wait_all_tasks_blocked()
                index = await feed.after(partial(queue.append, b"more"))
                assert ledger.held[-1] == (index, b"more")
                assert feed.position.index == index + 1
        assert ledger.held == read(path)
        assert place.told[-1] == index


async def test_an_append_does_not_wait_for_a_feed_that_has_much_to_do(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    goes_on = threading.Event()

    class Slow(Ledger):
        def apply(self, batch: ExcerptBatch, committed: int) -> None:
            assert goes_on.wait(60)
            super().apply(batch, committed)

    ledger = Slow()
    feed = FollowFeed(Place(path), ledger)
    with trio.fail_after(60), Queue.open(path) as queue:
        async with feed.running():
            index = await feed.after(partial(queue.append, b"more"))
            assert not ledger.held
            goes_on.set()
            await feed.reached(index)
            assert ledger.held == [*written, (index, b"more")]


async def test_a_service_that_fails_at_an_append_is_called_no_more(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    calls: list[int] = []

    class Failing(Ledger):
        def apply(self, batch: ExcerptBatch, committed: int) -> None:
            calls.append(len(batch))
            if len(calls) > 1:
                raise ZeroDivisionError("a mistake of the service")
            super().apply(batch, committed)

    feed = FollowFeed(Place(path), Failing())
    with trio.fail_after(60), Queue.open(path) as queue:
        async with feed.running():
            await feed.reached(noon_index(sequence=4))
            await trio.testing.wait_all_tasks_blocked()
            index = await feed.after(partial(queue.append, b"more"))
            with pytest.raises(ServiceFailed, match="a mistake of the service"):
                await feed.reached(index)
    assert calls == [5, 1]


async def test_a_queue_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    async with fed(tmp_path / "q") as (feed, ledger, _):
        await trio.testing.wait_all_tasks_blocked(0.01)
        written = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
        await feed.reached(written[-1][0])
        assert ledger.held == written


@pytest.mark.parametrize("cut", [0, 2, 5])
async def test_state_goes_back_where_the_queue_is_cut(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5, 1: 2})
    start = noon_index(sequence=cut) if cut < 5 else noon_index(ahead=1)
    async with fed(path) as (feed, ledger, _):
        await feed.reached(written[-1][0])
        quarantine(path, start)
        with Queue.open(path) as queue:
            index = queue.append(b"of the new leader", now_ms=NOON_MS + 10 * 86_400_000)
        await feed.caught_up(index)
        assert ledger.held == read(path)
        assert ledger.held[-1][1] == b"of the new leader"
        assert feed.rewinds == 1


async def test_a_cut_behind_the_state_takes_nothing_from_it(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    async with fed(path) as (feed, ledger, _):
        await feed.reached(noon_index(sequence=4))
        more_excerpts(path, 5, 1)
        await feed.reached(noon_index(sequence=5))
        quarantine(path, noon_index(sequence=5))
        (cut,) = read(path)[-1:]
        assert cut[0] == noon_index(sequence=4)
        await eventually(lambda: feed.rewinds == 1)
        await feed.caught_up(noon_index(sequence=4))
        assert ledger.held == read(path)


async def test_a_service_serves_nothing_before_it_has_all_of_the_copy_or_after_it_has_ended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    end = written[-1][0] + 1
    place = Place(path)
    feed = FollowFeed(place, Ledger())
    async with feed.running():
        assert place.why_unfit(end) == place.why_unfit(None) == "its service has no state yet"
        await feed.caught_up(end - 1)
        assert place.why_unfit(end) == ""
        assert "and the copy at" in place.why_unfit(end + 1)
        assert place.why_unfit(None) == ""
    feed = FollowFeed(place, Failing())
    async with feed.running():
        await eventually(lambda: feed.fault is not None)
        assert "its service has ended: the service has failed" in place.why_unfit(None)


async def test_a_service_that_fails_is_called_no_more(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    feed = FollowFeed(Place(path), Failing())
    async with feed.running():
        with trio.fail_after(60), pytest.raises(ServiceFailed, match="a mistake of the service"):
            await feed.reached(written[-1][0])
        assert isinstance(feed.fault, ServiceFailed)


async def test_copies_are_applied_and_their_source_hears_of_it(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as hosts:
        await hosts.followed({2: 4})
        leader, follower = Ledger(), Ledger()
        first = FollowFeed(hosts.hosts[1].queue("a"), leader)
        second = FollowFeed(hosts.hosts[2].queue("a"), follower)
        applied = AckPolicy(level=AckLevel.APPLIED)
        async with first.running(), second.running():
            index = await hosts.hosts[1].queue("a").append(b"more", policy=applied)
            assert index.is_acked
            await first.caught_up(index)
            assert leader.held == follower.held == read(hosts.path(1))
            assert first.committed() == index
            await eventually(lambda: second.committed() == index)


async def test_a_deposed_leader_has_the_state_of_the_new_one(tmp_path: Path) -> None:
    """Its state goes back: the excerpts that it had appended alone went to quarantine."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 4, 3: 4})
        old = Ledger()
        await hosts.kill(2)
        await hosts.kill(3)
        feed = FollowFeed(hosts.hosts[1].queue("a"), old)
        async with feed.running():
            alone = await hosts.hosts[1].queue("a").append(b"of the old leader")
            await feed.reached(alone)
            assert old.held[-1] == (alone, b"of the old leader")
            assert feed.committed() < alone
        await hosts.kill(1)
        await hosts.start(2, 3)
        await hosts.hosts[2].leaders.promote("a", accept_loss=True)
        index = await hosts.hosts[2].queue("a").append(b"of the new leader")
        await hosts.start(1)
        feed = FollowFeed(hosts.hosts[1].queue("a"), old)
        feed.position = LogPos(0, Index(alone + 1))
        async with feed.running():
            await hosts.follow(2)
            await feed.caught_up(index)
            assert old.held == read(hosts.path(2))
            assert (hosts.path(1) / "quarantine").is_dir()


async def test_a_host_that_follows_applies_what_comes_without_a_way_into_a_thread_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    ways: list[object] = []

    async def counted(work: Callable[[], T], **more: Any) -> T:
        ways.append(work)
        return await in_thread(work, **more)

    monkeypatch.setattr(followfeed, "in_thread", counted)
    async with fed(path) as (feed, ledger, _):
        await eventually(lambda: ledger.held == written)
        before = len(ways)
        with Queue.open(path) as queue:
            for _ in range(50):
                index = queue.append(b"more")
                await eventually(partial(_holds, ledger, index))
        assert len(ways) - before < 25
        await feed.reached(index)
        assert ledger.held == read(path)


def _holds(ledger: Ledger, index: int) -> bool:
    return ledger.held[-1][0] == index
