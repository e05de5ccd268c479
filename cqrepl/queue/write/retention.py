"""Deletes store files that no reader needs any more: whole cycles, from the lowest upwards.

Theory of operation. A store file may go when all of these hold; `plan` tells for each file which
do not, in words for people:

    order       every lower cycle goes too: a queue has no hole
    newest      it is below the last cycle with excerpts, where writers stand, and below the number
                of cycles, and the moment, that the caller wants kept
    closed      it has its end-of-file mark: no writer appends to it any more
    passed      every named tailer, every registered reader, and the replication (by the index that
                was acknowledged; by that sent, where nothing ever was) stands in a higher cycle

A reader behind the last excerpt of a cycle still stands in it: without the file it would be unknown
that all of it was read. A named tailer that was never moved stands at the start, and holds all.
Readers without a name or registration hold nothing; what they have mapped stays readable for them.

Deleting happens under the write lock, after a new look at everything. The table store's listing
gets the new lowest cycle before the first file goes, since Java's read-only tailers trust it, and
is renewed after the last, since its tailers write there what they found in the directory meanwhile.
A process that dies in between leaves a listing that the next writer renews on opening.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.queue.files import atomics
from cqrepl.queue.files.chroniclemarks import ACKNOWLEDGED_KEY, SENT_KEY
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import WRITE_LOCK_KEY, WordLock
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Cycle, Index, cycle_of, format_index
from cqrepl.queue.read.count import count_in
from cqrepl.queue.read.namedtailer import named_tailers
from cqrepl.queue.read.registration import registered_readers

_LOCK_TIMEOUT_S: Final = 5.0
_NAMES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVerdict:
    """What is to become of one store file; `reasons` say why it stays, none: it may go."""

    cycle: Cycle
    path: Path
    size_bytes: int  # on disk; files are sparse
    reasons: tuple[str, ...]

    @property
    def is_removable(self) -> bool:
        """True when nothing holds the file."""
        return not self.reasons

    def __str__(self) -> str:
        return f"{self.path.name}: {'; '.join(self.reasons) or 'may go'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is kept even when all readers have passed it.

    Args:
        cycles_min: so many of the newest cycles; the last one with excerpts always stays.
        keep_from_ms: every cycle that ends behind this moment (milliseconds since 1970).
    """

    cycles_min: int = 1
    keep_from_ms: int | None = None


def plan(cycles: Cycles, policy: Policy) -> list[FileVerdict]:
    """For each store file, the lowest cycle first: may it go, or why not. Changes nothing.

    Raises:
        QueueDamaged: a store file's end cannot be trusted.
    """
    listed = cycles.listing()
    positions = _positions(cycles.table_path)
    last = next((one for one in reversed(listed) if count_in(cycles, one, 1)), None)
    verdicts: list[FileVerdict] = []
    for nth, cycle in enumerate(listed):
        reasons = list(_kept_by_policy(cycles, policy, cycle, len(listed) - nth, last))
        reasons += _not_passed(cycles, positions, cycle)
        if not cycles.has_ended(cycle):
            reasons.append("it has no end-of-file mark")
        if not reasons and verdicts and not verdicts[-1].is_removable:
            reasons.append("a lower cycle stays")
        path = cycles.path_of(cycle)
        try:
            size = path.stat().st_blocks * 512
        except FileNotFoundError:  # another process has removed it
            continue
        verdicts.append(
            FileVerdict(cycle=cycle, path=path, size_bytes=size, reasons=tuple(reasons))
        )  # fmt: skip
    return verdicts


def remove(cycles: Cycles, policy: Policy) -> list[FileVerdict]:
    """Deletes what `plan` finds removable under the write lock; what was deleted.

    Raises:
        QueueLocked: another process keeps the write lock.
        QueueDamaged: as `plan`. Nothing was changed.
        AtomicsMissing: a library is missing that writing needs.
        OSError: there is no table store, or a file may not be deleted; lower ones are gone then.
    """
    atomics.require()
    table = TableStore(cycles.table_path, writable=True)
    try:
        with WordLock(table, WRITE_LOCK_KEY).held(_LOCK_TIMEOUT_S):
            verdicts = plan(cycles, policy)
            going = [one for one in verdicts if one.is_removable]
            if not going:
                return []
            listing = Listing(table)
            listing.renew([one.cycle for one in verdicts if not one.is_removable])
            try:
                for one in going:
                    one.path.unlink(missing_ok=True)
            finally:
                listing.renew(cycles.listing())
            return going
    finally:
        table.close()


def _positions(table_path: Path) -> list[tuple[str, int]]:
    """Every reader whose position counts, and the next index that it needs."""
    try:
        table = TableStore(table_path, writable=False)
    except FileNotFoundError:
        return []
    try:
        found = [(f"named tailer {name}", at) for name, at in named_tailers(table).items()]
        found += [(f"reader {name}", at) for name, at in registered_readers(table).items()]
        keys = table.keys()
    finally:
        table.close()
    acknowledged = keys.get(ACKNOWLEDGED_KEY.lower(), -1)
    sent = keys.get(SENT_KEY.lower(), -1)
    if acknowledged >= 0:
        found.append(("the replication, acknowledged,", acknowledged))
    elif sent >= 0:
        found.append(("the replication, sent,", sent))
    return found


def _kept_by_policy(
    cycles: Cycles, policy: Policy, cycle: Cycle, newest: int, last: int | None
) -> Iterator[str]:
    """Args: newest: how many cycles there are from this one up; last: the last with excerpts."""
    if last is None or cycle >= last:
        yield "the queue ends in it"
    if newest <= policy.cycles_min:
        yield f"it is one of the newest {policy.cycles_min}"
    if policy.keep_from_ms is not None and cycles.ends_ms(cycle) > policy.keep_from_ms:
        yield "it is not old enough"


def _not_passed(cycles: Cycles, positions: list[tuple[str, int]], cycle: Cycle) -> Iterator[str]:
    """The readers that have not passed the cycle; the first few are enough."""
    holding = [one for one in positions if cycle_of(Index(one[1]), cycles.shift) <= cycle]
    for who, at in holding[:_NAMES_SHOWN]:
        where = "the start, never moved" if at == NEXT_OF_EMPTY else format_index(at)
        yield f"{who} is at {where}"
    if len(holding) > _NAMES_SHOWN:
        yield f"{len(holding) - _NAMES_SHOWN} more have not passed it"
