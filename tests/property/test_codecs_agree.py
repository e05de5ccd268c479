"""The native codec against the plain one: the same values for every input, or none.

The native codec declines what is unusual, and the plain one reads that. So errors are the same when
this holds: whatever the native one reads, the plain one reads without an error, to the same value.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import wire
from tests.support.requirements import require
from tests.unit.queue.test_typed_documents import FULL as ORDER
from tests.unit.queue.test_typed_documents import Order, Placed
from wire.codec import NATIVE
from wire.errors import WireError
from wire.header import is_framed
from wire.objects.annotated import read_message
from wire.objects.nativeforms import message_reader, object_reader, shown_reader
from wire.objects.object_reader import read_body
from wire.reader import Reader
from wire.text.print_values import plainly_shown

try:
    from tests.unit.test_typed_arrow import FULL as WITH_EMOJI
    from tests.unit.test_typed_arrow import Order as ColumnOrder
except ImportError:
    require("arrow", "pyarrow is not installed")
if NATIVE is None:
    require("native", "the native codec is not built here")

FULL = dataclasses.replace(WITH_EMOJI, sym="grün€")


@dataclasses.dataclass
class Marked:
    """A value of a kind that only the plain codec reads."""

    value: wire.Typed


VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "wire"
Read = Callable[[bytes], object]


def bodies() -> list[bytes]:
    """All bytes of all vectors; of documents the bodies, too."""
    found = set()
    for path in sorted(VECTORS.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            for value in json.loads(line).values():
                if isinstance(value, str) and len(value) % 2 == 0:
                    try:
                        data = bytes.fromhex(value)
                    except ValueError:
                        continue
                    found |= {data, data[4:]}
    return sorted(found)


BODIES = bodies()
MESSAGES: list[Any] = [ORDER, Order("A"), FULL, WITH_EMOJI, ColumnOrder("B"), Placed("C", 1.5)]
ENCODED = [wire.encode(each) for each in MESSAGES] + [
    wire.encode({"a": {"b": [1, 2.5, None, True, b"x", {"c": wire.Typed("T", "y")}]}, "d": "é"}),
    wire.encode([1, "x", {"a": 1}]),
    wire.encode({"sym": "A", "px": 5, "later": [1, {"x": 2}], "qty": 3.0}),
    b"\x8f\x8f" + wire.encode({"sym": "A"}) + b"\x8f",
]


def plain_object(data: bytes) -> object:
    if is_framed(data):
        raise WireError("framed")
    return read_body(Reader(data))


def plain_message(kind: Any) -> Read:
    def read(data: bytes) -> object:
        if is_framed(data):
            raise WireError("framed")
        return read_message(kind, Reader(data))

    return read


def check(native: Read, plain: Read, data: bytes) -> bool:
    """Fails where they differ; true where the native one has read the document."""
    found = native(data)
    if found is NotImplemented:
        return False
    try:
        expected = plain(data)
    except WireError as error:
        # None says that another method is called, which the plain reader of one class refuses
        if found is not None or "a call of" not in str(error):
            pytest.fail(f"{data.hex()}: {found!r} came natively, plainly {error}")
        return True
    # repr tells 1 from 1.0 and True, and has NaN equal to itself
    assert repr(found) == repr(expected), data.hex()
    return True


def readers() -> list[tuple[Read, Read]]:
    pairs: list[tuple[Read, Read]] = [
        (object_reader(), plain_object),
        (shown_reader(), plainly_shown),
    ]
    for kind in (Order, ColumnOrder, Placed):
        native = message_reader(kind)
        assert native is not None
        pairs.append((native, plain_message(kind)))
    return pairs


def test_each_vector() -> None:
    read = 0
    for data in BODIES:
        for native, plain in readers():
            read += check(native, plain, data)
    assert len(BODIES) > 500
    assert read > len(BODIES) // 4  # most of them are of the usual kind


def test_usual_documents_are_read_natively() -> None:
    """An equality that nothing is compared for would hold, too."""
    native = object_reader()
    declined = [data for data in ENCODED if not check(native, plain_object, data)]
    assert declined == [
        wire.encode(WITH_EMOJI)
    ]  # beyond the basic plane Java has a form of its own
    assert check(shown_reader(), plainly_shown, wire.encode({"order": {"px": 1.5, "a": [1, "x"]}}))
    for kind, message in ((Order, ORDER), (ColumnOrder, FULL), (Placed, Placed("A"))):
        reader = message_reader(kind)
        assert reader is not None
        assert reader(wire.encode(message)) == message
    assert message_reader(Marked) is None


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A document of which some bytes were changed, taken away or put in."""
    data = bytearray(draw(st.sampled_from(ENCODED)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.integers(0, 3))
        if kind == 0 and data:
            data[at] = draw(st.integers(0, 255))
        elif kind == 1:
            del data[at : at + draw(st.integers(1, 4))]
        elif kind == 2:
            data[at:at] = draw(st.binary(min_size=1, max_size=5))
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 12))]
    return bytes(data)


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.one_of(mutated(), st.binary(max_size=64)))
@example(b"\x82\xff\xff\xff\x7f")
@example(b"\xc1a" + b"\x82\x80\x00\x00\x00" * 100)
@example(b"\xc1a\xb8\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
@example(b"\xc1a\x96\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00")
@example(b"\xc3qty\x90\x00\x00\x00\x5f\xc3sym\xe0")
@example(b"\xc3sym\xe1A\xc3sym\xe1B")
@example(b"\xc3sym\xe1A\xc0\xe1B")
@example(b"\xc3sym\xe1A\xc2px\xe31.5")
@example(b"\xba\x80\x00\x80\x03\x86\x00\x00\xb9\x05order\x82\x05\x00\x00\x00\xc3sym\xe0")
def test_any_bytes(data: bytes) -> None:
    for native, plain in readers():
        check(native, plain, data)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.floats(),
        st.text(max_size=40),
        st.binary(max_size=20),
        st.datetimes(),
        st.dates(),
        st.uuids(),
        st.builds(wire.Typed, st.text(max_size=8), st.integers(0, 5)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=5))
def test_any_document(fields: dict[str, object]) -> None:
    check(object_reader(), plain_object, wire.encode(fields))
    check(shown_reader(), plainly_shown, wire.encode(fields))


@pytest.mark.parametrize("depth", [10, 63, 64, 65, 10_000])
def test_deep_nesting_is_left_to_the_plain_codec_at_its_limit(depth: int) -> None:
    data = b""
    for _ in range(depth):
        data = b"\x82" + len(data).to_bytes(4, "little") + data
    try:
        expected = repr(plain_object(data))
    except WireError:
        assert object_reader()(data) is NotImplemented
    else:
        assert repr(object_reader()(data)) == expected
    assert object_reader()(data) is NotImplemented or depth <= 64
