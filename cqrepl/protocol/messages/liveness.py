"""Heartbeats: the handler that registers them, and the document that is one."""

from dataclasses import dataclass

from cqrepl.protocol.messages.names import HEARTBEAT, WireShape
from wire import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatHandler:
    """Registers heartbeats; the dialler's numbers rule both sides."""

    timeout_ms: int
    interval_ms: int


def write_heartbeat_body(writer: Writer, handler: HeartbeatHandler, _shape: WireShape) -> None:
    """The fields of a HeartbeatHandler."""
    writer.name("heartbeatTimeoutMs")
    writer.integer(handler.timeout_ms)
    writer.name("heartbeatIntervalMs")
    writer.integer(handler.interval_ms)


def read_heartbeat_body(_kind: str, fields: dict[str, Reader]) -> HeartbeatHandler:
    """The same, as they came; a missing number is 0."""

    def number(name: str) -> int:
        return fields[name].read_int() if name in fields else 0

    return HeartbeatHandler(
        timeout_ms=number("heartbeatTimeoutMs"), interval_ms=number("heartbeatIntervalMs")
    )


def write_heartbeat() -> bytes:
    """A heartbeat, without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(HEARTBEAT)
        writer.text("")
    return bytes(writer.data)
