"""Storages on the hosts of a run, written to by each host that leads, and their check."""

import io
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import trio

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.host import Host
from cqrepl.net.threads import in_thread
from cqrepl.persist.errors import NotLeader, PersistError
from cqrepl.persist.persistdesk import PersistDesk
from cqrepl.persist.storage.records import (
    Op,
    StorageKind,
    StorageRecord,
    correlation_id,
    decode_record,
)
from cqrepl.persist.storage.storagenumbers import Numberer
from cqrepl.persist.storage.storageservice import StorageService, StorageSettings
from cqrepl.persist.storage.storagetable import StorageTable
from cqrepl.queue import ExcerptBatch, QueueError
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.surroundings import Surroundings
from cqrepl.testing.experiment import Check, Scene
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import RunPlan
from cqrepl.testing.site import Site
from wire import WireError

SETTINGS = StorageSettings(group=QUEUE, compact_seconds=5.0, age_min_ms=0)
SAVES = CheckpointSettings(interval_seconds=3.0, age_min_ms=None)
FIRST_BOOT = b"1 "
WAIT_SECONDS = 5.0
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
    """All of a run that were acknowledged."""

    done: list[Done] = field(default_factory=list)
    events: int = 0
    count: int = 0
    is_over: bool = False

    async def wait(self, site: Site) -> None:
        """The workload: nothing more is written once all is quiet."""
        await site.quiet.wait()
        self.is_over = True

    def next(self) -> int:
        self.events += 1
        return self.events


class Records(StorageService):
    """Storages whose log the application of the laboratory writes to, too."""

    writes: Writes

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        for index, data in batch:
            if is_record(data):
                super().apply(ExcerptBatch.of(index, [data]), committed)
        with self.guard:
            self.position = batch.index_last + 1

    def live_below(self, ref: int) -> list[tuple[int, int, int, int]]:
        return [] if self.writes.is_over else super().live_below(ref)


class Writing(PersistDesk):
    """The program of one start of a host, which writes while it leads. After a power cut the first
    append to a queue waits for a source to compare it; here nothing else runs meanwhile, so the
    storages wait before."""

    def __init__(
        self, service: StorageService, writes: Writes, seed: bytes, *, waits: bool
    ) -> None:
        super().__init__([service])
        self.service = service
        self._writes = writes
        self._rng = random.Random(seed)
        self._waits = waits

    async def run(self, host: Host) -> None:
        def saver(service: StorageService) -> Checkpointer:
            return Checkpointer(QUEUE, host.queue(QUEUE).path, SAVES)

        if self._waits:
            await trio.sleep(WAIT_FOR_SECONDS)
        async with self.running(host, saver), trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(self._write)

    async def _write(self) -> None:
        while True:
            await trio.sleep(self._rng.expovariate(2.0))
            if self.service.leads() and not self._writes.is_over:
                with suppress(NotLeader, PersistError, QueueError, OSError):
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

    def _made(self, name: str, item: bytes) -> "partial[StorageRecord | None]":
        chance = self._rng.random()
        if STORAGES[name] is StorageKind.QUEUE and chance < 0.3:
            return partial(removed, correlation_id(name), self._rng.randint(1, 3))
        if STORAGES[name] is StorageKind.SEQUENCE and chance < 0.05:
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


@dataclass
class Told:
    """A storage as the records of a log tell it, by rules that are written once more here: which
    item has a number, and in which order the records had an effect."""

    gen: int = 0
    first: int = 1
    next: int = 1
    items: dict[tuple[int, int], bytes] = field(default_factory=dict)
    order: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def take(self, at: int, record: StorageRecord) -> None:
        key = (record.op.value, record.gen, record.index)
        if record.op is Op.RESET and record.gen == self.gen + 1:
            self.gen, self.first, self.next = record.gen, record.index, record.index
        elif record.op in (Op.ADD, Op.APPEND) and (record.gen, record.index) == (
            self.gen,
            self.next,
        ):
            assert record.item is not None
            self.items[record.gen, record.index] = record.item
            self.next += 1
        elif record.op is Op.REMOVE and self.first <= record.index < self.next:
            self.first = record.index + 1
        else:
            return
        self.order[key] = at


def findings(writes: Writes, scene: Scene) -> Iterator[str]:
    """The state of each host against its log; and the acknowledged writes against the log of each
    host that does not say why its copy differs."""
    equal = scene.equal_hosts(QUEUE)
    for host in scene.hosts:
        content = {
            at: decode_record(data)
            for at, data in sorted(scene.content(host, QUEUE).items())
            if is_record(data)
        }
        told: dict[int, Told] = defaultdict(Told)
        for index, each in content.items():
            told[each.id].take(index, each)
        places: dict[int, list[tuple[int, Done]]] = defaultdict(list)
        for done in writes.done if host in equal else ():
            record = done.record
            storage = told[record.id]
            at = storage.order.get((record.op.value, record.gen, record.index))
            if at is None:
                yield f"host {host} lacks what was acknowledged: {record}"
            elif record.item is not None and (
                storage.items[record.gen, record.index] != record.item
            ):
                yield f"host {host}: another item has the number of {record}"
            else:
                places[record.id].append((at, done))
        for placed in places.values():
            yield from out_of_order(host, placed)
        yield from held(scene, host, content)


def out_of_order(host: int, placed: list[tuple[int, Done]]) -> Iterator[str]:
    """Of two writes, of which one had returned before the other began, the first comes first."""
    latest: Done | None = None  # that began last, of those before in the log
    for _, done in sorted(placed, key=lambda each: each[0]):
        if latest is not None and done.ended < latest.began:
            yield f"host {host}: {done.record} stands behind {latest.record}, which began later"
        if latest is None or done.began > latest.began:
            latest = done


def held(scene: Scene, host: int, content: dict[int, StorageRecord]) -> Iterator[str]:
    for program in scene.hosts[host].programs:
        if not isinstance(program, Writing) or not program.service.led.has_begun:
            continue
        service = program.service
        if service.led.fault is not None:
            yield f"host {host}: its storages have ended: {service.led.fault}"
            continue
        table = StorageTable()
        for at, record in content.items():
            table.apply(at, record)
        if state(service.table) != state(table):
            yield f"host {host}: its storages are not what its copy makes"
        if damaged := [each.name for each in service.heads() if each.damage]:
            yield f"host {host}: damaged storages: {damaged}"


def state(table: StorageTable) -> bytes:
    out = io.BytesIO()
    table.snapshot(out)
    return out.getvalue()


def storage_run(
    seed: int,
    seconds: float = 40.0,
    make: type[Records] = Records,
    hosts: int | None = 3,
) -> tuple[Outcome, Writes]:
    """A run of hosts that elect, with storages on their queue."""
    return run_with_storages(RunPlan.elected(seed, seconds, hosts, LEFT_OUT, groups=1), make)


def run_with_storages(
    plan: RunPlan, make: type[Records] = Records, checks: Iterable[Check] = ()
) -> tuple[Outcome, Writes]:
    """A run of such a plan, with further checks."""
    writes = Writes()

    def program(host: int, machine: Surroundings) -> Writing:
        boot = machine.boot_id()
        draw = b"%d %d " % (plan.seed, host) + machine.random_bytes(8)
        service = make(SETTINGS)
        service.writes = writes
        return Writing(service, writes, draw, waits=not boot.startswith(FIRST_BOOT))

    def storages(scene: Scene) -> Iterator[str]:
        return findings(writes, scene)

    outcome = run(
        plan,
        programs=[program],
        workload=writes.wait,
        checks=[storages, *checks],
        writes=True,
    )
    return outcome, writes
