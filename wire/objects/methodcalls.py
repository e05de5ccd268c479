"""Calls of methods in documents: handed to the methods of an object, and made from calls.

Theory of operation. A Java service writes a call as an event: the name of the method, then its
argument; several arguments are a block of values, none is an empty text. A class or a protocol of
Python says the same as a Java interface does: the names of its public methods, and by annotations
the types of their arguments. An argument without an annotation is read as `wire.decode` reads it.

>>> from dataclasses import dataclass
>>> @dataclass
... class Order:
...     px: float
>>> class Desk:
...     def order(self, order: Order) -> None:
...         print("order", order)
...     def cancel(self, id: int, why: str) -> None:
...         print("cancel", id, why)
>>> desk, calls = MethodCalls(Desk()), CallForms(Desk)
>>> desk.dispatch(calls.encode("order", (Order(1.5),)))
order Order(px=1.5)
1
>>> desk.dispatch(calls.encode("cancel", (7, "late")))
cancel 7 late
1
"""

import inspect
import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from wire.errors import FieldError, WireError
from wire.header import is_framed
from wire.objects.annotated import described, form, shown_value
from wire.objects.body_writer import BodyWriter
from wire.objects.lookup import step_over
from wire.objects.object_reader import HISTORY_NAME, read_event
from wire.objects.object_writer import write_object
from wire.reader import Reader
from wire.strings import kept_name

_ANY: Final = object
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class MethodForm(NamedTuple):
    """A method: names and annotations of its arguments."""

    name: str
    arguments: tuple[tuple[str, object], ...]


def methods_of(kind: type) -> dict[str, MethodForm]:
    """The public methods of a class or a protocol.

    Raises:
        TypeError: an annotation has no form on the wire, or arguments are not positional.
    """
    found = {}
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_"):
            continue
        if kept_name(name) != name:
            raise TypeError(f"a method name of Latin-1 letters was expected, {name!r} came")
        hints = typing.get_type_hints(member, include_extras=True)
        _, *parameters = inspect.signature(member).parameters.values()
        arguments = []
        for each in parameters:
            if each.kind not in _POSITIONAL:
                raise TypeError(f"positional arguments of {name} were expected, {each.name} came")
            annotation = hints.get(each.name, _ANY)
            form(annotation)  # refuses what has none
            arguments.append((each.name, annotation))
        found[name] = MethodForm(name, tuple(arguments))
    return found


class MethodCalls:
    """Hands the calls in documents to the methods of an object.

    Attributes:
        passed: calls of methods that the object does not have.
    """

    def __init__(self, handler: object) -> None:
        """
        Raises:
            TypeError: as `methods_of`.
        """
        self._methods = methods_of(type(handler))
        self._handler = handler
        self.passed = 0

    def dispatch(self, data: bytes | memoryview) -> int:
        """Makes the calls of one document, in their order; how many.

        Raises:
            FieldError: an argument does not fit; the calls before it were made.
            and whatever the methods raise.
        """
        reader, made = Reader(memoryview(data)), 0
        if is_framed(data):
            raise _misfit("", "a call of a method", reader, "a document with its header came")
        while reader.peek_code() is not None:
            name = self._name(reader)
            method = self._methods.get(name)
            if method is None:
                self.passed += name != HISTORY_NAME
                _skip(reader)
                continue
            arguments = _arguments(method, reader)
            made += 1
            getattr(self._handler, name)(*arguments)
        return made

    def _name(self, reader: Reader) -> str:
        try:
            name = read_event(reader)
        except WireError as error:
            raise _misfit("", "a call of a method", reader, error.reason) from error
        if name is None:
            raise _misfit("", "a call of a method", reader, "a value without a name came")
        return name


class CallForms:
    """Makes documents of calls, by the annotations of a class or a protocol."""

    def __init__(self, kind: type) -> None:
        """
        Raises:
            TypeError: as `methods_of`.
        """
        self.methods = methods_of(kind)

    def encode(self, name: str, arguments: tuple[object, ...]) -> bytes:
        """The document of a call, as Java's method reader takes it.

        Raises:
            TypeError: the method has other arguments, or there is none of this name; or a value
                has no form on the wire.
            ValueError: a value does not fit its annotation.
        """
        method = self.methods.get(name)
        if method is None or len(method.arguments) != len(arguments):
            wanted = "no such method" if method is None else f"{len(method.arguments)} arguments"
            raise TypeError(f"{name}: {wanted} expected, {len(arguments)} arguments came")
        writer = BodyWriter()
        writer.event(name)
        pairs = list(zip(method.arguments, arguments, strict=True))
        if not pairs:
            writer.text("")  # as Java writes it
        elif len(pairs) == 1:
            _write(writer, pairs[0][0][1], pairs[0][1])
        else:
            with writer.sequence():
                for (_, annotation), value in pairs:
                    _write(writer, annotation, value)
        return bytes(writer.data)


def _write(writer: BodyWriter, annotation: object, value: object) -> None:
    write: Callable[..., object] = write_object if annotation is _ANY else form(annotation).write
    write(writer, value)


def _arguments(method: MethodForm, reader: Reader) -> list[object]:
    if not method.arguments:
        _skip(reader)
        return []
    if len(method.arguments) == 1:
        return [_argument(method.name, method.arguments[0], reader)]
    try:
        block = reader.read_block()
    except WireError as error:
        wanted = f"{len(method.arguments)} arguments"
        raise _misfit(method.name, wanted, reader, error.reason) from error
    found = [_argument(method.name, each, block) for each in method.arguments]
    if block.peek_code() is not None:
        wanted = f"{len(method.arguments)} arguments"
        raise _misfit(method.name, wanted, block, "one more came")
    return found


def _argument(method: str, argument: tuple[str, object], reader: Reader) -> Any:
    name, annotation = argument
    path = f"{method}.{name}"
    start, end = reader.position, reader.end
    try:
        return form(annotation).read(reader, 0)
    except FieldError as error:
        raise error.within(path) from error
    except WireError as error:
        value = Reader(reader.data, start, end)
        raise _misfit(path, described(annotation), value, error.reason, error.position) from error


def _skip(reader: Reader) -> None:
    try:
        step_over(reader)
    except WireError as error:
        raise _misfit("", "the argument of a method", reader, error.reason) from error


def _misfit(
    path: str, expected: str, reader: Reader, reason: str, position: int | None = None
) -> FieldError:
    at = reader.position if position is None else position
    return FieldError(path, expected, shown_value(reader), reason, at)
