"""Every reader reads back what is written, in every variant. No bytes cause another error than
WireError."""

import array
import datetime
import math
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import int64s, is_text, names, payloads, short_texts
from wire import (
    BodyWriter,
    BytesLiteral,
    DocumentReader,
    DocumentWriter,
    Fields,
    Float32,
    Float64,
    Hex64,
    History,
    Int8,
    Int16,
    Int32,
    Int64,
    LongArray,
    Name,
    RawReader,
    RawWriter,
    Reader,
    Typed,
    TypeLiteral,
    UInt8,
    UInt16,
    UInt32,
    Variant,
    WireError,
    decode,
    dump_text,
    dumps,
    encode,
    loads,
    stopbit,
)
from wire import numbers as number_codes
from wire.numbers import to_float32
from wire.objects import conversions

THOROUGH = settings(max_examples=150, deadline=None)
texts = short_texts.filter(is_text)
doubles = st.floats(allow_nan=False)
floats = st.floats(width=32, allow_nan=False)
decimals = st.builds(
    lambda whole, places: whole / 10**places,
    st.integers(-(2**44), 2**44),
    st.integers(0, 8),
)
widths = st.sampled_from([Int8, Int16, Int32, Int64])
zones = st.builds(
    lambda minutes: datetime.timezone(datetime.timedelta(minutes=minutes)),
    st.integers(-18 * 60, 18 * 60),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    int64s,
    doubles,
    decimals,
    texts,
    st.binary(max_size=300),
    st.dates(),
    st.times(),
    st.datetimes(timezones=st.none() | zones),
    st.uuids(),
    st.builds(TypeLiteral, texts),
    widths.flatmap(lambda width: st.builds(width, st.integers(width.least, width.greatest))),
    st.builds(Float32, floats),
    st.builds(Float64, doubles),
    st.builds(
        LongArray,
        st.lists(int64s, max_size=5).map(tuple),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    st.builds(
        History,
        st.lists(st.tuples(st.integers(-5, 5), int64s), max_size=5).map(tuple),
        st.lists(int64s, max_size=5).map(tuple),
    ),
    st.lists(int64s, max_size=5).map(lambda values: array.array("q", values)),
    st.lists(doubles, max_size=5).map(lambda values: array.array("d", values)),
    st.sets(texts, max_size=4),
)
keys = st.one_of(
    texts, names, st.sampled_from(["12", "007", "-1", "history", "", "é", "€"]), int64s
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, min_size=1, max_size=4),
        st.builds(Typed, st.sampled_from(["Foo", "com.acme.Bar"]), inner),
    ),
    max_leaves=12,
)


@THOROUGH
@given(values, st.sampled_from([Variant.BINARY_LIGHT, Variant.BINARY, Variant.BINARY_FIXED]))
def test_values_come_back(value: object, variant: Variant) -> None:
    for legacy in (False, True):
        data = encode(value, variant=variant, legacy=legacy)
        assert decode(data) == value
        assert decode(data, keep_widths=True) == value
    assert loads(dumps(value)) == value
    # dump_text may show a value as a hex dump; it never fails
    assert dump_text(dumps(value)).startswith("---")


@THOROUGH
@given(st.lists(st.tuples(values, st.booleans()), max_size=4), st.booleans(), st.integers(1, 40))
def test_documents_come_back(runs: list[tuple[object, bool]], padding: bool, step: int) -> None:
    writer = DocumentWriter(padding=padding)
    for value, metadata in runs:
        writer.write(value, metadata=metadata)
    data = writer.take()
    reader = DocumentReader(padding=padding)
    found = []
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        found += [(document.value(), document.is_metadata) for document in reader]
    assert found == runs


NUMBERS: list[Callable[[BodyWriter, int], None]] = [
    BodyWriter.int64,
    BodyWriter.integer,
    BodyWriter.hex_int,
]


@pytest.mark.parametrize("write", NUMBERS)
@pytest.mark.parametrize("variant", [Variant.BINARY_LIGHT, Variant.BINARY_FIXED])
@pytest.mark.parametrize("legacy", [False, True])
@THOROUGH
@given(value=int64s)
def test_whole_numbers_come_back(
    value: int, write: Callable[[BodyWriter, int], None], variant: Variant, legacy: bool
) -> None:
    writer = BodyWriter(variant, legacy=legacy)
    write(writer, value)
    data = bytes(writer.data)
    assert conversions.read_int64(Reader(data)) == value
    assert Reader(data).read_int() == value
    assert conversions.read_float64(Reader(data)) == float(value)


@THOROUGH
@given(st.one_of(doubles, decimals, st.just(math.nan)))
def test_doubles_come_back(value: float) -> None:
    for style in (number_codes.COMPACT, number_codes.COMPACT_2_20, number_codes.FIXED):
        back = conversions.read_float64(Reader(style.float64(value)))
        assert back == value or (math.isnan(back) and math.isnan(value))


@THOROUGH
@given(st.one_of(floats, decimals.map(to_float32), st.just(math.nan)))
def test_floats_come_back(value: float) -> None:
    for style in (number_codes.COMPACT, number_codes.COMPACT_2_20, number_codes.FIXED):
        back = to_float32(conversions.read_float64(Reader(style.float32(value))))
        assert back == value or (math.isnan(back) and math.isnan(value))


@THOROUGH
@given(st.one_of(int64s, doubles.filter(math.isfinite), decimals))
def test_numbers_are_read_from_their_text(value: float) -> None:
    text = str(value)
    writer = BodyWriter()
    writer.text(text)
    data = bytes(writer.data)
    assert conversions.read_float64(Reader(data)) == float(value)
    if isinstance(value, int):
        assert conversions.read_int64(Reader(data)) == value
    elif abs(value) < 1e18:
        half_up = (Decimal(value) + Decimal("0.5")).to_integral_value("ROUND_FLOOR")
        assert conversions.read_int64(Reader(data)) == half_up


class Colour(Enum):
    RED = "red"
    GREEN = "green"


@dataclass
class Inner:
    number: Int16
    label: str | None = None


@dataclass
class Message:
    cid: int
    small: UInt8
    wide: UInt32
    index: Annotated[Hex64, Name("idx")]
    ratio: float
    single: Float32
    label: str
    flag: bool
    payload: bytes
    excerpt: BytesLiteral
    colour: Colour
    when: datetime.datetime
    who: uuid.UUID
    inner: Inner
    numbers: list[int]
    names: dict[str, float]
    pair: tuple[UInt16, ...] = ()
    anything: object = None
    maybe: Inner | None = None
    keyed: dict[int, str] = field(default_factory=dict)


inners = st.builds(Inner, st.builds(Int16, st.integers(-(2**15), 2**15 - 1)), st.none() | texts)
messages = st.builds(
    Message,
    cid=int64s,
    small=st.builds(UInt8, st.integers(0, 255)),
    wide=st.builds(UInt32, st.integers(0, 2**32 - 1)),
    index=st.builds(Hex64, int64s),
    ratio=doubles,
    single=st.builds(Float32, floats),
    label=texts,
    flag=st.booleans(),
    payload=payloads(),
    excerpt=st.builds(BytesLiteral, payloads()),
    colour=st.sampled_from(Colour),
    when=st.datetimes(timezones=st.none() | zones),
    who=st.uuids(),
    inner=inners,
    numbers=st.lists(int64s, max_size=3),
    names=st.dictionaries(names, doubles, max_size=3),
    pair=st.lists(st.builds(UInt16, st.integers(0, 2**16 - 1)), max_size=3).map(tuple),
    anything=texts | int64s,
    maybe=st.none() | inners,
    keyed=st.dictionaries(int64s, texts, max_size=3),
)


@THOROUGH
@given(
    messages,
    st.sampled_from([variant for variant in Variant if variant is not Variant.RAW]),
    st.booleans(),
)
def test_messages_come_back_in_every_variant(
    message: Message, variant: Variant, legacy: bool
) -> None:
    assert loads(dumps(message, variant=variant, legacy=legacy), Message) == message


@THOROUGH
@given(messages, st.randoms(use_true_random=False))
def test_fields_come_in_any_order(message: Message, random: Any) -> None:
    parts: list[bytes] = []
    reader = Reader(encode(message))
    while reader.peek_code() is not None:
        start = reader.position
        reader.read_name()
        reader.skip_value()
        parts.append(bytes(reader.data[start : reader.position]))
    random.shuffle(parts)
    assert decode(b"".join(parts), Message) == message


@THOROUGH
@given(values | messages, st.data())
def test_damage_is_a_wire_error(value: object, data: st.DataObject) -> None:
    body = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    read_in_every_way(bytes(body[: data.draw(st.integers(0, len(body)))]))


@THOROUGH
@given(st.binary(max_size=60))
def test_garbage_is_a_wire_error(body: bytes) -> None:
    read_in_every_way(body)
    with suppress(WireError):
        loads(body)


def read_in_every_way(body: bytes) -> None:
    reads: list[Callable[[], object]] = [
        lambda: decode(body),
        lambda: decode(body, keep_widths=True),
        lambda: decode(body, Message),
        lambda: list(Fields(Reader(body)).events()),
        lambda: Fields(Reader(body)).fields("a"),
        lambda: RawReader(body).block().text(),
    ]
    of_value = (
        conversions.read_int64,
        conversions.read_int32,
        conversions.read_float64,
        conversions.read_text,
        conversions.read_boolean,
        conversions.read_bytes,
        conversions.read_literal,
    )
    reads += [partial(read, Reader(body)) for read in of_value]
    for name in ("event", "date", "time", "date_time", "zoned_date_time", "boolean", "uuid"):
        reads.append(getattr(RawReader(body), name))
    for attempt in reads:
        with suppress(WireError):
            attempt()


@THOROUGH
@given(
    int64s, floats, doubles, st.none() | texts, st.none() | st.booleans(), st.uuids(), st.binary(),
    st.dates(), st.times(), names,
)  # fmt: skip
def test_raw_values_come_back(
    number: int, single: float, double: float, text: str | None, flag: bool | None,
    identity: uuid.UUID, payload: bytes, date: datetime.date, time: datetime.time, name: str,
) -> None:  # fmt: skip
    writer = RawWriter()
    writer.name("is left out")
    writer.event(name)
    writer.int64(number)
    writer.float32(single)
    writer.float64(double)
    with writer.block():
        writer.text(text)
        writer.boolean(flag)
    writer.uuid(identity)
    writer.bytes_value(payload)
    writer.date(date.isoformat())
    writer.time(time.isoformat())
    reader = RawReader(writer.data)
    assert (reader.event(), reader.whole(Int64)) == (name, number)
    assert (reader.float32(), reader.float64()) == (single, double)
    block = reader.block()
    assert (block.text(), block.boolean()) == (text, flag)
    assert (reader.uuid(), reader.bytes_value()) == (identity, payload)
    assert (reader.date(), reader.time()) == (date, time)
    assert reader.position == reader.end


@THOROUGH
@given(st.integers(-(10**9) * 365, 10**9 * 365))
def test_raw_dates_of_any_year(day: int) -> None:
    date = RawReader(stopbit.encode(day)).date()
    writer = RawWriter()
    writer.date(str(date))
    assert RawReader(writer.data).date() == date
    assert bytes(writer.data) == stopbit.encode(day)
