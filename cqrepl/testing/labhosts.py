"""The hosts of a run: replication, and an application that appends, each a process of its own."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import trio

from cqrepl.host import Host
from cqrepl.net.controlsocket import Values
from cqrepl.net.program import Program
from cqrepl.net.wordwatch import word_watch
from cqrepl.protocol.queuelife import ReasonKind
from cqrepl.queue import Queue, QueueError, QueueLocked
from cqrepl.queue.format.index import Index, cycle_of, format_index
from cqrepl.replicator.duplexsession import sessions_of
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from cqrepl.surroundings import within
from cqrepl.testing.checker import Written
from cqrepl.testing.freezer import Freezer
from cqrepl.testing.labmachine import Machine, Process
from cqrepl.testing.labroles import HostStart, LabFile, Node, serving_by_file, serving_one_way
from cqrepl.testing.network import Network
from cqrepl.testing.processlife import ProcessLife
from cqrepl.testing.story import Story

QUEUE: Final = "q"  # where there is one
BATCHES: Final = (1, 1, 1, 2, 5)  # excerpts that an application appends at a time
NO_ROOM: Final = " excerpts in a cycle, there are "  # of an error of the appender
BATCHES_WITH_BURSTS: Final = (*BATCHES, 300)
PAYLOAD_BYTES: Final = (0, 3, 40, 300, 2000, 9000)  # the last takes three pages
FOREIGN_EXCERPTS: Final = 5000

T = TypeVar("T")


@runtime_checkable
class RunsBeside(Protocol):
    """A program with a task of its own, which runs for as long as its host serves."""

    async def run(self, host: Node) -> None:
        """The task."""


class Copy:
    """A queue as one host has it: its own, or one that it takes in.

    Args:
        master: the id of the host whose own it is.
    """

    def __init__(self, host: "LabHost", name: str, master: int) -> None:
        self.host = host
        self.name = name
        self.master = master
        self.lost: dict[int, bytes] = {}  # a fault took these, and they have not come again
        self.end_before = -1  # the end that it had before that
        self.holds_others = False  # an operator has put another queue there
        self.flipped_at: int | None = None  # index of an excerpt in which a bit has changed

    @property
    def path(self) -> Path:
        """The queue's directory as it is now."""
        return self.host.machine.path / self.name

    @property
    def is_own(self) -> bool:
        """True where the application writes."""
        return self.master == self.host.host

    @property
    def title(self) -> str:
        """The name by which checks call it."""
        name = self.host.machine.name
        return name if len(self.host.copies) == 1 else f"{self.name} at {name}"

    def known_of(self, sink: "Copy") -> int | None:
        """Up to where this source knows that a sink is; None while that is not known."""
        source = self.host.source
        queue = None if source is None else source.queues.get(self.name)
        marks = None if queue is None else queue.marks.get(sink.host.host)
        return None if marks is None else marks.acknowledged

    def has_told_of(self, sink: "Copy") -> bool:
        """True when this source has said that it goes no further with a sink, or with none; or that
        it does not for now, over clocks."""
        source = self.host.source
        if source is None:
            return False
        if sink.host.host in source.ahead_for(self.name):
            return True
        return any(stop.is_own_damage and stop.name == self.name for stop in source.stops) or any(
            each.queue.name == self.name
            and each.marks.host_id == sink.host.host
            and each.has_stopped
            for session in sessions_of(SourceSession, source.endpoint.sessions)
            for each in session.outgoing.values()
        )

    @property
    def stops(self) -> list[Stop]:
        """The reason for which the sink says that it goes no further, or that it does not before
        clocks agree; none where it goes on."""
        queue = None if self.host.sink is None else self.host.sink.queues.get(self.name)
        if queue is None:
            return []
        trouble = queue.life.trouble
        by_clock = trouble if trouble is not None and trouble.kind is ReasonKind.CLOCK else None
        stop = queue.life.end or by_clock
        return [] if stop is None else [stop]

    @property
    def has_stopped(self) -> bool:
        """True when the sink says that it goes no further."""
        return bool(self.stops)

    @property
    def holds_unread(self) -> bool:
        """True while this sink has stored what it has not read from its files since."""
        sink = self.host.sink
        if sink is None or self.path.is_symlink():
            return False
        queue = sink.queues[self.name]
        return queue.is_taking and queue.disk.audited < queue.next_index

    def flip_last(self, rng: random.Random) -> bool:
        """Changes a bit in the payload of the last excerpt; false where that has none."""
        with Queue.open(self.path) as queue:
            last = queue.last_index()
            assert last is not None
            batch = queue.tailer(last).next_batch()
            assert batch is not None
            [(index, payload)] = batch
            if not payload:
                return False
            path, at = (
                queue.cycles.path_of(cycle_of(Index(index), queue.cycles.shift)),
                batch.offsets[-1],
            )
            place, bit = rng.randrange(len(payload)), 1 << rng.randrange(8)
            with path.open("r+b") as file:
                file.seek(at + place)
                file.write(bytes([payload[place] ^ bit]))
        self.flipped_at = index
        self.host.tell(f"a bit of {format_index(index)} is another one")
        return True


MakePrograms = Callable[[Process], Sequence[Program]]


class LabHost:
    """The replication of one host, started again when it ends by itself.

    Args:
        programs: makes those of one start of it.
        queues: the names of those that it has, by the ids of their masters.
        file: of its cluster: it is started as `cqrepl run` would be; without one as a source or a
            sink.
        runs: it sends and takes runs, with peers that do the same.

    Attributes:
        programs: those of its present start.
        companions: processes that operators start when they start this one.
    """

    def __init__(
        self,
        machine: Machine,
        network: Network,
        freezer: Freezer,
        nursery: trio.Nursery,
        story: Story,
        programs: MakePrograms = lambda _: (),
        *,
        queues: Mapping[int, str],
        file: LabFile | None = None,
        runs: bool,
    ) -> None:
        self.machine = machine
        self.copies = {master: Copy(self, name, master) for master, name in queues.items()}
        self._make_programs = programs
        self.file = file
        self._runs = runs
        self.node: Node | None = None
        self.programs: Sequence[Program] = ()
        self.companions: list[ProcessLife] = []
        self.has_lost_power = False
        self.ack_log: Path | None = None  # of a source, from its next start on
        self._story = story
        self._network = network
        self._asking: set[trio.CancelScope] = set()  # operators, who wait for an answer
        self._life = ProcessLife(
            machine, network, freezer, nursery, story, "replication", self._serving, self._gone
        )

    @property
    def host(self) -> int:
        return self.machine.host

    @property
    def process(self) -> Process | None:
        """The process, while there is one."""
        return self._life.process

    @property
    def is_frozen(self) -> bool:
        """True while its process is held back."""
        return self._life.is_frozen

    @property
    def ends(self) -> list[str]:
        """The reasons for which it has ended by itself, since it has served last."""
        return self._life.ends

    @property
    def source(self) -> Source | None:
        """The source, while it runs."""
        node = self.node.source if isinstance(self.node, Host) else self.node
        return node if isinstance(node, Source) else None

    @property
    def sink(self) -> Sink | None:
        """The sink, while it runs."""
        node = self.node.sink if isinstance(self.node, Host) else self.node
        return node if isinstance(node, Sink) else None

    @property
    def connected_to(self) -> frozenset[int]:
        """Ids of the hosts that it has said hello to, and has heard it from."""
        return frozenset(() if self.node is None else self.node.endpoint.connections)

    def has_met(self, host: int) -> bool:
        """True when the present process has had a connection with a host."""
        return self.process is not None and self._network.has_met(self.process, host)

    def tell(self, text: str) -> None:
        """Something has happened here."""
        self._story.tell(self.machine.name, text)

    def start(self) -> None:
        """Starts it, and its companions; nothing for those that are there."""
        self._life.start()
        for each in self.companions:
            each.start()

    def kill(self) -> None:
        """Ends it as `kill -9` does: what it has stored so far stays, its connections break."""
        self._life.kill()

    def freeze(self) -> Process | None:
        """Replication stands still; what is to be thawed, None while there is none."""
        return self._life.freeze()

    def thaw(self, process: Process) -> None:
        """It goes on, unless it was killed meanwhile."""
        self._life.thaw(process)

    def power_cut(self) -> None:
        self.has_lost_power = True
        self.machine.power_cut()

    def stop(self) -> None:
        """Asks it to end in order."""
        self._life.stop()

    async def ask(self, asked: Values) -> Values | None:
        """Asks a host of a cluster at its socket; None where there is none, or it goes meanwhile.
        An answer that a process gives in the very step in which it is killed is dropped.

        Args:
            asked: as `cqrepl.net.controlsocket` has it.
        """
        node = self.node
        return None if not isinstance(node, Host) else await self.during(node.control.do, asked)

    async def during(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T | None:
        """The result of a piece of work in the process, as a task of it; None where there is no
        process that serves, or it goes meanwhile."""
        process = self.process
        if process is None or self.node is None:
            return None
        scope = trio.CancelScope()
        self._asking.add(scope)
        result: T | None = None
        try:
            with within(process), scope:
                result = await work(*arguments)
        finally:
            self._asking.discard(scope)
        return result if self.process is process else None

    def _gone(self) -> None:
        self._hang_up()
        self.node, self.programs = None, ()

    def _hang_up(self) -> None:
        for each in self._asking:
            each.cancel()

    @asynccontextmanager
    async def _serving(self, process: Process) -> AsyncIterator[None]:
        programs = self._make_programs(process)
        async with self._made(programs) as node, trio.open_nursery() as nursery:
            for each in programs:
                if isinstance(each, RunsBeside):
                    nursery.start_soon(each.run, node)
            self.node, self.programs = node, programs
            try:
                yield
            finally:
                self._hang_up()
            nursery.cancel_scope.cancel()

    def _made(self, programs: Sequence[Program]) -> AbstractAsyncContextManager[Node]:
        start = HostStart(self.host, programs, self.ack_log, runs=self._runs)
        if self.file is not None:
            return serving_by_file(start, self.file, self.machine.path)
        [copy] = self.copies.values()
        return serving_one_way(start, copy.path, copy.name)


class Refusals:
    """The refusals of one application's appends, of which each is told once.

    Args:
        tell: for the story.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._last = ""

    def note(self, text: str) -> None:
        """An append was refused, for this reason."""
        if text != self._last:
            self._last = text
            self._tell(text)

    @property
    def has_full_cycle(self) -> bool:
        """True where the last append was refused as its cycle holds no more."""
        return NO_ROOM in self._last


class Application:
    """Appends to a host's own queue, and keeps what it was told."""

    def __init__(
        self,
        machine: Machine,
        name: str,
        roll_cycle: str,
        rate: float,
        rng: random.Random,
        story: Story,
        batches: Sequence[int] = BATCHES,
    ) -> None:
        self.machine = machine
        self._name = name
        self._batches = batches
        self.written = Written()
        self.refused_since: float | None = None  # it is kept out since then
        self.refusals = Refusals(partial(story.tell, machine.name))
        self._is_writing = True
        self._roll_cycle = roll_cycle
        self._rate = rate
        self._rng = rng
        self._story = story
        self._process = machine.start("application")
        self._queue: Queue | None = None
        self._disk: Path | None = None  # that the queue was opened on
        self.count = 0

    def kill(self) -> None:
        """It starts again with the next append."""
        self._story.tell(self.machine.name, "application is killed")
        self.machine.alive.discard(self._process.pid)
        self.restart()

    def restart(self) -> None:
        """A new process; the old one is dead."""
        self._process = self.machine.start("application")
        self._queue = None  # a dead process gives nothing back

    def end_writing(self) -> None:
        """The application wants to write no more, so it does not count as kept out."""
        self._is_writing, self.refused_since = False, None

    async def run(self) -> None:
        """Appends until it is told to end that."""
        while True:
            await trio.sleep(
                self._rng.expovariate(self._rate * len(self._batches) / sum(self._batches))
            )
            if self._is_writing and self._process.pid in self.machine.alive:
                self.append()
                word_watch().look()

    def append(self, payloads: Sequence[bytes] = ()) -> None:
        """These excerpts; else one of its own, or a few."""
        with within(self._process):
            self._process.give_time()
            try:
                queue = self._opened()
                for payload in payloads or self._some():
                    self.written.note(queue.append(payload), payload)
                    self.count += 1
                self.refused_since = None
            except QueueLocked:
                if self.refused_since is None:
                    self.refused_since = trio.current_time()
            except (QueueError, OSError) as error:
                self._disk, self.refused_since = None, None
                self.refusals.note(f"application cannot append: {error}")

    def _some(self) -> Iterator[bytes]:
        for _ in range(self._rng.choice(self._batches)):
            size = self._rng.choice(PAYLOAD_BYTES)
            filling = bytes([65 + self.count % 26]) * size  # a tear reads as zeros
            yield b"%d of host %d " % (self.count, self.machine.host) + filling

    def _opened(self) -> Queue:
        if self._queue is None or self._disk != self.machine.path:
            if self._queue is not None:
                self._queue.close()
            self._queue = None
            self._disk = self.machine.path
            self._queue = Queue.open_for_append(self._disk / self._name, create=self._roll_cycle)
        return self._queue


def fill_with_others(copy: Copy, roll_cycle: str) -> None:
    """Another queue, in the directory of ours."""
    machine = copy.host.machine
    process = machine.start("another application")
    with within(process):
        process.give_time()
        # a fault of the disk, or a full cycle, may come in between
        with (
            suppress(QueueError, OSError),
            Queue.open_for_append(copy.path, create=roll_cycle) as queue,
        ):
            for nth in range(FOREIGN_EXCERPTS):
                queue.append(b"%d of another queue" % nth)
    machine.alive.discard(process.pid)


@asynccontextmanager
async def looking(every_s: float) -> AsyncIterator[None]:
    """Has the word watch look now and then, as its thread would."""

    async def look() -> None:
        while True:
            await trio.sleep(every_s)
            word_watch().look()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        yield
        nursery.cancel_scope.cancel()
