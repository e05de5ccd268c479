"""The program by which a host has map sets: its groups, and what clients ask of them.

The conversation goes under `/grid/MAPSET`, one for each map set on a connection. A client asks,
each with a number that the answer repeats:

    hello     the settings of the map set, as JSON, with the hosts
    status    the groups of this host, as JSON
    get       an entry: of the primary, of this copy, or of this copy once it has a token
    rows      all entries of a map in a partition, at one time: `rows`, then the answer
    commit    a transaction
    release   gives back the locks of one
    outcome   has the outcomes of transactions with a loader told
    watch     as `rows`, then each change that follows: `changed`, until the client is gone

A host that has no copy, or is not the primary and is to be, answers `moved`, with who leads.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import trio

from cqrepl.grid.errors import (
    Conflict,
    GridError,
    GridFull,
    LoaderError,
    LockTimeout,
    NotServing,
    OutcomeUnknown,
    TokenLost,
    TokenTimeout,
)
from cqrepl.grid.gridgroup import GridGroup, group_name
from cqrepl.grid.gridsettings import GridSettings, Reads
from cqrepl.grid.partition.gridwords import (
    MESSAGE_MAX,
    GridEntry,
    decode_words,
    grid_words,
    pack_changes,
    pack_rows,
    unpack_changes,
    unpack_reads,
)
from cqrepl.grid.partition.locktable import LockPlace
from cqrepl.grid.partition.partitiongroup import OpenTx
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token
from cqrepl.grid.partition.watchers import Watcher
from cqrepl.net.errors import Refused
from cqrepl.protocol import LinkView
from cqrepl.queue import QueueError
from cqrepl.replicator.leadership import SteppedDown
from cqrepl.replicator.marks.ackboard import WaitEnded
from cqrepl.routing import group_of
from cqrepl.service.fieldwords import FieldWords, Value
from cqrepl.service.ledservice import ServiceDesk
from cqrepl.service.servicehalf import ConversationKind, Decoder, Half, HalfAsked
from wire import WireError

GRID_CAPABILITY: Final = "grid"
CSP_PREFIX: Final = "/grid/"
ASKS_MAX: Final = 4096  # of one client, that are not answered yet
TOKEN_SECONDS_MAX: Final = 60.0
WATCHED_MAX: Final = 64  # maps and partitions of one client
DECODER: Final = Decoder(decode_words, MESSAGE_MAX)
GridHalf: TypeAlias = Half[FieldWords]
_ROWS_BYTES: Final = 256 << 10
# what an error is called in an answer; the client raises the same one
OUTCOMES: Final[dict[type[Exception], str]] = {
    NotServing: "moved",
    Conflict: "conflict",
    LockTimeout: "locked",
    GridFull: "full",
    LoaderError: "loader",
    OutcomeUnknown: "unknown",
    TokenLost: "lost",
    TokenTimeout: "late",
}
_WRITES: Final = ("commit", "release")
_MOVED: Final = (SteppedDown, WaitEnded, QueueError, OSError)


def grid_kind(*, is_asked: bool) -> ConversationKind[FieldWords]:
    """The row of the handler table; a client's is not asked."""
    return ConversationKind("!GridHandler", GRID_CAPABILITY, DECODER, is_asked=is_asked)


def _right(said: FieldWords) -> str:
    """The right that a request takes: a lock keeps others from writing."""
    locks = said.name == "get" and said.number("lock") != 0
    return "write" if locks or said.name in _WRITES else "observe"


class GridDesk:
    """All groups of one host.

    Args:
        addresses: of hosts, where clients reach them, by their ids.

    Raises:
        ValueError: two groups have one name.
    """

    def __init__(
        self, groups: Iterable[GridGroup], addresses: Callable[[], dict[int, str]] = dict
    ) -> None:
        desk: Final = ServiceDesk(groups)
        self.groups = desk.services
        self.running = desk.running
        self.kinds = (grid_kind(is_asked=bool(self.groups)),)
        self.sets: dict[str, GridSettings] = {
            each.settings.name: each.settings for each in self.groups.values()
        }
        self._by_number = {(each.settings.name, each.nth): each for each in self.groups.values()}
        self._addresses = addresses
        self._nursery: trio.Nursery | None = None
        self._owners: dict[GridHalf, dict[int, tuple[GridGroup, int]]] = {}
        self._watched: dict[GridHalf, int] = {}

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """For the length of a block clients get answers."""
        async with trio.open_nursery() as nursery:
            for each in self.groups.values():
                nursery.start_soon(each.follow)
            self._nursery = nursery
            try:
                yield
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()

    async def connected(self, link: LinkView) -> None:
        """A peer is there: it asks, if it wants to."""

    async def told(self, link: LinkView, event: object) -> None:
        """A client asks."""
        if not isinstance(event, HalfAsked):
            return
        half, said = event
        if half.name not in self.sets:
            known = ", ".join(sorted(self.sets)) or "none"
            _answer(half, said, "refused", f"expected a map set ({known}), got {half.name!r}")
        elif lacks := link.refusal(_right(said), group_name(half.name, self._nth(half, said))):
            _answer(half, said, "refused", lacks)
        elif self._nursery is None:
            _answer(half, said, "moved", "its grid is about to begin on this host")
        elif half.unanswered >= ASKS_MAX:
            _answer(half, said, "refused", f"expected at most {ASKS_MAX} requests at a time")
        elif lacks := link.refusal(_right_for(said), self._queue_of(half, said)):
            _answer(half, said, "refused", lacks)
        else:
            half.unanswered += 1
            self._nursery.start_soon(self._do, half, said)

    async def _do(self, half: GridHalf, said: FieldWords) -> None:
        try:
            await self._act(half, said)
        except (NotServing, *_MOVED) as error:
            self._moved(half, said, str(error))
        except (GridError, Refused, WireError, ValueError) as error:
            more: dict[str, Value] = {}
            if isinstance(error, OutcomeUnknown) and error.token is not None:
                more["at"] = str(error.token)
            if isinstance(error, Conflict):
                more |= {"map": error.map, "key": error.key}
            _answer(half, said, OUTCOMES.get(type(error), "refused"), str(error), more)
        finally:
            half.unanswered -= 1

    def _moved(self, half: GridHalf, said: FieldWords, why: str) -> None:
        group = self._by_number.get((half.name, self._nth(half, said)))
        more: dict[str, Value] = {}
        if group is not None and group.led.has_begun:
            leader = group.led.leader()
            more = {"leader": leader.host, "where": leader.where}
        _answer(half, said, "moved", why, more)

    def _queue_of(self, half: GridHalf, said: FieldWords) -> str:
        """The log of the group that a request is about."""
        nth = self._nth(half, said)
        group = self._by_number.get((half.name, nth))
        return group_name(half.name, nth) if group is None else group.group

    def _nth(self, half: GridHalf, said: FieldWords) -> int:
        return group_of(said.number("part"), self.sets[half.name].group_count)

    async def _act(self, half: GridHalf, said: FieldWords) -> None:
        if said.name == "hello":
            _answer(half, said, "ok", more={"settings": self._settings(half.name)})
            return
        settings = self.sets[half.name]
        if said.name == "status":
            mine = [each for each in self.groups.values() if each.settings.name == half.name]
            rows = json.dumps([each.fields() for each in mine])
            _answer(half, said, "ok", more={"settings": rows})
            return
        if not 0 <= said.number("part") < settings.partitions:
            last = settings.partitions - 1
            text = f"expected a partition from 0 to {last}, got {said.number('part')}"
            _answer(half, said, "refused", text)
            return
        group = self._by_number.get((half.name, self._nth(half, said)))
        if group is None or not group.led.has_begun:
            raise NotServing("this host has no copy of that partition")
        match said.name:
            case "get":
                await self._get(half, said, group)
            case "rows" | "watch":
                await self._rows(half, said, group)
            case "lag":
                self._lag(half, said, group)
            case "commit":
                await self._commit(half, said, group)
            case "release":
                self._release(half, said.number("tx"))
                _answer(half, said, "ok")
            case "outcome":
                told = await group.tell_outcome()
                _answer(half, said, "ok", more={} if told is None else {"at": str(told)})
            case _:
                _answer(half, said, "refused", f"expected a request of a grid, got {said.name!r}")

    @staticmethod
    def _lag(half: GridHalf, said: FieldWords, group: GridGroup) -> None:
        part, name = said.number("part"), said.text("map")
        group.settings.map(name)
        group.check_serves(part)
        token = Token.parse(said.text("at"))
        lag = group.state.lag(half.name, part, name, token)
        _answer(half, said, "ok", more={"count": lag})

    async def _get(self, half: GridHalf, said: FieldWords, group: GridGroup) -> None:
        part, name, key = said.number("part"), said.text("map"), said.data("key")
        group.settings.map(name)
        entry: GridEntry | None
        if said.text("mode") in ("", Reads.OFF):
            group.check_serves(part)
            if said.number("lock"):
                owner = self._owner(half, said.number("tx"), group)
                await group.lock(owner, [LockPlace(part, name, key)])
            entry = await group.get(part, name, key)
        elif await self._is_here(half, said, group):
            entry = group.get_here(part, name, key)
        else:
            return
        values: dict[str, Value] = {}
        if entry is not None:
            values = {"value": entry.value, "version": entry.version}
        _answer(half, said, "ok", more=values)

    async def _is_here(self, half: GridHalf, said: FieldWords, group: GridGroup) -> bool:
        """Waits for the token that a reader has; false where it was answered that the primary has
        to tell an outcome first."""
        if group.settings.reads is Reads.OFF:
            raise NotServing("replicaReads is off: the primary alone is read")
        if said.text("mode") == Reads.TOKEN:
            token = Token.parse(said.text("at"))
            seconds = min(said.number("timeout") / 1000, TOKEN_SECONDS_MAX)
            if not await group.wait_token(token, seconds):
                _answer(half, said, "open")
                return False
        return True

    async def _rows(self, half: GridHalf, said: FieldWords, group: GridGroup) -> None:
        part, name = said.number("part"), said.text("map")
        group.settings.map(name)
        if said.text("mode") in ("", Reads.OFF):
            group.check_serves(part)
        elif not await self._is_here(half, said, group):
            return
        if said.name == "watch":
            rows, token = group.watch(part, name, self._watcher(half, said, group))
        elif said.text("mode") in ("", Reads.OFF):
            rows, token = await group.rows(part, name)
        else:
            rows, token = group.rows_here(part, name)
        if not said.number("count"):  # the rows themselves are wanted
            for piece in _pieces(rows):
                half.say(grid_words("rows", {"ask": said.number("ask"), "entries": piece}))
        _answer(half, said, "ok", more={"at": str(token)})

    def _watcher(self, half: GridHalf, said: FieldWords, group: GridGroup) -> Watcher:
        self._watched = {each: n for each, n in self._watched.items() if not each.is_over}
        self._watched[half] = self._watched.get(half, 0) + 1
        if self._watched[half] > WATCHED_MAX:
            raise GridError(f"expected at most {WATCHED_MAX} maps and partitions of a client")
        part, name, ask = said.number("part"), said.text("map"), said.number("ask")

        def tell(tx: OpenTx) -> None:
            mine = [each for each in tx.changes if each.map == name]
            if mine and tx.partition == part:
                maps, changes = pack_changes(mine)
                values: dict[str, Value] = {"maps": maps, "changes": changes}
                values |= {"ask": ask, "index": tx.index, "at": str(group.token_at(tx.index))}
                half.say(grid_words("changed", values))

        return Watcher(tell, lambda: half.is_over)

    async def _commit(self, half: GridHalf, said: FieldWords, group: GridGroup) -> None:
        part, client_tx = said.number("part"), said.number("tx")
        owner = self._owner(half, client_tx, group)
        try:
            group.check_serves(part)
            changes = unpack_changes(said.text("maps"), said.data("changes"))
            for each in {change.map for change in changes}:
                group.settings.map(each)
            reads = unpack_reads(said.text("read"), said.data("reads"))
            token = await group.commit(owner, TxRequest(part, changes, reads))
        finally:
            self._release(half, client_tx)
        _answer(half, said, "ok", more={"at": str(token), "index": token.index})

    def _owner(self, half: GridHalf, client_tx: int, group: GridGroup) -> int:
        """The owner of the locks of a client's transaction, which ends with the client."""
        if half not in self._owners:
            self._owners[half] = {}
            assert self._nursery is not None
            self._nursery.start_soon(self._release_all, half)
        held = self._owners[half]
        if client_tx not in held:
            held[client_tx] = group, group.new_owner()
        return held[client_tx][1]

    async def _release_all(self, half: GridHalf) -> None:
        await half.ended.wait()
        for each in list(self._owners.get(half, {})):
            self._release(half, each)
        self._owners.pop(half, None)

    def _release(self, half: GridHalf, client_tx: int) -> None:
        held = self._owners.get(half, {}).pop(client_tx, None)
        if held is not None:
            group, owner = held
            group.release(owner)

    def _settings(self, name: str) -> str:
        settings = self.sets[name]
        maps = {
            each: {"routing": at.routing, "locks": at.locks.value}
            for each, at in settings.maps.items()
        }
        found = {
            "partitions": settings.partitions,
            "groups": settings.group_count,
            "maps": maps,
            "reads": settings.reads.value,
            "lockSeconds": settings.lock_seconds,
            "hosts": list(self._addresses().values()),
        }
        return json.dumps(found)


def _right_for(said: FieldWords) -> str:
    """The right that a peer needs for a request: one that locks holds up those who write."""
    changes = said.name in ("commit", "release", "outcome") or said.number("lock")
    return "write" if changes else "observe"


def _pieces(rows: dict[bytes, GridEntry]) -> Iterable[bytes]:
    taken: list[tuple[bytes, GridEntry]] = []
    size = 0
    for key, entry in rows.items():
        taken.append((key, entry))
        size += len(key) + len(entry.value)
        if size >= _ROWS_BYTES:
            yield pack_rows(taken)
            taken, size = [], 0
    if taken:
        yield pack_rows(taken)


def _answer(
    half: GridHalf,
    said: FieldWords,
    outcome: str,
    why: str = "",
    more: dict[str, Value] | None = None,
) -> None:
    values: dict[str, Value] = {"ask": said.number("ask"), "outcome": outcome}
    if why:
        values["why"] = why[:1000]
    half.say(grid_words("answer", values | (more or {})))
