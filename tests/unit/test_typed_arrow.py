"""Documents as typed columns of Arrow: the same values as the objects, and what does not fit."""

import datetime
import uuid
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

import wire
from cqrepl.queue import NotAQueue, Queue
from tests.support.requirements import require
from tests.support.samples import NOON_MS, noon_index

try:
    import pyarrow as pa

    import cqrepl.arrow
    from cqrepl.arrow import typedrows
except ImportError:
    require("arrow", "pyarrow is not installed")


class Side(Enum):
    BUY = 1
    SELL = 2


@dataclass
class Leg:
    sym: str
    ratio: wire.Int32 | None = None


@dataclass
class Order:
    sym: str
    px: float = 0.0
    qty: int = 0
    live: bool = True
    side: Side = Side.BUY
    note: str | None = None
    data: bytes | None = None
    narrow: wire.Int16 = field(default_factory=wire.Int16)
    single: wire.Float32 = field(default_factory=wire.Float32)
    exact: Decimal | None = None
    day: datetime.date | None = None
    at: datetime.datetime | None = None
    leg: Leg | None = None
    legs: list[Leg] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)


@dataclass
class Odd:
    """Kinds that only the plain codec makes columns of."""

    id: uuid.UUID
    time: datetime.time | None = None
    counts: dict[str, int] = field(default_factory=dict)
    any: Any = None
    open: Side | str = Side.BUY


@dataclass
class Placed:
    wire_event: ClassVar[str] = "order"
    sym: str
    px: float = 0.0


AT = datetime.datetime(2024, 3, 5, 12, 0, 1, 250_000, tzinfo=datetime.UTC)
FULL = Order("grün€😀", 1.5, 1 << 62, False, Side.SELL, "n" * 40, b"\x00\xff", wire.Int16(-300),
             wire.Float32(0.1), Decimal("-1.10"), AT.date(), AT, Leg("x", wire.Int32(1 << 30)),
             [Leg("y"), Leg("z", wire.Int32(-1))], [1, 2, 300])  # fmt: skip
ORDERS = [Order("A"), FULL, Order("B", float("nan"), -1, note=""), Order("C", legs=[Leg("q")])]
FIRST = noon_index()


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue.open(tmp_path / "q", create="FAST_DAILY")


def row_of(message: Any) -> dict[str, Any]:
    """A message as a row of Arrow shows it."""
    found: dict[str, Any] = {}
    for each in fields(message):
        name, value = each.name, getattr(message, each.name)
        if isinstance(value, Enum):
            value = value.name
        elif is_dataclass(value):
            value = row_of(value)
        elif isinstance(value, list):
            value = [row_of(one) if is_dataclass(one) else one
                     for one in value]  # fmt: skip
        found[name] = value
    return found


def rows(table: "pa.Table") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    for each in found:
        if each.get("px") != each.get("px"):
            each["px"] = "nan"
    return found


def expected(messages: list[Any], first: int = FIRST) -> list[dict[str, Any]]:
    made = [{"index": first + at} | row_of(each) for at, each in enumerate(messages)]
    for each in made:
        if each["px"] != each["px"]:
            each["px"] = "nan"
    return made


def test_columns_have_the_values_of_the_objects(queue: Queue) -> None:
    queue.append_documents(ORDERS * 50, now_ms=NOON_MS)
    stream = cqrepl.arrow.to_arrow(queue, Order)
    table = stream.read_all()
    table.validate(full=True)
    assert rows(table) == expected(ORDERS * 50)
    assert (stream.rows, stream.misfits, stream.passed) == (200, 0, 0)
    types = {each.name: str(each.type) for each in table.schema}
    assert types["index"] == types["qty"] == "int64"
    assert (types["narrow"], types["exact"]) == ("int16", "decimal128(38, 18)")
    assert types["leg"] == "struct<sym: large_string, ratio: int32>"
    assert types["at"] == "timestamp[us, tz=UTC]"


def test_kinds_beyond_the_usual(queue: Queue) -> None:
    number = uuid.UUID(int=5)
    odd = Odd(number, datetime.time(1, 2, 3), {"a": 1}, {"x": [1, None]}, "NEW")
    queue.append_documents([odd, Odd(number)], now_ms=NOON_MS)
    first, second = cqrepl.arrow.to_arrow(queue, Odd).read_all().to_pylist()
    assert first == {
        "index": FIRST, "id": str(number), "time": datetime.time(1, 2, 3), "counts": [("a", 1)],
        "any": '{"x": [1, null]}', "open": "NEW",
    }  # fmt: skip
    assert (second["counts"], second["any"], second["open"]) == ([], None, "BUY")


def test_rows_and_columns_are_chosen(queue: Queue) -> None:
    queue.append_documents(
        [Order(f"S{at}", at / 4, at, exact=Decimal(at) / 10) for at in range(40)], now_ms=NOON_MS
    )
    chosen = cqrepl.arrow.to_arrow(
        queue, Order, columns=["qty", "sym"], index_first=FIRST + 5, index_last=FIRST + 8,
        batch_rows=3,
    )  # fmt: skip
    batches = list(chosen)
    assert [batch.num_rows for batch in batches] == [3, 1]
    assert [batch.schema.names for batch in batches] == [["qty", "sym"]] * 2
    assert pa.Table.from_batches(batches)["qty"].to_pylist() == [5, 6, 7, 8]
    where = cqrepl.arrow.to_arrow(queue, Order, where="px >= 9 and exact == 3.6", columns=["index"])
    assert where.read_all().to_pylist() == [{"index": FIRST + 36}]
    with pytest.raises(ValueError, match=r"columns of index, sym, .* expected, nothing came"):
        cqrepl.arrow.to_arrow(queue, Order, columns=["nothing"])
    with pytest.raises(ValueError, match="expected at character 5"):
        cqrepl.arrow.to_arrow(queue, Order, where="px >")


MISFITS: list[object] = [
    {"px": 1.5}, {"sym": 5}, {"sym": "A", "px": "x"}, {"sym": "A", "narrow": 70_000},
    {"sym": "A", "qty": 1 << 70}, {"sym": "A", "exact": "1e30"}, {"sym": "A", "side": "SHORT"},
    {"sym": "A", "legs": [{"sym": 5}]}, {"sym": "\ud800"}, {"other": 1}, "text",
    {"sym": "A", "at": wire.LocalDateTime("2024-03-05T12:00:00.000000001")},
]  # fmt: skip


def test_excerpts_that_do_not_fit_are_counted_and_kept(queue: Queue) -> None:
    messages: list[object] = [Order("A")]
    for each in MISFITS:
        messages += [each, Order("B")]
    queue.append_documents(messages, now_ms=NOON_MS)
    stream = cqrepl.arrow.to_arrow(queue, Order)
    table = stream.read_all()
    assert table["sym"].to_pylist() == ["A"] + ["B"] * len(MISFITS)
    assert table["index"].to_pylist() == [FIRST + 2 * at for at in range(len(MISFITS) + 1)]
    assert stream.misfits == len(MISFITS)
    assert [each.index for each in stream.kept_misfits] == [
        FIRST + 1 + 2 * at for at in range(len(MISFITS))
    ]
    assert [each.payload for each in stream.kept_misfits] == [wire.encode(each) for each in MISFITS]
    assert stream.kept_misfits[7].error.path == "legs[0].sym"
    kept = cqrepl.arrow.to_arrow(queue, Order, keep_misfits=True).read_all()
    assert kept["index"].to_pylist() == [FIRST + at for at in range(len(messages))]
    assert kept["_misfit"][2].as_py() is None
    assert kept["_misfit"][1].as_py() == wire.encode(MISFITS[0])
    assert "field sym: expected str, got no field" in kept["_error"][1].as_py()
    assert kept["sym"][1].as_py() is None


def test_misfits_are_kept_up_to_a_number_of_bytes(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.append_documents(MISFITS, now_ms=NOON_MS)
    sizes = [len(wire.encode(each)) for each in MISFITS]
    for limit, kept in ((0, 1), (sum(sizes[:3]), 3)):
        monkeypatch.setattr(typedrows, "MISFIT_BYTES_KEPT", limit)
        stream = cqrepl.arrow.to_arrow(queue, Order)
        stream.read_all()
        assert (stream.misfits, len(stream.kept_misfits)) == (len(MISFITS), kept)


def test_calls_of_other_methods_are_passed_by(queue: Queue) -> None:
    queue.append_documents([Placed("A", 1.5), Placed("B")], now_ms=NOON_MS)
    queue.append(wire.encode_call("cancel", {"sym": "A"}), now_ms=NOON_MS)
    stream = cqrepl.arrow.to_arrow(queue, Placed)
    assert rows(stream.read_all()) == expected([Placed("A", 1.5), Placed("B")])
    assert (stream.passed, stream.misfits) == (1, 0)


def test_it_begins_at_a_time(queue: Queue) -> None:
    moments = [AT + datetime.timedelta(seconds=at) for at in range(20)]
    queue.append_documents([Order("A", at=each) for each in moments], now_ms=NOON_MS)
    stream = cqrepl.arrow.to_arrow(
        queue, Order, time_from=moments[15], time_field="at", columns=["at"]
    )
    assert stream.read_all()["at"].to_pylist() == moments[15:]
    with pytest.raises(ValueError, match="time_field expected"):
        cqrepl.arrow.to_arrow(queue, Order, time_from=AT)


def test_a_directory_is_opened_and_closed(queue: Queue, tmp_path: Path) -> None:
    queue.append_documents(ORDERS, now_ms=NOON_MS)
    with cqrepl.arrow.to_arrow(tmp_path / "q", Order) as stream:
        assert stream.read_all().num_rows == len(ORDERS)
    with pytest.raises(NotAQueue):
        cqrepl.arrow.to_arrow(tmp_path / "none", Order)
    with pytest.raises(TypeError, match="a dataclass was expected"):
        cqrepl.arrow.to_arrow(tmp_path / "q", cast("Any", int))
