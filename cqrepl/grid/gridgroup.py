"""One group of partitions on one host: it follows, and is the primary where the host leads.

Theory of operation. The state is made by the log, on each host alike (`PartitionGroup`). Where the
host leads, clients and programs commit by these steps (E-44, E-48):

    lock, compare versions; flush to the loader; append the record with the two lists; wait for each
    synchronous replica in peer mode; wait for the state to have it; clear the lists; commit in the
    loader; note the outcome; unlock; answer

One that the loader has not committed is answered once its outcome is safe in the log, or the next
primary would run it again. Records of several transactions go into the log together. Nothing is
seen before it is safe, so a reader at the primary, which asks for its lease first, sees what was
acknowledged and nothing that could be lost. A host that comes to lead runs open transactions again,
then preloads (`_start`); a partition answers once that is over.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import BinaryIO, Final

import trio

from cqrepl.grid.errors import (
    GridRefused,
    LoaderError,
    LockTimeout,
    NotServing,
    OutcomeUnknown,
    TokenTimeout,
)
from cqrepl.grid.gridsettings import GridSettings
from cqrepl.grid.hostedstore import HostedStore
from cqrepl.grid.loaders import LoaderDesk
from cqrepl.grid.localgrid import lock_problem
from cqrepl.grid.partition.gridwords import GridEntry, decode_words
from cqrepl.grid.partition.locktable import LockPlace
from cqrepl.grid.partition.partitiongroup import OpenTx, PartitionGroup
from cqrepl.grid.partition.peerset import NOTHING, PeerSet
from cqrepl.grid.partition.primary import Primary, TxRequest, WrittenTx, opened_record
from cqrepl.grid.partition.token import Token
from cqrepl.grid.partition.watchers import Watcher, Watchers
from cqrepl.grid.placement import rendezvous
from cqrepl.kernel.board import AckLevel
from cqrepl.net.threads import in_thread
from cqrepl.protocol import AckPolicy
from cqrepl.queue import ExcerptBatch
from cqrepl.queue.format.logpos import LogPos
from cqrepl.replicator.leadership import AckOutcome, Leading
from cqrepl.routing import group_of
from cqrepl.service.ledservice import AT_ONCE, LOOK_SECONDS, LedService
from cqrepl.surroundings import surroundings

BATCH_RECORDS: Final = 512
BATCH_BYTES: Final = 4 << 20
TOKEN_PAUSE_SECONDS: Final = 0.001  # between two looks at what is safe
RECOVERY_PAUSE_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 0.02  # from one look to the next, where there are watchers
_logger: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _OnWay:
    """A record on its way to the log and to the replicas."""

    written: WrittenTx
    index: int = NOTHING
    found: OpenTx | None = None
    is_safe: bool = False
    done: trio.Event = field(default_factory=trio.Event)


class GridGroup:
    """One group; a `GroupService`.

    Args:
        nth: its number, from 0.
        copies: ids of the hosts that have a copy of it.
        lease_seconds: a replica that is silent for so long is waited for no more.
        group: the queue that is its log; None: the one of its name.

    Attributes:
        faults: the errors of partitions that have not started here, by their numbers.
    """

    sort = "grid group"
    waits_for_first = True

    def __init__(
        self,
        settings: GridSettings,
        nth: int,
        desk: LoaderDesk,
        copies: Callable[[], Iterable[int]],
        lease_seconds: float = 2.0,
        addresses: Callable[[], dict[int, str]] = dict,
        group: str | None = None,
    ) -> None:
        self.settings = settings
        self.nth = nth
        self.name = group_name(settings.name, nth)
        self.group = group or self.name
        self.led = LedService(self, addresses)
        self.state = PartitionGroup()
        self.primary: Primary | None = None
        self.faults: dict[int, LoaderError] = {}
        self._watchers = Watchers()
        self.why_starting = ""
        self.desk = desk
        self.codec = desk.codec
        self._copies = copies
        self._lease_seconds = lease_seconds
        self._guard = threading.Lock()  # of the state and of what it makes news
        self._started: set[int] = set()
        self._leading: Leading | None = None
        self._peers: PeerSet | None = None
        self._policy = AT_ONCE
        self._end = NOTHING
        self._to_append: deque[_OnWay] = deque()
        self._on_way: set[_OnWay] = set()  # these too
        self._appends = trio.Event()
        self._unlocked = trio.Event()
        self._broken = ""
        self._owners = count(1)
        self._outcomes = trio.Lock()

    # ---- the state, in the feed's thread ------------------------------------------------------

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        """Takes records."""
        for index, data in batch:
            said = decode_words(data)
            with self._guard:
                self.state.apply(index, said)
                if said.name == "opened":
                    self._check_counts()
        self._settle(committed)

    def snapshot(self, out: BinaryIO) -> None:
        """Writes the state."""
        self.state.snapshot(out)

    def restore(self, source: BinaryIO, at: LogPos) -> None:
        """Takes another state."""
        state = PartitionGroup.restored(source)
        with self._guard:
            self.state = state
            self._check_counts()

    def _check_counts(self) -> None:
        wrong = self.state.wrong_counts(self.settings.partitions, self.settings.group_count)
        if wrong:
            raise GridRefused(f"map set {self.settings.name!r}: {wrong}")

    def _settle(self, safe: int) -> None:
        with self._guard:
            self._watchers.note((self.primary or self.state).settle(safe))

    # ---- leading ------------------------------------------------------------------------------

    def opened(self, epoch: int, leader: int) -> bytes | None:
        """The first record of a host that begins to lead."""
        counts = self.settings.partitions, self.settings.group_count
        grid = surroundings().random_bytes(8).hex()
        with self._guard:
            return opened_record(self.state, epoch, leader, counts, grid).encoded()

    async def serve(self, leading: Leading) -> None:
        """Serves, until this host leads no longer."""
        order = rendezvous(self.settings.name, self.nth, self._copies())
        own, copies = self.led.own_id, self.settings.replicas
        others = [each for each in order if each != own]
        now = trio.current_time()
        self._peers = PeerSet(others, copies.sync, copies.least, self._lease_seconds, now)
        self._end = self.led.feed.position.index - 1
        with self._guard:
            self.primary = Primary(self.state, leading.epoch, self.settings.bytes_max)
        self._leading, self._broken = leading, ""
        self._started.clear()
        self.faults.clear()  # of a preload that the end of the last lead has ended
        self._settle(self._end)  # the record of this host is safe, and with it all before
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._append_all, leading, nursery)
            nursery.start_soon(self._tell_outcomes)
            nursery.start_soon(self._start)
            try:
                while leading.goes_on and self.led.feed.fault is None:
                    self._look(leading)
                    if self._broken:
                        raise GridRefused(self._broken)
                    await trio.sleep(LOOK_SECONDS / 5)
            finally:
                self.stop_serving()  # loaders wait for it in threads, and the nursery for them
            nursery.cancel_scope.cancel()

    def stop_serving(self) -> None:
        """The host serves no longer: what is not known to be safe is not waited for."""
        with self._guard:
            self.primary = None
        self._leading = None
        self._started.clear()
        self.faults.clear()
        self._to_append.clear()
        waiting, self._on_way = self._on_way, set()
        for each in waiting:
            each.done.set()
        self._wake_locks()

    async def _start(self) -> None:
        """Runs open transactions again, then fills maps; what a host that comes to lead does
        first (E-56 to E-59)."""
        primary = self._primary()
        for each in self.state.undecided():
            recover = partial(self.desk.recover, each.partition, each.tx, each.changes)
            while True:
                try:
                    is_committed = await in_thread(recover)
                    break
                except LoaderError as error:
                    self.why_starting = str(error)
                    _logger.error("%s: its loader is asked again: %s", self.led, error)
                    await trio.sleep(RECOVERY_PAUSE_SECONDS)
            with self._guard:
                primary.decide(each, is_committed=is_committed)
        peers, wanted = self._peers, self.settings.initial_members
        assert peers is not None
        while not self.state.last_tx and (lacks := peers.lacks(wanted)):
            self.why_starting = f"it waits for {lacks} more of the hosts that have a copy"
            await trio.sleep(LOOK_SECONDS)
        self.why_starting = ""
        with suppress(OutcomeUnknown):  # as above, or the next record has them
            await self.tell_outcome()
        for partition in self.partitions:
            if self.desk.is_needed:
                await self._preload(partition)
            self._started.add(partition)

    async def _preload(self, partition: int) -> None:
        store = HostedStore(self, trio.lowlevel.current_trio_token())
        try:
            await in_thread(partial(self.desk.preload, store.session(), partition))
        except LoaderError as error:
            _logger.error("%s: partition %d does not start: %s", self.led, partition, error)
            self.faults[partition] = error

    def _look(self, leading: Leading) -> None:
        """Sees which replicas are in peer mode, and whom a commit waits for."""
        assert self._peers is not None
        level = leading.policy.level
        marks = {
            host: min(levels.get(level, NOTHING), levels.get(AckLevel.APPENDED, NOTHING))
            for host, levels in leading.marks().items()
        }
        self._peers.look(trio.current_time(), marks, self._end)
        number, hosts = self._peers.waited()
        if not number:
            self._policy = AT_ONCE
        elif (number, hosts) != (self._policy.from_, self._policy.hosts):
            self._policy = AckPolicy(level=level, from_=number, hosts=hosts)

    async def _append_all(self, leading: Leading, nursery: trio.Nursery) -> None:
        while True:
            await self._appends.wait()
            self._appends = trio.Event()
            while self._to_append:
                taken: list[_OnWay] = []
                records: list[bytes] = []
                size = 0
                while self._to_append and len(taken) < BATCH_RECORDS and size < BATCH_BYTES:
                    taken.append(self._to_append.popleft())
                    records.append(taken[-1].written.words.encoded())
                    size += len(records[-1])
                append = partial(leading.append, records, policy=AT_ONCE)
                index = await self.led.feed.after(append)
                self._end = index
                for nth, each in enumerate(taken):
                    each.index = index - len(taken) + 1 + nth  # one append is of one cycle
                nursery.start_soon(self._finish, leading, taken, index)

    async def _finish(self, leading: Leading, taken: list[_OnWay], index: int) -> None:
        """Has what was appended become safe, and be seen."""
        await self._wait_safe(leading, index)
        await self.led.feed.reached(index)
        primary = self._primary()
        with self._guard:
            for each in taken:
                each.found = self.state.open.get(each.written.tx)
                primary.answered(each.written)
        self._settle(index)
        self.publish()
        for each in taken:
            self._on_way.discard(each)
            each.is_safe = True
            each.done.set()

    async def _wait_safe(self, leading: Leading, index: int) -> None:
        """Returns when each replica that is waited for has a record, and the queue's own policy,
        by which it is promoted, calls it safe.

        Raises:
            SteppedDown: this host leads no longer.
        """
        is_acked = False
        while not is_acked:
            with trio.move_on_after(self._lease_seconds / 4):
                is_acked = await leading.wait_acked(index, self._policy) is AckOutcome.ACKED
            if not is_acked:
                leading.check_goes_on()
                self._look(leading)
        await self.led.until_safe(leading, index)

    async def _write(self, written: WrittenTx) -> _OnWay:
        """Appends a record, and waits until it is safe and seen.

        Raises:
            OutcomeUnknown: it may be neither; with the token where it is in the log here.
        """
        self._primary()
        on_way = _OnWay(written)
        self._to_append.append(on_way)
        self._on_way.add(on_way)
        self._appends.set()
        await on_way.done.wait()
        if not on_way.is_safe:
            token = None if on_way.index == NOTHING else self.token_at(on_way.index)
            raise OutcomeUnknown(f"{self.led}: the host leads no longer", token)
        return on_way

    # ---- transactions ---------------------------------------------------------------------------

    @property
    def partitions(self) -> range:
        """The partitions of the group."""
        return range(self.nth, self.settings.partitions, self.settings.group_count)

    def new_owner(self) -> int:
        """A number for the locks of one transaction."""
        return next(self._owners)

    def check_serves(self, partition: int, *, also_starting: bool = False) -> None:
        """Does nothing where the primary of a partition is here, and answers.

        Raises:
            NotServing: it is elsewhere, or starts yet.
            GridRefused: it has not started; or it is of another group.
        """
        self._primary()
        if group_of(partition, self.settings.group_count) != self.nth:
            raise GridRefused(f"expected a partition of group {self.nth}, got {partition}")
        if partition in self.faults:
            raise GridRefused(f"partition {partition} has not started: {self.faults[partition]}")
        if partition not in self._started and not also_starting:
            why = f": {self.why_starting}" if self.why_starting else ""
            raise NotServing(f"partition {partition} is about to start here{why}")

    def _primary(self) -> Primary:
        if self.primary is None:
            raise NotServing(self.led.leader().why)
        return self.primary

    async def get(self, partition: int, name: str, key: bytes) -> GridEntry | None:
        """An entry as it was committed last, anywhere.

        Raises:
            NotServing: this host does not serve it.
            SteppedDown: it leads no longer.
        """
        await self._check_lease()
        with self._guard:
            return self._primary().get(partition, name, key)

    async def rows(self, partition: int, name: str) -> tuple[dict[bytes, GridEntry], Token]:
        """All entries of a map in a partition, as they were committed last, with their token."""
        await self._check_lease()
        with self._guard:
            return self._primary().rows(partition, name), self._token_here()

    async def _check_lease(self) -> None:
        leading = self._leading
        if leading is not None and not leading.may_read():
            await leading.read_index()

    async def lock(self, owner: int, places: Iterable[LockPlace]) -> None:
        """Takes locks for a transaction.

        Raises:
            LockTimeout: another one has one of them for too long.
            NotServing: this host serves no longer.
        """
        wanted = list(places)
        taken: LockPlace | None = None
        with trio.move_on_after(self.settings.lock_seconds):
            while (taken := self._primary().locks.take(owner, wanted)) is not None:
                await self._unlocked.wait()
        if taken is not None:
            raise LockTimeout(lock_problem(taken, self.settings.lock_seconds))

    def release(self, owner: int) -> None:
        """Gives back all locks of a transaction."""
        if self.primary is not None and self.primary.locks.release(owner):
            self._wake_locks()

    def _wake_locks(self) -> None:
        unlocked, self._unlocked = self._unlocked, trio.Event()
        unlocked.set()

    async def commit(self, owner: int, request: TxRequest, *, write_through: bool = True) -> Token:
        """Commits a transaction, and gives back its locks.

        Raises:
            Conflict, LockTimeout, GridFull, LoaderError, NotServing: nothing is committed.
            OutcomeUnknown: that is not known.
        """
        goes_through = write_through and self.desk.concerns(request.changes)
        try:
            await self.lock(owner, request.places)
            with self._guard:
                primary = self._primary()
                primary.check(request)
                written = primary.record(request, is_final=not goes_through)
            if not goes_through:
                return self.token_at((await self._write(written)).index)
            return await self._commit_through(primary, request, written)
        finally:
            self.release(owner)

    async def _commit_through(
        self, primary: Primary, request: TxRequest, written: WrittenTx
    ) -> Token:
        partition, tx = request.partition, written.tx
        await in_thread(partial(self.desk.flush, partition, tx, request.changes))
        is_over = False
        try:
            on_way = await self._write(written)
            token = self.token_at(on_way.index)
            assert on_way.found is not None
            is_over = True
            try:
                failed = await in_thread(partial(self.desk.commit, partition, tx))
            except LoaderError as error:  # it is asked again, as after a fail-over
                self._broken = str(error)
                raise OutcomeUnknown(str(error), token) from error
            with self._guard:
                primary.decide(on_way.found, is_committed=failed is None)
            if failed is not None:
                await self._tell_refused(primary, token, failed)
                raise failed
            return token
        finally:
            if not is_over:
                with trio.CancelScope(shield=True):
                    await in_thread(partial(self.desk.rollback, partition, tx))

    async def _tell_refused(self, primary: Primary, token: Token, failed: LoaderError) -> None:
        """Returns once each later primary knows that a transaction was rolled back. One that did
        not know would run it again, and the loader may take it then.

        Raises:
            OutcomeUnknown: this host leads no longer.
        """
        try:
            if self.primary is primary:  # else it has led anew, and runs it again itself
                await self.tell_outcome()
                return
            why = "the host has led anew"
        except (NotServing, OutcomeUnknown) as error:
            why = str(error)
        raise OutcomeUnknown(f"{failed}; {why}", token) from failed

    async def tell_outcome(self) -> Token | None:
        """Writes the outcomes that no record has carried; None where there are none."""
        async with self._outcomes:
            with self._guard:
                told = self._primary().outcome()
            return None if told is None else self.token_at((await self._write(told)).index)

    async def _tell_outcomes(self) -> None:
        while True:
            await trio.sleep(self.settings.outcome_seconds)
            with suppress(OutcomeUnknown):  # the host leads no longer: the next one finds out
                await self.tell_outcome()

    def token_at(self, index: int) -> Token:
        """The token of the transaction whose record has this index."""
        epoch = self.state.epoch_at(index)
        return Token(self.settings.name, self.state.grid, self.nth, epoch or 0, index)

    def _token_here(self) -> Token:
        """The token of the last record that is safe, and that the state has."""
        return self.token_at(min(self.state.safe, self.led.feed.position.index - 1))

    # ---- reads at any copy -----------------------------------------------------------------------

    def get_here(self, partition: int, name: str, key: bytes) -> GridEntry | None:
        """An entry as this copy has it."""
        self._settle(self.led.feed.committed())
        with self._guard:
            return self.state.get(partition, name, key)

    def rows_here(self, partition: int, name: str) -> tuple[dict[bytes, GridEntry], Token]:
        """All entries of a map in a partition as this copy has them, with their token."""
        self._settle(self.led.feed.committed())
        with self._guard:
            rows = dict(self.state.partitions.get(partition, {}).get(name, {}))
            return rows, self._token_here()

    async def wait_token(self, token: Token, seconds: float) -> bool:
        """Waits until this copy shows the transaction of a token; false where its outcome is not
        known here yet: the primary is to tell it.

        Raises:
            TokenLost: it is in no log.
            TokenTimeout: this copy is not so far within that time.
            GridRefused: the token is of another grid.
        """
        until = trio.current_time() + seconds
        while True:
            self._settle(self.led.feed.committed())
            with self._guard:
                if self.state.grid:
                    token.check(self.settings.name, self.state.grid)
                is_here = self.state.safe >= token.index < self.led.feed.position.index
                self.state.check_epoch(token, is_here=is_here)
                if is_here:
                    return not self.state.is_open(token.index)
            if trio.current_time() >= until:
                wanted = f"{self.led}: expected host {self.led.own_id} to have {token}"
                raise TokenTimeout(f"{wanted} within {seconds:g} s, got {self.state.safe:x}")
            await trio.sleep(TOKEN_PAUSE_SECONDS)

    # ---- the rest ------------------------------------------------------------------------------

    def watch(
        self, partition: int, name: str, watcher: Watcher
    ) -> tuple[dict[bytes, GridEntry], Token]:
        """As `rows_here`; from then on a watcher is told of each transaction that is not in it."""
        self._settle(self.led.feed.committed())
        with self._guard:
            rows = dict(self.state.partitions.get(partition, {}).get(name, {}))
            self._watchers.add(watcher)
            return rows, self._token_here()

    def publish(self) -> None:
        """Tells watchers what is seen from now on. In the event loop."""
        with self._guard:
            told = self._watchers.take()
        for watcher, tx in told:
            watcher.tell(tx)

    async def follow(self) -> None:
        """Looks what is safe by now, for as long as there is a watcher."""
        while True:
            if self._watchers and self.led.has_begun:
                self._settle(self.led.feed.committed())
                self.publish()
            await trio.sleep(WATCH_SECONDS if self._watchers else LOOK_SECONDS)

    def _state_word(self) -> str:
        """The state of the group here, for people: degraded, where it has fewer copies that are in
        peer mode than it is to have."""
        if self.led.has_begun and self.led.fault is not None:
            return "ended"
        if self.primary is None or self._peers is None:
            return "replica"
        if len(self._started) < len(self.partitions):
            return "failed" if self.faults else "starting"
        wanted = self.settings.replicas.sync + self.settings.replicas.others
        return "primary" if len(self._peers.peers) >= wanted else "primary, degraded"

    def fields(self) -> dict[str, object]:
        """Those of the group in the status of its host."""
        fault = self.led.fault
        with self._guard:
            partitions = self.state.partitions.values()
            entries = sum(len(rows) for maps in partitions for rows in maps.values())
            peers = self._peers if self.primary is not None else None
            return {
                "grid": self.settings.name,
                "group": self.nth,
                "serves": self.led.is_serving,
                "state": self._state_word(),
                "partitions": len(self.partitions),
                "started": len(self._started),
                "entries": entries,
                "bytes": self.state.size,
                "open": len(self.state.open),
                "peers": [] if peers is None else list(peers.peers),
                "waitsFor": [] if peers is None else peers.missing,
                "faults": {str(each): str(error) for each, error in self.faults.items()},
                "fault": None if fault is None else str(fault),
            }


def group_name(map_set: str, nth: int) -> str:
    """The queue that is the log of a group."""
    return f"{map_set}-{nth}"
