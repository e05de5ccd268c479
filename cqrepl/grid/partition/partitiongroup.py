"""The state of one group of partitions, as the records of its log have made it. It knows no clock.

Theory of operation. Each host applies the same records in the same order (E-50): those transactions
are committed that a record names as committed, those are rolled back that it names as rolled back,
and the one that it brings becomes *open*. What is open is not seen. An open transaction ends:

    final (no loader)        once its record is safe: it needs no other word (E-49)
    with a loader            once a record that names its outcome is safe (E-52)

So nothing is ever seen that a later leader may not have. `settle(safe)` is told how far the log is
safe; a state that has applied more than that is right all the same, as what is beyond is open.

A record also says the number of partitions and of groups when a host comes to lead (`opened`): both
stand for ever (E-13). It says the epoch, so the state knows in which epoch each index was written,
and whether the record of a token is there or went to quarantine.
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from cqrepl.grid.errors import GridRefused, TokenLost
from cqrepl.grid.partition.gridwords import (
    Change,
    GridEntry,
    MapOp,
    decode_words,
    grid_words,
    pack_changes,
    pack_rows,
    unpack_changes,
    unpack_numbers,
    unpack_rows,
)
from cqrepl.grid.partition.recenttx import RecentTx
from cqrepl.grid.partition.token import Token
from cqrepl.service.fieldwords import FieldWords

NOTHING: Final = -1
ENTRY_BYTES: Final = 120  # of memory beside those of key and value, about
_LENGTH: Final = struct.Struct("<I")
_ROWS_BYTES: Final = 1 << 20  # of one piece of a snapshot
_OPENINGS_MAX: Final = 4096
Partition = dict[str, dict[bytes, GridEntry]]  # by map, by key


@dataclass(slots=True)
class OpenTx:
    """A transaction whose changes are not seen yet.

    Args:
        index: of its record.
        is_final: it ends as committed once its record is safe.
        outcome: True for committed; None: no record has named it.
    """

    index: int
    tx: int
    partition: int
    changes: list[Change]
    is_final: bool
    outcome: bool | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """A host has come to lead."""

    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class _Ending:
    """An open transaction ends once this index is safe."""

    index: int
    tx: int
    is_committed: bool


class PartitionGroup:
    """The partitions of one group.

    Attributes:
        partitions: what is seen, by partition; one that was never written to is not there.
        open: the open transactions by their numbers, in the order of their records.
        safe: so far was settled.
        grid: id of the log; empty before its first record.
        partition_count, group_count: as the first record has them; 0 before.
        openings: of the leaders, in order; the latest 4,096.
        size: bytes of all entries, about.
        last_tx: the greatest number of a transaction so far.
    """

    def __init__(self) -> None:
        self.partitions: dict[int, Partition] = {}
        self.open: dict[int, OpenTx] = {}
        self.safe = NOTHING
        self.grid = ""
        self.partition_count = 0
        self.group_count = 0
        self.openings: list[Opening] = []
        self.size = 0
        self.last_tx = 0
        self._endings: deque[_Ending] = deque()
        self._recent = RecentTx()

    def apply(self, index: int, said: FieldWords) -> OpenTx | None:
        """Takes a record; the transaction that it brings, None for no transaction.

        Raises:
            WireError: it is none.
            GridRefused: it has another number of partitions or groups than the first one.
        """
        if said.name == "opened":
            self._open(index, said)
            return None
        for name, is_committed in (("committed", True), ("rolled", False)):
            for tx in unpack_numbers(said.data(name)):
                self._end(index, tx, is_committed)
        if said.name != "tx":
            return None
        changes = unpack_changes(said.text("maps"), said.data("changes"))
        tx, is_final = said.number("tx"), said.number("final") == 1
        found = OpenTx(index, tx, said.number("part"), changes, is_final)
        self.open[tx] = found
        self._recent.note(index, said)
        self.last_tx = max(self.last_tx, tx)
        if is_final:
            self._end(index, tx, True)
        return found

    def _open(self, index: int, said: FieldWords) -> None:
        counts = said.number("partitions"), said.number("groups")
        if not self.grid:
            self.grid = said.text("grid")
            self.partition_count, self.group_count = counts
        elif counts != (self.partition_count, self.group_count):
            raise GridRefused(self.wrong_counts(*counts))
        self.openings.append(Opening(said.number("epoch"), index))
        del self.openings[:-_OPENINGS_MAX]

    def wrong_counts(self, partitions: int, groups: int) -> str:
        """A sentence where a log has other counts; empty where it has these, or none yet."""
        if not self.grid or (self.partition_count, self.group_count) == (partitions, groups):
            return ""
        wanted = f"expected {self.partition_count} partitions in {self.group_count} groups, as the"
        return f"{wanted} log has them from its first record on, got {partitions} in {groups}"

    def _end(self, index: int, tx: int, is_committed: bool) -> None:
        found = self.open.get(tx)
        if found is not None and found.outcome is None:  # a list may be sent more than once
            found.outcome = is_committed
            self._endings.append(_Ending(index, tx, is_committed))

    def settle(self, safe: int) -> list[OpenTx]:
        """Everything up to this index is safe; the transactions that are committed by that, as they
        are seen from now on, in order."""
        self.safe = max(self.safe, safe)
        endings, committed = self._endings, []
        while endings and endings[0].index <= self.safe:
            ending = endings.popleft()
            found = self.open.pop(ending.tx)
            if ending.is_committed:
                self._commit(found)
                committed.append(found)
        return committed

    def _commit(self, tx: OpenTx) -> None:
        maps = self.partitions.setdefault(tx.partition, {})
        for op, name, key, value in tx.changes:
            entries = maps.setdefault(name, {})
            if op is MapOp.CLEAR:
                self.size -= sum(_size(key, entry) for key, entry in entries.items())
                entries.clear()
                continue
            old = entries.pop(key, None)
            if old is not None:
                self.size -= _size(key, old)
            if op is MapOp.PUT:
                entries[key] = entry = GridEntry(value, tx.index)
                self.size += _size(key, entry)

    def get(self, partition: int, name: str, key: bytes) -> GridEntry | None:
        """The entry of a key that is seen; None for none."""
        entries = self.partitions.get(partition, {}).get(name)
        return None if entries is None else entries.get(key)

    def undecided(self) -> list[OpenTx]:
        """The open transactions whose outcome no record has named, in order."""
        return [each for each in self.open.values() if each.outcome is None]

    def is_open(self, index: int) -> bool:
        """True while the transaction of a record is not seen, nor rolled back."""
        return any(each.index == index for each in self.open.values())

    def epoch_at(self, index: int) -> int | None:
        """The epoch in which an index was written; None: before all openings that are known."""
        return next((each.epoch for each in reversed(self.openings) if each.index <= index), None)

    def lag(self, map_set: str, partition: int, name: str, token: Token) -> int:
        """The number of transactions on a map in a partition that are behind this token, of the
        last ones that came to this host.

        Raises:
            GridRefused: the token is of another log.
        """
        token.check(map_set, self.grid)
        return self._recent.after(partition, name, token.index)

    def check_epoch(self, token: Token, *, is_here: bool) -> None:
        """Does nothing where the record of a token may be in the log.

        Args:
            is_here: its index is safe, and the state has it.

        Raises:
            TokenLost: that index is of another epoch.
        """
        later = next((each for each in self.openings if each.epoch > token.epoch), None)
        epoch = None if later is None or later.index > token.index else later.epoch
        if is_here and epoch is None:
            epoch = self.epoch_at(token.index)
        if epoch is not None and epoch != token.epoch:
            told = f"expected the record of {token}, got one of epoch {epoch}"
            raise TokenLost(f"{told}: its transaction is not committed")

    # ---- snapshots ------------------------------------------------------------------------------

    def snapshot(self, out: BinaryIO) -> None:
        """Writes all of it: pieces, each with its length in 4 bytes."""
        for each in self._pieces():
            data = each.encoded()
            out.write(_LENGTH.pack(len(data)) + data)

    def _pieces(self) -> Iterator[FieldWords]:
        counts = {"partitions": self.partition_count, "groups": self.group_count}
        yield grid_words("grid", {"grid": self.grid, "tx": self.last_tx, **counts})
        for opening in self.openings:
            yield grid_words("opening", {"epoch": opening.epoch, "index": opening.index})
        for partition, maps in self.partitions.items():
            for name, entries in maps.items():
                yield from _rows_of(partition, name, entries)
        for each in self.open.values():
            named, changes = pack_changes(each.changes)
            values = {"part": each.partition, "tx": each.tx, "index": each.index}
            yield grid_words(
                "open",
                {**values, "final": int(each.is_final), "maps": named, "changes": changes},
            )
        for ending in self._endings:
            verdict = {"tx": ending.tx, "final": int(ending.is_committed)}
            yield grid_words("ending", {"index": ending.index, **verdict})

    @classmethod
    def restored(cls, source: BinaryIO) -> "PartitionGroup":
        """The state of a snapshot; of an empty one that of nothing.

        Raises:
            WireError: it is none.
        """
        state = cls()
        while head := source.read(_LENGTH.size):
            said = decode_words(source.read(*_LENGTH.unpack(head)))
            state._take(said)
        return state

    def _take(self, said: FieldWords) -> None:
        index, tx, is_final = said.number("index"), said.number("tx"), said.number("final") == 1
        match said.name:
            case "grid":
                self.grid, self.last_tx = said.text("grid"), tx
                self.partition_count = said.number("partitions")
                self.group_count = said.number("groups")
            case "opening":
                self.openings.append(Opening(said.number("epoch"), index))
            case "rows":
                maps = self.partitions.setdefault(said.number("part"), {})
                entries = maps.setdefault(said.text("map"), {})
                for key, entry in unpack_rows(said.data("entries")):
                    entries[key] = entry
                    self.size += _size(key, entry)
            case "open":
                changes = unpack_changes(said.text("maps"), said.data("changes"))
                self.open[tx] = OpenTx(index, tx, said.number("part"), changes, is_final)
            case "ending":
                self.open[tx].outcome = is_final
                self._endings.append(_Ending(index, tx, is_final))


def _size(key: bytes, entry: GridEntry) -> int:
    return len(key) + len(entry.value) + ENTRY_BYTES


def _rows_of(partition: int, name: str, entries: dict[bytes, GridEntry]) -> Iterator[FieldWords]:
    rows: list[tuple[bytes, GridEntry]] = []
    size = 0
    for key, entry in entries.items():
        rows.append((key, entry))
        size += len(key) + len(entry.value)
        if size >= _ROWS_BYTES:
            yield grid_words("rows", {"part": partition, "map": name, "entries": pack_rows(rows)})
            rows, size = [], 0
    if rows:
        yield grid_words("rows", {"part": partition, "map": name, "entries": pack_rows(rows)})
