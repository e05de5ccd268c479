"""The values of one document body, as its text shows them: what other printers than Java's print.

Theory of operation. The printer of items (`wire.text.print_items`) decides what a body holds, and
what cannot be shown; this takes the place of its layout, and keeps values where that writes text.
So whatever has a text has a value, and the same one:

    names and values   a dict; where a name comes again, one more dict of a list, so none is lost
    values             a list; alone in a document the value itself
    both               a list of values and dicts
    key of an object   its text
    type and value     `Typed`; without the type where that says no more than the value does
    comment            nothing
    a name alone       None for its value
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, time
from typing import Final

from wire.objects.nativeforms import shown_reader
from wire.objects.times import python_time
from wire.objects.values import TimeText, Typed, TypeLiteral
from wire.text.print_items import print_items

_NUMBERS: Final = (int, float)
_SAYS_NO_MORE: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(("byte", "short", "int", "long", "float", "double"), _NUMBERS),
    **dict.fromkeys(("short[]", "int[]", "long[]", "float[]", "double[]", "!set", "!seq"), (list,)),
    **dict.fromkeys(("!binary", "byte[]"), (bytes,)),
    **dict.fromkeys(("Date", "Time", "DateTime", "ZonedDateTime"), (date, time)),
    "!map": (dict,),
    "!null": (type(None),),
    "String": (str,),
    "type": (TypeLiteral,),
}


def shown_value(body: bytes | memoryview) -> object:
    """The value of a whole body.

    >>> shown_value(bytes.fromhex("c178e179c178a105")), shown_value(bytes.fromhex("e3696431"))
    ([{'x': 'y'}, {'x': 5}], 'id1')

    Raises:
        WireError: the body has no text.
    """
    found = _READ_SHOWN(body)
    return plainly_shown(body) if found is NotImplemented else found


def plainly_shown(body: bytes | memoryview) -> object:
    """The same as `shown_value`, by the printer of items alone."""
    values = _Values()
    print_items(body, values)
    return values.value()


_READ_SHOWN: Final = shown_reader()


@dataclass(slots=True)
class _Frame:
    """An open part: a document, a block, or the key of an event."""

    parts: list[object] = field(default_factory=list)
    fields: dict[str, object] | None = None  # the last part, while names go on
    name: str | None = None
    types: list[str] = field(default_factory=list)

    def put(self, value: object) -> None:
        for each in reversed(self.types):
            no_more = isinstance(value, _SAYS_NO_MORE.get(each, ()))
            value = value if no_more else Typed(each, value)
        name = self.name
        self.name, self.types = None, []
        if name is None:
            self.fields = None
            self.parts.append(value)
            return
        if self.fields is None or name in self.fields:
            self.fields = {}
            self.parts.append(self.fields)
        self.fields[name] = value

    def end(self) -> None:
        """A name or a type that nothing has followed has no value."""
        if self.name is not None or self.types:
            self.put(None)


class _Values:
    """In place of a layout: keeps what would be written."""

    def __init__(self) -> None:
        self._frames = [_Frame()]

    def value(self) -> object:
        """All that there was."""
        (frame,) = self._frames
        frame.end()
        return frame.parts[0] if len(frame.parts) == 1 else frame.parts or None

    def scalar(self, text: str, value: object) -> None:
        """A complete value."""
        if isinstance(value, TimeText):
            value = python_time(value.code, value)
        self._frames[-1].put(value)

    def name(self, quoted: str, name: str) -> None:
        """The name of the value that comes next."""
        frame = self._frames[-1]
        frame.end()
        frame.name = name

    def type_prefix(self, shown: str, name: str) -> None:
        """The type of the value that comes next."""
        self._frames[-1].types.append(name)

    def comment(self, text: str) -> None:
        """Nothing of it is a value."""

    def set_leaf(self, leaf: bool) -> None:
        """Lines are of no matter here."""

    @contextmanager
    def event_key(self) -> Iterator[None]:
        """Around the item that names an event by an object."""
        self._frames.append(_Frame())
        yield
        key = self._frames.pop()
        key.end()
        self._frames[-1].end()
        self._frames[-1].name = key_text(key.parts[0] if len(key.parts) == 1 else key.parts)

    @contextmanager
    def sequence(self) -> Iterator[None]:
        """Around the items of a sequence."""
        self._frames.append(_Frame())
        yield
        frame = self._frames.pop()
        frame.end()
        self._frames[-1].put(frame.parts)

    @contextmanager
    def map(self, *, may_fold: bool = True) -> Iterator[None]:
        """Around the names and values of a map."""
        self._frames.append(_Frame())
        yield
        frame = self._frames.pop()
        frame.end()
        parts = frame.parts or [{}]
        self._frames[-1].put(parts[0] if len(parts) == 1 else parts)


def key_text(key: object) -> str:
    """A key that is an object, as text on one line.

    >>> key_text(5), key_text(None), key_text([True, {"a": "b"}]), key_text(Typed("T", b"x"))
    ('5', 'null', '[true, {a: b}]', '!T 78')
    """
    match key:
        case str():
            return str(key)
        case None:
            return "null"
        case bool():
            return "true" if key else "false"
        case bytes():
            return key.hex()
        case list():
            return f"[{', '.join(map(key_text, key))}]"
        case dict():
            return f"{{{', '.join(f'{name}: {key_text(each)}' for name, each in key.items())}}}"
        case Typed():
            return f"!{key.name} {key_text(key.value)}"
        case TypeLiteral():
            return f"!type {key.name}"
        case date() | time():
            return key.isoformat()
        case _:
            return str(key)
