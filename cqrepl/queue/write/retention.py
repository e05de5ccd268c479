"""Deletes store files that no reader needs any more: whole cycles, from the lowest upwards.

Theory of operation. A store file may go when all of these hold; `plan` tells for each file which
do not, in words for people:

    order       every lower cycle goes too: a queue has no hole
    newest      it is below the last cycle with excerpts, where writers stand, and below the number
                of cycles, and the moment, that the caller wants kept
    closed      it has its end-of-file mark: no writer appends to it any more
    saved       where a service keeps state that the queue made (`files.checkpointfile`), the older
                one of its checkpoints on this host stands in a higher cycle, as it is read back
    passed      every named tailer, every registered reader, and the replication stand in a higher
                cycle: each known host to which the queue was ever sent, and the queue's own mark,
                which is that of the fastest (by the index that was acknowledged; by that sent,
                where no host was ever asked to acknowledge anything); but no host has a cycle that
                came after later ones were sent, as far as that is noted (`read.latecycles`)

A host that comes no more holds its files until it is forgotten. A reader behind the last excerpt of
a cycle still stands in it: without the file it would be unknown that all of it was read. A named
tailer that was never moved stands at the start, and holds all. Readers without a name or
registration hold nothing; what they have mapped stays readable for them.

Deleting happens under the write lock, after a new look at everything. The table store's listing
gets the new lowest cycle before the first file goes, since Java's read-only tailers trust it, and
is renewed after the last, since its tailers write there what they found in the directory meanwhile.
A process that dies in between leaves a listing that the next writer renews on opening.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.queue.files import atomics
from cqrepl.queue.files.chainfile import CHAIN_SUFFIX
from cqrepl.queue.files.checkpointfile import passed_by_checkpoints
from cqrepl.queue.files.chroniclemarks import ACKNOWLEDGED_KEY, SENT_KEY, ChronicleMarks
from cqrepl.queue.files.closedcycles import UNKNOWN_CHAIN, ClosedCycle
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.keptmarks import KeptMarks, marks_of, read_slots
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.locks import WRITE_LOCK_KEY, WordLock
from cqrepl.queue.files.markslots import FORGOTTEN, MarkLevel
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Cycle, Index, cycle_of, format_index
from cqrepl.queue.read.count import count_in
from cqrepl.queue.read.latecycles import late_cycles
from cqrepl.queue.read.namedtailer import named_tailers
from cqrepl.queue.read.registration import registered_readers
from cqrepl.surroundings import surroundings

_LOCK_TIMEOUT_S: Final = 5.0
_NAMES_SHOWN: Final = 5
_START: Final = "the start, never moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVerdict:
    """The verdict on one store file; `reasons` say why it stays, none: it may go."""

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
    """The rule for the cycles that are kept even when all readers have passed them.

    Args:
        cycles_min: keep so many of the newest cycles; the last one with excerpts always stays.
        keep_from_ms: keep every cycle that ends behind this moment (milliseconds since 1970).
        forgotten: hosts that hold nothing, and are not known any more once files are deleted.
        members: hosts that have to have passed a cycle; one that has said nothing yet holds all.
        keep_from: keep this cycle and all above; None: none for that.
    """

    cycles_min: int = 1
    keep_from_ms: int | None = None
    forgotten: frozenset[int] = frozenset()
    members: frozenset[int] = frozenset()
    keep_from: Cycle | None = None


def plan(cycles: Cycles, policy: Policy) -> list[FileVerdict]:
    """For each store file, the lowest cycle first: may it go, or why not. Changes nothing.

    Raises:
        QueueDamaged: a store file's end cannot be trusted.
    """
    listed = cycles.listing()
    readers, keys = _readers(cycles)
    hosts = list(_hosts(cycles, keys, policy.forgotten))
    positions = readers + hosts + _unheard(cycles, keys, policy.members)
    saved = passed_by_checkpoints(cycles.path)
    late = set(late_cycles(cycles, keys)) if hosts else set()
    last = next((one for one in reversed(listed) if count_in(cycles, one, 1)), None)
    verdicts: list[FileVerdict] = []
    for nth, cycle in enumerate(listed):
        reasons = list(_kept_by_policy(cycles, policy, cycle, len(listed) - nth, last))
        reasons += _not_passed(cycles, positions, cycle)
        if saved is not None and cycle_of(saved, cycles.shift) <= cycle:
            at = f"is at {format_index(saved)}" if saved else "is not there, or cannot be read"
            reasons.append(f"the older checkpoint of its service {at}")
        if cycle in late:
            reasons.append("it came after later ones were sent: no host has it")
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
    """Deletes what `plan` finds removable, under the write lock; what was deleted.

    Raises:
        QueueError: the marks of the hosts to be forgotten cannot be written.
        QueueLocked: another process keeps the write lock.
        QueueDamaged: as `plan`. Nothing was changed.
        AtomicsMissing: a library is missing that writing needs.
        OSError: there is no table store, or a file may not be deleted; lower ones are gone then.
    """
    atomics.require()
    _forget(cycles, policy.forgotten)
    table = TableStore(cycles.table_path, writable=True)
    try:
        with WordLock(table, WRITE_LOCK_KEY).held(_LOCK_TIMEOUT_S):
            verdicts = plan(cycles, policy)
            going = [one for one in verdicts if one.is_removable]
            if not going:
                return []
            _note_taken(cycles, going[-1].cycle)
            here, listing = surroundings(), Listing(table)
            listing.renew([one.cycle for one in verdicts if not one.is_removable])
            try:
                for one in going:
                    here.unlink(one.path, missing_ok=True)
                    here.unlink(one.path.with_suffix(CHAIN_SUFFIX), missing_ok=True)
            finally:
                listing.renew(cycles.listing())
            return going
    finally:
        table.close()


def _note_taken(cycles: Cycles, highest: Cycle) -> None:
    """Notes the highest cycle whose store file goes: else a copy would seem to have begun behind
    it, see `ClosedCycles.holds_from`."""
    if highest not in cycles.closed.load():
        cycles.closed.remember(ClosedCycle(highest, count_in(cycles, highest), UNKNOWN_CHAIN))
        cycles.closed.note_below(Cycle(highest + 1))


def _forget(cycles: Cycles, hosts: Iterable[int]) -> None:
    """These hosts hold nothing from now on; each is known again with the next excerpt it is
    sent."""
    chronicle = ChronicleMarks(cycles.table_path)
    marks = KeptMarks(cycles.table_path.parent, chronicle)
    try:
        for host in hosts:
            marks.forget(host)
    finally:
        marks.close()
        chronicle.close()


def _readers(cycles: Cycles) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Every reader whose position counts, and the next index that it needs; and all keys of the
    table store."""
    try:
        table = TableStore(cycles.table_path, writable=False)
    except FileNotFoundError:
        return [], {}
    try:
        found = [(f"named tailer {name}", at) for name, at in named_tailers(table).items()]
        found += [(f"reader {name}", at) for name, at in registered_readers(table).items()]
        return found, table.keys()
    finally:
        table.close()


def _hosts(
    cycles: Cycles, keys: Mapping[str, int], forgotten: frozenset[int]
) -> Iterator[tuple[str, int]]:
    """Every host that is known, and the replication as a whole; and the next index of each."""
    acknowledged = keys.get(ACKNOWLEDGED_KEY.lower(), FORGOTTEN)
    sent = keys.get(SENT_KEY.lower(), FORGOTTEN)
    known = marks_of(keys, read_slots(cycles.table_path.parent))
    hosts = {host: levels for host, levels in known.items() if host not in forgotten}
    asked = [levels.get(MarkLevel.ACKNOWLEDGED, FORGOTTEN) for levels in hosts.values()]
    if max(acknowledged, *asked, FORGOTTEN) > FORGOTTEN:
        if acknowledged > FORGOTTEN:
            yield "the replication, acknowledged,", acknowledged
        for host, levels in hosts.items():
            at = levels.get(MarkLevel.ACKNOWLEDGED, FORGOTTEN)
            yield f"host {host}, acknowledged,", max(at, NEXT_OF_EMPTY)
            synced = levels.get(MarkLevel.SYNCED, FORGOTTEN)
            if FORGOTTEN < synced < at:  # a power cut there may yet take it: then it comes again
                yield f"host {host}, on its disk,", synced
    elif sent > FORGOTTEN:
        yield "the replication, sent,", sent
        for host, levels in hosts.items():
            at = levels.get(MarkLevel.SENT, FORGOTTEN)
            yield f"host {host}, sent,", max(at, NEXT_OF_EMPTY)


def _unheard(
    cycles: Cycles, keys: Mapping[str, int], members: frozenset[int]
) -> list[tuple[str, int]]:
    """The members of which no mark is known."""
    known = marks_of(keys, read_slots(cycles.table_path.parent)) if members else {}
    return [(f"host {each}, never heard of,", NEXT_OF_EMPTY) for each in members - known.keys()]


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
    if policy.keep_from is not None and cycle >= policy.keep_from:
        yield "the host that leads has it"


def _not_passed(cycles: Cycles, positions: list[tuple[str, int]], cycle: Cycle) -> Iterator[str]:
    """The readers that have not passed the cycle; the first few are enough."""
    holding = [one for one in positions if cycle_of(Index(one[1]), cycles.shift) <= cycle]
    for who, at in holding[:_NAMES_SHOWN]:
        where = _START if at == NEXT_OF_EMPTY else format_index(at)
        yield f"{who} is at {where}"
    if len(holding) > _NAMES_SHOWN:
        yield f"{len(holding) - _NAMES_SHOWN} more have not passed it"
