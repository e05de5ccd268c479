"""Every golden vector of the wire: what is written, what is read, what is refused.

Where Java's answer is not wanted, a rule below says for which bytes and why; a vector that differs
and falls under no rule fails. Rules go by the bytes, so that vectors made later fall under them as
these do.
"""

import datetime
import struct
import time
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from tests.support.vectors.calls import build
from tests.support.vectors.manifest import CLASS_ALIASES, FILES, Vector, calls_key, load
from wire import (
    DocumentReader,
    Fields,
    Int8,
    Int16,
    Int32,
    Int64,
    Reader,
    Typed,
    TypeLiteral,
    WireError,
    decode,
    dump_text,
    loads,
)
from wire.codes import BLOCK_LENGTH, NAME_CODES, SKIPPED, Code
from wire.objects import conversions
from wire.objects.lookup import step_over
from wire.objects.object_reader import read_object
from wire.objects.times import wire_time
from wire.objects.values import Float32, TimeText

INT64_MIN: Final = -(1 << 63)
MEMORY_MAX: Final = 1 << 20
SECONDS_MAX: Final = 5.0
REFUSED: Final = "refused"  # in the place of a value


# --- writing --------------------------------------------------------------------------------------


def not_written(vector: Vector) -> bool:
    """True for a defect of Java's writer, and for a wire that is no binary one."""
    return bool(vector.get("do_not_emit")) or vector["wire"] == "TEXT"


@pytest.mark.parametrize("file", FILES)
def test_calls_give_the_bytes(file: str) -> None:
    counts = Counter[str]()
    for vector in load(file):
        key = calls_key(vector)
        if key is None:
            counts["without calls"] += 1
        elif not_written(vector):
            counts["excepted"] += 1
        else:
            assert build(vector, key).hex() == vector["hex"], vector["name"]
            counts["passed"] += 1
    print(f"{file}: {dict(counts)}")
    assert counts["excepted"] * 10 <= counts["passed"]


# --- reading --------------------------------------------------------------------------------------


class Question(NamedTuple):
    """The bytes that Java was asked about, the method that was called, and Java's answer."""

    data: bytes
    method: str
    java: dict[str, Any]

    @property
    def is_padded(self) -> bool:
        return any(item in SKIPPED for item in self.data[:1] + self.content[:1])

    @property
    def code(self) -> int:
        """The code of the value, behind padding and comments; 0 where there is none."""
        return Reader(self.data).peek_code() or 0

    @property
    def content(self) -> bytes:
        """The content of the block that stands first; nothing where none does."""
        if not self.data or self.data[0] not in BLOCK_LENGTH:
            return b""
        return self.data[1 + struct.calcsize(BLOCK_LENGTH[self.data[0]]) :]

    @property
    def is_text(self) -> bool:
        return self.code >= Code.STRING0 or self.code == Code.STRING_ANY

    @property
    def is_name(self) -> bool:
        short = Code.FIELD_NAME0 <= self.code < Code.STRING0
        return short or self.code in NAME_CODES or self.code == Code.EVENT_OBJECT


class Rule(NamedTuple):
    """A kind of question that we answer otherwise than Java, and the reason."""

    reason: str
    applies: Callable[[Question], bool]


_KEPT_BLOCKS: Final = (Code.FIELD_NUMBER, Code.FIELD_NAME_ANY, Code.I64_ARRAY, Code.HISTORY_MESSAGE)
RULES: Final = (
    Rule(
        "Java gives -2^63 for what is no number; the format's table of conversions has no such row",
        lambda q: (
            q.method == "int64"
            and q.java.get("value") == {"i64": INT64_MIN}
            and not q.is_text
            and q.code != Code.NULL
        ),
    ),
    Rule("a name is no value", lambda q: q.is_name),
    Rule("Java's bool of a text is broken", lambda q: q.method == "bool" and q.is_text),
    Rule(
        "padding and comments are skipped before every value; Java's exceptions are not copied",
        lambda q: q.is_padded,
    ),
    Rule(
        "Java shows a block that holds no bytes as a dump of other bytes",
        lambda q: q.method == "text" and q.code in BLOCK_LENGTH and q.content[:1] != b"\x8a",
    ),
    Rule(
        "an unknown type name is kept with the value",
        lambda q: q.method == "object" and q.code == Code.TYPE_PREFIX and "throws" in q.java,
    ),
    Rule(
        "arrays, histories and maps with these names are values too",
        lambda q: (
            q.method == "object"
            and "throws" in q.java
            and (q.code == Code.I64_ARRAY or (q.content[:1] or b"\0")[0] in _KEPT_BLOCKS)
        ),
    ),
    Rule(
        "a block that starts with an event object is a map",
        lambda q: q.method == "object" and q.content[:1] == bytes([Code.EVENT_OBJECT]),
    ),
    Rule(
        "a type literal of length -1 is null",
        lambda q: q.method == "object" and q.data == bytes.fromhex("bc8000"),
    ),
    Rule(
        "a code without a meaning is refused, not stepped over as if it were no byte",
        lambda q: q.method == "skip" and q.java.get("left") == len(q.data) - 1,
    ),
)


def _skip(reader: Reader) -> None:
    step_over(reader)


READ: Final[dict[str, Callable[[Reader], Any]]] = {
    "object": lambda reader: as_json(read_object(reader, keep_widths=True)),
    "int64": lambda reader: {"i64": conversions.read_int64(reader)},
    "int32": lambda reader: {"i32": conversions.read_int32(reader)},
    "float64": lambda reader: as_json(conversions.read_float64(reader)),
    "text": conversions.read_text,
    "bool": conversions.read_boolean,
    "bytesLiteral": lambda reader: as_json(conversions.read_literal(reader)),
    "skip": _skip,
}
_WIDTHS: Final = {Int8: "i8", Int16: "i16", Int32: "i32", Int64: "i64"}
_TIMES: Final = {Code.TIME: "time", Code.DATE: "date", Code.DATE_TIME: "datetime"}


def as_json(value: Any) -> Any:
    """A value of ours in the form of the manifest."""
    if type(value) in _WIDTHS:
        return {_WIDTHS[type(value)]: int(value)}
    if isinstance(value, Float32):
        return {"f32": struct.pack(">f", value).hex()}
    if isinstance(value, float):
        return {"f64": struct.pack(">d", value).hex()}
    if isinstance(value, bytes):
        return {"bytestore": value.hex()}
    if isinstance(value, list):
        return {"list": [as_json(item) for item in value]}
    if isinstance(value, dict):
        return {"map": [[as_json(name), as_json(item)] for name, item in value.items()]}
    if isinstance(value, set):
        return {"set": sorted(map(as_json, value))}
    return _other_as_json(value)


def _other_as_json(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return {"uuid": str(value)}
    if isinstance(value, datetime.date | datetime.time):
        value = wire_time(value)
    if isinstance(value, TimeText):
        return {_TIMES.get(value.code, "zdt"): str(value)}
    if isinstance(value, Typed):
        return {"enum": ["", value.value]}
    if isinstance(value, TypeLiteral):
        full = {alias: name for name, alias in CLASS_ALIASES.items()}
        return {"class": full.get(value.name, value.name)}
    return value


def _wanted(java: dict[str, Any]) -> Any:
    if "value" not in java:
        return REFUSED
    value = java["value"]
    if isinstance(value, dict) and "bytearray" in value:
        return {"bytestore": value["bytearray"]}
    return value


def _found(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except WireError:
        return REFUSED


def check(question: Question, counts: Counter[str]) -> None:
    """Asserts that we answer as Java does, or that a rule says why not."""
    reader = Reader(question.data)
    found = _found(lambda: READ[question.method](reader))
    if found == _wanted(question.java):
        if found != REFUSED and "left" not in question.java:
            assert reader.position == reader.end
        counts["passed"] += 1
        return
    rule = next((rule for rule in RULES if rule.applies(question)), None)
    assert rule is not None, (question, found)
    counts[rule.reason] += 1


def test_values_are_read_as_java_reads_them() -> None:
    counts = Counter[str]()
    for vector in load("decode_values"):
        for method, java in vector["read"].items():
            check(Question(bytes.fromhex(vector["value_hex"]), method, java), counts)
    _print(counts)
    assert counts["passed"] * 0.2 > counts.total() - counts["passed"]
    assert all(rule.reason in counts for rule in RULES), "a rule that nothing needs"


def _print(counts: Counter[str]) -> None:
    excepted = counts.total() - counts["passed"]
    print(f"passed {counts['passed']}, excepted {excepted}:")
    for reason, count in counts.most_common():
        print(f"  {count:4} {reason}")


def _ask(fields: Fields, name: str, method: str) -> Any:
    if name == "*":
        event = fields.next_event()
        if event is None:
            return {"event": "", "value": None}
        return {"event": event[0], "value": READ[method](event[1])}
    absent = {"int64": {"i64": 0}, "int32": {"i32": 0}, "bool": False}
    absent["float64"] = {"f64": "0000000000000000"}
    value = fields.find(name)
    return {"value": absent.get(method) if value is None else READ[method](value)}


def test_fields_are_read_as_java_reads_them() -> None:
    counts = Counter[str]()
    for vector in load("decode_fields"):
        (document,) = DocumentReader(bytes.fromhex(vector["hex"]))
        fields = document.fields()
        for name, method, java in vector["reads"]:
            found = _found(partial(_ask, fields, name, method))
            if found == java:
                counts["passed"] += 1
            elif "throws" in java:
                # Java cannot step over a UUID or an array of longs in place
                assert found["value"] == {"i64": 1}, vector["name"]
                assert {0xA0, 0x8D} & set(bytes(document.body)), vector["name"]
                counts["stepped over"] += 1
            else:
                # Java takes the code of null for a byte
                assert java == {"value": {"bytestore": "bb"}}, vector["name"]
                assert found == {"value": None}
                counts["null is no byte"] += 1
    _print(counts)
    assert counts.total() - counts["passed"] <= 3


# --- documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["decode_documents", "malformed"])
def test_documents_are_found_where_java_finds_them(file: str) -> None:
    for vector in load(file):
        data = bytes.fromhex(vector["hex"])
        reader = DocumentReader(data, padding=vector.get("padding", False))
        found: list[dict[str, Any]] = [
            {
                "present": True,
                "meta": document.is_metadata,
                "data": not document.is_metadata,
                "notComplete": not document.is_complete,
                "at": document.position + 4,
                "length": len(document.body),
            }
            for document in reader
        ]
        found.append({"present": False, "at": min(reader.position, len(data))})
        assert found == vector["documents"], vector["name"]


# --- malformed ------------------------------------------------------------------------------------


def test_malformed_values_are_refused_or_read_as_java_reads_them() -> None:
    counts = Counter[str]()
    for vector in load("malformed"):
        for method, java in vector.get("read", {}).items():
            found = _found(partial(READ[method], Reader(bytes.fromhex(vector["value_hex"]))))
            assert found in (REFUSED, _wanted(java)), (vector["name"], method, found)
            counts["refused" if found == REFUSED else "read as Java does"] += 1
    print(dict(counts))
    assert set(counts) == {"refused", "read as Java does"}


def everything(data: bytes) -> None:
    """Every way of reading a run of documents."""
    dump_text(data)
    _found(lambda: loads(data))
    for document in DocumentReader(data):
        body = bytes(document.body)
        for read in (
            lambda b=body: decode(b),
            lambda b=body: decode(b, keep_widths=True),
            lambda b=body: Reader(b).read_fields(),
            lambda b=body: Fields(Reader(b)).find("v"),
            lambda b=body: [READ[m](v) for m in READ for _, v in Fields(Reader(b)).events()],
        ):
            _found(read)


@pytest.mark.parametrize("file", ["malformed", "decode_values", "decode_fields"])
def test_no_bytes_cause_another_error_or_take_much_memory(file: str) -> None:
    everything(bytes.fromhex("04000000c161a101"))  # the modules are loaded, the caches are filled
    for vector in load(file):
        data = bytes.fromhex(vector["hex"])
        tracemalloc.start()
        started = time.process_time()
        everything(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < MEMORY_MAX, vector["name"]
        assert time.process_time() - started < SECONDS_MAX, vector["name"]


# --- and back -------------------------------------------------------------------------------------
