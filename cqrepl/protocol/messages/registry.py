"""The handlers of the core: what a name on the wire stands for.

A peer names a handler; it can never choose a class. A name that is not in this table may be in a
program's own (`protocol.subhandler`), or is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cqrepl.protocol.messages import names
from cqrepl.protocol.messages.announcement import (
    TerminatorHandler,
    UberHandler,
    read_terminator_body,
    read_uber_body,
    write_terminator_body,
    write_uber_body,
)
from cqrepl.protocol.messages.liveness import (
    HeartbeatHandler,
    read_heartbeat_body,
    write_heartbeat_body,
)
from cqrepl.protocol.messages.names import WireShape
from cqrepl.protocol.messages.offer import (
    ReplicationHandler,
    read_replication_body,
    write_replication_body,
)
from cqrepl.protocol.messages.unknown import UnknownHandler
from wire import Reader, Writer
from wire.aliases import NETWORK_CLUSTER, NETWORK_HANDLERS, short_name
from wire.codes import BLOCK_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesHandler:
    """Registers the list of a side's queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramHandler:
    """A handler of a program's own kind, to be written.

    Args:
        alias: its type.
        write: writes its fields into an open block.
    """

    alias: str
    write: Callable[[Writer], None]


Handler = (
    UberHandler
    | HeartbeatHandler
    | ReplicationHandler
    | TerminatorHandler
    | QueuesHandler
    | ProgramHandler
    | UnknownHandler
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRow:
    """One handler of the table.

    Args:
        message: the dataclass that its body becomes.
        type_prefix: the type name that is written before the body.
        read: its fields by name, to a message, or to what is wrong with them.
        write: a message's fields, into an open block.
    """

    message: type
    type_prefix: str
    read: Callable[[str, dict[str, Reader]], Handler]
    write: Callable[[Writer, Any, WireShape], None]


def _replication(name: str) -> HandlerRow:
    return HandlerRow(
        message=ReplicationHandler,
        type_prefix=name,
        read=read_replication_body,
        write=write_replication_body,
    )


HANDLERS: Final[dict[str, HandlerRow]] = {
    names.UBER_HANDLER: HandlerRow(
        message=UberHandler,
        type_prefix=NETWORK_HANDLERS + names.UBER_HANDLER,
        read=read_uber_body,
        write=write_uber_body,
    ),
    names.HEARTBEAT_HANDLER: HandlerRow(
        message=HeartbeatHandler,
        type_prefix=NETWORK_HANDLERS + names.HEARTBEAT_HANDLER,
        read=read_heartbeat_body,
        write=write_heartbeat_body,
    ),
    names.SINK_HANDLER: _replication(names.SINK_HANDLER),
    names.SOURCE_HANDLER: _replication(names.SOURCE_HANDLER),
    names.TERMINATOR_HANDLER: HandlerRow(
        message=TerminatorHandler,
        type_prefix=NETWORK_CLUSTER + names.TERMINATOR_HANDLER,
        read=read_terminator_body,
        write=write_terminator_body,
    ),
    names.QUEUES_HANDLER: HandlerRow(
        message=QueuesHandler,
        type_prefix=names.QUEUES_HANDLER,
        read=lambda _kind, _fields: QueuesHandler(),
        write=lambda _writer, _handler, _shape: None,
    ),
}
_NAME_OF: Final = {
    row.message: name for name, row in HANDLERS.items() if row.message is not ReplicationHandler
}


def name_of(handler: Handler) -> str:
    """The name in the table of a handler that we write."""
    return handler.kind if isinstance(handler, ReplicationHandler) else _NAME_OF[type(handler)]


def write_handler(writer: Writer, handler: Handler, shape: WireShape) -> None:
    """A handler as a value: its type, then a block of its fields."""
    if isinstance(handler, ProgramHandler):
        writer.type_prefix(handler.alias)
        with writer.block():
            handler.write(writer)
        return
    row = HANDLERS[name_of(handler)]
    writer.type_prefix(row.type_prefix)
    with writer.block():
        row.write(writer, handler, shape)


def read_handler(reader: Reader) -> Handler:
    """The handler that stands next; one that cannot be used says why."""
    type_name = reader.read_type()
    if type_name is None:
        return UnknownHandler(problem="a handler without a type")
    kind = short_name(type_name) or type_name
    row = HANDLERS.get(kind)
    has_body = reader.peek_code() in BLOCK_LENGTH
    if row is None:
        problem = f"unknown handler {type_name[:100]!r}"
        body = reader.read_block() if has_body else None
        return UnknownHandler(problem=problem, alias=type_name, body=body)
    if not has_body:
        return UnknownHandler(problem=f"a {kind} without a body")
    return row.read(kind, reader.read_block().read_fields())
