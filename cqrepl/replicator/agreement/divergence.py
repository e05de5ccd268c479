"""Finds the first excerpt that two copies hold differently.

Theory of operation. Two copies that are equal up to an index are equal up to every earlier one. So
the place is found by halving: first over the cycles, then over the excerpts of one. For each place
the source asks the sink what it holds before it (`lineage.held`), and reckons its own; neither
reads more than what lies between two points of its chains.

A store file may have been missing when one side said what it holds, and have come back since. So
the end is asked for once more before all else; and where the place that is found holds the same on
both sides, or a cycle does that was to differ, what was said does not go together.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue import Diverged, IndexGap
from cqrepl.queue.format.index import (
    SEQUENCE_FIRST,
    Cycle,
    Index,
    Sequence,
    cycle_of,
    format_index,
    index_of,
    sequence_of,
)
from cqrepl.queue.inspection.bisection import Bisection
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.agreement.lineage import FilesChanged, held


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two copies that differ somewhere before the shorter of their ends.

    Args:
        end: the shorter end.
        theirs: what the sink holds before it, and the first cycle that it has.
        own_next: one past the source's last excerpt.
        their_next: one past the sink's.
        who: the sink, for people.
        is_of_cycle: only the cycle of the end is looked at; of those before nothing was said.
    """

    end: Index
    theirs: Lineage
    own_next: Index
    their_next: Index
    who: str
    is_of_cycle: bool = False


class DivergenceSearch:
    """One search: gives the places to ask the sink for, and takes its answers.

    Args:
        chains: of the source's queue.
        shift: number of bits of an index that hold the sequence.
    """

    def __init__(self, chains: Chains, compared: Compared, shift: int) -> None:
        self._chains = chains
        self._compared = compared
        self._shift = shift
        self._seen: dict[Index, Lineage] = {compared.end: compared.theirs}  # what the sink has said
        self._steps = self._search()

    def begin(self) -> Index | Diverged | None:
        """The first place to ask the sink for; or already what was found.

        Raises:
            QueueError: as `take`.
        """
        return self._go_on(None)

    def take(self, theirs: Lineage) -> Index | Diverged | None:
        """The next place, after the sink's answer; or what was found, None: no difference.

        Raises:
            FilesChanged: the answers do not go together.
            QueueError: a store file cannot be read.
        """
        return self._go_on(theirs)

    def _go_on(self, theirs: Lineage | None) -> Index | Diverged | None:
        try:
            return next(self._steps) if theirs is None else self._steps.send(theirs)
        except StopIteration as found:
            diverged: Diverged | None = found.value
            return diverged

    def _search(self) -> Generator[Index, Lineage, Diverged | None]:
        end, shift = self._compared.end, self._shift
        if (yield from self._agree(end)):
            return None
        counts = self._counts()
        if not counts:  # of what they are to share we have nothing
            return self._found(end, b"", self._compared.theirs.cycles)
        # each cycle begins a place, and the last place is the end: there they are known to differ
        starts = [index_of(cycle, SEQUENCE_FIRST, shift) for cycle, _ in counts[1:]]
        nth = yield from self._halved([*starts, end].__getitem__, len(starts))
        cycle, count = counts[nth]
        if nth < len(starts):
            whole = index_of(cycle, Sequence(count), shift)
            if (yield from self._agree(whole)):  # there is more behind, of which we have nothing
                if (yield from self._agree(starts[nth])):  # or the file is another one by now
                    raise FilesChanged
                return self._found(whole, b"", self._seen[starts[nth]].cycles)
        sequence = yield from self._halved(
            lambda n: index_of(cycle, Sequence(n + 1), shift), count - 1
        )
        index, behind = (index_of(cycle, Sequence(n), shift) for n in (sequence, sequence + 1))
        stored, received = self._chains.at(behind), self._seen[behind].chain
        is_first = (nth, sequence) == (0, 0) and not self._compared.is_of_cycle
        return self._found(index, stored, received, is_first=is_first)

    def _halved(self, place: Callable[[int], Index], last: int) -> Generator[Index, Lineage, int]:
        """The first of the places 0 to `last` before which the two differ; they do at the last."""
        search = Bisection(last)
        while (middle := search.middle) is not None:
            search.take(is_equal=(yield from self._agree(place(middle))))
        return search.first

    def _agree(self, index: Index) -> Generator[Index, Lineage, bool]:
        """True when the two copies hold the same before an index."""
        theirs = self._seen[index] = yield index
        if self._compared.is_of_cycle:
            return self._chains.at(index) == theirs.chain
        try:
            own = held(self._chains, index, self._compared.theirs, self._shift)
        except (Diverged, IndexGap):
            return False  # not all of that is here
        return (own.chain, own.cycles) == (theirs.chain, theirs.cycles)

    def _counts(self) -> list[tuple[Cycle, int]]:
        """The cycles of the source that are compared, each with its number of excerpts."""
        end = self._compared.end
        if self._compared.is_of_cycle:
            return [(cycle_of(end, self._shift), int(sequence_of(end, self._shift)))]
        first = Cycle(max(self._compared.theirs.first_cycle, self._first_cycle()))
        last, count = cycle_of(end, self._shift), sequence_of(end, self._shift)
        found = self._chains.counts(first, last)
        return [*found, (last, count)] if count else found

    def _first_cycle(self) -> Cycle:
        found = self._chains.first_cycle()
        return Cycle(0) if found is None else found

    def _found(
        self, index: Index, stored: bytes, received: bytes, *, is_first: bool = False
    ) -> Diverged:
        ends = self._compared
        if stored == received:
            raise FilesChanged
        more = "; the first excerpt differs: are they copies of one queue?" if is_first else ""
        return Diverged(
            index,
            stored.hex() or "nothing",
            f"{received.hex() or 'nothing'} by {ends.who}; here the next index is"
            f" {format_index(ends.own_next)}, there {format_index(ends.their_next)}{more}",
        )
