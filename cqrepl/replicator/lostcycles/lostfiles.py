"""A running host takes closed store files that it has lost from the hosts that it is connected to.

Theory of operation. A queue that has lost one stops as damaged, on both sides. Where the other side
of a connection gives store files, as every host of ours does, what is missing or is not what it was
comes from there (`fetcher`), and is compared with what was noted. Then the queue goes on, with
another connection. Where no host has it, the queue stays as it is, and each new connection is
asked; where a full disk or the like was in the way, or a host was silent, the same one again.
"""

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.console.units import plural
from cqrepl.net.errors import Refused, Unreachable
from cqrepl.net.threads import in_thread
from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.subhandler import HandlerKind, LinkView
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.inspection.closedfiles import wanting
from cqrepl.replicator.lostcycles.fetcher import Asker, FetchTold
from cqrepl.replicator.lostcycles.fetchkind import FETCH_CAPABILITY, FetchKind
from cqrepl.replicator.queuestate.pause import is_passing
from cqrepl.replicator.queuestate.queues import STUCK_SECONDS, Signal

AGAIN_SECONDS: Final = 10.0  # after a full disk, a host that was silent, or the like
REST_SECONDS: Final = 60.0  # nothing is looked for where nothing was missing
_logger: Final = logging.getLogger(__name__)


class LostFiles:
    """A program on the connections of a host, beside those of the user.

    Args:
        paths: the directories of the host's queues, by name.
        restored: is called with the name of a queue whose store files are all there again.
        looked: is called when a host that was asked has given what it could.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        restored: Callable[[str], None],
        looked: Callable[[], None],
    ) -> None:
        self.kinds: tuple[HandlerKind, ...] = (FetchKind(paths, self._note_given),)
        self._paths = paths
        self._restored = restored
        self._looked = looked
        self._is_taking = False
        self._links: dict[int, LinkView] = {}  # the last one of each host that gives store files
        self._lost: dict[str, list[LinkView]] = {}  # queues, and who is still to be asked
        self._known: dict[str, Mapping[Cycle, ClosedCycle]] = {}
        # queues, and hosts that are asked again: when, and over which link
        self._later: dict[tuple[str, int], tuple[float, LinkView]] = {}
        self._rests: dict[str, float] = {}  # queues that lack no store file, and until when that is
        self._mended_until: dict[str, float] = {}  # so long a look from before may tell of it again
        self._asker: Asker | None = None
        self._changed = Signal()
        self._given = 0  # so many store files are given now
        self._gave_until = -math.inf  # by trio's clock: so long who took one may take to go on

    @property
    def is_mending(self) -> bool:
        """True while another host may still give what a queue here has lost. Also while this host
        gives another one a store file, or did a moment ago: that host's queue goes on with another
        connection."""
        return self.is_taking or bool(self._given) or trio.current_time() < self._gave_until

    def _note_given(self, change: int) -> None:
        self._given += change
        self._gave_until = trio.current_time() + STUCK_SECONDS
        self._changed.set()

    @property
    def is_taking(self) -> bool:
        """True while another host may still give what a queue here has lost."""
        return self._is_taking or any(self._lost.values())

    def note(self, name: str, known: Mapping[Cycle, ClosedCycle]) -> None:
        """A queue is damaged: it may have lost closed store files.

        Args:
            known: what they held, as far as this process knows.
        """
        self._known[name] = known
        if name not in self._lost and trio.current_time() >= self._rests.get(name, -math.inf):
            self._lost[name] = list(self._links.values())
            self._changed.set()

    def forget(self, name: str) -> None:
        """The queue is not there any more."""
        for each in (self._lost, self._known, self._rests, self._mended_until):
            each.pop(name, None)

    async def connected(self, link: LinkView) -> None:
        if link.remote_id and FETCH_CAPABILITY in link.capabilities:
            self._links[link.remote_id] = link
            for asked in self._lost.values():
                asked.append(link)
            self._changed.set()

    async def told(self, link: LinkView, event: object) -> None:
        assert isinstance(event, FetchTold)
        if self._asker is not None and self._asker.csp == event.csp:
            await self._asker.told(link, event)  # which takes nothing from another host

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Takes what is lost, for the length of a block."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work)
            nursery.start_soon(self._end_giving)
            yield
            nursery.cancel_scope.cancel()

    async def _end_giving(self) -> None:
        """Tells, each time, that this host gives no other one a store file any more."""
        while True:
            if self._given or self._gave_until == -math.inf:
                await self._changed.wait()
            elif trio.current_time() < self._gave_until:
                await trio.sleep_until(self._gave_until)
            else:
                self._gave_until = -math.inf
                self._looked()

    async def _work(self) -> None:
        while True:
            for name in [name for name, links in self._lost.items() if links]:
                links = self._lost.get(name)
                if not links:  # it was removed while another one's files came
                    continue
                self._is_taking = True
                await self._take(name, links.pop())
                self._is_taking = False
                self._looked()
            if not any(self._lost.values()):
                with trio.move_on_at(
                    min((when for when, _ in self._later.values()), default=math.inf)
                ):
                    await self._changed.wait()
                self._ask_again()

    def _ask_again(self) -> None:
        """Those that were kept from it by something that passes."""
        now = trio.current_time()
        for (name, host_id), (when, link) in list(self._later.items()):
            if when <= now or name not in self._lost:
                del self._later[name, host_id]
            if when <= now and name in self._lost:
                self._lost[name].append(link)

    def _path_of(self, name: str) -> Path:
        if name not in self._paths:
            raise Refused("the queue was removed")
        return self._paths[name]

    async def _take(self, name: str, link: LinkView) -> None:
        """Takes what a queue has lost over this link."""
        try:
            with Queue.open(self._path_of(name)) as queue:
                wanted = await in_thread(partial(wanting, queue.cycles, self._known.get(name)))
                if not wanted:
                    self._lacks_none(name)
                    return
                self._asker = asker = Asker(queue, wanted, name, stays=False)
                await asker.connected(link)
                await asker.ended(f"host {link.remote_id}")
                asker.check()
        except LocalProtocolError:
            return  # the connection is over
        except (Refused, Unreachable, QueueError, OSError) as error:
            _logger.warning("queue %r: host %d: %s", name, link.remote_id, error)
            if isinstance(error, Unreachable) or _may_pass(error):
                self._later[name, link.remote_id] = trio.current_time() + AGAIN_SECONDS, link
            return
        finally:
            self._asker = None
        self._lost.pop(name, None)
        self._mended_until[name] = trio.current_time() + REST_SECONDS
        files = ", ".join(
            f"{queue.cycles.path_of(each.cycle).name} ({plural(each.excerpts, 'excerpt')})"
            for each in wanted
        )
        told = "queue %r: host %d gave back %s; it is whole again"
        _logger.warning(told, name, link.remote_id, files)
        self._restored(name)

    def _lacks_none(self, name: str) -> None:
        """It is damaged otherwise, or was found so by a look that began before it was mended."""
        now = trio.current_time()
        self._lost.pop(name, None)
        self._rests[name] = now + REST_SECONDS
        if now < self._mended_until.pop(name, -math.inf):
            self._restored(name)


def _may_pass(error: Refused | QueueError | OSError) -> bool:
    return not isinstance(error, Refused) and is_passing(error)
