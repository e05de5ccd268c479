"""The choice of a leader after a power cut has torn a copy: excerpts that another copy has whole
are not lost."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.net.errors import Refused
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.replicator.disk import syncedfiles
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.settings import SourceSettings
from tests.net.test_power_cut_ends import cut_power
from tests.support import replicas, samples
from tests.support.disks import FailingDisk
from tests.support.promotions import Cluster, cluster, ends_at, last
from tests.support.replicas import copied, eventually, more_excerpts
from tests.support.samples import Excerpts, flip_byte, noon_index, read

PROVED = 3


def of_some_sectors(count: int, seed: int = 1) -> list[bytes]:
    """Payloads that are long enough for a power cut to tear."""
    return [bytes([1 + seed % 255]) * (1500 + nth) for nth in range(count)]


@asynccontextmanager
async def torn(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: Mapping[int, int],
    *,
    places: list[int],
    wait_for_seconds: float = WAIT_FOR_SECONDS,
) -> AsyncIterator[Cluster]:
    """Copies of a dead source with so many excerpts; a power cut has torn some of host 2's, of
    which three were known to be on its disk."""
    for module in (samples, replicas):
        monkeypatch.setattr(module, "payloads", of_some_sectors)
    settings = SourceSettings(wait_for_seconds=wait_for_seconds)
    async with cluster(folder, 4, source=settings) as hosts:
        await hosts.leaderless(ends)
        await hosts.stop(2)
        cut_power(hosts.path(2), monkeypatch, proved=PROVED, torn=places)
        await hosts.start(2)
        await hosts.meet()
        yield hosts


async def assert_mended_first(hosts: Cluster, whole: Excerpts) -> None:
    """Host 4 got what host 2 leads with only after host 3 had mended it."""
    await copied(hosts.path(2), hosts.path(3))
    await hosts.follow(2)
    assert read(hosts.path(4))[:7] == whole, "host 3 has mended it first"
    assert not any(host.stops for host in hosts.hosts.values())


async def test_of_two_that_are_as_long_the_whole_one_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with torn(tmp_path, monkeypatch, {2: 7, 3: 7, 4: 3}, places=[4, 5]) as hosts:
        whole = read(hosts.path(3))
        done = await hosts.hosts[4].leaders.promote("a")
        assert done.returned is not None
        assert (done.returned.host, done.unproved) == (3, None)
        assert read(hosts.path(4)) == whole
        await hosts.follow(4)
        assert read(hosts.path(2)) == whole, "and mends the other one"


async def test_the_farthest_one_leads_where_others_have_some_of_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {2: 9, 3: 7, 4: 3}
    async with torn(tmp_path, monkeypatch, ends, places=[4, 5], wait_for_seconds=4) as hosts:
        whole = read(hosts.path(3))
        plan = await hosts.hosts[4].leaders.plan("a", 4)
        assert "may have torn what host 2 has" in plan.refusal
        assert "promote host 2" in plan.refusal
        done = await hosts.hosts[2].leaders.promote("a")
        assert done.refusal == ""
        await assert_mended_first(hosts, whole)


async def test_a_copy_that_is_torn_before_what_another_one_lacks_is_named_before_any_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the plan at each host; the one that the plan says to promote leads then."""
    ends = {2: 9, 3: 7, 4: 3}
    async with torn(tmp_path, monkeypatch, ends, places=[4, 5], wait_for_seconds=4) as hosts:
        whole = read(hosts.path(3))
        first = hex(noon_index(sequence=PROVED))
        why = f"a power cut may have torn what host 2 has from {first} on, and host 3 has"
        for host in hosts.hosts.values():
            refusal = (await host.leaders.plan("a", 3)).refusal
            assert why in refusal
            assert "promote host 2, which compares itself with the others first" in refusal
        with pytest.raises(Refused, match=why):
            await hosts.hosts[3].leaders.promote("a", accept_loss=True)
        assert [load_epochs(hosts.path(each)).promised for each in ends] == [0, 0, 0]
        await hosts.hosts[2].leaders.promote("a")
        await assert_mended_first(hosts, whole)


async def test_one_that_may_be_torn_and_is_not_before_that_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with torn(tmp_path, monkeypatch, {2: 9, 3: 7, 4: 3}, places=[8]) as hosts:
        plan = await hosts.hosts[4].leaders.plan("a", 3)
        done = await hosts.hosts[3].leaders.promote("a")
        assert plan == done
        assert (done.refusal, done.unproved) == ("", noon_index(sequence=7))


async def test_a_plan_says_of_a_leader_whose_sync_has_failed_what_its_promise_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that has promised opens its copy anew, and doubts what is behind its mark."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        disk = hosts.hosts[1].source.queues["a"].disk
        assert isinstance(disk, DiskEnd)
        await eventually(lambda: disk.index_synced == last(3))
        with monkeypatch.context() as failing:
            failing.setattr(syncedfiles, "surroundings", partial(FailingDisk, str(hosts.path(1))))
            more_excerpts(hosts.path(1), 3, 2)
            await eventually(lambda: disk.trouble is not None)
        await eventually(lambda: all(ends_at(hosts.path(each), last(5)) for each in (2, 3)))
        plan = await hosts.hosts[2].leaders.plan("a", 2)
        done = await hosts.hosts[2].leaders.promote("a", accept_loss=plan.is_risky)
        assert plan.unsure == done.unsure == {1}
        assert (plan.needed, plan.may_lose) == (done.needed, done.may_lose)


async def test_copies_that_differ_before_that_are_named_before_any_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no power cut is to blame."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.leaderless({2: 9, 3: 7})
        await hosts.stop(2)
        (store,) = hosts.path(2).glob("*.cq4")
        flip_byte(store, read(hosts.path(2))[1][1], 0)
        for each in hosts.path(2).glob("*.cqchain"):
            each.unlink()
        await hosts.start(2)
        await hosts.meet()
        why = f"host 3 and host 2 hold other excerpts before {hex(noon_index(sequence=7))}"
        assert why in (await hosts.hosts[2].leaders.plan("a", 3)).refusal
        with pytest.raises(Refused, match=why):
            await hosts.hosts[3].leaders.promote("a")
        assert [load_epochs(hosts.path(each)).promised for each in (2, 3)] == [0, 0]


async def test_a_short_copy_gets_nothing_torn_before_the_whole_one_has_mended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {2: 9, 3: 7, 4: 3}
    async with torn(tmp_path, monkeypatch, ends, places=[4, 5], wait_for_seconds=4) as hosts:
        whole = read(hosts.path(3))
        await hosts.stop(3)
        await hosts.hosts[2].leaders.promote("a", accept_loss=True)
        await trio.sleep(1)
        assert ends_at(hosts.path(4), last(PROVED))
        await hosts.start(3)
        await assert_mended_first(hosts, whole)


async def test_what_nobody_has_whole_goes_on_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with torn(tmp_path, monkeypatch, {2: 6, 3: 3, 4: 3}, places=[5]) as hosts:
        done = await hosts.hosts[4].leaders.promote("a")
        assert done.unproved == noon_index(sequence=PROVED)
        assert any(line.startswith("not proved: from") for line in done.lines(is_done=True))
        await hosts.follow(4)
        assert read(hosts.path(4))[:5] == read(hosts.path(2))[:5]
