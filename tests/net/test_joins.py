"""A host that has no state comes to it: by its copy, or by a snapshot of another host."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from cqrepl import CannotJoin, FollowFeed, LinkView, Queue
from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.cluster.snapshotkind import Giving
from cqrepl.cluster.snapshots import GroupState, Snapshots
from cqrepl.queue.files.checkpointfile import checkpoints_in, write_part
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.logpos import LogPos
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.replicator.followfeed import JoinBy
from tests.support.ledgers import Ledger
from tests.support.promotions import Cluster, cluster
from tests.support.replicas import eventually
from tests.support.samples import Excerpts, fill, noon_index
from wire import Writer

SETTINGS = CheckpointSettings(records=1, age_min_ms=None)


class Member:
    """One host with a service."""

    def __init__(self, hosts: Cluster, host_id: int, join: JoinBy = JoinBy.AUTO) -> None:
        self.hosts, self.host_id, self.join = hosts, host_id, join
        self.path = hosts.path(host_id)
        self.snapshots = Snapshots(leader=lambda _: 1)
        hosts.programs[host_id] = [self.snapshots]
        self.ledger = Ledger()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FollowFeed]:
        saver = Checkpointer("a", self.path, SETTINGS, self.snapshots)
        queue = self.hosts.hosts[self.host_id].queue("a")
        feed = FollowFeed(queue, self.ledger, saver, self.join)
        group = GroupState(path=self.path, folder=saver.folder, save=feed.save)
        self.snapshots.groups["a"] = group
        async with feed.running():
            yield feed


def without_start(path: Path) -> Excerpts:
    """A queue whose first cycle was deleted; all that it had."""
    written = fill(path, "FAST_DAILY", {0: 5, 1: 3})
    with Queue.open(path) as queue:
        assert len(remove(queue.cycles, Policy())) == 1
    return written


def saved(path: Path, excerpts: Excerpts) -> None:
    """A checkpoint of a ledger with these."""
    pos = LogPos(0, Index(excerpts[-1][0] + 1))
    part = write_part(path / "snapshots", "a", pos, Ledger(held=excerpts).snapshot)
    part.rename(part.with_suffix(""))


@asynccontextmanager
async def two_members(
    folder: Path, join: JoinBy = JoinBy.AUTO
) -> AsyncIterator[tuple[Cluster, Member, Member]]:
    async with cluster(folder, 2) as hosts:
        yield hosts, Member(hosts, 1), Member(hosts, 2, join)


async def test_a_copy_that_has_the_start_is_replayed(tmp_path: Path) -> None:
    async with two_members(tmp_path) as (hosts, first, second):
        written = fill(first.path, "FAST_DAILY", {0: 5, 1: 3})
        await hosts.start(1, 2)
        async with first.running(), second.running() as feed:
            await feed.reached(written[-1][0])
            assert second.ledger.held == written
            assert feed.position.index == written[-1][0] + 1


async def test_where_the_start_is_gone_the_leader_gives_a_snapshot(tmp_path: Path) -> None:
    async with two_members(tmp_path) as (hosts, first, second):
        written = without_start(first.path)
        saved(first.path, written[:6])
        await hosts.start(1, 2)
        async with first.running(), second.running() as feed:
            await feed.reached(written[-1][0])
            assert second.ledger.held == written
            assert (second.path / "snapshots" / "joined").exists()
            index = await hosts.hosts[1].queue("a").append(b"more")
            await feed.reached(index)
            assert second.ledger.held == [*written, (index, b"more")]


async def test_a_host_that_waits_for_a_state_to_be_saved_holds_up_no_other_one(
    tmp_path: Path,
) -> None:
    async with two_members(tmp_path) as (hosts, first, second):
        fill(first.path, "FAST_DAILY", {0: 5})
        await hosts.start(1, 2)
        is_asked, may_save = trio.Event(), trio.Event()

        async def save() -> None:
            is_asked.set()
            await may_save.wait()

        folder = first.path / "snapshots"
        first.snapshots.groups["a"] = GroupState(path=first.path, folder=folder, save=save)
        async with first.snapshots.running(), trio.open_nursery() as nursery:
            nursery.start_soon(second.snapshots.fetch, "a", tmp_path / "part", None)
            await is_asked.wait()
            with trio.fail_after(20):
                assert await second.snapshots.begin_of("a") == 0
            assert not may_save.is_set()
            may_save.set()


async def test_a_snapshot_may_be_asked_for_though_the_start_is_there(tmp_path: Path) -> None:
    async with two_members(tmp_path, JoinBy.SNAPSHOT) as (hosts, first, second):
        written = fill(first.path, "FAST_DAILY", {0: 5})
        await hosts.start(1, 2)
        await hosts.follow(1)  # the state that is saved gets its name once both have it
        async with first.running() as led:
            await led.reached(written[-1][0])
            async with second.running() as feed:
                await feed.reached(written[-1][0])
                assert second.ledger.held == written
                assert second.ledger.committed == []  # the leader had it saved for that


async def test_a_replay_may_be_asked_for_though_a_checkpoint_is_there(tmp_path: Path) -> None:
    async with two_members(tmp_path, JoinBy.REPLAY) as (hosts, first, second):
        written = fill(first.path, "FAST_DAILY", {0: 5})
        await hosts.start(1, 2)
        await hosts.follow(1)
        saved(second.path, [(noon_index(sequence=4), b"of another service")])
        async with first.running(), second.running() as feed:
            await feed.reached(written[-1][0])
            assert second.ledger.held == written


@pytest.mark.parametrize("join", [JoinBy.AUTO, JoinBy.REPLAY])
async def test_a_host_without_any_way_cannot_join_and_names_all(
    tmp_path: Path, join: JoinBy
) -> None:
    async with two_members(tmp_path, join) as (hosts, first, second):
        written = without_start(first.path)
        await hosts.start(1, 2)  # host 1 has the kind, and no service of that queue
        async with second.running() as feed:
            first.snapshots.groups["a"] = GroupState(
                path=first.path, folder=first.path / "snapshots", save=trio.lowlevel.checkpoint
            )
            with pytest.raises(CannotJoin) as error:
                await feed.reached(written[-1][0])
    text = str(error.value)
    assert "it has no checkpoint of its own; its copy begins at" in text
    refused = "host 1: it has none that is fit" if join is JoinBy.AUTO else "a replay was asked for"
    assert text.endswith(f"no host that is connected gives a snapshot: {refused}")


async def test_a_snapshot_that_is_damaged_or_of_another_group_is_refused(tmp_path: Path) -> None:
    async with two_members(tmp_path) as (hosts, first, second):
        written = without_start(first.path)
        saved(first.path, written[:6])
        (checkpoint,) = checkpoints_in(first.path / "snapshots")
        data = bytearray(checkpoint.path.read_bytes())
        data[-40] ^= 1
        checkpoint.path.write_bytes(data)
        await hosts.start(1, 2)
        async with second.running() as feed:
            first.snapshots.groups["a"] = GroupState(
                path=first.path, folder=first.path / "snapshots", save=trio.lowlevel.checkpoint
            )
            with pytest.raises(CannotJoin, match=r"host 1: .*its SHA-256 is another one"):
                await feed.reached(written[-1][0])
        assert checkpoints_in(second.path / "snapshots") == []


class Cut(Snapshots):
    """Ends its connection once so many pieces have come."""

    def __init__(self, hosts: Cluster) -> None:
        super().__init__(leader=lambda _: 1)
        self.hosts, self.pieces = hosts, 0

    async def told(self, link: LinkView, event: object) -> None:
        if isinstance(event, tuple) and isinstance(event[1], bytes):
            self.pieces += 1
            if self.pieces == 10:
                for pump, _ in list(self.hosts.hosts[1].endpoint.connections.values()):
                    pump.fail("a test cuts it")
        await super().told(link, event)


async def test_a_long_snapshot_goes_on_after_a_cut_connection(tmp_path: Path) -> None:
    async with two_members(tmp_path, JoinBy.SNAPSHOT) as (hosts, first, second):
        second.snapshots = cut = Cut(hosts)
        hosts.programs[2] = [cut]
        fill(first.path, "FAST_DAILY", {0: 1})
        await hosts.start(1, 2)
        await hosts.follow(1)
        long: Excerpts = [(noon_index(), bytes(3_000_000))]
        saved(first.path, long)
        async with first.running(), second.running() as feed:
            await eventually(lambda: feed.position.index == noon_index() + 1, 15)
            assert second.ledger.held == long
        assert 62 <= cut.pieces < 90  # 62 pieces, and a few that were on their way


class Liar(Snapshots):
    """Says that it has a checkpoint of another name than they have."""

    async def _give(self, giving: Giving) -> None:
        writer = Writer()
        with writer.document(metadata=False):
            writer.name("state")
            with writer.block():
                writer.name("name")
                writer.text("..\0/evil")
                for name in ("size", "begin"):
                    writer.name(name)
                    writer.integer(1)
        giving._say(bytes(writer.data))


async def test_a_checkpoint_of_another_name_is_refused(tmp_path: Path) -> None:
    async with two_members(tmp_path, JoinBy.SNAPSHOT) as (hosts, first, second):
        hosts.programs[1] = [Liar()]
        written = fill(first.path, "FAST_DAILY", {0: 1})
        await hosts.start(1, 2)
        async with second.running() as feed:
            with pytest.raises(CannotJoin, match="expected the name of a checkpoint, got"):
                await feed.reached(written[-1][0])


async def test_a_state_from_before_the_start_of_the_copy_is_of_no_use(tmp_path: Path) -> None:
    """The leader has the start of the queue still, and the host that joins has not."""
    async with two_members(tmp_path) as (hosts, first, second):
        written = fill(first.path, "FAST_DAILY", {0: 5, 1: 3})
        saved(first.path, written[:2])
        await hosts.start(1, 2)
        await hosts.follow(1)
        await hosts.kill(2)
        with Queue.open(second.path) as queue:
            assert len(remove(queue.cycles, Policy())) == 1
        await hosts.start(2)
        await hosts.meet()
        async with second.running() as feed:
            first.snapshots.groups["a"] = GroupState(
                path=first.path, folder=first.path / "snapshots", save=trio.lowlevel.checkpoint
            )
            with pytest.raises(CannotJoin, match=r"what one gave is of .* the copy begins behind"):
                await feed.reached(written[-1][0])
        assert second.ledger.held == []
