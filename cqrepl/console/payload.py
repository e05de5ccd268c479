"""What the bytes of an excerpt mean to people and to other programs.

A queue says nothing about its payloads. What they look like is told by the bytes, in this order:

    text    UTF-8 without control characters but tab and line feed; 8F alone is the empty excerpt
    wire    binary wire that can be read to its end, and holds fields with names one can read
    hex     anything else

Fields of binary wire are next to never valid UTF-8, and other bytes next to never such fields.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from wire.errors import WireError
from wire.header import EMPTY_STORED, HEADER_BYTES

_LEAST_CODE: Final = 0x80  # bytes below are small numbers when they are wire, and text when not


class Content(NamedTuple):
    """A payload and what it was taken for: `text`, `wire` or `hex`; `value` is what it says."""

    kind: str
    value: object


def content_of(payload: memoryview) -> Content:
    """What a payload says, by the first kind that fits."""
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
    if data[0] >= _LEAST_CODE:
        # the codec is loaded for who needs it: most queues hold something else, and `tail` is quick
        from wire.objects.object_reader import read_body
        from wire.reader import Reader

        try:
            value = read_body(Reader(data))
        except WireError:
            value = None
        if isinstance(value, dict) and all(_is_name(name) for name in value):
            return Content("wire", value)
    return Content("hex", data.hex())


def _is_name(name: object) -> bool:
    return isinstance(name, int) or (isinstance(name, str) and name != "" and name.isprintable())


def line_of(payload: memoryview) -> str:
    """One line for people: text as it is, wire as flow YAML, anything else in hexadecimal."""
    kind, value = content_of(payload)
    if kind != "wire":
        return escaped(str(value))
    from cqrepl.console.wirevalues import flow_text

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
    """The payload as a JSON value; text and hexadecimal as strings."""
    return json.dumps(json_value(content_of(payload)), ensure_ascii=False)


def json_value(content: Content) -> object:
    """What a payload says, made of what JSON has."""
    if content.kind != "wire":
        return content.value
    from cqrepl.console.wirevalues import plain_json

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
