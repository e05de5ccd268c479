"""The records that the host writes that leads: which logical index, generation and id come next.

Theory of operation. A leader's state has all that its log had when it came to lead. What it has
written since may not be in the state yet, so the numbers of each storage that it writes to are kept
here from its first record on (`Head`). They come from the log alone: with each time that the host
comes to lead, or does not know whether an append has landed, there is a new `Numberer`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cqrepl.persist.errors import Gone, OtherKind, StorageDamaged
from cqrepl.persist.storage.records import (
    INDEX_FIRST,
    ITEM_MAX,
    NUMBER_MAX,
    Op,
    StorageKind,
    StorageRecord,
    check_storage_name,
    correlation_id,
)
from cqrepl.persist.storage.storagetable import Storage


@dataclass(slots=True)
class Head:
    """The numbers of one storage.

    Args:
        first, next: logical indexes of the first item that is there, and of the next one.
        ref: the index of the excerpt of its last record here; -1 for none.
    """

    id: int
    kind: StorageKind
    name: str
    gen: int = 0
    at: int = 0
    first: int = INDEX_FIRST
    next: int = INDEX_FIRST
    ref: int = -1

    def __len__(self) -> int:
        return self.next - self.first


def head_of(storage: Storage, *, is_reset: bool = False) -> Head:
    """The numbers that a storage has.

    Args:
        is_reset: for a reset, which makes it whole.

    Raises:
        StorageDamaged: it takes no more.
    """
    if storage.damage and not is_reset:
        raise StorageDamaged(f"storage {storage.name!r} (id {storage.id:#x}): {storage.damage}")
    return Head(
        storage.id,
        storage.kind,
        storage.name,
        storage.gen,
        storage.at,
        storage.first,
        storage.next,
    )


class Numberer:
    """The numbers of one group while its host leads. The service's lock is held for each call.

    Args:
        look_up: the storage of an id in the state; None where there is none.
        epoch: that the host leads in.
    """

    def __init__(self, look_up: Callable[[int], Storage | None], epoch: int) -> None:
        self._look_up = look_up
        self._epoch = epoch
        self._heads: dict[int, Head] = {}

    def head(self, id_: int) -> Head | None:
        """The numbers of a storage; None where there is none.

        Raises:
            StorageDamaged: it takes no more.
        """
        head, storage = self._heads.get(id_), self._look_up(id_)
        is_reset = head is not None and storage is not None and head.gen > storage.gen
        if storage is not None and (head is None or (storage.damage and not is_reset)):
            head = self._heads[id_] = head_of(storage)
        return head

    def create(self, kind: StorageKind, name: str) -> StorageRecord | None:
        """None where it is there.

        Raises:
            OtherKind: its name, or one with the same id, is that of another storage.
            ValueError: it is no name.
        """
        check_storage_name(name)
        id_ = correlation_id(name)
        head = self.head(id_)
        if head is None:
            return StorageRecord(op=Op.CREATE, id=id_, epoch=self._epoch, kind=kind, name=name)
        check_same(head, kind, name)
        return None

    def append(self, id_: int, item: bytes) -> StorageRecord:
        """Raises:
        ValueError: the item is too long.
        """
        if len(item) > ITEM_MAX:
            raise ValueError(f"expected an item of at most {ITEM_MAX} bytes, got {len(item)}")
        head = self._known(id_)
        op = Op.ADD if head.kind is StorageKind.QUEUE else Op.APPEND
        return self._record(op, head, head.next, item=item)

    def remove(self, id_: int, up_to: int) -> StorageRecord | None:
        """None where these are gone.

        Raises:
            Gone: they are yet to come.
            OtherKind: it is no queue.
        """
        head = self._known(id_)
        if head.kind is not StorageKind.QUEUE:
            raise OtherKind(f"expected a queue, got the {head.kind} {head.name!r}")
        if up_to >= head.next:
            raise Gone(head.name, up_to, head.first, head.next)
        return None if up_to < head.first else self._record(Op.REMOVE, head, up_to)

    def reset(self, id_: int, next_index: int, now: int) -> StorageRecord:
        """Raises:
        OtherKind: it is no sequence.
        ValueError: `next_index` is no index.
        """
        head, storage = self._heads.get(id_), self._look_up(id_)
        if head is None and storage is not None:
            head = self._heads[id_] = head_of(storage, is_reset=True)
        assert head is not None, "a storage is created first"
        if head.kind is not StorageKind.SEQUENCE:
            raise OtherKind(f"expected a sequence, got the {head.kind} {head.name!r}")
        if not INDEX_FIRST <= next_index <= NUMBER_MAX:
            expected = f"expected an index from {INDEX_FIRST} to {NUMBER_MAX}"
            raise ValueError(f"{expected}, got {next_index}")
        return self._record(Op.RESET, head, next_index, gen=head.gen + 1, at=now)

    def keep(self, id_: int, index: int, gen: int, item: bytes) -> StorageRecord:
        """An item once more, of which nothing changes but where it stands."""
        return StorageRecord(op=Op.KEEP, id=id_, index=index, gen=gen, epoch=self._epoch, item=item)

    def take(self, record: StorageRecord, ref: int) -> None:
        """A record that is in the log now."""
        if record.op is Op.CREATE:
            self._heads[record.id] = Head(record.id, record.kind, record.name, ref=ref)
            return
        if record.op is Op.KEEP:
            return  # it changes no number
        head = self._heads[record.id]
        head.ref = ref
        if record.op in (Op.ADD, Op.APPEND):
            head.next = record.index + 1
        elif record.op is Op.REMOVE:
            head.first = record.index + 1
        elif record.op is Op.RESET:
            head.gen, head.at = record.gen, record.at
            head.first = head.next = record.index

    def _known(self, id_: int) -> Head:
        head = self.head(id_)
        assert head is not None, "a storage is created first"
        return head

    def _record(
        self,
        op: Op,
        head: Head,
        index: int,
        *,
        gen: int | None = None,
        at: int = 0,
        item: bytes | None = None,
    ) -> StorageRecord:
        return StorageRecord(
            op=op,
            id=head.id,
            index=index,
            gen=head.gen if gen is None else gen,
            epoch=self._epoch,
            at=at,
            item=item,
        )


def check_same(head: Head, kind: StorageKind, name: str) -> None:
    """Raises:
    OtherKind: it is another storage.
    """
    if (head.kind, head.name) != (kind, name):
        raise OtherKind(f"expected a {kind} {name!r}, got the {head.kind} {head.name!r}")
