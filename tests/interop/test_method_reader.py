"""The calls of a Java method reader for what Python wrote: Java is the judge (`Calls.java`)."""

import array
import datetime
import math
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import wire
from cqrepl.queue import Queue
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.samples import NOON_MS

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 300)]


class Side(Enum):
    BUY = 1
    SELL = 2


@dataclass
class Leg:
    sym: str
    ratio: int


@dataclass
class Order:
    """As that of `Calls.java`."""

    sym: str | None = None
    px: float = math.nan
    qty: int = 0
    live: bool = False
    side: Side | None = None
    exact: Decimal | None = None
    big: int | None = None
    day: datetime.date | None = None
    id: uuid.UUID | None = None
    leg: Leg | None = None
    legs: list[Leg] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    data: bytes | None = None


NOON = datetime.datetime(2024, 3, 5, 12, 0, 1)
ID = uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
LEG = "Leg: !cqrepl.interop.Calls$Leg {\n  sym: a,\n  ratio: 2\n}\n"
FULL = Order("grün€", 101.5, 1 << 40, True, Side.SELL, Decimal("1.10"), -(1 << 70), NOON.date(), ID,
             Leg("b", 3), [Leg("c", 4), Leg("d", 5)], ["x", "y"], {"k": 1}, b"ab")  # fmt: skip
FULL_SHOWN = f"""Order: !cqrepl.interop.Calls$Order {{
  sym: "gr\\xFCn\\u20AC",
  px: 101.5,
  qty: 1099511627776,
  live: true,
  side: SELL,
  exact: "1.10",
  big: "-{1 << 70}",
  day: 2024-03-05,
  id: {ID},
  leg: {{
    sym: b,
    ratio: 3
  }},
  legs: [
    {{ sym: c, ratio: 4 }},
    {{ sym: d, ratio: 5 }}
  ],
  tags: [
    x,
    y
  ],
  counts: {{
    k: 1
  }},
  data: !!binary YWI=
}}
"""

Row = tuple[str, tuple[Any, ...], list[str]]
ROWS: list[Row] = [
    ("none", (), []),
    ("aBoolean", (True,), ["Boolean: true"]),
    ("aByte", (-128,), ["Byte: -128"]),
    ("aShort", (300,), ["Short: 300"]),
    ("aChar", ("x",), ["Character: 120"]),
    *(("anInt", (each,), [f"Integer: {each}"]) for each in (0, 127, -70_000, (1 << 31) - 1)),
    *(("aLong", (each,), [f"Long: {each}"]) for each in (5, 1 << 40, -(1 << 63), (1 << 63) - 1)),
    *(("aLong", (each,), [f"Long: {int(each)}"]) for each in (5.0, wire.Int64(7), wire.Hex64(9))),
    ("aFloat", (1.5,), ["Float: 1.5"]),
    *(("aDouble", (each,), [f"Double: {each}"]) for each in (0.1, 5.0, -0.25, 123456.789)),
    ("aDouble", (5,), ["Double: 5.0"]),
    ("aDouble", (math.nan,), ["Double: NaN"]),
    ("aDouble", (math.inf,), ["Double: Infinity"]),
    ("aDouble", (-math.inf,), ["Double: -Infinity"]),
    ("boxedLong", (7,), ["Long: 7"]),
    ("boxedDouble", (math.nan,), ["Double: NaN"]),
    ("boxedBoolean", (False,), ["Boolean: false"]),
    *((name, (None,), ["null"]) for name in (
        "boxedLong", "boxedDouble", "boxedBoolean", "aString", "text", "bytes", "decimal", "big",
        "uuid", "date", "time", "dateTime", "zoned", "side", "leg", "order", "list", "set", "map",
    )),
    *(("aString", (each,), [f"String: {each}"]) for each in ("", "a b", "grün€😀", "!x: #", "1.5")),
    ("text", ("x" * 300,), ["String: " + "x" * 300]),
    ("bytes", (b"ab",), ["byte[]: YWI="]),
    ("bytes", (b"",), ["byte[]: "]),
    *(("decimal", (Decimal(each),), [f"BigDecimal: {each}"])
      for each in ("1.10", "-0.001", "1E+3", "123456789012345678901234567890.5")),
    ("decimal", (1.5,), ["BigDecimal: 1.5"]),
    *(("big", (each,), [f"BigInteger: {each}"]) for each in (5, 1 << 40, 1 << 63, -(1 << 200))),
    ("uuid", (ID,), [f"UUID: {ID}"]),
    ("date", (NOON.date(),), ["LocalDate: 2024-03-05"]),
    ("time", (NOON.time(),), ["LocalTime: 12:00:01"]),
    ("dateTime", (NOON,), ["LocalDateTime: 2024-03-05T12:00:01"]),
    ("zoned", (NOON.replace(tzinfo=datetime.UTC),), ["ZonedDateTime: 2024-03-05T12:00:01Z"]),
    ("side", (Side.BUY,), ["Side: BUY"]),
    ("side", ("SELL",), ["Side: SELL"]),
    ("leg", (Leg("a", 2),), [LEG]),
    ("leg", ({"sym": "a", "ratio": 2},), [LEG]),
    ("order", (FULL,), [FULL_SHOWN]),
    ("list", (["a", "b"],), ["List: [a, b]"]),
    ("list", (["a"],), ["List: [a]"]),
    ("list", ([],), ["List: []"]),
    ("list", (("a", "b"),), ["List: [a, b]"]),
    ("legs", ([Leg("a", 2)],), ["List: [{sym=a, ratio=2}]"]),
    ("set", ({"a"},), ["Set: [a]"]),
    ("map", ({"a": 1, "b": {"c": [1, 2]}},), ["Map: {a=1, b={c=[1, 2]}}"]),
    ("map", ({},), ["Map: {}"]),
    ("object", (5,), ["Integer: 5"]),
    ("object", ("x",), ["String: x"]),
    ("object", ([1, [2]],), ["List: [1, [2]]"]),
    ("object", ({"a": None},), ["Map: {a=null}"]),
    ("longs", ([1, 1 << 40],), ["long[]: [1, 1099511627776]"]),
    ("longs", (array.array("q", [1, 2]),), ["long[]: [1, 2]"]),
    ("doubles", ([1.5, 2.0],), ["double[]: [1.5, 2.0]"]),
    ("two", ("a", 5), ["String: a", "Long: 5"]),
    ("twoObjects", (Leg("a", 2), Side.BUY), [LEG, "Side: BUY"]),
    ("twoObjects", (None, None), ["null", "null"]),
    ("three", ("a", 1.5, Leg("a", 2)), ["String: a", "Double: 1.5", LEG]),
]  # fmt: skip


def called(java: JavaQueue, path: Path, payloads: list[bytes]) -> list[tuple[Any, Any]]:
    """The calls, and the error, for each excerpt."""
    with Queue.open(path, create="FAST_DAILY") as queue:
        queue.append_many(payloads, now_ms=NOON_MS)
    answer = java.call("calls", path)
    assert answer.exit == 0, answer
    return [(line["calls"], line.get("error")) for line in answer.lines]


def test_a_method_reader_is_called_for_each_call(java: JavaQueue, tmp_path: Path) -> None:
    """Every kind of argument; none, one, two and three of them."""
    found = called(java, tmp_path / "q", [wire.encode_call(name, *args) for name, args, _ in ROWS])
    assert len(found) == len(ROWS)
    for (name, args, shown), each in zip(ROWS, found, strict=True):
        assert each == ([[name, *shown]], None), (name, args)


def test_a_dictionary_of_one_call_is_one(java: JavaQueue, tmp_path: Path) -> None:
    """`wire.encode` of what `wire.decode` gives for a call."""
    rows = [row for row in ROWS if len(row[1]) == 1]
    found = called(java, tmp_path / "q", [wire.encode({name: args[0]}) for name, args, _ in rows])
    assert found == [([[name, *shown]], None) for name, _, shown in rows]


def test_what_java_does_not_take_for_a_call(java: JavaQueue, tmp_path: Path) -> None:
    """A document with its header is no excerpt; a name that Java does not have is no call."""
    order = Order("A", 1.5)
    found = called(
        java, tmp_path / "q", [wire.dumps({"order": order}), wire.encode_call("unheardOf", order)]
    )
    assert [calls for calls, _ in found] == [[], []]


def test_what_python_wrote_comes_back_to_python() -> None:
    for name, args, _ in ROWS:
        # `decode` gives an object: here a dict
        (again,) = wire.decode(wire.encode_call(name, *args)).items()  # type: ignore[attr-defined]
        assert again[0] == name
    assert wire.decode(wire.encode(FULL), Order) == FULL
