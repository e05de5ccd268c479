"""Reads document bodies into messages of one class, or of the classes of several method calls.

>>> from dataclasses import dataclass
>>> from typing import ClassVar
>>> @dataclass
... class Order:
...     wire_event: ClassVar[str] = "order"
...     px: float = 0.0
>>> @dataclass
... class Cancel:
...     wire_event: ClassVar[str] = "cancel"
...     id: int = 0
>>> messages = Messages((Order, Cancel))
>>> messages.read(bytes.fromhex("b9066361 6e63656c 8205000000c26964a107"))
Cancel(id=7)
>>> messages.read(bytes.fromhex("b903656e64e0")) is None  # `end` is none of them
True
"""

from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from wire.errors import FieldError, WireError
from wire.header import is_framed
from wire.objects.annotated import check_class, read_message, skip_history
from wire.objects.nativeforms import message_reader
from wire.objects.object_reader import read_body, read_event
from wire.objects.object_writer import given_event
from wire.reader import Reader

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound="DataclassInstance")
Data = bytes | bytearray | memoryview
_FRAMED: Final = "a document body was expected, a document with its header came"


class Messages(Generic[M]):
    """Reads messages of these classes; several are told apart by their `wire_event`."""

    def __init__(self, kinds: tuple[type[M], ...]) -> None:
        """
        Raises:
            TypeError: a class is no dataclass, or has an annotation without a form on the wire;
                or there are several, and they do not say different events.
        """
        for kind in kinds:
            check_class(kind)
        events = [given_event(kind) for kind in kinds]
        if not kinds or (len(kinds) > 1 and (None in events or len(set(events)) < len(events))):
            names = ", ".join(kind.__name__ for kind in kinds) or "none"
            raise TypeError(
                f"one dataclass expected, or several with a wire_event of their own each, got"
                f" {names}"
            )
        self._only: type[M] | None = kinds[0] if events[0] is None else None
        self._kinds = dict(zip(events, kinds, strict=True))
        self._native = message_reader(kinds[0]) if len(kinds) == 1 else None

    def read(self, data: Data) -> M | None:
        """The message that a document body holds; None for a call of another method.

        Raises:
            FieldError: a field does not fit; its `path` is empty where the document as a whole
                does not.
        """
        if self._native is not None:
            found = self._native(data)
            if found is not NotImplemented:
                return cast("M | None", found)
        kind = self._only
        try:
            if is_framed(data):
                raise WireError(_FRAMED, 0)
            if kind is None:
                reader = Reader(memoryview(data))
                skip_history(reader)
                event = read_event(reader)
                if event is None:
                    raise WireError("the name of a method was expected, a value came", 0)
                kind = self._kinds.get(event)
            return None if kind is None else read_message(kind, Reader(memoryview(data)))
        except FieldError:
            raise
        except WireError as error:
            names = " or ".join(each.__name__ for each in self._kinds.values())
            raise FieldError("", names, _shown(data), error.reason, error.position) from error


def _shown(data: Data) -> str:
    """The document as short text for people; its first bytes where it cannot be read."""
    try:
        return f"{read_body(Reader(memoryview(data)))!r:.40}"
    except WireError:
        return f"bytes {bytes(data[:16]).hex(' ')}" if data else "nothing"
