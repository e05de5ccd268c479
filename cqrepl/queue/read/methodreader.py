"""Calls of Java services as calls of Python: a reader for a queue, and a writer to one.

reader = queue.method_reader(Desk())      # Desk.order(self, order: Order)
reader.read_all()                         # calls desk.order(...) for each call in the queue
out = queue.method_writer(Signals)        # Signals: a Protocol, as the Java interface
out.signal(Signal("EURUSD", 1))           # a Java method reader calls signal(Signal)
"""

from collections.abc import Callable
from typing import Any

from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.read.tailer import Tailer
from wire.errors import FieldError
from wire.objects.methodcalls import CallForms, MethodCalls


class MethodReader:
    """Calls the methods of an object for the calls in a queue.

    Attributes:
        tailer: where it reads on.
    """

    def __init__(self, tailer: Tailer, handler: object) -> None:
        """
        Raises:
            TypeError: a method has an argument without a form on the wire.
        """
        self.tailer = tailer
        self._calls = MethodCalls(handler)

    @property
    def passed(self) -> int:
        """Calls of methods that the object does not have."""
        return self._calls.passed

    def read_one(self) -> bool:
        """Makes the calls of the next excerpt; false where there is none yet.

        Raises:
            FieldError: an argument does not fit; the reader stands behind that excerpt.
            and whatever the methods raise.
        """
        excerpt = self.tailer.next_excerpt()
        if excerpt is None:
            return False
        self._dispatch(excerpt)
        return True

    def read_all(self) -> int:
        """Makes the calls of all excerpts that are there; how many calls."""
        return sum(self._dispatch(excerpt) for excerpt in self.tailer)

    def follow(self) -> None:
        """Makes the calls of all excerpts that are there, then of those to come, for ever."""
        for excerpt in self.tailer.follow():
            self._dispatch(excerpt)

    def _dispatch(self, excerpt: Excerpt) -> int:
        try:
            return self._calls.dispatch(excerpt.data)
        except FieldError as error:
            raise error.at(excerpt.index) from error.__cause__


class MethodWriter:
    """An object with the methods of a class or a protocol, each of which appends its call."""

    def __init__(self, append: Callable[[bytes], int], kind: type) -> None:
        """
        Raises:
            TypeError: a method has an argument without a form on the wire.
        """
        self._append = append
        self._forms = CallForms(kind)

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("_") or name not in self._forms.methods:
            raise AttributeError(f"no method {name!r}")

        def call(*arguments: Any) -> int:
            return self._append(self._forms.encode(name, arguments))

        return call
