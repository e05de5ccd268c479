"""Whole documents, as values: `loads` and `dumps` for one, a reader and a writer for a run.

>>> data = dumps({"cid": 5, "payload": b"hi"})
>>> data.hex(" ")
'13 00 00 00 c3 63 69 64 a1 05 c7 70 61 79 6c 6f 61 64 80 03 8a 68 69'
>>> loads(data)
{'cid': 5, 'payload': b'hi'}

A document's body is a run of fields or of values; here a dict stands for fields, any other value
for itself. `encode` and `decode` are the same without the header, as a queue's excerpts are;
`encode_call` is what a Java method reader calls a method for. For bytes as they come from a socket,
`wire.Splitter` finds the documents.
"""

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, overload

from wire.errors import WireError
from wire.header import (
    HEADER_BYTES,
    LENGTH_MASK,
    META_DATA,
    NOT_COMPLETE,
    align4,
    body_length,
    is_framed,
    is_ready,
)
from wire.objects.annotated import read_message
from wire.objects.body_writer import BodyWriter
from wire.objects.compressed import SIZE_MAX
from wire.objects.lookup import Fields
from wire.objects.nativeforms import message_reader, message_writer, object_reader
from wire.objects.object_reader import read_body
from wire.objects.object_writer import write_body, write_object, write_sequence
from wire.objects.variants import Variant
from wire.reader import Reader
from wire.strings import kept_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_M = TypeVar("_M", bound="DataclassInstance")
_Bytes = bytes | bytearray | memoryview
_LIGHT: Final = Variant.BINARY_LIGHT


class WireDocument(NamedTuple):
    """A document that was read: its header word, where the header stood, its body."""

    word: int
    position: int
    body: memoryview

    @property
    def is_complete(self) -> bool:
        """False for a document that is still being written, or was left so."""
        return not self.word & NOT_COMPLETE

    @property
    def is_metadata(self) -> bool:
        """True for complete meta-data; what is not complete counts as data, as in Java."""
        return is_ready(self.word) and bool(self.word & META_DATA)

    def reader(self) -> Reader:
        """A reader of the body."""
        return Reader(self.body)

    def fields(self) -> Fields:
        """The fields of the body, to be read by name."""
        return Fields(self.reader())

    def value(self, *, keep_widths: bool = False) -> object:
        """The body as a value."""
        return read_body(self.reader(), keep_widths=keep_widths)


class DocumentReader:
    """Iterates over the documents of a buffer, which may grow.

    >>> reader = DocumentReader(dumps({"a": 1}) + dumps("x"))
    >>> [document.value() for document in reader]
    [{'a': 1}, 'x']
    >>> reader.feed(dumps([2, 3], metadata=True))
    >>> [(document.is_metadata, document.value()) for document in reader]
    [(True, [2, 3])]

    It stops where no whole document stands: at the end, at a header word of 0, and where a header
    announces more than there is; `position` tells where.

    Args:
        padding: headers stand at multiples of 4, as in queue files.
        length_max: greatest body in bytes; a longer one is a WireError.
    """

    def __init__(
        self, data: _Bytes = b"", *, padding: bool = False, length_max: int = LENGTH_MASK
    ) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._passed = 0
        self._padding = padding
        self._length_max = length_max

    @property
    def position(self) -> int:
        """Offset, from the first byte given, of the next header."""
        position = self._passed + self._at
        return align4(position) if self._padding else position

    def feed(self, data: _Bytes) -> None:
        """Adds bytes at the end. Bodies that were read stay valid."""
        rest = self._data[self._at :]
        self._passed += self._at
        self._at = 0
        self._data = memoryview(b"".join((rest, data)))

    def __iter__(self) -> Iterator[WireDocument]:
        return self

    def __next__(self) -> WireDocument:
        position = self.position
        start = position - self._passed + HEADER_BYTES
        word = int.from_bytes(self._data[start - HEADER_BYTES : start], "little")
        length = body_length(word)
        if length > self._length_max:
            raise WireError(
                f"a document of at most {self._length_max} bytes was expected, "
                f"header 0x{word:08x} announces {length}",
                position,
            )
        if word == 0 or start + length > len(self._data):
            raise StopIteration
        self._at = start + length
        return WireDocument(word, position, self._data[start : self._at])


class DocumentWriter:
    """Writes documents one after another.

    >>> writer = DocumentWriter()
    >>> with writer.document(metadata=True) as body:
    ...     body.name("cid")
    ...     body.int64(5)
    >>> writer.write({"heartbeat": ""})
    >>> writer.take().hex(" ")
    '06 00 00 40 c3 63 69 64 a1 05 0b 00 00 00 c9 68 65 61 72 74 62 65 61 74 e0'

    Args:
        variant: the kind of wire; RAW has a writer of its own.
        legacy: choose number codes as the releases around 2.20 do.
        padding: headers stand at multiples of 4, as in queue files.
        origin: file offset of the first byte.
    """

    def __init__(
        self,
        variant: Variant = _LIGHT,
        *,
        legacy: bool = False,
        padding: bool = False,
        origin: int = 0,
    ) -> None:
        self._body = BodyWriter(variant, legacy=legacy, origin=origin)
        self._padding = padding

    @property
    def position(self) -> int:
        """File offset of the next byte."""
        return self._body.position

    @contextmanager
    def document(
        self, *, metadata: bool = False, pad_inside: bool = False, is_complete: bool = True
    ) -> Iterator[BodyWriter]:
        """A document, whose body is written inside; taken back when that fails.

        Args:
            metadata: meta-data, not data.
            pad_inside: fill the body up to a multiple of 4.
            is_complete: say in the header that the document is complete.
        """
        data = self._body.data
        start = len(data)
        if self._padding:
            data += bytes(align4(self.position) - self.position)
        header = len(data)
        try:
            with self._body.document(metadata=metadata, pad=pad_inside):
                yield self._body
            if is_complete and not metadata and len(data) == header + HEADER_BYTES:
                raise ValueError("a data document with a body was expected, readers see no other")
        except BaseException:
            del data[start:]
            raise
        if not is_complete:
            data[header + HEADER_BYTES - 1] |= NOT_COMPLETE >> 24

    def write(self, value: object, *, metadata: bool = False) -> None:
        """A document of this value."""
        with self.document(metadata=metadata) as body:
            write_body(body, value)

    def take(self) -> bytes:
        """The bytes that were written and not yet taken."""
        taken = bytes(self._body.data)
        self._body.origin += len(taken)
        self._body.data.clear()
        return taken


def dumps(
    value: object,
    *,
    metadata: bool = False,
    variant: Variant = _LIGHT,
    legacy: bool = False,
) -> bytes:
    """A document of this value: a dict's or dataclass's fields, or the value alone."""
    writer = DocumentWriter(variant, legacy=legacy)
    writer.write(value, metadata=metadata)
    return writer.take()


@overload
def loads(data: _Bytes, *, keep_widths: bool = False) -> object:
    """Into Python's own types."""


@overload
def loads(data: _Bytes, into: type[_M]) -> _M:
    """Into a dataclass."""


def loads(data: _Bytes, into: type[_M] | None = None, *, keep_widths: bool = False) -> object:
    """The value of the one document that the bytes are.

    Args:
        into: a dataclass to read the fields into.
        keep_widths: numbers as Int8 ... Float64, by their codes.

    Raises:
        WireError: the bytes are not one whole document, or its body is malformed.
    """
    reader = DocumentReader(data)
    document = next(reader, None)
    if document is None or not document.is_complete:
        raise WireError(f"a whole document was expected, {len(data)} bytes came", 0)
    if reader.position != len(data):
        raise WireError("the end was expected behind the document", reader.position)
    return _decoded(document.reader(), into, keep_widths)


def encode(value: object, *, variant: Variant = _LIGHT, legacy: bool = False) -> bytes:
    """A document body of this value, without a header.

    >>> encode({"a": 1}).hex()
    'c161a101'
    """
    if variant is _LIGHT and not legacy and dataclasses.is_dataclass(value):
        kind: type = type(value)
        write = _native_writer(kind)
        found = NotImplemented if write is None else write(value)
        if found is not NotImplemented:
            assert isinstance(found, bytes)
            return found
    return plainly_encoded(value, variant=variant, legacy=legacy)


def plainly_encoded(value: object, *, variant: Variant = _LIGHT, legacy: bool = False) -> bytes:
    """The same by the codec in plain Python alone, which is the reference."""
    writer = BodyWriter(variant, legacy=legacy)
    write_body(writer, value)
    return bytes(writer.data)


@overload
def decode(body: _Bytes, *, keep_widths: bool = False, unpack: bool = False) -> object:
    """Into Python's own types."""


@overload
def decode(body: _Bytes, into: type[_M]) -> _M:
    """Into a dataclass."""


def decode(
    body: _Bytes,
    into: type[_M] | None = None,
    *,
    keep_widths: bool = False,
    unpack: bool = False,
) -> object:
    """The value of a document body without its header; arguments as `loads`.

    Args:
        unpack: compressed values as the bytes that they were, at most 16 MiB of them in a document;
            else they are refused, as bytes of a peer's must not become many.

    Raises:
        WireError: the body is malformed, is no message of that class, or is a document with its
            header.
    """
    if not keep_widths:
        read = _READ_OBJECT if into is None else _native_reader(into)
        found = NotImplemented if read is None else read(body)
        # a message is None for the call of another method, which the plain codec refuses
        if found is not NotImplemented and (into is None or found is not None):
            return found
    if is_framed(body):
        raise WireError(
            "a document body was expected, a document with its header came: wire.loads reads it", 0
        )
    if into is None:
        most = SIZE_MAX if unpack else None
        return read_body(Reader(memoryview(body)), keep_widths=keep_widths, unpacked_max=most)
    return read_message(into, Reader(memoryview(body)))


def encode_call(method: str, *arguments: object) -> bytes:
    """A document body that a Java method reader takes for the call of a method: to be appended to a
    queue.

    >>> encode_call("order", {"px": 1.5}).hex()
    'b9056f726465728207000000b9027078929601'
    >>> encode_call("end").hex()
    'b903656e64e0'

    Args:
        method: the name in the Java interface.
        arguments: none, one, or several, each as `encode` writes a value. A dataclass stands for
            the object that Java's parameter names, without a type name.

    Raises:
        TypeError: the wire has no form for a value.
        ValueError: the method has no name that Java and the wire have.
    """
    if not method.isidentifier() or kept_name(method) != method:
        raise ValueError(f"a method name of Latin-1 letters was expected, {method!r} came")
    writer = BodyWriter()
    writer.event(method)
    if not arguments:
        writer.text("")  # as Java writes it
    elif len(arguments) == 1:
        write_object(writer, arguments[0])
    else:
        write_sequence(writer, arguments)
    return bytes(writer.data)


_READ_OBJECT: Final = object_reader()
_native_reader: Final = functools.cache(message_reader)
_native_writer: Final = functools.cache(message_writer)


def _decoded(reader: Reader, into: type[_M] | None, keep_widths: bool) -> object:
    if into is None:
        return read_body(reader, keep_widths=keep_widths)
    return read_message(into, reader)
