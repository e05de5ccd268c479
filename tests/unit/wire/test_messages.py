"""Messages in documents: classes that change, lists with nulls, calls behind a history."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

import wire
from wire.objects.annotated import read_message
from wire.objects.messages import Messages
from wire.objects.shapes import shape_of
from wire.reader import Reader


@dataclass
class Listed:
    numbers: list[int | None] = field(default_factory=list)
    names: tuple[str | None, ...] = ()
    counts: dict[str, float | None] = field(default_factory=dict)


@dataclass
class Placed:
    wire_event: ClassVar[str] = "order"
    px: float


@dataclass
class Chain:
    next: "Chain | None" = None


def test_nulls_in_lists_and_maps_are_none() -> None:
    """Once a null in a list was read again and again, until the memory was full."""
    message = Listed([1, None, 2, None], (None, "x"), {"a": None, "b": 1.5})
    data = wire.encode(message)
    assert wire.decode(data, Listed) == message
    assert read_message(Listed, Reader(data)) == message


def test_a_call_stands_behind_a_history() -> None:
    body = wire.BodyWriter()
    body.history_event(wire.History(((1, 5),), (7,)))
    data = bytes(body.data) + wire.encode(Placed(1.5))
    assert wire.decode(data, Placed) == Placed(1.5)
    assert wire.encode(Placed(1.5)) == wire.encode_call("order", {"px": 1.5}).replace(
        b"\xb9\x02px", b"\xc2px"
    ).replace(b"\x82\x07", b"\x82\x06")


@pytest.mark.parametrize(
    "data",
    [
        wire.encode_call("cancel", {"px": 1.5}),
        wire.encode({"px": 1.5}),
        wire.encode(Placed(1.5)) + b"\xc1a\xa1\x05",
        wire.encode_call("order", 5),
        wire.encode_call("order"),
    ],
)
def test_another_call_is_no_message_of_the_class(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode(data, Placed)


def test_several_classes_are_told_apart() -> None:
    messages: Messages[Any] = Messages((Placed,))
    assert messages.read(wire.encode(Placed(1.5))) == Placed(1.5)
    assert messages.read(wire.encode_call("cancel", 5)) is None
    with pytest.raises(wire.FieldError, match="a document with its header came"):
        messages.read(wire.dumps(Placed(1.5)))


def test_a_class_that_holds_itself_has_no_shape_but_is_read() -> None:
    with pytest.raises(TypeError, match="does not hold itself"):
        shape_of(Chain)
    chain = Chain(Chain(Chain()))
    assert wire.decode(wire.encode(chain), Chain) == chain
