"""The calls of the vectors' manifest as a grammar of just what they write, and the values in it.

Building the values must give the writer's bytes; parsing the bytes must give the values back.
"""

import math
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from construct import Bytes, Const, Construct, Int8ul, Int16ul, Pass, Struct, Terminated

from tests.support.vectors.manifest import (
    CLASS_ALIASES,
    INTEGERS,
    Call,
    Vector,
    bytes_of,
    calls_key,
    float_of,
    name_of,
    text_of,
)
from wire import grammar
from wire.codes import Code
from wire.grammar import numeric, requested, variantforms
from wire.grammar.inplace import (
    BoundArray,
    BoundInt,
    BoundLong,
    BoundPair,
    InPlace,
    nested,
    padding,
)
from wire.grammar.items import Fillers
from wire.grammar.numeric import FIXED
from wire.grammar.temporal import Date, DateTime, Time, ZonedDateTime
from wire.objects.times import canonical, epoch_day, nanos_of_day


class Part(NamedTuple):
    """The construct that one call writes, and the value to build it from."""

    construct: Construct
    value: Any = None


class Wire(NamedTuple):
    """The kind of wire that the calls are made on."""

    variant: str = "BINARY_LIGHT"
    is_2_20: bool = False

    def whole(self, method: str) -> Construct:
        if self.variant == "BINARY_FIXED":
            return FIXED[Code[method.upper()]]
        return numeric.Number_2_20 if self.is_2_20 else numeric.Number

    @property
    def double(self) -> Construct:
        if self.variant == "BINARY_FIXED":
            return FIXED[Code.FLOAT64]
        return numeric.Double_2_20 if self.is_2_20 else numeric.Double

    @property
    def single(self) -> Construct:
        if self.variant == "BINARY_FIXED":
            return FIXED[Code.FLOAT32]
        return numeric.Single_2_20 if self.is_2_20 else numeric.Single


# ---- runs of parts -------------------------------------------------------------------------------


def run_of(parts: list[Part]) -> tuple[list[Construct], dict[str, Any]]:
    """The parts in a row, each value under the number of its place."""
    constructs = [str(place) / part.construct for place, part in enumerate(parts)]
    return constructs, {str(place): part.value for place, part in enumerate(parts)}


def sequence_of(parts: list[Part]) -> Part:
    constructs, values = run_of(parts)
    return Part(nested(*constructs), values)


def parts_of(calls: list[Call], wire: Wire) -> list[Part]:
    return [part for call in calls for part in _parts_of_call(call, wire)]


def _parts_of_call(call: Call, wire: Wire) -> list[Part]:
    field, method, arguments = call
    parts = _name_parts(field, wire)
    if method == "nothing":
        return parts
    if method in _PARTS:
        return [*parts, _PARTS[method](wire, *arguments)]
    construct, of = _SCALARS[method]
    (argument,) = arguments or (None,)
    if argument is None:
        return [*parts, Part(grammar.Null)]
    return [*parts, Part(construct, of(argument))]


def _name_parts(field: Any, wire: Wire) -> list[Part]:
    named = requested.named
    if field is None or (isinstance(field, dict) and "wire" in field):
        return []
    if isinstance(field, dict):
        if "event" in field:
            return [Part(named(name_of(field), grammar.EventName))]
        if "id" in field:
            return [Part(Const(field["id"], requested.EventId))]
        if "eventObject" in field:
            mark = Part(Const(bytes([Code.EVENT_OBJECT])))
            return [mark, *parts_of([field["eventObject"]], wire)]
        if "key" in field and wire.variant == "BINARY_NUMERIC":
            return [Part(Const(field["code"], requested.EventId))]
    if wire.variant == "FIELDLESS_BINARY":
        return []
    if wire.variant == "BINARY_NUMERIC" and not (isinstance(field, dict) and "noname" in field):
        return [Part(variantforms.numeric_name(name_of(field)))]
    return [Part(named(name_of(field)))]


# ---- methods -------------------------------------------------------------------------------------


def _uuid_of(text: str) -> dict[str, int]:
    most, least = divmod(uuid.UUID(text).int, 1 << 64)
    return {"most": most, "least": least}


def _as_is(argument: Any) -> Any:
    return argument


def _time_of(code: Code) -> Callable[[str], str]:
    return lambda text: canonical(code, text)


_SCALARS: Final[dict[str, tuple[Construct, Callable[[Any], Any]]]] = {
    "bool": (grammar.Bool, _as_is),
    "boolForBinding": (grammar.Bool, _as_is),
    "bytes": (grammar.ByteArray, bytes_of),
    "bytesArray": (grammar.ByteArray, bytes_of),
    "bytesLiteral": (grammar.Payload, bytes_of),
    "comment": (requested.Comment, text_of),
    "date": (Date, _time_of(Code.DATE)),
    "dateTime": (DateTime, _time_of(Code.DATE_TIME)),
    "fixedFloat32": (FIXED[Code.FLOAT32], float_of),
    "fixedFloat64": (FIXED[Code.FLOAT64], float_of),
    "fixedInt16": (FIXED[Code.INT16], _as_is),
    "fixedInt32": (FIXED[Code.INT32], _as_is),
    "fixedInt64": (FIXED[Code.INT64], _as_is),
    "fixedInt8": (FIXED[Code.INT8], _as_is),
    "int32forBinding": (BoundInt, _as_is),
    "int64_0x": (grammar.Index, _as_is),
    "int64forBinding": (BoundLong, _as_is),
    "null": (grammar.Null, _as_is),
    "rawBytes": (grammar.typed("byte[]", grammar.ByteArray), bytes_of),
    "text": (grammar.Text, text_of),
    "textBytes": (grammar.Text, lambda argument: bytes_of(argument).decode("ascii")),
    "time": (Time, _time_of(Code.TIME)),
    "typeLiteral": (requested.TypeLiteral, text_of),
    "typePrefix": (grammar.TypeName, text_of),
    "uuid": (requested.Uuid, _uuid_of),
    "zonedDateTime": (ZonedDateTime, _time_of(Code.ZONED_DATE_TIME)),
}


def _whole(method: str) -> Callable[[Wire, int], Part]:
    return lambda wire, value: Part(wire.whole(method), value)


def _block(wire: Wire, calls: list[Call]) -> Part:
    return sequence_of(parts_of(calls, wire))


def _sized(code: Code, length: Construct) -> Callable[[Wire, list[Call]], Part]:
    def part(wire: Wire, calls: list[Call]) -> Part:
        constructs, values = run_of(parts_of(calls, wire))
        content = InPlace(length, Struct(*constructs, Fillers, Terminated))
        return Part(grammar.tagged(code, content), values)

    return part


def _typed(wire: Wire, name: str | None, calls: list[Call] | None = None) -> Part:
    if name is None:
        return Part(grammar.Null)
    construct, values = _block(wire, calls or [])
    return Part(grammar.typed(name, construct), values)


def _array(numbers: Construct, values: list[Any]) -> Part:
    return Part(requested.array_of(numbers), values)


def _longs(_: Wire, capacity: int, values: Any = (), used: int = 0) -> Part:
    rest = capacity - len(values)
    array = {"capacity": capacity, "used": used, "values": [*values, *[0] * rest]}
    return Part(BoundArray, array)


def _pair(_: Wire, first: int, second: int) -> Part:
    return Part(BoundPair, {"capacity": 2, "used": 2, "values": [first, second]})


def _map(wire: Wire, entries: list[Any]) -> Part:
    parts: list[Part] = []
    for name, value in entries:
        if isinstance(name, str):
            parts.append(Part(requested.named(name, grammar.EventName)))
        else:
            parts += [Part(Const(bytes([Code.EVENT_OBJECT]))), object_part(wire, name)]
        parts.append(object_part(wire, value))
    return sequence_of(parts)


def _rounded(value: float) -> float:
    """To six decimals, half away from 0."""
    return math.copysign(math.floor(abs(value) * 1e6 + 0.5) / 1e6, value)


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _float_deltas(wire: Wire, values: list[Any]) -> Part:
    first, *rest = map(float_of, values)
    return _array(wire.double, [first, *(_rounded(value - first) for value in rest)])


def _int_deltas(wire: Wire, values: list[int]) -> Part:
    deltas = [*values[:1], *(_wrapped(value - values[0]) for value in values[1:])]
    return _array(wire.whole("int64"), deltas)


_PARTS: Final[dict[str, Callable[..., Part]]] = {
    **{method: _whole(method) for method in INTEGERS},
    "addPadding": lambda _, length: Part(Const(padding(length)) if length else Pass),
    "arrayDelta_f64": _float_deltas,
    "arrayDelta_i64": _int_deltas,
    "array_f64": lambda wire, values: _array(wire.double, [float_of(value) for value in values]),
    "array_i32": lambda wire, values: _array(wire.whole("int32"), values),
    "array_i64": lambda wire, values: _array(wire.whole("int64"), values),
    "bytesTyped": lambda _, name, payload: Part(
        grammar.typed(name, grammar.ByteArray), bytes_of(payload)
    ),
    "float32": lambda wire, value: Part(wire.single, float_of(value)),
    "float64": lambda wire, value: Part(wire.double, float_of(value)),
    "int128forBinding": _pair,
    "int64array": _longs,
    "int64arrayValues": _longs,
    "map": _map,
    "marshallable": _block,
    "marshallable16": _sized(Code.BYTES_LENGTH16, Int16ul),
    "marshallable8": _sized(Code.BYTES_LENGTH8, Int8ul),
    "marshallableMap": _map,
    "object": lambda wire, value: object_part(wire, value),
    "rawWireBytes": lambda _, payload: Part(Bytes(len(bytes_of(payload))), bytes_of(payload)),
    "sequence": _block,
    "typedMarshallable": _typed,
    "untypedObject": lambda wire, value: _untyped_part(wire, value),
}

# ---- objects -------------------------------------------------------------------------------------


def object_part(wire: Wire, argument: Any) -> Part:
    """An object of the manifest, as Java's `object(x)` writes it."""
    if argument is None:
        return Part(grammar.Null)
    if isinstance(argument, bool):
        return Part(grammar.Bool, argument)
    if isinstance(argument, str) or "str" in argument:
        return Part(grammar.Text, text_of(argument))
    ((kind, value),) = argument.items()
    if kind in _SCALAR_OBJECTS:
        construct, of = _SCALAR_OBJECTS[kind]
        return Part(construct, of(value))
    return _OBJECTS[kind](wire, value)


def _untyped_part(wire: Wire, argument: Any) -> Part:
    """The same for `untypedObject(x)`: numbers by value, no types of enums and byte arrays."""
    kind, value = next(iter(argument.items())) if isinstance(argument, dict) else ("", argument)
    if kind in ("i8", "i16", "i32", "i64"):
        return Part(wire.whole(f"int{kind[1:]}"), value)
    if kind in ("f32", "f64"):
        return Part(wire.single if kind == "f32" else wire.double, float_of(argument))
    if kind in ("wiretype", "timeunit"):
        return Part(grammar.Text, value)
    return object_part(wire, {"bytestore": value} if kind == "bytearray" else argument)


def _items(wire: Wire, items: list[Any]) -> Part:
    return sequence_of([object_part(wire, item) for item in items])


def _under(name: str, part: Part) -> Part:
    return Part(grammar.typed(name, part.construct), part.value)


_SCALAR_OBJECTS: Final[dict[str, tuple[Construct, Callable[[Any], Any]]]] = {
    "i8": (FIXED[Code.INT8], _as_is),
    "i16": (FIXED[Code.INT16], _as_is),
    "i32": (FIXED[Code.INT32], _as_is),
    "i64": (FIXED[Code.INT64], _as_is),
    "f32": (FIXED[Code.FLOAT32], lambda bits: float_of({"f32": bits})),
    "f64": (FIXED[Code.FLOAT64], lambda bits: float_of({"f64": bits})),
    "char": (grammar.Text, _as_is),
    "bigint": (grammar.Text, _as_is),
    "bigdec": (grammar.Text, _as_is),
    "date": (Date, _as_is),
    "time": (Time, _as_is),
    "datetime": (DateTime, _as_is),
    "zdt": (ZonedDateTime, _as_is),
    "uuid": (requested.Uuid, _uuid_of),
    "bytearray": (grammar.typed("byte[]", grammar.ByteArray), bytes.fromhex),
    "bytestore": (grammar.ByteArray, bytes.fromhex),
    "wiretype": (grammar.typed("WireType", grammar.Text), _as_is),
    "timeunit": (grammar.typed("TimeUnit", grammar.Text), _as_is),
    "class": (requested.TypeLiteral, lambda name: CLASS_ALIASES.get(name, name)),
}
_OBJECTS: Final[dict[str, Callable[[Wire, Any], Part]]] = {
    "list": _items,
    "set": lambda wire, items: _under("!set", _items(wire, items)),
    "sortedset": lambda wire, items: _under("!oset", _items(wire, sorted(items))),
    "map": _map,
    "sortedmap": lambda wire, entries: _under("!omap", _map(wire, sorted(entries))),
    "longs": lambda wire, values: _under("long[]", _array(wire.whole("int64"), values)),
    "ints": lambda wire, values: _under("int[]", _array(wire.whole("int32"), values)),
    "doubles": lambda wire, values: _under(
        "double[]", _array(wire.double, list(map(float_of, values)))
    ),
    "strings": _items,
    "objects": _items,
}

# ---- RAW -----------------------------------------------------------------------------------------

_RAW: Final[dict[str, tuple[Construct, Callable[[Any], Any]]]] = {
    **{method: (number, _as_is) for method, number in variantforms.RAW_WHOLE.items()},
    "bool": (variantforms.RawBool, _as_is),
    "bytes": (variantforms.RawPayload, bytes_of),
    "date": (variantforms.RawDate, epoch_day),
    "float32": (variantforms.RawSingle, float_of),
    "float64": (variantforms.RawDouble, float_of),
    "int64_0x": (variantforms.RAW_WHOLE["int64"], _as_is),
    "null": (variantforms.RawNull, _as_is),
    "text": (variantforms.RawText, text_of),
    "time": (variantforms.RawTime, nanos_of_day),
    "uuid": (variantforms.RawUuid, _uuid_of),
}


def raw_parts(calls: list[Call]) -> list[Part]:
    parts: list[Part] = []
    for field, method, arguments in calls:
        if isinstance(field, dict) and "event" in field:
            parts.append(Part(variantforms.RawEvent, field["event"]))
        if method == "typedMarshallable":
            parts.append(Part(variantforms.RawText, arguments[0]))
        if method in ("marshallable", "sequence", "typedMarshallable"):
            constructs, values = run_of(raw_parts(arguments[-1]))
            parts.append(Part(variantforms.raw_block(*constructs), values))
        else:
            construct, of = _RAW[method]
            (argument,) = arguments or (None,)
            parts.append(Part(construct, None if argument is None else of(argument)))
    return parts


# ---- documents -----------------------------------------------------------------------------------


def grammar_of(vector: Vector) -> Part:
    wire = Wire(vector["wire"], "legacy_build" in vector)
    is_padded = vector.get("padding", False)
    documents: list[Part] = []
    for document in vector[calls_key(vector) or ""]:
        is_raw = wire.variant == "RAW"
        calls = document["calls"]
        parts = raw_parts(calls) if is_raw else parts_of(calls, wire)
        constructs, values = run_of(parts)
        if document["doc"] is None:
            documents.append(Part(Struct(*constructs, Terminated), values))
            continue
        if is_padded:
            documents.append(Part(grammar.REST_OF_FOUR))
        style = document.get("style")
        construct = grammar.file_document(
            *constructs,
            metadata=document["doc"] == "meta",
            is_complete=style != "notComplete",
            is_padded=is_padded and style is not None,
        )
        documents.append(Part(construct, values))
    constructs, values = run_of(documents)
    return Part(Struct(*constructs, Terminated), values)


def same(found: Any, wanted: Any) -> bool:
    """True when what was parsed is what was to be built; what needs no value may be anything."""
    if wanted is None:
        return True
    if isinstance(wanted, dict):
        return all(same(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(found, float) and math.isnan(found)
    return bool(found == wanted)
