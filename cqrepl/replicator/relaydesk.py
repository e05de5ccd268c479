"""Queues that a host takes in and passes on: the copy of one host is what the next one takes.

Theory of operation. A copy is passed on as it stands in its files, by a source that owns nothing of
it: it makes no queue, draws no identity, raises none of its marks, and takes nothing back. It is
there while the copy is known to be one, none of it is doubtful, and nothing has stopped it; it goes
before any of its files do. So what a host passes on is at most what it holds itself, and what it
acknowledges to its own source says nothing of hosts behind it.

The path of a queue is the ids of the hosts that it has come by, its first source before all. It
goes out with each offer. A host that finds itself in it takes nothing: else the hosts would take
the queue from each other in a circle that none begins. Until a copy was offered, its path is that
of its master.
"""

import logging
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from cqrepl.protocol import StopReason
from cqrepl.queue import QueueError
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.stops import Stop
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source

LOOK_SECONDS: Final = 0.5  # between two looks at what nothing tells of
NOT_ANY_MORE: Final = "it is not passed on any more"
_logger: Final = logging.getLogger(__name__)


def why_not_passed_on(copy: SinkQueue) -> str | None:
    """The reason why no host is to take this copy from here now; None where hosts may."""
    if copy.life.stop is not None:
        return copy.life.stop.message
    if copy.is_waiting_for_quarantine:
        return "what it holds otherwise than its source goes to quarantine"
    if not copy.is_open or not copy.queue.is_follower:
        return f"its copy here is not taken in from host {copy.master_id} yet"
    if copy.disk.unproved_from is not None:
        return "what a power cut may have torn here is compared first"
    return None


class RelayDesk:
    """The queues that a host passes on.

    Args:
        host_id: of this host.
    """

    def __init__(self, host_id: int, source: Source, sink: Sink) -> None:
        self._host_id = host_id
        self._source = source
        self._sink = sink
        self._paths: dict[str, Path] = {}
        self._turn = trio.Lock()

    @property
    def names(self) -> Iterable[str]:
        """The queues, passed on right now or not."""
        return self._paths.keys()

    def add(self, paths: Mapping[str, Path]) -> None:
        """These are to be passed on too."""
        for name, path in paths.items():
            self._paths[name] = path
            self._wait(name, f"its copy here is not taken in from host {self._master(name)} yet")

    async def drop(self, name: str, why: str = NOT_ANY_MORE) -> None:
        """It is not to be passed on any more."""
        if self._paths.pop(name, None) is not None:
            async with self._turn:
                await self._close(name, why)
                self._source.forget_late(name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Passes queues on, for the length of a block."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run)
            yield
            nursery.cancel_scope.cancel()

    async def _run(self) -> None:
        """Begins to pass on what can be, and ends it before its copy's files go, for ever."""
        while True:
            for name in sorted(self._paths):
                async with self._turn:
                    if name in self._paths:
                        await self._look(name)
            with trio.move_on_after(LOOK_SECONDS if self._paths else math.inf):
                await self._sink.changed.wait()

    def _master(self, name: str) -> int | None:
        return self._sink.queues[name].master_id

    async def _look(self, name: str) -> None:
        copy, open_queue = self._sink.queues.get(name), self._source.queues.get(name)
        if copy is None:  # it is about to be removed
            return
        path = (*self._path_to(copy), self._host_id)
        why = why_not_passed_on(copy)
        if why is None and open_queue is not None and open_queue.passed_by != path:
            why = "it comes another way now"
        if why is None and open_queue is None and copy.life.hold.reason is None:
            self._open(copy, path)
        elif why is not None:
            if open_queue is not None:
                await self._close(name, why)
            self._wait(name, why)

    def _path_to(self, copy: SinkQueue) -> tuple[int, ...]:
        if copy.way.passed_by or copy.master_id is None:
            return copy.way.passed_by
        return (copy.master_id,)

    def _open(self, copy: SinkQueue, path: tuple[int, ...]) -> None:
        try:
            queue = self._source.open_copy(copy, path)
        except (QueueError, OSError) as error:
            self._wait(copy.name, str(error))
            return
        copy.way.is_passed_on = True
        self._source.forget_late(copy.name)
        self._source.add(queue)
        shown = ", ".join(map(str, path))
        _logger.info("queue %r: it is passed on, by hosts %s", copy.name, shown)

    async def _close(self, name: str, why: str) -> None:
        if name in self._source.queues:
            await self._source.remove(name, why)
            _logger.info("queue %r: nothing of it is passed on: %s", name, why)
        copy = self._sink.queues.get(name)
        if copy is not None:
            copy.way.is_passed_on = False
        self._sink.changed.set()

    def _wait(self, name: str, why: str) -> None:
        stop = Stop(name=name, reason=StopReason.FAILED, message=why)
        self._source.wait_for(stop)
