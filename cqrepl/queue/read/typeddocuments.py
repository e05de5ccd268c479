"""The excerpts of a queue as messages: objects of dataclasses, whose annotations are the schema.

Theory of operation. A queue holds what services have called each other with, and may hold more than
one kind. Where the classes say which method they are the argument of (`wire_event`), calls of other
methods are passed by and counted. All else must fit: an excerpt that does not is an error that
names the excerpt and the field; or it is told to a function, and passed by.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from wire.errors import FieldError
from wire.objects.messages import Messages

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound="DataclassInstance")
OnMisfit = Callable[[FieldError], object]


class ExcerptMessages(Generic[M]):
    """Makes messages of excerpts, and counts those that give none.

    Attributes:
        index: of the excerpt that was looked at last; 0 before the first.
        passed: excerpts that are calls of other methods.
        misfits: excerpts that do not fit, where a function is told of them.
    """

    def __init__(self, kinds: tuple[type[M], ...], on_misfit: OnMisfit | None) -> None:
        """
        Args:
            on_misfit: is told of each excerpt that does not fit; None: that is raised.

        Raises:
            TypeError: these classes cannot be read.
        """
        self._read = Messages(kinds).read
        self._on_misfit = on_misfit
        self.index: Index = NEXT_OF_EMPTY
        self.passed = 0
        self.misfits = 0

    def read(self, excerpt: Excerpt) -> M | None:
        """The message of an excerpt; None where the excerpt is passed by.

        Raises:
            FieldError: it does not fit, and no function is told of that.
        """
        self.index = Index(excerpt.index)
        try:
            message = self._read(excerpt.data)
        except FieldError as error:
            told = error.at(excerpt.index)
            if self._on_misfit is None:
                raise told from error.__cause__
            self.misfits += 1
            self._on_misfit(told)
            return None
        self.passed += message is None
        return message


class Documents(ExcerptMessages[M]):
    """Iterates over messages. An error leaves it behind the excerpt that caused it."""

    def __init__(
        self, excerpts: Iterator[Excerpt], kinds: tuple[type[M], ...], on_misfit: OnMisfit | None
    ) -> None:
        """Args and Raises: as `ExcerptMessages`."""
        super().__init__(kinds, on_misfit)
        self._excerpts = excerpts

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> M:
        for excerpt in self._excerpts:
            message = self.read(excerpt)
            if message is not None:
                return message
        raise StopIteration


class FollowedDocuments(ExcerptMessages[M]):
    """Iterates over messages in a task, for ever: as `Documents`."""

    def __init__(
        self,
        excerpts: AsyncIterator[Excerpt],
        kinds: tuple[type[M], ...],
        on_misfit: OnMisfit | None,
    ) -> None:
        """Args and Raises: as `ExcerptMessages`."""
        super().__init__(kinds, on_misfit)
        self._excerpts = excerpts

    def __aiter__(self) -> Self:
        aiter(self._excerpts)  # refuses another event loop
        return self

    async def __anext__(self) -> M:
        async for excerpt in self._excerpts:
            message = self.read(excerpt)
            if message is not None:
                return message
        raise StopAsyncIteration
