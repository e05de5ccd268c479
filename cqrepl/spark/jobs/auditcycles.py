"""One cycle of an audit, by the engine that compares copies everywhere. Knows nothing of Spark.

What the engine finds becomes what an audit tells: differences with their first index, kind and
place, and damage within a copy with its own. In a cycle with very many differences the rest is told
as one, which says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.console.units import plural
from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, index_of
from cqrepl.queue.inspection.cyclecomparison import ComparedCopy, ComparedSpan, CycleComparison
from cqrepl.queue.inspection.differences import (
    CycleDigests,
    DifferenceKind,
    Flaw,
    NamedDifference,
    NothingCompared,
    OneFile,
    Outcome,
)
from cqrepl.queue.inspection.notedchains import QueueNotes
from cqrepl.queue.inspection.overview import QueueInfo
from cqrepl.spark.jobs.blockcomparer import RANGES_MAX, BlockVerdict, Difference

_MISSING: Final = (DifferenceKind.MISSING, DifferenceKind.FILE_MISSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleAudit:
    """One cycle: how many excerpts each copy holds of what was compared; None: it has no file.

    Args:
        digests: the chains over them, where they were wanted and could be made.
        is_read: false where what is noted proved all copies equal.
    """

    cycle: int
    counts: tuple[int | None, ...]
    digests: tuple[str | None, ...]
    is_same: bool
    is_read: bool = True


Told = CycleAudit | Difference | str  # a string is a note: nothing is lost or altered


@dataclass(frozen=True, slots=True)
class SeenCopy:
    """A copy as a quick look has found it: what is carried to the tasks."""

    path: Path
    info: QueueInfo


def compare_cycle(
    copies: Sequence[ComparedCopy], cycle: Cycle, span: ComparedSpan
) -> Iterator[Told]:
    """All that is to be told of one cycle, which is read in all copies.

    Raises:
        OSError: a store file cannot be read.
    """
    comparison = CycleComparison(list(copies), cycle, span, lambda _excerpts, _bytes: None)
    told, index_first = 0, _first(copies, cycle)
    index_last = _index_last(copies, cycle)
    for outcome in comparison.outcomes():
        found = told_of(outcome, len(copies), index_first)
        if isinstance(found, CycleAudit) and index_last and not any(map(_is_there, found.counts)):
            yield Difference(
                verdict=BlockVerdict.NOTHING, index_first=index_first, index_last=index_last,
                present=(False,) * len(copies), text=_not_there(copies, cycle),
            )  # fmt: skip
            yield _counted(copies, cycle)
            return
        if isinstance(found, Difference):
            told += 1
            if told > RANGES_MAX:
                yield Difference(
                    verdict=BlockVerdict.MIXED, index_first=found.index_first,
                    index_last=max(found.index_last, index_last), present=(True,) * len(copies),
                )  # fmt: skip
                yield _counted(copies, cycle)
                return
        if found is not None:
            yield found


def _is_there(count: int | None) -> bool:
    return count is not None


def _not_there(copies: Sequence[ComparedCopy], cycle: Cycle) -> str:
    files = [copy.file_of(cycle) for copy in copies]
    held = next(file for file in files if file is not None and file.index_last)
    count = plural(held.count or 0, "excerpt")
    return f"{held.path}: {count} expected, no copy has the store file where it was to be read"


def reopened(copies: Sequence[SeenCopy]) -> list[ComparedCopy]:
    """The copies, as a task compares them."""
    return [ComparedCopy(copy.path, copy.info, QueueNotes(copy.path)) for copy in copies]


def told_of(outcome: Outcome, count: int, index: int = 0) -> Told | None:
    """The audit's result for one outcome of the engine; None where there is nothing to tell.

    Args:
        count: of the copies.
        index: where it is put if the outcome has none itself.
    """
    match outcome:
        case CycleDigests():
            return CycleAudit(
                cycle=outcome.cycle, counts=outcome.counts, digests=outcome.digests,
                is_same=outcome.is_same,
            )  # fmt: skip
        case NamedDifference():
            return str(outcome) if outcome.is_note else _difference(outcome)
        case Flaw():
            return str(outcome) if outcome.is_same else _flaw(outcome, count, index)
        case OneFile():
            return Difference(
                verdict=BlockVerdict.ONE_FILE, index_first=index, index_last=index,
                present=(True,) * count, text=str(outcome),
            )  # fmt: skip
        case NothingCompared(is_same=False):
            return Difference(
                verdict=BlockVerdict.NOTHING, index_first=index, index_last=index,
                present=(False,) * count, text=str(outcome),
            )  # fmt: skip
        case _:
            return None


def proved(copies: Sequence[ComparedCopy], cycle: Cycle, span: ComparedSpan) -> Iterator[Told]:
    """The results for a cycle that is proved equal and need not be read. Only its excerpts within
    the span are counted."""
    counts = []
    for nth, copy in enumerate(copies):
        file = copy.file_of(cycle)
        assert file is not None
        assert file.index_last is not None
        first, last = max(file.index_first, span.index_first), int(file.index_last)
        if span.index_last is not None:
            last = min(last, span.index_last)
        counts.append(max(0, last - first + 1))
        for finding in file.findings:
            found = told_of(Flaw(copy=nth, finding=finding), len(copies), _first(copies, cycle))
            if found is not None:
                yield found
    yield CycleAudit(
        cycle=cycle, counts=tuple(counts), digests=(None,) * len(copies), is_same=True,
        is_read=False,
    )  # fmt: skip


def _flaw(found: Flaw, count: int, index: int) -> Difference:
    """Damage within one copy."""
    finding = found.finding
    index = index if finding.index is None else finding.index
    return Difference(
        verdict=BlockVerdict.UNREADABLE,
        index_first=index,
        index_last=index,
        present=tuple(nth != found.copy for nth in range(count)),
        text=_place(found),
        what=finding.part.value,
    )


def _place(found: Flaw) -> str:
    finding = found.finding
    where = "" if finding.position is None else f" at position {finding.position}"
    return f"{finding.path}{where}: {finding.part.value}: {finding.text}"


def _difference(found: NamedDifference) -> Difference:
    verdict, lengths = BlockVerdict.DIFFERENT, found.lengths
    if found.kind in _MISSING:
        verdict = BlockVerdict.MISSING if found.present[0] else BlockVerdict.EXTRA
        lengths = ()
    return Difference(
        verdict=verdict,
        index_first=found.index_first,
        index_last=found.index_last,
        present=found.present,
        lengths=lengths,
        byte_first=found.byte_first,
        text=found.text,
        what=found.kind.value,
    )


def _first(copies: Sequence[ComparedCopy], cycle: Cycle) -> int:
    return index_of(cycle, SEQUENCE_FIRST, copies[0].info.layout.roll_cycle.shift)


def _index_last(copies: Sequence[ComparedCopy], cycle: Cycle) -> int:
    files = [copy.file_of(cycle) for copy in copies]
    return max((file.index_last or 0 for file in files if file is not None), default=0)


def _counted(copies: Sequence[ComparedCopy], cycle: Cycle) -> CycleAudit:
    """A cycle of which not all was told: the counts are those of the quick look."""
    files = [copy.file_of(cycle) for copy in copies]
    return CycleAudit(
        cycle=cycle, counts=tuple(None if file is None else file.count for file in files),
        digests=(None,) * len(copies), is_same=False,
    )  # fmt: skip
