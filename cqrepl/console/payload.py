"""Turns the bytes of an excerpt into text for people and values for other programs.

A queue says nothing about its payloads. The bytes tell the kind, which is the first that fits:

    text    UTF-8 without control characters but tab and line feed; 8F alone is the empty excerpt
    wire    binary wire that has a text form, which begins with no number below 128; or fields with
            names one can read, with a value in them that Java's text form lacks (a UUID)
    hex     anything else

Binary wire is next to never valid UTF-8. What `--as yaml` shows as wire, the other forms do, too:
they print the same values.
"""

import base64
import functools
import json
import math
import re
from array import array
from collections.abc import Callable, Collection
from datetime import date, datetime, time
from typing import Final, NamedTuple
from uuid import UUID

from wire.errors import WireError
from wire.header import EMPTY_STORED, HEADER_BYTES

_LEAST_CODE: Final = 0x80  # bytes below are small numbers when they are wire, and text when not
_CLASS: Final = "!type"  # of a class as a value
_NO_LETTERS: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_PLAIN_MARKS: Final = frozenset("_-./:+@")  # may stand in a YAML scalar without quotes


class Content(NamedTuple):
    """A payload and what it was taken for: `text`, `wire` or `hex`; `value` is what it says."""

    kind: str
    value: object


def content_of(payload: memoryview) -> Content:
    """The content of a payload, by the first kind that fits."""
    data = bytes(payload)
    if data == EMPTY_STORED:
        return Content("text", "")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        pass
    else:
        if text.replace("\t", "").replace("\n", "").isprintable():
            return Content("text", text)
    if data[0] < _LEAST_CODE:
        return Content("hex", data.hex())
    # the codec is loaded when needed: most queues hold something else, and `tail` is quick
    from wire.text.print_values import shown_value

    try:
        return Content("wire", shown_value(data))
    except WireError:
        return _without_text_form(data)


def _without_text_form(data: bytes) -> Content:
    """Fields of binary wire of which one has no text form; hexadecimal where there are none."""
    from wire.objects.object_reader import read_body
    from wire.reader import Reader

    try:
        value = read_body(Reader(data))
    except WireError:
        value = None
    is_read = isinstance(value, dict) and all(_is_name(name) for name in value)
    return Content("wire", value) if is_read else Content("hex", data.hex())


def utf8_of(payload: memoryview) -> Content:
    """The text that a payload is, control characters and all; in hexadecimal where it is none."""
    data = bytes(payload)
    try:
        return Content("text", "" if data == EMPTY_STORED else data.decode())
    except UnicodeDecodeError:
        return Content("hex", data.hex())


def _is_name(name: object) -> bool:
    return isinstance(name, int) or (isinstance(name, str) and name != "" and name.isprintable())


@functools.cache
def _native_printer() -> Callable[[bytes | memoryview, str], object]:
    """Prints an excerpt in a form by the native codec, or gives `NotImplemented`."""
    from wire.codec import NATIVE

    if NATIVE is None:
        return lambda payload, form: NotImplemented
    printer: Callable[[bytes | memoryview, str], object] = NATIVE.excerpt_text
    return printer


def line_of(payload: memoryview) -> str:
    """One line for people: text as it is, wire as flow YAML, anything else in hexadecimal."""
    line = _native_printer()(payload, "flow")
    return plain_line_of(payload) if line is NotImplemented else str(line)


def plain_line_of(payload: memoryview) -> str:
    """The same in plain Python alone, which is the reference."""
    kind, value = content_of(payload)
    if kind != "wire" or isinstance(value, str):
        return escaped(str(value))
    return flow_text(value, is_outermost=True)


def text_of(payload: memoryview) -> str:
    """The payload as UTF-8 text on one line; bytes that are none as `\\xHH`."""
    data = bytes(payload)
    return escaped("" if data == EMPTY_STORED else data.decode(errors="backslashreplace"))


def yaml_of(payload: memoryview) -> str:
    """The payload as the text form of binary wire, over several lines."""
    from wire.text.print_documents import document_text

    return document_text(payload, len(payload), offset=HEADER_BYTES)


def json_of(payload: memoryview) -> str:
    """The payload as a JSON value; a string is text, and bytes stand as those within wire do."""
    text = _native_printer()(payload, "json")
    return plain_json_of(payload) if text is NotImplemented else str(text)


def dense_json_of(payload: memoryview) -> str | None:
    """The same without blanks between values, where the native codec prints it: a text begins with
    a quote, binary wire with a brace."""
    text = _native_printer()(payload, "dense")
    return None if text is NotImplemented else str(text)


def plain_json_of(payload: memoryview) -> str:
    """The same as `json_of` in plain Python alone, which is the reference."""
    content = content_of(payload)
    value = plain_json(bytes(payload)) if content.kind == "hex" else json_value(content)
    return json_text(value)


def json_text(value: object, separators: tuple[str, str] | None = None) -> str:
    """JSON on one line, with its letters as they are, and what a terminal obeys as escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    return _NO_LETTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_value(content: Content) -> object:
    """The content of a payload as a value of the types that JSON has."""
    if content.kind != "wire":
        return content.value
    return plain_json(content.value)


def hex_of(payload: memoryview) -> str:
    """The payload in hexadecimal."""
    return payload.hex()


FORMS: Final[dict[str, Callable[[memoryview], str]]] = {
    "auto": line_of,
    "text": text_of,
    "yaml": yaml_of,
    "json": json_of,
    "hex": hex_of,
}


def escaped(text: str) -> str:
    """The text on one line: line feeds, control characters and lone surrogates as escapes."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode()
        for one in text
    )


def cell_text(value: object) -> str:
    """A value that was read from wire as a cell of a table: texts, numbers and times bare, bytes in
    Base64, an empty cell for null, and JSON for anything that has parts.

    >>> cell_text(1.5), cell_text(None), cell_text([1, "x"])
    ('1.5', '', '[1, "x"]')
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    plain = plain_json(value)
    if isinstance(plain, str):
        return plain
    return json_text(plain)


def flow_text(value: object, *, is_outermost: bool = False) -> str:
    """A value that was read from wire, as YAML on one line.

    >>> flow_text({"order": {"id": 42, "px": 101.5}}, is_outermost=True)
    'order {id: 42, px: 101.5}'
    """
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return str(value)  # which needs no quotes
    match value:
        case dict():
            pairs = [(_name_text(_key(name)), flow_text(each)) for name, each in value.items()]
            if is_outermost and len(pairs) == 1:
                return " ".join(pairs[0]).rstrip()
            inner_text = ", ".join(f"{name}: {each}" for name, each in pairs)
            return inner_text if is_outermost else f"{{{inner_text}}}"
        case list() | tuple() | set() | frozenset() | array():
            return f"[{', '.join(flow_text(each) for each in _in_order(value))}]"
        case bytes():
            return f"!!binary {base64.b64encode(value).decode()}"
        case str():
            return _scalar(value)
        case None:
            return '!!null ""'
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _scalar(str(plain_json(value)))
        case _:
            if isinstance(value, UUID | date | time):
                return _scalar(str(plain_json(value)))
            name, inner = _marked(value)
            if name is None:
                return flow_text(inner)
            shown = _scalar(str(inner)) if name == _CLASS else flow_text(inner)
            return f"{escaped(name)} {shown}"


def plain_json(value: object) -> object:
    """A value that was read from wire, made of what JSON has."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else _float_name(value)
        case dict():
            fields = {_key(name): plain_json(each) for name, each in value.items()}
            if len(fields) < len(value):  # two keys that are one as text
                return [plain_json({name: each}) for name, each in value.items()]
            return fields
        case list() | tuple() | set() | frozenset() | array():
            return [plain_json(each) for each in _in_order(value)]
        case bytes():
            return {"!!binary": base64.b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case _:
            name, inner = _marked(value)
            return plain_json(inner) if name is None else {name: plain_json(inner)}


def _marked(value: object) -> tuple[str | None, object]:
    """Takes a value of the wire's own types apart for YAML: its mark, if any, and the marked value.

    Raises:
        TypeError: it is none of them.
    """
    from wire.objects.values import History, LongArray, Typed, TypeLiteral

    match value:
        case Typed():
            return f"!{value.name}", value.value
        case TypeLiteral():
            return _CLASS, value.name
        case LongArray():
            return None, list(value.values)
        case History():
            sources = [number for pair in value.sources for number in pair]
            return None, {"sources": sources, "timings": list(value.timings)}
    raise TypeError(f"a value of the wire was expected, {value!r} came")


def _key(name: object) -> str:
    """The name of a field as text: a key may be an object."""
    return name if isinstance(name, str) else flow_text(name)


def _in_order(values: Collection[object]) -> Collection[object]:
    """The values; of a set in the order of what they print as."""
    return sorted(values, key=flow_text) if isinstance(values, set | frozenset) else values


def _float_name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@functools.lru_cache(1024)
def _name_text(name: str) -> str:
    """A name as a YAML scalar: documents have the same ones again and again."""
    return _scalar(name)


def _scalar(text: str) -> str:
    """Text as a YAML scalar: bare where nothing can be mistaken."""
    if text.isalnum():
        return text
    bare = text.replace(" ", "x")
    is_plain = text == text.strip() and bare and all(c.isalnum() or c in _PLAIN_MARKS for c in bare)
    if is_plain and not text.endswith(":") and ": " not in text:
        return text
    return escaped(json.dumps(text, ensure_ascii=False))
