"""The lease under which a leader answers consistent reads, as an election gives it."""

from typing import Protocol


class LeadLease(Protocol):
    """The lease of one queue in one epoch."""

    def holds(self) -> bool:
        """True while no other host can have been elected. Any thread may ask."""

    async def renewed(self) -> bool:
        """Asks the members of the queue once more; true once it holds, false where too few answer
        within a lease, or this host leads no longer."""
