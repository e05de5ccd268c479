"""The calls of the vectors' manifest, found again by our reader."""

import math
import struct
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.support.vectors.calls import object_of
from tests.support.vectors.manifest import (
    INTEGERS,
    Call,
    Vector,
    bytes_of,
    calls_key,
    float_of,
    name_of,
    text_of,
)
from wire import Reader, Typed, TypeLiteral, Variant
from wire.codes import Code
from wire.header import HEADER_BYTES, align4, body_length
from wire.numbers import to_float32
from wire.objects.object_reader import read_object
from wire.objects.times import canonical, python_time
from wire.objects.values import TimeText
from wire.objects.variants import name_code, name_number
from wire.strings import encode_name, encode_prefixed_name

# what says only how a document is laid out, or is not there to be read
UNSEEN: Final = frozenset({"wire"})


def bodies(vector: Vector) -> Iterator[tuple[Reader, dict[str, Any]]]:
    data = bytes.fromhex(vector["hex"])
    position = 0
    for document in vector[calls_key(vector) or ""]:
        if document["doc"] is None:
            yield Reader(data), document
            return
        if vector.get("padding"):
            position = align4(position)
        start = position + HEADER_BYTES
        position = start + body_length(int.from_bytes(data[position:start], "little"))
        yield Reader(data, start, position), document
    assert position == len(data)


def read_calls(reader: Reader, calls: list[Call], variant: Variant = Variant.BINARY_LIGHT) -> None:
    """Asserts that our reader finds what the calls wrote, and nothing behind it."""
    type_name: str | None = None
    for field, method, arguments in calls:
        if isinstance(field, dict) and not UNSEEN.isdisjoint(field):
            continue
        _read_field(reader, field, variant)
        if method in ("typePrefix", "nothing"):  # the value itself is the next call's
            type_name = arguments[0] if arguments else None
            continue
        whole = Reader(reader.data, reader.position, reader.end)
        whole.skip_value()
        if method not in _OBJECTS:
            assert reader.read_type() == (type_name or _type_of(method, arguments))
        type_name = None
        if method in _INSIDE:
            _INSIDE[method](reader, variant, *arguments)
        else:
            _READ[method](reader, *arguments)
        assert reader.position == whole.position
    assert reader.peek_code() is None


def _read_field(reader: Reader, field: Any, variant: Variant) -> None:
    if isinstance(field, dict) and "eventObject" in field:
        assert reader.peek_code() == Code.EVENT_OBJECT
        start = reader.position + 1
        reader.position = start
        reader.skip_value()
        read_calls(Reader(reader.data, start, reader.position), [field["eventObject"]], variant)
    elif field is not None:
        is_event = isinstance(field, dict) and not {"event", "id"}.isdisjoint(field)
        if is_event or variant is not Variant.FIELDLESS_BINARY:
            assert reader.read_name() == name_as_read(field, variant)


def name_as_read(field: Any, variant: Variant = Variant.BINARY_LIGHT) -> str:
    """The name that a reader finds for the name that was asked for: some names lose something."""
    name = name_of(field)
    if isinstance(field, dict):
        if "id" in field:
            return str(field["id"])
        if "event" in field:
            return encode_prefixed_name(name).decode("latin-1")
        if "noname" in field:
            return ""
        if "key" in field and variant is Variant.BINARY_NUMERIC:
            return str(field["code"])
    number = name_number(name)
    if variant is Variant.BINARY_NUMERIC:
        return str(name_code(name) if number is None else number)
    short = encode_name(name)
    if len(short) > 31:
        return encode_prefixed_name(name).decode("latin-1")
    return str(number) if number is not None else short.decode("latin-1")


def _type_of(method: str, arguments: list[Any]) -> str | None:
    if method == "rawBytes":
        return "byte[]"
    if method in ("bytesTyped", "typedMarshallable"):
        return None if arguments[0] is None else str(arguments[0])
    return None


def number_of(argument: Any) -> int:
    """A number as a whole number, cut as Java cuts a double."""
    if isinstance(argument, int):
        return argument
    number = float_of(argument)
    if math.isnan(number):
        return 0
    within = max(-(2.0**63), min(2.0**63, number))
    return min((1 << 63) - 1, int(within))


def _read_number(reader: Reader, argument: Any) -> None:
    whole = Reader(reader.data, reader.position, reader.end)
    assert reader.read_int() == number_of(argument)
    if isinstance(argument, dict):
        found, wanted = whole.read_float(), float_of(argument)
        if "f32" in argument:
            found = to_float32(found)
        assert found == wanted or (math.isnan(found) and math.isnan(wanted))


def _read_text(reader: Reader, argument: Any) -> None:
    assert reader.read_text() == text_of(argument)


def _read_bool(reader: Reader, argument: bool | None) -> None:
    if argument is None:
        _read_null(reader)
    else:
        assert reader.read_bool() is argument


def _read_null(reader: Reader) -> None:
    assert reader.read_text() is None


def _read_coded(code: Code) -> Callable[[Reader, str | None], None]:
    def read(reader: Reader, text: str | None) -> None:
        if text is None:
            _read_null(reader)
            return
        assert reader.peek_code() == code
        assert reader.read_coded_text() == canonical(code, text)

    return read


def _read_type_literal(reader: Reader, name: str | None) -> None:
    if name is None:
        _read_null(reader)
    else:
        assert reader.read_coded_text() == name


def _read_uuid(reader: Reader, text: str | None) -> None:
    if text is None:
        _read_null(reader)
    else:
        assert read_object(reader) == uuid.UUID(text)


def _read_object(reader: Reader, argument: Any) -> None:
    assert read_object(reader) == _as_read(object_of(argument))


def _read_untyped(reader: Reader, argument: Any) -> None:
    value = _as_read(object_of(argument))
    is_enum = isinstance(value, Typed) and isinstance(value.value, str)
    assert read_object(reader) == (value.value if is_enum else value)


def _read_entries(reader: Reader, entries: list[Any]) -> None:
    _read_object(reader, {"map": entries})


def _as_read(value: Any) -> Any:
    """The value that an object is read back as."""
    if isinstance(value, TimeText):
        return python_time(value.code, value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Typed):
        return _typed_as_read(value)
    if isinstance(value, TypeLiteral):
        return value
    if isinstance(value, list):
        return [_as_read(item) for item in value]
    if isinstance(value, dict):
        entries = {_as_read(name): _as_read(item) for name, item in value.items()}
        return entries or []  # nothing says that it was a map
    return value


def _typed_as_read(value: Typed) -> Any:
    inner = _as_read(value.value)
    if value.name == "byte[]":
        return inner
    return set(inner) if value.name == "!set" else Typed(value.name, inner)


def _read_block(reader: Reader, variant: Variant, calls: list[Call]) -> None:
    read_calls(reader.read_block(), calls, variant)


def _read_typed(
    reader: Reader, variant: Variant, name: str | None, calls: list[Call] | None = None
) -> None:
    if name is None:
        _read_null(reader)
    else:
        _read_block(reader, variant, calls or [])


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
    found = [inner.read_float() for _ in numbers]
    wanted = [argument if isinstance(argument, int) else float_of(argument) for argument in numbers]
    assert [found[0], *(found[0] + step for step in found[1:])] == pytest.approx(wanted, abs=1e-6)
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


_INSIDE: Final[dict[str, Callable[..., None]]] = {
    "marshallable": _read_block,
    "marshallable16": _read_block,
    "marshallable8": _read_block,
    "sequence": _read_block,
    "typedMarshallable": _read_typed,
}
# these read the types before their values themselves
_OBJECTS: Final = frozenset({"object", "untypedObject"})
_READ: Final[dict[str, Callable[..., object]]] = {
    **dict.fromkeys(INTEGERS, _read_number),
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
    "date": _read_coded(Code.DATE),
    "dateTime": _read_coded(Code.DATE_TIME),
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
    "map": _read_entries,
    "marshallableMap": _read_entries,
    "null": _read_null,
    "object": _read_object,
    "rawBytes": _read_bytes,
    "text": _read_text,
    "textBytes": lambda reader, payload: _read_text(reader, bytes_of(payload).decode("ascii")),
    "time": _read_coded(Code.TIME),
    "typeLiteral": _read_type_literal,
    "untypedObject": _read_untyped,
    "uuid": _read_uuid,
    "zonedDateTime": _read_coded(Code.ZONED_DATE_TIME),
}
