"""Storages on the hosts of a run, and the program that writes to them where it leads.

At times a storage loses its end in the state of a host, and a host that starts asks others for its
state: so hosts tell each other of storages all the while.
"""

import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import BinaryIO

import trio

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.cluster.snapshots import GroupState, Snapshots
from cqrepl.host import Host
from cqrepl.kernel.interface import AckLevel
from cqrepl.net.threads import in_thread
from cqrepl.persist.errors import NotLeader, PersistError
from cqrepl.persist.persistdesk import PersistDesk, SyncJoining
from cqrepl.persist.storage.records import (
    StorageKind,
    StorageRecord,
    correlation_id,
    decode_record,
)
from cqrepl.persist.storage.storagecore import WrittenRecord
from cqrepl.persist.storage.storagenumbers import Numberer
from cqrepl.persist.storage.storageservice import StorageService, StorageSettings
from cqrepl.queue import ExcerptBatch, QueueError
from cqrepl.queue.format.logpos import LogPos
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.replicator.followfeed import CannotJoin, JoinBy
from cqrepl.replicator.leadership import AckOutcome, AckUnknown
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.testing.experiment import Scene
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.plan import Fault
from cqrepl.testing.site import Site
from wire import WireError

SETTINGS = StorageSettings(group=QUEUE, compact_seconds=5.0, age_min_ms=0)
SAVES = CheckpointSettings(interval_seconds=3.0, age_min_ms=None)
FIRST_BOOT = b"1 "
WAIT_SECONDS = 5.0
LOOK_SECONDS = 0.5
SHARE_ASKING = 0.3  # of the starts of a host, but for the first: it asks others for its state
STORAGES = {
    "out": StorageKind.SEQUENCE,
    "in": StorageKind.SEQUENCE,
    "orders": StorageKind.QUEUE,
}


@dataclass(eq=False)
class Done:
    """A record whose write has returned acknowledged; both are places in the order of the run."""

    record: StorageRecord
    began: int
    ended: int


@dataclass
class Writes:
    """All of a run that were acknowledged.

    Attributes:
        applied: the hosts whose storages have taken a record, by its excerpt and the record.
        restored: the index up to which a host has taken states that were saved.
        early: what was told as applied by hosts that had not applied it.
    """

    done: list[Done] = field(default_factory=list)
    events: int = 0
    count: int = 0
    is_over: bool = False
    applied: dict[tuple[int, StorageRecord], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    restored: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    early: list[str] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    damaged: int = 0
    asked: int = 0

    async def wait(self, site: Site) -> None:
        """The workload: nothing more is written once all is quiet."""
        await site.quiet.wait()
        self.is_over = True

    def next(self) -> int:
        self.events += 1
        return self.events

    def have_applied(self, written: WrittenRecord) -> set[int]:
        """The hosts that have, as of now."""
        restored = {host for host, below in self.restored.items() if written.ref < below}
        key = written.ref, replace(written.record, item=None)
        return restored | self.applied.get(key, set())


class Records(StorageService):
    """Storages whose log the application of the laboratory writes to, too."""

    writes: Writes
    host: int

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        for index, data in batch:
            if is_record(data):
                super().apply(ExcerptBatch.of(index, [data]), committed)
                record = decode_record(data, with_item=False)
                self.writes.applied[index, record].add(self.host)
        with self.guard:
            self.position = batch.index_last + 1

    def restore(self, source: BinaryIO, at: LogPos) -> None:
        super().restore(source, at)
        self.writes.restored[self.host] = max(self.writes.restored[self.host], at.index)

    def live_below(self, ref: int) -> list[tuple[int, int, int, int]]:
        return [] if self.writes.is_over else super().live_below(ref)

    def lose_end(self, id_: int, count: int) -> None:
        """The last items of a storage are lost to its state, which is found."""
        with self.guard:
            storage = self.table.storages.get(id_)
            if self.writes.is_over or storage is None or storage.damage:
                return
            kept = max(len(storage) - count, 0)
            lost = storage.refs(storage.first + kept, storage.next - 1)
            since = min(lost, default=self.position)
            del storage._refs[storage._gone + kept :]
            self.table.damage(storage, "its end is lost", since)
            self.writes.damaged += 1


async def lose_end(scene: Scene, fault: Fault) -> None:
    """A fault of a state: a storage of a host has lost its end there. The last host loses none: it
    can tell the others."""
    if fault.host == len(scene.hosts):
        return
    name = sorted(STORAGES)[int(fault.at * 1000) % len(STORAGES)]
    for program in scene.hosts[fault.host].programs:
        if isinstance(program, Writing) and program.service.led.has_begun:
            program.service.lose_end(correlation_id(name), fault.nth)


class Writing(PersistDesk):
    """The program of one start of a host, which writes while it leads. After a power cut the first
    append to a queue waits for a source to compare it; here nothing else runs meanwhile, so the
    storages wait before.

    Args:
        waits: there was a power cut.
        asks: for its first state the host asks others.
    """

    def __init__(
        self,
        service: Records,
        writes: Writes,
        snapshots: Snapshots,
        seed: bytes,
        *,
        waits: bool,
        asks: bool,
    ) -> None:
        super().__init__([service])
        self.service = service
        self._writes = writes
        self._snapshots = snapshots
        self._rng = random.Random(seed)
        self._waits = waits
        self._asks = asks and self._rng.random() < SHARE_ASKING

    async def run(self, host: Host) -> None:
        path, service = host.queue(QUEUE).path, self.service
        saver = Checkpointer(QUEUE, path, SAVES, SyncJoining(self, self._snapshots))

        async def save() -> None:
            await service.led.feed.save()

        self._snapshots.groups[QUEUE] = GroupState(path=path, folder=saver.folder, save=save)
        if self._waits:
            await trio.sleep(WAIT_FOR_SECONDS)
        asks = self._asks and not self._writes.is_over
        self._writes.asked += asks
        join = JoinBy.SNAPSHOT if asks else JoinBy.AUTO
        async with self.running(host, lambda _: saver, join), trio.open_nursery() as nursery:
            nursery.start_soon(self._end_without_state)
            for _ in range(2):
                nursery.start_soon(self._write)

    async def _end_without_state(self) -> None:
        """Ends the host where no other one gives it a state: it is started again."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            if isinstance(self.service.led.fault, CannotJoin):
                raise self.service.led.fault

    async def _write(self) -> None:
        while True:
            await trio.sleep(self._rng.expovariate(2.0))
            if self.service.leads() and not self._writes.is_over:
                with suppress(NotLeader, PersistError, QueueError, OSError, WaitEnded, AckUnknown):
                    await self._write_one(self._rng.choice(sorted(STORAGES)))

    async def _write_one(self, name: str) -> None:
        service, kind, writes = self.service, STORAGES[name], self._writes
        created = await in_thread(partial(service.write, lambda n: n.create(kind, name)))
        if created is not None:
            return
        writes.count += 1
        make = self._made(name, b"%s %d" % (name.encode(), writes.count))
        began = writes.next()
        written = await in_thread(partial(service.write, make))
        if written is not None and await service.settle_task(written, name, WAIT_SECONDS):
            writes.done.append(Done(written.record, began, writes.next()))
            await self._wait_applied(written)

    async def _wait_applied(self, written: WrittenRecord) -> None:
        """The hosts that are told to have applied a record have, by then."""
        leading = written.leading
        assert leading is not None
        assert leading.given is not None
        policy = replace(leading.given, level=AckLevel.APPLIED)
        if await leading.wait_acked(written.ref, policy) is AckOutcome.ACKED:
            told = {
                host
                for host, marks in leading.marks().items()
                if marks.get(AckLevel.APPLIED, -1) >= written.ref
            }
            early = told - self._writes.have_applied(written)
            self._writes.early += [
                f"host {host} was told to have applied before it had: {written.record}"
                for host in sorted(early)
            ]

    def _made(self, name: str, item: bytes) -> "partial[StorageRecord | None]":
        chance = self._rng.random()
        if STORAGES[name] is StorageKind.QUEUE and chance < 0.3:
            return partial(removed, correlation_id(name), self._rng.randint(1, 3))
        if STORAGES[name] is StorageKind.SEQUENCE and chance < 0.1:
            return partial(reset, correlation_id(name), self.service.now())
        return partial(appended, correlation_id(name), item)


def appended(id_: int, item: bytes, numberer: Numberer) -> StorageRecord | None:
    return numberer.append(id_, item)


def reset(id_: int, now: int, numberer: Numberer) -> StorageRecord | None:
    return numberer.reset(id_, 1, now)


def removed(id_: int, count: int, numberer: Numberer) -> StorageRecord | None:
    head = numberer.head(id_)
    assert head is not None
    last = min(head.first + count, head.next) - 1
    return numberer.remove(id_, last) if last >= head.first else None


def is_record(data: bytes | memoryview) -> bool:
    with suppress(WireError):
        decode_record(data, with_item=False)
        return True
    return False
