"""The state of a service is saved, given back, and lets store files go behind it."""

from pathlib import Path

import pytest
import trio

from cqrepl import FollowFeed, Index, LogPos, Queue
from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings, Keeping
from cqrepl.queue.files.checkpointfile import checkpoints_in
from cqrepl.queue.files.epochfile import store_epochs
from cqrepl.queue.format.epochs import Epoch, Epochs
from cqrepl.queue.quarantine import quarantine
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.replicator.followfeed import CannotJoin
from tests.support.ledgers import Ledger, Place, fed
from tests.support.replicas import eventually, more_excerpts
from tests.support.samples import NOON_MS, fill, noon_index, noon_path, read

EACH_RECORD = CheckpointSettings(records=1, age_min_ms=None)


def names(path: Path) -> list[int]:
    return [each.pos.index for each in checkpoints_in(path / "snapshots")]


async def named(path: Path, index: int) -> None:
    """Waits for the checkpoint at an index."""
    await eventually(lambda: index in names(path))


def checkpointer(path: Path, settings: CheckpointSettings = EACH_RECORD) -> Checkpointer:
    return Checkpointer("a", path, settings)


def safe(path: Path, index: int) -> Place:
    place = Place(path)
    place.committed = index
    return place


async def test_a_checkpoint_has_its_name_once_all_of_it_is_safe(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5})
    place = safe(path, noon_index(sequence=3))
    async with fed(path, checkpointer(path), place) as (feed, _, _place):
        await feed.reached(noon_index(sequence=4))
        await eventually(lambda: len(list((path / "snapshots").iterdir())) == 1)
        assert names(path) == []
        place.committed = noon_index(sequence=4)
        feed.wake()
        await eventually(lambda: names(path) == [noon_index(sequence=5)])


async def test_a_service_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    async with fed(path, checkpointer(path), safe(path, written[-1][0])):
        await eventually(lambda: len(names(path)) == 1)
    ledger = Ledger()
    feed = FollowFeed(Place(path), ledger, checkpointer(path))
    with trio.fail_after(60):
        async with feed.running():
            await feed.caught_up(written[-1][0])
            assert ledger.committed == []  # nothing was applied again
            assert ledger.held == written
            later = more_excerpts(path, 5, 3)
            await feed.reached(later[-1][0])
            assert ledger.held == read(path)


async def test_two_are_kept_and_one_that_is_damaged_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 1})
    async with fed(path, checkpointer(path), safe(path, 1 << 62)) as (feed, _, _place):
        for count in range(1, 6):
            await named(path, noon_index(sequence=count))
            more_excerpts(path, count, 1)
        await named(path, noon_index(sequence=6))
    assert names(path) == [noon_index(sequence=6), noon_index(sequence=5)]
    newest, _ = checkpoints_in(path / "snapshots")
    data = newest.path.read_bytes()
    newest.path.write_bytes(data[:-40] + b"?" + data[-39:])
    async with fed(path, checkpointer(path)) as (feed, ledger, _place):
        await feed.caught_up(noon_index(sequence=5))
        assert len(ledger.committed) == 1  # the one behind the older checkpoint
        assert ledger.held == read(path)
    assert newest.path.with_name(newest.path.name + ".bad").exists()


@pytest.mark.parametrize("cut", [1, 2, 4])
async def test_state_goes_back_to_a_checkpoint_not_above_the_cut(tmp_path: Path, cut: int) -> None:
    """Those above it are put aside, also one that has no name yet."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 1})
    place = safe(path, noon_index(sequence=2))
    async with fed(path, checkpointer(path), place) as (feed, ledger, _place):
        for count in range(1, 5):
            await feed.reached(noon_index(sequence=count - 1))
            if count < 4:
                await named(path, noon_index(sequence=count))
            more_excerpts(path, count, 1)
        await feed.reached(noon_index(sequence=4))
        assert names(path) == [noon_index(sequence=3), noon_index(sequence=2)]
        quarantine(path, noon_index(sequence=cut))
        with Queue.open(path) as queue:
            index = queue.append(b"of the new leader", now_ms=NOON_MS)
        await feed.caught_up(index)
        assert ledger.held == read(path)
        assert feed.rewinds == 1
        bad = {each.name for each in (path / "snapshots").glob("*.bad")}
        above = (noon_index(sequence=each) for each in (2, 3) if each > cut)
        assert bad == {f"0_{each:x}.cqsnap.bad" for each in above}


async def test_a_checkpoint_of_another_history_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 5})
    async with fed(path, checkpointer(path), safe(path, written[-1][0])):
        await eventually(lambda: len(names(path)) == 1)
    begun = (Epoch(1, 1, Index(noon_index(sequence=2))),)
    store_epochs(path, Epochs(promised=1, promised_to=1, history=begun))
    async with fed(path, checkpointer(path)) as (feed, ledger, _place):
        await feed.caught_up(written[-1][0])
        assert names(path) == []
        assert len(ledger.committed) == 1
        assert ledger.held == written
        await feed.save()
        assert feed.position == LogPos(1, Index(noon_index(sequence=5)))


async def test_a_host_that_lacks_every_way_cannot_join(tmp_path: Path) -> None:
    """No checkpoint, the start of the queue removed, and no host that gives a snapshot."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 2})
    with Queue.open(path) as queue:
        assert len(remove(queue.cycles, Policy())) == 1
    feed = FollowFeed(Place(path), Ledger(), checkpointer(path))
    async with feed.running():
        with trio.fail_after(60), pytest.raises(CannotJoin) as error:
            await feed.reached(noon_index(ahead=1))
    text = str(error.value)
    assert "no checkpoint of its own" in text
    assert "its copy begins at" in text
    assert "no host that is connected gives a snapshot" in text


async def test_store_files_go_behind_the_older_checkpoint_and_the_members(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 3, 1: 3, 2: 3, 3: 3})
    settings = CheckpointSettings(records=1, age_min_ms=0)
    keeping = Keeping(members=frozenset())
    saver = Checkpointer("a", path, settings, keeping=lambda: keeping)
    async with fed(path, saver, safe(path, 1 << 62)) as (feed, _, _place):
        await eventually(lambda: len(names(path)) == 1)
        assert noon_path(path).exists()  # there is no older one yet
        with Queue.open(path) as queue:
            index = queue.append(b"more", now_ms=NOON_MS + 3 * 86_400_000)
        await feed.reached(index)
        await eventually(lambda: len(names(path)) == 2)
        await eventually(lambda: not noon_path(path, ahead=2).exists())
        assert noon_path(path, ahead=3).exists()
        assert not noon_path(path).exists()
