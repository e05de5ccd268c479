"""Excerpts as objects of dataclasses: what fits, what is passed by, and what an error says."""

import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest

import wire
from cqrepl.queue import Queue
from tests.support.samples import NOON_MS, noon_index


class Side(Enum):
    BUY = 1
    SELL = 2


@dataclass
class Leg:
    sym: str
    ratio: int = 1


@dataclass
class Order:
    sym: str
    px: float = 0.0
    qty: int = 0
    side: Side | str = Side.BUY
    exact: Decimal | None = None
    day: datetime.date | None = None
    legs: list[Leg] = field(default_factory=list)
    counts: dict[str, wire.Int16] = field(default_factory=dict)


@dataclass
class Placed:
    wire_event: ClassVar[str] = "order"
    sym: str
    px: float = 0.0


@dataclass
class Cancel:
    wire_event: ClassVar[str] = "cancel"
    sym: str


FULL = Order("A", 1.5, 7, Side.SELL, Decimal("1.10"), datetime.date(2024, 3, 5), [Leg("x", 2)],
             {"k": wire.Int16(3)})  # fmt: skip


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue.open(tmp_path / "q", create="FAST_DAILY")


def test_what_was_appended_as_objects_is_read_as_objects(queue: Queue) -> None:
    first = noon_index()
    assert queue.append_document(Order("B"), now_ms=NOON_MS) == first
    assert queue.append_documents([FULL, Order("C")], now_ms=NOON_MS) == first + 2
    documents = queue.documents(Order)
    assert list(documents) == [Order("B"), FULL, Order("C")]
    assert (documents.index, documents.passed, documents.misfits) == (first + 2, 0, 0)
    named = queue.named_tailer("reader")
    assert next(named.documents(Order)) == Order("B")


def test_calls_are_told_apart_by_their_methods(queue: Queue) -> None:
    messages = [Placed("A", 1.5), Cancel("A"), Placed("B")]
    queue.append_documents(messages, now_ms=NOON_MS)
    queue.append(wire.encode_call("end"), now_ms=NOON_MS)
    assert bytes(next(iter(queue.tailer())).data) == wire.encode_call("order", Placed("A", 1.5))
    both = queue.documents(Placed, Cancel)
    assert list(both) == messages
    assert both.passed == 1
    only = queue.documents(Cancel)
    assert list(only) == [Cancel("A")]
    assert only.passed == 3


@pytest.mark.parametrize(
    ("value", "path", "expected", "found"),
    [
        ({"sym": 20}, "sym", "str", "20"),
        ({"px": 1.5}, "sym", "str", "no field"),
        ({"sym": "A", "px": "x"}, "px", "float", "'x'"),
        ({"sym": "A", "qty": 0.5}, "qty", "int", "0.5"),
        ({"sym": "A", "exact": "x"}, "exact", "Decimal | None", "'x'"),
        ({"sym": "A", "day": "soon"}, "day", "date | None", "'soon'"),
        ({"sym": "A", "legs": [{"sym": "x"}, {"sym": "y", "ratio": []}]}, "legs[1].ratio", "int",
         "[]"),
        ({"sym": "A", "legs": [{"ratio": 5}]}, "legs[0].sym", "str", "no field"),
        ({"sym": "A", "counts": {"k": 40_000}}, "counts['k']", "Int16", "40000"),
        ({"nothing": 1}, "", "Order", "{'nothing': 1}"),
    ],
)  # fmt: skip
def test_an_error_says_where_what_was_expected_and_what_came(
    queue: Queue, value: object, path: str, expected: str, found: str
) -> None:
    queue.append_documents([Order("B"), value, Order("C")], now_ms=NOON_MS)
    documents = queue.documents(Order)
    assert next(documents) == Order("B")
    with pytest.raises(wire.FieldError) as raised:
        next(documents)
    error = raised.value
    assert (error.path, error.expected, error.found) == (path, expected, found)
    assert error.index == noon_index() + 1
    assert f"excerpt {noon_index() + 1:#x}: " in str(error)
    assert next(documents) == Order("C")


def test_what_does_not_fit_is_told_and_passed_by(queue: Queue) -> None:
    queue.append_documents([{"sym": 5}, Order("C"), {"x": 1}], now_ms=NOON_MS)
    queue.append(b"\xff", now_ms=NOON_MS)
    told: list[wire.FieldError] = []
    documents = queue.documents(Order, on_misfit=told.append)
    assert list(documents) == [Order("C")]
    assert documents.misfits == 3
    assert [error.index for error in told] == [noon_index() + at for at in (0, 2, 3)]


def test_classes_and_writers_change_at_different_times() -> None:
    """The table of `wire.objects.annotated`."""
    assert wire.decode(wire.encode({"sym": "A", "later": {"x": [1]}}), Order) == Order("A")
    assert wire.decode(wire.encode({"sym": "A", "qty": 1 << 70}), Order).qty == 1 << 70
    assert wire.decode(wire.encode({"sym": "A", "px": 5}), Order).px == 5.0
    assert wire.decode(wire.encode({"sym": "A", "side": "SELL"}), Order).side is Side.SELL
    new = wire.decode(wire.encode({"sym": "A", "side": "SHORT"}), Order)
    assert new.side == "SHORT"
    assert wire.decode(wire.encode(new), Order) == new


def test_classes_that_cannot_be_told_apart_are_refused(queue: Queue) -> None:
    for kinds in ((), (Order, Leg), (Placed, Order), (Placed, Placed), (int,)):
        with pytest.raises(TypeError, match="dataclass"):
            queue.documents(*kinds)


def test_nothing_is_appended_where_one_message_has_no_form(queue: Queue) -> None:
    with pytest.raises(TypeError, match="with a form on the wire"):
        queue.append_documents([Order("A"), object()])
    assert queue.last_index() is None
