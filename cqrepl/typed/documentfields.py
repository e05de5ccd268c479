"""The fields of an excerpt that is a document: binary wire, or JSON as text.

A path leads to a field: `order.legs.px`. A type name in front of a value (`!Order {...}`) is no
step of it. Values are those of `wire.decode`, or of JSON; a whole number of JSON is exact.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from wire.codec import NATIVE
from wire.errors import WireError
from wire.objects.documents import decode
from wire.objects.values import Typed

ABSENT: Final = object()
_INDEX_NAME: Final = b"index"
_JSON_START: Final = 0x7B  # `{`, which is the number 123 in wire


def fields_of(data: bytes | memoryview) -> Mapping[Any, object] | None:
    """The fields of an excerpt; None where it has none, as text or a single value.

    Raises:
        WireError: the bytes are malformed.
    """
    if not data:
        return None
    if data[0] == _JSON_START:
        try:
            value = json.loads(bytes(data))
        except (ValueError, RecursionError):
            return None
    else:
        value = bare(decode(data, unpack=True))
    return value if isinstance(value, dict) else None


def document_json(data: bytes | memoryview) -> str | None:
    """The fields of an excerpt as an object of JSON, by the native codec; None where that leaves it
    to the plain one, as where a field has the name of the column of indexes."""
    if NATIVE is None or not data or data[0] == _JSON_START or _INDEX_NAME in bytes(data):
        return None
    text = NATIVE.document_text(data, "json")
    return None if text is NotImplemented else str(text)


def bare(value: object) -> object:
    """A value without the type names in front of it."""
    while isinstance(value, Typed):
        value = value.value
    return value


def field_at(fields: Mapping[Any, object], path: tuple[str, ...]) -> object:
    """The value at a path; `ABSENT` where there is none."""
    value: object = fields
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return ABSENT
        value = bare(value[name])
    return value


def chosen_fields(
    data: bytes | memoryview, paths: tuple[tuple[str, ...], ...]
) -> dict[str, object]:
    """The fields at these paths, as far as an excerpt has them; none where it is malformed."""
    try:
        fields = fields_of(data) or {}
    except WireError:
        return {}
    found = ((".".join(path), field_at(fields, path)) for path in paths)
    return {name: value for name, value in found if value is not ABSENT}


def leaves_of(fields: Mapping[Any, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Paths and values of all fields that hold no fields themselves, in their order."""
    for name, value in fields.items():
        path, inner = f"{prefix}{name}", bare(value)
        if isinstance(inner, dict) and inner:
            yield from leaves_of(inner, f"{path}.")
        else:
            yield path, inner


def is_malformed(data: bytes | memoryview) -> bool:
    """True where the bytes are neither text nor a document."""
    try:
        bytes(data).decode()
    except UnicodeDecodeError:
        try:
            decode(data, unpack=True)
        except WireError:
            return True
    return False
