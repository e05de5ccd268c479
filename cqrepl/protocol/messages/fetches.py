"""The messages by which a guest fetches a closed cycle of a queue.

The payloads go as one stream of bytes. Each `excerpts` tells the lengths of the payloads that begin
in it, and has as much of the stream as fits; `more` goes on with the stream. So no document is
long, however long an excerpt is.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from wire import Reader, Writer

EXCERPTS: Final = "excerpts"
MORE: Final = "more"
FETCHED: Final = "fetched"
REFUSED: Final = "refused"
DATA_MAX: Final = 32 * 1024  # bytes of the stream in a document
COUNT_MAX: Final = 4096  # excerpts that begin in one
_TEXT_MAX: Final = 500
_LENGTHS: Final = "I"  # four bytes each, little-endian


class Excerpts(NamedTuple):
    """Excerpts of a cycle from sequence `first` on: their lengths, and the first of their bytes."""

    first: int
    lengths: list[int]
    data: bytes


def write_excerpts(excerpts: Excerpts) -> bytes:
    """Those that begin here; without a cid document, as all of these."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(EXCERPTS)
        with writer.block():
            writer.name("first")
            writer.integer(excerpts.first)
            writer.name("lengths")
            writer.bytes_literal(array(_LENGTHS, excerpts.lengths).tobytes())
            writer.name("data")
            writer.bytes_literal(excerpts.data)
    return bytes(writer.data)


def write_stretch(first: int, lengths: Sequence[int], data: bytes) -> Iterator[bytes]:
    """Documents for excerpts that follow each other, whose payloads together are `data`."""
    yield write_excerpts(Excerpts(first, list(lengths), data[:DATA_MAX]))
    for at in range(DATA_MAX, len(data), DATA_MAX):
        yield write_more(data[at : at + DATA_MAX])


def read_excerpts(reader: Reader) -> Excerpts:
    """The same, once its name was read.

    Raises:
        WireError: a field is something else.
        KeyError: a field is missing.
        ValueError: what stands for the lengths is none.
    """
    fields = reader.read_block().read_fields()
    lengths = array(_LENGTHS)
    lengths.frombytes(_bytes(fields["lengths"]))
    return Excerpts(fields["first"].read_int(), lengths.tolist(), _bytes(fields["data"]))


def write_more(data: bytes) -> bytes:
    """More of the stream."""
    return _written(MORE, lambda writer: writer.bytes_literal(data))


def read_more(reader: Reader) -> bytes:
    """The same, once its name was read."""
    return _bytes(reader)


def write_fetched(excerpts: int) -> bytes:
    """The end of a fetch, with the number of excerpts that were sent."""
    return _written(FETCHED, lambda writer: writer.integer(excerpts))


def write_refused(why: str) -> bytes:
    """It cannot be fetched."""
    return _written(REFUSED, lambda writer: writer.text(why[:_TEXT_MAX]))


def _written(name: str, write_value: Callable[[Writer], None]) -> bytes:
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(name)
        write_value(writer)
    return bytes(writer.data)


def _bytes(reader: Reader) -> bytes:
    value = reader.read_block()
    return bytes(value.data[value.position : value.end])
