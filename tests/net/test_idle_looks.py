"""A host lists and reads nothing of a queue at rest where nothing has changed."""

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk import diskend, syncer
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.surroundings import Surroundings, within
from tests.support.replicas import acked, eventually, joined
from tests.support.samples import fill, noon_index, noon_path, read

COUNTS = {0: 30, 1: 40, 2: 4}


class Watched:
    """A queue, as a source watches it, but only when it is told to."""

    def __init__(self, queue: Queue, of: Syncer | None = None) -> None:
        self.damages: list[QueueDamaged] = []
        self.queue = queue
        self.disk: DiskEnd = (of or Syncer()).watch(
            "q",
            queue,
            queue.next_index,
            Chains(queue.cycles),
            self.damages.append,
            queue.check_name,
            is_proved=True,
        )

    def is_due(self) -> bool:
        """True when a look is due."""
        return self.disk.has_to_look

    async def rest(self) -> None:
        """Looks until there is no need to."""
        with trio.fail_after(60):
            while self.disk.has_to_look or self.disk.is_dirty:
                if self.disk.is_dirty:
                    await self.disk.sync()
                await self.disk.look()


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    fill(tmp_path / "q", "FAST_DAILY", COUNTS)
    with Queue.open(tmp_path / "q") as queue:
        yield Watched(queue)


async def test_a_queue_at_rest_is_not_looked_at(watched: Watched) -> None:
    assert watched.is_due()
    await watched.rest()
    noted = watched.queue.cycles.closed.load().values()
    assert [bool(record.sha256) for record in noted] == [True, True]
    assert not watched.is_due()
    assert not watched.disk.has_to_audit


@pytest.mark.parametrize("how", ["gone", "another one", "moved"])
async def test_a_name_that_has_changed_is_looked_at(
    watched: Watched, tmp_path: Path, how: str
) -> None:
    await watched.rest()
    file = noon_path(watched.queue.path, ahead=1)
    if how == "gone":
        file.unlink()
    elif how == "another one":
        (tmp_path / "other").write_bytes(file.read_bytes()[:-1])
        (tmp_path / "other").replace(file)
    else:
        file.rename(file.with_suffix(".aside"))
    assert watched.is_due()
    await watched.disk.look()
    if how != "another one":
        assert watched.damages
        assert watched.is_due(), "until it is mended"


async def test_a_look_that_ends_early_is_told_and_tried_again(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue is watched, whatever stood in the way of the look."""
    (watched.queue.path / CLOSED_FILE_NAME).mkdir()
    for _ in range(2):
        await watched.disk.look()
        assert watched.is_due()
    told = [record.getMessage() for record in caplog.records]
    assert ["not looked at to the end, which is tried again" in each for each in told] == [True]


async def test_what_is_written_into_a_file_has_its_turn(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watched.rest()
    os.truncate(noon_path(watched.queue.path, ahead=1), 0)
    assert not watched.is_due()
    monkeypatch.setattr(diskend, "FULL_LOOK_SECONDS", 0.0)
    assert watched.is_due()
    await watched.disk.look()
    assert "found a file without a header" in watched.damages[0].reason


@pytest.mark.parametrize(
    ("ago_ns", "whole_seconds", "is_trusted"),
    [
        (diskend.TICK_NS - 1, False, False),
        (diskend.TICK_NS, False, True),
        (-1, False, False),
        (diskend.LONG_TICK_NS - 1, True, False),
        (diskend.LONG_TICK_NS, True, True),
    ],
)
async def test_a_directory_that_has_just_changed_is_looked_at_again(
    watched: Watched, *, ago_ns: int, whole_seconds: bool, is_trusted: bool
) -> None:
    """It may change once more, and have the same time of change."""
    await watched.rest()
    path, changed_ns = watched.queue.path, 1_700_000_000_000_000_000 + (not whole_seconds)

    class Clock(Surroundings):
        def wall_ns(self) -> int:
            return changed_ns + ago_ns

    os.utime(path, ns=(changed_ns, changed_ns))
    with within(Clock()):
        await watched.disk.look()
        noon_path(path, ahead=1).unlink()
        os.utime(path, ns=(changed_ns, changed_ns))
        assert watched.is_due() is not is_trusted
        if not is_trusted:
            await watched.disk.look()
            assert watched.damages


async def test_that_more_of_it_is_on_the_disk_has_its_turn(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stream that goes on, it is not written down every few seconds how far it was read."""
    await watched.rest()
    with Queue.open_for_append(watched.queue.path) as queue:
        queue.appender().append_at(ExcerptBatch.of(noon_index(ahead=2, sequence=4), [b"more"]))
    watched.disk.note()
    await watched.disk.sync()
    assert not watched.is_due()
    monkeypatch.setattr(diskend, "SAVE_SECONDS", 0.0)
    assert watched.is_due()
    await watched.disk.look()
    assert not watched.disk.has_news_to_look_at


async def test_a_directory_that_is_gone_is_looked_at(watched: Watched, tmp_path: Path) -> None:
    await watched.rest()
    watched.queue.path.rename(tmp_path / "elsewhere")
    assert watched.is_due()


async def test_one_that_is_opened_while_all_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads open queues, and so between two of them at any moment."""
    with ExitStack() as stack:
        queues = []
        for name in ("first", "second", "third"):
            fill(tmp_path / name, "FAST_DAILY", COUNTS)
            queues.append(stack.enter_context(Queue.open(tmp_path / name)))
        late, host = queues.pop(), Syncer()
        opened = [Watched(queue, host) for queue in queues]

        def is_urgent(end: DiskEnd) -> bool:
            if len(opened) == 2:
                opened.append(Watched(late, host))
            return False

        monkeypatch.setattr(DiskEnd, "is_urgent", property(is_urgent))
        async with host.running():
            opened[0].disk.note()
            await eventually(lambda: len(opened) == 3 and not opened[0].disk.is_dirty)
            opened[2].disk.note()
            await eventually(lambda: not opened[2].disk.is_dirty)


async def test_a_running_pair_mends_what_is_written_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(diskend, "FULL_LOOK_SECONDS", 1.0)
    written = fill(tmp_path / "q", "FAST_DAILY", COUNTS)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, written[-1][0])
        disk = source.queues["q"].disk
        assert isinstance(disk, DiskEnd)
        await eventually(lambda: not disk.has_to_look)
        file = noon_path(tmp_path / "q", ahead=1)
        os.truncate(file, 0)
        aside = tmp_path / "q" / "quarantine"
        await eventually(lambda: any(aside.glob(f"*/{file.name}")) and file.exists())
    assert read(tmp_path / "q") == written
