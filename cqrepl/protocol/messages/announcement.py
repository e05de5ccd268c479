"""The first message of each side and the last one: UberHandler and TerminatorHandler.

The UberHandler of a cqrepl host ends with a block `cqrepl`, which Java passes over:

    v             version of the announcement
    capabilities  names of what this side can do beyond the seed's protocol
    role          `host`, or `guest`: a tool or task that is no member and has no host id
    name          of a guest
    refused       why the receiver is not let in: the sender ends the connection

It is read as far as it is known: what is missing or is something else counts as not said, and a
higher version or unknown names change nothing. Only `refused` closes a connection, which its sender
does anyway.
"""

from dataclasses import dataclass
from typing import Final

from cqrepl.protocol.messages.names import WireShape
from cqrepl.protocol.messages.unknown import UnknownHandler
from wire import Reader, WireError, Writer

ANNOUNCEMENT_VERSION: Final = 1
GUEST: Final = "guest"
HOST: Final = "host"
CAPABILITIES_MAX: Final = 256  # of a peer's, the first ones count
_SEED_CLUSTER: Final = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The announcement of a cqrepl host. `name` is a guest's; `refused` says why the receiver is
    not let in."""

    version: int = ANNOUNCEMENT_VERSION
    capabilities: frozenset[str] = frozenset()
    role: str = HOST
    name: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UberHandler:
    """First message of each side. Ids are as the receiver sees them: `remote_id` is the
    sender's."""

    remote_id: int
    local_id: int
    wire_type: str = "BINARY_LIGHT"
    announcement: Announcement | None = None


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
    if handler.announcement is not None:
        writer.name("cqrepl")
        _write_announcement(writer, handler.announcement)


def _write_announcement(writer: Writer, announcement: Announcement) -> None:
    with writer.block():
        writer.name("v")
        writer.integer(announcement.version)
        writer.name("capabilities")
        with writer.block():
            for each in sorted(announcement.capabilities):
                writer.text(each)
        writer.name("role")
        writer.text(announcement.role)
        if announcement.name:
            writer.name("name")
            writer.text(announcement.name)
        if announcement.refused:
            writer.name("refused")
            writer.text(announcement.refused)


def read_uber_body(kind: str, fields: dict[str, Reader]) -> UberHandler | UnknownHandler:
    """The same, as they came."""
    if "remoteIdentifier" not in fields or "localIdentifier" not in fields:
        return UnknownHandler(problem=f"a {kind} without its identifiers")
    return UberHandler(
        remote_id=fields["remoteIdentifier"].read_int(),
        local_id=fields["localIdentifier"].read_int(),
        wire_type=read_wire_type(fields) or "BINARY_LIGHT",
        announcement=_read_announcement(fields["cqrepl"]) if "cqrepl" in fields else None,
    )


def _read_announcement(reader: Reader) -> Announcement | None:
    fields = read_known(reader)
    if fields is None:
        return None
    return Announcement(
        version=known_int(fields, "v") or 0,
        capabilities=_read_capabilities(fields.get("capabilities")),
        role=known_text(fields, "role") or HOST,
        name=known_text(fields, "name") or "",
        refused=known_text(fields, "refused") or "",
    )


def _read_capabilities(reader: Reader | None) -> frozenset[str]:
    names: set[str] = set()
    try:
        texts = None if reader is None else reader.read_block()
        while texts is not None and texts.peek_code() is not None:
            text = texts.read_text()
            if text is None or len(names) == CAPABILITIES_MAX:
                break
            names.add(text)
    except WireError:
        pass  # those before it count
    return frozenset(names)


def read_known(reader: Reader) -> dict[str, Reader] | None:
    """The fields of an extension's block; None for what is no such block."""
    try:
        return reader.read_block().read_fields()
    except WireError:
        return None


def known_int(fields: dict[str, Reader], name: str) -> int | None:
    """A number of an extension's block; None when it is missing or is something else."""
    try:
        return fields[name].read_int() if name in fields else None
    except WireError:
        return None


def known_text(fields: dict[str, Reader], name: str) -> str | None:
    """A text of an extension's block; None when it is missing or is something else."""
    try:
        return fields[name].read_text() if name in fields else None
    except WireError:
        return None


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
