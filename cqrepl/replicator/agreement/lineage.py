"""The lineage of a copy, which tells whether two copies hold the same up to the shorter end.

Two copies may share an end and no more: after a power cut, from a backup, in another queue's
directory. Before anything moves between them, and before any mark rises, the sink tells with its
answer a chain over all that both sides may hold, and the source compares that with its own.

Store files below the first one of the source are gone by retention. Those below the first one of
the copy are too, where its notes tell that it held them, or later ones (`ClosedCycles.holds_from`).
Else they came to the source after the copy was made: it lacks them.
"""

import logging
from typing import Final

from cqrepl.kernel.chain import CHAIN_START, has_chains
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue import Diverged, IndexGap
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import (
    NEXT_OF_EMPTY,
    SEQUENCE_FIRST,
    Cycle,
    Index,
    cycle_of,
    format_index,
    index_of,
)
from cqrepl.queue.read.chains import Chains

BEGIN_MENDED: Final = (
    "move the earlier store file of the source away, or begin the copy anew in an empty directory;"
    " if the copy is to do without: cqrepl repair COPY --accept-begin --apply"
)
NO_CYCLE: Final = Cycle(-1)
_logger: Final = logging.getLogger(__name__)


class FilesChanged(OSError):
    """Store files came, or went, while two copies were compared: what was said before and after
    does not go together. The queue is offered again."""

    def __init__(self) -> None:
        super().__init__("store files came or went while the copies were compared")


class BeginMissing(Exception):
    """The copy lacks excerpts below its first one, though nothing was taken off there: no stream
    brings them to it any more.

    Args:
        difference: names the first of them.
    """

    def __init__(self, difference: Diverged) -> None:
        super().__init__(str(difference))
        self.difference = difference


def lacks_begin(index: int, received: str) -> Diverged:
    """The difference of a copy that lacks excerpts below its first one: what it holds is good.

    Args:
        index: of the first one that it lacks.
        received: what the copy has there.
    """
    found = Diverged(index, "excerpts", f"{received}; {BEGIN_MENDED}")
    found.is_below_copy = True
    return found


def warn_without_proof() -> None:
    """Says that nothing can be proved here, where that is so."""
    if not has_chains():
        _logger.warning(
            "no library for hashes (xxhash): whether copies hold the same is not compared"
        )


def first_held(chains: Chains, place: int = 0, identity: Identity | None = None) -> Lineage:
    """The lineage that an offer tells: the first cycle of this side, its place, its identity.

    Raises:
        QueueError: a store file cannot be read.
    """
    first = chains.first_cycle()
    first_cycle = NO_CYCLE if first is None else first
    return Lineage(first_cycle=first_cycle, place=place, identity=identity)


def held(chains: Chains, index: int, other: Lineage, shift: int) -> Lineage:
    """The lineage of this side up to `index`, from the first cycle on that both sides may hold.

    Raises:
        Diverged: this side lacks excerpts before `index`, and has some behind.
        IndexGap: this side's first excerpt comes behind `index`.
        QueueError: a store file cannot be read.
    """
    own = first_held(chains)
    end = Index(index)
    if end == NEXT_OF_EMPTY:
        return Lineage(first_cycle=own.first_cycle, chain=CHAIN_START, cycles=CHAIN_START)
    first = Cycle(max(own.first_cycle, other.first_cycle))
    cycle = cycle_of(end, shift)
    if own.first_cycle == NO_CYCLE:
        raise IndexGap(end, NEXT_OF_EMPTY, "there are no excerpts")
    if cycle < own.first_cycle:
        first_held_index = index_of(Cycle(own.first_cycle), SEQUENCE_FIRST, shift)
        raise IndexGap(end, first_held_index, "what comes before is not there any more")
    try:
        chain = chains.at(end)
    except IndexGap as error:
        found = format_index(error.found)
        raise Diverged(error.expected, f"nothing, and {found} behind", "an excerpt") from error
    return Lineage(
        first_cycle=own.first_cycle,
        chain=chain,
        cycles=chains.over_cycles(first, cycle),
    )


def check_lineage(chains: Chains, index: int, claimed: Lineage, shift: int, who: str) -> None:
    """Compares what a sink says that it holds with what this source does.

    Raises:
        Diverged: they do not hold the same before `index`.
        IndexGap: this source does not hold all before it.
        QueueError: a store file cannot be read.
    """
    own, end = held(chains, index, claimed, shift), Index(index)
    for what, mine, theirs in (
        ("the cycles before", own.cycles, claimed.cycles),
        ("its cycle up to there", own.chain, claimed.chain),
    ):
        if mine != theirs:
            stored = f"{mine.hex()} over {what}"
            received = f"{theirs.hex() or 'nothing'} by {who}"
            raise Diverged(end, stored, received, is_before=True)


def check_begin(chains: Chains, claimed: Lineage, shift: int, who: str) -> None:
    """Checks that a copy lacks no excerpts below its first one, unless they were taken off there.

    Raises:
        BeginMissing: it lacks some.
        QueueError: a store file cannot be read.
    """
    if claimed.holds_from is None or claimed.first_cycle == NO_CYCLE:
        return
    missed = chains.counts(Cycle(claimed.holds_from), Cycle(claimed.first_cycle))
    if not missed:
        return
    begins = index_of(Cycle(claimed.first_cycle), SEQUENCE_FIRST, shift)
    difference = lacks_begin(
        index_of(missed[0][0], SEQUENCE_FIRST, shift),
        f"nothing by {who}: its copy begins at {format_index(begins)}, and no earlier store file"
        " was taken off there",
    )
    raise BeginMissing(difference)
