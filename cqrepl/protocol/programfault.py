"""The faults of a program that a host calls: they end what met them, and nothing else.

A peer's document, or a queue that changes, has a host call code that is not its own. An Exception
of that code is reported and goes no further. What is no Exception goes through: cancellation, the
end of the process. Of a group of both, the Exceptions are reported and the rest goes through.
"""

import math
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from cqrepl.protocol.cid import Cid
from cqrepl.protocol.errors import RemoteProtocolError
from cqrepl.protocol.subhandler import SubHandler
from wire import Reader, WireError

HANDLER_FAILED: Final = "the handler of the program has failed"  # what the peer hears

Report = Callable[[Exception], None]


class Contained:
    """A block of a program's own: what it raises is reported, and goes no further.

    Args:
        passes: kinds of errors that go through: the host acts on them.
    """

    def __init__(self, report: Report, *passes: type[Exception]) -> None:
        self._report = report
        self._passes = passes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or isinstance(error, self._passes):
            return False
        if isinstance(error, Exception):
            self._report(error)
            return True
        if isinstance(error, BaseExceptionGroup):
            faults, others = error.split(Exception)
            if isinstance(faults, ExceptionGroup):
                self._report(faults)
                assert others is not None
                raise others
        return False


class GuardedHandler:
    """A program's handler on one connection: with its first fault it has failed, and is called
    no more, but to hear that it has ended.

    Args:
        failed: is told of the fault: what removes the handler from its connection.
        check: raises LocalProtocolError for bytes that are not whole documents.
    """

    def __init__(
        self,
        cid: Cid,
        kind: str,
        handler: SubHandler,
        failed: Callable[["GuardedHandler", Exception], None],
        check: Callable[[Cid, bytes], None],
    ) -> None:
        self.cid = cid
        self.kind = kind
        self.csp = handler.csp
        self.has_failed = False
        self._handler = handler
        self._failed = failed
        self._check = check

    @property
    def deadline(self) -> float:
        if not self.has_failed:
            with self._contained():
                return self._handler.deadline
        return math.inf

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        if not self.has_failed:
            with self._contained(WireError, RemoteProtocolError):
                return self._handler.receive(name, reader, now)
        return True  # it may have been known

    def tick(self, now: float) -> None:
        if not self.has_failed:
            with self._contained(RemoteProtocolError):
                self._handler.tick(now)

    def produce(self, room: int) -> bytes:
        if not self.has_failed:
            with self._contained():
                data = self._handler.produce(room)
                if data:
                    self._check(self.cid, data)
                return data
        return b""

    def closed(self, reason: str) -> None:
        with self._contained():
            self._handler.closed(reason)

    def _contained(self, *passes: type[Exception]) -> Contained:
        return Contained(self._note, *passes)

    def _note(self, error: Exception) -> None:
        self.has_failed = True
        self._failed(self, error)
