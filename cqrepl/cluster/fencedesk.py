"""Asks other hosts who leads the queues of a running host, and answers what they ask.

Theory of operation. A host that is asked for a promise calls back the connection that its copy
takes from; or, if it streams the queue, keeps the writers of its machine out, and streams it no
more. It notes the promise, which is on the disk then; and only then answers. From the answer on
nothing gets into its copy but from the new leader.

A host that leads says so to each peer that connects: a copy that was away promises then, and an old
leader that comes back steps down and follows.
"""

import logging
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from cqrepl.cluster.fencekind import (
    CSP_PREFIX,
    FENCE_CAPABILITY,
    LEAD_CAPABILITY,
    Asked,
    Asking,
    FenceKind,
    FenceTold,
)
from cqrepl.kernel.chain import has_chains
from cqrepl.net.errors import NetError, Refused, Unreachable
from cqrepl.net.threads import in_thread
from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.capabilities import ENDED_CAPABILITY, MEMBERS_CAPABILITY
from cqrepl.protocol.messages.fences import (
    POSITION,
    CopyPosition,
    FenceBy,
    FenceRequest,
    FenceVerb,
)
from cqrepl.protocol.messages.fetches import REFUSED, write_refused
from cqrepl.protocol.subhandler import HandlerKind, LinkView
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.epochfile import check_writable
from cqrepl.queue.files.syncedmark import load_synced
from cqrepl.queue.format.epochs import promised_otherwise
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index
from cqrepl.queue.read.chains import Chains
from cqrepl.replicator.hostparts import HostParts
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queueposition import end_of_copy
from cqrepl.replicator.queuestate.appendfence import AppendFence
from cqrepl.replicator.queuestate.pause import PAUSE_SECONDS, PAUSE_SECONDS_MAX
from cqrepl.surroundings import surroundings

ASK_SECONDS: Final = 20.0  # for a host to promise: its connections may begin anew meanwhile
LOOK_SECONDS: Final = 0.05
_WAITING_MAX: Final = 64  # answers
_ASKED_MAX: Final = 1024  # of a queue
_TO_LEAD_MAX: Final = 8  # of a queue: the same host asks again with its next connection
_FAILED: Final = (NetError, QueueError, OSError, ValueError)
_IS_PAUSED: Final = "it is paused by operator: resume it first"
_logger: Final = logging.getLogger(__name__)


Lead = Callable[[str, int], Awaitable[object]]


class Elections(Protocol):
    """The elections of a host."""

    def refusal(self, name: str, candidate: int) -> str:
        """The reason why a host gets no promise of a queue by election; empty where it does."""

    def hears_leader(self, name: str) -> bool:
        """True while this host hears a leader of a queue."""

    def promised(self, name: str, leader: int, epoch: int) -> None:
        """This host has promised an epoch of a queue."""


class FenceDesk:
    """A program on the connections of a host of a cluster, beside those of the user."""

    def __init__(self, host: HostParts) -> None:
        self._kind = FenceKind(host.settings.protocol.remote_ids)
        self._lead_kind = FenceKind.of_leads(host.settings.protocol.remote_ids)
        self.kinds: tuple[HandlerKind, ...] = (self._kind, self._lead_kind)
        self._host = host
        self._own = host.settings.protocol.host_id
        self._links: dict[int, LinkView] = {}  # the last one of each host
        self._asked_in, self._asked = trio.open_memory_channel[Asked](_ASKED_MAX)
        self._waiting: dict[str, deque[Asked]] = {}  # by queue, of those that are answered
        self._told: list[tuple[int, str, int]] = []  # hosts, queues and epochs, to be announced
        self._announced: set[tuple[int, str, int]] = set()  # those that are being announced
        self._has_news = trio.Event()
        self._to_lead: Counter[str] = Counter()  # requests to lead that are answered, by queue
        self.elections: Elections | None = None  # of a host that elects
        self.lead: Lead  # makes this host the leader, in place of the host that asks

    async def connected(self, link: LinkView) -> None:
        if FENCE_CAPABILITY not in link.capabilities:
            self._links.pop(link.remote_id, None)  # it may have been newer before
        elif link.remote_id:
            self._links[link.remote_id] = link
            for name in self._host.source.names:
                self._tell(link.remote_id, name)

    def announce(self, name: str) -> None:
        """This host leads a queue: all that are connected are asked to promise that, if they have
        not."""
        for host_id in self._there:
            self._tell(host_id, name)

    @property
    def _there(self) -> Set[int]:
        """The hosts that are connected, and can be asked."""
        return self._host.endpoint.connections.keys() & self._links.keys()

    def _tell(self, host_id: int, name: str) -> None:
        queue = self._host.source.queues.get(name)
        if queue is None:  # it is not open yet: it is announced then
            return
        now = queue.epochs.now
        members = now.members or self._host.settings.members.get(name)
        if members and host_id not in members:
            return
        if now.promised and now.may_lead(self._own):
            self._told.append((host_id, name, now.promised))
            self._has_news.set()

    async def told(self, link: LinkView, event: object) -> None:
        if isinstance(event, Asked):
            if why := link.refusal("lead", event.name):
                event.answer(write_refused(why))
                return
            await self._asked_in.send(event)
        else:
            assert isinstance(event, FenceTold)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # no task waits
                await event.channel.send((event.name, event.value))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers, and announces, for the length of a block."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_all)
            nursery.start_soon(self._announce_all)
            yield
            nursery.cancel_scope.cancel()

    async def position(self, host_id: int, name: str, request: FenceRequest) -> CopyPosition:
        """The position of a host's copy, as it says; with another connection it is asked again.

        Raises:
            Refused: it does not do what it is asked for, and says why.
            Unreachable: it does not answer.
        """
        with trio.move_on_after(surroundings().rarely("ask", ASK_SECONDS, 0.002, 0.5)):
            while True:
                try:
                    async with self._asked_of(host_id, name, request) as answers:
                        said, value = await answers.receive()
                except (Unreachable, trio.EndOfChannel):
                    await trio.sleep(LOOK_SECONDS)
                    continue
                if said == REFUSED:
                    raise Refused(f"host {host_id}: {value}")
                if said == POSITION and isinstance(value, CopyPosition):
                    return value
                raise Refused(f"host {host_id}: its position expected, {said!r} came")
        raise Unreachable(f"host {host_id} does not say how far its copy of {name!r} is")

    def knows_leads(self, host_id: int) -> bool | None:
        """True where a host that is connected can be asked to lead; None where it is away."""
        found = self._host.endpoint.connections.get(host_id)
        if found is None:
            return None
        return LEAD_CAPABILITY in found[0].connection.link.capabilities

    async def ask_to_lead(self, host_id: int, name: str) -> None:
        """Has another host be promoted in place of this one; returns when it leads. With another
        connection it is asked again: connections may begin anew meanwhile.

        Raises:
            Refused: it does not, and says why.
            Unreachable: it is not connected any more.
        """
        request = FenceRequest(verb=FenceVerb.LEAD)
        with trio.move_on_after(ASK_SECONDS) as without_it:
            while True:
                try:
                    async with self._asked_of(host_id, name, request) as answers:
                        without_it.deadline = math.inf  # as long as that connection lasts
                        said, value = await answers.receive()
                except (Unreachable, trio.EndOfChannel):
                    without_it.deadline = min(
                        without_it.deadline, trio.current_time() + ASK_SECONDS
                    )
                    await trio.sleep(LOOK_SECONDS)
                    continue
                if said == POSITION:
                    return
                raise Refused(f"host {host_id}: {value}")
        raise Unreachable(f"host {host_id} left before it led")

    @asynccontextmanager
    async def excerpts(
        self, host_id: int, name: str, request: FenceRequest
    ) -> AsyncIterator["trio.MemoryReceiveChannel[tuple[str, Any]]"]:
        """The parts that a host sends of its copy, one after the other, for the length of a block.

        Raises:
            Unreachable: it is not connected.
            Refused: it is too old for that.
        """
        async with self._asked_of(host_id, name, request) as answers:
            yield answers

    @asynccontextmanager
    async def _asked_of(
        self, host_id: int, name: str, request: FenceRequest
    ) -> AsyncIterator["trio.MemoryReceiveChannel[tuple[str, Any]]"]:
        """A conversation with a host, which ends with the block: neither side keeps it."""
        link = self._links.get(host_id)
        if link is None:
            raise Unreachable(f"host {host_id} is not connected")
        if request.members and MEMBERS_CAPABILITY not in link.capabilities:
            raise Refused(f"host {host_id} is too old to know members of a queue")
        into, answers = trio.open_memory_channel[tuple[str, Any]](_WAITING_MAX)
        csp = CSP_PREFIX + name
        try:
            kind = self._lead_kind if request.verb is FenceVerb.LEAD else self._kind
            cid = link.register(csp, kind, request, Asking(csp, link, into))
        except LocalProtocolError as error:  # that connection is over
            raise Unreachable(f"host {host_id} is not connected") from error
        link.wake(cid)
        try:
            async with answers:
                yield answers
        finally:
            # a peer that knows no end of one would never say that nothing more comes
            if ENDED_CAPABILITY in link.capabilities:
                with suppress(LocalProtocolError):  # that connection is over, or the peer ended it
                    link.wake(cid)
                    link.remove(cid)

    async def _announce_all(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await self._has_news.wait()
                self._has_news = trio.Event()
                told, self._told = self._told, []
                for each in dict.fromkeys(told):
                    if each not in self._announced:
                        self._announced.add(each)
                        nursery.start_soon(self._announce, *each)

    async def _announce(self, host_id: int, name: str, epoch: int) -> None:
        """Until that host has promised, or is away: it is told again when it comes. What keeps it
        from that may pass; so may its silence, while it is connected."""
        seconds, said = PAUSE_SECONDS, ""
        try:
            while (asked := self._to_announce(name, epoch)) is not None:
                try:
                    await self.position(host_id, name, asked)
                    return
                except NetError as error:
                    if isinstance(error, Unreachable) and host_id not in self._there:
                        return
                    if str(error) != said:
                        _logger.warning("queue %r: epoch %d: %s", name, epoch, error)
                    said = str(error)
                await trio.sleep(seconds)
                seconds = min(2 * seconds, PAUSE_SECONDS_MAX)
        finally:
            self._announced.discard((host_id, name, epoch))

    def _to_announce(self, name: str, epoch: int) -> FenceRequest | None:
        """The request to promise an epoch; None where this host leads in it no longer."""
        queue = self._host.source.queues.get(name)
        if queue is None or queue.epochs.now.promised != epoch:
            return None
        now = queue.epochs.now
        members = now.members if now.listed == epoch else frozenset[int]()
        return FenceRequest(verb=FenceVerb.FENCE, epoch=epoch, members=members)

    async def _answer_all(self) -> None:
        """One after the other of each queue: one that is busy holds up no other one."""
        async with trio.open_nursery() as nursery:
            async for asked in self._asked:
                name = asked.name
                if asked.request.verb is FenceVerb.LEAD:
                    if self._to_lead[name] < _TO_LEAD_MAX:
                        self._to_lead[name] += 1
                        nursery.start_soon(self._answer_lead, asked)
                    else:
                        asked.answer(write_refused(f"more than {_TO_LEAD_MAX} wait for that"))
                    continue
                waiting = self._waiting.get(name)
                if waiting is not None:
                    if len(waiting) < _ASKED_MAX:
                        waiting.append(asked)
                    else:
                        asked.answer(write_refused(f"more than {_ASKED_MAX} wait for {name!r}"))
                    continue
                if name in self._host.settings.sink.masters:
                    self._waiting[name] = deque([asked])
                    nursery.start_soon(self._answer_in_turn, name)
                else:  # any text may come, and gets no task of its own
                    asked.answer(write_refused(f"there is no queue {name!r}"))

    async def _answer_lead(self, asked: Asked) -> None:
        """In a task of its own: other hosts are asked meanwhile, and may ask this one."""
        try:
            if asked.name not in self._host.settings.sink.masters:
                raise Refused(f"there is no queue {asked.name!r}")
            await self.lead(asked.name, asked.leader)
            asked.tell(self.own_position(asked.name))
        except _FAILED as error:
            asked.answer(write_refused(str(error)))
        finally:
            self._to_lead[asked.name] -= 1
            self._to_lead += Counter()  # those that are zero are forgotten

    async def _answer_in_turn(self, name: str) -> None:
        waiting = self._waiting[name]
        while waiting:
            asked = waiting.popleft()
            if asked.is_over:  # the host that asked waits no more
                continue
            try:
                await self._answer(asked)
            except _FAILED as error:
                asked.answer(write_refused(str(error)))
        del self._waiting[name]

    async def _answer(self, asked: Asked) -> None:
        request, name = asked.request, asked.name
        if request.verb is FenceVerb.SEND:
            path = self._host.path_of(name)
            await in_thread(partial(_check_prefix, path, request))
            asked.give(path)
            return
        if request.verb is FenceVerb.FENCE:
            if request.by is FenceBy.ELECTION:
                self.check_hears_none(name, asked.leader)
            await self.promise(name, request.epoch, asked.leader, request.members)
            position = self.own_position(name)
        else:
            position = await self.tried_position(name, Index(request.first))
        if self.elections is not None and self.elections.hears_leader(name):
            position = replace(position, hears=True)
        asked.tell(position)

    async def tried_position(self, name: str, first: Index = NEXT_OF_EMPTY) -> CopyPosition:
        """The position of this host's copy, which also tells whether it could promise anything now.

        Args:
            first: with the chain over what it has before that; 0: with none.

        Raises:
            ValueError, Refused, QueueError: as `own_position`; or that cannot be read.
        """
        position = self.own_position(name)
        position = replace(position, chain=await self.own_chain(name, first))
        try:
            await in_thread(partial(check_writable, self._host.path_of(name)))
        except OSError as error:
            return replace(position, unwritable=str(error))
        return position

    async def own_chain(self, name: str, first: Index) -> bytes:
        """The chain over what this host's copy has of the cycle before an index; none for 0, or
        where no library reckons it.

        Raises:
            QueueError: that cannot be read.
        """
        if first == NEXT_OF_EMPTY or not has_chains():
            return b""
        return await in_thread(partial(_chain_at, self._host.path_of(name), first))

    def own_position(self, name: str) -> CopyPosition:
        """The position of this host's copy.

        Raises:
            ValueError: there is no such queue.
            Refused: it has stopped, or is not open.
            QueueError: it cannot be read.
        """
        self._host.path_of(name)
        taken = self._host.sink.queues.get(name)
        if taken is not None:
            if taken.life.stop is not None:
                raise Refused(str(taken.life.stop))
            trouble, is_paused = taken.life.trouble, taken.life.is_paused
            if trouble is not None and trouble.is_peers:  # what its source cannot do
                trouble = None
            return CopyPosition(
                next_index=end_of_copy(taken),
                epochs=taken.epochs.now,
                is_source=False,
                is_there=taken.is_there,
                held=_IS_PAUSED if is_paused else "",
                trouble="" if trouble is None else trouble.message,
                unproved=_unproved(taken),
            )
        streamed = self._host.source.queues.get(name)
        if streamed is None:
            raise Refused(f"queue {name!r} is not open yet")
        end = streamed.queue.next_index()
        return CopyPosition(
            next_index=end,
            epochs=streamed.epochs.now,
            is_source=True,
            held=_IS_PAUSED if streamed.life.hold.reason is not None else "",
            unproved=_unproved_source(streamed),
        )

    def check_hears_none(self, name: str, candidate: int) -> None:
        """Does nothing where a host may be elected as the leader of a queue, as far as this host
        knows.

        Raises:
            Refused: this host hears another leader.
        """
        why = "" if self.elections is None else self.elections.refusal(name, candidate)
        if why:
            raise Refused(f"queue {name!r}: {why}")

    async def promise(
        self,
        name: str,
        epoch: int,
        leader: int,
        members: frozenset[int] = frozenset(),
        fence: AppendFence | None = None,
    ) -> None:
        """Nothing is taken from a lower epoch from now on, and nothing is streamed from here until
        the epoch is begun here.

        Args:
            members: of the queue in that epoch; empty where it names none.
            fence: stands before a queue that is streamed.

        Raises:
            ValueError: there is no such queue.
            Refused: it, or a higher one, is promised to another host.
            QueueError, OSError: it cannot be given back, or the promise may not be on the disk.
        """
        async with self._host.direction.turn(name):
            await self._promise(name, epoch, leader, members, fence)

    async def _promise(
        self,
        name: str,
        epoch: int,
        leader: int,
        members: frozenset[int],
        fence: AppendFence | None,
    ) -> None:
        streamed = self._host.source.queues.get(name)
        taken = self._host.sink.queues.get(name)
        queue = streamed or taken
        if queue is None:
            raise Refused(f"there is no queue {name!r} that is open")
        if streamed is not None and taken is not None:
            raise Refused(f"queue {name!r} is passed on from here: it gets no other leader so")
        now = queue.epochs.now
        is_known = (epoch, leader) == (now.promised, now.promised_to)
        if epoch <= now.promised and not (is_known or queue.epochs.may_give_up(epoch)):
            raise Refused(promised_otherwise(now, epoch, leader))
        if streamed is not None:  # though it may have heard so from another copy
            step_down = self._host.direction.step_down
            await step_down(streamed, epoch, leader, members=members, fence=fence)
        elif is_known:
            await in_thread(partial(queue.epochs.promise, epoch, leader, members))
            return
        else:
            await self._host.sink.promise(name, epoch, leader, members)
        _logger.info("queue %r: epoch %d is promised to host %d", name, epoch, leader)
        if self.elections is not None:
            self.elections.promised(name, leader, epoch)


def _unproved_source(streamed: SourceQueue) -> Index | None:
    """As `_unproved`, of a queue that is streamed, once its host has promised."""
    disk = streamed.disk
    unproved = disk.unproved_when_opened
    return disk.lacks_from if unproved is None else unproved


def _unproved(taken: SinkQueue) -> Index | None:
    """From where on a power cut may have torn, or taken, what a copy holds, which may not be
    open."""
    if taken.is_open:
        unproved = taken.disk.unproved_from
        return taken.disk.lacks_from if unproved is None else unproved
    mark = load_synced(taken.path) if taken.is_there else None
    if mark is None:
        return None
    end = end_of_copy(taken)
    doubtful = mark.doubtful_before(end)
    if not doubtful and mark.is_of_this_boot:
        return None
    return Index(doubtful.start) if doubtful else end


def _chain_at(path: Path, first: Index) -> bytes:
    with Queue.open(path) as queue:
        return Chains(queue.cycles).at(first)


def _check_prefix(path: Path, request: FenceRequest) -> None:
    """Looks whether who asks holds what is here, up to where it is to be sent from.

    Raises:
        Refused: it does not.
        QueueError: a store file cannot be read.
    """
    if request.first == NEXT_OF_EMPTY or not has_chains():
        return
    if _chain_at(path, Index(request.first)) != request.chain:
        raise Refused("the two copies differ before the end of the shorter one")
