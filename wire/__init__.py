"""Binary wire: the self-describing binary form of YAML that Chronicle software speaks.

Bytes to values and back; touches no file and no socket.

>>> import wire
>>> data = wire.dumps({"cid": 1671070996, "tags": ["a", "b"], "ratio": 0.25})
>>> wire.loads(data)
{'cid': 1671070996, 'tags': ['a', 'b'], 'ratio': 0.25}
>>> print(wire.dump_text(data), end="")
--- !!data #binary
cid: 1671070996
tags: [
  a,
  b
]
ratio: 0.25

A dataclass is a message, its annotations are the types of its fields:

>>> from dataclasses import dataclass
>>> @dataclass
... class Heartbeat:
...     cid: int
...     heartbeat: str | None = None
>>> wire.loads(wire.dumps(Heartbeat(5, "")), Heartbeat)
Heartbeat(cid=5, heartbeat='')

`dumps` and `loads` are for documents as they stand in a stream, with their headers. An excerpt of a
queue has none: `encode` makes its bytes, `decode` reads them, and `encode_call` makes what a Java
method reader takes for the call of a method.

>>> @dataclass
... class Order:
...     sym: str
...     px: float
>>> excerpt = wire.encode_call("order", Order("A", 1.5))  # for queue.append
>>> wire.decode(excerpt)
{'order': {'sym': 'A', 'px': 1.5}}

`DocumentReader` and `DocumentWriter` go over runs of documents, `Fields` reads fields by name in
any order, `Reader` and `BodyWriter` read and write item by item. For any bytes at all, the only
error that they cause is `WireError`.

>>> wire.loads(data[:-1])
Traceback (most recent call last):
...
wire.errors.WireError: a whole document was expected, 34 bytes came at position 0
"""

from typing import TYPE_CHECKING

from wire.document import Document, Splitter
from wire.errors import FieldError, WireError
from wire.reader import Reader
from wire.writer import Writer

if TYPE_CHECKING:
    from wire.objects.annotated import Name
    from wire.objects.body_writer import BodyWriter
    from wire.objects.documents import (
        DocumentReader,
        DocumentWriter,
        WireDocument,
        decode,
        dumps,
        encode,
        encode_call,
        loads,
    )
    from wire.objects.lookup import Fields
    from wire.objects.raw import RawReader, RawWriter
    from wire.objects.values import (
        BytesLiteral,
        Float32,
        Float64,
        Hex64,
        History,
        Int8,
        Int16,
        Int32,
        Int64,
        LocalDate,
        LocalDateTime,
        LocalTime,
        LongArray,
        Typed,
        TypeLiteral,
        UInt8,
        UInt16,
        UInt32,
        ZonedDateTime,
    )
    from wire.objects.variants import Variant
    from wire.text.parse_documents import encode_text
    from wire.text.print_documents import dump_text

__all__ = [
    "BodyWriter",
    "BytesLiteral",
    "Document",
    "DocumentReader",
    "DocumentWriter",
    "FieldError",
    "Fields",
    "Float32",
    "Float64",
    "Hex64",
    "History",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "LocalDate",
    "LocalDateTime",
    "LocalTime",
    "LongArray",
    "Name",
    "RawReader",
    "RawWriter",
    "Reader",
    "Splitter",
    "TypeLiteral",
    "Typed",
    "UInt8",
    "UInt16",
    "UInt32",
    "Variant",
    "WireDocument",
    "WireError",
    "Writer",
    "ZonedDateTime",
    "decode",
    "dump_text",
    "dumps",
    "encode",
    "encode_call",
    "encode_text",
    "loads",
]


def __getattr__(name: str) -> object:
    # the data path needs none of these: replication should not wait for their modules
    if name not in __all__:
        raise AttributeError(f"module 'wire' has no attribute {name!r}")
    from wire.objects import annotated, body_writer, documents, lookup, raw, values, variants
    from wire.text import parse_documents, print_documents

    # first text_reader: other modules import the encode_text of wire.strings, which is another
    homes = (
        parse_documents,
        documents,
        values,
        body_writer,
        lookup,
        annotated,
        raw,
        print_documents,
        variants,
    )
    found = next(vars(home)[name] for home in homes if name in vars(home))
    globals()[name] = found  # a name is looked up once
    return found
