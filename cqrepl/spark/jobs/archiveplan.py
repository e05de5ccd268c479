"""The plan of a run: the cycles it archives, and those it compares first. Knows nothing of Spark.

Theory of operation. What was archived of a closed cycle is never given up for something else, only
by order: a backup that was put in place of a queue may hold less, or other bytes. Counts are told
by the files. The bytes are compared, as digests of blocks, where the store file is not the very one
that was archived, or was written to since: so an unchanged cycle costs no reading.

An open cycle may grow, and close; what it held then must still be its beginning.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cqrepl.queue import Queue
from cqrepl.queue.files.chainfile import StoreState
from cqrepl.queue.format.index import INDEX_MAX, Cycle, Index, cycle_of
from cqrepl.queue.read.count import count_in, last_index
from cqrepl.spark.jobs.archivefiles import ArchivedCycle
from cqrepl.spark.jobs.blocks import digest_of_all
from cqrepl.spark.ranges import IndexRange, listed_cycles, present


class ArchiveDiffers(Exception):
    """The queue holds something else than was archived of it. The message is one line for people;
    neither of the two is known to be the damaged one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCycle:
    """A cycle of the queue; `state` tells its store file from another one, and from later."""

    cycle: Cycle
    held: IndexRange
    is_closed: bool
    state: tuple[int, int, int] | None


@dataclass(slots=True, kw_only=True)
class ArchivePlan:
    """The cycles of a queue, by what a run does with them.

    Args:
        new: is archived.
        unchanged: the store files of these are the very ones that were archived.
        compared: what was archived of these is held against the queue before.
        clashes: what the archive and the queue hold, by cycle, where that is another number.
    """

    new: list[FoundCycle] = field(default_factory=list)
    unchanged: list[Cycle] = field(default_factory=list)
    compared: list[tuple[FoundCycle, ArchivedCycle]] = field(default_factory=list)
    clashes: dict[Cycle, str] = field(default_factory=dict)

    def judge(self, digests: Mapping[int, str]) -> Iterator[ArchivedCycle]:
        """The archived cycles that are as they were, with the state of their files now; the other
        ones are clashes.

        Args:
            digests: of the blocks of all that is compared, by their first indexes.
        """
        for found, archived in self.compared:
            spans = [span for part in archived.parts for span in part.spans()]
            wanted = [digest for _, _, digest in spans]
            there = [digests[first] for first, _, _ in spans]
            if wanted != there:
                self.clashes[found.cycle] = (
                    f"expected {archived.count} excerpts of digest {digest_of_all(wanted)} as"
                    f" archived, found digest {digest_of_all(there)} in the queue"
                )
            else:
                yield replace(archived, state=found.state)

    def check(self, queue: Queue) -> None:
        """Does nothing where nothing that was archived is lost.

        Raises:
            ArchiveDiffers: the queue holds something else; what, is said.
        """
        if not self.clashes:
            return
        cycle = min(self.clashes)
        more = len(self.clashes) - 1
        others = f"; so do {more} more cycles" if more > 1 else "; so does 1 more cycle"
        raise ArchiveDiffers(
            f"{queue.cycles.path_of(cycle)}: {self.clashes[cycle]}{others if more else ''};"
            " --replace puts what the queue holds in its place"
        )


def plan_archive(
    queue: Queue, held: Mapping[int, ArchivedCycle], *, with_open: bool
) -> ArchivePlan:
    """The plan of a run over a queue.

    Args:
        held: what the archive holds, by cycle.
        with_open: the cycle that is still written is archived, too.

    Raises:
        QueueDamaged: the queue cannot be read, or a closed store file is missing.
    """
    plan = ArchivePlan()
    for found in _look(queue):
        archived = held.get(found.cycle)
        if archived is None:
            plan.new += [found] if found.is_closed or with_open else []
        elif _is_less(found, archived):
            is_open = "" if found.is_closed or not archived.is_closed else ", and it is open"
            plan.clashes[found.cycle] = (
                f"expected {archived.count} excerpts as archived,"
                f" found {found.held.count} in the queue{is_open}"
            )
        elif _is_as_it_was(found, archived):
            plan.unchanged.append(found.cycle)
        elif found.is_closed or with_open:
            plan.compared.append((found, archived))
            if (found.held.index_last, found.is_closed) != (
                archived.index_last,
                archived.is_closed,
            ):
                plan.new.append(found)
    return plan


def left_out(
    queue: Queue, held: Iterable[ArchivedCycle], *, with_open: bool
) -> list[tuple[Cycle, int]]:
    """The cycles that no run will take as they are: not closed, though later ones hold excerpts;
    and how many excerpts of each were archived while it was open. If that is all, it is none.

    Args:
        held: what the archive holds by now.
        with_open: cycles that are not closed were archived, too.
    """
    cycles = queue.cycles
    archived = {cycle.cycle: cycle for cycle in held}
    last = last_index(cycles)
    last_cycle = Cycle(-1) if last is None else cycle_of(last, cycles.shift)
    found = []
    for cycle in listed_cycles(cycles):
        before = archived.get(cycle)
        is_taken = before is not None and (before.is_closed or with_open)
        if cycle >= last_cycle or is_taken or cycles.has_ended(cycle):
            continue
        count = 0 if before is None else before.count
        if count_in(cycles, cycle, count + 1) > count:
            found.append((cycle, count))
    return found


def taken_over(plan: ArchivePlan, queue: Queue) -> None:
    """Has what clashes archived anew."""
    anew = set(plan.clashes) - {found.cycle for found in plan.new}
    plan.new += [found for found in _look(queue) if found.cycle in anew]
    plan.new.sort(key=lambda found: found.cycle)
    plan.clashes.clear()


def _look(queue: Queue) -> list[FoundCycle]:
    cycles = queue.cycles
    # ends and states first: what comes behind them is found by the next run
    before = {
        cycle: (cycles.has_ended(cycle), StoreState.of(cycles.path_of(cycle)))
        for cycle in listed_cycles(cycles)
    }
    found = []
    for each in present(queue, 0, INDEX_MAX):
        cycle = cycle_of(Index(each.index_first), cycles.shift)
        if cycle in before:
            is_closed, state = before[cycle]
            numbers = None if state is None else (state.number, state.length, state.changed_ns)
            found.append(FoundCycle(cycle=cycle, held=each, is_closed=is_closed, state=numbers))
    return found


def _is_less(found: FoundCycle, archived: ArchivedCycle) -> bool:
    if found.held.index_last < archived.index_last:
        return True
    is_other = not found.is_closed or found.held.index_last != archived.index_last
    return archived.is_closed and is_other


def _is_as_it_was(found: FoundCycle, archived: ArchivedCycle) -> bool:
    return found.state is not None and (
        found.held.index_last, found.is_closed, found.state
    ) == (archived.index_last, archived.is_closed, archived.state)  # fmt: skip
