"""The state of all storages of a group, which the records of its log make. It knows no clock.

Theory of operation. For each item the table has the index of the excerpt that holds it, 8 bytes;
the item itself is read from the log. Records are applied in the order of the log, on each host. One
that was taken before has no effect: its logical index is below the next one, or its generation is
an older one. One that does not follow what is there, as the one before is missing, is *damage*: the
storage takes nothing more, and later records of it are held, until it has been told by the host
that leads what it lacks (`storage.syncwords`). A reset makes any storage whole: nothing before
counts then.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

from cqrepl.persist.errors import Gone
from cqrepl.persist.storage.records import INDEX_FIRST, Op, StorageKind, StorageRecord

HELD_MAX: Final = 100_000  # records of one damaged storage; beyond, it asks once more
_MAGIC: Final = b"cqrepl storages 1\n"
_COUNT: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<qBqqqqIIQ")  # id, kind, gen, at, epoch, first, name, damage, refs
_KINDS: Final = (StorageKind.QUEUE, StorageKind.SEQUENCE)
_ADDS: Final = {StorageKind.QUEUE: Op.ADD, StorageKind.SEQUENCE: Op.APPEND}


class Held(NamedTuple):
    """A record of a damaged storage, and the index of its excerpt."""

    ref: int
    record: StorageRecord


@dataclass(slots=True)
class Storage:
    """One storage.

    Args:
        gen: so many resets there were.
        at: the time of the last one, ms since 1970; 0 for none.
        epoch: that the host led in which wrote its last record.
        first: the logical index of the first item that is there.
        damage: why it takes no more; empty where it does.
        asked: the host that leads has been asked for what is missing.
        since: of a damaged one, it had all before this excerpt; -1 where that is not known.
    """

    id: int
    kind: StorageKind
    name: str
    gen: int = 0
    at: int = 0
    epoch: int = 0
    first: int = INDEX_FIRST
    damage: str = ""
    asked: bool = False
    since: int = 0
    held: list[Held] = field(default_factory=list)
    _refs: "array[int]" = field(default_factory=lambda: array("q"))
    _gone: int = 0  # entries of the array that were removed

    def __len__(self) -> int:
        return len(self._refs) - self._gone

    @property
    def next(self) -> int:
        """The logical index of the next item."""
        return self.first + len(self)

    def refs(self, first: int, last: int) -> "array[int]":
        """The indexes of the excerpts of these items, which have to be there."""
        assert self.first <= first
        assert last < self.next
        begin = self._gone + first - self.first
        return self._refs[begin : begin + last - first + 1]

    def check(self, *indexes: int) -> None:
        """Raises:
        Gone: one of these items is not there.
        """
        for each in indexes:
            if not self.first <= each < self.next:
                raise Gone(self.name, each, self.first, self.next)

    def add_ref(self, ref: int) -> None:
        """Takes an item."""
        self._refs.append(ref)

    def add_refs(self, refs: "array[int]") -> None:
        """Takes several."""
        self._refs += refs

    def set_ref(self, index: int, ref: int) -> None:
        """Says where an item stands now."""
        self._refs[self._gone + index - self.first] = ref

    def remove(self, up_to: int) -> None:
        """Items up to this index go."""
        count = up_to + 1 - self.first
        assert 0 <= count <= len(self)
        self.first += count
        self._gone += count
        if self._gone > len(self._refs) // 2:
            del self._refs[: self._gone]
            self._gone = 0

    def clear(self, gen: int, at: int, first: int) -> None:
        """All items go: a reset."""
        self.gen, self.at, self.first = gen, at, first
        self._refs, self._gone = array("q"), 0

    def copy(self) -> "Storage":
        """The same, of which nothing changes."""
        found = Storage(self.id, self.kind, self.name, self.gen, self.at, self.epoch, self.first)
        found.damage, found.asked = self.damage, self.asked
        found._refs = self._refs[self._gone :]
        return found

    def lowest(self) -> int | None:
        """The lowest index of an excerpt that holds an item; None without items."""
        return min(self._refs[self._gone :], default=None)


class Applied(NamedTuple):
    """The effect of a record.

    Args:
        storage: it was about this one; None for none.
        refused: why it had no effect; empty where it had one, or was there before.
        is_news: the storage is damaged from now on.
    """

    storage: Storage | None = None
    refused: str = ""
    is_news: bool = False


class StorageTable:
    """All of them, by their ids. One thread at a time."""

    def __init__(self) -> None:
        self.storages: dict[int, Storage] = {}

    def apply(self, ref: int, record: StorageRecord) -> Applied:
        """Takes one record.

        Args:
            ref: the index of its excerpt.
        """
        storage = self.storages.get(record.id)
        if storage is None:
            if record.op is Op.CREATE:
                made = Storage(record.id, record.kind, record.name, epoch=record.epoch)
                self.storages[record.id] = made
                return Applied(made)
            storage = self.storages[record.id] = Storage(record.id, record.kind, "")
            return self.damage(storage, f"expected its CREATE, got {record.op.value}", ref, record)
        if record.op is Op.CREATE:
            return self._create_again(storage, record)
        if storage.damage and not (record.op is Op.RESET and record.gen > storage.gen):
            self._hold(storage, ref, record)
            return Applied(storage, storage.damage)
        return self._apply(storage, ref, record)

    def damage(
        self, storage: Storage, why: str, ref: int, record: StorageRecord | None = None
    ) -> Applied:
        """The storage takes nothing more from this excerpt on."""
        is_news = not storage.damage
        if is_news:
            storage.damage, storage.asked, storage.since = why, False, ref
            storage.held.clear()
        if record is not None:
            self._hold(storage, ref, record)
        return Applied(storage, why, is_news)

    def repair(self, synced: Storage, pos: int) -> None:
        """Puts a storage in the place of the damaged one, then applies what was held.

        Args:
            pos: it is as of this excerpt, which it has not.
        """
        old = self.storages.get(synced.id)
        self.storages[synced.id] = synced
        for each in [] if old is None else old.held:
            if each.ref >= pos:
                self.apply(each.ref, each.record)

    def lowest(self) -> int | None:
        """The lowest index of an excerpt that holds an item; None where there is no item."""
        found = (each.lowest() for each in self.storages.values())
        return min((each for each in found if each is not None), default=None)

    @staticmethod
    def _hold(storage: Storage, ref: int, record: StorageRecord) -> None:
        if len(storage.held) >= HELD_MAX:  # what it was told by then is of no use
            storage.held.clear()
            storage.asked = False
        storage.held.append(Held(ref, record))

    @staticmethod
    def _create_again(storage: Storage, record: StorageRecord) -> Applied:
        if (storage.kind, storage.name) == (record.kind, record.name):
            return Applied(storage)
        got = f"got {record.kind} {record.name!r}"
        return Applied(storage, f"expected {storage.kind} {storage.name!r}, {got}")

    def _apply(self, storage: Storage, ref: int, record: StorageRecord) -> Applied:
        if record.op is Op.RESET:
            if record.gen > storage.gen:
                storage.clear(record.gen, record.at, record.index)
                storage.damage, storage.epoch = "", record.epoch
                storage.held.clear()
            return Applied(storage)
        if record.gen < storage.gen:
            return Applied(storage)  # a reset has taken it
        if record.gen > storage.gen:
            got = f"got {record.gen}"
            return self.damage(storage, f"expected generation {storage.gen}, {got}", ref, record)
        if record.op is Op.KEEP:
            if storage.first <= record.index < storage.next:
                storage.set_ref(record.index, ref)
            return Applied(storage)
        if record.op is Op.REMOVE:
            return self._remove(storage, ref, record)
        if record.op is not _ADDS[storage.kind]:
            why = f"expected {_ADDS[storage.kind].value}, got {record.op.value}"
            return self.damage(storage, why, ref)
        if record.index > storage.next:
            why = f"expected index {storage.next}, got {record.index}"
            return self.damage(storage, why, ref, record)
        if record.index == storage.next:
            storage.add_ref(ref)
            storage.epoch = record.epoch
        return Applied(storage)

    def _remove(self, storage: Storage, ref: int, record: StorageRecord) -> Applied:
        if record.index >= storage.next:
            why = f"expected to remove up to {storage.next - 1}, got {record.index}"
            return self.damage(storage, why, ref, record)
        if record.index >= storage.first:
            storage.remove(record.index)
            storage.epoch = record.epoch
        return Applied(storage)

    def snapshot(self, out: BinaryIO) -> None:
        """Writes every storage."""
        out.write(_MAGIC + _COUNT.pack(len(self.storages)))
        for number in sorted(self.storages):
            each = self.storages[number]
            name, damage = each.name.encode(), each.damage.encode()
            kind = _KINDS.index(each.kind)
            head = (each.id, kind, each.gen, each.at, each.epoch, each.first)
            out.write(_HEAD.pack(*head, len(name), len(damage), len(each)) + name + damage)
            out.write(each.refs(each.first, each.next - 1).tobytes())

    def restore(self, source: BinaryIO) -> None:
        """Takes what a snapshot has written; nothing for an empty one.

        Raises:
            ValueError: it is none.
        """
        self.storages = {each.id: each for each in _read(source)}


def table_of(storages: Iterable[Storage]) -> StorageTable:
    """A table of these."""
    table = StorageTable()
    table.storages = {each.id: each for each in storages}
    return table


def _read(source: BinaryIO) -> Iterator[Storage]:
    magic = source.read(len(_MAGIC))
    if not magic:
        return
    if magic != _MAGIC:
        raise ValueError(f"expected the state of storages, got {magic!r}")
    for _ in range(_COUNT.unpack(source.read(_COUNT.size))[0]):
        head = _HEAD.unpack(source.read(_HEAD.size))
        id_, kind, gen, at, epoch, first, name_bytes, damage_bytes, count = head
        name, damage = source.read(name_bytes).decode(), source.read(damage_bytes).decode()
        storage = Storage(id_, _KINDS[kind], name, gen, at, epoch, first, damage)
        storage.since = -1 if damage else 0
        storage._refs.frombytes(source.read(8 * count))
        yield storage
