"""Messages of a service that may be longer than a document of a program: they go in pieces.

Every piece but the last one is a document `part`, the last one is `last`; both have raw bytes. What
the bytes of a message say is the service's matter.
"""

from collections.abc import Iterator
from typing import Final

from wire import Reader, WireError, Writer

PART: Final = "part"
LAST: Final = "last"
PIECE_BYTES: Final = 48 * 1024  # a program's document may have 64 KiB


def pieces(message: bytes) -> Iterator[bytes]:
    """The documents of a message, without cid documents."""
    start = 0
    while len(message) - start > PIECE_BYTES:
        yield piece(PART, message[start : start + PIECE_BYTES])
        start += PIECE_BYTES
    yield piece(LAST, message[start:])


class PieceReader:
    """Puts messages together again.

    Args:
        bytes_max: of one message.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._data = bytearray()

    def take(self, name: str, reader: Reader) -> bytes | None:
        """The message, with its last piece; None before.

        Raises:
            WireError: a message is too long, or this is no piece.
        """
        if name not in (PART, LAST):
            raise WireError(f"expected a piece of a message, got {name!r}")
        block = reader.read_block()
        self._data += block.data[block.position : block.end]
        if len(self._data) > self._bytes_max:
            got = len(self._data)
            raise WireError(f"expected a message of at most {self._bytes_max} bytes, got {got}")
        if name == PART:
            return None
        message = bytes(self._data)
        self._data.clear()
        return message


def piece(name: str, data: bytes) -> bytes:
    """The document of one piece, without a cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(name)
        writer.bytes_literal(data)
    return bytes(writer.data)
