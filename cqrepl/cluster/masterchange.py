"""Takes a changed `masterId` of a reloaded file as a request to hand the queue over.

The new master is promoted while the old one leads, which makes an epoch. Either of the two may read
the file first: the old master asks the new one to be promoted, by the verb `lead`; the new master
has itself promoted. Nothing is promised before the new master has what the old one had when it was
asked; the old master promises first, so where it cannot, nothing has changed. Any other host reads
the file and follows the host that leads, until another one does.

A host that does not know the verb, as an older one or Java's, hands over by the file alone.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from cqrepl.cluster.fencedesk import LOOK_SECONDS, FenceDesk
from cqrepl.cluster.promoter import Promoter
from cqrepl.net.errors import NetError, Refused
from cqrepl.protocol.messages.fences import CopyPosition, FenceRequest, FenceVerb
from cqrepl.queue.format.epochs import Epochs
from cqrepl.replicator import direction
from cqrepl.replicator.hostparts import HostParts

LEADS_SECONDS: Final = 120.0  # for another host to be promoted; excerpts may have to come to it
_KEPT_SECONDS: Final = 1.0  # between two looks whether a queue is still to be kept
_WHERE: Final = FenceRequest(verb=FenceVerb.WHERE)


class MasterChanges:
    """The changes of masters by the file that one host of a cluster reads."""

    def __init__(self, host: HostParts, desk: FenceDesk, promoter: Promoter) -> None:
        self._host = host
        self._desk = desk
        self._promoter = promoter
        self._own = host.settings.protocol.host_id
        # masters by the file, of queues that another host leads yet
        self._kept: dict[str, int] = {}
        self._has_kept = trio.Event()
        desk.lead = self.take_lead

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As `Promoter.running`; for the length of that block a queue that is kept from the host
        that led it follows the master by the file once that leads without an epoch."""
        async with self._promoter.running(), trio.open_nursery() as nursery:
            nursery.start_soon(self._look_at_kept)
            yield
            nursery.cancel_scope.cancel()

    async def _look_at_kept(self) -> None:
        while True:
            await self._has_kept.wait()
            await trio.sleep(_KEPT_SECONDS)
            for name in list(self._kept):
                async with self._host.direction.turn(name):
                    await self._follow_by_file(name)
            if not self._kept:
                self._has_kept = trio.Event()

    async def _follow_by_file(self, name: str) -> None:
        """Keeps a queue from its older master no longer where that is over."""
        queue, now = self._host.sink.queues.get(name), self._kept.get(name)
        if queue is None or queue.epochs.now.promised:  # an epoch tells the leader
            self._kept.pop(name, None)
        elif now is not None and self._leads_by_file(name, queue.master_id, now):
            del self._kept[name]
            await self._host.sink.follow(name, now)

    def _leads_by_file(self, name: str, was: int | None, now: int) -> bool:
        """True where the new master leads without an epoch, or will: it knows no other way; or it
        streams the queue, and the old one does not, as after a restart of both."""
        if self._desk.knows_leads(now) is False:
            return True
        return self._streams(now, name) and not self._streams(was, name)

    def _streams(self, host_id: int | None, name: str) -> bool:
        found = None if host_id is None else self._host.endpoint.connections.get(host_id)
        named = None if found is None else found[0].connection.peer_queues
        return named is not None and name in named.sources

    async def change(self, name: str, was: int, now: int) -> str | None:
        """Has a queue be led by its new master, or waits for another host to do so; a line for
        people where this is to come, empty where it is done. None: one of the two hosts knows no
        promotion by another host's word, and nothing was done.

        Args:
            was, now: the masters by the older and the newer file.

        Raises:
            Refused: it stays as it is, and why; or which host it is promised to.
            QueueError, OSError: as `Promoter.promote`.
        """
        if self._host.settings.awaits_leader:
            return ""  # an election says who leads
        queue = self._host.source.queues.get(name) or self._host.sink.queues[name]
        known, leads = queue.epochs.now, self._leads(name)
        is_promised = bool(known.promised) and known.promised_to == now
        if (is_promised and known.is_begun) or (leads and now == self._own):
            return ""  # the file says now what is so
        if leads or (was == self._own and is_promised):  # or it was handed over in part
            if not await self._knows(now, f"queue {name!r} stays here: host {now} is away"):
                return None
            await self.hand_over(name, now)
            return ""
        if now == self._own:
            giver = known.promised_to if known.promised_to not in (0, self._own) else was
            away = f"queue {name!r} stays with host {giver}, which is not connected"
            if not await self._knows(giver, away):
                return None
            await self.take_lead(name, giver)
            return ""
        return self._noted(name, now, known)

    def keeps(self, name: str, master_id: int | None) -> bool:
        """True while a queue without epochs is taken from the host that leads, though this host's
        file names another master already."""
        return name in self._kept and self._kept[name] == master_id

    async def take_lead(self, name: str, giver: int) -> None:
        """Makes this host the leader in place of one that leads, or has given up the lead. That is
        so too where both lead by their files, of which one has read the newer version at its start.

        Raises:
            Refused: this host is not promoted, and why. Where the other host has not promised, it
                leads as before.
            Unreachable: the other host does not answer.
            ValueError, QueueError, OSError: as `Promoter.promote`.
        """
        unfit = self._host.fitness.why_unfit(name, None)
        if unfit:
            raise Refused(f"queue {name!r}: host {self._own} is not fit to lead it: {unfit}")
        async with self._promoter.turn(name):
            if not self._leads(name, by_epoch=True):
                await self._catch_up(name, giver)
                await self._promoter.promote_in_turn(name, giver=giver)

    async def hand_over(self, name: str, to: int) -> None:
        """Has another host be promoted in place of this one, which leads.

        Raises:
            Refused: it is not, and why; this host leads on, or it is promised to that one.
            Unreachable: it is not connected any more.
        """
        try:
            with self._host.direction.giving(name, to), trio.move_on_after(LEADS_SECONDS):
                await self._desk.ask_to_lead(to, name)
                return
            raise Refused(f"host {to} has not said within {LEADS_SECONDS:g} s that it leads")
        except NetError as error:
            if self._leads(name):
                raise Refused(f"queue {name!r} stays here: {error}") from error
            queue = self._host.source.queues.get(name) or self._host.sink.queues.get(name)
            if queue is None:  # it was removed meanwhile
                raise
            now = queue.epochs.now
            raise Refused(
                f"queue {name!r}: {error}; epoch {now.promised} is promised to host"
                f" {now.promised_to}: reload once more, or cqrepl promote"
            ) from error

    async def _catch_up(self, name: str, giver: int) -> None:
        """Waits until this host's copy has what the other one has now; appends go on there."""
        there: CopyPosition | None = None
        with trio.move_on_after(direction.HAND_OVER_SECONDS):
            there = await self._desk.position(giver, name, _WHERE)
            if not there.is_source and not there.epochs.promised:
                # it may have read the file at its start, and names its queues in a moment
                gives = partial(self._host.direction.is_given_back, name, giver)
                if await self._host.direction.until_so(gives):
                    return
            self._check_gives(name, giver, there.epochs, is_source=there.is_source)
            while there.is_source and self._desk.own_position(name).next_index < there.next_index:
                await trio.sleep(LOOK_SECONDS)
            return
        if there is None:
            raise Refused(f"queue {name!r} stays with host {giver}, which does not answer")
        has = f"host {self._own} has not all of it"
        raise Refused(f"queue {name!r} stays with host {giver}: {has}")

    def _check_gives(self, name: str, giver: int, known: Epochs, *, is_source: bool) -> None:
        has_given_up = known.promised_to in (giver, self._own) and not known.is_begun
        if not is_source and not has_given_up:
            leads = f"host {known.promised_to} leads it in epoch {known.promised}"
            why = leads if known.promised else "it streams nothing"
            raise Refused(f"queue {name!r}: host {giver} cannot hand it over: {why}")

    def _noted(self, name: str, now: int, known: Epochs) -> str | None:
        """The same at a host that is neither of the two."""
        self._kept.pop(name, None)
        leader = known.promised_to if known.promised else self._host.sink.queues[name].master_id
        if leader == now:
            return ""
        if leader is None or self._desk.knows_leads(now) is False:
            return None
        knows = self._desk.knows_leads(leader)
        if knows is False or (knows is None and not known.promised):
            return None
        if not known.promised:
            self._kept[name] = now
            self._has_kept.set()
        return (
            f"queue {name!r}: host {leader} leads it, and hands it over once host {leader} or host"
            f" {now} has read this file"
        )

    async def _knows(self, host_id: int, away: str) -> bool:
        """Waits until a host is connected; true where it can be asked to lead.

        Raises:
            Refused: it is not, within the time for that.
        """
        if not await self._host.direction.until_so(
            lambda: self._desk.knows_leads(host_id) is not None
        ):
            raise Refused(away)
        return bool(self._desk.knows_leads(host_id))

    def _leads(self, name: str, *, by_epoch: bool = False) -> bool:
        """True where this host leads a queue; `by_epoch`: not where only its file says so."""
        queue = self._host.source.queues.get(name)
        if queue is None or queue.copy is not None or not queue.epochs.now.may_lead(self._own):
            return False
        return not by_epoch or bool(queue.epochs.now.promised)
