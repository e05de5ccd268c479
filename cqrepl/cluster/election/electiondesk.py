"""Elects the leaders of a running host's queues: it says which ones this host leads, hears which
ones other hosts lead, and has this host promoted, or step down, as `HostElections` decides.

All times are of CLOCK_BOOTTIME, also those that a `leads` is sent at, which is taken before it is
written: a lease can only count too short.
"""

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final, Protocol

import trio

from cqrepl.cluster.election.candidacy import Candidacy, why_not_to_lead_on
from cqrepl.cluster.election.electionstates import ElectionState
from cqrepl.cluster.election.hostelections import NO_PROMISE, HostElections, Promised
from cqrepl.cluster.election.leadskind import (
    CSP,
    ELECTS_CAPABILITY,
    HearsTold,
    LeadsKind,
    LeadsTold,
    OtherLease,
    Telling,
)
from cqrepl.cluster.election.queueelection import (
    NO_HOST,
    CopySight,
    Electors,
    QueueElection,
    Wish,
)
from cqrepl.cluster.election.rolecommands import RoleCommands
from cqrepl.cluster.election.toldleases import DeskLease, tell_until
from cqrepl.cluster.fencedesk import FenceDesk
from cqrepl.cluster.promoter import Promoter
from cqrepl.net.errors import NetError
from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.messages.fences import CopyPosition, FenceBy, FenceRequest, FenceVerb
from cqrepl.protocol.subhandler import HandlerKind, LinkView
from cqrepl.queue import QueueError
from cqrepl.queue.format.epochs import History, number_of
from cqrepl.replicator.electionsettings import ElectionKind, ElectionSettings
from cqrepl.replicator.hostparts import HostParts
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.surroundings import surroundings

LOOK_SECONDS: Final = 0.1  # at most between two looks at who leads and who is connected, or
LOOKS_PER_LEASE: Final = 10
MEMBERS_SECONDS: Final = 1.0  # between two looks at the members of all queues
REST_SECONDS: Final = 0.01  # at least between two looks without news
QUIET_LEASES: Final = 10  # of a member that has all, before its queue is given back
GIVE_BACK_SECONDS: Final = 60.0  # at least between two queues that are
GRACE_SECONDS: Final = 0.05  # for further members, once those that answered are a majority
_FAILED: Final = (NetError, QueueError, OSError, ValueError)
_WHERE: Final = FenceRequest(verb=FenceVerb.WHERE)
_logger: Final = logging.getLogger(__name__)


HandOver = Callable[[str, int], Awaitable[None]]


class Candidates(Protocol):
    """The candidacies of this host at another service, which says who asks for promises."""

    @property
    def is_over(self) -> bool: ...

    def running(self) -> AbstractAsyncContextManager[None]: ...

    def stand(self, names: Iterable[str]) -> None: ...

    def is_first(self, name: str) -> bool: ...

    async def note(self, name: str, history: History) -> None: ...


class ElectionDesk:
    """A program on the connections of a host of a cluster, beside those of the user.

    Args:
        desk: asks other hosts how far their copies are.
        promoter: makes this host the leader.
        hand_over: has another host lead a queue in place of this one.

    Attributes:
        commands: that are run when this host has another role; None: none is.
    """

    def __init__(
        self,
        host: HostParts,
        desk: FenceDesk,
        promoter: Promoter,
        hand_over: HandOver,
        settings: ElectionSettings,
    ) -> None:
        self._candidates: Candidates | None = None
        self._host = host
        self._desk = desk
        self._promoter = promoter
        self._hand_over = hand_over
        self.commands = RoleCommands(settings.on_role) if settings.on_role else None
        self._candidacy = Candidacy(desk.own_position, host.fitness)
        self._equal_since: dict[str, float] = {}  # queues whose preferred member has all of them
        self._given_back = -math.inf  # when this host tried to give the last queue back
        self._settings = settings
        self._own = host.settings.protocol.host_id
        lease_ms = round(settings.lease_seconds * 1000)
        self._kind = LeadsKind(host.settings.protocol.remote_ids, lease_ms)
        self.kinds: tuple[HandlerKind, ...] = (self._kind,)
        self._telling: dict[int, Telling] = {}  # by peer, of its last connection
        self._elects: dict[int, bool] = {}  # the same peers
        self._elections = HostElections({}, self._now, surroundings().uniform)
        self._connected: frozenset[int] = frozenset()
        self._names: frozenset[str] = frozenset()  # of all queues, as it was looked last
        self._members_due = -math.inf  # when members are looked at again
        self._electors_known: dict[str, Electors] = {}
        self._busy: set[str] = set()  # queues that this host is being promoted for, or steps down
        self._nursery: trio.Nursery
        self._has_news = trio.Event()
        self._heard = trio.Event()  # some member has answered
        if settings.zookeeper is not None:  # an optional package
            from cqrepl.cluster.election.zookeepercandidates import ZooKeeperCandidates

            self._candidates = ZooKeeperCandidates(settings.zookeeper, self._own, self._wake)
        desk.elections = self

    @property
    def _now(self) -> float:
        return surroundings().boottime()

    @property
    def queues(self) -> Mapping[str, QueueElection]:
        """The election of each queue."""
        return self._elections.queues

    @property
    def cannot_elect(self) -> list[int]:
        """The members that keep all others from electing."""
        return self._elections.cannot_elect

    def refusal(self, name: str, candidate: int) -> str:
        """The reason why this host gives that one no promise by election; empty where it does."""
        if not self._electors_known:  # it is asked before its first look
            self._set_queues()
        queue = self.queues.get(name)
        if queue is None or not queue.refuses(candidate, self._now):
            return ""
        if queue.leader in (NO_HOST, self._own):
            return f"host {self._own} asks for promises itself, or began less than a lease ago"
        return f"host {self._own} hears host {queue.leader}, which leads in epoch {queue.epoch}"

    def hears_leader(self, name: str) -> bool:
        """True while this host hears a leader of a queue, or leads it under a lease."""
        queue = self.queues.get(name)
        return queue is not None and queue.hears_leader(self._now)

    def promised(self, name: str, leader: int, epoch: int) -> None:
        """This host has promised an epoch of a queue; at once, not at the next look."""
        queue = self.queues.get(name)
        if queue is not None and leader != self._own:
            queue.promised(leader, epoch, self._now)

    def lease_holds(self, name: str, epoch: int) -> bool:
        """True while this host leads in that epoch, and no other host can have been elected. Any
        thread may ask."""
        queue = self.queues.get(name)
        return queue is not None and queue.epoch == epoch and queue.may_read(self._now)

    async def lease_renewed(self, name: str, epoch: int) -> bool:
        """Asks the members once more where the lease is over; true once it holds again."""
        self._say()
        with trio.move_on_after(self._settings.lease_seconds):
            while not self.lease_holds(name, epoch):
                queue = self.queues.get(name)
                if queue is None or queue.lease is None or queue.epoch != epoch:
                    return False
                heard = self._heard
                await heard.wait()
            return True
        return False

    async def connected(self, link: LinkView) -> None:
        host_id = link.remote_id
        if not host_id:
            return
        telling, elects = Telling(CSP, link), ELECTS_CAPABILITY in link.capabilities
        if elects:
            try:
                telling.cid = link.register(CSP, self._kind, self._kind.lease_ms, telling)
            except LocalProtocolError:  # that connection is over already
                return
            link.wake(telling.cid)
        else:
            _logger.warning(
                "host %d cannot elect: nothing is elected while it is a member", host_id
            )
        self._telling[host_id], self._elects[host_id] = telling, elects
        self._connected |= {host_id}
        self._elections.connected(host_id, self._now, elects=elects)
        self._wake()

    async def told(self, link: LinkView, event: object) -> None:
        now = self._now
        match event:
            case LeadsTold():
                event.by.answer(
                    self._elections.told_leads(link.remote_id, event.leads, self._promised, now)
                )
            case HearsTold():
                self._elections.told_hears(event.host_id, event.hears, now)
                self._heard.set()
                self._heard = trio.Event()
            case OtherLease():
                _logger.error(
                    "host %d has a leaseTimeout of %d ms, and this host one of %d ms: nothing is"
                    " elected before both have the same",
                    event.host_id,
                    event.lease_ms,
                    self._kind.lease_ms,
                )
                self._elects[event.host_id] = False
                self._elections.connected(event.host_id, now, elects=False)
        self._wake()

    def _wake(self) -> None:
        self._has_news.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Elects for the length of a block."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._look()
            nursery.start_soon(self._work)
            async with AsyncExitStack() as stack:
                if self.commands is not None:
                    await stack.enter_async_context(self.commands.running())
                if self._candidates is not None:
                    await stack.enter_async_context(self._candidates.running())
                yield
            nursery.cancel_scope.cancel()

    async def _work(self) -> None:
        next_say = -math.inf
        while True:
            self._has_news = trio.Event()
            self._look()
            now = self._now
            if now >= next_say:
                self._say()
                next_say = now + self._elections.says_every
            for name, wish in self._elections.tick(now):
                self._nursery.start_soon(self._do, name, wish)
            look = max(LOOK_SECONDS, self._settings.lease_seconds / LOOKS_PER_LEASE)
            until = min(next_say, self._elections.deadline, now + look)
            with trio.move_on_after(max(REST_SECONDS, until - self._now)):
                await self._has_news.wait()

    def _say(self) -> None:
        """Tells each member which queues this host leads, and programs of this machine until
        when."""
        queues = self._host.source.queues
        for name in self.queues.keys() & queues.keys():
            self._tell_programs(queues[name], self.queues[name])
        safe = {
            name: queues[name].leading.safe_index()
            for name, each in self.queues.items()
            if each.lease is not None and name in queues
        }
        for host_id, telling in self._telling.items():
            if host_id in self._connected:
                for leads in self._elections.leads_for(host_id, safe, self._now):
                    telling.say(leads)

    def _tell_programs(self, streamed: SourceQueue, election: QueueElection) -> None:
        tell_until(streamed, election.leads_until(self._now) if self._leads(streamed) else 0.0)

    def _set_queues(self) -> None:
        """The queues that there are now, and their members: a reload or an epoch may have changed
        them."""
        electors = {name: self._electors(name) for name in self._host.settings.sink.masters}
        electors = {name: each for name, each in electors.items() if self._own in each.members}
        if electors != self._electors_known:
            self._electors_known = electors
            self._elections.set_queues(electors, self._now)

    def _electors(self, name: str) -> Electors:
        settings, queue = self._settings, self._queue(name)
        everyone = self._host.settings.protocol.remote_ids | {self._own}
        promised = frozenset[int]()  # those of an epoch go before those of the file
        with suppress(OSError, QueueError):
            promised = queue.epochs.now.members if queue is not None else promised
        return Electors(
            own=self._own,
            members=promised or settings.members.get(name, everyone),
            lease_seconds=settings.lease_seconds,
            preferred=settings.preferred.get(name, NO_HOST),
            elects=settings.kind is ElectionKind.MAJORITY,
        )

    def _queue(self, name: str) -> SourceQueue | SinkQueue | None:
        return self._host.sink.queues.get(name) or self._host.source.queues.get(name)

    def _look(self) -> None:
        """Takes in what has become of the queues and connections."""
        now = self._now
        names = self._host.settings.sink.masters.keys()
        if names != self._names or now >= self._members_due:
            self._names = frozenset(names)
            self._members_due = now + MEMBERS_SECONDS
            self._set_queues()
        there = frozenset(self._host.endpoint.connections.keys() & self._telling.keys())
        for host_id in self._connected - there:
            self._elections.lost(host_id, now)
        for host_id in there - self._connected:
            self._elections.connected(host_id, now, elects=self._elects[host_id])
        self._connected = there
        for name, each in self.queues.items():
            if name not in self._busy:
                self._look_at(name, each, now)
                self._candidacy.look_at(name, each, now)
        self._look_at_candidates()

    def _look_at_candidates(self) -> None:
        """Stands for the queues whose copies here are in order; and leads none any longer than the
        session lasts."""
        if self._candidates is None:
            return
        fit, now = [], self._now
        for name, each in self.queues.items():
            with suppress(*_FAILED):
                if each.lease is not None or self._candidacy.is_fit(name, now):
                    fit.append(name)
            each.is_chosen = self._candidates.is_first(name)
            if each.lease is not None and self._candidates.is_over and name not in self._busy:
                self._busy.add(name)
                why = "its session with ZooKeeper is over"
                self._nursery.start_soon(self.step_down, name, why)
        self._candidates.stand(fit)

    def _look_at(self, name: str, election: QueueElection, now: float) -> None:
        streamed = self._host.source.queues.get(name)
        if streamed is not None and self._leads(streamed):
            if election.lease is None or election.epoch != streamed.leading.epoch:
                self._begins(name, streamed.leading.epoch, is_elected=False)
            self._look_at_preferred(name, streamed, now)
            why = why_not_to_lead_on(election, self._host.source.ahead_for(name))
            rests = bool(why)
            if streamed.leading.has_stepped_down:
                why = "its policy has had it step down"
            if why:
                self._busy.add(name)
                self._nursery.start_soon(partial(self.step_down, name, why, rests=rests))
            return
        self._equal_since.pop(name, None)
        if election.lease is not None:
            election.leads_no_longer(now)
            if streamed is not None:
                self._tell_programs(streamed, election)
        promised = self._promised(name)
        if promised.leader not in (NO_HOST, self._own):
            election.promised(promised.leader, promised.epoch, now)

    def _look_at_preferred(self, name: str, streamed: SourceQueue, now: float) -> None:
        """Gives a queue back to the member that leads it first, once all has been quiet there."""
        election = self.queues[name]
        preferred = election.electors.preferred
        if not self._settings.gives_back or preferred in (NO_HOST, self._own):
            return
        has_all = preferred in self._connected and election.may_read(now)
        with suppress(QueueError, OSError):
            last = streamed.queue.last_index()
            has_all = has_all and streamed.marks_of(preferred).acknowledged >= (last or 0)
        if not has_all:
            self._equal_since.pop(name, None)
            return
        quiet = (
            self._equal_since.setdefault(name, now) + QUIET_LEASES * election.electors.lease_seconds
        )
        if now >= max(quiet, self._given_back + GIVE_BACK_SECONDS):
            self._given_back = now
            self._busy.add(name)
            self._nursery.start_soon(self._give, name, preferred)

    async def _give(self, name: str, to: int) -> None:
        """Hands a queue over to a member that is to lead it."""
        try:
            await self._hand_over(name, to)
        except _FAILED as error:
            _logger.warning("queue %r: not handed over to host %d: %s", name, to, error)
        else:
            _logger.info("queue %r: handed over to host %d", name, to)
        finally:
            self._busy.discard(name)
            self._wake()

    def _begins(self, name: str, epoch: int, *, is_elected: bool) -> None:
        election = self.queues[name]
        election.leads(epoch, self._now, is_elected=is_elected)
        streamed = self._host.source.queues.get(name)
        if streamed is not None:
            streamed.leading.lease = DeskLease(self, name, epoch)
        _logger.info("queue %r: this host leads it in epoch %d", name, epoch)
        self._say()  # its lease counts from there
        self._wake()

    def _leads(self, streamed: SourceQueue) -> bool:
        with suppress(OSError, QueueError):
            now = streamed.epochs.now
            leads = bool(now.promised) and streamed.copy is None and now.may_lead(self._own)
            return leads and not streamed.leading.why_fenced
        return False

    def _promised(self, name: str) -> Promised:
        queue = self._queue(name)
        with suppress(OSError, QueueError):
            if queue is not None:
                now = queue.epochs.now
                return Promised(now.promised, now.promised_to) if now.promised else NO_PROMISE
        return NO_PROMISE

    async def _do(self, name: str, wish: Wish) -> None:
        if name in self._busy:  # a leader wishes it until it is done
            if name in self.queues and wish in (Wish.ASK_WHERE, Wish.FENCE):
                self.queues[name].put_off("this host gives the queue away, or takes it", self._now)
            return
        match wish:
            case Wish.ASK_WHERE:
                sights = await self._sights(name)
                if name in self.queues:
                    self.queues[name].positions(sights, self._now)
            case Wish.FENCE | Wish.RENEW:
                await self._lead(name)
            case Wish.STEP_DOWN:
                members = len(self.queues[name].electors.members)
                await self.step_down(name, f"no majority of its {members} members has heard it")
        self._wake()

    async def _sights(self, name: str) -> dict[int, CopySight]:
        """The copies of the members that answer soon enough, this host's among them."""
        electors, found = self.queues[name].electors, dict[int, CopySight]()
        news = trio.Event()

        async def ask(host_id: int) -> None:
            nonlocal news
            with suppress(*_FAILED):
                position = await self._desk.position(host_id, name, _WHERE)
                found[host_id] = _sight(position, hears=position.hears)
                news.set()

        with suppress(*_FAILED):
            own = self._desk.own_position(name)
            found[self._own] = _sight(own, hears=self.hears_leader(name))
        asked = electors.others & self._connected
        with trio.move_on_after(electors.lease_seconds / 2) as limit:
            async with trio.open_nursery() as nursery:
                for host_id in sorted(asked):
                    nursery.start_soon(ask, host_id)
                wanted = electors.majority if electors.elects else len(asked) + 1
                while len(found) < wanted:
                    await news.wait()
                    news = trio.Event()
                if len(found) > len(asked):
                    nursery.cancel_scope.cancel()
                limit.deadline = min(limit.deadline, trio.current_time() + GRACE_SECONDS)
        return found

    async def _lead(self, name: str) -> None:
        """Has this host promoted."""
        self._busy.add(name)
        try:
            plan = await self._promoter.promote(name, by=FenceBy.ELECTION)
        except _FAILED as error:
            _logger.warning("queue %r: not elected: %s", name, error)
            if name in self.queues:
                self.queues[name].refused(str(error), self._now)
                self._candidacy.rest(name, self._now + self._settings.lease_seconds)
        else:
            if name in self.queues:
                self._begins(name, plan.epoch, is_elected=True)
                queue = self._queue(name)
                if self._candidates is not None and queue is not None:
                    await self._candidates.note(name, queue.epochs.now.history)
        finally:
            self._busy.discard(name)

    async def step_down(self, name: str, why: str, *, rests: bool = False) -> None:
        """Gives up the lead of a queue. What keeps this host from noting that is logged, and it is
        tried again.

        Args:
            rests: for other members to lead.
        """
        self._busy.add(name)
        try:
            async with self._host.direction.turn(name):
                await self._host.direction.give_up(name, why)
        except _FAILED as error:
            _logger.error("queue %r: this host cannot step down: %s", name, error)
            await trio.sleep(LOOK_SECONDS)  # it is tried again while it leads
            return
        finally:
            self._busy.discard(name)
        if name in self.queues:
            self.queues[name].leads_no_longer(self._now, rests=rests)

    def rest(self, name: str) -> None:
        """This host has given up the lead of a queue by an operator's word: others lead it."""
        if name in self.queues:
            self.queues[name].leads_no_longer(self._now, rests=True)

    def fields(self, name: str) -> dict[str, object] | None:
        """For `status`; None for a queue that is not elected."""
        queue = self.queues.get(name)
        if queue is None:
            return None
        now = self._now
        seconds = None if queue.lease is None else queue.lease.until - now
        return {
            "by": self._settings.kind.value,
            "state": queue.state.name.lower(),
            "leader": queue.leader or None,
            "members": sorted(queue.electors.members),
            "preferred": queue.electors.preferred or None,
            "lease": self._settings.lease_seconds,
            "lease_left": None if seconds is None else round(max(seconds, 0.0), 3),
            "hear": None if queue.lease is None else sorted(queue.lease.hears(now)),
            "cannot_elect": self.cannot_elect if queue.state is ElectionState.OFF else [],
            "refused": queue.last_refusal or None,
            "on_role": None if self.commands is None else self.commands.failures.get(name),
        }


def _sight(position: CopyPosition, *, hears: bool) -> CopySight:
    epoch = number_of(position.epochs.held(position.next_index))
    return CopySight(epoch=epoch, next_index=position.next_index, hears=hears)
