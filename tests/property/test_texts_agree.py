"""The native printers against the plain ones: the same text for every input, or none.

The native printer declines what is unusual, and what has no text; the plain one prints that, or
says the error. So errors are the same when this holds: whatever the native printer prints, the
plain one prints without an error, to the same characters.
"""

import json
import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import wire
from cqrepl.console.payload import (
    dense_json_of,
    json_of,
    json_text,
    line_of,
    plain_json,
    plain_json_of,
    plain_line_of,
)
from cqrepl.typed.documentfields import fields_of
from tests.property.test_codecs_agree import BODIES, ENCODED
from tests.support.requirements import require
from wire.codec import NATIVE
from wire.objects.float_text import float_text
from wire.text.print_items import plainly_rendered, render_items

if NATIVE is None:
    require("native", "the native codec is not built here")

Print = Callable[[bytes], object]
CHOICES = [(False, False), (True, False), (False, True)]
TIMES = [
    (0xB2, "12:34"), (0xB2, "12:34:00"), (0xB2, "12:34:56.5"), (0xB2, "12:34:56.000"),
    (0xB2, "23:59:59.123456789"), (0xB2, "12:34:"), (0xB2, "12:34:56."), (0xB2, "24:00"),
    (0xB3, "2024-02-29"), (0xB3, "2023-02-29"), (0xB3, "0000-01-01"), (0xB3, "+12345-01-01"),
    (0xB4, "2024-02-29T01:02:03.000004"), (0xB4, "0000-01-01T00:00"), (0xB4, "2024-02-29t01:02"),
    (0xB5, "2024-02-29T01:02Z"), (0xB5, "2024-02-29T01:02:03.123+01:00"),
    (0xB5, "2024-02-29T01:02:03-00:00"), (0xB5, "2024-02-29T01:02:03-00:00:01"),
    (0xB5, "2024-02-29T01:02:03+18:00:01"), (0xB5, "2024-02-29T01:02:03+01:00[Europe/Paris]"),
    (0xB5, "2024-02-29T01:02:03Z[UTC]"), (0xB5, "2024-02-29T01:02:03+01"), (0xB5, "x"),
]  # fmt: skip
TEXTS = [
    "",
    " a",
    "a ",
    "a: b",
    "a:",
    "a:b",
    "é",
    "grün€",
    "дом",
    "中",
    "a\tb",
    "\x7f",
    "\x85",
    "\u2028",
]
TEXTS += [
    "'",
    '"',
    "\"'",
    "it's \"",
    "a\\b",
    "[1]",
    "-1",
    "+x",
    "!a",
    "a^b",
    "a?",
    "a=b",
    "€",
    "\ud800",
]


def prefixed(code: int, text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return bytes([code, len(data)]) + data


def field(value: bytes, name: bytes = b"\xc1x") -> bytes:
    return name + value


def made() -> list[bytes]:
    """Documents that the vectors lack."""
    found = [field(prefixed(*each)) for each in TIMES]
    found += [field(prefixed(0xB8, text)) for text in TEXTS]
    found += [field(b"\xa1\x05", prefixed(0xB7, text)) for text in TEXTS]
    found += [field(b"\xb6\x03abc" + prefixed(0xB8, text)) for text in ["", "a b"]]
    found += [field(b"\xb6" + bytes([len(name)]) + name + b"\xe1x") for name in TYPES]
    found += [b"\x8f", b"\xc1x", b"\xc1x\xc1x\xe1a", b"\xc1x\xe1a\xc1x\xe1a", b"\xba\xff\x00\xe1a"]
    history = b"\x82\x1a\0\0\0\x86\x01" + struct.pack("<iqBq", 5, -1, 1, 7)
    found += [b"\xb9\x07history" + history, b"\xba\x80\x00" + history + b"\xc1a\xe1b"]
    found += [b"\xc1x" + b"\x80\x03\xc1yx" * 1, b"\xc1x" + deep(63), b"\xc1x" + deep(64)]
    found += [b"\xc1x\xaf" + b"\xff" * 8, b"\xc1x\x05", b"\xbd\xc1a\xe1b"]
    found += [b"".join(b"\xb7\x03%03d\xb0" % at for at in range(count)) for count in (64, 65)]
    return found


def deep(count: int) -> bytes:
    data = b"\xe1x"
    for _ in range(count):
        data = b"\x82" + struct.pack("<I", len(data)) + data
    return data


TYPES = [b"T", b"type", b"byte[]", b"TimeUnit", b"!map", b"String", b'a"b', b"", b"T\n"]
KNOWN = BODIES + ENCODED + made()
VALUES = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats()),
        *(st.text(max_size=12), st.binary(max_size=12), st.dates(), st.times(), st.datetimes()),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


def cut(whole: bytes, end: int) -> bytes:
    return whole[: max(1, len(whole) - end)]


def changed(whole: bytes, at: int, byte: int) -> bytes:
    found = bytearray(whole or b"x")
    found[at % len(found)] = byte
    return bytes(found)


DOCUMENTS = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(KNOWN),
    st.builds(cut, st.sampled_from(KNOWN), st.integers(0, 9)),
    st.builds(changed, st.sampled_from(KNOWN), st.integers(0, 4096), st.integers(0, 255)),
    VALUES.map(lambda value: wire.encode({"event": value})),
)
SETTINGS = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])


def check_items(data: bytes) -> int:
    """The number of choices with which the native printer has printed."""
    assert NATIVE is not None
    count = 0
    for fold_unused, is_typed in CHOICES:
        text = NATIVE.render_items(data, fold_unused, is_typed)
        if text is not NotImplemented:
            assert text == plainly_rendered(data, fold_unused=fold_unused, is_typed=is_typed)
            count += 1
    return count


def check_lines(data: bytes) -> int:
    assert NATIVE is not None
    view = memoryview(data)
    count = 0
    for form, plain in (("flow", plain_line_of), ("json", plain_json_of)):
        text = NATIVE.excerpt_text(data, form)
        if text is not NotImplemented:
            assert text == plain(view)
            count += 1
    dense = dense_json_of(view)
    if dense is not None:
        assert dense == json_text(json.loads(plain_json_of(view)), (",", ":"))
    row = NATIVE.document_text(data, "json")
    if row is not NotImplemented:
        fields = fields_of(data)
        assert fields is not None
        assert row == json_text(plain_json(fields))
    assert (line_of(view), json_of(view)) == (plain_line_of(view), plain_json_of(view))
    return count


@SETTINGS
@given(DOCUMENTS)
@example(b"\xc1x\x91" + struct.pack("<d", math.nan))
@example(bytes.fromhex("b702d53a2f"))  # a name of letters beyond ASCII that ends with a colon
@example(b"\x8d" + struct.pack("<qq", -1, 0))  # an array of less than nothing
def test_the_dump_text_is_the_same(data: bytes) -> None:
    check_items(data)
    assert outcome(lambda: render_items(data, fold_unused=False)) == outcome(
        lambda: plainly_rendered(data, fold_unused=False)
    )


@SETTINGS
@given(DOCUMENTS)
def test_lines_and_json_are_the_same(data: bytes) -> None:
    check_lines(data)


def outcome(print_: Callable[[], str]) -> tuple[str, str]:
    try:
        return "text", print_()
    except wire.WireError as error:
        return "error", str(error)


@pytest.mark.parametrize("check", [check_items, check_lines])
def test_known_documents(check: Callable[[bytes], int]) -> None:
    assert sum(bool(check(data)) for data in KNOWN) > len(KNOWN) // 4


def test_the_usual_is_printed_by_the_native_printer() -> None:
    assert NATIVE is not None
    usual = [each for each in ENCODED if b"\xf0" not in each]
    for data in made()[:1] + usual[:3]:
        assert check_items(data) == len(CHOICES)
        assert check_lines(data) == 2


@settings(max_examples=1000)
@given(st.one_of(
    st.floats(),
    st.floats(1e-9, 1e-2),
    st.floats(1e13, 1e17),
    st.integers(-(10**17), 10**17).map(lambda whole: whole / 10_000),
    st.integers(-(10**6), 10**6).map(lambda whole: whole * 1000.0),
))  # fmt: skip
@example(1e15 + 0.25)  # between two that are as short
@example(1e15 + 0.375)
def test_floats_are_spelled_alike(value: float) -> None:
    assert NATIVE is not None
    data = b"\xc1x\x91" + struct.pack("<d", value)
    assert NATIVE.render_items(data, False, False) == f"x: {float_text(value)}\n"
    assert NATIVE.document_text(data, "flow") == plain_line_of(memoryview(data))
