"""The decisions of the host that leads a group: what a transaction may do, and what is written.

Theory of operation. A commit goes through these steps, of which only those marked * are here; the
others are for a shell with threads, a log and a clock:

    lock *  flush to the loader  record *  append, and wait for the replicas
    clear the lists *  commit in the loader  note the outcome *  unlock *

`committed` and `rolled` name the transactions with a loader whose outcome no replica has answered
for yet (E-47, E-48). Each record carries them, and they are cleared only once a record that has
carried them is safe: what is sent twice has no effect the second time. Without a loader a
transaction is in neither list (E-49).

What a loader has committed is seen here at once, by `get`, though the state, which is made by the
log alone, does not know yet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cqrepl.grid.errors import Conflict, GridFull, GridRefused
from cqrepl.grid.partition.gridwords import (
    ABSENT,
    MAPS_MAX,
    PRESENT,
    TRANSACTION_MAX,
    Change,
    GridEntry,
    MapOp,
    Read,
    grid_words,
    pack_changes,
    pack_numbers,
)
from cqrepl.grid.partition.locktable import LockPlace, LockTable
from cqrepl.grid.partition.partitiongroup import ENTRY_BYTES, OpenTx, PartitionGroup
from cqrepl.service.fieldwords import FieldWords, Value

_EPOCH_SHIFT: Final = 40  # numbers of transactions: those of an epoch follow one another
_LIST_MAX: Final = 10_000  # outcomes in one record


@dataclass(frozen=True, slots=True)
class TxRequest:
    """A transaction that is to be committed.

    Args:
        reads: what it has read, and expects to be there still.
    """

    partition: int
    changes: Sequence[Change]
    reads: Sequence[Read] = ()

    @property
    def places(self) -> Iterable[LockPlace]:
        """All that it has to lock."""
        for change in self.changes:
            key = None if change.op is MapOp.CLEAR else change.key
            yield LockPlace(self.partition, change.map, key)
        for read in self.reads:
            yield LockPlace(self.partition, read.map, read.key)


@dataclass(slots=True)
class WrittenTx:
    """A record that was made; `listed` are the outcomes that it carries."""

    words: FieldWords
    tx: int = 0
    listed: frozenset[int] = field(default_factory=frozenset)


class Primary:
    """One group on the host that leads it, in one epoch.

    Args:
        bytes_max: of all entries; None: without limit.
    """

    def __init__(self, state: PartitionGroup, epoch: int, bytes_max: int | None = None) -> None:
        self.state = state
        self.locks = LockTable()
        self.committed: list[int] = []
        self.rolled: list[int] = []
        self._bytes_max = bytes_max
        # no number comes twice, also where a host leads again in its epoch
        self._last_tx = max(state.last_tx, epoch << _EPOCH_SHIFT)
        self._seen: dict[int, OpenTx] = {}  # committed by the loader, and open in the state

    def get(self, partition: int, name: str, key: bytes) -> GridEntry | None:
        """The entry of a key as it was committed last; None for none."""
        for each in reversed(self._seen.values()):
            if each.partition == partition:
                for change in reversed(each.changes):
                    if change.map == name and (change.op is MapOp.CLEAR or change.key == key):
                        return (
                            GridEntry(change.value, each.index) if change.op is MapOp.PUT else None
                        )
        return self.state.get(partition, name, key)

    def rows(self, partition: int, name: str) -> dict[bytes, GridEntry]:
        """All entries of a map in a partition, as they were committed last."""
        rows = dict(self.state.partitions.get(partition, {}).get(name, {}))
        for each in self._seen.values():
            for op, map_name, key, value in each.changes if each.partition == partition else ():
                if map_name != name:
                    continue
                if op is MapOp.CLEAR:
                    rows.clear()
                    continue
                rows.pop(key, None)
                if op is MapOp.PUT:
                    rows[key] = GridEntry(value, each.index)
        return rows

    def check(self, request: TxRequest) -> None:
        """Does nothing where a transaction may be written. Its places are locked.

        Raises:
            Conflict: an entry is another one than it has read.
            GridFull, GridRefused: it is too long.
        """
        size = sum(len(each.key) + len(each.value) + ENTRY_BYTES for each in request.changes)
        if size > TRANSACTION_MAX:
            wanted = f"expected a transaction of at most {TRANSACTION_MAX} bytes"
            raise GridRefused(f"{wanted}, got {size} in partition {request.partition}")
        if len({each.map for each in request.changes}) > MAPS_MAX:
            raise GridRefused(f"expected changes of at most {MAPS_MAX} maps, got more")
        adds = any(each.op is MapOp.PUT for each in request.changes)
        if self._bytes_max is not None and adds and self.state.size + size > self._bytes_max:
            room = max(0, self._bytes_max - self.state.size)
            wanted = f"expected room for {size} bytes in partition {request.partition}"
            raise GridFull(f"{wanted}, got {room} of {self._bytes_max}")
        for name, key, wanted_version in request.reads:
            entry = self.get(request.partition, name, key)
            version = ABSENT if entry is None else entry.version
            if wanted_version == version or (wanted_version == PRESENT and entry is not None):
                continue
            raise Conflict(_conflict(name, wanted_version, version), map_name=name, key=key)

    def record(self, request: TxRequest, *, is_final: bool) -> WrittenTx:
        """The record of a transaction that was checked."""
        self._last_tx += 1
        maps, changes = pack_changes(request.changes)
        values: dict[str, Value] = {
            "part": request.partition,
            "tx": self._last_tx,
            "final": int(is_final),
            "maps": maps,
            "changes": changes,
        }
        lists, listed = self._lists()
        return WrittenTx(grid_words("tx", values | lists), self._last_tx, listed)

    def outcome(self) -> WrittenTx | None:
        """The record of the two lists alone; None where there is no outcome to be told."""
        lists, listed = self._lists()
        return WrittenTx(grid_words("outcome", lists), 0, listed) if listed else None

    def _lists(self) -> tuple[dict[str, Value], frozenset[int]]:
        committed, rolled = self.committed[:_LIST_MAX], self.rolled[:_LIST_MAX]
        lists: dict[str, Value] = {}
        if committed:
            lists["committed"] = pack_numbers(committed)
        if rolled:
            lists["rolled"] = pack_numbers(rolled)
        return lists, frozenset((*committed, *rolled))

    def answered(self, written: WrittenTx) -> None:
        """A record is safe: the outcomes that it has carried are told no more (E-48)."""
        if written.listed:
            self.committed = [each for each in self.committed if each not in written.listed]
            self.rolled = [each for each in self.rolled if each not in written.listed]

    def decide(self, tx: OpenTx, *, is_committed: bool) -> None:
        """A loader has committed a transaction, or has not."""
        if is_committed:
            self.committed.append(tx.tx)
            self._seen[tx.tx] = tx
        else:
            self.rolled.append(tx.tx)

    def settle(self, safe: int) -> list[OpenTx]:
        """As the state's."""
        committed = self.state.settle(safe)
        for each in committed:
            self._seen.pop(each.tx, None)
        return committed


def opened_record(
    state: PartitionGroup, epoch: int, leader: int, counts: tuple[int, int], grid: str
) -> FieldWords:
    """The record of a host that comes to lead.

    Args:
        counts: of partitions and of groups.
        grid: the id that a new log gets.

    Raises:
        GridRefused: the log has other counts.
    """
    if wrong := state.wrong_counts(*counts):
        raise GridRefused(wrong)
    values: dict[str, Value] = {"epoch": epoch, "leader": leader, "grid": state.grid or grid}
    return grid_words("opened", values | {"partitions": counts[0], "groups": counts[1]})


def _conflict(name: str, wanted: int, version: int) -> str:
    if wanted == ABSENT:
        return f"map {name!r}: expected no entry of a key, got one"
    if version == ABSENT:
        return f"map {name!r}: expected an entry of a key, got none"
    return f"map {name!r}: expected the entry that was read ({wanted:#x}), got one of {version:#x}"
