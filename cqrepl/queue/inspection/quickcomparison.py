"""Compares copies of a queue without reading an excerpt: for a first look at large ones.

Theory of operation. Writers record how many excerpts a store file has, and replication notes the
chain over them at places (`notedchains`). Copies whose chains are the same at one place held the
same before it when the chains were made. Where they are not, the first place at which they differ
is found by halving: somewhere between it and the one before an excerpt differs.

A side file tells of its store file only as long as nothing was written into that since. What was
noted when a cycle was closed may show that two copies differ, never that they still are alike.
All that rests on nothing is told as not read; where nothing at all was proved of copies, that is
not called the same.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from cqrepl.queue.format.index import SEQUENCE_FIRST, Cycle, Index, index_of
from cqrepl.queue.inspection.bisection import Bisection
from cqrepl.queue.inspection.cyclecomparison import ComparedCopy, ComparedSpan
from cqrepl.queue.inspection.differences import (
    DifferenceKind,
    Flaw,
    NamedDifference,
    NothingCompared,
    NotRead,
    Outcome,
    SameRange,
)
from cqrepl.queue.inspection.documentwalk import End
from cqrepl.queue.inspection.storescan import StoreReport
from cqrepl.queue.inspection.verification import (
    are_empty,
    cycles_of,
    lost_ends,
    nothing_compared,
    opened_copies,
    queue_flaws,
)


def verify_quickly(paths: Sequence[Path | str]) -> Iterator[Outcome]:
    """Compares copies of a queue by their marks and side files, without reading excerpts.

    Raises:
        QueueError: one of the paths is no queue.
    """
    copies = yield from opened_copies(paths, with_lost=True, if_promised=True)
    if copies is None:
        return
    is_proof = False
    for outcome in _glanced(copies):
        is_proof = is_proof or not outcome.is_same or isinstance(outcome, SameRange)
        yield outcome
    if not is_proof and are_empty(copies):
        yield nothing_compared(copies, ComparedSpan())
    elif not is_proof and len(copies) > 1:
        yield NothingCompared(text="no side file proves that an excerpt is the same")


def _glanced(copies: list[ComparedCopy]) -> Iterator[Outcome]:
    """The outcomes for the cycles, then for the directories."""
    missed: set[tuple[Cycle, int]] = set()
    for cycle in cycles_of(copies, ComparedSpan()):
        for outcome in _CycleGlance(copies, cycle).outcomes():
            if isinstance(outcome, NamedDifference):
                missed |= {(cycle, nth) for nth, is_in in enumerate(outcome.present) if not is_in}
            yield outcome
    for nth, copy in enumerate(copies):
        for file in copy.info.files:
            yield from (Flaw(copy=nth, finding=finding) for finding in file.findings)
        yield from queue_flaws(nth, copy)
    yield from lost_ends(copies, missed)


def are_proved_equal(copies: list[ComparedCopy], cycle: Cycle) -> bool:
    """True when what is noted proves that all copies hold the same of a closed cycle: their store
    files were not written to since, and their chains are the same at the end."""
    return _CycleGlance(copies, cycle).is_all_proved()


class _CycleGlance:
    """One cycle, as far as it can be told without reading."""

    def __init__(self, copies: list[ComparedCopy], cycle: Cycle) -> None:
        self._copies = copies
        self._cycle = cycle
        self._first = index_of(cycle, SEQUENCE_FIRST, copies[0].info.layout.roll_cycle.shift)
        self._files = [copy.file_of(cycle) for copy in copies]
        self._counts = [0 if file is None else file.count or 0 for file in self._files]

    def is_all_proved(self) -> bool:
        """True when nothing would have to be read."""
        if len(set(self._counts)) > 1 or not self._counts[0]:
            return False
        if any(file is None or file.end is not End.CLOSED for file in self._files):
            return False
        return self._agreement(list(range(len(self._files))), self._counts[0]) == (
            self._counts[0], None
        )  # fmt: skip

    def outcomes(self) -> Iterator[Outcome]:
        """The ranges that are proved equal, that differ, that were not read; then those that a copy
        lacks."""
        held = [nth for nth, count in enumerate(self._counts) if count]
        if not held or len(held) < min(2, len(self._copies)):  # nothing to compare
            yield from self._lacking()
            return
        shared = min(self._counts[nth] for nth in held)
        proved, different = self._agreement(held, shared) if len(held) > 1 else (0, None)
        if proved:
            yield SameRange(index_first=self._first, index_last=self._first + proved - 1)
        read_to = proved
        if different is not None:
            text = "at least one excerpt differs, as the side files say"
            yield self._difference(DifferenceKind.CHAIN, proved, different, held, text)
            read_to = different
        if read_to < shared:
            yield NotRead(
                cycle=self._cycle, index_first=self._first + read_to,
                index_last=self._first + shared - 1, text=self._why(held),
            )  # fmt: skip
        yield from self._lacking()

    def _agreement(self, held: list[int], shared: int) -> tuple[int, int | None]:
        """The sequence up to which the chains are the same, and the first one at which they are
        known to differ; None where they are not."""
        chains = [self._chains(nth) for nth in held]
        common = [
            sequence
            for sequence in sorted(set.intersection(*(set(each) for each in chains)))
            if sequence <= shared
        ]
        differ = [len({each[sequence] for each in chains}) > 1 for sequence in common]
        different = None
        if differ and differ[-1]:
            search = Bisection(len(common) - 1)
            while (middle := search.middle) is not None:
                search.take(is_equal=not differ[middle])
            different = common[search.first]
            common = common[: search.first]
        are_believed = all(self._is_believed(nth) for nth in held)
        return (common[-1] if common and are_believed else 0), different

    def _chains(self, nth: int) -> dict[int, bytes]:
        file = self._files[nth]
        assert file is not None
        noted = self._copies[nth].notes.of(file.path, self._cycle)
        return {int(place.sequence): place.chain for place in noted}

    def _is_believed(self, nth: int) -> bool:
        file = self._files[nth]
        assert file is not None
        return self._copies[nth].notes.is_unchanged(file.path, self._cycle)

    def _why(self, held: list[int]) -> str:
        if len(held) == 1:
            return "one copy alone says nothing of its excerpts before they are read"
        unknown = [nth for nth in held if not self._is_believed(nth)]
        if unknown:
            names = ", ".join(str(self._copies[nth].path) for nth in unknown)
            return f"no side file tells of the store file as it is now in {names}"
        return "the side files have no chain at one place"

    def _lacking(self) -> Iterator[NamedDifference]:
        """Ranges that not every copy has."""
        ends = sorted(set(self._counts))
        for first, end in pairwise(ends):
            there = [nth for nth, each in enumerate(self._counts) if each >= end]
            lacking = [nth for nth, each in enumerate(self._counts) if each < end]
            has_file = all(self._files[nth] is not None for nth in lacking)
            kind = DifferenceKind.MISSING if has_file else DifferenceKind.FILE_MISSING
            texts = [_end_text(self._copies[nth], self._files[nth]) for nth in lacking]
            yield self._difference(kind, first, end, there, "; ".join(texts))

    def _difference(
        self, kind: DifferenceKind, first: int, end: int, present: list[int], text: str
    ) -> NamedDifference:
        return NamedDifference(
            kind=kind, cycle=self._cycle,
            index_first=Index(self._first + first), index_last=Index(self._first + end - 1),
            present=tuple(nth in present for nth in range(len(self._copies))), text=text,
        )  # fmt: skip


def _end_text(copy: ComparedCopy, file: StoreReport | None) -> str:
    if file is None:
        return f"{copy.path} has no store file"
    if file.count is None:
        return f"{file.path} cannot be read"
    return f"{file.path} ends before, at position {file.position_end} ({file.end.value})"
