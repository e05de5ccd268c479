"""Calls in a queue as calls of Python, and the way back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

import wire
from cqrepl.queue import Queue
from tests.support.samples import NOON_MS, noon_index


@dataclass
class Order:
    sym: str
    px: float = 0.0


class Desk:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def order(self, order: Order) -> None:
        self.calls.append(("order", order))

    def cancel(self, number: int, why: str | None) -> None:
        self.calls.append(("cancel", number, why))

    def any(self, value: object) -> None:
        self.calls.append(("any", value))

    def end(self) -> None:
        self.calls.append(("end",))


class Out(Protocol):
    def order(self, order: Order) -> int: ...
    def cancel(self, number: wire.Int32, why: str | None) -> int: ...
    def any(self, value: object) -> int: ...
    def end(self) -> int: ...


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue.open(tmp_path / "q", create="FAST_DAILY")


def test_what_the_writer_writes_the_reader_calls(queue: Queue) -> None:
    out = queue.method_writer(Out)
    first = out.order(Order("A", 1.5))
    assert [out.cancel(wire.Int32(7), None), out.any({"a": [1]}), out.end()] == [
        first + 1, first + 2, first + 3,
    ]  # fmt: skip
    queue.append(wire.encode_call("other", 5))
    desk = Desk()
    reader = queue.method_reader(desk)
    assert reader.read_one()
    assert desk.calls == [("order", Order("A", 1.5))]
    assert reader.read_all() == 3
    assert desk.calls[1:] == [("cancel", 7, None), ("any", {"a": [1]}), ("end",)]
    assert (reader.read_one(), reader.passed) == (False, 1)


def test_it_is_what_encode_call_makes(queue: Queue) -> None:
    out = queue.method_writer(Out)
    out.order(Order("A", 1.5))
    out.end()
    out.cancel(wire.Int32(7), "x")
    found = [bytes(excerpt) for excerpt in queue.tailer()]
    assert found == [
        wire.encode_call("order", Order("A", 1.5)), wire.encode_call("end"),
        wire.encode_call("cancel", 7, "x"),
    ]  # fmt: skip


def test_a_history_and_several_calls_in_one_excerpt(queue: Queue) -> None:
    body = wire.BodyWriter()
    body.history_event(wire.History(((1, 5),), (7,)))
    data = bytes(body.data) + wire.encode_call("order", Order("A")) + wire.encode_call("end")
    queue.append(data, now_ms=NOON_MS)
    desk = Desk()
    reader = queue.method_reader(desk)
    assert reader.read_all() == 2
    assert (desk.calls, reader.passed) == ([("order", Order("A")), ("end",)], 0)


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        (wire.encode_call("order", {"sym": 5}), "order.order.sym", "str"),
        (wire.encode_call("order", 5), "order.order", "Order"),
        (wire.encode_call("cancel", 5), "cancel", "2 arguments"),
        (wire.encode_call("cancel", "x", "y"), "cancel.number", "int"),
        (wire.encode_call("cancel", 1, "y", 3), "cancel", "2 arguments"),
        (wire.encode_call("cancel", 1), "cancel", "2 arguments"),
        (b"\xa1\x05", "", "a call of a method"),
        (b"\xb9\x05ord", "", "a call of a method"),
        (b"\xb9\x03any", "any.value", "object"),
        (b"\xb9\x03foo", "", "the argument of a method"),
        (wire.dumps({"order": 5}), "", "a call of a method"),
    ],
)
def test_a_call_that_does_not_fit_says_where(
    queue: Queue, data: bytes, path: str, expected: str
) -> None:
    queue.append_many([data, wire.encode_call("end")], now_ms=NOON_MS)
    desk = Desk()
    reader = queue.method_reader(desk)
    with pytest.raises(wire.FieldError) as raised:
        reader.read_one()
    error = raised.value
    assert (error.path, error.expected, error.index) == (path, expected, noon_index())
    assert reader.read_all() == 1
    assert desk.calls == [("end",)]


def test_a_writer_has_the_methods_of_its_protocol_alone(queue: Queue) -> None:
    out: Any = queue.method_writer(Out)
    with pytest.raises(AttributeError):
        out.unheard_of(5)
    with pytest.raises(TypeError, match="order: 1 arguments expected, 2 arguments came"):
        out.order(1, 2)
    with pytest.raises(ValueError, match="Int32 holds"):
        out.cancel(1 << 40, "x")
    assert queue.last_index() is None

    class Bad(Protocol):
        def order(self, order: set[int]) -> int: ...

    with pytest.raises(TypeError, match="with a form on the wire"):
        queue.method_writer(Bad)
