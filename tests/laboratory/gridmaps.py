"""A grid on the hosts of a run, clients that put, clear and read, and the checks of both.

The history has one key, the partition, whose state is all of its entries: so a transaction over
several keys is one operation. A read with a token is held against it by the index of what it gives.
A client that does not know whether its transaction is committed reads with the token of that: what
it is told then has to be so.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import trio

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.grid.errors import (
    Conflict,
    GridError,
    LoaderError,
    LockTimeout,
    OutcomeUnknown,
    TokenLost,
)
from cqrepl.grid.gridclient import GridClient
from cqrepl.grid.griddesk import GridDesk
from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.gridsettings import GridSettings, MapSettings, Reads, ReplicaSettings
from cqrepl.grid.loaders import LoaderDesk
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.gridwords import (
    ABSENT,
    Change,
    MapOp,
    Read,
    decode_words,
    unpack_changes,
)
from cqrepl.grid.partition.partitiongroup import PartitionGroup
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token
from cqrepl.host import Host
from cqrepl.net.address import Address
from cqrepl.queue import ExcerptBatch
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.surroundings import Surroundings
from cqrepl.testing.experiment import Scene
from cqrepl.testing.history import Operation
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.labroles import PORT
from cqrepl.testing.linearizability import check_linearizable
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
NOT_REACHED = "by operator: not reached: "
CLEARS = 0.1  # of the transactions
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
    return desk_of(LoaderDesk(SETTINGS, {}, None, ValueCodec()), SETTINGS, machine)


def desk_of(loaders: LoaderDesk, settings: GridSettings, machine: Surroundings) -> Desk:
    group = Records(settings, 0, loaders, lambda: (1, 2, 3), 2.0, dict, QUEUE)
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
        value = f"s{site.name} {nth} {trio.current_time():.3f}".encode()
        writes = [(key, value) for key in keys]
        changes = [Change(MapOp.PUT, "m", key, value) for key in keys]
        if site.rng.random() < CLEARS:
            writes, changes = [(key, b"") for key in KEYS], [Change(MapOp.CLEAR, "m")]
        token = await _commit_one(site, client, nth, TxRequest(0, changes, reads), (seen, writes))
        if token is not None:
            await _read_late(site, client, token, keys[0])


async def _commit_one(
    site: Site,
    client: GridClient,
    nth: int,
    request: TxRequest,
    said: tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]],
) -> Token | None:
    """Commits; the token of what is committed."""
    seen, writes = said
    doubtful: object = None
    with site.history.call(site.name, "commit", "partition", (tuple(seen), tuple(writes))) as call:
        with trio.move_on_after(20.0):
            try:
                token = await client.commit(nth, request)
                call.returned()
                return token
            except (Conflict, LockTimeout, LoaderError):
                call.failed()
            except OutcomeUnknown as error:
                doubtful = error.token
            except GridError:
                pass
    if isinstance(doubtful, Token) and request.changes[0].op is MapOp.PUT:
        await _read_doubtful(site, client, doubtful, tuple(writes))
    return None


async def _read_doubtful(
    site: Site, client: GridClient, token: Token, writes: tuple[tuple[bytes, bytes], ...]
) -> None:
    """A read with the token of a transaction of which it is not known whether it is committed: the
    reader is told that it is lost, or it stands in the log for ever."""
    with site.history.call(site.name, "doubt", f"doubt {token}", writes) as call:
        try:
            await client.get_at(0, "m", writes[0][0], token, 10.0)
            call.returned(True)
        except TokenLost:
            call.returned(False)
        except GridError:
            pass


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
    """No read with a token is older than it: it gives no entry only where one is cleared later."""
    hosts = scene.equal_hosts(QUEUE)
    cleared = max((index for each in hosts for index in clears(scene, each)), default=-1)
    for each in scene.history.operations:
        if each.name == "late" and each.is_known:
            token = Token.parse(each.key.removeprefix("late "))
            found = cleared if each.result is None else each.result
            if found < token.index:
                yield f"{each.who}: a read with {token} gives an entry of {each.result}"


def clears(scene: Scene, host: int) -> Iterator[int]:
    """The indexes of the records that clear the map."""
    for index, data in scene.content(host, QUEUE).items():
        if is_record(data) and (said := decode_words(data)).name == "tx":
            changes = unpack_changes(said.text("maps"), said.data("changes"))
            if any(each.op is MapOp.CLEAR for each in changes):
                yield index


def copies(scene: Scene) -> Iterator[str]:
    """The acknowledged values, against the copies, and the state of each host against its copy."""
    lost = scene.lost_from(QUEUE)
    for host in scene.equal_hosts(QUEUE):
        state, seen = replayed(scene, host)
        for each in scene.history.operations if lost is None else ():
            if each.name in ("commit", "doubt") and each.is_known:
                written = set(each.value if each.name == "doubt" else each.value[1])
                is_there = written <= seen
                if each.name == "commit" and not is_there:
                    yield f"host {host} lacks an acknowledged transaction: {each}"
                elif each.name == "doubt" and each.result != is_there:
                    yield f"host {host}: a reader was told otherwise: {each}"
        for program in scene.hosts[host].programs:
            if isinstance(program, Desk) and scene.hosts[host].process is not None:
                yield from held(host, program.groups["s-0"], state)


def held(host: int, group: GridGroup, state: PartitionGroup) -> Iterator[str]:
    """The state of a host against what its copy makes."""
    if group.led.fault is not None:
        yield f"host {host}: its group has ended: {group.led.fault}"
    elif group.led.has_begun:
        group.state.settle(group.led.feed.committed())
        if group.state.partitions != state.partitions and not group.state.open:
            yield f"host {host}: its state is not what its copy makes"
        lasting = [each.index for each in group.state.undecided()]
        if lasting:
            yield f"host {host}: the outcomes of {lasting} were never told"


def replayed(scene: Scene, host: int) -> tuple[PartitionGroup, set[tuple[bytes, bytes]]]:
    """The state of a copy, and all entries that were ever committed."""
    state, seen = PartitionGroup(), set()
    for index, data in sorted(scene.content(host, QUEUE).items()):
        if is_record(data):
            state.apply(index, decode_words(data))
            for found in state.settle(index):
                seen |= {(change.key, change.value) for change in found.changes}
                if any(change.op is MapOp.CLEAR for change in found.changes):
                    seen |= {(key, b"") for key in KEYS}
    return state, seen


def partitions(scene: Scene) -> list[str]:
    """The history is linearizable. Without an election a primary that a promotion has not reached
    answers reads for as long as it does not know; its transactions come to nothing."""
    known = scene.history.operations
    assert scene.plan is not None
    if not scene.plan.lease and any(NOT_REACHED in each.text for each in scene.story.entries):
        known = [each for each in known if each.name != "get"]
    found = check_linearizable(known, PartitionOfKeys())
    return [] if found is None else [str(found)]


programs = [desk]
workload = put_and_read
checks = [tokens, copies, partitions]
writes = True
