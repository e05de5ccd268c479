"""The native writer against the plain one: the same bytes for every message, or none.

The native writer declines what is unusual, as a subclass of a type or a time with a zone; the plain
one writes that, or says the error. So errors are the same when this holds.
"""

import datetime
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import wire
from tests.property.test_codecs_agree import MESSAGES
from tests.support.requirements import require
from wire.codec import NATIVE
from wire.objects.annotated import Name
from wire.objects.documents import encode, plainly_encoded
from wire.objects.nativeforms import message_writer

if NATIVE is None:
    require("native", "the native codec is not built here")


class Side(Enum):
    BUY = 1
    SELL = 2


@dataclass
class Part:
    name: str
    ratio: wire.Int32 | None = None


@dataclass
class All:
    """A field of each kind that the native writer knows."""

    wire_event: ClassVar[str] = "all"
    i: int
    f: float
    s: str
    b: bool
    d: Decimal
    y: bytes
    e: Side
    o: Side | str
    day: datetime.date
    at: datetime.datetime
    time: datetime.time
    id: uuid.UUID
    part: Part
    parts: list[Part]
    tags: tuple[str, ...]
    counts: dict[str, int]
    single: wire.Float32
    double: wire.Float64
    byte: wire.Int8
    short: wire.UInt16
    maybe: int | None = None
    maybe_part: Part | None = None
    named: Annotated[int, Name("7")] = 1
    a_long_name_that_has_more_than_31_letters: int = 2
    items: list[int | None] = field(default_factory=list)


FULL = All(
    -1, 1.5, "grün€", True, Decimal("1.10"), b"x", Side.SELL, "NEW", datetime.date(2024, 3, 1),
    datetime.datetime(2024, 3, 1, 12, 30, 0, 5000), datetime.time(1, 2), uuid.UUID(int=5),
    Part("a"), [Part("b", wire.Int32(5))], ("x", "y"), {"k": 1}, wire.Float32(0.1),
    wire.Float64(0.1), wire.Int8(-3), wire.UInt16(65535), None, Part("c"), 9, 10, [1, None],
)  # fmt: skip


class Text(str):
    """A text of another class."""

    __slots__ = ()


class Number(IntEnum):
    ONE = 1


UTC = datetime.UTC
UNUSUAL: dict[str, list[object]] = {
    "i": [True, 2**63, -(2**70), Number.ONE, "1", None, 1.0],
    "f": [1, 2**80, True, float("nan"), None, "x"],
    "s": [Text("x"), "😀", "\ud800", "\0é", None, b"x", 5, "x" * 31, "x" * 32, "é" * 200],
    "b": [1, None, "x"],
    "d": [Decimal("1E+5"), Decimal("NaN"), Decimal("-Infinity"), 1, None],
    "y": [bytearray(b"x"), memoryview(b"x"), None, "x", b"z" * 254, b"z" * 255, b"z" * 70000],
    "e": ["BUY", None, Number.ONE],
    "o": [Side.BUY, 5, None, Text("x")],
    "day": [datetime.datetime(2024, 3, 1), None, "2024-03-01", datetime.date.min],
    "at": [datetime.datetime(2024, 3, 1, tzinfo=UTC), datetime.date(2024, 3, 1), None],
    "time": [datetime.time(1, 2, tzinfo=UTC), None, datetime.time.max],
    "id": [None, "x"],
    "part": [None, {"name": "a"}, FULL, Part("😀")],
    "parts": [None, (Part("a"),), [None], "ab", {}],
    "tags": [["x"], {"x"}, None],
    "counts": [None, {1: 2}, {"é": 1}, {"€": 1}, {"a": "b"}, [], {Text("a"): 1}],
    "single": [1e300, float("inf"), 0.3, 1, None],
    "byte": [128, 5, None],
    "short": [-1, 65536],
    "maybe": [5, "x"],
    "items": [[None, 2**40, -(2**40), 2**62], [None, "x"]],
}


ERRORS = (TypeError, ValueError, AttributeError, OverflowError, struct.error, wire.WireError)


def outcome(write: Callable[[object], bytes], message: object) -> object:
    try:
        return write(message)
    except ERRORS as error:
        return type(error), str(error)


def check(message: object) -> None:
    assert outcome(encode, message) == outcome(plainly_encoded, message)


def test_a_message_of_all_kinds_is_written_natively() -> None:
    writer = message_writer(All)
    assert writer is not None
    assert writer(FULL) == plainly_encoded(FULL) == encode(FULL)
    assert wire.decode(encode(FULL), All).s == "grün€"


@pytest.mark.parametrize("name", UNUSUAL)
def test_a_value_of_another_type_is_written_or_refused_alike(name: str) -> None:
    for value in UNUSUAL[name]:
        changed: dict[str, Any] = {name: value}
        check(replace(FULL, **changed))


def test_a_field_that_was_deleted_is_refused_alike() -> None:
    for each in fields(All):
        message = replace(FULL)
        if each.name in vars(message):
            delattr(message, each.name)
            check(message)


def test_a_subclass_is_written_with_its_own_fields() -> None:
    @dataclass
    class More(Part):
        more: int = 5

    check(replace(FULL, part=More("a")))
    check(More("a"))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_of_other_tests(message: object) -> None:
    check(message)


@given(
    st.fixed_dictionaries(
        {
            "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-70000, 70000),
            "f": st.floats() | st.integers(-(10**12), 10**12).map(lambda whole: whole / 10_000),
            "s": st.text(max_size=40),
            "d": st.decimals(),
            "y": st.binary(max_size=300),
            "day": st.dates(),
            "at": st.datetimes(),
            "time": st.times(),
            "id": st.uuids(),
            "counts": st.dictionaries(st.text(max_size=4), st.integers(-9, 9), max_size=3),
            "maybe": st.none() | st.integers(0, 62).map(lambda bit: 2**bit),
        }
    )
)
@example({"f": -0.0})
@example({"f": float(2**63)})
@example({"i": 2**63 - 1})
def test_generated_messages(changed: dict[str, Any]) -> None:
    check(replace(FULL, **changed))


@given(st.floats(), st.integers(-(2**63), 2**63 - 1), st.floats(width=32))
def test_numbers_take_the_same_codes(double: float, whole: int, single: float) -> None:
    items: list[int | None] = [whole >> 31, whole >> 47]
    check(replace(FULL, f=double, i=whole, single=wire.Float32(single), items=items))


@pytest.mark.parametrize(
    "value",
    [
        wire.Typed("x", 5),
        wire.TypeLiteral("a.B"),
        wire.LongArray((1, 2), 2, 4),
        wire.History((), ()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_dataclass_that_is_one_value_is_no_message(value: object) -> None:
    assert message_writer(type(value)) is None
    assert encode(value) == plainly_encoded(value) != b""
