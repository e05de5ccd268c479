"""The words of a task board, in its log and to its clients: a name, and fields with values.

Each is the body of a binary wire document: an event name, then a block of fields. A field that is
not known is passed over, so a later version may add some.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wire import Reader, WireError, Writer

Value = int | str | bytes
TEXT_MAX: Final = 1024  # characters of a name, a key or a reason
DATA_MAX: Final = 1 << 20  # bytes of a payload or a result
MESSAGE_MAX: Final = 2 * DATA_MAX + (1 << 16)

# every field there is, and the kind of its values
_KINDS: Final[Mapping[str, type[int] | type[str] | type[bytes]]] = {
    "ask": int,  # number of a request; a leader finds by it what became of a record
    "attempt": int,
    "attempts": int,  # as many at most
    "backoff": int,  # ms before the second attempt
    "count": int,
    "deadline": int,  # ms since 1970; 0 for none
    "due": int,
    "ended": int,
    "epoch": int,
    "holds": str,  # task:attempt, with blanks between
    "host": int,
    "keep": int,
    "key": str,
    "leader": int,
    "now": int,  # ms since 1970, by the clock of the host that led
    "outcome": str,
    "payload": bytes,
    "result": bytes,
    "seen": int,
    "slots": int,
    "status": str,
    "submitted": int,
    "task": int,
    "type": str,
    "types": str,  # with blanks between
    "where": str,  # HOST:PORT, with commas between
    "why": str,
    "worker": str,
}


@dataclass(frozen=True, slots=True)
class TaskWords:
    """A record, or a message."""

    name: str
    values: Mapping[str, Value] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The value of a field that holds a number; 0 where it is not there."""
        value = self.values.get(name, 0)
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        """The same of a text; empty where it is not there."""
        value = self.values.get(name, "")
        return value if isinstance(value, str) else ""

    def data(self, name: str) -> bytes:
        """The same of bytes."""
        value = self.values.get(name, b"")
        return value if isinstance(value, bytes) else b""

    def encoded(self) -> bytes:
        """Its bytes."""
        writer = Writer()
        writer.event(self.name)
        with writer.block():
            for name, value in self.values.items():
                assert isinstance(value, _KINDS[name]), name
                writer.name(name)
                if isinstance(value, bytes):
                    writer.bytes_literal(value)
                elif isinstance(value, str):
                    writer.text(value)
                else:
                    writer.integer(value)
        return bytes(writer.data)


def decode(data: bytes | memoryview) -> TaskWords:
    """The words that these bytes are.

    Raises:
        WireError: they say nothing that can be read.
    """
    reader = Reader(data)
    name = reader.read_name()
    if not name:
        raise WireError("expected a record of a task board, got none")
    values: dict[str, Value] = {}
    for key, value in reader.read_block().read_fields().items():
        kind = _KINDS.get(key)
        if kind is int:
            values[key] = value.read_int()
        elif kind is str:
            values[key] = value.read_text() or ""
        elif kind is bytes:
            block = value.read_block()
            values[key] = bytes(block.data[block.position : block.end])
    return TaskWords(name, values)
