"""Takes the state of a group from another host, and gives it to hosts that ask.

Theory of operation. A host that joins needs state where its copy does not begin at the start of the
queue. A copy does not tell: store files that its source had deleted were never there. So a host
that follows and has no state asks the others where the queue begins, before it takes anything of
it. What it takes is the newest checkpoint of the host that leads, else of any; a connection that
ends is followed by a request for the rest of the same file. It counts once its SHA-256 is right.
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.cluster.snapshotkind import (
    CSP_PREFIX,
    SNAPSHOT_CAPABILITY,
    Giving,
    SnapshotKind,
    SnapshotRequest,
    SnapshotTold,
    SnapshotVerb,
    StateSaid,
    Taking,
)
from cqrepl.net.threads import in_thread
from cqrepl.protocol import LinkView, LocalProtocolError
from cqrepl.protocol.capabilities import ENDED_CAPABILITY
from cqrepl.queue import NotAQueue, Queue, QueueDamaged, QueueError
from cqrepl.queue.files.checkpointfile import (
    JOINED_NAME,
    PART_SUFFIX,
    checkpoints_in,
    is_name,
    open_checkpoint,
)
from cqrepl.queue.files.sidefile import open_side_file
from cqrepl.queue.format.index import cycle_of
from cqrepl.queue.format.logpos import LogPos
from cqrepl.replicator.followfeed import ServiceFailed
from cqrepl.surroundings import make_synced, surroundings

HOSTS_SECONDS: Final = 10.0  # for some host to be connected
ANSWER_SECONDS: Final = 30.0  # without a word of the host that is asked
PAUSE_SECONDS: Final = 0.25
_WAITING_MAX: Final = 16  # pieces
_NAME_SHOWN: Final = 60
_logger: Final = logging.getLogger(__name__)


def _nobody(_name: str) -> int | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The state of one group on this host, which others may ask for.

    Args:
        path: directory of the queue.
        folder: of its checkpoints.
        save: has the state saved now.
    """

    path: Path
    folder: Path
    save: Callable[[], Awaitable[None]]


class Snapshots:
    """The program of a host that has services.

    Args:
        leader: the id of the host that leads a group, as far as this one knows.
    """

    def __init__(
        self, members: frozenset[int] = frozenset(), leader: Callable[[str], int | None] = _nobody
    ) -> None:
        self.groups: dict[str, GroupState] = {}
        self.refusals: list[str] = []  # of the hosts that were asked last, for people
        self._kind = SnapshotKind(members)
        self.kinds = (self._kind,)
        self._leader = leader
        self._links: dict[int, LinkView] = {}
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For the length of a block each host that asks is answered by a task of its own: one that
        waits until a state is saved holds up no other one. Without it they are answered one after
        the other."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                yield
            finally:
                self._nursery = None
            nursery.cancel_scope.cancel()

    async def connected(self, link: LinkView) -> None:
        """A peer is there, which may have state."""
        if SNAPSHOT_CAPABILITY in link.capabilities and link.remote_id:
            self._links[link.remote_id] = link

    async def told(self, link: LinkView, event: object) -> None:
        """A host asks, or answers."""
        if isinstance(event, Giving):
            if self._nursery is None:
                await self._give(event)
            else:
                self._nursery.start_soon(self._give, event)
        elif isinstance(event, tuple):
            taking, said = event
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await taking.channel.send(said)

    async def _give(self, giving: Giving) -> None:
        group = self.groups.get(giving.name)
        if group is None:
            known = ", ".join(sorted(self.groups)) or "none"
            giving.refuse(f"expected one of the groups {known}, got {giving.name!r}")
            return
        try:
            is_wanted = giving.request.verb is SnapshotVerb.TAKE
            if is_wanted and not checkpoints_in(group.folder):
                await group.save()
            begin = await in_thread(partial(lost_start, group.path, group.folder))
            giving.give(group.folder, begin)
        except (QueueError, OSError, ServiceFailed) as error:
            giving.refuse(str(error))

    async def begin_of(self, name: str) -> int:
        """The index that the queue begins at on the first host that says so; 0 where that is its
        start, or no host says."""
        request = SnapshotRequest(verb=SnapshotVerb.WHERE)
        with trio.move_on_after(HOSTS_SECONDS):
            while True:
                for host_id in self._hosts(name):
                    async with self._asked(host_id, name, request) as answers:
                        said = await _next(answers)
                        if isinstance(said, StateSaid):
                            return said.begin
                await trio.sleep(PAUSE_SECONDS)
        return 0

    async def fetch(self, name: str, folder: Path, to: LogPos | None) -> Path | None:
        """A checkpoint without a name in this folder, read back and found good; None where no host
        gives one."""
        self.refusals = []
        with trio.move_on_after(HOSTS_SECONDS):
            while not self._links:
                await trio.sleep(PAUSE_SECONDS)
        for host_id in self._hosts(name):
            part = await self._take(host_id, name, folder, 0 if to is None else to.index)
            if part is not None:
                _logger.info("queue %r: its state came from host %d", name, host_id)
                return part
        self.refusals = self.refusals or ["no host is connected that has services"]
        return None

    def _hosts(self, name: str) -> list[int]:
        """Those that are connected, the one that leads first."""
        leader = self._leader(name)
        return sorted(self._links, key=lambda each: (each != leader, each))

    async def _take(self, host_id: int, name: str, folder: Path, below: int) -> Path | None:
        request = SnapshotRequest(verb=SnapshotVerb.TAKE, below=below)
        make_synced(folder)
        give_up_at = trio.current_time() + HOSTS_SECONDS
        while trio.current_time() < give_up_at:
            async with self._asked(host_id, name, request) as answers:
                said = await _next(answers)
                if isinstance(said, StateSaid) and is_name(said.name):
                    part = folder / (said.name + PART_SUFFIX)
                    have = await self._store(answers, part, request.start, said.size)
                    if have == said.size:
                        return await in_thread(partial(self._checked, part, name, host_id))
                    if have > request.start:
                        give_up_at = trio.current_time() + HOSTS_SECONDS
                    request = replace(request, start=have, name=said.name)
                    said = None
            if said is not None:
                why = said if isinstance(said, str) else "it has none that is fit"
                if isinstance(said, StateSaid) and said.name:
                    why = f"expected the name of a checkpoint, got {said.name[:_NAME_SHOWN]!r}"
                self.refusals.append(f"host {host_id}: {why}")
                return None
            await trio.sleep(PAUSE_SECONDS)  # the connection has ended: the rest is asked for
        self.refusals.append(f"host {host_id}: it went away")
        return None

    async def _store(
        self, answers: "trio.MemoryReceiveChannel[SnapshotTold]", part: Path, start: int, size: int
    ) -> int:
        """The number of bytes that are there then; no more than were announced."""
        flags = os.O_WRONLY | os.O_CREAT | (0 if start else os.O_TRUNC)
        descriptor, at = open_side_file(part, flags), start
        try:
            while isinstance(data := await _next(answers), bytes):
                if at + len(data) > size:
                    break
                await in_thread(partial(surroundings().write, descriptor, data, at))
                at += len(data)
            await in_thread(partial(surroundings().sync, descriptor))
        finally:
            os.close(descriptor)
        return at

    def _checked(self, part: Path, name: str, host_id: int) -> Path | None:
        try:
            open_checkpoint(part, name)[1].close()
        except (QueueDamaged, OSError) as error:
            self.refusals.append(f"host {host_id}: {error}")
            surroundings().unlink(part, missing_ok=True)
            return None
        return part

    @asynccontextmanager
    async def _asked(
        self, host_id: int, name: str, request: SnapshotRequest
    ) -> AsyncIterator["trio.MemoryReceiveChannel[SnapshotTold]"]:
        into, answers = trio.open_memory_channel[SnapshotTold](_WAITING_MAX)
        csp, link, cid = CSP_PREFIX + name, self._links.get(host_id), None
        try:
            if link is not None:
                cid = link.register(csp, self._kind, request, Taking(csp, link, into))
                link.wake(cid)  # it goes out at once
        except LocalProtocolError:  # that connection is over
            del self._links[host_id]
        if cid is None:
            into.close()
        async with answers:
            yield answers
        if link is not None and cid is not None and ENDED_CAPABILITY in link.capabilities:
            with suppress(LocalProtocolError):
                link.remove(cid)


async def _next(answers: "trio.MemoryReceiveChannel[SnapshotTold]") -> SnapshotTold:
    """The next word of the host; None where it says nothing more."""
    with trio.move_on_after(ANSWER_SECONDS), suppress(trio.EndOfChannel):
        return await answers.receive()
    return None


def lost_start(path: Path, folder: Path) -> int:
    """The index that a queue begins at, of which the start was removed, here or where it came from;
    0 where it has its start.

    Raises:
        QueueError, OSError: it cannot be read.
    """
    with suppress(NotAQueue), Queue.open(path) as queue:
        first = queue.first_index()
        if first is None:
            return 0
        cycle = cycle_of(first, queue.layout.roll_cycle.shift)
        if queue.cycles.closed.holds_from(cycle) or (folder / JOINED_NAME).exists():
            return first
    return 0
