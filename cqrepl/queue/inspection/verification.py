"""Compares copies of a queue, and each with what is noted beside it, while they may be written.

Theory of operation. There is one engine for all who compare: cycle by cycle, what each copy holds
is read once, compared with what the others hold (`cyclecomparison`), with its own index pages and
marks (`storescan`), and with the chains that replication has noted (`notedchains`). What differs is
named by kind and place (`differences`). One queue alone is held against itself.

Where no excerpt was compared, that is told, too: copies that all are empty are the same, and a
range in which nothing lies proves nothing.

A quick comparison (`quickcomparison`) reads no excerpt.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.mapping import identity_in
from cqrepl.queue.format.errors import QueueDamaged, QueueError
from cqrepl.queue.format.index import Cycle, Index, cycle_of, format_index
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.inspection.cyclecomparison import (
    ComparedCopy,
    ComparedSpan,
    CycleComparison,
    Progress,
)
from cqrepl.queue.inspection.differences import (
    CycleDigests,
    Flaw,
    LayoutsDiffer,
    NamedDifference,
    NothingCompared,
    OneFile,
    Outcome,
)
from cqrepl.queue.inspection.findings import FilePart, Finding, FindingKind
from cqrepl.queue.inspection.lostend import LostEnd, lost_end
from cqrepl.queue.inspection.notedchains import QueueNotes
from cqrepl.queue.inspection.overview import QueueInfo, inspect_queue

_EVERYTHING: Final = ComparedSpan()
_LOST_REMEDY: Final = (
    "what was there is unknown: put it back, or let it come again from another host, or accept"
    " that: cqrepl repair QUEUE --accept-missing --apply"
)


def verify(
    paths: Sequence[Path | str],
    span: ComparedSpan = _EVERYTHING,
    *,
    progress: Progress = lambda _excerpts, _bytes: None,
) -> Iterator[Outcome]:
    """Compares copies of a queue, and yields what is alike and what is not: `is_same` of each
    outcome tells which.

    Args:
        paths: of one queue or more.
        span: the indexes to compare; a last index is for copies that are being written.
        progress: is called with the number of excerpts and bytes compared since its last call.

    Raises:
        QueueError: one of the paths is no queue, as `inspect_queue`.
    """
    # two that have lost the same look the same: nothing but what each has noted tells of an end
    with_lost = span.is_common or span.index_last is None
    copies = yield from opened_copies(paths, with_lost=with_lost, if_promised=not span.is_common)
    if copies is None:
        return
    is_proof = False
    for outcome in _compared(copies, span, progress):
        is_proof = is_proof or not outcome.is_same or is_counted(outcome)
        yield outcome
    if not is_proof:
        yield nothing_compared(copies, span)


def _compared(
    copies: list[ComparedCopy], span: ComparedSpan, progress: Progress
) -> Iterator[Outcome]:
    """The outcomes for the cycles, then for the directories."""
    missed: set[tuple[Cycle, int]] = set()
    for cycle in cycles_of(copies, span):
        for outcome in CycleComparison(copies, cycle, span, progress).outcomes():
            if isinstance(outcome, NamedDifference):
                missed |= {(cycle, nth) for nth, is_in in enumerate(outcome.present) if not is_in}
            yield outcome
    for nth, copy in enumerate(copies):
        yield from queue_flaws(nth, copy)
    yield from lost_ends(copies, missed)  # of those that were looked at


def is_counted(outcome: Outcome) -> bool:
    """True when the outcome tells of a cycle of which excerpts were compared."""
    return isinstance(outcome, CycleDigests) and any(outcome.counts)


def are_empty(copies: list[ComparedCopy]) -> bool:
    """True when none of the copies holds an excerpt, or is known to have held one."""
    return all(copy.info.last_index is None and copy.lost is None for copy in copies)


def nothing_compared(copies: list[ComparedCopy], span: ComparedSpan) -> NothingCompared:
    """The outcome where no excerpt lies within a span, and no copy was found to lack one."""
    is_all = not span.index_first and (span.is_common or span.index_last is None)
    if is_all and are_empty(copies):
        return NothingCompared(text="nothing to compare: no excerpts", is_same=True)
    empty = [str(copy.path) for copy in copies if copy.info.last_index is None]
    if span.is_common and empty:
        return NothingCompared(
            text=f"nothing was compared: there is no excerpt in {', '.join(empty)}"
        )
    where = f" from {format_index(Index(span.index_first))} on" if span.index_first else ""
    if span.index_last is not None:
        where += f" up to {format_index(Index(span.index_last))}"
    return NothingCompared(text=f"nothing was compared: no excerpt lies{where}")


def opened_copies(
    paths: Sequence[Path | str], *, with_lost: bool = False, if_promised: bool = False
) -> Generator[Outcome, None, list[ComparedCopy] | None]:
    """The copies, after a quick look at each; None where they cannot be compared, which is told.

    Args:
        with_lost: whether the end of each is known is looked at too; that may wait for a file
            that is being made.
        if_promised: as for `lost_end`.

    Raises:
        QueueError: one of them is no queue.
    """
    one_directory = _one_directory([Path(path) for path in paths])
    if one_directory is not None:
        yield one_directory
        return None
    copies: list[ComparedCopy] = []
    for nth, path in enumerate(map(Path, paths)):
        try:
            info = inspect_queue(path)
            lost = _lost_end(info, if_promised) if with_lost else None
            copies.append(ComparedCopy(path, info, QueueNotes(path), lost))
        except QueueDamaged as error:
            yield _unusable(nth, path, error)
    if len(copies) < len(paths):
        return None
    layouts = tuple(copy.info.layout for copy in copies)
    if any(not _alike(layouts[0], layout) for layout in layouts):
        yield LayoutsDiffer(layouts=layouts)
        return None
    return copies


def lost_ends(copies: list[ComparedCopy], missed: set[tuple[Cycle, int]]) -> Iterator[Flaw]:
    """Copies that had more than their store files show: they are not just behind.

    Args:
        missed: the cycles of which a copy was told to lack excerpts; that is not told twice.
    """
    for nth, copy in enumerate(copies):
        lost = copy.lost
        if lost is None:
            continue
        is_damaged = any(
            each.path == lost.path and each.kind is FindingKind.DAMAGE
            for each in copy.info.findings
        )
        if (lost.cycle, nth) not in missed and not is_damaged:
            finding = Finding(
                kind=FindingKind.DAMAGE, path=lost.path, position=None, index=lost.index,
                text=lost.what, remedy=_LOST_REMEDY, part=FilePart.DIRECTORY,
            )  # fmt: skip
            yield Flaw(copy=nth, finding=finding)


def _lost_end(info: QueueInfo, if_promised: bool) -> LostEnd | None:
    """The reason why the end of a queue is not known; None where it is known, or where a file
    cannot be read: other findings tell of that."""
    try:
        cycles = Cycles(info.path, info.layout.roll_cycle, info.layout.epoch)
        return lost_end(cycles, if_promised=if_promised)
    except (QueueError, OSError):
        return None


def last_common_index(paths: Sequence[Path | str]) -> Index | None:
    """The least last index of the copies: up to there all may be compared; None: one is empty.

    Raises:
        QueueError: as `verify`.
    """
    lasts = [inspect_queue(path).last_index for path in paths]
    found = [last for last in lasts if last is not None]
    return min(found) if len(found) == len(lasts) else None


def _one_directory(paths: list[Path]) -> OneFile | None:
    """Paths that lead to one directory."""
    found: dict[tuple[int, int], list[Path]] = {}
    for path in paths:
        if path.exists():
            found.setdefault(identity_in(os.stat(path)), []).append(path)
    shared = next((same for same in found.values() if len(same) > 1), None)
    return None if shared is None else OneFile(paths=tuple(shared))


def _unusable(nth: int, path: Path, error: QueueDamaged) -> Flaw:
    finding = Finding(
        kind=FindingKind.DAMAGE, path=error.path or path, position=error.position, index=None,
        text=f"{error.reason}; nothing of this queue was compared", part=FilePart.TABLE,
    )  # fmt: skip
    return Flaw(copy=nth, finding=finding)


def _alike(one: QueueLayout, other: QueueLayout) -> bool:
    """True when the same moments and excerpts get the same indexes."""
    return one.roll_cycle.name == other.roll_cycle.name and one.epoch == other.epoch


def cycles_of(copies: list[ComparedCopy], span: ComparedSpan) -> list[Cycle]:
    """The cycles of which a copy has a store file, as far as they are compared."""
    shift = copies[0].info.layout.roll_cycle.shift
    first = cycle_of(Index(span.index_first), shift)
    last = None if span.index_last is None else cycle_of(Index(span.index_last), shift)
    cycles = {file.cycle for copy in copies for file in copy.info.files}
    return [cycle for cycle in sorted(cycles) if first <= cycle and (last is None or cycle <= last)]


def queue_flaws(nth: int, copy: ComparedCopy) -> Iterator[Flaw]:
    """The findings about a directory and its side files. Locks are left out: they hold no
    excerpts."""
    told = {finding for file in copy.info.files for finding in file.findings}
    for finding in (*copy.info.findings, *copy.notes.findings):
        if finding not in told and finding.kind is not FindingKind.LOCK:
            yield Flaw(copy=nth, finding=finding)
