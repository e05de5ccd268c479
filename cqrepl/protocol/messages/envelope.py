"""Meta-data around messages: who the next documents are for, and how handlers are registered."""

from dataclasses import dataclass

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.announcement import UberHandler
from cqrepl.protocol.messages.names import CID, CSP, HANDLER, WireShape
from cqrepl.protocol.messages.offer import ReplicationHandler
from cqrepl.protocol.messages.registry import Handler, read_handler, write_handler
from wire import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The content of a meta-data document: csp and cid of the next documents, and their handler."""

    csp: str | None
    cid: Cid | None
    handler: Handler | None


def write_uber(handler: UberHandler, shape: WireShape) -> bytes:
    """The UberHandler's document."""
    seed = shape is WireShape.SEED
    writer = Writer()
    with writer.document(metadata=not seed):
        writer.name(HANDLER)
        write_handler(writer, handler, shape)
    return bytes(writer.data)


def write_registration(csp: str, cid: int, handler: Handler, shape: WireShape) -> bytes:
    """The document or documents that register a sub-handler at the peer."""
    writer = Writer()
    if shape is WireShape.NETWORK:
        with writer.document(metadata=True):
            writer.event(CSP)
            writer.text(csp)
            writer.event(CID)
            writer.integer(cid)
            writer.event(HANDLER)
            write_handler(writer, handler, shape)
        return bytes(writer.data)
    with writer.document(metadata=True):
        writer.name(CSP)
        writer.text(csp)
        writer.name(CID)
        writer.integer(cid)
    # the overview prints the heartbeat's handler as meta-data and the replication ones as data
    with writer.document(metadata=not isinstance(handler, ReplicationHandler)):
        writer.name(HANDLER)
        write_handler(writer, handler, shape)
    return bytes(writer.data)


def write_cid(cid: int) -> bytes:
    """The meta-data document that selects the handler for what follows."""
    writer = Writer()
    with writer.document(metadata=True):
        writer.name(CID)
        writer.integer(cid)
    return bytes(writer.data)


def read_routing(reader: Reader) -> Routing:
    """A meta-data document; also a data document that holds a handler, as the overview prints them.

    Raises:
        WireError: the bytes are not fields with the values that these names have.
    """
    fields = reader.read_fields()
    handler = fields.get(HANDLER)
    return Routing(
        csp=fields[CSP].read_text() if CSP in fields else None,
        cid=Cid(fields[CID].read_int()) if CID in fields else None,
        handler=None if handler is None else read_handler(handler),
    )
