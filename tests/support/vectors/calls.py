"""The calls of the vectors' manifest, made on our writers.

Every method of every wire with codes is here, those of RAW that the vectors have, and those of
`wire.Writer` alone, which is all that the data path uses.
"""

import array
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from tests.support.vectors.manifest import (
    CLASS_ALIASES,
    INTEGERS,
    Call,
    Vector,
    bytes_of,
    float_of,
    name_of,
    text_of,
)
from wire import (
    BodyWriter,
    DocumentWriter,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    LocalDate,
    LocalDateTime,
    LocalTime,
    LongArray,
    RawWriter,
    Typed,
    TypeLiteral,
    UInt8,
    UInt16,
    UInt32,
    Variant,
    Writer,
    ZonedDateTime,
)
from wire.codes import Code
from wire.header import align4
from wire.objects.object_writer import write_map, write_object, write_untyped

_OBJECTS: Final[dict[str, Callable[[Any], object]]] = {
    "i8": Int8,
    "i16": Int16,
    "i32": Int32,
    "i64": Int64,
    "f32": lambda bits: Float32(float_of({"f32": bits})),
    "f64": lambda bits: Float64(float_of({"f64": bits})),
    "char": str,
    "bigint": str,
    "bigdec": Decimal,
    "date": LocalDate,
    "time": LocalTime,
    "datetime": LocalDateTime,
    "zdt": ZonedDateTime,
    "uuid": uuid.UUID,
    "bytearray": lambda digits: Typed("byte[]", bytes.fromhex(digits)),
    "bytestore": bytes.fromhex,
    "list": lambda items: [object_of(item) for item in items],
    "set": lambda items: Typed("!set", [object_of(item) for item in items]),
    "sortedset": lambda items: Typed("!oset", sorted(object_of(item) for item in items)),
    "map": lambda entries: {object_of(name): object_of(value) for name, value in entries},
    "sortedmap": lambda entries: Typed(
        "!omap", {object_of(name): object_of(value) for name, value in sorted(entries)}
    ),
    "longs": lambda numbers: array.array("q", numbers),
    "ints": lambda numbers: array.array("i", numbers),
    "doubles": lambda numbers: array.array("d", map(float_of, numbers)),
    "strings": lambda items: [object_of(item) for item in items],
    "objects": lambda items: [object_of(item) for item in items],
    "wiretype": lambda name: Typed("WireType", name),
    "timeunit": lambda name: Typed("TimeUnit", name),
    "class": lambda name: TypeLiteral(CLASS_ALIASES.get(name, name)),
}


def object_of(argument: Any) -> Any:
    """An object of the manifest as a Python value."""
    if not isinstance(argument, dict):
        return argument
    if "str" in argument:
        return text_of(argument)
    ((kind, value),) = argument.items()
    return _OBJECTS[kind](value)


def build(vector: Vector, key: str = "build") -> bytes:
    """The bytes that our writer makes of the vector's calls."""
    legacy = key == "legacy_build"
    if vector["wire"] == "RAW":
        return _build_raw(vector[key])
    padding = vector.get("padding", False)
    variant = Variant.named(vector["wire"])
    writer = DocumentWriter(variant, legacy=legacy, padding=padding)
    bare = BodyWriter(variant, legacy=legacy)
    for document in vector[key]:
        if document["doc"] is None:
            write_calls(bare, document["calls"])
            continue
        style = document.get("style")
        # Java can write an empty data document, which no reader sees; our writer refuses it
        if document["doc"] == "data" and not document["calls"] and style is None:
            return _with_empty_data(vector[key], variant, padding)
        with writer.document(
            metadata=document["doc"] == "meta",
            pad_inside=padding and style is not None,
            is_complete=style != "notComplete",
        ) as body:
            write_calls(body, document["calls"])
    return bytes(bare.data) + writer.take()


def _with_empty_data(documents: list[Any], variant: Variant, padding: bool) -> bytes:
    writer = BodyWriter(variant)
    for document in documents:
        writer.data += bytes(-len(writer.data) % 4 if padding else 0)
        with writer.document(metadata=document["doc"] == "meta"):
            write_calls(writer, document["calls"])
    return bytes(writer.data)


def write_calls(writer: BodyWriter, calls: list[Call]) -> None:
    """Makes the calls on our writer."""
    for field, method, arguments in calls:
        _write_field(writer, field)
        _WRITE[method](writer, *arguments)


def build_by_core(vector: Vector) -> bytes:
    """The same of the writer of the data path; the vector needs nothing but `CORE`."""
    writer = Writer()
    padding = vector.get("padding", False)
    for document in vector["build"]:
        if padding:
            writer.data += bytes(align4(writer.position) - writer.position)
        if document["doc"] is None:
            _write_core(writer, document["calls"])
            continue
        pad = padding and document.get("style") == "writeDocument"
        with writer.document(metadata=document["doc"] == "meta", pad=pad):
            _write_core(writer, document["calls"])
    return bytes(writer.data)


def _write_core(writer: Writer, calls: list[Call]) -> None:
    for field, method, arguments in calls:
        if isinstance(field, dict) and "event" in field:
            writer.event(name_of(field))
        elif field is not None and not (isinstance(field, dict) and "wire" in field):
            writer.name(name_of(field))
        _WRITE_CORE[method](writer, *arguments)


def _write_field(writer: BodyWriter, field: Any) -> None:
    if isinstance(field, str):
        writer.name(field)
    elif field is None or "wire" in field:
        return
    elif "event" in field:
        writer.event(str(text_of(field["event"])))
    elif "id" in field:
        writer.event_id(field["id"])
    elif "key" in field:
        writer.key(field["key"], field["code"])
    elif "long" in field:
        writer.name(str(text_of(field["long"])))
    elif "noname" in field:
        writer.no_name()
    else:
        writer.event_object()
        write_calls(writer, [field["eventObject"]])


def _optional(write: Callable[[Any, Any], object], of: Callable[[Any], Any]) -> Any:
    def call(writer: Writer, argument: Any) -> None:
        if argument is None:
            writer.null()
        else:
            write(writer, of(argument))

    return call


def _write_block(writer: BodyWriter, calls: list[Call]) -> None:
    with writer.marshallable():
        write_calls(writer, calls)


def _sized(code: Code) -> Callable[[BodyWriter, list[Call]], None]:
    def call(writer: BodyWriter, calls: list[Call]) -> None:
        with writer.sized_block(code):
            write_calls(writer, calls)

    return call


def _write_typed(writer: BodyWriter, name: str | None, calls: list[Call] | None = None) -> None:
    if name is None:
        writer.null()
        return
    with writer.marshallable(name):
        write_calls(writer, calls or [])


def _write_longs(writer: BodyWriter, capacity: int, values: Any = (), used: int = 0) -> None:
    writer.long_array(LongArray(tuple(values), used, capacity))


def _write_entries(writer: BodyWriter, entries: list[Any]) -> None:
    write_map(writer, [(object_of(name), object_of(value)) for name, value in entries])


def _bytes_or_none(argument: Any) -> bytes | None:
    return None if argument is None else bytes_of(argument)


_WRITE: Final[dict[str, Callable[..., object]]] = {
    "addPadding": BodyWriter.padding,
    "arrayDelta_f64": lambda w, values: w.float64_deltas([float_of(v) for v in values]),
    "arrayDelta_i64": BodyWriter.int64_deltas,
    "array_f64": lambda w, values: w.array(map(float_of, values), Code.FLOAT64),
    "array_i32": lambda w, values: w.array(values, Code.INT32),
    "array_i64": BodyWriter.array,
    "bool": _optional(BodyWriter.boolean, bool),
    "boolForBinding": BodyWriter.boolean,
    "bytes": lambda w, payload: w.bytes_value(_bytes_or_none(payload)),
    "bytesArray": lambda w, payload: w.bytes_value(_bytes_or_none(payload)),
    "bytesLiteral": _optional(BodyWriter.bytes_literal, bytes_of),
    "bytesTyped": lambda w, name, payload: w.bytes_value(_bytes_or_none(payload), name),
    "comment": lambda w, text: w.comment(text_of(text)),
    "date": _optional(lambda w, text: w.time(Code.DATE, text), str),
    "dateTime": _optional(lambda w, text: w.time(Code.DATE_TIME, text), str),
    "fixedFloat32": lambda w, value: w.fixed(Code.FLOAT32, float_of(value)),
    "fixedFloat64": lambda w, value: w.fixed(Code.FLOAT64, float_of(value)),
    "fixedInt16": lambda w, value: w.fixed(Code.INT16, value),
    "fixedInt32": lambda w, value: w.fixed(Code.INT32, value),
    "fixedInt64": lambda w, value: w.fixed(Code.INT64, value),
    "fixedInt8": lambda w, value: w.fixed(Code.INT8, value),
    "float32": lambda w, value: w.float32(float_of(value)),
    "float64": lambda w, value: w.float64(float_of(value)),
    "int128forBinding": BodyWriter.bound_int128,
    "int16": BodyWriter.int16,
    "int32": BodyWriter.int32,
    "int32forBinding": BodyWriter.bound_int32,
    "int64": BodyWriter.int64,
    "int64_0x": BodyWriter.hex_int,
    "int64array": _write_longs,
    "int64arrayValues": _write_longs,
    "int64forBinding": BodyWriter.bound_int64,
    "int8": BodyWriter.int8,
    "map": _write_entries,
    "marshallable": _write_block,
    "marshallable16": _sized(Code.BYTES_LENGTH16),
    "marshallable8": _sized(Code.BYTES_LENGTH8),
    "marshallableMap": _write_entries,
    "nothing": lambda w: None,
    "null": BodyWriter.null,
    "object": lambda w, value: write_object(w, object_of(value)),
    "rawBytes": _optional(BodyWriter.raw_bytes, bytes_of),
    "rawWireBytes": lambda w, payload: w.data.extend(bytes_of(payload)),
    "sequence": _write_block,
    "text": lambda w, text: w.optional_text(text_of(text)),
    "textBytes": _optional(lambda w, payload: w.text(bytes_of(payload).decode("ascii")), dict),
    "time": _optional(lambda w, text: w.time(Code.TIME, text), str),
    "typeLiteral": BodyWriter.type_literal,
    "typePrefix": BodyWriter.type_prefix,
    "typedMarshallable": _write_typed,
    "uint16": BodyWriter.uint16,
    "uint32": BodyWriter.uint32,
    "uint8": BodyWriter.uint8,
    "untypedObject": lambda w, value: write_untyped(w, object_of(value)),
    "uuid": _optional(BodyWriter.uuid, uuid.UUID),
    "zonedDateTime": _optional(lambda w, text: w.time(Code.ZONED_DATE_TIME, text), str),
}


def _core_block(writer: Writer, calls: list[Call]) -> None:
    with writer.block():
        _write_core(writer, calls)


def _core_typed(writer: Writer, name: str | None, calls: list[Call] | None = None) -> None:
    if name is None:
        writer.null()
        return
    writer.type_prefix(name)
    _core_block(writer, calls or [])


def _core_bytes(writer: Writer, payload: Any, type_name: str | None = None) -> None:
    if payload is None:
        writer.null()
        return
    if type_name is not None:
        writer.type_prefix(type_name)
    writer.bytes_literal(b"\x8a" + bytes_of(payload))


def _core_array(writer: Writer, numbers: list[int]) -> None:
    with writer.block():
        for number in numbers:
            writer.integer(number)


def _core_longs(writer: Writer, capacity: int, values: list[int], used: int = 0) -> None:
    array_at = writer.int64_array(capacity)  # its file offset; the values are then set in place
    struct.pack_into("<q", writer.data, array_at + 8 - writer.origin, used)
    struct.pack_into(f"<{len(values)}q", writer.data, array_at + 16 - writer.origin, *values)


def _core_wire_type(writer: Writer, argument: Any) -> None:
    writer.type_prefix("WireType")
    writer.text(argument["wiretype"])


# what BodyWriter inherits is called as it is
_INHERITED: Final = (
    "addPadding", "bool", "boolForBinding", "bytesLiteral", "comment", "int128forBinding",
    "int64_0x", "int64forBinding", "nothing", "null", "rawWireBytes", "typePrefix",
)  # fmt: skip
_WRITE_CORE: Final[dict[str, Callable[..., object]]] = {
    **{method: _WRITE[method] for method in _INHERITED},
    **dict.fromkeys(INTEGERS, Writer.integer),
    "array_i32": _core_array,
    "array_i64": _core_array,
    "bytes": _core_bytes,
    "bytesArray": _core_bytes,
    "bytesTyped": lambda writer, name, payload: _core_bytes(writer, payload, name),
    "int64array": Writer.int64_array,
    "int64arrayValues": _core_longs,
    "marshallable": _core_block,
    "object": _core_wire_type,
    "rawBytes": lambda writer, payload: _core_bytes(writer, payload, "byte[]"),
    "sequence": _core_block,
    "text": _optional(Writer.text, text_of),
    "time": Writer.time_text,
    "typedMarshallable": _core_typed,
}
CORE: Final = frozenset({*_WRITE_CORE, "event", "key", "long", "wiretype", "writeDocument"}) - {
    "object"
}


def _build_raw(documents: list[Any]) -> bytes:
    writer = RawWriter()
    for document in documents:
        with writer.document(metadata=document["doc"] == "meta"):
            _write_raw(writer, document["calls"])
    return bytes(writer.data)


def _write_raw(writer: RawWriter, calls: list[Call]) -> None:
    for field, method, arguments in calls:
        if isinstance(field, dict) and "event" in field:
            writer.event(field["event"])
        elif isinstance(field, str):
            writer.name(field)
        _WRITE_RAW[method](writer, *arguments)


def _raw_block(writer: RawWriter, calls: list[Call]) -> None:
    with writer.block():
        _write_raw(writer, calls)


def _raw_typed(writer: RawWriter, name: str, calls: list[Call]) -> None:
    writer.type_prefix(name)
    _raw_block(writer, calls)


def _raw_whole(width: Any) -> Callable[[RawWriter, int], None]:
    return lambda writer, value: writer.whole(width, value)


_WRITE_RAW: Final[dict[str, Callable[..., object]]] = {
    "bool": RawWriter.boolean,
    "bytes": lambda w, payload: w.bytes_value(bytes_of(payload)),
    "date": RawWriter.date,
    "float32": lambda w, value: w.float32(float_of(value)),
    "float64": lambda w, value: w.float64(float_of(value)),
    "int16": _raw_whole(Int16),
    "int32": RawWriter.int32,
    "int64": RawWriter.int64,
    "int64_0x": RawWriter.int64,
    "int8": _raw_whole(Int8),
    "marshallable": _raw_block,
    "null": RawWriter.null,
    "sequence": _raw_block,
    "text": lambda w, text: w.text(text_of(text)),
    "time": RawWriter.time,
    "typedMarshallable": _raw_typed,
    "uint16": _raw_whole(UInt16),
    "uint32": _raw_whole(UInt32),
    "uint8": _raw_whole(UInt8),
    "uuid": lambda w, text: w.uuid(uuid.UUID(text)),
}
