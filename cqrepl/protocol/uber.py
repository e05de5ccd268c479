"""The UberHandler: registers sub-handlers and routes documents to them by csp and cid.

A meta-data document with csp, cid and handler registers; one with a cid alone selects what gets the
data documents that follow. The selection is a state of the connection; a registration selects what
it registered. A refusal also deselects, or one handler's data would reach another.
"""

from dataclasses import dataclass
from typing import Final

from cqrepl.protocol.errors import LocalProtocolError, RemoteProtocolError
from cqrepl.protocol.heartbeat import Heartbeat, numbers_problem
from cqrepl.protocol.messages import (
    HANDLERS,
    HEARTBEAT_CSP,
    SINK_HANDLER,
    HeartbeatHandler,
    ReplicationHandler,
    Role,
    Routing,
    TerminatorHandler,
    UnknownHandler,
    read_routing,
    write_registration,
)
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.sink import SinkHandler
from cqrepl.protocol.source import SourceHandler
from cqrepl.protocol.states import SinkState
from cqrepl.protocol.subhandler import SubHandler
from wire import Document, Reader, WireError

REFUSALS_MAX: Final = 100
HANDLERS_MAX: Final = 1024
# only a replication event may be larger: other documents hold each field apart while read
SMALL_DOCUMENT_MAX: Final = 64 * 1024
_CSP_MAX: Final = 1024
_CSP_SHOWN: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """What the router accepts. `queue_names` are those that a sink takes from the network."""

    role: Role
    is_dialler: bool
    queue_names: frozenset[str] = frozenset()
    handlers_max: int = HANDLERS_MAX


class Router:
    """The sub-handlers of one connection."""

    def __init__(self, config: RouterConfig, outbox: Outbox) -> None:
        self.handlers: dict[int, SubHandler] = {}
        self.selected: SubHandler | None = None
        self.heartbeat: Heartbeat | None = None
        self.has_terminated = False
        self.peer_has_extension = False
        self._config = config
        self._outbox = outbox
        self._csp_pending: tuple[str, int] | None = None  # csp and cid whose handler comes next

    def add(self, cid: int, handler: SubHandler) -> None:
        """Binds a handler that our own side made."""
        assert cid not in self.handlers
        self.handlers[cid] = handler

    def replication(self, cid: int) -> SinkHandler | SourceHandler:
        """The queue behind a cid.

        Raises:
            LocalProtocolError: there is none.
        """
        handler = self.handlers.get(cid)
        if not isinstance(handler, SinkHandler | SourceHandler):
            raise LocalProtocolError(f"cid {cid} is no queue of this connection")
        return handler

    def source(self, cid: int) -> SourceHandler:
        """The queue that our side streams.

        Raises:
            LocalProtocolError: it is none, or one that our side takes in.
        """
        handler = self.replication(cid)
        if not isinstance(handler, SourceHandler):
            raise LocalProtocolError(f"cid {cid} is a sink's queue")
        return handler

    def sink(self, cid: int) -> SinkHandler:
        """The queue that our side takes in.

        Raises:
            LocalProtocolError: it is none, or one that our side streams.
        """
        handler = self.replication(cid)
        if not isinstance(handler, SinkHandler):
            raise LocalProtocolError(f"cid {cid} is a source's queue")
        return handler

    def receiving(self) -> list[SinkHandler]:
        """The queues whose stream comes in."""
        return [
            handler
            for handler in self.handlers.values()
            if isinstance(handler, SinkHandler) and handler.state is SinkState.RECEIVING
        ]

    def route(self, document: Document, now: float) -> None:
        """Handles one document of an open connection.

        Raises:
            RemoteProtocolError: the document cannot be read, or too many were refused.
        """
        try:
            self._route(document, now)
        except WireError as error:
            where = document.position
            raise RemoteProtocolError(
                f"unreadable document at position {where}: {error}"
            ) from error
        if self._outbox.refused > REFUSALS_MAX:
            raise RemoteProtocolError(f"more than {REFUSALS_MAX} messages had to be refused")

    def _route(self, document: Document, now: float) -> None:
        reader = Reader(document.body)
        if document.is_metadata:
            self._require_small(document)
            self._routing(read_routing(reader), now)
            return
        if reader.peek_code() is None:
            return  # an empty data document says nothing
        name = reader.read_name()
        if name != "re":
            self._require_small(document)
        if name is None:  # text, for instance
            raise WireError(f"a field name was expected, code 0x{reader.peek_code():02X} came")
        if name == "handler" and self._csp_pending is not None:
            self._routing(read_routing(Reader(document.body)), now)
        elif self.selected is None:
            self._outbox.refuse(f"{name[:40]!r} for no handler")
        elif not self.selected.receive(name, reader, now):
            self._outbox.refuse(f"{name[:40]!r} is not known to {self.selected.csp}")

    def _routing(self, routing: Routing, now: float) -> None:
        self.selected = None
        csp, cid = routing.csp, routing.cid
        pending, self._csp_pending = self._csp_pending, None
        if routing.handler is None and cid is not None:
            if csp is not None and cid not in self.handlers:
                self._csp_pending = (
                    csp,
                    cid,
                )  # the split form: the handler is in the next document
            elif csp is not None and self.handlers[cid].csp != csp:
                self._refuse_rebinding(csp, cid)
            else:
                self._select(cid)
                if csp is not None:
                    self._csp_pending = (csp, cid)
            return
        if csp is None and cid is None and pending is not None:
            csp, cid = pending
        if routing.handler is None or csp is None or cid is None or len(csp) > _CSP_MAX:
            self._outbox.refuse("a registration without csp, cid or handler, or with a long csp")
            return
        self._register(csp, cid, routing.handler, now)

    def _require_small(self, document: Document) -> None:
        if len(document.body) > SMALL_DOCUMENT_MAX:
            raise RemoteProtocolError(
                f"a document of at most {SMALL_DOCUMENT_MAX} bytes expected at position "
                f"{document.position}, {len(document.body)} came"
            )

    def _select(self, cid: int) -> None:
        self.selected = self.handlers.get(cid)
        if self.selected is None:
            self._outbox.refuse(f"cid {cid} is not registered")

    def _refuse_rebinding(self, csp: str, cid: int) -> None:
        bound = self.handlers[cid].csp
        self._outbox.refuse(
            f"cid {cid} is bound to {bound[:_CSP_SHOWN]!r}, not to {csp[:_CSP_SHOWN]!r}"
        )

    def _register(self, csp: str, cid: int, handler: object, now: float) -> None:
        bound = self.handlers.get(cid)
        if bound is not None and bound.csp != csp:
            self._refuse_rebinding(csp, cid)
        elif bound is None and len(self.handlers) >= self._config.handlers_max:
            self._outbox.refuse(f"more than {self._config.handlers_max} handlers")
        elif isinstance(handler, UnknownHandler):
            self._outbox.refuse(handler.problem)
        elif isinstance(handler, TerminatorHandler):
            self.has_terminated = True
        elif isinstance(handler, HeartbeatHandler):
            self._register_heartbeat(cid, handler, now)
        elif isinstance(handler, ReplicationHandler):
            self._register_replication(csp, cid, handler, now)
        else:
            self._outbox.refuse("a second UberHandler")

    def _register_heartbeat(self, cid: int, numbers: HeartbeatHandler, now: float) -> None:
        if self._config.is_dialler:  # the acceptor's reflection of what we registered ourselves
            self._select(cid)
            return
        problem = numbers_problem(numbers.timeout_ms, numbers.interval_ms)
        if problem is not None or self.heartbeat is not None or cid in self.handlers:
            self._outbox.refuse(problem or "a second HeartbeatHandler")
            return
        self.heartbeat = Heartbeat(cid, numbers, now, self._outbox)
        self.add(cid, self.heartbeat)
        self.selected = self.heartbeat
        self._outbox.send(write_registration(HEARTBEAT_CSP, cid, numbers, self._outbox.shape))

    def _register_replication(
        self, csp: str, cid: int, handler: ReplicationHandler, now: float
    ) -> None:
        is_offer = handler.kind == SINK_HANDLER
        if self._config.role in HANDLERS[handler.kind].registrants:  # it is the peer's to be that
            self._outbox.refuse(f"a {handler.kind} came to a {self._config.role.value}")
        elif is_offer:
            self._register_offer(csp, cid, handler)
        else:
            self._register_answer(csp, cid, handler, now)
        if handler.shape is not None and self.selected is not None:
            self.peer_has_extension = True

    def _register_offer(self, csp: str, cid: int, offer: ReplicationHandler) -> None:
        name = offer.queue_name
        if name not in self._config.queue_names:
            self._outbox.refuse(f"unknown queue {name[:_CSP_SHOWN]!r}")
        elif offer.next_index < 0:
            self._outbox.refuse(f"queue {name!r}: next index {offer.next_index} is negative")
        elif any(isinstance(h, SinkHandler) and h.name == name for h in self.handlers.values()):
            self._outbox.refuse(f"queue {name!r} is registered already")
        elif cid in self.handlers:
            self._outbox.refuse(f"cid {cid} is bound already")
        else:
            self.selected = SinkHandler(csp, cid, offer, self._outbox)
            self.add(cid, self.selected)

    def _register_answer(self, csp: str, cid: int, answer: ReplicationHandler, now: float) -> None:
        offered = self.handlers.get(cid) or next(
            (h for h in self.handlers.values() if h.csp == csp), None
        )
        if not isinstance(offered, SourceHandler) or offered.name != answer.queue_name:
            self._outbox.refuse(
                f"an answer for {answer.queue_name[:_CSP_SHOWN]!r} at {csp[:100]!r}"
            )
            return
        if offered.answer is not None:
            self._outbox.refuse(f"a second answer for queue {offered.name!r}")
            return
        self.handlers[cid] = offered  # the sink may have chosen a cid of its own for the same csp
        self.selected = offered
        offered.answered(answer, now)
