"""The leases of queues, as programs are told them: in this process, and beside it."""

from typing import Protocol

from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.surroundings import surroundings


class LeasingDesk(Protocol):
    """The desk that has the leases of all queues."""

    def lease_holds(self, name: str, epoch: int) -> bool:
        """True while this host leads in that epoch, and no other host can have been elected."""

    async def lease_renewed(self, name: str, epoch: int) -> bool:
        """Asks the members once more; true once it holds again."""


class DeskLease:
    """The lease of one queue in one epoch, for `Leading`."""

    def __init__(self, desk: LeasingDesk, name: str, epoch: int) -> None:
        self._desk = desk
        self._name = name
        self._epoch = epoch

    def holds(self) -> bool:
        return self._desk.lease_holds(self._name, self._epoch)

    async def renewed(self) -> bool:
        return await self._desk.lease_renewed(self._name, self._epoch)


def tell_until(streamed: SourceQueue, until: float) -> None:
    """Tells programs beside this host until when it leads a queue, by CLOCK_BOOTTIME: they read it
    in the table store, by the clock that they have. A time that is over: it does not."""
    left = until - surroundings().boottime()
    leads = left > 0 and not streamed.leading.has_stepped_down
    streamed.queue.note_leads(surroundings().monotonic_ns() + round(left * 1e9) if leads else 0)
