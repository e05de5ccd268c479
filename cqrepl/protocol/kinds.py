"""The rows of the handler table that the core brings itself.

Each says what becomes of a registration that the peer sends. Unlike a program's rows they see the
whole router: a registration may be the answer to one of ours, under the same cid.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cqrepl.protocol.capabilities import QUEUES_CAPABILITY
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.greeting import ConnectionConfig
from cqrepl.protocol.heartbeat import Heartbeat
from cqrepl.protocol.messages import (
    HEARTBEAT_CSP,
    SINK_HANDLER,
    SOURCE_HANDLER,
    HeartbeatHandler,
    ReplicationHandler,
    TerminatorHandler,
    write_registration,
)
from cqrepl.protocol.messages.names import (
    HEARTBEAT_HANDLER,
    QUEUES_HANDLER,
    TERMINATOR_HANDLER,
)
from cqrepl.protocol.messages.registry import QueuesHandler
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.queuelist import PeerQueues
from cqrepl.protocol.settings import heartbeat_problem
from cqrepl.protocol.sink import SinkHandler
from cqrepl.protocol.source import SourceHandler
from cqrepl.protocol.subhandler import SubHandler

SHOWN: Final = 100  # characters of what a peer wrote


class Registrar(Protocol):
    """The parts of a router that the rows of the core read and set.

    Attributes:
        handlers, sources, sinks: by cid, by csp, by name of the queue.
        has_terminated: the peer has nothing more to say.
    """

    config: ConnectionConfig
    outbox: Outbox
    handlers: dict[Cid, SubHandler]
    sources: dict[str, SourceHandler]
    sinks: dict[str, SinkHandler]
    heartbeat: Heartbeat | None
    peer_queues: PeerQueues | None
    has_terminated: bool

    def is_removed(self, cid: Cid) -> bool:
        """True for a handler that our side has removed, until the peer has ended it, too."""

    def note_extension(self, body: ReplicationHandler) -> None:
        """An offer or an answer came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreKind:
    """A row of the core.

    Args:
        accept: our half for a registration of the peer's, by csp, cid, body, router and time; a
            text says why it is refused, None that there is none to be bound.
        needs: capabilities that the peer must have announced.
        may_be_bound: the cid may have a handler already, and `accept` judges that.
    """

    accept: Callable[[str, Cid, Any, Registrar, float], SubHandler | str | None]
    needs: frozenset[str] = frozenset()
    takes_guests: bool = False
    may_be_bound: bool = True


def _accept_heartbeat(
    _csp: str, cid: Cid, body: HeartbeatHandler, router: Registrar, now: float
) -> SubHandler | str:
    """The dialler's numbers; the acceptor reflects them."""
    bound = router.handlers.get(cid)
    if router.config.is_dialler:  # the acceptor's reflection of what we registered ourselves
        return bound if bound is not None else f"cid {cid} is not registered"
    problem = heartbeat_problem(body.timeout_ms, body.interval_ms)
    if problem is not None or router.heartbeat is not None or bound is not None:
        return problem or "a second HeartbeatHandler"
    router.heartbeat = Heartbeat(cid, body, now, router.outbox)
    router.outbox.send(write_registration(HEARTBEAT_CSP, cid, body, router.outbox.shape))
    return router.heartbeat


def _accept_offer(
    csp: str, cid: Cid, body: ReplicationHandler, router: Registrar, _now: float
) -> SubHandler | str | None:
    """A source offers a queue: a SinkReplicationHandler."""
    name = body.queue_name
    if name not in router.config.takes:
        # Java's sources offer whatever they have, again with every connection
        router.outbox.refuse(f"unknown queue {name[:SHOWN]!r}", counts=False)
        return None
    if body.next_index < 0:
        return f"queue {name!r}: next index {body.next_index} is negative"
    if name in router.sinks:
        return f"queue {name!r} is registered already"
    if cid in router.handlers:
        return f"cid {cid} is bound already"
    router.note_extension(body)
    router.sinks[name] = sink = SinkHandler(csp, cid, body, router.outbox)
    return sink


def _accept_answer(
    csp: str, cid: Cid, body: ReplicationHandler, router: Registrar, now: float
) -> SubHandler | str | None:
    """A sink answers an offer: a SourceReplicationHandler."""
    if router.is_removed(cid):
        return None  # it was on its way when we withdrew that offer
    offered: SubHandler | None = router.handlers.get(cid) or router.sources.get(csp)
    if not isinstance(offered, SourceHandler) or offered.name != body.queue_name:
        return f"an answer for {body.queue_name[:SHOWN]!r} at {csp[:SHOWN]!r}"
    if offered.answer is not None:
        return f"a second answer for queue {offered.name!r}"
    router.note_extension(body)
    offered.answered(body, now)
    return offered  # the sink may have chosen a cid of its own for the same csp


def _accept_terminator(
    _csp: str, _cid: Cid, _body: TerminatorHandler, router: Registrar, _now: float
) -> None:
    """The peer has nothing more to say."""
    router.has_terminated = True


def _accept_queues(
    _csp: str, _cid: Cid, _body: QueuesHandler, router: Registrar, _now: float
) -> SubHandler | str:
    """The peer is going to name its queues."""
    if router.peer_queues is not None:
        return "a second list of queues"
    router.peer_queues = PeerQueues(router.outbox)
    return router.peer_queues


CORE_KINDS: Final[Mapping[str, CoreKind]] = {
    HEARTBEAT_HANDLER: CoreKind(accept=_accept_heartbeat, takes_guests=True),
    SINK_HANDLER: CoreKind(accept=_accept_offer),
    SOURCE_HANDLER: CoreKind(accept=_accept_answer),
    TERMINATOR_HANDLER: CoreKind(accept=_accept_terminator, takes_guests=True),
    # guests have no queues
    QUEUES_HANDLER: CoreKind(
        accept=_accept_queues, needs=frozenset({QUEUES_CAPABILITY}), may_be_bound=False
    ),
}
