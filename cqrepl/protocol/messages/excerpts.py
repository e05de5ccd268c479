"""The messages of a queue that streams: events, acknowledgements, the end of a back copy, and the
reason that the queue goes no further."""

import struct
from array import array
from typing import Final, NamedTuple

from cqrepl.protocol.messages.names import END_OF_STREAM, EVENT, NANOS, PENDING, PROVED, STOPPED
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import Index
from wire import Reader, Writer
from wire.codes import BLOCK_LENGTH, Code
from wire.header import HEADER_BYTES
from wire.writer import encode_int

_EPOCH: Final = "epoch"
_LEADER: Final = "leader"
STOP_TEXT_MAX: Final = 2000  # characters of a message
_ACKNOWLEDGEMENT: Final = struct.Struct("<I4sBq3s")  # header, name, code, index, name
_BEHIND_NAME: Final = struct.Struct("<Bq3s")  # the same from the code on
_NANOS_NAME: Final = b"\xc2ns"


def write_end_of_stream() -> bytes:
    """The end of the back copy, without its cid document."""
    return _write_word(END_OF_STREAM)


def write_pending() -> bytes:
    """The sink's word that an answer which the source waits for takes its time; without its cid
    document."""
    return _write_word(PENDING)


def write_proved() -> bytes:
    """Both sides hold the same, up to the shorter end; without its cid document."""
    return _write_word(PROVED)


def _write_word(name: str) -> bytes:
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(name)
        writer.null()
    return bytes(writer.data)


class Promise(NamedTuple):
    """An epoch that a copy has promised, and the host that leads in it."""

    epoch: int
    leader: int


class StopSaid(NamedTuple):
    """The other side's message about a stop. `differs_at` is the first index where copies differ;
    `promise` is why a source of a lower epoch is refused."""

    reason: str
    message: str
    differs_at: int | None = None
    promise: Promise | None = None


def write_stopped(
    reason: str, message: str, index: int | None = None, promise: Promise | None = None
) -> bytes:
    """This queue goes no further; without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(STOPPED)
        with writer.block():
            writer.name("reason")
            writer.text(reason)
            writer.name("message")
            writer.text(message[:STOP_TEXT_MAX])
            if index is not None:
                writer.name("index")
                writer.integer(index)
            if promise is not None:
                writer.name(_EPOCH)
                writer.integer(promise.epoch)
                writer.name(_LEADER)
                writer.integer(promise.leader)
    return bytes(writer.data)


def read_stopped(reader: Reader) -> StopSaid:
    """A stop whose name was read.

    Raises:
        WireError: the fields are no texts, or the index is no number.
    """
    fields = reader.read_block().read_fields()
    texts = (fields[name].read_text() if name in fields else "" for name in ("reason", "message"))
    reason, message = ((text or "")[:STOP_TEXT_MAX] for text in texts)
    index = fields["index"].read_int() if "index" in fields else None
    return StopSaid(reason, message, index, _read_promise(fields))


def _read_promise(fields: dict[str, Reader]) -> Promise | None:
    """The promise in these fields; None where they have none, and for one that no copy can have
    made."""
    if _EPOCH not in fields or _LEADER not in fields:
        return None
    promise = Promise(fields[_EPOCH].read_int(), fields[_LEADER].read_int())
    try:
        Epochs(promised=promise.epoch, promised_to=promise.leader)
    except ValueError:
        return None
    return promise if promise.epoch else None


def write_acknowledgement(index: int, ns: int) -> bytes:
    """An acknowledgement up to `index`, without its cid document; `ns` is echoed.

    Packed in one step, as there is one for each batch that a sink takes.
    """
    nanos = encode_int(ns)
    length = _ACKNOWLEDGEMENT.size - HEADER_BYTES + len(nanos)
    return _ACKNOWLEDGEMENT.pack(length, b"\xc3idx", Code.INT64_0X, index, _NANOS_NAME) + nanos


def write_replication_event(index: int, payload: bytes, ns: int) -> bytes:
    """One excerpt, without its cid document. The data path frames runs of them in the kernel."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(EVENT)
        with writer.block():
            writer.hex_int(index)
            writer.bytes_literal(payload)
            writer.integer(ns)
    return bytes(writer.data)


# the nano time as it stands at the end of a replication event
ns_item: Final = encode_int


def read_acknowledgement(reader: Reader) -> tuple[int, int]:
    """Index and nano time of an acknowledgement whose first name was read; a missing time is 0.

    The usual form is taken in one step, as there is one for each batch that a sink takes.
    """
    start = reader.position
    if reader.end - start > _BEHIND_NAME.size:
        code, index, name = _BEHIND_NAME.unpack_from(reader.data, start)
        if code == Code.INT64_0X and name == _NANOS_NAME:
            last = Reader(reader.data, start + _BEHIND_NAME.size, reader.end)
            ns = last.read_int()
            if last.position == reader.end:
                return index, ns
    index = reader.read_int()
    fields = reader.read_fields()
    return index, fields[NANOS].read_int() if NANOS in fields else 0


def read_replication_event(reader: Reader) -> tuple[ExcerptBatch, int]:
    """Excerpt and nano time of an event whose name was read, in any of the forms that occur.

    The usual form is a block of three values; a type prefix may stand before it, the values may
    also follow the name directly, and the nano time may be missing (then 0).
    """
    reader.read_type()
    code = reader.peek_code()
    values = reader.read_block() if code in BLOCK_LENGTH else reader
    index = Index(values.read_int())
    payload = values.read_block()
    ns = 0 if values.peek_code() is None else values.read_int()
    offsets, lengths = array("q", [payload.position]), array("q", [payload.end - payload.position])
    return ExcerptBatch(index, memoryview(reader.data), offsets, lengths), ns
