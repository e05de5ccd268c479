"""The errors by which a program that embeds a host learns of its end."""

from types import TracebackType
from typing import Self

import trio


class HostEnded(RuntimeError):
    """A host is used that runs no more; its cause is what has ended it, if anything went wrong."""


def only_error(error: BaseException) -> BaseException:
    """An error without the groups that hold it alone, as nurseries make them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def ended_by(failure: BaseException | None) -> HostEnded:
    """The error to raise where a host is used that this failure has ended; None: it has ended in
    order."""
    if failure is None:
        return HostEnded("this host has ended")
    ended = HostEnded(f"this host has ended: {failure or type(failure).__name__}")
    ended.__cause__ = failure
    return ended


def is_only_told(error: BaseException, failure: BaseException) -> bool:
    """True when an error of the program says no more than what has ended its host."""
    return isinstance(error, HostEnded) and error.__cause__ is failure


def told_beside(error: BaseException, failure: BaseException) -> None:
    """Notes on an error of the program what had ended its host, which is not raised any more."""
    error.add_note(f"its host had ended: {type(failure).__name__}: {failure}")


class Kept:
    """Keeps what its block raises, whatever it is, to be raised elsewhere; but for trio's
    cancellation.

    Attributes:
        error: None while there is none.
    """

    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or isinstance(error, trio.Cancelled):
            return False
        self.error = only_error(error)
        return True
