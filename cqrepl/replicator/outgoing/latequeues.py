"""Queues of a source that are not open.

What the machine keeps from being opened (too few descriptors, missing rights) is tried again and
again while the other queues go out. What is damaged, or is no queue that can be streamed, has
stopped: it is opened once an operator has it go on.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import trio

from cqrepl.protocol.queuelife import StreamedLife, StreamedMove, StreamedState
from cqrepl.queue import QueueError
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.descriptors import spare_descriptors
from cqrepl.replicator.queuestate.pause import PAUSE_SECONDS, PAUSE_SECONDS_MAX
from cqrepl.replicator.queuestate.queues import Signal
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.queuestate.unopened import Unopened

OpenLate = Callable[[], SourceQueue]
Told = Callable[[str], None]  # the name of a queue that is open
_logger: Final = logging.getLogger(__name__)


class _Troubles(Mapping[str, Stop]):
    """The reasons of lives, by the names of their queues, as they change."""

    def __init__(self, lives: Mapping[str, StreamedLife[Stop]]) -> None:
        self._lives = lives

    def __getitem__(self, name: str) -> Stop:
        trouble = self._lives[name].reason
        assert trouble is not None
        return trouble

    def __iter__(self) -> Iterator[str]:
        return iter(self._lives)

    def __len__(self) -> int:
        return len(self._lives)


class LateQueues:
    """Queues that are still to be opened.

    Attributes:
        take: is given each that is open.
        stop: is told of each that has stopped.
    """

    def __init__(self) -> None:
        self.take: Callable[[SourceQueue], None]  # both of the source
        self.stop: Callable[[Stop], None]
        self._opened: Told | None = None
        self._lives: dict[str, StreamedLife[Stop]] = {}
        # how, and the directory; those without are opened by the relay desk
        self._to_open: dict[str, tuple[OpenLate, Path]] = {}
        self._has_more: Final = Signal()

    def word(self, name: str) -> str:
        """The word that people see, of a queue that is not open."""
        return self._lives[name].word()

    @property
    def troubles(self) -> Mapping[str, Stop]:
        """The reason why each of them is not open, by name."""
        return _Troubles(self._lives)

    @property
    def is_trying(self) -> bool:
        """True while any of them is tried again by itself."""
        return bool(self._in(StreamedState.UNOPENED))

    @property
    def stopped(self) -> frozenset[str]:
        """The names of those that have stopped."""
        return self._in(StreamedState.UNREADABLE)

    def _in(self, state: StreamedState) -> frozenset[str]:
        return frozenset(name for name, life in self._lives.items() if life.state is state)

    def has(self, name: str) -> bool:
        """True for one that is opened from here."""
        return name in self._to_open

    def add(self, unopened: Unopened, open_late: OpenLate) -> None:
        """Takes one that cannot be opened now; people are told by `tell`.

        Args:
            open_late: opens it, or raises `QueueError` or `OSError`.
        """
        self._to_open[unopened.name] = open_late, unopened.path
        self._keep(unopened)

    def _keep(self, unopened: Unopened) -> None:
        move = StreamedMove.FAIL if unopened.may_pass else StreamedMove.GIVE_UP
        self._move(unopened.trouble, move)
        self._has_more.set()

    def _move(self, trouble: Stop, move: StreamedMove) -> None:
        self._lives.setdefault(trouble.name, StreamedLife()).move(move, trouble)

    def wait_for(self, trouble: Stop) -> None:
        """Takes one that the relay desk opens, and that is not open for now."""
        self._to_open.pop(trouble.name, None)
        self._move(trouble, StreamedMove.AWAIT)

    def forget(self, name: str) -> None:
        """It is open, or not to be opened any more."""
        self._to_open.pop(name, None)
        self._lives.pop(name, None)

    def tell(self, unopened: Unopened) -> None:
        """Tells people of one, and has it stop where it is not tried again."""
        unopened.log()
        if not unopened.may_pass:
            self.stop(unopened.trouble)

    async def work(self, opened: Told | None = None) -> None:
        """Tries each that has not stopped again, for ever.

        Args:
            opened: is called with the name of each that is open.
        """
        self._opened, seconds = opened, PAUSE_SECONDS
        while True:
            if not self.is_trying:
                seconds = PAUSE_SECONDS
                await self._has_more.wait()
            await trio.sleep(seconds)
            seconds = min(2 * seconds, PAUSE_SECONDS_MAX)
            for name in sorted(self._in(StreamedState.UNOPENED)):
                unopened = self._try(name)
                if unopened is None:
                    seconds = PAUSE_SECONDS
                elif not unopened.may_pass:
                    self.tell(unopened)

    def open_again(self, name: str) -> None:
        """Opens one of them.

        Raises:
            QueueError, OSError: it cannot be opened now either; it stays, or is tried again.
        """
        unopened = self._try(name)
        if unopened is not None:
            if not unopened.may_pass:
                self.stop(unopened.trouble)
            raise unopened.error

    def _try(self, name: str) -> Unopened | None:
        """Opens one; where that cannot be done, why not."""
        open_late, path = self._to_open[name]
        try:
            with spare_descriptors():
                queue = open_late()
        except (QueueError, OSError) as error:
            unopened = Unopened(name=name, path=path, error=error)
            self._keep(unopened)
            return unopened
        self.forget(name)
        _logger.info("queue %r goes on", name)
        self.take(queue)
        if self._opened is not None:
            self._opened(name)
        return None
