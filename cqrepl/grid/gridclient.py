"""A client of a map set, in a task of trio: a guest of its hosts, which goes where the primary is.

Theory of operation. A client has at most one connection to a host. It asks the host that led a
group last; one that does not serve answers `moved`, with who leads as far as it knows, and the
client goes there. What was not sent, or was answered by `moved`, is asked once more. A commit that
was sent, and whose connection has ended, is not: it may be in the log (`OutcomeUnknown`).
"""

import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from cqrepl.grid.errors import (
    Conflict,
    GridError,
    GridFull,
    GridRefused,
    LoaderError,
    LockTimeout,
    OutcomeUnknown,
    TokenLost,
    TokenTimeout,
)
from cqrepl.grid.griddesk import CSP_PREFIX, DECODER, GRID_CAPABILITY, GridHalf, grid_kind
from cqrepl.grid.gridsettings import GridSettings, Locks, MapSettings, Reads
from cqrepl.grid.partition.gridwords import (
    GridEntry,
    grid_words,
    pack_changes,
    pack_reads,
    unpack_rows,
)
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token
from cqrepl.host import serve_host
from cqrepl.net.address import Address
from cqrepl.net.errors import NetError
from cqrepl.net.settings import NetSettings
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.protocol import HeartbeatSettings, LinkView, ProtocolSettings
from cqrepl.replicator.settings import HostSettings
from cqrepl.routing import group_of
from cqrepl.service.fieldwords import FieldWords, Value
from cqrepl.service.servicehalf import HalfAsked

PAUSE_SECONDS: Final = 0.05  # from one host to the next, where none serves
DIAL_SECONDS: Final = 2.0
TIMEOUT_SECONDS: Final = 30.0
_BEATS: Final = HeartbeatSettings(interval_ms=500, timeout_ms=3000)
_ERRORS: Final[dict[str, Callable[[str], GridError]]] = {
    "locked": LockTimeout,
    "full": GridFull,
    "loader": LoaderError,
    "lost": TokenLost,
    "late": TokenTimeout,
}


@dataclass(slots=True, eq=False)
class _Asked:
    """A request that was sent; with its connection it ends without an answer."""

    rows: list[FieldWords] = field(default_factory=list)
    answer: FieldWords | None = None
    done: trio.Event = field(default_factory=trio.Event)


class _GridVisit:
    """One connection to one host, and its program."""

    def __init__(self, map_set: str) -> None:
        self.kinds = (grid_kind(is_asked=False),)
        self.half: GridHalf | None = None
        self.is_there = trio.Event()  # or is over
        self.why = ""
        self.scope = trio.CancelScope()
        self.changed: dict[int, Callable[[FieldWords], None]] = {}
        self._map_set = map_set
        self._asked: dict[int, _Asked] = {}

    @property
    def is_over(self) -> bool:
        return self.is_there.is_set() and (self.half is None or self.half.is_over)

    async def connected(self, link: LinkView) -> None:
        if GRID_CAPABILITY in link.capabilities:
            csp = CSP_PREFIX + self._map_set
            self.half = half = GridHalf(csp, link, DECODER)
            half.cid = link.register(csp, self.kinds[0], None, half)
        else:
            self.why = "it has no grid"
        self.is_there.set()

    async def told(self, link: LinkView, event: object) -> None:
        if not isinstance(event, HalfAsked):
            return
        said = event.said
        if said.name == "changed":
            tell = self.changed.get(said.number("ask"))
            if tell is not None:
                tell(said)
            return
        asked = self._asked.get(said.number("ask"))
        if asked is None:
            return
        if said.name == "answer":
            asked.answer = said
            asked.done.set()
        else:
            asked.rows.append(said)

    async def ask(self, said: FieldWords) -> _Asked | None:
        """The answer; None where the connection has ended before there was one."""
        assert self.half is not None
        number, asked = said.number("ask"), _Asked()
        self._asked[number] = asked
        try:
            self.half.say(said)
            await asked.done.wait()
        finally:
            del self._asked[number]
        return asked if asked.answer is not None else None

    def end(self) -> None:
        """The connection has ended."""
        self.is_there.set()
        for each in self._asked.values():
            each.done.set()


class GridClient:
    """A client; made by `running`. Its functions are for tasks of one event loop.

    Args:
        hosts: addresses of some hosts of the cluster.
        timeout_seconds: for so long is a host looked for that serves a partition.

    Attributes:
        settings: of the map set, as a host has told them.
        asks: so many requests were sent, by the address of the host.
    """

    settings: GridSettings

    def __init__(
        self,
        hosts: Sequence[Address],
        map_set: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        name: str = "cqrepl grid",
        tls: TlsSettings = NO_TLS,
    ) -> None:
        self.map_set = map_set
        self.asks: dict[Address, int] = {}
        self._hosts = list(hosts)
        self._name = name
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._visits: dict[Address, _GridVisit] = {}
        self._leaders: dict[int, Address] = {}
        self._numbers = 0
        self._turn = 0
        self._nursery: trio.Nursery
        self._why = "no host was reached"

    @asynccontextmanager
    async def running(self) -> AsyncIterator["GridClient"]:
        """For the length of a block it is connected, once a host has told the settings.

        Raises:
            GridError: none has within the time-out.
        """
        failed: GridError | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await self._take_settings()
            except GridError as error:  # it is raised outside: a nursery would make a group of it
                failed = error
            else:
                yield self
            nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def _take_settings(self) -> None:
        _, answer = await self._ask_any("hello", {})
        told = json.loads(answer.text("settings"))
        self.settings = GridSettings(
            name=self.map_set,
            partitions=told["partitions"],
            groups=told["groups"],
            maps={
                name: MapSettings(routing=each["routing"], locks=Locks(each["locks"]))
                for name, each in told["maps"].items()
            },
            reads=Reads(told["reads"]),
            lock_seconds=told["lockSeconds"],
        )
        for each in map(Address.parse, told["hosts"]):
            if each not in self._hosts:
                self._hosts.append(each)

    # ---- requests -------------------------------------------------------------------------------

    async def get(
        self, partition: int, name: str, key: bytes, *, lock_of: int = 0
    ) -> GridEntry | None:
        """An entry of the primary.

        Args:
            lock_of: the number of the transaction that locks it; 0 for none.
        """
        values: dict[str, Value] = {"part": partition, "map": name, "key": key}
        if lock_of:
            values |= {"lock": 1, "tx": lock_of}
        return _entry_in((await self._ask_primary("get", values))[1])

    async def get_any(self, partition: int, name: str, key: bytes) -> GridEntry | None:
        """An entry of any copy; where that has none, of the primary."""
        values: dict[str, Value] = {"part": partition, "map": name, "key": key, "mode": Reads.ANY}
        _, answer = await self._ask_any("get", values)
        found = _entry_in(answer)
        return await self.get(partition, name, key) if found is None else found

    async def get_at(
        self, partition: int, name: str, key: bytes, token: Token, seconds: float
    ) -> GridEntry | None:
        """An entry of any copy that has the transaction of a token.

        Raises:
            TokenLost, TokenTimeout: as `GridGroup.wait_token`.
        """
        ms = max(1, math.ceil(seconds * 1000))
        values: dict[str, Value] = {
            "part": partition,
            "map": name,
            "key": key,
            "mode": Reads.TOKEN,
            "at": str(token),
            "timeout": ms,
        }
        with trio.move_on_after(seconds + 1.0):
            while True:
                _, answer = await self._ask_any("get", values)
                if answer.text("outcome") != "open":
                    return _entry_in(answer)
                await self.tell_outcome(partition)
        raise TokenTimeout(f"expected a copy that has {token} within {seconds:g} s, got none")

    async def rows(self, partition: int, name: str) -> list[tuple[bytes, GridEntry]]:
        """All entries of a map in a partition, as the primary has them at one time."""
        rows, _ = await self._ask_primary("rows", {"part": partition, "map": name})
        return _rows_in(rows)

    async def lag(self, partition: int, name: str, at: Token) -> int:
        """The number of transactions on a map in a partition that are not in what a token is of, as
        the primary counts them."""
        values: dict[str, Value] = {"part": partition, "map": name, "at": str(at)}
        _, answer = await self._ask_primary("lag", values)
        return answer.number("count")

    async def commit(self, tx: int, request: TxRequest) -> Token:
        """Commits a transaction.

        Args:
            tx: its number, as for `get`.

        Raises:
            OutcomeUnknown: it was sent, and not answered.
            Conflict, LockTimeout, GridFull, LoaderError, GridError: it is not committed.
        """
        maps, changes = pack_changes(request.changes)
        read, reads = pack_reads(request.reads)
        values: dict[str, Value] = {
            "part": request.partition,
            "tx": tx,
            "maps": maps,
            "changes": changes,
        }
        if reads:
            values |= {"read": read, "reads": reads}
        _, answer = await self._ask_primary("commit", values)
        return Token.parse(answer.text("at"))

    async def release(self, tx: int, partition: int) -> None:
        """Gives back the locks of a transaction."""
        await self._ask_primary("release", {"part": partition, "tx": tx})

    async def tell_outcome(self, partition: int) -> None:
        """Has the primary tell the outcomes of transactions with a loader."""
        await self._ask_primary("outcome", {"part": partition})

    async def statuses(self) -> list[dict[str, object]]:
        """The groups as each known host has them; of one that is not there the reason."""
        found: list[dict[str, object]] = []
        for address in list(self._hosts):
            answer = await self._ask_at(address, "status", {})
            if answer is None:
                found.append({"host": str(address), "why": self._why})
                continue
            rows = json.loads(answer[1].text("settings") or "[]")
            found += [{"host": str(address)} | row for row in rows]
        return found

    async def watch(
        self,
        partition: int,
        name: str,
        tell: Callable[[FieldWords], None],
        *,
        with_rows: bool = True,
        at: Token | None = None,
    ) -> tuple[list[tuple[bytes, GridEntry]], Token, trio.Event]:
        """All entries of a map in a partition; from then on `tell` is called with each change.

        Args:
            with_rows: false: no entries are wanted.
            at: the copy that is asked has this transaction.

        Returns:
            The entries, their token, and an event: the connection has ended, and with it this.

        Raises:
            TokenLost: there is no such transaction any more.
        """
        mode = Reads.OFF if self.settings.reads is Reads.OFF else Reads.ANY
        values: dict[str, Value] = {"part": partition, "map": name, "mode": mode}
        values |= {} if with_rows else {"count": 1}
        if at is not None and mode is not Reads.OFF:
            values |= {"mode": Reads.TOKEN, "at": str(at), "timeout": 1000}
        while True:
            visit = await self._visit(self._leaders.get(self._group(partition)) or self._next())
            if visit is None:
                await trio.sleep(PAUSE_SECONDS)
                continue
            said = self._words("watch", values)
            visit.changed[said.number("ask")] = tell
            asked = await visit.ask(said)
            if asked is not None and asked.answer is not None:
                answer = asked.answer
                if answer.text("outcome") == "ok":
                    assert visit.half is not None
                    token = Token.parse(answer.text("at"))
                    return _rows_in(asked.rows), token, visit.half.ended
                if answer.text("outcome") == "lost":
                    raise TokenLost(answer.text("why"))
                self._note_moved(self._group(partition), asked.answer)
            await trio.sleep(PAUSE_SECONDS)

    # ---- who is asked ----------------------------------------------------------------------------

    async def _ask_primary(
        self, name: str, values: dict[str, Value]
    ) -> tuple[list[FieldWords], FieldWords]:
        partition = values["part"]
        assert isinstance(partition, int)
        group = self._group(partition)
        with trio.move_on_after(self._timeout_seconds):
            while True:
                address = self._leaders.get(group) or self._next()
                found = await self._ask_at(address, name, values)
                if found is None:
                    self._leaders.pop(group, None)
                    await trio.sleep(PAUSE_SECONDS)
                elif found[1].text("outcome") == "moved":
                    if not self._note_moved(group, found[1]) or self._leaders[group] == address:
                        await trio.sleep(PAUSE_SECONDS)
                else:
                    self._leaders[group] = address
                    return self._checked(found)
        raise GridError(self._no_host(f"a primary of partition {partition}"))

    async def _ask_any(
        self, name: str, values: dict[str, Value]
    ) -> tuple[list[FieldWords], FieldWords]:
        """Asks the hosts by turns."""
        with trio.move_on_after(self._timeout_seconds):
            while True:
                found = await self._ask_at(self._next(), name, values)
                if found is not None and found[1].text("outcome") != "moved":
                    return self._checked(found)
                if found is not None:
                    self._why = found[1].text("why")
                await trio.sleep(PAUSE_SECONDS if found is None else 0)
        raise GridError(self._no_host(f"a host that answers {name!r}"))

    def _no_host(self, wanted: str) -> str:
        return f"map set {self.map_set!r}: expected {wanted}, got none: {self._why}"

    async def _ask_at(
        self, address: Address, name: str, values: dict[str, Value]
    ) -> tuple[list[FieldWords], FieldWords] | None:
        """The rows and the answer; None where it was not asked, or may be asked once more.

        Raises:
            OutcomeUnknown: a commit was sent.
        """
        visit = await self._visit(address)
        if visit is None:
            return None
        self.asks[address] = self.asks.get(address, 0) + 1
        asked = await visit.ask(self._words(name, values))
        if asked is None or asked.answer is None:
            if name == "commit":
                raise OutcomeUnknown(f"host {address} was lost before it has answered a commit")
            return None
        return asked.rows, asked.answer

    def _words(self, name: str, values: dict[str, Value]) -> FieldWords:
        self._numbers += 1
        return grid_words(name, {"ask": self._numbers} | values)

    def _checked(
        self, found: tuple[list[FieldWords], FieldWords]
    ) -> tuple[list[FieldWords], FieldWords]:
        answer = found[1]
        outcome, why = answer.text("outcome"), answer.text("why")
        if outcome in ("ok", "open"):
            return found
        if outcome == "conflict":
            raise Conflict(why, map_name=answer.text("map"), key=answer.data("key"))
        if outcome == "unknown":
            token = answer.text("at")
            raise OutcomeUnknown(why, Token.parse(token) if token else None)
        raise _ERRORS.get(outcome, GridRefused)(why)

    def _note_moved(self, group: int, answer: FieldWords) -> bool:
        """True where it says who leads."""
        self._why = answer.text("why")
        self._leaders.pop(group, None)
        if answer.text("where"):
            self._leaders[group] = Address.parse(answer.text("where"))
        return group in self._leaders

    def _group(self, partition: int) -> int:
        return group_of(partition, self.settings.group_count)

    def _next(self) -> Address:
        self._turn += 1
        return self._hosts[self._turn % len(self._hosts)]

    async def _visit(self, address: Address) -> _GridVisit | None:
        """The connection to a host; None where there is none to be had now."""
        visit = self._visits.get(address)
        if visit is None or visit.is_over:
            visit = self._visits[address] = _GridVisit(self.map_set)
            self._nursery.start_soon(self._stay, address, visit)
        await visit.is_there.wait()
        if visit.half is None or visit.half.is_over:
            self._why = f"{address}: {visit.why or 'it was not reached'}"
            return None
        return visit

    async def _stay(self, address: Address, visit: _GridVisit) -> None:
        settings = HostSettings(
            net=NetSettings(connect=address, tls=self._tls),
            protocol=ProtocolSettings(guest=self._name, heartbeat=_BEATS),
        )
        try:
            with trio.fail_after(DIAL_SECONDS):  # a dialler would try this host again and again
                await (await trio.open_tcp_stream(address.host, address.port)).aclose()
            async with serve_host(settings, sources={}, sinks={}, program=visit):
                with trio.fail_after(DIAL_SECONDS):
                    await visit.is_there.wait()
                if visit.half is not None:
                    await visit.half.ended.wait()
                    visit.why = visit.half.why
                visit.end()  # what was asked gets no answer any more
        except* (NetError, OSError, trio.TooSlowError) as errors:
            visit.why = str(errors.exceptions[0]) or "it was not reached"
        finally:
            visit.end()


def _entry_in(answer: FieldWords) -> GridEntry | None:
    if "version" not in answer.values:
        return None
    return GridEntry(answer.data("value"), answer.number("version"))


def _rows_in(rows: Iterable[FieldWords]) -> list[tuple[bytes, GridEntry]]:
    return [row for each in rows for row in unpack_rows(each.data("entries"))]
