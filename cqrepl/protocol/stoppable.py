"""The common part of both halves of a replicated queue: either side may stop it, and says why."""

from abc import ABC, abstractmethod

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import QueueStopped, StopReason, said_by_peer
from cqrepl.protocol.messages import write_cid
from cqrepl.protocol.messages.excerpts import Promise, StopSaid, write_stopped
from cqrepl.protocol.outbox import Outbox


class Stoppable(ABC):
    """One queue of one connection."""

    def __init__(self, cid: Cid, name: str, outbox: Outbox) -> None:
        self.cid = cid
        self.name = name
        self.cid_document = write_cid(cid)
        self._outbox = outbox
        self._has_told_stop = False

    @property
    @abstractmethod
    def has_stopped(self) -> bool:
        """True when it goes no further: messages for it are dropped."""

    @abstractmethod
    def _move_to_stopped(self) -> None:
        """The move that the table of states has for it."""

    def stop(
        self,
        reason: StopReason,
        message: str,
        index: int | None = None,
        promise: Promise | None = None,
    ) -> None:
        """Sends, takes and acknowledges nothing more; `index`: the first that differs; `promise`:
        to a later leader, which is why."""
        if not self.has_stopped:
            self._move_to_stopped()
            self._outbox.tell(
                QueueStopped(
                    cid=self.cid, name=self.name, reason=reason, message=message, index=index
                )
            )
            self.tell_stopped(reason, message, index, promise)

    def tell_stopped(
        self,
        reason: StopReason,
        message: str,
        index: int | None = None,
        promise: Promise | None = None,
    ) -> None:
        """Tells the peer that we go no further, if it has announced that it knows what that is."""
        if self._outbox.hears_stops and not self._has_told_stop:
            self._has_told_stop = True
            said = write_stopped(reason.value, message, index, promise)
            self._outbox.send(self.cid_document, said)

    def stopped_by_peer(self, said: StopSaid) -> None:
        """The peer goes no further, for a reason that it gives."""
        if not self.has_stopped:
            self._has_told_stop = True  # it knows
            self._move_to_stopped()
            self._outbox.tell(
                QueueStopped(
                    cid=self.cid,
                    name=self.name,
                    reason=StopReason.said(said.reason),
                    message=said_by_peer(said.message),
                    by_peer=True,
                    index=said.differs_at,
                    promise=said.promise,
                )
            )
