"""The storages of one group on one host: the state on each, and the writer on the one that leads.

Theory of operation. A writer's thread gives a record its numbers and appends it under one lock, so
the order of the numbers is that of the log; it waits without the lock. A wait that passes says only
that it is not known whether a backup has the item: it stays. Where an append has failed in a way
that leaves unknown whether it has landed, nothing more is numbered until the state has all of the
log (`Numberer`). A host that comes to lead writes no first record: Java's engines, which write
their own logs, do not either.

Items stay in the log, so no store file goes that holds one. What is to be kept is said to the queue
as that of a registered reader: the lowest excerpt that the last three saved states need. The host
that leads writes items of old files again (`KEEP`) where they are few.
"""

import logging
import threading
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO, Final

import trio

from cqrepl.kernel.interface import AckLevel
from cqrepl.net.errors import Refused
from cqrepl.net.threads import in_thread
from cqrepl.persist.errors import Gone, NotLeader, StorageDamaged
from cqrepl.persist.storage.compaction import compact
from cqrepl.persist.storage.logreader import LogReader
from cqrepl.persist.storage.records import StorageRecord, decode_record, id_in
from cqrepl.persist.storage.storagecore import WrittenRecord
from cqrepl.persist.storage.storagenumbers import Head, Numberer, head_of
from cqrepl.persist.storage.storagetable import Storage, StorageTable
from cqrepl.protocol import AckPolicy
from cqrepl.protocol.ackpolicy import PRESETS, OnTimeout
from cqrepl.queue import ExcerptBatch, ExcerptTooLarge, Queue, QueueError, QueueLocked
from cqrepl.queue.format.logpos import LogPos
from cqrepl.queue.read.registration import Readers
from cqrepl.replicator.followfeed import FollowFeed, ServiceFailed
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, Leading, SteppedDown
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.service.ledservice import AT_ONCE, LedService
from cqrepl.surroundings import surroundings
from wire import WireError

READER: Final = "storages"
SAVES_MIN: Final = 100  # records between two states that are saved as items have gone
_LOOK_SECONDS: Final = 0.25
_STATES: Final = 3  # two that are kept, and one that waits for its name
_READ_SECONDS: Final = 10.0  # until the state has what this host has written
_SYNCHRONOUS: Final = PRESETS["persist-synchronous"]
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """The settings of the storages of one group.

    Args:
        group: the queue that is their log.
        own_log: an engine writes the log itself: nothing is written here, and no file goes.
        timeout_seconds: of storages that are given none; 0: they are asynchronous.
        compact_seconds: the host that leads looks so often for old store files with few items.
        age_min_ms: so old is a store file at least whose items are written again.
    """

    group: str
    own_log: bool = False
    timeout_seconds: float = 0.0
    compact_seconds: float = 60.0
    age_min_ms: int = 24 * 3_600_000


@dataclass(slots=True, eq=False)
class _Lead:
    """The time in which this host leads.

    Args:
        is_unsure: it is not known whether an append has landed.
    """

    leading: Leading
    numbering: Numberer
    is_unsure: bool = False


class StorageService:
    """All storages of one group; it is a `GroupService`, and a `StorageCore`.

    Args:
        addresses: of hosts, where clients reach them, by their ids.

    Attributes:
        table: the state; under `guard`.
        position: the index of the first excerpt that is not in the state; under `guard`.
        timeouts: seconds that writes wait for backups, by the ids of storages that were opened.
    """

    sort = "persist"
    waits_for_first = False

    def __init__(
        self, settings: StorageSettings, addresses: Callable[[], dict[int, str]] = dict
    ) -> None:
        self.name = self.group = settings.group
        self.settings = settings
        self.led = LedService(self, addresses)
        self.table = StorageTable()
        self.guard = threading.Condition()
        self.position = 0
        self.unknown_waits = 0
        self.timeouts: dict[int, float] = {}
        self._writing = threading.Lock()  # before `guard`, where both are held
        self._lead: _Lead | None = None
        self._reader: LogReader | None = None
        self._floors: deque[int] = deque(maxlen=_STATES)
        self._saved_records = 0
        self._holds_files = False
        self._policies: dict[float, AckPolicy] = {}

    # ---- the state, in the feed's thread ------------------------------------------------------

    def apply(self, batch: ExcerptBatch, committed: int) -> None:
        """Takes records; what cannot be read damages the storage that it is of."""
        if not self._holds_files:
            self._hold_files()
        for index, data in batch:
            try:
                record = decode_record(data, with_item=False)
            except WireError as error:
                self._unreadable(index, data, error)
                continue
            with self.guard:
                applied = self.table.apply(index, record)
                self.position = index + 1
            if applied.refused and (applied.is_news or applied.storage is None):
                self._note_damage(applied.storage, index, applied.refused)
        with self.guard:
            self.position = batch.index_last + 1
            self.guard.notify_all()

    def snapshot(self, out: BinaryIO) -> None:
        """Writes the state."""
        self.table.snapshot(out)
        self._saved_records = self.led.feed.records
        with self.guard:
            storages = self.table.storages.values()
            is_whole = not any(each.damage and not each.asked for each in storages)
            lowest = self.table.lowest()
        if is_whole:  # what another host says of a damaged one may stand anywhere
            self._floors.append(self.position if lowest is None else lowest)
        self._hold_files()

    def restore(self, source: BinaryIO, at: LogPos) -> None:
        """Takes another state."""
        with self.guard:
            self.table.restore(source)
            self.position = at.index
            self._floors.clear()
            self.guard.notify_all()
        self._hold_files()

    def _hold_files(self) -> None:
        """Tells the queue which store files hold items."""
        with suppress(QueueError, OSError), Queue.open(self.led.feed.path) as queue:
            readers = Readers(queue.cycles)
            readers.register(READER)
            self._holds_files = True
            if len(self._floors) == _STATES and not self.settings.own_log:
                readers.advance(READER, min(self._floors))

    def _unreadable(self, index: int, data: memoryview | bytes, error: WireError) -> None:
        with self.guard:
            storage = self.table.storages.get(id_in(data))
            if storage is not None:
                self.table.damage(storage, str(error), index)
        self._note_damage(storage, index, str(error))

    def _note_damage(self, storage: Storage | None, index: int, why: str) -> None:
        name = "of no storage that is known" if storage is None else f"of {storage.name!r}"
        number = "" if storage is None else f", id {storage.id:#x}"
        told = "%s: a record %s%s cannot be taken, excerpt %#x: %s"
        _logger.error(told, self.led, name, number, index, why)

    # ---- the lead -------------------------------------------------------------------------------

    def opened(self, epoch: int, leader: int) -> None:
        """A host that begins to lead writes no record."""

    async def serve(self, leading: Leading) -> None:
        """Takes appends, until this host leads no longer."""
        await in_thread(self._drain)
        await self.led.catch_up()
        self._lead = lead = _Lead(leading, Numberer(self._stored, leading.epoch))
        looked_at = trio.current_time()
        while leading.goes_on and not (self.led.fault or lead.is_unsure):
            await trio.sleep(_LOOK_SECONDS)
            if trio.current_time() - looked_at >= self.settings.compact_seconds:
                looked_at = trio.current_time()
                with suppress(NotLeader, QueueError, OSError):
                    await in_thread(partial(compact, self, self.led.feed.path))

    def stop_serving(self) -> None:
        """Nothing is appended any more."""
        self._lead = None

    def _drain(self) -> None:
        """Returns once no append of an earlier lead is under way: the next one is refused."""
        with self._writing:
            assert self._lead is None

    async def save_when_due(self) -> None:
        """Saves the state where much of the log says nothing of what is there now, so that a host
        that starts reads little. Runs until it is cancelled."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            if self.led.has_begun and self.led.fault is None:
                with suppress(ServiceFailed, QueueError, OSError):
                    await self._save_if_due(self.led.feed)

    async def _save_if_due(self, feed: FollowFeed) -> None:
        with self.guard:
            live = sum(len(each) for each in self.table.storages.values())
        if feed.records - self._saved_records >= max(SAVES_MIN, live):
            await feed.save()  # or it gives the last one its name

    def _stored(self, id_: int) -> Storage | None:
        with self.guard:
            return self.table.storages.get(id_)

    def leads(self) -> bool:
        """True while appends are taken."""
        return self._lead is not None and not self.settings.own_log

    def appliers(self, pos: int) -> str:
        """The ids of the hosts that have applied all before an excerpt, with blanks between."""
        lead = self._lead
        marks = {} if lead is None else lead.leading.marks()
        hosts = [each for each, at in marks.items() if at.get(AckLevel.APPLIED, -1) >= pos - 1]
        return " ".join(map(str, sorted(hosts)))

    def note_timeout(self, id_: int, timeout_s: float) -> None:
        """A program has opened a storage."""
        self.timeouts[id_] = timeout_s

    def why_not(self) -> NotLeader:
        """The error of an append here, which names the host that leads."""
        if not self.led.has_begun:
            return NotLeader(f"{self.led}: it has not begun on this host")
        if self.settings.own_log:
            return NotLeader(f"{self.led}: an engine writes this log itself")
        leader, where, why = self.led.leader()
        return NotLeader(f"{why}, at {where}" if where else why, leader, where)

    # ---- writing and reading, in threads --------------------------------------------------------

    def write(self, make: Callable[[Numberer], StorageRecord | None]) -> WrittenRecord | None:
        """Appends the record that `make` numbers; None where it makes none.

        Raises:
            NotLeader: this host does not lead, or leads no longer.
            QueueError, OSError: it could not be appended, or that is not known.
            PersistError, ValueError: as `make`.
        """
        with self._writing:
            lead = self._lead
            if lead is None or lead.is_unsure or self.settings.own_log:
                raise self.why_not()
            record = make(lead.numbering)
            if record is None:
                return None
            data = record.encoded()
            try:
                ref = lead.leading.append([data], policy=AT_ONCE)
            except ExcerptTooLarge as error:  # nothing was written
                raise ValueError(str(error)) from error
            except BaseException as error:
                lead.is_unsure = True
                if isinstance(error, SteppedDown | QueueLocked | Refused):
                    raise self._not_leader(error) from error
                raise
            lead.numbering.take(record, ref)
            return WrittenRecord(record, ref, lead.leading)

    def settle(self, written: WrittenRecord, name: str, timeout_s: float) -> bool:
        """Waits until so many backups have applied a record as the group's policy says; False where
        the time is over, which is logged.

        Raises:
            NotLeader: this host leads no longer, and it is not known whether hosts have it.
        """
        try:
            leading = written.leading
            assert leading is not None
            outcome = leading.wait(written.ref, self._policy(leading, timeout_s))
        except AckUnknown:
            return self._warn(written, name, timeout_s)
        except WaitEnded as error:
            raise self._not_leader(error) from error
        return self._settled(outcome)

    async def settle_task(self, written: WrittenRecord, name: str, timeout_s: float) -> bool:
        """The same in a task."""
        leading = written.leading
        assert leading is not None
        try:
            outcome = await leading.wait_acked(written.ref, self._policy(leading, timeout_s))
        except AckUnknown:
            return self._warn(written, name, timeout_s)
        except WaitEnded as error:
            raise self._not_leader(error) from error
        return self._settled(outcome)

    def _settled(self, outcome: AckOutcome) -> bool:
        if outcome is AckOutcome.STEPPED_DOWN:
            why = self.why_not()
            text = f"{why}; it is not known whether hosts have what was written"
            raise NotLeader(text, why.leader, why.where)
        return outcome is AckOutcome.ACKED

    def _warn(self, written: WrittenRecord, name: str, timeout_s: float) -> bool:
        self.unknown_waits += 1
        told = "%s: no backup is known to have index %d of storage %r after %g ms"
        _logger.warning(told, self.led, written.record.index, name, timeout_s * 1000)
        return False

    def _not_leader(self, error: Exception) -> NotLeader:
        why = self.why_not()
        return NotLeader(f"{why}: {error}", why.leader, why.where)

    def _policy(self, leading: Leading, timeout_s: float) -> AckPolicy:
        found = self._policies.get(timeout_s)
        if found is None:
            given = leading.given
            base = given if given is not None and given.hosts_min != 0 else _SYNCHRONOUS
            found = self._policies[timeout_s] = replace(
                base, timeout_seconds=timeout_s, on_timeout=OnTimeout.FAIL, window=None
            )
        return found

    def head(self, id_: int) -> Head | None:
        """The numbers of a storage, with all that this host has written; None where there is none.

        Raises:
            StorageDamaged: it takes no more.
        """
        with self._writing:
            if self._lead is not None and not self._lead.is_unsure:
                return self._lead.numbering.head(id_)
            storage = self._stored(id_)
            return None if storage is None else head_of(storage)

    def unasked(self) -> list[Storage]:
        """The damaged storages that no host was asked for."""
        with self.guard:
            return [e for e in self.table.storages.values() if e.damage and not e.asked]

    def heads(self) -> list[Storage]:
        """Copies of all storages, without what is on its way."""
        with self.guard:
            return [each.copy() for each in self.table.storages.values()]

    def read(self, id_: int, first: int, last: int) -> list[bytes]:
        """Items of a storage, by their logical indexes. In a thread: waits until the state has all
        that this host has written.

        Raises:
            Gone: one of them is not there.
            QueueError, OSError: the log cannot be read.
        """
        head = self.head(id_)
        if head is not None and head.ref >= 0:
            with self.guard:
                has_all = self.guard.wait_for(lambda: self.position > head.ref, _READ_SECONDS)
            if not has_all:  # an item that is not there yet is no item that has gone
                late = f"got none within {_READ_SECONDS:g} s"
                raise QueueError(f"{self.led}: expected a state with excerpt {head.ref:#x}, {late}")
        return self.read_here(id_, first, last)

    async def read_task(self, id_: int, first: int, last: int) -> list[bytes]:
        """The same in a task."""
        head = self.head(id_)
        if head is not None and head.ref >= 0:
            await self.led.feed.reached(head.ref)
        return await in_thread(partial(self.read_here, id_, first, last))

    def read_here(self, id_: int, first: int, last: int) -> list[bytes]:
        """The same of what the state has now."""
        for attempt in range(2):  # an item may be kept elsewhere by now
            refs, name = self._refs(id_, first, last)
            try:
                found = self._log().read(refs)
            except QueueError:
                if attempt:
                    raise
                continue
            return [item_of(data, id_, first + nth, name) for nth, data in enumerate(found)]
        raise AssertionError("the last attempt gives or raises")

    def _refs(self, id_: int, first: int, last: int) -> "tuple[array[int], str]":
        with self.guard:
            storage = self.table.storages.get(id_)
            if storage is None:
                raise Gone(f"{id_:#x}", first, 1, 1)
            storage.check(first, last)
            return storage.refs(first, last), storage.name

    def _log(self) -> LogReader:
        with self.guard:
            if self._reader is None:
                self._reader = LogReader(self.led.feed.path)
            return self._reader

    def live_below(self, ref: int) -> list[tuple[int, int, int, int]]:
        """The id, generation, logical index and excerpt of each item that stands below one."""
        with self.guard:
            return [
                (each.id, each.gen, each.first + nth, at)
                for each in self.table.storages.values()
                if not each.damage
                for nth, at in enumerate(each.refs(each.first, each.next - 1))
                if at < ref
            ]

    @property
    def age_min_ms(self) -> int:
        """So old is a store file at least whose items are written again."""
        return self.settings.age_min_ms

    def now(self) -> int:
        """The time of a reset, ms since 1970."""
        return surroundings().wall_ms()

    def close(self) -> None:
        """Lets go of the files that items are read from."""
        if self._reader is not None:
            self._reader.close()

    def fields(self) -> dict[str, object]:
        """The fields of the storages in the status of their host."""
        fault = self.led.fault
        with self.guard:
            storages = self.table.storages.values()
            return {
                "persist": self.name,
                "serves": self.led.is_serving,
                "storages": len(storages),
                "items": sum(len(each) for each in storages),
                "damaged": sum(bool(each.damage) for each in storages),
                "unacknowledged": self.unknown_waits,
                "fault": None if fault is None else str(fault),
            }


def item_of(data: bytes, id_: int, index: int, name: str) -> bytes:
    """The item of a record, which has to be that one."""
    try:
        record = decode_record(data)
    except WireError as error:
        raise StorageDamaged(f"storage {name!r}, index {index}: {error}") from error
    if (record.id, record.index) != (id_, index) or record.item is None:
        got = f"got {record.op.value} with index {record.index} of {record.id:#x}"
        raise StorageDamaged(f"storage {name!r}: expected the record of index {index}, {got}")
    return record.item
