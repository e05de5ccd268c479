"""A queue whose disk is slow holds up no other: neither those that are waited for, nor the rest."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cqrepl.kernel.board import AckLevel
from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.syncedmark import load_synced
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.disk import storedthread, syncedfiles, syncer
from cqrepl.replicator.disk.syncer import Syncer
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.disks import SlowDisk
from tests.support.replicas import BEATS, LOOPBACK, SECONDS, at, eventually, more_excerpts
from tests.support.samples import fill, noon_index


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    """The syncs of the queue "slow" end when the disk goes on."""
    disk = SlowDisk("/slow/", is_slow=False)
    monkeypatch.setattr(syncedfiles, "surroundings", lambda: disk)
    monkeypatch.setattr(syncer, "SYNC_SECONDS", 0.05)
    yield disk
    disk.is_slow = False
    disk.goes_on.set()


@pytest.mark.usefixtures("has_pump")
async def test_it_holds_up_no_other(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of all that a thread of ours syncs, the event loop has the next
    monkeypatch.setattr(storedthread, "SLOW_SECONDS", -1.0)
    names = ("slow", "waited", "other")
    queues, copies = ({name: tmp_path / side / name for name in names} for side in ("q", "c"))
    for path in queues.values():
        fill(path, "FAST_DAILY", {0: 3})
    async with serve_source(queues, listen=LOOPBACK, **BEATS) as source:
        async with serve_sink(copies, connect=at(source.port), **BEATS):

            async def synced(name: str, sequence: int) -> None:
                index = noon_index(sequence=sequence)
                wait = partial(
                    source.board(name).wait, index, 1, SECONDS / 3, level=AckLevel.SYNCED
                )
                await trio.to_thread.run_sync(wait)

            for nth in (3, 4):
                for name in ("slow", "waited"):
                    more_excerpts(queues[name], nth, 1)
                    await synced(name, nth)
            disk.is_slow = True
            more_excerpts(queues["slow"], 5, 1)
            await eventually(disk.begun.is_set)
            more_excerpts(queues["slow"], 6, 1)
            for nth in range(5, 10):
                more_excerpts(queues["waited"], nth, 1)
                await synced("waited", nth)
                more_excerpts(queues["other"], nth - 2, 1)
                await eventually(partial(is_marked, copies["other"], nth - 2))
            mark = load_synced(copies["slow"])
            assert mark is not None
            assert mark.end == noon_index(sequence=5), "it still is"
            disk.goes_on.set()
            await synced("slow", 6)


def is_marked(path: Path, sequence: int) -> bool:
    mark = load_synced(path)
    return mark is not None and mark.end > noon_index(sequence=sequence)


async def test_one_that_is_closed_meanwhile_is_not_tried_for_ever(
    tmp_path: Path, disk: SlowDisk
) -> None:
    """A thread that was at work has the event loop told only then that there is more to sync."""
    fill(tmp_path / "slow", "FAST_DAILY", {0: 3})
    watch = Syncer()
    with Queue.open(tmp_path / "slow") as queue:
        end = watch.watch(
            "slow", queue, queue.next_index, Chains(queue.cycles), fail, queue.check_name,
            is_proved=True,
        )  # fmt: skip
        async with watch.running():
            disk.is_slow = True
            end.sync_at_once()
            end.note()
            await eventually(disk.begun.is_set)
            watch.forget(queue)
            end.note()
            disk.is_slow = False
            disk.goes_on.set()
            with trio.fail_after(SECONDS):
                await wait_all_tasks_blocked()
            assert not end.is_dirty


def fail(error: QueueDamaged) -> None:
    raise error
