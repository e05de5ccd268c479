"""A connection as the handlers of one program see it, beside those of other programs."""

from collections.abc import Set

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.events import Told
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.subhandler import HandlerKind, LinkView, SubHandler


class ProgramLink:
    """Hands what the handlers of a program tell to that program, and everything else to the
    connection.

    Args:
        connection: all programs share it.
        program: number of the program, in the order of `ConnectionConfig.programs`.
    """

    def __init__(self, connection: LinkView, outbox: Outbox, program: int) -> None:
        self._connection = connection
        self._outbox = outbox
        self._program = program

    @property
    def remote_id(self) -> int:
        return self._connection.remote_id

    @property
    def capabilities(self) -> Set[str]:
        return self._connection.capabilities

    def refusal(self, right: str, queue: str) -> str:
        return self._connection.refusal(right, queue)

    def register(self, csp: str, kind: HandlerKind, body: object, handler: SubHandler) -> Cid:
        return self._connection.register(csp, kind, body, handler)

    def send(self, cid: Cid, *documents: bytes) -> None:
        self._connection.send(cid, *documents)

    def wake(self, cid: Cid) -> None:
        self._connection.wake(cid)

    def remove(self, cid: Cid, reason: str = "") -> None:
        self._connection.remove(cid, reason)

    def tell(self, event: object) -> None:
        self._outbox.tell(Told(event=event, program=self._program))
