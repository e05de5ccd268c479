"""Grammar, reader and writer agree, on what is written and on any bytes whatsoever.

The grammar is the judge: where it refuses, the reader raises WireError, and where it takes bytes
the reader gives the same value and stands behind the same byte.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from construct import (
    Construct,
    ConstructError,
    GreedyRange,
    Int64sl,
    Struct,
    Tell,
    Terminated,
)
from hypothesis import example, given
from hypothesis import strategies as st

from cqrepl.protocol.messages import (
    read_acknowledgement,
    read_replication_event,
    read_routing,
)
from tests.strategies import THOROUGH, garbage, int64s, is_text, names, short_texts, splits, texts
from tests.support.vectors.reads import name_as_read
from wire import Reader, Splitter, WireError, Writer, grammar, stopbit
from wire.header import META_DATA, NOT_COMPLETE, body_length
from wire.strings import decode_text, encode_text
from wire.writer import encode_int

LENGTH_MAX = 1 << 16


def parsed(construct: Construct, data: bytes) -> tuple[Any, int] | None:
    """The value the grammar makes of the bytes, and where it stops; None where it refuses them."""
    whole = Struct("filler" / grammar.Fillers, "value" / construct, "end" / Tell)
    try:
        found = whole.parse(data)
    except (ConstructError, OverflowError):
        return None
    return found["value"], found.end


def read(method: Callable[[Reader], object], data: bytes) -> tuple[Any, int] | None:
    """The same of the reader."""
    reader = Reader(data)
    try:
        value = method(reader)
    except WireError:
        assert 0 <= reader.position <= len(data)
        return None
    return value, reader.position


@THOROUGH
@given(int64s)
def test_stop_bit_number(number: int) -> None:
    encoded = stopbit.encode(number)
    assert encoded == grammar.StopBit.build(number)
    assert stopbit.decode(encoded, 0, len(encoded)) == (number, len(encoded))


@THOROUGH
@given(st.lists(st.sampled_from((0, 1, 0x7F, 0x80, 0x81, 0xFF)), max_size=12).map(bytes))
@example(b"\xff" * 9 + b"\x01")
@example(b"\x80" * 10 + b"\x00")
@example(b"\xff" * 9 + b"\x00")
def test_stop_bit_number_of_any_bytes(data: bytes) -> None:
    try:
        ours = stopbit.decode(data, 0, len(data))
    except WireError:
        ours = None
    try:
        judged = Struct("number" / grammar.StopBit, "end" / Tell).parse(data)
    except ConstructError:
        assert ours is None
    else:
        assert ours == (judged.number, judged.end)


@THOROUGH
@given(texts)
@example("\ufeff")
@example("\ud83d")
def test_text(text: str) -> None:
    writer = Writer()
    writer.text(text)
    assert writer.data == grammar.Text.build(text)
    back = Reader(bytes(writer.data)).read_text()
    assert back == text if is_text(text) else encode_text(str(back)) == encode_text(text)


@THOROUGH
@given(
    st.binary(max_size=8)
    | st.lists(st.sampled_from(b"\x00a\x80\xbf\xc0\xc1\xc3\xdf\xe0\xe2\xed\xef\xf0\xff")).map(bytes)
)
@example(b"\xc0\x80\xe1\x80\x80")
@example(b"\xc1\xc0\x80")
@example(b"\xed\xa0\xbd\xed\xb8\x80")
def test_text_of_any_bytes(data: bytes) -> None:
    data = data[:127]
    judged = parsed(grammar.LongText, bytes([len(data)]) + data)
    try:
        assert judged == (decode_text(data), 1 + len(data))
    except WireError:
        assert judged is None


@THOROUGH
@given(int64s)
def test_number(number: int) -> None:
    encoded = encode_int(number)
    assert encoded == grammar.Number.build(number)
    assert Reader(encoded).read_int() == number
    writer = Writer()
    writer.hex_int(number)
    assert writer.data == grammar.Index.build(number)
    assert Reader(bytes(writer.data)).read_int() == number


@THOROUGH
@given(names | short_texts)
@example("€" * 32)
@example("€" * 31)
@example("\U0001f600" * 16)
@example("0")
@example("2147483647")
@example("2147483648")
@example("٣")
@example("00000000000000000000000000000007")
@example("0000000000000000000000000000007")
def test_name(name: str) -> None:
    writer = Writer()
    writer.name(name)
    assert writer.data == grammar.FieldName.build(name)
    back = name_as_read(name)
    assert parsed(grammar.FieldName, bytes(writer.data)) == (back, len(writer.data))
    assert Reader(bytes(writer.data)).read_name() == back
    writer = Writer()
    writer.event(name)
    assert writer.data == grammar.EventName.build(name)
    assert Reader(bytes(writer.data)).read_name() == name_as_read({"event": name})


VALUES: list[tuple[str, Callable[[Reader], object], Construct]] = [
    ("int", Reader.read_int, grammar.Number),
    ("text", Reader.read_text, grammar.TextOrNull),
    ("bool", Reader.read_bool, grammar.Bool),
    ("block", lambda reader: content(reader.read_block()), grammar.Payload),
    ("long", Reader.read_bound_int64, grammar.tagged(0xA7, Int64sl)),
    ("array", Reader.read_bound_array, grammar.tagged(0x8D, grammar.LongArray)),
    ("skip", Reader.skip_value, grammar.Value),
]


def content(reader: Reader) -> bytes:
    return bytes(reader.data[reader.position : reader.end])


@pytest.mark.parametrize(
    ("method", "construct"), [pytest.param(*rest, id=name) for name, *rest in VALUES]
)
@THOROUGH
@given(data=garbage)
def test_value_of_any_bytes(
    method: Callable[[Reader], object], construct: Construct, data: bytes
) -> None:
    ours, judged = read(method, data), parsed(construct, data)
    assert (ours is None) == (judged is None)
    if ours is not None and judged is not None:
        assert ours[1] == judged[1]
        if construct in (grammar.Number, grammar.TextOrNull, grammar.Bool, grammar.Payload):
            assert ours[0] == judged[0]


FIELDS = Struct(
    "fields"
    / GreedyRange(
        Struct(
            "filler" / grammar.Fillers,
            "name" / grammar.Name,
            "start" / Tell,
            "value" / grammar.Value,
            "end" / Tell,
        )
    ),
    "filler" / grammar.Fillers,
    Terminated,
)


def judged_fields(data: bytes) -> dict[str, tuple[int, int]] | None:
    """The start and end of the value of each name; None where the grammar refuses the bytes."""
    try:
        found = FIELDS.parse(data)
    except ConstructError:
        return None
    places: dict[str, tuple[int, int]] = {}
    for field in found.fields:
        # filler before the value is stepped over by its reader
        places.setdefault(str(field.name.operand), (field.start, field.end))
    return places


@THOROUGH
@given(garbage)
@example(bytes.fromhex("c161b90162a101"))  # an event name is no value
@example(bytes.fromhex("c161b68000a101"))  # a type of length -1
@example(bytes.fromhex("be8000"))
def test_fields_of_any_bytes(data: bytes) -> None:
    judged = judged_fields(data)
    try:
        fields = Reader(data).read_fields()
    except WireError:
        assert judged is None
        return
    assert {name: (value.position, value.end) for name, value in fields.items()} == judged


@THOROUGH
@given(garbage)
def test_names_and_types_of_any_bytes(data: bytes) -> None:
    reader = Reader(data)
    with suppress(WireError):
        while reader.position < reader.end:
            before = reader.position
            if reader.read_name() is None and reader.read_type() is None:
                reader.skip_value()
            assert before < reader.position <= reader.end


@THOROUGH
@given(garbage, st.integers(0, 10), st.integers(0, 10))
def test_nothing_outside_the_borders_matters(data: bytes, before: int, behind: int) -> None:
    start, end = min(before, len(data)), max(min(before, len(data)), len(data) - behind)
    other = bytes(start) + data[start:end] + b"\x8f" * (len(data) - end)
    for _, method, _ in VALUES:
        results: list[object] = []
        for whole in (data, other):
            reader = Reader(memoryview(whole), start, end)
            try:
                results.append((method(reader), reader.position))
            except WireError:
                results.append(WireError)
        assert results[0] == results[1]


@THOROUGH
@given(garbage, st.sampled_from((b"\xc3cid", b"\xc7handler", b"\xc3idx", b"\xc2re\x82\x10\0\0\0")))
def test_messages_of_any_bytes_are_messages_or_wire_errors(data: bytes, head: bytes) -> None:
    for whole in (data, head + data):
        reader = Reader(whole)
        with suppress(WireError):
            read_routing(reader)
        for message in (read_acknowledgement, read_replication_event):
            reader = Reader(whole)
            with suppress(WireError):
                reader.read_name()
                message(reader)


# ---- documents that the writer makes -------------------------------------------------------------


# ---- the splitter --------------------------------------------------------------------------------

documents = st.builds(
    lambda body, is_metadata: (
        (len(body) | (META_DATA if is_metadata or not body else 0)).to_bytes(4, "little") + body
    ),
    st.binary(max_size=50) | st.binary(min_size=1000, max_size=1100),
    st.booleans(),
)
streams = st.lists(documents, max_size=10).map(b"".join)
tails = st.sampled_from(
    (b"", b"\0\0\0\0x", b"\0\0\0\x80xyz", b"\x05\0\0\0abcd", b"\xff\xff\xff\x3f", b"\xff")
)


def split(pieces: list[bytes]) -> tuple[list[tuple[int, bytes, int]], bool, int]:
    """Documents, whether the rest is refused, and where it starts."""
    splitter = Splitter(LENGTH_MAX)
    found = []
    for piece in pieces:
        splitter.feed(piece)
        try:
            while document := splitter.next_document():
                found.append((document.word, bytes(document.body), document.position))
        except WireError as refused:
            return found, refused.position == splitter.position, splitter.position
    return found, False, splitter.position


@THOROUGH
@given(streams, tails | st.binary(max_size=40), st.data())
def test_any_segmentation_gives_the_same_documents(
    stream: bytes, tail: bytes, data: st.DataObject
) -> None:
    stream += tail
    whole = split([stream])
    assert split(data.draw(splits(stream))) == whole
    assert split([stream[at : at + 1] for at in range(len(stream))]) == whole


@THOROUGH
@given(streams, tails | st.binary(max_size=40))
def test_splitter_cuts_as_the_grammar_does(stream: bytes, tail: bytes) -> None:
    stream += tail
    found, is_refused, position = split([stream])
    judged = grammar.Documents.parse(stream)
    # the grammar knows no greatest length
    assert [body for _, body, _ in found] == [
        document.body for document in judged.documents[: len(found)]
    ]
    assert [bool(word & META_DATA) for word, _, _ in found] == [
        document.header.metadata for document in judged.documents[: len(found)]
    ]
    rest = stream[position:]
    word = int.from_bytes(rest[:4], "little")
    refusal = word == 0 or bool(word & NOT_COMPLETE) or body_length(word) > LENGTH_MAX
    assert is_refused == (len(rest) >= 4 and refusal)
    if not is_refused:
        assert judged.rest == rest
