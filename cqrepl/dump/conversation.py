"""The handler that each document of a connection is for, and the content of the document.

Theory of operation. A registration names csp, cid and handler; after it, a meta-data document with
the cid alone selects that handler for the data documents that follow. Both directions have tables
and selections of their own. The older form of a registration, csp and cid in one document and the
handler in the next, is known too. An acknowledgement carries index and nano time of its event, so
the round trip is the time between the two; of the events of a long session the last ones are kept.
"""

from dataclasses import dataclass, field
from typing import Final

from cqrepl.dump.documentreader import Document
from cqrepl.dump.entries import Said
from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.protocol.messages import (
    ACKNOWLEDGED,
    CID,
    CSP,
    EVENT,
    HANDLER,
    RUN,
    read_acknowledgement,
    read_replication_event,
)
from cqrepl.protocol.messages.runs import read_run
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from wire.aliases import short_name
from wire.errors import WireError
from wire.reader import Reader

EVENTS_MAX: Final = 1 << 14  # whose time is kept for their acknowledgement
HANDLERS_MAX: Final = 1 << 12  # of one direction
_ROUTING: Final = frozenset({CSP, CID, HANDLER})


@dataclass(slots=True)
class _Direction:
    """The handlers that were registered in one direction, and the one that is selected."""

    handlers: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    announced: tuple[str | None, int] | None = None  # csp and cid whose handler comes next
    selected: int | None = None

    def said(self, name: str | None) -> Said:
        """The handler that a document without a cid of its own is for."""
        cid = self.selected
        if cid is None:
            return Said(name=name)
        if cid not in self.handlers:
            return Said(name=name, cid=cid, is_known=False)
        csp, handler = self.handlers[cid]
        return Said(name=name, csp=csp, cid=cid, handler=handler)


class ConversationRouter:
    """Follows both directions of one connection."""

    def __init__(self) -> None:
        self._directions = (_Direction(), _Direction())
        self._events: dict[tuple[int | None, int, int], int] = {}

    def read(self, direction: int, document: Document, time_ns: int | None) -> Said:
        """The content of the next document of a direction, 0 or 1."""
        here = self._directions[direction]
        reader = Reader(document.body)
        try:
            name = reader.read_name()
            if name in _ROUTING:
                return _route(here, name, Reader(document.body))
            said = here.said(name)
            if document.missing_bytes:
                return said
            if name == EVENT:
                return self._event(said, *read_replication_event(reader), time_ns)
            if name == RUN:
                batch, ns, _ = read_run(reader, NO_LIMIT)
                assert batch is not None  # none is too long
                return self._event(said, batch, ns, time_ns)
            if name == ACKNOWLEDGED:
                return self._acknowledgement(said, reader, time_ns)
        except WireError:
            return here.said(None)  # its dump shows what it is
        return said

    def _event(self, said: Said, batch: ExcerptBatch, ns: int, time_ns: int | None) -> Said:
        if time_ns is not None:
            # the sink acknowledges all of a run, or of several
            self._events[said.cid, batch.index_last, ns] = time_ns
            if len(self._events) > EVENTS_MAX:
                del self._events[next(iter(self._events))]
        count = len(batch) if said.name == RUN else None
        return _with(said, batch.index_first, ns, payload_bytes=batch.payload_bytes, count=count)

    def _acknowledgement(self, said: Said, reader: Reader, time_ns: int | None) -> Said:
        index, ns = read_acknowledgement(reader)
        sent_ns = self._events.get((said.cid, index, ns))
        if sent_ns is None or time_ns is None:
            return _with(said, index, ns)
        return _with(said, index, ns, round_trip_ns=time_ns - sent_ns)


def _with(
    said: Said,
    index: int,
    ns: int,
    *,
    payload_bytes: int | None = None,
    count: int | None = None,
    round_trip_ns: int | None = None,
) -> Said:
    return Said(
        name=said.name,
        csp=said.csp,
        cid=said.cid,
        handler=said.handler,
        is_known=said.is_known,
        index=index,
        ns=ns,
        payload_bytes=payload_bytes,
        count=count,
        round_trip_ns=round_trip_ns,
    )


def _route(here: _Direction, name: str, reader: Reader) -> Said:
    fields = reader.read_fields()
    csp = fields[CSP].read_text() if CSP in fields else None
    cid = fields[CID].read_int() if CID in fields else None
    if HANDLER in fields:
        return _registration(here, name, csp, cid, _handler_type(fields[HANDLER]))
    if cid is None:
        return Said(name=name, csp=csp)
    here.selected = cid
    if CSP in fields:
        here.announced = csp, cid
        return Said(name=name, csp=csp, cid=cid)
    return here.said(name)


def _registration(
    here: _Direction, name: str, csp: str | None, cid: int | None, handler: str | None
) -> Said:
    if cid is None and csp is None and here.announced is not None:
        csp, cid = here.announced
    here.announced = None
    if cid is not None:
        here.selected = cid
        if len(here.handlers) < HANDLERS_MAX:
            here.handlers.setdefault(cid, (csp, handler))  # of two alike the first one stays
    return Said(name=name, csp=csp, cid=cid, handler=handler)


def _handler_type(reader: Reader) -> str | None:
    type_name = reader.read_type()
    return None if type_name is None else short_name(type_name) or type_name
