"""Makes a host the leader of a queue, by an operator's word; and tells beforehand what that takes.

In this order: the copies that answer promise the new epoch, this host's own first; what the
farthest of them has and this one lacks comes over from there; the epoch is noted as begun, on the
disk; the queue is streamed from here, and local writers may append. Where it ends before that, the
queue has no leader until an operator promotes a host again; nothing of it is lost or changed.
"""

import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import trio

from cqrepl.cluster.fencedesk import LOOK_SECONDS, FenceDesk
from cqrepl.cluster.lateroles import LateRoles
from cqrepl.cluster.memberlists import MemberLists, NewMembers, members_of, shown
from cqrepl.cluster.promotion import NOBODY, CopyStretch, Promotion, differing, plan_promotion
from cqrepl.kernel.chain import has_chains
from cqrepl.net.errors import NetError, Refused, Unreachable
from cqrepl.net.threads import in_thread
from cqrepl.protocol.messages.fences import CopyPosition, FenceBy, FenceRequest, FenceVerb
from cqrepl.protocol.messages.fetches import DATA_MAX, EXCERPTS, FETCHED, MORE
from cqrepl.queue import ExcerptBatch, Queue, QueueError
from cqrepl.queue.format.epochs import Epoch, History, promised_otherwise
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of, format_index
from cqrepl.replicator.agreement.firstindex import CLOCKS_DIFFER, ends_ahead
from cqrepl.replicator.hostparts import HostParts
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue
from cqrepl.replicator.queuestate.appendfence import AppendFence
from cqrepl.surroundings import surroundings

_logger: Final = logging.getLogger(__name__)
_Positions = dict[int, CopyPosition]
_Whys = dict[int, str]
_ENDS_AHEAD: Final = "ends in times to come, by the clock of the host that is to lead"
_ROOM_BYTES: Final = 1 << 20
COMES_SECONDS: Final = 2.0  # for a host that was connected a moment ago, or may be in a moment
GRACE_SECONDS: Final = 0.2  # for all hosts to answer, where the answers of some would do
LETS_GO_SECONDS: Final = 2.0  # the same for a host that streams the queue: it has writers to stop
ELECTION_SECONDS: Final = 2.0  # for enough hosts to answer one that is to be elected
SILENCE_SECONDS: Final = 40.0  # a host that sends nothing for so long sends nothing


class Promoter:
    """The promotions that one host of a cluster makes."""

    def __init__(self, host: HostParts, desk: FenceDesk) -> None:
        self._host = host
        self._desk = desk
        self._own = host.settings.protocol.host_id
        self._turns: dict[str, trio.Lock] = {}
        self._changes: dict[str, NewMembers] = {}  # under way, by queue

    def turn(self, name: str) -> trio.Lock:
        """Is held while this host is promoted for one queue: another wish to have it so waits, and
        finds it done.

        Raises:
            ValueError: there is no such queue.
        """
        self._host.path_of(name)
        return self._turns.setdefault(name, trio.Lock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers what other hosts ask about it, and finds out who leads the queues whose epochs
        could not be read, for the length of a block."""
        async with self._desk.running(), LateRoles(self._host, self._desk).running():
            yield

    def announce(self, name: str) -> None:
        """Has hosts that are connected follow this one, which leads a queue."""
        self._desk.announce(name)

    async def plan(self, name: str, to: int, *, by: FenceBy = FenceBy.OPERATOR) -> Promotion:
        """The promotion that would have a host lead a queue, as the copies that are connected say
        now.

        Args:
            by: as of `promote`.

        Raises:
            ValueError: there is no such queue, or no such host.
            Refused: that host's copy is not known, or this host's not in order.
        """
        if to not in self._hosts(name):
            ids = ", ".join(map(str, sorted(self._hosts(name))))
            raise ValueError(f"the id of a host ({ids}) expected, {to} came")
        own = await self._desk.tried_position(name)

        trusts = by is FenceBy.ELECTION and CLOCKS_DIFFER in own.trouble

        def known_of(found: _Positions, declined: _Whys) -> tuple[_Positions, _Whys]:
            ahead = self._ahead(name, found) if trusts else {}
            return {self._own: own} | _without(found, ahead), declined | ahead

        def will_do(found: _Answers) -> bool:
            known, cannot = known_of(found.positions, found.declined)
            return to in known and _is_sure(self._planned(name, to, known, cannot))

        asked = FenceRequest(verb=FenceVerb.WHERE)
        answers = await self._all(name, self._others(name), asked, will_do, by=by)
        positions, declined = known_of(*answers)
        if to not in positions:
            usual = f"host {to} is not connected, or has no copy of {name!r}"
            raise Refused(declined.get(to, usual))
        plan = await self._compared(self._planned(name, to, positions, declined), positions)
        return plan if plan.refusal else await self._less_compared(plan)

    async def _compared(self, plan: Promotion, positions: Mapping[int, CopyPosition]) -> Promotion:
        """The plan, refused where what the new leader takes does not follow on what it has. Else,
        with the promises made, the copy that gives would refuse, and no host would lead."""
        lacks, name = plan.returned, plan.queue
        if plan.refusal or lacks is None or lacks.first == NEXT_OF_EMPTY:
            return plan
        chains = {}
        for host_id in (plan.leader, lacks.host):
            try:
                chains[host_id] = await self._chain(host_id, name, lacks.first)
            except (Refused, QueueError) as error:
                return replace(plan, refusal=f"host {host_id} cannot tell what it has: {error}")
            except Unreachable:
                return plan  # it is told by the promises that do not come
        return replace(plan, refusal=differing(plan, positions, chains))

    async def _less_compared(self, plan: Promotion) -> Promotion:
        """The plan without those stretches that chains prove to be the same in both copies; refused
        where they prove that the new leader's is not.

        A chain is over one cycle: nothing is proved where more of them may differ.
        """
        left, refusal = [], ""
        for each in plan.uncompared:
            try:
                shift = await in_thread(partial(_shift_of, self._host.path_of(plan.queue)))
                hosts = (each.host, plan.farthest)
                chains = [await self._chain(host, plan.queue, each.end) for host in hosts]
            except (NetError, QueueError, OSError) as error:
                _logger.warning("queue %r: copies are not compared: %s", plan.queue, error)
                left.append(each)
                continue
            is_one_cycle = cycle_of(each.first, shift) == cycle_of(Index(each.end - 1), shift)
            if not (all(chains) and chains[0] == chains[1] and is_one_cycle):
                left.append(each)
            if all(chains) and chains[0] != chains[1] and each.host == plan.leader:
                refusal = (
                    f"host {each.host} and host {plan.farthest} hold other excerpts before"
                    f" {format_index(each.end)}: promote host {plan.farthest}, which the other one"
                    " follows then"
                )
        return replace(plan, uncompared=tuple(left), refusal=plan.refusal or refusal)

    async def _chain(self, host_id: int, name: str, first: Index) -> bytes:
        """The chain over what a copy has of the cycle before an index; none where that is not
        known.

        Raises:
            Refused, Unreachable, QueueError: the host does not tell it.
        """
        if host_id == self._own:
            return await self._desk.own_chain(name, first)
        asked = FenceRequest(verb=FenceVerb.WHERE, first=first)
        return (await self._desk.position(host_id, name, asked)).chain

    async def promote(
        self, name: str, *, accept_loss: bool = False, by: FenceBy = FenceBy.OPERATOR
    ) -> Promotion:
        """Makes this host the leader; what has come of it.

        Args:
            accept_loss: also where too few copies answer, for all that was safe, or to be the only
                one.
            by: whose word that is; by an election, hosts that hear a leader refuse their promises.

        Raises:
            ValueError: there is no such queue.
            Refused: it cannot be done, and why.
            QueueError, OSError: this host's copy cannot be written, or the promise not be kept.
        """
        async with self.turn(name):
            return await self.promote_in_turn(name, accept_loss=accept_loss, by=by)

    async def promote_in_turn(
        self,
        name: str,
        *,
        accept_loss: bool = False,
        giver: int = NOBODY,
        by: FenceBy = FenceBy.OPERATOR,
    ) -> Promotion:
        """The same, for a caller that holds the turn.

        Args:
            giver: the host that hands the queue over: it promises before any other one, so where it
                does not, nothing has changed.
        """
        plan = await self.plan(name, self._own, by=by)
        _check(plan, accept_loss=accept_loss)
        await in_thread(partial(_check_room, self._host.path_of(name), name))
        copy = self._host.sink.queues.get(name) or self._host.source.queues.get(name)
        if copy is None:
            raise Refused(f"queue {name!r} was removed from this host meanwhile")
        async with self._quiet(name, copy) as fence:
            if giver != NOBODY:
                asked = FenceRequest(verb=FenceVerb.FENCE, epoch=plan.epoch)
                await self._desk.position(giver, name, asked)
            begun = await self._lead(plan, fence, accept_loss=accept_loss, by=by)
        self.announce(name)  # who could not promise may be able to now
        return begun

    async def change_members(self, name: str, change: NewMembers) -> Promotion:
        """Begins an epoch with other members at this host, which leads the queue. Each host that
        comes in has all of it by then, and so many of the members as its policy waits for.

        Raises:
            ValueError: there is no such queue.
            Refused: it cannot be done, and why. Unless the others have been asked for their promise
                by then, this host leads as before.
            QueueError, OSError: as `promote`.
        """
        async with self.turn(name):
            if name not in self._host.source.queues:
                raise Refused(f"queue {name!r}: this host leads it no longer")
            self._changes[name] = change
            try:
                return await self.promote_in_turn(name)
            finally:
                del self._changes[name]

    @asynccontextmanager
    async def _quiet(
        self, name: str, copy: SinkQueue | SourceQueue
    ) -> AsyncIterator[AppendFence | None]:
        """For the length of a block this host is on its way to lead. Where its members change, no
        writer gets in meanwhile, and copies have all of it."""
        change = self._changes.get(name)
        with copy.epochs.being_promoted():
            if change is None:
                yield None
                return
            others, acks = change.now - {self._own}, self._host.settings.source.acks_of(name)
            quiet = self._host.direction.quiet(name, change.came, others, min(acks, len(others)))
            async with quiet as fence:
                yield fence

    async def _lead(
        self, plan: Promotion, fence: AppendFence | None, *, accept_loss: bool, by: FenceBy
    ) -> Promotion:
        """Has the hosts that answer promise the epoch of a plan, and begins it; what has come of
        it. Raises as `promote`.

        Args:
            fence: stands before the queue, which is streamed from here.
        """
        name = plan.queue
        if by is FenceBy.ELECTION:
            self._desk.check_hears_none(name, self._own)
        await self._desk.promise(name, plan.epoch, self._own, plan.members, fence)
        asked = FenceRequest(verb=FenceVerb.FENCE, epoch=plan.epoch, by=by, members=plan.members)
        own = self._desk.own_position(name)
        ahead = {host: why for host, why in plan.declined if why.endswith(_ENDS_AHEAD)}

        def will_do(found: _Answers) -> bool:
            known, cannot = _without(found.positions, ahead), found.declined | ahead
            known |= {self._own: own}
            return _is_sure(self._planned(name, self._own, known, cannot, planned=plan))

        positions, declined = await self._all(
            name, self._others(name), asked, will_do, streamer=plan.streams, by=by
        )
        positions, declined = _without(positions, ahead), declined | ahead
        await self._check_alone(name, plan.epoch, declined.keys())
        positions[self._own] = self._desk.own_position(name)
        begun = self._planned(name, self._own, positions, declined, planned=plan)
        begun = await self._less_compared(begun)
        _check(begun, accept_loss=accept_loss)
        async with self._host.direction.turn(name):
            queue = self._host.sink.queues.get(name)
            if queue is None:
                raise Refused(f"queue {name!r} was removed from this host meanwhile")
            now = queue.epochs.now
            if (now.promised, now.promised_to) != (begun.epoch, self._own):
                raise Refused(promised_otherwise(now, begun.epoch, self._own))
            if begun.returned is not None:
                await self._take(queue, begun.returned, begun.history)
            epoch = Epoch(begun.epoch, self._own, begun.start)
            await self._host.direction.lead(queue, epoch, begun.history, self._others(name))
        return begun

    def _ahead(self, name: str, positions: _Positions) -> _Whys:
        """The hosts whose copies end in times to come by this host's clock, each with that as the
        reason why what it has counts for nothing. This host takes nothing of times to come, and so
        do the others that promise; what was safe they have among them."""
        copy = self._host.sink.queues.get(name)
        if copy is None or not copy.is_open:
            return {}
        layout = copy.queue.layout
        return {
            host: f"host {host}: its copy {_ENDS_AHEAD}"
            for host, each in positions.items()
            if ends_ahead(each.next_index, layout)
        }

    async def _check_alone(self, name: str, epoch: int, others: Set[int]) -> None:
        """Looks whether another host is being promoted too: one of the hosts that have not promised
        has promised that.

        Raises:
            Refused: so it is.
        """
        asked = FenceRequest(verb=FenceVerb.WHERE)
        where, _ = await self._all(name, others - {self._own}, asked)
        for host_id, each in where.items():
            promised, to = each.epochs.promised, each.epochs.promised_to
            if promised >= epoch and to != self._own:
                raise Refused(
                    f"queue {name!r}: host {host_id} has promised epoch {promised} to host {to}"
                    " meanwhile, so this host does not lead it: promote once more where it is to go"
                )

    def _planned(
        self,
        name: str,
        to: int,
        positions: dict[int, CopyPosition],
        declined: Mapping[int, str],
        *,
        planned: Promotion | None = None,
    ) -> Promotion:
        settings = self._host.settings
        if planned is not None:
            lists = MemberLists(planned.hosts, planned.also, planned.members)
        else:
            named, change = settings.members.get(name, frozenset()), self._changes.get(name)
            wanted = frozenset[int]() if change is None else change.now
            named = named if change is None else change.was
            lists = members_of(positions, self._everyone, named, wanted)
        counted = {
            host: each for host, each in positions.items() if host in lists.hosts | lists.also
        }
        if to not in counted:
            raise Refused(
                f"queue {name!r}: host {to} is none of its members ({shown(lists.hosts)})"
            )
        plan = plan_promotion(
            name,
            to,
            lists.hosts,
            counted,
            also=lists.also,
            renews=name in self._changes,
            master=settings.sink.masters[name],
            acks=settings.source.acks_of(name),
            declined=declined,
            planned=planned,
        )
        plan = replace(plan, members=lists.members, refusal=plan.refusal or lists.refusal)
        routes = settings.sink.routes.get(name)
        if routes and not plan.refusal:
            taker, giver = min(routes.items())
            refusal = (
                f"host {taker} takes it from host {giver} by 'routes', and a queue with routes gets"
                f" no other leader: take {name!r} out of 'routes', cqrepl reload at each host, then"
                " promote"
            )
            plan = replace(plan, refusal=refusal)
        return plan

    @property
    def _everyone(self) -> frozenset[int]:
        return self._host.settings.protocol.remote_ids | {self._own}

    def _hosts(self, name: str) -> frozenset[int]:
        """The hosts that may have a copy: by the file, and as this host's own copy knows."""
        named = self._host.settings.members.get(name, frozenset())
        queue = self._host.sink.queues.get(name) or self._host.source.queues.get(name)
        known = queue.epochs.now.members if queue is not None else frozenset[int]()
        change = self._changes.get(name)
        before = change.was if change is not None else frozenset[int]()
        return (named | known | before) or self._everyone

    def _others(self, name: str) -> frozenset[int]:
        return self._hosts(name) - {self._own}

    async def _comes(self, host_id: int) -> bool:
        """True once a host is connected; one that may just be about to be has a moment for that."""
        endpoint = self._host.endpoint
        with trio.move_on_after(surroundings().rarely("comes", COMES_SECONDS, 0.0, 0.1)):
            while host_id not in endpoint.connections and endpoint.comes_within(
                host_id, COMES_SECONDS
            ):
                await trio.sleep(LOOK_SECONDS)
        return host_id in endpoint.connections

    async def _all(
        self,
        name: str,
        hosts: Set[int],
        request: FenceRequest,
        will_do: "Callable[[_Answers], bool]" = lambda found: False,
        *,
        streamer: int = NOBODY,
        by: FenceBy = FenceBy.OPERATOR,
    ) -> tuple[dict[int, CopyPosition], dict[int, str]]:
        """The positions of the hosts that answer, and the reasons of connected ones that refuse.

        Args:
            will_do: true where these answers are enough. Then no host that is dead or frozen is
                waited for.
            streamer: a host that streams the queue, as it has just said.
            by: an election asks those that are connected now, and soon tries again where too few
                of them answer.
        """
        limit = math.inf
        if by is FenceBy.ELECTION:
            hosts, limit = hosts & self._host.endpoint.connections.keys(), ELECTION_SECONDS
        found = _Answers(set(hosts))

        async def ask(host_id: int) -> None:
            try:
                if await self._comes(host_id):
                    found.positions[host_id] = await self._desk.position(host_id, name, request)
            except NetError as error:
                _logger.warning("queue %r: host %d is left out: %s", name, host_id, error)
                if isinstance(error, Refused):
                    found.declined[host_id] = str(error)
            found.left.discard(host_id)
            found.news.set()

        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            for host_id in sorted(hosts):
                nursery.start_soon(ask, host_id)
            with trio.move_on_at(began + surroundings().rarely("grace", GRACE_SECONDS, 0.0, 0.003)):
                await found.until(lambda: not found.left)
            with trio.move_on_at(began + LETS_GO_SECONDS):
                await found.until(lambda: streamer not in found.left)
            with trio.move_on_at(began + limit):
                await found.until(lambda: not found.left or will_do(found))
            nursery.cancel_scope.cancel()
        for host_id in sorted(found.left):
            _logger.info("queue %r: host %d has not answered, and need not", name, host_id)
        return dict(sorted(found.positions.items())), found.declined

    async def _take(self, queue: SinkQueue, lacks: CopyStretch, history: History) -> None:
        """Takes what another copy, of this history, has and this one lacks."""
        if not queue.is_open:
            if not queue.is_there:
                raise Refused(f"queue {queue.name!r} was never taken in here: it follows first")
            await in_thread(partial(queue.prepare, None, self._own, is_compared=True))
        await in_thread(queue.lock)
        chain = b""
        if has_chains() and lacks.first != NEXT_OF_EMPTY:
            chain = await in_thread(partial(queue.chains.at, lacks.first))
        request = FenceRequest(verb=FenceVerb.SEND, first=lacks.first, end=lacks.end, chain=chain)
        taken = _Taken(queue, history)
        async with self._desk.excerpts(lacks.host, queue.name, request) as answers:
            while True:
                with trio.move_on_after(SILENCE_SECONDS) as silence:
                    try:
                        said, value = await answers.receive()
                    except trio.EndOfChannel:
                        raise Unreachable(f"host {lacks.host} left meanwhile") from None
                if silence.cancelled_caught:
                    raise Unreachable(f"host {lacks.host} sends nothing any more")
                if said == EXCERPTS:
                    await taken.begin(value.first, value.lengths, value.data)
                elif said == MORE:
                    await taken.go_on(value)
                elif said == FETCHED:
                    break
                else:
                    raise Refused(f"host {lacks.host}: {value}")
        if queue.next_index != lacks.end:
            raise Refused(f"host {lacks.host} sends less than it has")


def _without(positions: _Positions, hosts: _Whys) -> _Positions:
    return {host: each for host, each in positions.items() if host not in hosts}


class _Answers:
    """The answers to one question, as they come.

    Attributes:
        left: hosts that have not answered, and may.
        positions: by hosts that have.
        declined: the reasons of hosts that refuse.
        news: is set when there is more of it.
    """

    def __init__(self, left: set[int]) -> None:
        self.left = left
        self.positions: dict[int, CopyPosition] = {}
        self.declined: dict[int, str] = {}
        self.news = trio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until something is so; it is looked at with each answer."""
        while not is_so():
            await self.news.wait()
            self.news = trio.Event()


class _Taken:
    """Excerpts as they come, part after part."""

    def __init__(self, queue: SinkQueue, history: History) -> None:
        self._queue = queue
        self._history = history
        self._first = NEXT_OF_EMPTY
        self._lengths: list[int] = []
        self._data = bytearray()

    async def begin(self, first: int, lengths: list[int], data: bytes) -> None:
        if self._lengths:
            raise Refused("excerpts begin before the last ones have ended")
        longest = self._queue.appender.payload_max + DATA_MAX  # as one long one is sent alone
        if sum(lengths) > longest:
            raise Refused(f"at most {longest} bytes of excerpts expected, {sum(lengths)} came")
        self._first, self._lengths = Index(first), lengths
        await self.go_on(data)

    async def go_on(self, data: bytes) -> None:
        self._data += data
        whole = sum(self._lengths)
        if len(self._data) > whole:
            raise Refused(f"excerpts of {whole} bytes expected, {len(self._data)} came")
        if len(self._data) == whole:
            await self._store()

    async def _store(self) -> None:
        payloads, at = [], 0
        for length in self._lengths:
            payloads.append(bytes(self._data[at : at + length]))
            at += length
        self._lengths, self._data = [], bytearray()
        if payloads:
            # who sends has compared what is before them; where it ends here, what was taken counts
            # as of the epochs that it is of
            await in_thread(partial(self._queue.epochs.adopt, self._history))
            batch = ExcerptBatch.of(self._first, payloads)
            await in_thread(partial(self._queue.appender.append_at, batch))
            self._queue.disk.note()


def _shift_of(path: Path) -> int:
    """The number of bits of an index that hold the sequence, in a queue.

    Raises:
        QueueError: it cannot be opened.
    """
    with Queue.open(path) as queue:
        return queue.layout.roll_cycle.shift


def _check_room(path: Path, name: str) -> None:
    """Looks whether a little can be written beside a copy, before any host is asked for a promise.

    Raises:
        Refused: it cannot.
    """
    if path.is_dir():
        try:
            with TemporaryFile(dir=path) as file:
                os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
        except OSError as error:
            raise Refused(
                f"queue {name!r}: nothing can be written to {path}: {error.strerror}; nothing was"
                " changed"
            ) from error


def _is_sure(plan: Promotion) -> bool:
    """True where no operator has to accept a loss, and nothing keeps it from being done."""
    return not (plan.refusal or plan.is_risky)


def _check(plan: Promotion, *, accept_loss: bool) -> None:
    if plan.refusal:
        raise Refused(f"queue {plan.queue!r}: {plan.refusal}")
    if plan.is_risky and not accept_loss:
        raise Refused("; ".join(plan.lines(is_done=False)))
