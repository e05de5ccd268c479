"""The golden vectors of the wire, and the manifest's calls made on our writer and our reader.

A call is `[field, method, arguments]`, see the README beside the vectors. What the writer and the
reader do not have yet is named in two lists; tests check that these are neither too long nor too
short.
"""

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from wire import Reader, Writer
from wire.header import align4
from wire.strings import encode_name

VECTORS = Path(__file__).parents[2] / "vectors" / "wire"
Vector = dict[str, Any]
Call = Sequence[Any]

# kinds of calls that the writer does not have yet; it has every other one
NOT_YET_WRITTEN: Final = frozenset(
    {
        "arrayDelta_f64",
        "arrayDelta_i64",
        "array_f64",
        "date",
        "dateTime",
        "eventObject",
        "fixedFloat32",
        "fixedFloat64",
        "fixedInt16",
        "fixedInt32",
        "fixedInt64",
        "fixedInt8",
        "float32",
        "float64",
        "id",
        "int32forBinding",
        "map",
        "marshallable16",
        "marshallable8",
        "marshallableMap",
        "notComplete",
        "object",
        "textBytes",
        "typeLiteral",
        "untypedObject",
        "utf8",
        "uuid",
        "zonedDateTime",
    }
)
# kinds that the reader does not have yet: names that are objects, and two defects of Java's writer
NOT_YET_READ: Final = frozenset({"eventObject", "textBytes", "utf8"})
# values that the reader only steps over as yet
STEPPED_OVER: Final = frozenset(
    {
        "date",
        "dateTime",
        "map",
        "marshallableMap",
        "object",
        "time",
        "typeLiteral",
        "untypedObject",
        "uuid",
        "zonedDateTime",
    }
)
_NESTING: Final = {"marshallable": 0, "sequence": 0, "typedMarshallable": 1}


def load(*files: str) -> list[Vector]:
    """The vectors of these files."""
    texts = [(VECTORS / f"{name}.jsonl").read_text(encoding="ascii") for name in files]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def kinds(vector: Vector) -> set[str]:
    """What has to be there to write this vector."""
    found = {str(document.get("style")) for document in vector["build"]} & {"notComplete"}
    for document in vector["build"]:
        for call in _flat(document["calls"]):
            found |= _kinds_of(call)
    return found


def is_binary(vector: Vector) -> bool:
    """True for the wire that is ours; the others are text, or leave out the codes."""
    return vector["wire"] in ("BINARY_LIGHT", "BINARY")


def _flat(calls: list[Call]) -> Iterator[Call]:
    for call in calls:
        yield call
        _, method, arguments = call
        if method in _NESTING and arguments[0] is not None:
            yield from _flat(arguments[_NESTING[method]])


def _kinds_of(call: Call) -> set[str]:
    name, method, arguments = call
    fields = set(name) - {"wire", "code", "key"} if isinstance(name, dict) else set()
    if method == "object" and isinstance(arguments[0], dict) and "wiretype" in arguments[0]:
        return fields | {"wiretype"}
    return fields | {method}


def text_of(argument: Any) -> str | None:
    """A text argument."""
    if isinstance(argument, dict):
        return str(argument["str"]) * int(argument.get("times", 1))
    return None if argument is None else str(argument)


def bytes_of(argument: Any) -> bytes:
    """A bytes argument."""
    return bytes.fromhex(argument["hex"]) * int(argument.get("times", 1))


def name_of(field: Any) -> str:
    """The name that a field of the manifest asks for."""
    for key in ("event", "long", "key"):
        if isinstance(field, dict) and key in field:
            return str(text_of(field[key]))
    return str(field)


def build(vector: Vector) -> bytes:
    """What our writer makes of the vector's calls."""
    writer = Writer()
    padding = vector.get("padding", False)
    for document in vector["build"]:
        if padding:
            writer.data += bytes(align4(writer.position) - writer.position)
        if document["doc"] is None:
            write_calls(writer, document["calls"])
            continue
        pad = padding and document.get("style") == "writeDocument"
        with writer.document(metadata=document["doc"] == "meta", pad=pad):
            write_calls(writer, document["calls"])
    return bytes(writer.data)


def write_calls(writer: Writer, calls: list[Call]) -> None:
    """Makes the calls on our writer."""
    for field, method, arguments in calls:
        if isinstance(field, dict) and "event" in field:
            writer.event(name_of(field))
        elif field is not None and not (isinstance(field, dict) and "wire" in field):
            writer.name(name_of(field))
        _WRITE[method](writer, *arguments)


def _write_optional(
    write: Callable[[Writer, Any], None], of: Callable[[Any], Any]
) -> Callable[[Writer, Any], None]:
    def call(writer: Writer, argument: Any) -> None:
        if argument is None:
            writer.null()
        else:
            write(writer, of(argument))

    return call


def _write_block(writer: Writer, calls: list[Call]) -> None:
    with writer.block():
        write_calls(writer, calls)


def _write_typed(writer: Writer, name: str | None, calls: list[Call] | None = None) -> None:
    if name is None:
        writer.null()
        return
    writer.type_prefix(name)
    _write_block(writer, calls or [])


def _write_raw(writer: Writer, payload: Any, type_name: str | None = None) -> None:
    if payload is None:
        writer.null()
        return
    if type_name is not None:
        writer.type_prefix(type_name)
    writer.bytes_literal(b"\x8a" + bytes_of(payload))


def _write_array(writer: Writer, numbers: list[int]) -> None:
    with writer.block():
        for number in numbers:
            writer.integer(number)


def _write_array_values(writer: Writer, capacity: int, values: list[int], used: int = 0) -> None:
    array = writer.int64_array(capacity)  # its file offset; the values are then set in place
    struct.pack_into("<q", writer.data, array + 8 - writer.origin, used)
    struct.pack_into(f"<{len(values)}q", writer.data, array + 16 - writer.origin, *values)


def _write_wire_type(writer: Writer, argument: Any) -> None:
    writer.type_prefix("WireType")
    writer.text(argument["wiretype"])


_INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
_WRITE: Final[dict[str, Callable[..., object]]] = {
    **dict.fromkeys(_INTEGERS, Writer.integer),
    "addPadding": Writer.padding,
    "array_i32": _write_array,
    "array_i64": _write_array,
    "bool": _write_optional(Writer.boolean, bool),
    "boolForBinding": Writer.boolean,
    "bytes": _write_raw,
    "bytesArray": _write_raw,
    "bytesLiteral": _write_optional(Writer.bytes_literal, bytes_of),
    "bytesTyped": lambda writer, name, payload: _write_raw(writer, payload, name),
    "comment": lambda writer, text: writer.comment(text_of(text)),
    "int128forBinding": Writer.bound_int128,
    "int64_0x": Writer.hex_int,
    "int64array": Writer.int64_array,
    "int64arrayValues": _write_array_values,
    "int64forBinding": Writer.bound_int64,
    "marshallable": _write_block,
    "nothing": lambda writer: None,
    "null": Writer.null,
    "object": _write_wire_type,
    "rawBytes": lambda writer, payload: _write_raw(writer, payload, "byte[]"),
    "rawWireBytes": lambda writer, payload: writer.data.extend(bytes_of(payload)),
    "sequence": _write_block,
    "text": _write_optional(Writer.text, text_of),
    "time": Writer.time_text,
    "typePrefix": Writer.type_prefix,
    "typedMarshallable": _write_typed,
}


def read_calls(reader: Reader, calls: list[Call]) -> None:
    """Asserts that our reader finds what the calls wrote, and nothing behind it."""
    type_name: str | None = None
    for field, method, arguments in calls:
        if isinstance(field, dict) and "wire" in field:
            continue
        if field is not None:
            assert reader.read_name() == _name_as_read(field)
        whole = Reader(reader.data, reader.position, reader.end)
        if method in ("typePrefix", "nothing"):  # the value itself is the next call's
            type_name = arguments[0] if arguments else None
            continue
        whole.skip_value()
        if _kinds_of((field, method, arguments)) & STEPPED_OVER:
            reader.position = whole.position
            continue
        assert reader.read_type() == (type_name or _type_of(method, arguments))
        type_name = None
        _READ[method](reader, *arguments)
        assert reader.position == whole.position
    assert reader.peek_code() is None


def _name_as_read(field: Any) -> str:
    if isinstance(field, dict) and "id" in field:
        return str(field["id"])
    name = encode_name(name_of(field)).decode("latin-1")
    is_event = isinstance(field, dict) and "event" in field
    is_number = not is_event and name.isdecimal() and int(name) < 1 << 31
    return str(int(name)) if is_number else name


def _type_of(method: str, arguments: list[Any]) -> str | None:
    if method in ("rawBytes", "object"):
        return "byte[]" if method == "rawBytes" else "WireType"
    if method in ("bytesTyped", "typedMarshallable"):
        return None if arguments[0] is None else str(arguments[0])
    return None


def number_of(argument: Any) -> int:
    """A number as a whole number, cut as Java cuts a double."""
    if isinstance(argument, int):
        return argument
    bits = next(iter(argument.values()))
    (number,) = struct.unpack(">f" if "f32" in argument else ">d", bytes.fromhex(bits))
    if math.isnan(number):
        return 0
    within = max(-(2.0**63), min(2.0**63, number))
    return min((1 << 63) - 1, int(within))


def _read_number(reader: Reader, argument: Any) -> None:
    assert reader.read_int() == number_of(argument)


def _read_text(reader: Reader, argument: Any) -> None:
    assert reader.read_text() == text_of(argument)


def _read_bool(reader: Reader, argument: bool | None) -> None:
    if argument is None:
        _read_null(reader)
    else:
        assert reader.read_bool() is argument


def _read_null(reader: Reader) -> None:
    assert reader.read_text() is None


def _read_block(reader: Reader, calls: list[Call]) -> None:
    read_calls(reader.read_block(), calls)


def _read_typed(reader: Reader, name: str | None, calls: list[Call] | None = None) -> None:
    if name is None:
        _read_null(reader)
    else:
        _read_block(reader, calls or [])


def _read_bytes(reader: Reader, payload: Any, before: bytes = b"\x8a") -> None:
    if payload is None:
        _read_null(reader)
        return
    inner = reader.read_block()
    assert bytes(inner.data[inner.position : inner.end]) == before + bytes_of(payload)


def _read_literal(reader: Reader, payload: Any) -> None:
    _read_bytes(reader, payload, before=b"")


def _read_array(reader: Reader, numbers: list[Any]) -> None:
    inner = reader.read_block()
    assert [inner.read_int() for _ in numbers] == [number_of(number) for number in numbers]
    assert inner.peek_code() is None


def _read_delta(reader: Reader, numbers: list[Any]) -> None:
    inner = reader.read_block()
    for _ in numbers:
        inner.read_int()
    assert inner.peek_code() is None


def _read_bound(reader: Reader, value: int) -> None:
    position = reader.read_bound_int64()
    assert position % 8 == 0
    assert struct.unpack_from("<q", reader.data, position) == (value,)


def _read_longs(
    reader: Reader, capacity: int, values: list[int] | None = None, used: int = 0
) -> None:
    position = reader.read_bound_array()
    assert position % 8 == 0
    longs = struct.unpack_from(f"<{2 + capacity}q", reader.data, position)
    values = values or []
    assert longs == (capacity, used, *values, *[0] * (capacity - len(values)))


_READ: Final[dict[str, Callable[..., object]]] = {
    **dict.fromkeys(_INTEGERS, _read_number),
    "arrayDelta_f64": _read_delta,
    "arrayDelta_i64": _read_delta,
    "array_f64": _read_array,
    "array_i32": _read_array,
    "array_i64": _read_array,
    "bool": _read_bool,
    "boolForBinding": _read_bool,
    "bytes": _read_bytes,
    "bytesArray": _read_bytes,
    "bytesLiteral": _read_literal,
    "bytesTyped": lambda reader, _name, payload: _read_bytes(reader, payload),
    "fixedFloat32": _read_number,
    "fixedFloat64": _read_number,
    "fixedInt16": _read_number,
    "fixedInt32": _read_number,
    "fixedInt64": _read_number,
    "fixedInt8": _read_number,
    "float32": _read_number,
    "float64": _read_number,
    "int128forBinding": lambda reader, *pair: _read_longs(reader, 2, list(pair), used=2),
    "int32forBinding": _read_number,
    "int64_0x": _read_number,
    "int64array": _read_longs,
    "int64arrayValues": _read_longs,
    "int64forBinding": _read_bound,
    "marshallable": _read_block,
    "marshallable16": _read_block,
    "marshallable8": _read_block,
    "null": _read_null,
    "object": lambda reader, wire_type: _read_text(reader, wire_type["wiretype"]),
    "rawBytes": _read_bytes,
    "sequence": _read_block,
    "text": _read_text,
    "typedMarshallable": _read_typed,
}
