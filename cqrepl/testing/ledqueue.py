"""One queue of a cluster whose leader changes: its copies, and an application beside each.

Operators start an application where the queue is led. It opens the queue for each append, and goes
on until it is refused. So an application at an old leader that has not come back yet writes what no
other copy has. It never writes to what a sink has noted as its copy. The excerpts that each
application was told it had appended are kept. It is checked that its host led the queue then, by
what the copy said.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import trio

from cqrepl.net.wordwatch import word_watch
from cqrepl.queue import Queue, QueueError, QueueLocked
from cqrepl.queue.format.index import format_index
from cqrepl.queue.write.tailwait import WAIT_FOR_SECONDS
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.surroundings import within
from cqrepl.testing.causes import Cause
from cqrepl.testing.checker import (
    BrokenPromiseError,
    Written,
    digest_of,
)
from cqrepl.testing.labhosts import BATCHES, PAYLOAD_BYTES, Copy, LabHost, Refusals
from cqrepl.testing.losses import taking
from cqrepl.testing.plan import SOURCE, Kind
from cqrepl.testing.storereader import Begun, Promises, promises


@dataclass(frozen=True, slots=True)
class LedExcerpt:
    """An excerpt that an application was told it had appended."""

    index: int
    digest: bytes
    host: int
    at: float
    epoch: int


class LedWriter(Protocol):
    """An application beside one host.

    Attributes:
        newest: what it has appended last, in this run of it.
        refusals: of its appends.
    """

    newest: LedExcerpt | None
    refusals: Refusals

    def go_on(self) -> None:
        """Starts again, if it is dead."""

    async def run(self) -> None:
        """Appends for ever, while it may."""

    def flood(self, payloads: Sequence[bytes]) -> None:
        """Appends all of these at once, if it may."""

    def append(self, payloads: Sequence[bytes] | None = None) -> None:
        """One excerpt, or a few; or these."""


class LedApplication:
    """Appends at one host while it may.

    Attributes:
        newest: what it has appended last, in this run of it.
        refusals: of its appends.
    """

    def __init__(
        self, led: "LedQueue", copy: Copy, roll_cycle: str, rate: float, rng: random.Random
    ) -> None:
        self.newest: LedExcerpt | None = None
        self._led = led
        self._copy = copy
        self._roll_cycle = roll_cycle
        self._rate = rate
        self._rng = rng
        self._process = copy.host.machine.start("application")
        self.refusals = Refusals(copy.host.tell)
        self._waits_until = 0.0

    def go_on(self) -> None:
        """Starts again, if it is dead. After a power cut its first append waits for a source to
        compare the queue with its copies; here nothing else runs while it does, so it waits
        before."""
        if self._process.pid not in self._copy.host.machine.alive:
            self.newest, self._waits_until = None, trio.current_time() + WAIT_FOR_SECONDS
            self._process = self._copy.host.machine.start("application")

    async def run(self) -> None:
        """Appends for ever, while its host is to lead."""
        while True:
            await trio.sleep(self._rng.expovariate(self._rate * len(BATCHES) / sum(BATCHES)))
            if self._may_append:
                self.append()
                word_watch().look()

    def flood(self, payloads: Sequence[bytes]) -> None:
        """Appends all of these at once, if it may."""
        if self._may_append:
            self.append(payloads)
            word_watch().look()

    @property
    def _may_append(self) -> bool:
        is_alive = self._process.pid in self._copy.host.machine.alive
        is_ready = is_alive and trio.current_time() >= self._waits_until
        return is_ready and self._led.is_writing and self._copy.host.host in self._led.writers

    def append(self, payloads: Sequence[bytes] | None = None) -> None:
        """One excerpt, or a few; or these."""
        copy, led = self._copy, self._led
        with within(self._process):
            self._process.give_time()
            try:
                with Queue.open_for_append(copy.path, create=self._roll_cycle) as queue:
                    if queue.is_follower:
                        led.refused(copy.host.host)
                        return
                    for payload in self._few() if payloads is None else payloads:
                        self._note(queue.append(payload), payload)
            except QueueLocked:
                led.refused(copy.host.host)
            except (QueueError, OSError) as error:
                self.refusals.note(f"application cannot append: {error}")

    def _few(self) -> Iterator[bytes]:
        for _ in range(self._rng.choice(BATCHES)):
            yield self._payload()

    def _payload(self) -> bytes:
        count, size = len(self._led.appended), self._rng.choice(PAYLOAD_BYTES)
        filling = bytes([65 + count % 26]) * size  # a tear reads as zeros
        return b"%d of host %d " % (count, self._copy.host.host) + filling

    def _note(self, index: int, payload: bytes) -> None:
        host = self._copy.host.host
        now = promises(self._copy.path)
        digest, at = digest_of(payload), trio.current_time()
        self.newest = LedExcerpt(index, digest, host, at, now.number)
        self._led.written.note(index, payload)
        self._led.appended.append(self.newest)
        others = {now.history[-1].leader} if now.history else self._led.streaming_by_file
        if others - {host}:
            ids = ", ".join(map(str, sorted(others)))
            text = f"host {host} takes {format_index(index)} in epoch {now.number} of host {ids}"
            raise BrokenPromiseError("epochs", text)


def master_of(group: int, hosts: Sequence[int]) -> int:
    """The host that leads one of several queues first."""
    return hosts[(group - 1) % len(hosts)]


class LedQueue:
    """The queue.

    Args:
        group: its number, where there are several: the first is that of host 1.

    Attributes:
        draws: a text for what is drawn by chance for it.
        appended: all that applications were told, in order.
        writers: ids of the hosts where an application writes, or would.
        files: of the cluster, by the ids of the hosts that read them.
        master: the host that streams it by the files, where there never was a promotion.
        power_cuts: when each host lost its power.
        losing: ids of the hosts that were to lead though something may be lost by that. One of them
            does not know of others: two may begin an epoch of one number.
        causes: the faults that have changed what a copy holds.
        have_led: ids of the hosts that have streamed it so far.
        lost_from: the lowest index from which on operators have accepted that what was safe may be
            lost; None where they have not.
        differing: ids of the hosts whose copies say, in the end, why they differ.
    """

    def __init__(
        self,
        hosts: Mapping[int, LabHost],
        roll_cycle: str,
        rate: float,
        seed: int,
        group: int = SOURCE,
    ) -> None:
        self.copies = {host: each.copies[group] for host, each in hosts.items()}
        self.name = self.copies[SOURCE].name
        # that of the first one is as it was when there was one
        self.draws = str(seed) if group == SOURCE else f"{seed} of {self.name}"
        self.written = Written()
        self.appended: list[LedExcerpt] = []
        self.is_writing = True
        self.master = master_of(group, list(hosts))
        self.writers = {self.master}
        self.files = {host: each.file for host, each in hosts.items() if each.file is not None}
        self.power_cuts: dict[int, list[float]] = {host: [] for host in hosts}
        self.losing: set[int] = set()
        self.causes: list[Cause] = []
        self.have_led: set[int] = set()
        self.lost_from: int | None = None
        self.differing: set[int] = set()
        self.applications: Mapping[int, LedWriter] = {
            host: self._application(
                copy, roll_cycle, rate, random.Random(f"led {host} {self.draws}")
            )
            for host, copy in self.copies.items()
        }
        self._epochs: dict[int, Begun] = {}  # that were begun, by number
        self._promised: dict[int, Promises] = {}

    def _application(
        self, copy: Copy, roll_cycle: str, rate: float, rng: random.Random
    ) -> "LedWriter":
        return LedApplication(self, copy, roll_cycle, rate, rng)

    def begin(self) -> None:
        """Makes the queue, at the host that leads it first."""
        self.applications[self.master].append()

    @property
    def all_copies(self) -> list[Copy]:
        """All of them, whichever host leads."""
        return list(self.copies.values())

    @property
    def leader(self) -> int:
        """The host that leads in the latest epoch that was begun, whether it runs or not."""
        latest = max(
            (each for copy in self.copies.values() for each in promises(copy.path).history),
            default=None,
        )
        return self.master if latest is None else latest.leader

    @property
    def streaming(self) -> set[int]:
        """Ids of the hosts that stream it now."""
        return {host for host in self.copies if self.streamed_at(host) is not None}

    @property
    def streaming_by_file(self) -> set[int]:
        """Ids of those that do so where they know of no promotion."""
        queues = {host: self.streamed_at(host) for host in self.copies}
        return {host for host, each in queues.items() if each and not each.epochs.now.number}

    def streamed_at(self, host: int) -> SourceQueue | None:
        """The queue as a host streams it; None where it does not."""
        source = self.copies[host].host.source
        queue = None if source is None else source.queues.get(self.name)
        return queue if queue is not None and queue.epochs.now.may_lead(host) else None

    def may_lose(self, first: int) -> None:
        """Operators have accepted that what was safe may be lost from an index on."""
        self.lost_from = first if self.lost_from is None else min(first, self.lost_from)

    def refused(self, host: int) -> None:
        """An application is kept out: it ends, if another host is to lead."""
        if self.leader != host:
            self.writers.discard(host)

    @contextmanager
    def losing_power(self, host: int) -> Iterator[None]:
        """A host's power is cut within the block."""
        self.power_cuts[host].append(trio.current_time())
        with taking(self, self.copies[host], Kind.POWER_CUT):
            yield

    def lost_power(self, host: int, *, since: float) -> bool:
        """True when a host's power was cut then or later."""
        return any(at >= since for at in self.power_cuts[host])

    def check_epochs(self) -> None:
        """No copy forgets a promise, but for one to itself that its host has not begun. An epoch
        has one leader, and one beginning, unless a host was promoted although something may be lost
        by that.

        Raises:
            BrokenPromiseError: that is not so.
        """
        self.have_led |= self.streaming
        for host, copy in self.copies.items():
            now, was = promises(copy.path), self._promised.get(host, Promises())
            is_other = now.promised_to != was.promised_to and was.promised > 0
            is_own_claim = was.promised_to == host and was.number < was.promised
            if now.promised < was.promised or (
                now.promised == was.promised and is_other and not is_own_claim
            ):
                text = f"host {host} has promised epoch {was.promised}, and knows {now.promised}"
                raise BrokenPromiseError("epochs", text)
            self._promised[host] = now
            for each in now.history:
                known = self._epochs.setdefault(each.number, each)
                if known != each and not self.losing & {known.leader, each.leader}:
                    text = f"epoch {each.number} has begun twice: {known} and {each}"
                    raise BrokenPromiseError("epochs", text)
