"""Words with fields, in the log of a service and to its clients.

Each is the body of a binary wire document: an event name, then a block of fields. A field that is
not known is passed over, so a later version may add some.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wire import Reader, WireError, Writer

Value = int | str | bytes
FieldKinds = Mapping[str, type[int] | type[str] | type[bytes]]  # by the names of fields
_ANY: Final[FieldKinds] = {}


@dataclass(frozen=True, slots=True)
class FieldWords:
    """A record, or a message.

    Args:
        kinds: of all fields that it may have; empty: nothing is said of them.
    """

    name: str
    values: Mapping[str, Value] = field(default_factory=dict)
    kinds: FieldKinds = field(default_factory=lambda: _ANY, repr=False, compare=False)

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
                assert not self.kinds or isinstance(value, self.kinds[name]), name
                writer.name(name)
                if isinstance(value, bytes):
                    writer.bytes_literal(value)
                elif isinstance(value, str):
                    writer.text(value)
                else:
                    writer.integer(value)
        return bytes(writer.data)


def decode_words(data: bytes | memoryview, kinds: FieldKinds) -> FieldWords:
    """The words that these bytes are.

    Raises:
        WireError: they say nothing that can be read.
    """
    reader = Reader(data)
    name = reader.read_name()
    if not name:
        raise WireError("expected a word of a service, got none")
    values: dict[str, Value] = {}
    for key, value in reader.read_block().read_fields().items():
        kind = kinds.get(key)
        if kind is int:
            values[key] = value.read_int()
        elif kind is str:
            values[key] = value.read_text() or ""
        elif kind is bytes:
            block = value.read_block()
            values[key] = bytes(block.data[block.position : block.end])
    return FieldWords(name, values, kinds)
