"""Turns what the grammar found into the Python values that the object reader gives for it."""

import uuid
from itertools import groupby
from typing import Any, Final

from wire import History, LongArray, Typed, TypeLiteral
from wire.codes import STOP_BIT_SCALE, Code
from wire.objects.times import python_time
from wire.objects.values import TIME_OF_CODE
from wire.objects.variants import COMPRESSIONS

# Types whose values the reader converts, or refuses where they do not fit; the grammar does not.
CONVERTED: Final = frozenset(
    {"byte", "short", "int", "long", "float", "double", "!set", "!null", "!seq", "!map", "!binary"}
    | {"short[]", "int[]", "long[]", "float[]", "double[]", "byte[]", "String", "UUID", "type"}
    | {"Date", "Time", "DateTime", "ZonedDateTime"}
    | COMPRESSIONS
)


class ConvertedTypeError(Exception):
    """A type of `CONVERTED` stands before a value."""


def body_value(body: Any) -> Any:
    """The value of a body that `wire.grammar.Body` parsed, as `wire.decode` gives it."""
    if "fields" in body:
        return _map(body.fields)
    values = _values(body["values"])
    return values[0] if len(values) == 1 else values or None


def _block_value(block: Any) -> Any:
    if isinstance(block, bytes):
        return block
    if "timings" in block:
        pairs = zip(block.sources, block.indexes, strict=True)
        return History(tuple(pairs), tuple(block.timings))
    return _map(block.fields) if "fields" in block else _values(block["values"])


def _values(entries: Any) -> list[Any]:
    """Values; fields between two of them are a map."""
    values: list[Any] = []
    for is_field, run in groupby(entries, key=lambda entry: "name" in entry):
        found = list(run)
        values += [_map(found)] if is_field else [_value(entry) for entry in found]
    return values


def _map(fields: Any) -> dict[Any, Any]:
    return {_name(field.name): _value(field["value"]) for field in fields}


def _name(name: Any) -> Any:
    if "key" in name:
        return _as_key(_value(name.key))
    is_history = name.code == Code.FIELD_NUMBER and name.operand == -1
    return "history" if is_history else str(name.operand)


def _as_key(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_as_key, value))
    if isinstance(value, dict):
        return tuple((name, _as_key(item)) for name, item in value.items())
    return Typed(value.name, _as_key(value.value)) if isinstance(value, Typed) else value


def _value(value: Any) -> Any:
    found = _of_code(value.item.code, value.item.operand)
    types = [item.operand for item in value.before if item.code == Code.TYPE_PREFIX]
    for name in reversed(types):
        if name in CONVERTED:
            raise ConvertedTypeError(name)
        found = Typed(name, found)
    return found


_CONSTANTS: Final = {Code.TRUE: True, Code.FALSE: False, Code.NULL: None}
_BLOCKS: Final = (Code.BYTES_LENGTH8, Code.BYTES_LENGTH16, Code.BYTES_LENGTH32)


def _of_code(code: int, operand: Any) -> Any:
    if code < Code.BYTES_LENGTH8:
        return code
    if code in _CONSTANTS:
        return _CONSTANTS[Code(code)]
    if code in _BLOCKS:
        return _block_value(operand)
    if code in STOP_BIT_SCALE:
        return float(operand) / STOP_BIT_SCALE[code]
    if code in TIME_OF_CODE:
        return python_time(code, operand)
    if code == Code.UUID:
        return uuid.UUID(int=operand.most << 64 | operand.least)
    if code == Code.I64_ARRAY:
        return LongArray(tuple(operand["values"]), operand.used)
    if code == Code.TYPE_LITERAL:
        return None if operand is None else TypeLiteral(operand)
    return operand
