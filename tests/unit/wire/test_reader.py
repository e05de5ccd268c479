"""The reader finds what Java wrote, reads values as Java does, and refuses everything else.

This is the reader of the data path. Lists name what it leaves to `wire.objects.conversions` and
`wire.objects.lookup`, or does otherwise on purpose: which values each method takes (`TAKES`), and
ways of finding a field (`OTHERWISE`).
"""

import struct
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.support.vectors.manifest import FILES, Vector, calls_key, load, methods
from tests.support.vectors.reads import bodies, read_calls
from wire import Reader, Variant, WireError, stopbit
from wire.codes import FIXED_WIDTH, LENGTH_PREFIXED, NAME_CODES, STOP_BIT_SCALE, Code
from wire.header import HEADER_BYTES

SKIPPED_VALUES: Final = frozenset(
    {*FIXED_WIDTH, *STOP_BIT_SCALE, *LENGTH_PREFIXED, *range(0x80, 0x83)}
    | {Code.NULL, Code.TRUE, Code.FALSE, Code.UUID, Code.I64_ARRAY}
) - {*NAME_CODES}
# The codes that each method takes. Numbers and truth values are not read as text, texts and nulls
# not as numbers: `wire.objects.conversions` does. Java's answer to a truth value given as text is a
# defect.
TAKES: Final[dict[str, Callable[[int], bool]]] = {
    "int64": lambda code: code < 0x80 or code in FIXED_WIDTH or code in STOP_BIT_SCALE,
    "text": lambda code: code >= Code.STRING0 or code in (Code.STRING_ANY, Code.NULL),
    "bool": lambda code: code in (Code.TRUE, Code.FALSE),
    "skip": lambda code: code < 0x80 or code >= Code.STRING0 or code in SKIPPED_VALUES,
}
# a padded null is the text "null" to Java, and it does not step over the end of a null's length
JAVA_DEFECT: Final = {("8fbb", "text"), ("b88000", "skip"), ("bc8000", "skip")}
# Ways to find a field that `wire.objects.lookup` has, or that differ on purpose.
OTHERWISE: Final = {
    "duplicate": "the first of two alike counts",
    "no field name value": "a value without a name is not found by position",
    "no field name two values": "a value without a name is not found by position",
    "empty field name": "the empty name matches no other",
    "field number 97 read a": "numbers are not compared with hash codes",
    "field number as event": "-1 is not known as `history`",
    "cid as text": "a text is no number",
    "unknown of each kind": "a UUID is stepped over, which Java cannot",
    "skip i64 array": "an array is stepped over, which Java cannot",
    "bytesLiteral null": "a null is no block; Java gives the null's own byte",
}
ABSENT: Final = {"int64": 0, "int32": 0, "bool": False, "float64": 0.0}


# bytes that no call of the manifest describes: RAW has no codes, these were put there as they are
UNREAD: Final = {
    "RAW": "no codes: `wire.objects.raw` reads it",
    "TEXT": "text",
    "do_not_emit": "a defect of Java's writer",
    "rawWireBytes": "bytes that were put there as they are",
    "nothing": "a name without a value",
}


def unread(vector: Vector) -> str | None:
    if vector.get("do_not_emit"):
        return UNREAD["do_not_emit"]
    found = methods(vector) | {vector["wire"]}
    return next((reason for kind, reason in UNREAD.items() if kind in found), None)


@pytest.mark.parametrize("file", FILES)
def test_finds_what_java_wrote(file: str) -> None:
    counts = Counter[str]()
    for vector in load(file):
        if calls_key(vector) is None:
            counts["without calls"] += 1
        elif reason := unread(vector):
            counts[reason] += 1
        else:
            for reader, document in bodies(vector):
                read_calls(reader, document["calls"], Variant.named(vector["wire"]))
            counts["passed"] += 1
    print(f"{file}: {dict(counts)}")
    assert counts["passed"] or set(counts) == {"without calls"}


def result(method: str, data: bytes) -> object:
    """The result as the manifest has it: value and bytes left behind it, or WireError."""
    reader = Reader(data)
    try:
        value = _METHODS[method](reader)
    except WireError:
        return WireError
    return {"i64": value} if method == "int64" else value, reader.end - reader.position


_METHODS: Final[dict[str, Callable[[Reader], object]]] = {
    "int64": Reader.read_int,
    "text": Reader.read_text,
    "bool": Reader.read_bool,
    "skip": Reader.skip_value,
}


def takes(method: str, data: bytes) -> bool:
    try:
        code = Reader(data).peek_code()
    except WireError:
        return False
    return code is not None and TAKES[method](code)


@pytest.mark.parametrize("method", _METHODS)
def test_reads_values_as_java(method: str) -> None:
    read = 0
    for vector in load("decode_values"):
        data = bytes.fromhex(vector["value_hex"])
        java = vector["read"][method]
        if (vector["value_hex"], method) in JAVA_DEFECT:
            continue
        if "value" in java and takes(method, data):
            assert result(method, data) == (java["value"], java.get("left", 0)), vector["name"]
            read += 1
        else:
            assert result(method, data) is WireError, vector["name"]
    assert read == {"int64": 45, "text": 22, "bool": 3, "skip": 120}[method]


@pytest.mark.parametrize("method", _METHODS)
def test_malformed_values_are_wire_errors(method: str) -> None:
    """Some are values to Java all the same; then ours may be Java's, and no other."""
    for vector in load("malformed"):
        if "read" in vector:
            data = bytes.fromhex(vector["value_hex"])
            java = vector["read"][method]
            ours = result(method, data)
            if ours is not WireError:
                assert takes(method, data)
                assert ours == (java["value"], java.get("left", 0)), vector["name"]


def test_malformed_bodies_are_fields_or_wire_errors() -> None:
    refused = set()
    for vector in load("malformed"):
        data = bytes.fromhex(vector["hex"])
        if any(document["present"] for document in vector["documents"]):
            try:
                Reader(data, HEADER_BYTES).read_fields()
            except WireError:
                refused.add(vector["name"])
    assert {"body c1", "body b7056162", "body ba80", "body 8e01", "body 05", "body ff"} <= refused


def read_field(reader: Reader | None, method: str) -> object:
    if reader is None:
        return ABSENT.get(method)
    if method == "bytesLiteral":
        inner = reader.read_block()
        return bytes(inner.data[inner.position : inner.end]).hex()
    return _METHODS[{"int32": "int64", "object": "text"}.get(method, method)](reader)


def expected_value(method: str, value: Any) -> object:
    if method == "float64":
        return struct.unpack(">d", bytes.fromhex(value["f64"]))[0]
    return next(iter(value.values())) if isinstance(value, dict) else value


@pytest.mark.parametrize(
    "vector",
    [vector for vector in load("decode_fields") if vector["name"] not in OTHERWISE],
    ids=lambda vector: vector["name"],
)
def test_finds_fields_as_java(vector: Vector) -> None:
    body = bytes.fromhex(vector["hex"])[HEADER_BYTES:]
    fields = Reader(body).read_fields()
    in_turn = Reader(body)
    for name, method, java in vector["reads"]:
        value = expected_value(method, java["value"])
        if name == "*":
            assert in_turn.read_name() == (java["event"] or None)
            assert (read_field(in_turn, method) if java["event"] else None) == value
        else:
            assert read_field(fields.get(name), method) == value


def test_what_is_done_otherwise_occurs() -> None:
    assert {vector["name"] for vector in load("decode_fields")} >= OTHERWISE.keys()


def test_of_two_fields_alike_the_first_is_kept() -> None:
    assert Reader(bytes.fromhex("c161a101c161a102")).read_fields()["a"].read_int() == 1


def test_values_that_java_cannot_step_over_are_stepped_over() -> None:
    by_name = {vector["name"]: vector for vector in load("decode_fields")}
    for name in ("unknown of each kind", "skip i64 array"):
        body = bytes.fromhex(by_name[name]["hex"])[HEADER_BYTES:]
        assert Reader(body).read_fields()["a"].read_int() == 1


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (Reader.read_int, "e135"),
        (Reader.read_text, "a105"),
        (Reader.read_bool, "bb"),
        (Reader.read_block, "a105"),
        (Reader.read_bound_int64, "a105"),
        (Reader.read_bound_int64, "af0000000000000000"),
        (Reader.read_bound_int64, "a700000000000000"),
        (Reader.read_bound_array, "a105"),
        (Reader.read_bound_array, "8d" + "00" * 16),
        (Reader.read_bound_array, "8d" + "ff" * 8 + "00" * 8),
        (Reader.read_bound_array, "8d" + "02" + "00" * 15 + "00" * 15),
        (Reader.read_bound_array, "8d" + "ff" * 7 + "7f" + "00" * 24),
    ],
)
def test_other_values_are_refused(read: Callable[[Reader], object], value: str) -> None:
    with pytest.raises(WireError):
        read(Reader(bytes.fromhex(value)))


@pytest.mark.parametrize("read", [*_METHODS.values(), Reader.read_block, Reader.read_bound_array])
def test_error_tells_where(read: Callable[[Reader], object]) -> None:
    with pytest.raises(WireError) as caught:
        read(Reader(bytes.fromhex("a1058f83"), 2))
    assert caught.value.position == 3
    assert "code 0x83 came at position 3" in str(caught.value)


@pytest.mark.parametrize("read", [*_METHODS.values(), Reader.read_block])
def test_end_of_the_block_is_an_error_for_a_value(read: Callable[[Reader], object]) -> None:
    with pytest.raises(WireError, match="the block ends at position 1"):
        read(Reader(b"\x8f"))


def test_end_of_the_body_is_no_name_and_no_type() -> None:
    reader = Reader(b"\x8f\x8f")
    assert reader.read_name() is None
    assert reader.read_type() is None
    assert Reader(b"\xa1\x05").read_name() is None


@pytest.mark.parametrize(
    ("code", "scale", "number"),
    [
        (0x92, 100, 1723601433279533300),
        (0x94, 10_000, 309411094404340000),
        (0x96, 1_000_000, 1438435851098000000),
    ],
)
def test_scaled_number_is_a_double_before_it_is_divided(code: int, scale: int, number: int) -> None:
    read = Reader(bytes([code]) + stopbit.encode(number)).read_int()
    assert read == int(float(number) / scale) != int(number / scale)


def test_float_beyond_the_range_is_cut_to_it() -> None:
    values = [float("inf"), 1e300, float("-inf"), -1e300, float("nan"), -2.9]
    read = [Reader(b"\x91" + struct.pack("<d", value)).read_int() for value in values]
    assert read == [2**63 - 1, 2**63 - 1, -(2**63), -(2**63), 0, -2]


def test_block_of_a_memoryview_needs_no_copy() -> None:
    data = memoryview(bytes.fromhex("8004c161a105"))
    inner = Reader(data).read_block()
    assert inner.data is data
    assert inner.read_fields()["a"].read_int() == 5


@pytest.mark.parametrize("value", ["b88000", "bc8000", "bb", "8fbb"])
def test_null_is_stepped_over_whole(value: str) -> None:
    assert result("skip", bytes.fromhex(value)) == (None, 0)


def test_text_that_is_stepped_over_need_not_be_valid() -> None:
    fields = Reader(bytes.fromhex("be01ffc161b801ffc162e1ffc163a105")).read_fields()
    assert fields["c"].read_int() == 5
    with pytest.raises(WireError):
        fields["a"].read_text()
