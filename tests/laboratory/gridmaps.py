"""A grid on the hosts of a run, clients that put and read, and the checks of both.

The history has one key, the partition, whose state is all of its entries: so a transaction over
several keys is one operation. A read with a token is held against it by the index of what it gives.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import trio

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.grid.errors import Conflict, GridError, LockTimeout, OutcomeUnknown
from cqrepl.grid.gridclient import GridClient
from cqrepl.grid.griddesk import GridDesk
from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.gridsettings import GridSettings, MapSettings, Reads, ReplicaSettings
from cqrepl.grid.loaders import LoaderDesk
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.gridwords import ABSENT, Change, MapOp, Read, decode_words
from cqrepl.grid.partition.partitiongroup import PartitionGroup
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token
from cqrepl.host import Host
from cqrepl.net.address import Address
from cqrepl.queue import ExcerptBatch
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.surroundings import Surroundings
from cqrepl.testing.experiment import Scene, linearizable
from cqrepl.testing.history import Operation
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.labroles import PORT
from cqrepl.testing.site import Site
from wire import WireError

SETTINGS = GridSettings(
    name="s",
    maps={"m": MapSettings()},
    replicas=ReplicaSettings(sync=1, others=1),
    reads=Reads.TOKEN,
    lock_seconds=3.0,
)
RECORDS = ("opened", "tx", "outcome")
FIRST_BOOT = b"1 "
SAVES = CheckpointSettings(interval_seconds=3.0, age_min_ms=None)
KEYS = [b"sa", b"sb", b"sc"]
State = tuple[tuple[bytes, bytes], ...]


class Records(GridGroup):
    """A group whose log the application of the laboratory writes to, too."""

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        for index, data in batch:
            if is_record(data):
                super().apply(ExcerptBatch.of(index, [data]), committed)


class Desk(GridDesk):
    """The program of one start of a host; see `tests.laboratory.taskboards.Desk`."""

    def __init__(self, groups: list[GridGroup], *, waits: bool) -> None:
        super().__init__(groups)
        self._waits = waits

    async def run(self, host: Host) -> None:
        def saver(group: GridGroup) -> Checkpointer:
            return Checkpointer(QUEUE, host.queue(QUEUE).path, SAVES)

        if self._waits:
            await trio.sleep(WAIT_FOR_SECONDS)
        async with self.running(host, saver), self.answering():
            await trio.sleep_forever()


class PartitionOfKeys:
    """All entries of a partition. A transaction has read what is there, and changes it at once."""

    def start(self) -> State:
        return ()

    def step(self, state: State, operation: Operation) -> Iterator[State]:
        if operation.name not in ("commit", "get"):  # of the laboratory's own, or `tokens` looks
            yield state
            return
        reads, writes = operation.value
        entries = dict(state)
        if operation.is_known and operation.result is not None:  # of one that only reads
            reads = operation.result
        if all(entries.get(key, b"") == value for key, value in reads):
            yield tuple(sorted((entries | dict(writes)).items()))


def is_record(data: bytes | memoryview) -> bool:
    with suppress(WireError):
        return decode_words(data).name in RECORDS
    return False


def desk(host: int, machine: Surroundings) -> Desk:
    codec = ValueCodec()
    loaders = LoaderDesk(SETTINGS, {}, None, codec)
    group = Records(SETTINGS, 0, loaders, lambda: (1, 2, 3), 2.0, dict, QUEUE)
    return Desk([group], waits=not machine.boot_id().startswith(FIRST_BOOT))


async def put_and_read(site: Site) -> None:
    hosts = [Address(at, PORT) for number, at in sorted(site.addresses.items())]
    while True:
        with suppress(GridError):
            async with GridClient(hosts, "s", 20.0).running() as client:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_commit, site, client)
                    nursery.start_soon(_read, site, client)
        await trio.sleep(0.5)


async def _commit(site: Site, client: GridClient) -> None:
    for nth in count(1):
        if site.quiet.is_set():
            return
        await trio.sleep(site.rng.expovariate(2.0))
        keys = site.rng.sample(KEYS, site.rng.randint(1, 2))
        reads: list[Read] = []
        seen: list[tuple[bytes, bytes]] = []
        try:
            for key in keys:
                entry = await client.get(0, "m", key)
                reads.append(Read("m", key, ABSENT if entry is None else entry.version))
                seen.append((key, b"" if entry is None else entry.value))
        except GridError:
            continue
        value = f"{site.name} {nth} {trio.current_time():.3f}".encode()
        writes = [(key, value) for key in keys]
        changes = [Change(MapOp.PUT, "m", key, value) for key in keys]
        said = tuple(seen), tuple(writes)
        token: Token | None = None
        with site.history.call(site.name, "commit", "partition", said) as call:
            with trio.move_on_after(20.0):
                try:
                    token = await client.commit(nth, TxRequest(0, changes, reads))
                    call.returned()
                except (Conflict, LockTimeout):
                    call.failed()
                except (OutcomeUnknown, GridError):
                    pass
        if token is not None:
            await _read_late(site, client, token, keys[0])


async def _read_late(site: Site, client: GridClient, token: Token, key: bytes) -> None:
    """A read with a token, at whatever host; what it gives is looked at by the checks."""
    with site.history.call(site.name, "late", f"late {token}") as call:
        with suppress(GridError):
            entry = await client.get_at(0, "m", key, token, 3.0)
            call.returned(None if entry is None else entry.version)


async def _read(site: Site, client: GridClient) -> None:
    while not site.quiet.is_set():
        await trio.sleep(site.rng.expovariate(2.0))
        key = site.rng.choice(KEYS)
        with site.history.call(site.name, "get", "partition", ((), ())) as call:
            with suppress(GridError), trio.move_on_after(20.0):
                entry = await client.get(0, "m", key)
                call.returned(((key, b"" if entry is None else entry.value),))


def tokens(scene: Scene) -> Iterator[str]:
    """No read with a token is older than it."""
    for each in scene.history.operations:
        if each.name == "late" and each.is_known:
            token = Token.parse(each.key.removeprefix("late "))
            if each.result is None or each.result < token.index:
                yield f"{each.who}: a read with {token} gives an entry of {each.result}"


def copies(scene: Scene) -> Iterator[str]:
    """The acknowledged values, against the copies, and the state of each host against its copy."""
    lost = scene.lost_from(QUEUE)
    for host in scene.equal_hosts(QUEUE):
        state, seen = replayed(scene, host)
        for each in scene.history.operations:
            is_acked = each.name == "commit" and each.is_known
            if is_acked and lost is None and not set(each.value[1]) <= seen:
                yield f"host {host} lacks an acknowledged transaction: {each}"
        for program in scene.hosts[host].programs:
            if isinstance(program, Desk) and scene.hosts[host].process is not None:
                group = program.groups["s-0"]
                if group.led.fault is not None:
                    yield f"host {host}: its group has ended: {group.led.fault}"
                elif group.led.has_begun:
                    group.state.settle(group.led.feed.committed())
                    if group.state.partitions != state.partitions and not group.state.open:
                        yield f"host {host}: its state is not what its copy makes"


def replayed(scene: Scene, host: int) -> tuple[PartitionGroup, set[tuple[bytes, bytes]]]:
    """The state of a copy, and all entries that it ever had."""
    state, seen = PartitionGroup(), set()
    for index, data in sorted(scene.content(host, QUEUE).items()):
        if is_record(data):
            found = state.apply(index, decode_words(data))
            if found is not None:
                seen |= {(change.key, change.value) for change in found.changes}
            state.settle(index)
    return state, seen


programs = [desk]
workload = put_and_read
partitions = linearizable(PartitionOfKeys())
checks = [tokens, copies, partitions]
writes = True
