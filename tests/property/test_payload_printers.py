"""Each value of a payload that `--as yaml` prints is printed by the other forms as well."""

import array
import datetime
import json
import math
import re
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wire
from cqrepl.console.payload import content_of, json_of, json_text, json_value, line_of, yaml_of
from tests.strategies import garbage, int64s, is_text, item_bytes, short_texts
from wire import encode
from wire.text.print_items import render_items

THOROUGH = settings(max_examples=300, deadline=None)
FIRST_CODE = 0x80
PYTHON = re.compile(r"[A-Za-z_]\w*\(|<class|datetime\.|array\(")
texts = short_texts.filter(is_text)
plain_values = st.recursive(
    st.none() | st.booleans() | int64s | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts, inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
)


def is_plain_text(payload: bytes) -> bool:
    """Text without control characters is that, whatever else it might be."""
    try:
        return payload.decode().replace("\t", "").replace("\n", "").isprintable()
    except UnicodeDecodeError:
        return False


def has_items(payload: bytes) -> bool:
    """True where `--as yaml` shows items, not a hex dump."""
    try:
        render_items(payload, fold_unused=False)
    except wire.WireError:
        return False
    return True


def plain(value: Any) -> Any:
    """The value as JSON has it, which has no NaN."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value if math.isfinite(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


@THOROUGH
@given(item_bytes | garbage.filter(lambda data: data[:1] >= b"\x80"))
@example(bytes.fromhex("e3696431"))
@example(bytes.fromhex("a53905"))
@example(bytes.fromhex("c178e179c0e165"))
@example(bytes.fromhex("c178e179be0672656d61726b"))
@example(bytes.fromhex("c178e179c178a105"))
@example(bytes.fromhex("b603466f6fc178"))
@example(bytes.fromhex("bd8200000000a105"))
@example(bytes.fromhex("a1"))
@example(bytes.fromhex("8f8f"))
def test_what_yaml_prints_is_wire_to_all(payload: bytes) -> None:
    view = memoryview(payload)
    content = content_of(view)
    line, text = line_of(view), json_of(view)
    assert line.replace("\t", "").isprintable()
    assert json.loads(text) == json.loads(json_text(json_value(content))) or content.kind == "hex"
    if payload[:1] >= b"\x80" and not is_plain_text(payload) and payload != b"\x8f":
        assert has_items(payload) <= (content.kind == "wire")
        assert "#binary" in yaml_of(view)
    elif not is_plain_text(payload) and payload != b"\x8f":
        assert content.kind == "hex"


@THOROUGH
@given(plain_values)
def test_the_values_are_those_that_were_written(value: Any) -> None:
    payload = memoryview(encode({"value": value}))
    assert content_of(payload).kind == "wire"
    assert json.loads(json_of(payload)) == {"value": plain(value)}
    alone = memoryview(encode(value))
    if has_items(bytes(alone)) and not is_plain_text(bytes(alone)):
        assert json.loads(json_of(alone)) == plain(value)


NOON = datetime.datetime(2024, 3, 5, 12, 0, 1)
MARKED: list[tuple[object, Any, str]] = [
    (wire.TypeLiteral("int"), {"!type": "int"}, "!type int"),
    (wire.TypeLiteral("a\x1b b"), {"!type": "a\x1b b"}, '!type "a\\u001b b"'),
    (wire.Typed("Foo", {"a": 1}), {"!Foo": {"a": 1}}, "!Foo {a: 1}"),
    (wire.Typed("a\nb", 1), {"!a\nb": 1}, "!a\\nb 1"),
    (wire.Typed("int", "x"), {"!int": "x"}, "!int x"),
    (wire.LongArray((1, 2), 1, 3), [1, 2, 0], "[1, 2, 0]"),
    (
        wire.History(((1, 7),), (5,)),
        {"sources": [1, 7], "timings": [5]},
        "{sources: [1, 7], timings: [5]}",
    ),
    ({"b", "a"}, ["a", "b"], "[a, b]"),
    (array.array("q", [1, 2]), [1, 2], "[1, 2]"),
    (array.array("d", [1.5]), [1.5], "[1.5]"),
    (wire.Int8(5), 5, "5"),
    (wire.Hex64(255), 255, "255"),
    (wire.Float32(1.5), 1.5, "1.5"),
    (math.inf, "Infinity", "Infinity"),
    (Decimal("1.10"), "1.10", "1.10"),
    (1 << 70, str(1 << 70), str(1 << 70)),
    (None, None, '!!null ""'),
    (b"\xff", {"!!binary": "/w=="}, "!!binary /w=="),
    (NOON, "2024-03-05T12:00:01", "2024-03-05T12:00:01"),
    (NOON.date(), "2024-03-05", "2024-03-05"),
    (wire.LocalTime("12:00:00.000000001"), "12:00:00.000000001", "12:00:00.000000001"),
    (
        {5: 1, None: 2, (1, "a"): 3},
        {"5": 1, "null": 2, "[1, a]": 3},
        '{5: 1, null: 2, "[1, a]": 3}',
    ),
    ({5: 1, "5": 2}, [{"5": 1}, {"5": 2}], "[{5: 1}, {5: 2}]"),
]


@pytest.mark.parametrize("beside", [{}, {"id": uuid.UUID(int=5)}], ids=["shown", "not-by-yaml"])
@pytest.mark.parametrize(("value", "as_json", "as_line"), MARKED)
def test_no_value_is_shown_as_python_writes_it(
    value: object, as_json: Any, as_line: str, beside: dict[str, object]
) -> None:
    payload = memoryview(encode({"v": value, "w": 1} | beside))
    line, found = line_of(payload), json.loads(json_of(payload))
    assert content_of(payload).kind == "wire"
    assert not PYTHON.search(line)
    assert not PYTHON.search(json_of(payload))
    if not beside:
        assert line == f"v: {as_line}, w: 1"
        assert found == {"v": as_json, "w": 1}
    else:
        assert found["id"] == "00000000-0000-0000-0000-000000000005"


def test_bytes_that_are_no_wire_stay_hexadecimal() -> None:
    for data in (
        "00ff",
        "05c178e179",
        "0000803f0000",
        "ff00",
        "1f8b0800",
        "a0" + "05" * 16,
        "cafe",
    ):
        assert content_of(memoryview(bytes.fromhex(data))) == ("hex", data)
    assert content_of(memoryview("grüße".encode())) == ("text", "grüße")
