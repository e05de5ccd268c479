"""Runs with storages on the queue of hosts that elect, and their check."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from cqrepl.cluster.snapshots import Snapshots
from cqrepl.persist.errors import PersistError
from cqrepl.persist.storage.records import INDEX_FIRST, Op, StorageRecord, decode_record
from cqrepl.persist.storage.storageservice import StorageService
from cqrepl.queue import QueueError
from cqrepl.surroundings import Surroundings, within
from cqrepl.testing.experiment import Check, Scene
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import RunPlan
from tests.laboratory.storageprograms import (
    FIRST_BOOT,
    SETTINGS,
    Done,
    Records,
    Writes,
    Writing,
    is_record,
    lose_end,
)

FAULTS = {"lose-end": lose_end}


@dataclass
class Told:
    """A storage as the records of a log tell it, by rules that are written once more here: which
    item has a number, which are there, and in which order the records had an effect."""

    gen: int = 0
    first: int = INDEX_FIRST
    next: int = INDEX_FIRST
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

    @property
    def live(self) -> list[bytes]:
        """The items that are there."""
        return [self.items[self.gen, index] for index in range(self.first, self.next)]


def told_of(scene: Scene, host: int) -> dict[int, Told]:
    """All storages, as the copy of a host tells them."""
    told: dict[int, Told] = defaultdict(Told)
    for index, data in sorted(scene.content(host, QUEUE).items()):
        if is_record(data):
            record = decode_record(data)
            told[record.id].take(index, record)
    return told


def findings(writes: Writes, scene: Scene) -> Iterator[str]:
    """The state of each host against its log; the acknowledged writes against the log of each host
    that does not say why its copy differs; and what hosts were told to have applied."""
    yield from writes.early
    equal = scene.equal_hosts(QUEUE)
    for host in scene.hosts:
        told = told_of(scene, host)
        if host in equal:
            yield from lacking(host, told, writes)
        yield from held(scene, host, told)


def lacking(host: int, told: dict[int, Told], writes: Writes) -> Iterator[str]:
    places: dict[int, list[tuple[int, Done]]] = defaultdict(list)
    for done in writes.done:
        record = done.record
        storage = told[record.id]
        at = storage.order.get((record.op.value, record.gen, record.index))
        if at is None:
            yield f"host {host} lacks what was acknowledged: {record}"
        elif record.item is not None and storage.items[record.gen, record.index] != record.item:
            yield f"host {host}: another item has the number of {record}"
        else:
            places[record.id].append((at, done))
    for placed in places.values():
        yield from out_of_order(host, placed)


def out_of_order(host: int, placed: list[tuple[int, Done]]) -> Iterator[str]:
    """Of two writes, of which one had returned before the other began, the first comes first."""
    latest: Done | None = None  # that began last, of those before in the log
    for _, done in sorted(placed, key=lambda each: each[0]):
        if latest is not None and done.ended < latest.began:
            yield f"host {host}: {done.record} stands behind {latest.record}, which began later"
        if latest is None or done.began > latest.began:
            latest = done


def held(scene: Scene, host: int, told: dict[int, Told]) -> Iterator[str]:
    """The state of a host that runs, and the items that it reads, against what its copy tells."""
    process = scene.hosts[host].process
    for program in scene.hosts[host].programs:
        if not isinstance(program, Writing) or not program.service.led.has_begun:
            continue
        service = program.service
        if service.led.fault is not None:
            yield f"host {host}: its storages have ended: {service.led.fault}"
            continue
        if damaged := [each.name for each in service.heads() if each.damage]:
            yield f"host {host}: damaged storages: {damaged}"
            continue
        have = {each.id: (each.gen, each.first, each.next) for each in service.heads()}
        if have != {id_: (each.gen, each.first, each.next) for id_, each in told.items()}:
            yield f"host {host}: its storages are not what its copy makes"
        elif process is not None:
            with within(process):
                yield from misread(host, service, told)


def misread(host: int, service: StorageService, told: dict[int, Told]) -> Iterator[str]:
    for id_, each in told.items():
        found: list[bytes] = []
        with suppress(PersistError, QueueError, OSError):
            found = service.read_here(id_, each.first, each.next - 1) if each.live else []
        if found != each.live:
            yield f"host {host}: expected the items {each.live} of {id_:#x}, got {found}"


def storage_run(
    seed: int,
    seconds: float = 40.0,
    make: type[Records] = Records,
    hosts: int | None = 3,
) -> tuple[Outcome, Writes]:
    """A run of hosts that elect, with storages on their queue."""
    plan = RunPlan.elected(seed, seconds, hosts, LEFT_OUT, groups=1)
    return run_with_storages(plan.with_parts(0, FAULTS), make)


def run_with_storages(
    plan: RunPlan, make: type[Records] = Records, checks: Iterable[Check] = ()
) -> tuple[Outcome, Writes]:
    """A run of such a plan, with further checks."""
    writes = Writes()
    snapshots: dict[Surroundings, Snapshots] = {}

    def states(host: int, machine: Surroundings) -> Snapshots:
        others = frozenset(range(1, plan.hosts + 1)) - {host}
        snapshots[machine] = Snapshots(others)
        return snapshots[machine]

    def program(host: int, machine: Surroundings) -> Writing:
        draw = b"%d %d " % (plan.seed, host) + machine.random_bytes(8)
        service = make(SETTINGS)
        service.writes, service.host = writes, host
        writes.starts[host] += 1
        waits = not machine.boot_id().startswith(FIRST_BOOT)
        asks = writes.starts[host] > 1 and host < plan.hosts  # the last one is never damaged
        return Writing(service, writes, snapshots[machine], draw, waits=waits, asks=asks)

    def storages(scene: Scene) -> Iterator[str]:
        return findings(writes, scene)

    outcome = run(
        plan,
        programs=[states, program],
        workload=writes.wait,
        checks=[storages, *checks],
        faults=FAULTS,
        writes=True,
        applies=True,
    )
    return outcome, writes
