"""The UberHandler: registers sub-handlers and routes documents to them by csp and cid.

A meta-data document with csp, cid and handler registers; one with a cid alone selects what gets the
data documents that follow. The selection is a state of the connection; a registration selects what
it registered. A refusal also deselects, or one handler's data would reach another.

A handler ends alone, on a connection that goes on, between peers that announced it: the side that
removes it sends `ended` behind its cid and drops what still comes for it, until the other side's
`ended` says that nothing more will. A cid is never used twice; a csp may be.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from cqrepl.protocol.agenda import Agenda
from cqrepl.protocol.capabilities import (
    CORE_CAPABILITIES,
    ENDED_CAPABILITY,
    EPOCHS_CAPABILITY,
    IDENTITY_CAPABILITY,
    LEVELS_CAPABILITY,
    LINEAGE_CAPABILITY,
    MERGED_CAPABILITY,
    RUNS_CAPABILITY,
    STOPS_CAPABILITY,
    TAILERS_CAPABILITY,
)
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.errors import LocalProtocolError, RemoteProtocolError
from cqrepl.protocol.events import Told, printable
from cqrepl.protocol.greeting import ConnectionConfig
from cqrepl.protocol.heartbeat import Heartbeat
from cqrepl.protocol.kinds import CORE_KINDS, SHOWN
from cqrepl.protocol.messages import (
    Handler,
    ReplicationHandler,
    Routing,
    UberHandler,
    UnknownHandler,
    read_routing,
    write_cid,
    write_registration,
)
from cqrepl.protocol.messages.announcement import Announcement
from cqrepl.protocol.messages.names import ENDED, EVENT, RUN
from cqrepl.protocol.messages.queuenames import write_ended
from cqrepl.protocol.messages.registry import HANDLERS, ProgramHandler, name_of
from cqrepl.protocol.messages.runs import RUN_BYTES_MAX
from cqrepl.protocol.outbox import Outbox
from cqrepl.protocol.programfault import HANDLER_FAILED, Contained, GuardedHandler
from cqrepl.protocol.programlink import ProgramLink
from cqrepl.protocol.queuelist import PeerQueues
from cqrepl.protocol.settings import FRAME_OVERHEAD_MAX
from cqrepl.protocol.sink import SinkHandler
from cqrepl.protocol.source import SourceHandler
from cqrepl.protocol.states import SinkState
from cqrepl.protocol.subhandler import HandlerKind, LinkView, SubHandler
from wire import Document, Reader, Splitter, WireError
from wire.header import META_DATA

REFUSALS_MAX: Final = 100
HANDLERS_MAX: Final = 16_384
# only what carries excerpts may be larger: other documents hold each field apart while read
SMALL_DOCUMENT_MAX: Final = 64 * 1024
PRODUCED_MAX: Final = 64 * 1024  # bytes of what handlers produce, taken in one step
WAITING_MAX: Final = 8 * 1024 * 1024  # bytes that wait for a peer that goes on sending
_CSP_MAX: Final = 1024
_NO_CID: Final = Cid(0)
_QUEUES: Final = (SourceHandler, SinkHandler)
_Row = tuple[int, HandlerKind]  # the number of a program, and a kind that it adds


class Router:
    """The sub-handlers of one connection; what a program's handlers see of it (`LinkView`)."""

    def __init__(self, config: ConnectionConfig, outbox: Outbox) -> None:
        self.config = config
        self.outbox = outbox
        self.handlers: dict[Cid, SubHandler] = {}
        self.sources: dict[str, SourceHandler] = {}  # by csp
        self.sinks: dict[str, SinkHandler] = {}  # by name of the queue
        self.agenda = Agenda(self.handlers)
        self.selected: SubHandler | None = None
        self.heartbeat: Heartbeat | None = None
        self.peer_queues: PeerQueues | None = None
        self.has_terminated = False
        self.peer_has_extension = False  # of an offer or answer, from before the announcement
        self.is_open = False
        self.remote_id = 0
        self.capabilities: frozenset[str] = frozenset()
        self.is_guest = False
        self.problem: str | None = None  # what ends the connection with the next document
        self._rows = _table(config.programs)
        self._links: dict[int, ProgramLink] = {}  # by program
        self._cid_next = config.own_cid_first
        self._cid_selected = _NO_CID
        self._selecting: memoryview | None = None  # body of the document that selected this one
        self._csp_pending: tuple[str, Cid] | None = None  # csp and cid whose handler comes next
        self._ready: deque[Cid] = deque()  # cids of handlers that may have something to produce
        self._is_ready: set[Cid] = set()
        self._removed: set[Cid] = set()  # whose `ended` is still to come
        self._failed: list[GuardedHandler] = []  # of the program, that are still to be removed
        self.report: Callable[[str, Exception], None] = unheard
        self._guest = ""  # name of a peer that is one

    def opened(self, remote_id: int, announced: Announcement | None, *, is_guest: bool) -> None:
        """The peer's UberHandler was accepted."""
        self.remote_id, self.is_guest, self.is_open = remote_id, is_guest, True
        if announced is not None:
            self._guest = announced.name
            self.capabilities = announced.capabilities
            on_both = announced.capabilities & CORE_CAPABILITIES
            self.outbox.has_lineage = LINEAGE_CAPABILITY in on_both
            self.outbox.has_identities = self.outbox.has_lineage and IDENTITY_CAPABILITY in on_both
            self.outbox.has_epochs = self.outbox.has_lineage and EPOCHS_CAPABILITY in on_both
            self.outbox.has_merged = self.outbox.has_epochs and MERGED_CAPABILITY in on_both
            if self.config.settings.runs and RUNS_CAPABILITY in announced.capabilities:
                self.outbox.run_payload_max = self.config.settings.payload_max
            self.outbox.has_levels = LEVELS_CAPABILITY in on_both
            self.outbox.has_tailers = TAILERS_CAPABILITY in on_both
            self.outbox.hears_stops = STOPS_CAPABILITY in announced.capabilities

    @property
    def body_max(self) -> int:
        """Most bytes of a document's body that the peer may send now."""
        has_runs = self.outbox.run_payload_max is not None
        return max(self._event_max, RUN_BYTES_MAX + FRAME_OVERHEAD_MAX if has_runs else 0)

    @property
    def _event_max(self) -> int:
        return self.config.settings.payload_max + FRAME_OVERHEAD_MAX

    def close(self, reason: str) -> None:
        """The connection is over: a program's handlers hear of it. The queues can still be asked
        how far they came."""
        self.is_open = False
        self._ready.clear()
        own = [c for c, each in self.handlers.items() if not isinstance(each, _QUEUES)]
        for each in [self.handlers.pop(cid) for cid in own]:
            each.closed(reason)

    # our own side's handlers

    def new_cid(self) -> Cid:
        """A cid that neither side has used."""
        while Cid(self._cid_next) in self.handlers:
            self._cid_next += 1
        self._cid_next += 1
        return Cid(self._cid_next - 1)

    def add(self, cid: Cid, handler: SubHandler) -> None:
        """Binds a handler that our own side made."""
        assert cid not in self.handlers
        self.handlers[cid] = handler
        if isinstance(handler, SourceHandler):
            self.sources[handler.csp] = handler
        self.touched(cid)

    def touched(self, cid: Cid) -> None:
        """A handler was called: it may have something to send, or be due earlier."""
        self.agenda.note(cid)
        # the shell makes what a queue sends of itself: it is not asked
        if cid not in self._is_ready and not isinstance(self.handlers[cid], _QUEUES):
            self._is_ready.add(cid)
            self._ready.append(cid)

    def replication(self, cid: Cid) -> SinkHandler | SourceHandler:
        """The queue behind a cid.

        Raises:
            LocalProtocolError: there is none.
        """
        handler = self.handlers.get(cid)
        if not isinstance(handler, SinkHandler | SourceHandler):
            raise LocalProtocolError(f"cid {cid} is no queue of this connection")
        return handler

    def source(self, cid: Cid) -> SourceHandler:
        """The queue that our side streams.

        Raises:
            LocalProtocolError: it is none, or one that our side takes in.
        """
        handler = self.replication(cid)
        if not isinstance(handler, SourceHandler):
            raise LocalProtocolError(f"cid {cid} is a sink's queue")
        return handler

    def sink(self, cid: Cid) -> SinkHandler:
        """The queue that our side takes in.

        Raises:
            LocalProtocolError: it is none, or one that our side streams.
        """
        handler = self.replication(cid)
        if not isinstance(handler, SinkHandler):
            raise LocalProtocolError(f"cid {cid} is a source's queue")
        return handler

    def is_removed(self, cid: Cid) -> bool:
        """True for a handler that our side has removed, until the peer says that nothing more comes
        for it."""
        return cid in self._removed

    def has_stopped(self, cid: Cid) -> bool:
        """True where the queue behind a cid goes no further, or there is none any more."""
        handler = self.handlers.get(cid)
        return not isinstance(handler, SinkHandler | SourceHandler) or handler.has_stopped

    def receiving(self) -> list[SinkHandler]:
        """The queues whose stream comes in."""
        return [each for each in self.sinks.values() if each.state is SinkState.RECEIVING]

    def note_extension(self, body: ReplicationHandler) -> None:
        """An offer or an answer came; with a shape, from a peer that knows a TerminatorHandler."""
        if body.shape is not None:
            self.peer_has_extension = True

    # the connection as a program's handlers see it

    def refusal(self, right: str, queue: str) -> str:
        guest = self._guest if self.is_guest else ""
        return self.config.refusal(self.remote_id, guest, right, queue)

    def register(self, csp: str, kind: HandlerKind, body: object, handler: SubHandler) -> Cid:
        self._require_open()
        missing = kind.needs - self.capabilities
        if not kind.needs or missing:
            what = ", ".join(sorted(missing)) or "anything that this kind says it needs"
            raise LocalProtocolError(f"{kind.alias}: the peer has not announced {what}")
        if len(csp) > _CSP_MAX:
            raise LocalProtocolError(f"a csp of at most {_CSP_MAX} characters, {len(csp)} came")
        if len(self.handlers) >= HANDLERS_MAX:
            raise LocalProtocolError(f"{kind.alias}: more than {HANDLERS_MAX} handlers")
        cid = self.new_cid()
        written = ProgramHandler(
            alias=_alias(kind), write=lambda writer: kind.write_body(writer, body)
        )
        self.outbox.send(write_registration(csp, cid, written, self.outbox.shape))
        self.add(cid, self._guarded(cid, kind, handler))
        return cid

    def send(self, cid: Cid, *documents: bytes) -> None:
        self._require_open()
        if cid not in self.handlers:
            raise LocalProtocolError(f"cid {cid} has no handler")
        data = b"".join(documents)
        _check_whole(cid, data)
        self.outbox.send(write_cid(cid), data)

    def wake(self, cid: Cid) -> None:
        if cid in self.handlers:
            self.touched(cid)
            self.outbox.wake()

    def remove(self, cid: Cid, reason: str = "") -> None:
        handler = self.handlers.get(cid)
        if handler is None:
            raise LocalProtocolError(f"cid {cid} has no handler")
        self._unbind(cid, handler)
        self._removed.add(cid)
        if len(self._removed) > HANDLERS_MAX:
            self.problem = f"more than {HANDLERS_MAX} handlers that ended, and no word of the peer"
        if self.is_open and ENDED_CAPABILITY in self.capabilities:
            self.outbox.send(write_cid(cid), write_ended(reason))
        handler.closed(reason)

    def remove_failed(self) -> None:
        """Ends the handlers of the program that have failed, on both sides."""
        while self._failed:
            handler = self._failed.pop()
            if self.handlers.get(handler.cid) is handler:
                self.remove(handler.cid, HANDLER_FAILED)

    def tell(self, event: object) -> None:
        self.outbox.tell(Told(event=event))

    def link_of(self, program: int) -> LinkView:
        """The connection as the handlers of one program see it, always the same object."""
        if program not in self._links:
            self._links[program] = ProgramLink(self, self.outbox, program)
        return self._links[program]

    # what is due

    def is_due(self, now: float) -> bool:
        """True when the time of a handler has come, besides that of our heartbeat."""
        due = self.agenda.next_deadline
        return due <= now and (self.heartbeat is None or due < self.heartbeat.deadline)

    @property
    def has_ready(self) -> bool:
        """True when a handler may have something to produce, or is to be removed."""
        return bool(self._ready or self._failed)

    def produce(self) -> None:
        """Has handlers in turn give what they have, while there is room."""
        room = PRODUCED_MAX - len(self.outbox.data)
        while self._ready and room > 0:
            cid = self._ready.popleft()
            self._is_ready.discard(cid)
            handler = self.handlers.get(cid)
            data = b"" if handler is None else handler.produce(room)
            if data and cid in self.handlers:  # it may have removed itself
                self.outbox.send(write_cid(cid), data)
                room = PRODUCED_MAX - len(self.outbox.data)
                self.touched(cid)
        self.remove_failed()

    # documents

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
        self.remove_failed()
        if self.outbox.refused > REFUSALS_MAX:
            raise RemoteProtocolError(f"more than {REFUSALS_MAX} messages had to be refused")
        if len(self.outbox.data) > WAITING_MAX:
            waiting = len(self.outbox.data)
            raise RemoteProtocolError(f"the peer takes too little: {waiting} bytes wait for it")
        if self.problem is not None:
            raise RemoteProtocolError(self.problem)

    def _route(self, document: Document, now: float) -> None:
        if document.word & META_DATA:
            if self.selected is None or document.body != self._selecting:
                self._require_length(document, SMALL_DOCUMENT_MAX)
                routing = read_routing(Reader(document.body))
                self._routing(routing, now)
                if routing.csp is None and routing.handler is None and self.selected is not None:
                    self._selecting = memoryview(bytes(document.body))
            return  # mostly it is the same as the one before, and changes nothing
        reader = Reader(document.body)
        name = reader.read_name()
        if name is None and reader.peek_code() is None:
            return  # an empty data document says nothing
        if name == EVENT:
            self._require_length(document, self._event_max)
        elif name != RUN:
            self._require_length(document, SMALL_DOCUMENT_MAX)
        if name is None:  # text, for instance
            raise WireError(f"a field name was expected, code 0x{reader.peek_code():02X} came")
        if name == "handler" and self._csp_pending is not None:
            self._routing(read_routing(Reader(document.body)), now)
        elif name == ENDED and ENDED_CAPABILITY in self.capabilities:
            self._ended(printable(reader.read_text() or ""))
        elif self.selected is not None:
            self._receive(self.selected, name, reader, now)
        elif self._cid_selected not in self._removed:  # or it was on its way when we removed it
            self.outbox.refuse(f"{name[:40]!r} for no handler")

    def _receive(self, handler: SubHandler, name: str, reader: Reader, now: float) -> None:
        if not handler.receive(name, reader, now):
            self.outbox.refuse(f"{name[:40]!r} is not known to {handler.csp}")
        if self.handlers.get(self._cid_selected) is handler:  # it may have removed itself
            self.touched(self._cid_selected)

    def _ended(self, reason: str) -> None:
        cid, handler = self._cid_selected, self.selected
        if cid in self._removed:
            self._removed.discard(cid)  # nothing more comes for it
        elif handler is None:
            self.outbox.refuse(f"the end of cid {cid}, which is not registered")
        else:
            self._unbind(cid, handler)
            self.outbox.send(write_cid(cid), write_ended(""))
            handler.closed(reason)

    def _routing(self, routing: Routing, now: float) -> None:
        self.selected = self._selecting = None
        csp, cid = routing.csp, routing.cid
        self._cid_selected = _NO_CID if cid is None else cid
        pending, self._csp_pending = self._csp_pending, None
        if routing.handler is None and cid is not None:
            if csp is not None and cid not in self.handlers:
                # the split form: the handler is in the next document
                self._csp_pending = (csp, cid)
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
            self.outbox.refuse("a registration without csp, cid or handler, or with a long csp")
            return
        self._register(csp, cid, routing.handler, now)

    def _require_length(self, document: Document, length_max: int) -> None:
        if len(document.body) > length_max:
            raise RemoteProtocolError(
                f"a document of at most {length_max} bytes expected at position "
                f"{document.position}, {len(document.body)} came"
            )

    def _select(self, cid: Cid) -> None:
        self.selected = self.handlers.get(cid)
        self._cid_selected = cid
        if self.selected is None and cid not in self._removed:
            self.outbox.refuse(f"cid {cid} is not registered")

    def _refuse_rebinding(self, csp: str, cid: Cid) -> None:
        bound = self.handlers[cid].csp
        self.outbox.refuse(f"cid {cid} is bound to {bound[:SHOWN]!r}, not to {csp[:SHOWN]!r}")

    def _register(self, csp: str, cid: Cid, body: Handler, now: float) -> None:
        bound = self.handlers.get(cid)
        if bound is not None and bound.csp != csp:
            self._refuse_rebinding(csp, cid)
        elif bound is None and len(self.handlers) >= HANDLERS_MAX:
            self.outbox.refuse(f"more than {HANDLERS_MAX} handlers")
        elif isinstance(body, UberHandler):
            self.outbox.refuse("a second UberHandler")
        else:
            found = self._accept(csp, cid, body, now)
            if isinstance(found, str):
                self.outbox.refuse(found)
            elif found is not None:
                self.handlers[cid] = found
                if isinstance(found, SourceHandler):
                    found.cid_answered = cid
                self.selected, self._cid_selected = found, cid
                self._removed.discard(cid)
                self.touched(cid)

    def _accept(self, csp: str, cid: Cid, body: Handler, now: float) -> SubHandler | str | None:
        is_bound = cid in self.handlers
        if isinstance(body, UnknownHandler):
            row = self._rows.get(body.alias.removeprefix("!"))
            if row is None or body.body is None:
                return body.problem
            _, kind = row
            problem = self._problem(kind.alias, kind.needs, kind.takes_guests, is_bound, cid)
            if problem is not None:
                return problem
            return self._accept_program(csp, cid, row, body.body.read_fields(), now)
        name = name_of(body)
        core = CORE_KINDS[name]
        is_bound = is_bound and not core.may_be_bound
        problem = self._problem(name, core.needs, core.takes_guests, is_bound, cid)
        return core.accept(csp, cid, body, self, now) if problem is None else problem

    def _accept_program(
        self, csp: str, cid: Cid, row: _Row, fields: Mapping[str, Reader], now: float
    ) -> SubHandler | str:
        program, kind = row
        where = f"{_alias(kind)} at {csp[:SHOWN]!r}"
        with Contained(partial(self.report, where), WireError, RemoteProtocolError):
            found = kind.accept(csp, cid, kind.read_body(fields), self.link_of(program), now)
            return found if isinstance(found, str) else self._guarded(cid, kind, found)
        return f"{where}: {HANDLER_FAILED}"

    def _problem(
        self, name: str, needs: Iterable[str], takes_guests: bool, is_bound: bool, cid: Cid
    ) -> str | None:
        """The reason that the peer may not register a row of the table; None when it may."""
        missing = sorted(frozenset(needs) - self.capabilities)
        if missing:
            return f"a {name} from a peer that has not announced {', '.join(missing)}"
        if self.is_guest and not takes_guests:
            return f"a {name} came from a guest"
        return f"cid {cid} is bound already" if is_bound else None

    # inside

    def _guarded(self, cid: Cid, kind: HandlerKind, handler: SubHandler) -> SubHandler:
        return GuardedHandler(cid, _alias(kind), handler, self._note_fault, _check_whole)

    def _note_fault(self, handler: GuardedHandler, error: Exception) -> None:
        self.report(f"{handler.kind} at {handler.csp[:SHOWN]!r}", error)
        self._failed.append(handler)  # removed once no loop over the handlers is on

    def _unbind(self, cid: Cid, handler: SubHandler) -> None:
        cids = {cid}
        if isinstance(handler, SourceHandler):
            cids |= {handler.cid, handler.cid_answered}
            if self.sources.get(handler.csp) is handler:
                del self.sources[handler.csp]
        elif isinstance(handler, SinkHandler):
            self.sinks.pop(handler.name, None)
        for each in cids:
            if self.handlers.get(each) is handler:
                del self.handlers[each]
                self.agenda.forget(each)
        if self.selected is handler:
            self.selected = None

    def _require_open(self) -> None:
        if not self.is_open:
            raise LocalProtocolError("the connection is not open")


def _alias(kind: HandlerKind) -> str:
    return kind.alias.removeprefix("!")


def unheard(where: str, error: Exception) -> None:
    """The shell has not said that it wants to hear of faults."""


def _check_whole(cid: Cid, data: bytes) -> None:
    splitter = Splitter(length_max=SMALL_DOCUMENT_MAX)
    splitter.feed(data)
    try:
        while splitter.next_document() is not None:
            pass
    except WireError as error:
        raise LocalProtocolError(f"cid {cid}: no document: {error}") from error
    if splitter.pending_bytes:
        raise LocalProtocolError(f"cid {cid}: a document that is not whole")


def _table(programs: Iterable[Iterable[HandlerKind]]) -> dict[str, _Row]:
    table: dict[str, _Row] = {}
    for program, kinds in enumerate(programs):
        for kind in kinds:
            alias = _alias(kind)
            if not alias or alias in table or alias in HANDLERS:
                raise ValueError(f"a handler kind with a name of its own expected, {alias!r} came")
            table[alias] = program, kind
    return table
