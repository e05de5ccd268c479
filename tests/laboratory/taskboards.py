"""A task board on the hosts of a run, what submits and works, and the checks of both."""

import io
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import trio

from cqrepl.broker.client import TaskClient, TasksRefused
from cqrepl.broker.fields import decode
from cqrepl.broker.service import BoardService, BoardSettings
from cqrepl.broker.taskboard import Status, TaskTable
from cqrepl.broker.taskdesk import TaskDesk
from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings
from cqrepl.host import Host
from cqrepl.net.address import Address
from cqrepl.queue import ExcerptBatch
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.surroundings import Surroundings
from cqrepl.testing.experiment import Scene
from cqrepl.testing.history import Fate, Operation
from cqrepl.testing.labhosts import QUEUE
from cqrepl.testing.labroles import PORT
from cqrepl.testing.linearizability import check_linearizable
from cqrepl.testing.site import Site
from wire import WireError

# clocks step by more than a day: what is over and its key have to stay for longer
SETTINGS = BoardSettings(
    group=QUEUE, lease_seconds=6.0, attempts=1000, backoff_ms=100, keep_ms=10 * 365 * 86_400_000
)
FIRST_BOOT = b"1 "
UNKNOWN = "a task that was not told"
SAVES = CheckpointSettings(interval_seconds=3.0, age_min_ms=None)


class Records(BoardService):
    """A board whose log the application of the laboratory writes to, too."""

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        for index, data in batch:
            if is_record(data):
                super().apply(ExcerptBatch.of(index, [data]), committed)


class Desk(TaskDesk):
    """The program of one start of a host. After a power cut the first append to a queue waits for
    a source to compare it; here nothing else runs meanwhile, so the board waits before.

    Args:
        waits: there was a power cut.
    """

    def __init__(self, boards: list[BoardService], *, waits: bool) -> None:
        super().__init__(boards)
        self._waits = waits

    async def run(self, host: Host) -> None:
        def saver(board: BoardService) -> Checkpointer:
            return Checkpointer(QUEUE, host.queue(QUEUE).path, SAVES)

        if self._waits:
            await trio.sleep(WAIT_FOR_SECONDS)
        async with self.running(host, saver):
            await trio.sleep_forever()


class KeyedTask:
    """A key of a board: every submit gives the same task. A task: one attempt finishes it."""

    def start(self) -> object:
        return None

    def step(self, state: object, operation: Operation) -> Iterator[object]:
        said = operation.result if operation.name == "submit" else operation.value
        if not operation.is_known:
            yield state
            said = UNKNOWN if operation.name == "submit" and state is None else said
        if state in (None, UNKNOWN, said):
            yield said


def is_record(data: bytes | memoryview) -> bool:
    with suppress(WireError):
        return "now" in decode(data).values
    return False


def desk(host: int, machine: Surroundings) -> Desk:
    return Desk([Records("jobs", SETTINGS)], waits=not machine.boot_id().startswith(FIRST_BOOT))


async def submit_and_work(site: Site) -> None:
    hosts = [Address(at, PORT) for number, at in sorted(site.addresses.items())]
    client = TaskClient(hosts, "jobs")
    async with client.running(), trio.open_nursery() as nursery:
        nursery.start_soon(_submit, site, client)
        nursery.start_soon(_work, site, client)


async def _submit(site: Site, client: TaskClient) -> None:
    nth = 0
    while not site.quiet.is_set():
        await trio.sleep(site.rng.expovariate(1.0))
        key = f"{site.name} {nth}" if site.rng.random() < 0.8 else f"shared {nth}"
        nth += 1
        with site.history.call(site.name, "submit", key) as call, trio.move_on_after(20.0):
            call.returned(await client.submit("mail", key.encode(), key))


async def _work(site: Site, client: TaskClient) -> None:
    work = await client.work(site.name.replace(" ", ""), ["mail"], slots=2)
    async for task in work:
        await trio.sleep(site.rng.expovariate(4.0))
        name, attempt = task.number("task"), task.number("attempt")
        with site.history.call(site.name, "finish", name, attempt) as call:
            try:
                await client.finish(task, task.data("payload"))
                call.returned()
            except TasksRefused:
                call.failed()


def boards(scene: Scene) -> Iterator[str]:
    """The tasks that were acknowledged, against what hosts hold of them."""
    ids: dict[str, set[int]] = defaultdict(set)
    finished: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for each in promised(scene):
        if each.is_known and each.name == "submit":
            ids[each.key].add(each.result)
        elif each.is_known:
            finished[each.key].add((each.who, each.value))
    yield from (
        f"key {key!r} is several tasks: {found}" for key, found in ids.items() if len(found) > 1
    )
    for task, by in finished.items():
        if len(by) > 1:
            yield f"task {task:#x} is finished by several: {by}"
    tables = {host: replayed(scene, host) for host in scene.equal_hosts(QUEUE)}
    for host, table in tables.items():
        lost = [key for key, found in ids.items() if not found <= table.tasks.keys()]
        if lost:
            yield f"host {host} lacks acknowledged tasks: {lost}"
        undone = [each for each in finished if table.tasks[each].status is not Status.DONE]
        if undone:
            yield f"host {host} has tasks that were finished as not done: {undone}"
        yield from held(scene, host, table)


def promised(scene: Scene) -> Iterator[Operation]:
    """The calls of clients of the board. Where an operator has accepted that what was safe may be
    lost, that is unknown of each but a submit that gave a task below."""
    lost_from = scene.lost_from(QUEUE)
    asked = [each for each in scene.history.operations if each.name in ("submit", "finish")]
    for each in asked:
        is_below = each.name == "submit" and each.is_known and each.result < (lost_from or 0)
        if lost_from is None or is_below:
            yield each
        else:
            yield replace(each, fate=Fate.UNKNOWN, ended=None, result=None)


def keyed_tasks(scene: Scene) -> list[str]:
    """The calls that are about one key or one task are linearizable."""
    found = check_linearizable(list(promised(scene)), KeyedTask())
    return [] if found is None else [str(found)]


def held(scene: Scene, host: int, table: TaskTable) -> Iterator[str]:
    """The state of the service of a host, against what its copy makes."""
    for program in scene.hosts[host].programs:
        if isinstance(program, Desk) and scene.hosts[host].process is not None:
            own = program.boards["jobs"]
            if not hasattr(own.led, "feed"):
                continue  # it waits still
            if own.led.fault is not None:
                yield f"host {host}: its board has ended: {own.led.fault}"
            elif state(own.board) != state(table):
                yield f"host {host}: its board is not what its copy makes"


def replayed(scene: Scene, host: int) -> TaskTable:
    table = TaskTable()
    for index, data in sorted(scene.content(host, QUEUE).items()):
        if is_record(data):
            table.apply(index, decode(data))
    return table


def state(table: TaskTable) -> bytes:
    out = io.BytesIO()
    table.snapshot(out)
    return out.getvalue()


programs = [desk]
workload = submit_and_work
checks = [boards, keyed_tasks]
writes = True
