"""Grammar, writer and reader are one, on generated documents of every kind and on damaged ones.

Documents are generated as calls in the form of the vectors' manifest, so that what is said there of
Java's bytes and what is said here of any bytes is said by the same three modules.
"""

import struct
from typing import Any

from construct import ConstructError, GreedyRange, Optional, Struct, Terminated
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.strategies import characters, garbage, int64s, is_text, short_texts
from tests.support.vectors.calls import CORE, build, build_by_core
from tests.support.vectors.constructs import grammar_of, same
from tests.support.vectors.manifest import Vector, is_binary, methods
from tests.support.vectors.reads import bodies, read_calls
from tests.support.vectors.values import ConvertedTypeError, body_value
from wire import BodyWriter, Fields, History, Reader, Variant, WireError, decode, grammar
from wire.grammar import requested
from wire.grammar.items import Fillers, Name, Skippable

SLOW = settings(max_examples=200, deadline=None)  # construct is slow

# ---- documents as calls --------------------------------------------------------------------------

texts = (short_texts | st.just("x" * 300)).filter(is_text)
any_names = st.text(characters, max_size=40) | st.sampled_from(
    ["", "12", "007", "2147483648", "€" * 32, "\U0001f600" * 16, "é" * 31, "x" * 31 + "€"]
)
floats = st.floats(width=32).map(lambda value: {"f32": struct.pack(">f", value).hex()})
tens = st.integers(0, 8).map(lambda places: 10**places)
decimals = st.builds(lambda number, ten: number / ten, st.integers(-(2**44), 2**44), tens)


def double_bits(value: float) -> dict[str, str]:
    return {"f64": struct.pack(">d", value).hex()}


doubles = (st.floats() | decimals).map(double_bits)
payloads = st.binary(max_size=300).map(lambda data: {"hex": data.hex()})
zones = st.sampled_from(["Z", "+01:00", "-18:00", "+05:30[Asia/Kolkata]"])
dates, times = (source.map(lambda value: value.isoformat()) for source in (st.dates(), st.times()))
stamps = st.datetimes().map(lambda value: value.isoformat())


def limited(bits: int, signed: bool) -> st.SearchStrategy[int]:
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [least, least + 1, greatest - 1, greatest, greatest >> 1, 0, 1]
    return st.sampled_from(edges) | st.integers(least, greatest)


ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    **{f"int{bits}": limited(bits, signed=True) for bits in (8, 16, 32)},
    **{f"uint{bits}": limited(bits, signed=False) for bits in (8, 16, 32)},
    **{f"fixedInt{bits}": limited(bits, signed=True) for bits in (8, 16, 32, 64)},
    "int64": int64s,
    "int64_0x": int64s,
    "int64forBinding": int64s,
    "int32forBinding": limited(32, signed=True),
    "boolForBinding": st.booleans(),
    "float32": floats,
    "float64": doubles,
    "fixedFloat32": floats,
    "fixedFloat64": doubles,
    "text": st.none() | texts,
    "bool": st.none() | st.booleans(),
    "bytes": st.none() | payloads,
    "bytesLiteral": st.none() | payloads,
    "rawBytes": payloads,
    "uuid": st.uuids().map(str),
    "date": dates,
    "time": times,
    "dateTime": stamps,
    "zonedDateTime": st.builds(lambda stamp, zone: stamp + zone, stamps, zones),
    "typeLiteral": st.none() | texts,
    "array_i64": st.lists(int64s, max_size=4),
    "array_f64": st.lists(doubles, max_size=4),
}
objects = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        texts,
        limited(32, signed=True).map(lambda n: {"i32": n}),
        int64s.map(lambda n: {"i64": n}),
        (st.floats(allow_nan=False) | decimals).map(double_bits),
        dates.map(lambda text: {"date": text}),
        st.binary(max_size=9).map(lambda data: {"bytestore": data.hex()}),
        st.lists(int64s, max_size=3).map(lambda values: {"longs": values}),
        st.sampled_from(["TEXT", "RAW"]).map(lambda name: {"wiretype": name}),
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: {"list": items})
        | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3).map(
            lambda entries: {"map": [list(entry) for entry in entries.items()]}
        )
    ),
    max_leaves=6,
)  # fmt: skip
one_argument = [
    st.tuples(st.just(method), st.lists(argument, min_size=1, max_size=1))
    for method, argument in {**ARGUMENTS, "object": objects}.items()
]
scalars = st.one_of(
    *one_argument,
    st.tuples(st.just("null"), st.just([])),
    st.tuples(st.just("int128forBinding"), st.tuples(int64s, int64s)),
    st.tuples(
        st.just("int64arrayValues"),
        st.lists(int64s, max_size=3).map(lambda values: [len(values) + 1, values, len(values)]),
    ),
)
fields = st.one_of(
    any_names,
    any_names.map(lambda name: {"event": name}),
    limited(32, signed=True).map(lambda number: {"id": number}),
    st.just({"noname": True}),
    st.builds(lambda name, code: {"key": name, "code": code}, any_names, limited(32, signed=True)),
    st.sampled_from(["txt", {"i32": 5}, {"date": "2020-02-29"}]).map(
        lambda key: {"eventObject": [None, "object", [key]]}
    ),
    st.none(),
)
unseen = st.one_of(
    texts.map(lambda text: [{"wire": True}, "comment", [text]]),
    st.integers(0, 9).map(lambda length: [{"wire": True}, "addPadding", [length]]),
)


def calls_of(values: st.SearchStrategy[Any], min_size: int = 0) -> st.SearchStrategy[list[Any]]:
    call = st.builds(lambda field, value: [field, *value], fields, values)
    return st.lists(call | call | call | unseen, min_size=min_size, max_size=4)


def nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    calls = calls_of(values)
    return st.one_of(
        st.tuples(st.just("marshallable"), st.tuples(calls)),
        st.tuples(st.just("sequence"), st.tuples(calls)),
        st.tuples(st.just("marshallable16"), st.tuples(calls)),
        st.tuples(st.just("typedMarshallable"), st.tuples(texts, calls)),
    )


run_of_calls = calls_of(st.recursive(scalars, nested, max_leaves=8), min_size=1)
WIRES = ["BINARY_LIGHT", "BINARY", "BINARY_FIXED", "BINARY_NUMERIC", "FIELDLESS_BINARY"]


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    """A run of documents in the form of the manifest."""
    padding = draw(st.booleans())
    styles: list[str | None] = [None, "writeDocument", "notComplete"]
    documents = [
        {"doc": draw(st.sampled_from(["data", "meta"])), "calls": calls, "style": style}
        for calls in draw(st.lists(run_of_calls, min_size=1, max_size=2))
        for style in [draw(st.sampled_from(styles))]
    ]
    for document in documents:
        if document["style"] is None:
            del document["style"]
    wire = draw(st.sampled_from(WIRES))
    key = "legacy_build" if wire != "BINARY_FIXED" and draw(st.booleans()) else "build"
    return {"wire": wire, "padding": padding, key: documents}


@SLOW
@given(vectors())
def test_grammar_writer_and_reader_are_one(vector: Vector) -> None:
    key = "legacy_build" if "legacy_build" in vector else "build"
    construct, values = grammar_of(vector)
    try:
        data = build(vector, key)
    except ValueError:  # no reader would see it
        assert refuses(construct, values)
        return
    assert construct.build(values) == data
    assert same(construct.parse(data), values)
    if key == "build" and is_binary(vector) and methods(vector) <= CORE:
        assert build_by_core(vector) == data
    for reader, document in bodies({**vector, "hex": data.hex()}):
        read_calls(reader, document["calls"], Variant.named(vector["wire"]))
    run = (grammar.PaddedStates if vector["padding"] else grammar.States).parse(data)
    for state in run.documents:
        assert_read_as_parsed(state.body)


def refuses(construct: Any, values: Any) -> bool:
    try:
        construct.build(values)
    except ConstructError:
        return True
    return False


@SLOW
@given(
    st.lists(st.tuples(limited(32, signed=True), int64s), max_size=5).map(tuple),
    st.lists(int64s, max_size=5).map(tuple),
)
def test_history(sources: tuple[tuple[int, int], ...], timings: tuple[int, ...]) -> None:
    writer = BodyWriter()
    writer.history_event(History(sources, timings))
    values = {
        "sources": [source for source, _ in sources],
        "indexes": [index for _, index in sources],
        "timings": list(timings),
    }
    assert requested.HistoryEvent.build(values) == writer.data
    assert same(requested.HistoryEvent.parse(writer.data), values)
    assert decode(bytes(writer.data)) == {"history": History(sources, timings)}
    assert_read_as_parsed(bytes(writer.data))


# ---- any bytes -----------------------------------------------------------------------------------


def assert_read_as_parsed(body: bytes) -> None:
    """The grammar takes the body if and only if the reader does, and both find the same value.

    Two exceptions. A value may not fit the type name before it: that the reader refuses, to the
    grammar it is no matter of the wire. And the reader has a greatest depth.
    """
    try:
        read: tuple[object] | None = (decode(body),)
    except WireError as error:
        read = None
        if "nested values" in error.reason:
            return
    try:
        parsed = grammar.Body.parse(body)
    except ConstructError:
        assert read is None
        return
    try:
        value = body_value(parsed)
    except ConvertedTypeError:
        return
    assert read is not None
    assert repr(value) == repr(read[0])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A body with up to three bytes changed, and maybe its end cut off."""
    calls = draw(run_of_calls)
    body = bytearray(build({"wire": "BINARY_LIGHT", "build": [{"doc": None, "calls": calls}]}))
    for _ in range(draw(st.integers(0, 3)) if body else 0):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)


@SLOW
@given(damaged() | garbage)
@example(bytes.fromhex("82060000008aa10586a105"))  # bytes take the rest of their block
@example(bytes.fromhex("c161868a"))
@example(bytes.fromhex("bdba05a101"))
def test_any_bytes_are_read_as_they_are_parsed(body: bytes) -> None:
    assert_read_as_parsed(body)
    assert_fields_as_parsed(body)


FIELDS_STEPPED_OVER = Struct(
    "fields"
    / GreedyRange(Struct("filler" / Fillers, "name" / Optional(Name), "value" / Skippable)),
    "filler" / Fillers,
    Terminated,
)


def assert_fields_as_parsed(body: bytes) -> None:
    """Looking for a field steps over all before it; names that are objects are left out here."""
    try:
        parsed = FIELDS_STEPPED_OVER.parse(body)
    except ConstructError:
        parsed = None
    try:
        names = [name for name, _ in Fields(Reader(body)).events()]
    except WireError:
        assert parsed is None
        return
    if parsed is None:
        assert 0xBD in body
        return
    found = [each.name for each in parsed.fields]
    assert names == ["" if name is None else spelled(name) for name in found]


def spelled(name: Any) -> str:
    return "history" if (name.code, name.operand) == (0xBA, -1) else str(name.operand)
