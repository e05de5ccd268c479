"""The program by which a host has storages: what other hosts lack of theirs is asked for and told.

Theory of operation. A host that follows and has a damaged storage asks the host that leads for that
storage alone; a host that has no state at all, and a log without its start, asks for all of them as
of one position. Items that come meanwhile are in the log: they are applied after SYNC_FINISHED. The
host that is asked says so far as its own state is; it waits until it is as far as the asking one.

The host that leads asks all others. It gives a storage up once each of them has said that it is
damaged there, too; a host that follows gives it up once the one that leads has. Until then both ask
again: a host that was away may have it whole, and a host that was damaged be mended.
"""

import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Set
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import trio

from cqrepl.host import Host
from cqrepl.net.threads import in_thread
from cqrepl.persist.storage.storageservice import StorageService
from cqrepl.persist.storage.storagetable import Storage, table_of
from cqrepl.persist.storage.sums import sum_of
from cqrepl.persist.storage.syncwords import (
    EARLY,
    FRAME_MAX,
    MESSAGE_MAX,
    Row,
    SyncAnswer,
    answer,
    decode_sync,
    listed,
    refused,
    request,
    rows_of,
)
from cqrepl.protocol import LinkView, LocalProtocolError
from cqrepl.queue import Index, Queue, QueueError
from cqrepl.queue.files.checkpointfile import write_part
from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.queue.format.logpos import LogPos, is_on, position_at
from cqrepl.replicator.followfeed import Checkpoints, JoinBy, ServiceFailed
from cqrepl.service.fieldwords import FieldWords, Value
from cqrepl.service.ledservice import ServiceDesk
from cqrepl.service.servicehalf import ConversationKind, Decoder, Half, HalfAsked
from cqrepl.surroundings import make_synced, surroundings
from wire import WireError

CAPABILITY: Final = "persist"
CSP_PREFIX: Final = "/persist/"
CONTROL: Final = "control"
DATA: Final = "data"
DECODER: Final = Decoder(decode_sync, MESSAGE_MAX)
LOOK_SECONDS: Final = 0.25
PAUSE_MAX_SECONDS: Final = 5.0  # between two attempts to have a storage mended
ANSWER_SECONDS: Final = 30.0  # without a word of the host that is asked
JOIN_SECONDS: Final = 60.0  # until the own log is as far as the state that came
_FEW_BYTES: Final = (8, 40)  # of indexes in one word: a rare choice
SyncHalf = Half[FieldWords]
_logger: Final = logging.getLogger(__name__)


class SyncFailed(Exception):
    """A host that was asked gives no answer, or none that can be used."""


class _Asker:
    """The asking side of a conversation.

    Args:
        frozen: the state as of `pos`, where the whole was asked for.
    """

    def __init__(self) -> None:
        self.frozen: dict[int, Storage] | None = None
        self.pos = 0


class PersistDesk:
    """All groups with storages of one host.

    Attributes:
        services: by their groups.
        requests: so many storages were asked for alone.

    Raises:
        ValueError: two have one group.
    """

    def __init__(self, services: Iterable[StorageService]) -> None:
        self._desk = ServiceDesk(services)
        self.services = self._desk.services
        self.requests = 0
        self.kinds = (
            ConversationKind("!PersistHandler", CAPABILITY, DECODER, is_asked=bool(self.services)),
        )
        self._links: dict[int, LinkView] = {}
        self._visits: dict[SyncHalf, _Asker] = {}  # by their halves of control
        self._data: dict[SyncHalf, tuple[LinkView, str, int]] = {}  # connection, group, talk
        self._talks = itertools.count(1)
        self._asking: dict[SyncHalf, trio.MemorySendChannel[FieldWords]] = {}
        self._troubles: dict[tuple[str, int], str] = {}  # what was said last, by group and host

    @asynccontextmanager
    async def running(
        self,
        host: Host,
        checkpoints: Callable[[StorageService], Checkpoints | None],
        join: JoinBy = JoinBy.AUTO,
    ) -> AsyncIterator[None]:
        """As `ServiceDesk.running`."""
        async with self._desk.running(host, checkpoints, join), trio.open_nursery() as nursery:
            for each in self.services.values():
                nursery.start_soon(self.keep, each)
            yield
            nursery.cancel_scope.cancel()
        for each in self.services.values():
            each.close()

    async def keep(self, service: StorageService) -> None:
        """Has states saved and damage repaired, until it is cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.save_when_due)
            nursery.start_soon(self._repair, service)

    # ---- the side that is asked ---------------------------------------------------------------

    async def connected(self, link: LinkView) -> None:
        """A peer is there, which may have storages."""
        if CAPABILITY in link.capabilities and link.remote_id:
            self._links[link.remote_id] = link

    async def told(self, link: LinkView, event: object) -> None:
        """The other side says something."""
        if not isinstance(event, HalfAsked):
            return
        half, said = event
        channel = self._asking.get(half)
        if channel is not None:
            with suppress(trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError):
                channel.send_nowait(said)
            return
        group, _, part = half.csp.removeprefix(CSP_PREFIX).rpartition("/")
        service = self.services.get(group)
        if service is None or not service.led.has_begun:
            known = ", ".join(sorted(self.services))
            half.end(f"expected one of the groups {known} that run, got {group[:100]!r}")
            return
        if lacks := link.refusal("observe", group):
            half.end(lacks)
            return
        self._visits = {key: each for key, each in self._visits.items() if not key.is_over}
        self._data = {key: each for key, each in self._data.items() if not key.is_over}
        talk = (link, group, said.number("talk"))
        if part == DATA:
            self._data[half] = talk
            return
        visit = self._visits.setdefault(half, _Asker())
        if said.name == "GET_ALL_RESOURCES":
            feed = service.led.feed
            if said.number("whole") and (feed.why_unfit(None) or not feed.has_start):
                half.end(
                    f"expected a host that has a state of {group!r}, got one that has none yet"
                )
                return
            self._list(service, visit, half, said)
        elif said.name == "SYNC_REQ":
            data = next((each for each, of in self._data.items() if of == talk), None)
            if data is None:
                half.end("expected a word on data before SYNC_REQ, got none")
            else:
                self._answer(service, visit, data, said)
        elif said.name == "SUM_REQ":
            half.say(await in_thread(partial(sum_of, service, said)))
        else:
            half.end(f"expected GET_ALL_RESOURCES or SYNC_REQ, got {said.name[:100]!r}")

    def _list(
        self, service: StorageService, visit: _Asker, half: SyncHalf, said: FieldWords
    ) -> None:
        with service.guard:
            pos, storages = service.position, list(service.table.storages.values())
            if said.number("whole"):
                visit.frozen = {each.id: each.copy() for each in storages}
                visit.pos = pos
            words = list(listed(storages, pos, service.timeouts))
        epoch = position_at(load_epochs(service.led.feed.path).history, pos).epoch
        for each in words:
            more: dict[str, Value] = {"epoch": epoch, "applied": service.appliers(pos)}
            half.say(FieldWords(each.name, {**each.values, **more}))

    @staticmethod
    def _answer(service: StorageService, visit: _Asker, data: SyncHalf, said: FieldWords) -> None:
        id_ = said.number("id")
        if data.has_unsent:
            data.end("expected one SYNC_REQ at a time, got another before its answer was taken")
            return
        storage, pos = None, visit.pos
        if visit.frozen is not None:
            storage = visit.frozen.get(id_)
        else:
            with service.guard:
                pos = service.position
                found = service.table.storages.get(id_)
                storage = None if found is None else found.copy()
            if pos < said.number("pos"):
                data.say(refused(id_, f"this host's state is at {pos:#x} yet", EARLY))
                return
        if storage is None:
            data.say(refused(id_, "this host has no such storage"))
            return
        bytes_max = surroundings().rarely("storage told in many words", FRAME_MAX, *_FEW_BYTES)
        for each in answer(storage, said, pos, bytes_max):
            data.say(each, counts=False)

    def link(self) -> LinkView | None:
        """The connection of a guest, once its host is there; None where that has no storages."""
        return next(iter(self._links.values()), None)

    # ---- the side that asks ---------------------------------------------------------------------

    @asynccontextmanager
    async def asking(self, link: LinkView, group: str) -> AsyncIterator["Conversation"]:
        """A conversation with another host about one group.

        Raises:
            SyncFailed: that host has gone, or says what is not understood.
        """
        into, answers = trio.open_memory_channel[FieldWords](1 << 16)
        halves: list[SyncHalf] = []
        try:
            for part in (CONTROL, DATA):
                half = SyncHalf(f"{CSP_PREFIX}{group}/{part}", link, DECODER)
                half.cid = link.register(half.csp, self.kinds[0], None, half)
                self._asking[half] = into
                halves.append(half)
            yield Conversation(halves[0], halves[1], answers, next(self._talks))
        except (LocalProtocolError, WireError) as error:
            host = link.remote_id or 0
            if isinstance(error, LocalProtocolError) and self._links.get(host) is link:
                del self._links[host]  # that connection is over
            raise SyncFailed(str(error)) from error
        finally:
            for half in halves:
                del self._asking[half]
                with suppress(LocalProtocolError):
                    half.end("it is over")

    async def _repair(self, service: StorageService) -> None:
        """Asks for each storage that is damaged here: the host that leads; or, where that is this
        one, others."""
        pause = LOOK_SECONDS
        while True:
            await trio.sleep(pause)
            wanted = len(service.unasked()) if service.led.has_begun else 0
            if not wanted:
                pause = LOOK_SECONDS
                continue
            leader = service.led.leader().host
            refusals = {
                host: await self._ask_one(service, host)
                for host in ([leader] if leader else sorted(self._links))
            }
            self._give_up(service, {leader} if leader else service.led.others, refusals)
            is_better = len(service.unasked()) < wanted
            pause = LOOK_SECONDS if is_better else min(pause * 2, PAUSE_MAX_SECONDS)

    @staticmethod
    def _give_up(
        service: StorageService, asked: Set[int], refusals: Mapping[int, Mapping[int, str]]
    ) -> None:
        """No host is asked any more for what each of these has refused."""
        for each in service.unasked():
            whys = [refusals.get(host, {}).get(each.id, "") for host in asked]
            if whys and all(whys):
                each.asked = True
                told = "%s: storage %r stays damaged (%s): %s"
                _logger.error(told, service.led, each.name, each.damage, whys[-1])

    async def _ask_one(self, service: StorageService, host: int) -> dict[int, str]:
        """The reasons why a host tells nothing of storages that are damaged here, by their ids."""
        link, refusals = self._links.get(host), dict[int, str]()
        if link is None:
            return refusals
        try:
            async with self.asking(link, service.group) as conversation:
                rows = await conversation.list_all()
                for each in service.unasked():
                    if why := await self._repair_one(service, conversation, each):
                        refusals[each.id] = why
                self._report(service, host, rows)
        except* (SyncFailed, ServiceFailed, QueueError, OSError) as errors:
            self._note_trouble(service, host, str(errors.exceptions[0]))
        else:
            self._troubles.pop((service.group, host), None)
        return refusals

    def _note_trouble(self, service: StorageService, host: int, trouble: str) -> None:
        """Said once."""
        if self._troubles.get((service.group, host)) != trouble:
            told = "%s: host %d says nothing of damaged storages: %s"
            _logger.warning(told, service.led, host, trouble)
        self._troubles[service.group, host] = trouble

    async def _repair_one(
        self, service: StorageService, conversation: "Conversation", storage: Storage
    ) -> str:
        """Asks for one; why the host can tell nothing of it, else empty."""
        gen = storage.gen
        got = await conversation.sync(storage.id, storage, service.position)
        self.requests += not got.is_early
        if got.storage is None:
            asks_here = got.is_asking and service.led.leader().host != 0
            return "" if got.is_early or asks_here else got.why
        await service.led.feed.reached(got.pos - 1)
        with service.guard:
            is_same = service.table.storages.get(storage.id) is storage and storage.gen == gen
            if is_same and storage.damage:  # no state and no reset has come meanwhile
                service.table.repair(got.storage, got.pos)
        _logger.info("%s: storage %r is whole again", service.led, got.storage.name)
        return ""

    def _report(self, service: StorageService, host: int, rows: list[Row]) -> None:
        """Says of storages here that the other host does not know; none is deleted."""
        known = {each.id for each in rows}
        for each in service.heads():
            if each.id not in known:
                told = "%s: host %d does not know storage %r"
                _logger.warning(told, service.led, host, each.name)

    async def join(self, group: str, folder: Path, leader: int | None) -> Path:
        """The whole state of another host, as a checkpoint without a name.

        Raises:
            SyncFailed: no host gives one.
        """
        with trio.move_on_after(ANSWER_SECONDS):
            while not self._links:
                await trio.sleep(LOOK_SECONDS)
        whys: list[str] = []
        service = self.services[group]
        for host in sorted(self._links, key=lambda each: (each != leader, each)):
            try:
                async with self.asking(self._links[host], group) as conversation:
                    rows = await conversation.list_all(whole=True)
                    found = [await self._whole(conversation, each) for each in rows]
                pos = LogPos(conversation.epoch, Index(conversation.pos))
                await self._reached(service.led.feed.path, pos)
                told = "%s: the state of %d storages came from host %d"
                _logger.info(told, service.led, len(found), host)
                return await in_thread(partial(_write, folder, group, pos, found))
            except* SyncFailed as errors:
                whys.append(f"host {host}: {errors.exceptions[0]}")
        raise SyncFailed("; ".join(whys) or "no host is connected that has storages")

    @staticmethod
    async def _whole(conversation: "Conversation", row: Row) -> Storage:
        if row.damage:  # it is told to no host; others are
            lost = Storage(row.id, row.kind, row.name, row.gen, row.at, row.epoch, row.first)
            lost.damage, lost.since = row.damage, -1
            return lost
        got = await conversation.sync(row.id, None, 0)
        if got.storage is None:
            raise SyncFailed(got.why)
        return got.storage

    @staticmethod
    async def _reached(path: Path, pos: LogPos) -> None:
        """Returns once the own log has all before a position, in its epoch."""

        def look() -> bool:
            with suppress(QueueError, OSError), Queue.open(path) as queue:
                return queue.next_index() >= pos.index and is_on(load_epochs(path).history, pos)
            return False

        with trio.move_on_after(JOIN_SECONDS):
            while not await in_thread(look):
                await trio.sleep(LOOK_SECONDS)
            return
        raise SyncFailed(f"the log here does not come to {pos}, of which the state is")


class Conversation:
    """The asking side of one conversation.

    Attributes:
        pos, epoch: of the list.
        applied: the ids of the backups that have applied all of it, as far as that host knows.
    """

    def __init__(
        self,
        control: SyncHalf,
        data: SyncHalf,
        answers: "trio.MemoryReceiveChannel[FieldWords]",
        talk: int,
    ) -> None:
        self.pos = self.epoch = 0
        self.applied = ""
        self._control = control
        self._data = data
        self._answers = answers
        self._talk = talk  # of several on one connection

    async def list_all(self, *, whole: bool = False) -> list[Row]:
        """All storages of the other host.

        Args:
            whole: each that is asked for then is as it is now.

        Raises:
            SyncFailed, WireError: it says nothing, or what cannot be read.
        """
        self._control.say(FieldWords("GET_ALL_RESOURCES", {"whole": int(whole)}))
        self._data.say(FieldWords("DATA", {"talk": self._talk}))
        rows: list[Row] = []
        while True:
            said = await self._next()
            if said.name != "RESOURCE_LIST":
                raise SyncFailed(f"expected RESOURCE_LIST, got {said.name!r}")
            rows += rows_of(said)
            self.pos, self.epoch = said.number("pos"), said.number("epoch")
            self.applied = said.text("applied")
            if not said.number("more"):
                return rows

    async def sync(self, id_: int, own: Storage | None, pos: int) -> SyncAnswer:
        """The answer of the other host for one storage.

        Raises:
            SyncFailed, WireError: as `list_all`.
        """
        got = SyncAnswer(own)
        asked = request(id_, own, pos)
        self._control.say(FieldWords(asked.name, {**asked.values, "talk": self._talk}))
        while not got.is_over:
            got.take(await self._next())
        return got

    async def ask(self, said: FieldWords) -> FieldWords:
        """The answer to another question."""
        self._control.say(said)
        return await self._next()

    async def _next(self) -> FieldWords:
        for half in (self._control, self._data):
            if half.is_over:
                raise SyncFailed(half.why or "it has ended")
        with trio.move_on_after(ANSWER_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with, self._control, nursery.cancel_scope)
                said = await self._answers.receive()
                nursery.cancel_scope.cancel()
                return said
        raise SyncFailed(self._control.why or "it says nothing")

    @staticmethod
    async def _end_with(half: SyncHalf, scope: trio.CancelScope) -> None:
        await half.ended.wait()
        scope.cancel()


class SnapshotsFrom(Protocol):
    """The parts of `cluster.snapshots.Snapshots` that are needed here."""

    refusals: list[str]

    async def begin_of(self, name: str) -> int: ...
    async def fetch(self, name: str, folder: Path, to: LogPos | None) -> Path | None: ...


class SyncJoining:
    """Comes to the state of storages by the conversation; to one that is not above a position, as
    after a cut, by a snapshot, as all services do."""

    def __init__(self, desk: PersistDesk, snapshots: SnapshotsFrom) -> None:
        self.refusals: list[str] = []
        self._desk = desk
        self._snapshots = snapshots

    async def fetch(self, name: str, folder: Path, to: LogPos | None) -> Path | None:
        """A checkpoint without a name in this folder; None where no host gives one."""
        if to is not None:
            found = await self._snapshots.fetch(name, folder, to)
            self.refusals = self._snapshots.refusals
            return found
        try:
            leader = self._desk.services[name].led.leader().host
            return await self._desk.join(name, folder, leader)
        except SyncFailed as error:
            self.refusals = [str(error)]
            return None

    async def begin_of(self, name: str) -> int:
        """The index that the queue begins at on other hosts."""
        return await self._snapshots.begin_of(name)


def _write(folder: Path, group: str, pos: LogPos, storages: Iterable[Storage]) -> Path:
    make_synced(folder)
    return write_part(folder, group, pos, table_of(storages).snapshot)
