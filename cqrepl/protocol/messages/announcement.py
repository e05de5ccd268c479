"""The first message of each side and the last one: UberHandler and TerminatorHandler."""

from dataclasses import dataclass
from typing import Final

from cqrepl.protocol.messages.names import WireShape
from cqrepl.protocol.messages.unknown import UnknownHandler
from wire import Reader, Writer

_SEED_CLUSTER: Final = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class UberHandler:
    """First message of each side. Ids are as the receiver sees them: `remote_id` is the
    sender's."""

    remote_id: int
    local_id: int
    wire_type: str = "BINARY_LIGHT"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatorHandler:
    """The last message of a side that ends in order."""


def write_uber_body(writer: Writer, handler: UberHandler, shape: WireShape) -> None:
    """The fields of an UberHandler."""
    writer.name("remoteIdentifier")
    writer.integer(handler.remote_id)
    writer.name("localIdentifier")
    writer.integer(handler.local_id)
    writer.name("wireType")
    writer.type_prefix("WireType")
    writer.text(handler.wire_type)
    if shape is WireShape.SEED:
        writer.name("clusterName")
        writer.text(_SEED_CLUSTER)


def read_uber_body(kind: str, fields: dict[str, Reader]) -> UberHandler | UnknownHandler:
    """The same, as they came."""
    if "remoteIdentifier" not in fields or "localIdentifier" not in fields:
        return UnknownHandler(problem=f"a {kind} without its identifiers")
    return UberHandler(
        remote_id=fields["remoteIdentifier"].read_int(),
        local_id=fields["localIdentifier"].read_int(),
        wire_type=read_wire_type(fields) or "BINARY_LIGHT",
    )


def read_wire_type(fields: dict[str, Reader]) -> str | None:
    """The wire type in a handler's body; None when it says none."""
    reader = fields.get("wireType")
    if reader is None:
        return None
    reader.read_type()  # !WireType in the UberHandler, a plain text elsewhere
    return reader.read_text()


def write_terminator_body(_writer: Writer, _handler: TerminatorHandler, _shape: WireShape) -> None:
    """A TerminatorHandler has no fields."""


def read_terminator_body(_kind: str, _fields: dict[str, Reader]) -> TerminatorHandler:
    """A TerminatorHandler, whatever fields it has."""
    return TerminatorHandler()
