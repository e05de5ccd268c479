"""One queue of a cluster whose leader is elected, and a program in each host that uses it.

The program appends wherever the queue is led, through `Leading`, and waits as the queue's policy
says, which is for a majority. It reads there under the lease. Each call stands in the history of
the run: what is safe, and what a consistent read has to have seen, is judged by that.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from cqrepl.host import Host
from cqrepl.net.errors import Refused
from cqrepl.net.wordwatch import word_watch
from cqrepl.protocol.ackpolicy import AckPolicy, From
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.index import format_index
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.replicator.hostend import HostEnded
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, Leading, SteppedDown
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.surroundings import within
from cqrepl.testing.checker import BrokenPromiseError, digest_of, last_index
from cqrepl.testing.history import History, Operation
from cqrepl.testing.labhosts import BATCHES, PAYLOAD_BYTES, Copy, LabHost, Refusals
from cqrepl.testing.labmachine import Process
from cqrepl.testing.labroles import ELECTED_WAIT_SECONDS
from cqrepl.testing.ledqueue import LedExcerpt, LedQueue
from cqrepl.testing.plan import SOURCE
from cqrepl.testing.storereader import promises

READ_EVERY_SECONDS: Final = 0.5  # at each host
ENDS_WITHIN_SECONDS: Final = 1.0  # once the time of its policy is over
_AT_ONCE: Final = AckPolicy(from_=From.NONE)
_REFUSALS: Final = (Refused, SteppedDown, HostEnded, QueueError, OSError, ValueError)


class GrownLog:
    """A log that grows: a read sees all that was safe before it began, and what a read has seen all
    later ones see. The state is the last index that a call has told."""

    def start(self) -> int:
        return -1

    def step(self, state: int, operation: Operation) -> Iterator[int]:
        if not operation.is_known:
            yield state
        elif operation.name == "append":
            yield max(state, operation.result)
        elif operation.result >= state:
            # a host's own state may be ahead of what is safe
            yield operation.result if operation.name == "read" else state


@dataclass(frozen=True, slots=True)
class ToldExcerpt:
    """An excerpt that a program was told is safe, or that a consistent read has given.

    Args:
        how: the words for that.
    """

    index: int
    digest: bytes
    how: str
    host: int
    at: float


@dataclass(eq=False, slots=True)
class OpenWait:
    """A wait that goes on, in a process of a host."""

    index: int
    since: float
    process: Process | None


class ElectedApplication:
    """The program in one host."""

    def __init__(
        self, led: "ElectedQueue", copy: Copy, roll_cycle: str, rate: float, rng: random.Random
    ) -> None:
        self.newest: LedExcerpt | None = None
        self._led = led
        self._copy = copy
        self._rate = rate
        self._rng = rng
        self._payloads = random.Random(f"payloads {copy.host.host} {led.draws}")
        self._reads = random.Random(f"reads {copy.host.host} {led.draws}")
        self._boot_id = copy.host.machine.boot_id
        self._waits_until = 0.0
        self._nursery: trio.Nursery | None = None
        self.refusals = Refusals(copy.host.tell)

    def go_on(self) -> None:
        """Its machine has lost its power, if that is so: the first append waits for a source to
        compare the queue with its copies; here nothing else runs while it does, so it waits
        before."""
        if self._boot_id != self._copy.host.machine.boot_id:
            self._boot_id = self._copy.host.machine.boot_id
            self.newest, self._waits_until = None, trio.current_time() + WAIT_FOR_SECONDS

    async def run(self) -> None:
        """Appends and reads for ever, while its host leads."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._read_now_and_then)
            while True:
                await trio.sleep(self._rng.expovariate(self._rate * len(BATCHES) / sum(BATCHES)))
                if self._led.is_writing:
                    for _ in range(self._rng.choice(BATCHES)):
                        self._begin(self._payload())

    def flood(self, payloads: Sequence[bytes]) -> None:
        """Appends all of these, if it may."""
        for payload in payloads if self._led.is_writing else ():
            self._begin(payload)

    def append(self, payloads: Sequence[bytes] | None = None) -> None:
        """Appends these, or one excerpt, soon."""
        for payload in payloads or [self._payload()]:
            self._begin(payload)

    def _payload(self) -> bytes:
        self._led.count += 1
        count, size = self._led.count, self._payloads.choice(PAYLOAD_BYTES)
        filling = bytes([65 + count % 26]) * size  # a tear reads as zeros
        return b"%d of host %d " % (count, self._copy.host.host) + filling

    def _begin(self, payload: bytes) -> None:
        node = self._copy.host.node
        may_append = trio.current_time() >= self._waits_until
        if self._nursery is not None and isinstance(node, Host) and may_append:
            self._nursery.start_soon(self._copy.host.during, self._append, node, payload)

    def _leading(self, node: Host) -> Leading | None:
        """None while its host does not lead."""
        with suppress(*_REFUSALS):
            queue = node.queue(self._copy.name)
            if queue.is_streamed and not queue.leading.has_stepped_down:
                return queue.leading
        return None

    async def _append(self, node: Host, payload: bytes) -> None:
        led, copy = self._led, self._copy
        leading, process = self._leading(node), copy.host.process
        if leading is None:
            return
        led.attempted.add(digest_of(payload))
        with led.history.call(copy.host.machine.name, "append", copy.name) as call:
            try:
                index = int(await node.queue(copy.name).append(payload, policy=_AT_ONCE))
            except _REFUSALS as error:
                self.refusals.note(f"a program cannot append: {error}")
                return
            if copy.host.process is not process:
                return  # what a dead process has done since goes nowhere
            self._note(index, payload, leading)
            call.operation.value = format_index(index)
            word_watch().look()
            waiting = OpenWait(index, trio.current_time(), process)
            led.open_waits.add(waiting)
            try:
                outcome = await leading.wait_acked(index)
            except (AckUnknown, WaitEnded):
                return
            finally:
                led.open_waits.discard(waiting)
            if outcome is AckOutcome.ACKED and copy.host.process is process:
                call.returned(index)
                led.tell(index, digest_of(payload), "was safe", copy.host.host)

    def _note(self, index: int, payload: bytes, leading: Leading) -> None:
        host = self._copy.host.host
        now = promises(self._copy.path)
        digest, at = digest_of(payload), trio.current_time()
        excerpt = LedExcerpt(index, digest, host, at, leading.epoch)
        self._led.written.note(index, payload)
        self._led.appended.append(excerpt)
        if leading.epoch == now.number:
            self.newest = excerpt
        if not now.history or now.history[-1].leader != host:
            text = f"host {host} takes {format_index(index)} in epoch {now.number} of another host"
            raise BrokenPromiseError("epochs", text)

    async def _read_now_and_then(self) -> None:
        while True:
            await trio.sleep(self._reads.expovariate(1 / READ_EVERY_SECONDS))
            node, asks = self._copy.host.node, self._reads.random() < 0.5
            if isinstance(node, Host) and self._nursery is not None and self._led.is_writing:
                work = self._read if asks else self._look
                self._nursery.start_soon(self._copy.host.during, work, node)

    async def _read(self, node: Host) -> None:
        """A consistent read, up to the index that the leader gives."""
        led, copy, leading = self._led, self._copy, self._leading(node)
        if leading is None:
            return
        with led.history.call(copy.host.machine.name, "read", copy.name) as call:
            process = copy.host.process
            try:
                index = await leading.read_index()
            except _REFUSALS:
                call.failed()
                return
            if copy.host.process is not process:
                return
            digest = _digest_at(copy.path, index)
            call.returned(index)
            if digest is not None:
                led.tell(index, digest, "was read", copy.host.host)

    async def _look(self, node: Host) -> None:
        """A look at what this host holds itself, which is all that was safe while a lease holds."""
        led, copy, leading = self._led, self._copy, self._leading(node)
        if leading is None or copy.host.process is None:
            return
        with led.history.call(copy.host.machine.name, "look", copy.name) as call:
            if leading.may_read():
                call.returned(last_index(copy.path))
            else:
                call.failed()


def _digest_at(path: Path, index: int) -> bytes | None:
    """The digest of one excerpt; None where it cannot be read, or there is none."""
    if index < 0:
        return None
    with suppress(QueueError, OSError), Queue.open(path) as queue:
        batch = queue.tailer(index).next_batch()
        found, payload = (-1, b"") if batch is None else next(iter(batch))
        return digest_of(bytes(payload)) if found == index else None
    return None


class ElectedQueue(LedQueue):
    """The queue.

    Attributes:
        history: of the run.
        count: how many payloads were made.
        attempted: digests of all payloads that programs have begun to append.
        told: the excerpts that have to be there in the end.
        open_waits: those that go on.
        is_alone: no program of a user appends, too.
    """

    def __init__(
        self,
        hosts: Mapping[int, LabHost],
        roll_cycle: str,
        rate: float,
        seed: int,
        group: int = SOURCE,
    ) -> None:
        self.history = History()
        self.count = 0
        self.attempted: set[bytes] = set()
        self.told: list[ToldExcerpt] = []
        self.open_waits: set[OpenWait] = set()
        self.is_alone = True
        super().__init__(hosts, roll_cycle, rate, seed, group)
        self.written.is_open = True  # a program may be killed before it knows the index

    def _application(
        self, copy: Copy, roll_cycle: str, rate: float, rng: random.Random
    ) -> ElectedApplication:
        return ElectedApplication(self, copy, roll_cycle, rate, rng)

    def begin(self) -> None:
        """Each host makes its copy itself."""

    def tell(self, index: int, digest: bytes, how: str, host: int) -> None:
        """A program was told so of an excerpt."""
        self.told.append(ToldExcerpt(index, digest, how, host, trio.current_time()))

    @property
    def under_lease(self) -> list[int]:
        """Ids of the hosts that would answer consistent reads now."""
        return [host for host in self.copies if self._may_read(host)]

    def _may_read(self, host: int) -> bool:
        process, queue = self.copies[host].host.process, self.streamed_at(host)
        if process is None or queue is None:
            return False
        with within(process):
            return queue.leading.lease is not None and queue.leading.may_read()

    def late_waits(self) -> list[OpenWait]:
        """The waits that should have ended, of processes that are there."""
        running = [each.host.process for each in self.copies.values()]
        oldest = trio.current_time() - ELECTED_WAIT_SECONDS - ENDS_WITHIN_SECONDS
        return [each for each in self.open_waits if each.process in running and each.since < oldest]
