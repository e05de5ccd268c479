"""A map set of a cluster, for programs with threads: made by `cqrepl.grid.connect`.

Theory of operation. One thread runs the client (`GridClient`); sessions are the same as those of a
local grid, over a store that asks the client. A near cache keeps the entries of chosen maps here: a
host tells each change with its index, so an entry is replaced by a later one only, and with the
connection all of a partition goes. It is behind the primary by what is on its way; a transaction
that has read from it is compared at commit as any other.
"""

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from cqrepl.grid.clientcopy import Mode, ReadOnlyMap, ReplicationMapListener
from cqrepl.grid.errors import GridError, GridRefused
from cqrepl.grid.gridclient import TIMEOUT_SECONDS, GridClient
from cqrepl.grid.gridsettings import GridSettings, Locks, Reads
from cqrepl.grid.nearcache import NearCache
from cqrepl.grid.partition.gridsession import GridSession
from cqrepl.grid.partition.gridvalues import Serializer, ValueCodec
from cqrepl.grid.partition.gridwords import GridEntry
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token
from cqrepl.net.address import Address
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.routing import group_of

TOKEN_SECONDS: Final = 5.0
T = TypeVar("T")


class RemoteGrid:
    """One map set of a cluster. Any thread may use it; a session is for one at a time.

    Args:
        near: names of the maps with a near cache.

    Attributes:
        settings: of the map set.
        near: the near caches, by map.

    Raises:
        GridError: no host answers.
        GridRefused: a near cache of a map with pessimistic locks.
    """

    def __init__(
        self,
        hosts: Iterable[Address],
        map_set: str,
        serializers: Iterable[Serializer] = (),
        near: Iterable[str] = (),
        timeout_seconds: float = TIMEOUT_SECONDS,
        tls: TlsSettings = NO_TLS,
    ) -> None:
        self.codec = ValueCodec(serializers)
        self.near: Mapping[str, NearCache] = {}
        self._client = GridClient(list(hosts), map_set, timeout_seconds, tls=tls)
        self._owners = count(1)
        self._trio_token: trio.lowlevel.TrioToken | None = None
        self._has_begun = threading.Event()
        self._ends: trio.Event
        self._nursery: trio.Nursery
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(list(near),), daemon=True)
        self._thread.start()
        self._has_begun.wait()
        if self._failed:
            self._thread.join()
            raise self._failed[0]
        self.settings: GridSettings = self._client.settings

    def session(
        self,
        at: Token | str | None = None,
        *,
        timeout: float = TOKEN_SECONDS,
        reads: Reads | str | None = None,
    ) -> GridSession:
        """A session.

        Args:
            at: its reads of that group see the transaction of this token, at whatever copy.
            timeout: for so many seconds does a read wait for that.
            reads: the copies that answer other reads; None: as the map set says.

        Raises:
            GridRefused: a token that is none, or is of another map set.
        """
        token = Token.parse(at) if isinstance(at, str) else at
        name, groups = self.settings.name, self.settings.group_count
        if token is not None and (token.map_set != name or token.group >= groups):
            wanted = f"expected a token of map set {name!r} with {groups} groups"
            raise GridRefused(f"{wanted}, got {token}")
        mode = self.settings.reads if reads is None else Reads(reads)
        return GridSession(_RemoteStore(self, token, timeout, mode))

    def enable_client_replication(
        self,
        name: str,
        mode: Mode = Mode.CONTINUOUS,
        partitions: Iterable[int] = (),
        listener: ReplicationMapListener | None = None,
    ) -> ReadOnlyMap:
        """A copy of a map here, once all of it has come.

        Args:
            partitions: those that are wanted; none: all.
            listener: is told of the copy.

        Raises:
            GridRefused: there is no such map or partition, or the mode is NONE.
        """
        self.settings.map(name)
        if mode is Mode.NONE:
            raise GridRefused("expected a mode of a copy, got none: disable_client_replication")
        copy = ReadOnlyMap(self._client, self.codec, name, mode, partitions, listener)

        async def begin(_client: GridClient) -> None:
            await self._nursery.start(copy.run)

        self.call(begin)
        return copy

    def lag(self, copy: ReadOnlyMap) -> int:
        """The number of transactions that the primaries have, and a copy here not yet.

        Raises:
            GridError: a primary does not answer.
        """
        return self.call(lambda _client: copy.lag())

    def disable_client_replication(self, copy: ReadOnlyMap) -> None:
        """Has a copy follow no more; it stays as it is."""

        async def end(_client: GridClient) -> None:
            copy.end()

        self.call(end)

    def asks(self) -> dict[str, int]:
        """The number of requests that were sent so far, by the address of the host."""
        return {str(address): number for address, number in self._client.asks.items()}

    def close(self) -> None:
        """Ends its connections."""
        if self._trio_token is not None:
            with suppress(trio.RunFinishedError):
                trio.from_thread.run_sync(self._ends.set, trio_token=self._trio_token)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, work: Callable[[GridClient], Awaitable[T]]) -> T:
        """The result of some work with the client, in its thread.

        Raises:
            GridError: it has ended.
        """

        async def do() -> T:
            return await work(self._client)

        try:
            return trio.from_thread.run(do, trio_token=self._trio_token)
        except (trio.RunFinishedError, trio.Cancelled) as error:
            raise GridError(f"map set {self._client.map_set!r}: its client has ended") from error

    def new_owner(self) -> int:
        """A number for the locks of one transaction."""
        return next(self._owners)

    def _run(self, near: list[str]) -> None:
        try:
            trio.run(self._serve, near)
        except* GridError as errors:
            self._failed.append(_first(errors))
        finally:
            self._has_begun.set()

    async def _serve(self, near: list[str]) -> None:
        self._ends = trio.Event()
        async with self._client.running() as client, trio.open_nursery() as nursery:
            self.near = {name: _near_cache(client, name) for name in near}
            for cache in self.near.values():
                await nursery.start(cache.run)
            self._nursery = nursery
            self._trio_token = trio.lowlevel.current_trio_token()
            self._has_begun.set()
            await self._ends.wait()
            nursery.cancel_scope.cancel()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _near_cache(client: GridClient, name: str) -> NearCache:
    if client.settings.map(name).locks is Locks.PESSIMISTIC:
        wanted = f"map {name!r}: expected optimistic locks for a near cache"
        raise GridRefused(f"{wanted}, got pessimistic ones: each read goes to the primary")
    return NearCache(client, name)


class _RemoteStore:
    """The partitions, as one session reads them; a `Store`."""

    def __init__(self, grid: RemoteGrid, at: Token | None, timeout: float, mode: Reads) -> None:
        self.settings = grid.settings
        self.codec = grid.codec
        self._grid = grid
        self._at = at
        self._timeout = timeout
        self._mode = mode

    def new_owner(self) -> int:
        """A number for the locks of one transaction."""
        return self._grid.new_owner()

    def get(
        self, owner: int, partition: int, name: str, key: bytes, *, lock: bool
    ) -> GridEntry | None:
        """An entry; None for none."""
        at, seconds = self._at, self._timeout
        if lock:
            return self._grid.call(lambda to: to.get(partition, name, key, lock_of=owner))
        if at is not None and at.group == group_of(partition, self.settings.group_count):
            return self._grid.call(lambda to: to.get_at(partition, name, key, at, seconds))
        near = self._grid.near.get(name)
        if near is not None and (found := near.get(partition, key)) is not None:
            return found
        if self._mode is Reads.ANY:
            entry = self._grid.call(lambda to: to.get_any(partition, name, key))
        else:
            entry = self._grid.call(lambda to: to.get(partition, name, key))
        if near is not None and entry is not None:
            near.keep(partition, key, entry)
        return entry

    def rows(self, partition: int, name: str) -> Iterator[tuple[bytes, GridEntry]]:
        """All entries of a map in a partition, as the primary has them at one time."""
        return iter(self._grid.call(lambda to: to.rows(partition, name)))

    def commit(self, owner: int, request: TxRequest, *, write_through: bool) -> Token:
        """Commits; see `Store.commit`."""
        token = self._grid.call(lambda to: to.commit(owner, request))
        for change in request.changes:
            near = self._grid.near.get(change.map)
            if near is not None:
                near.drop(request.partition, change)
        return token

    def release(self, owner: int) -> None:
        """Gives back the locks of a transaction, which go with its connection at the latest."""
        locked = any(each.locks is Locks.PESSIMISTIC for each in self.settings.maps.values())
        if locked:
            self._grid.call(partial(_release, owner, range(self.settings.group_count)))


async def _release(owner: int, partitions: Iterable[int], client: GridClient) -> None:
    """Has each host forget the locks of a transaction: one of them may have some."""
    for each in partitions:
        await client.release(owner, each)


def connect(
    hosts: str,
    map_set: str,
    *,
    serializers: Iterable[Serializer] = (),
    near: Iterable[str] = (),
    timeout: float = TIMEOUT_SECONDS,
    tls: TlsSettings = NO_TLS,
) -> RemoteGrid:
    """A map set of a cluster.

    Args:
        hosts: HOST:PORT of some of its hosts, with commas between.
        near: names of the maps that are kept here, too, once they were read.
        timeout: for so many seconds is a host looked for that serves.
        tls: by which hosts are met.

    Raises:
        ValueError: an address that is none.
        GridError: no host answers, or none has that map set.
    """
    addresses = [Address.parse(each.strip()) for each in hosts.split(",")]
    return RemoteGrid(addresses, map_set, serializers, near, timeout, tls)
