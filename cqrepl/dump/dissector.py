"""The dissector for Wireshark: `dissector.lua` with the tables of the codec put in.

Theory of operation. The Lua file holds the walk over a frame and the state of a connection, as
`routing` has them; every number and every name on the wire comes from here: codes and widths from
`wire.codes`, headers from `wire.header`, types from `wire.aliases`, names of fields from
`cqrepl.protocol.messages`. So a change of a table is a change of the dissector.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cqrepl.dump.streams import FIRST_MAX
from cqrepl.protocol import messages
from wire.aliases import known_names
from wire.codes import (
    BLOCK_LENGTH,
    FIXED_WIDTH,
    FLOATS,
    LENGTH_PREFIXED,
    NAME_CODES,
    STOP_BIT_SCALE,
    Code,
)
from wire.header import HEADER_BYTES, LENGTH_MASK, META_DATA, NOT_COMPLETE

LENGTH_MAX: Final = 64 << 20
_TEMPLATE: Final = Path(__file__).with_name("dissector.lua")
_PLACE: Final = "--@TABLES@\n"
_CODES: Final = (
    *(Code.PADDING, Code.PADDING32, Code.COMMENT, Code.FIELD_NAME0, Code.STRING0),
    *(Code.FIELD_NUMBER, Code.TYPE_PREFIX, Code.STRING_ANY),
)
_ONE_BYTE: Final = (Code.FALSE, Code.TRUE, Code.NULL)
_NAMES: Final = {
    "CSP": messages.CSP,
    "CID": messages.CID,
    "HANDLER": messages.HANDLER,
    "EVENT": messages.EVENT,
    "RUN": messages.RUN,
    "ACKNOWLEDGED": messages.ACKNOWLEDGED,
    "NANOS": messages.NANOS,
    "UBER_HANDLER": "UberHandler",
}


def dissector_text() -> str:
    """The whole Lua file."""
    before, place, behind = _TEMPLATE.read_text().partition(_PLACE)
    assert place
    return before + "".join(f"{line}\n" for line in _tables()) + behind


def _tables() -> Iterable[str]:
    for name, number in (
        ("HEADER_BYTES", HEADER_BYTES),
        ("LENGTH_MASK", LENGTH_MASK),
        ("META_DATA", META_DATA),
        ("NOT_COMPLETE", NOT_COMPLETE),
        ("FIRST_MAX", FIRST_MAX),
        ("LENGTH_MAX", LENGTH_MAX),
        *((code.name, code.value) for code in _CODES),
    ):
        yield f"local {name} = 0x{number:X}"
    for name, text in _NAMES.items():
        yield f'local {name} = "{text}"'
    yield _set("NAME_CODES", NAME_CODES)
    yield _set("LENGTH_PREFIXED", LENGTH_PREFIXED)
    yield _set("ONE_BYTE", _ONE_BYTE)
    yield _table("BLOCK_LENGTH", {code: _size(form) for code, form in BLOCK_LENGTH.items()})
    yield _table("STOP_BIT_SCALE", STOP_BIT_SCALE)
    yield _table("FIXED_WIDTH", {code: _width(code, form) for code, form in FIXED_WIDTH.items()})
    yield "local ALIASES = {"
    for name, alias in sorted(known_names().items()):
        yield f'  ["{name}"] = "{alias}",'
    yield "}"


def _size(form: str) -> int:
    return struct.calcsize(form)


def _width(code: int, form: str) -> str:
    kind = "float" if code in FLOATS else "signed" if form[-1].islower() else "unsigned"
    return f'{{ bytes = {_size(form)}, kind = "{kind}" }}'


def _set(name: str, codes: Iterable[int]) -> str:
    return _table(name, dict.fromkeys(codes, "true"))


def _table(name: str, entries: "dict[int, str] | dict[int, int]") -> str:
    items = ", ".join(f"[0x{code:X}] = {value}" for code, value in sorted(entries.items()))
    return f"local {name} = {{ {items} }}"
