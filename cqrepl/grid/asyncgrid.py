"""A map set of a cluster for users of asyncio: the same sessions and maps, whose calls are awaited.

    async with cqrepl.grid.connect_async("h1:9009,h2:9009", "shop") as grid:
        async with grid.session() as s:
            await s.map("orders").put("A-17", 3)

Each call goes on in a thread of the client, so the event loop waits for none. A call whose task is
cancelled goes on there to its end: a commit may yet come about.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from cqrepl.grid.errors import GridRefused
from cqrepl.grid.gridclient import TIMEOUT_SECONDS
from cqrepl.grid.gridsettings import GridSettings, Reads
from cqrepl.grid.partition.gridsession import GridMap, GridSession
from cqrepl.grid.partition.gridvalues import Serializer
from cqrepl.grid.partition.token import Token
from cqrepl.grid.remotegrid import TOKEN_SECONDS, RemoteGrid, connect
from cqrepl.net.tlssettings import NO_TLS, TlsSettings

THREADS_MAX: Final = 32  # calls at a time; the others wait for one of them
T = TypeVar("T")
Call = Callable[[Callable[[], object]], Awaitable[object]]


class AsyncGrid:
    """A map set; made by `connect_async`, for the length of an `async with` block.

    Args:
        make: connects.
    """

    def __init__(self, make: Callable[[], RemoteGrid]) -> None:
        self._make = make
        self._threads = ThreadPoolExecutor(THREADS_MAX, "cqrepl grid")
        self._grid: RemoteGrid | None = None

    @property
    def settings(self) -> GridSettings:
        """Those of the map set, as a host has told them."""
        return self._running().settings

    def session(
        self,
        at: Token | str | None = None,
        *,
        timeout: float = TOKEN_SECONDS,
        reads: Reads | str | None = None,
    ) -> "AsyncSession":
        """A session, for one task at a time; as `RemoteGrid.session`.

        Raises:
            GridRefused: a token that is none, or is of another map set; or the block is over.
        """
        return AsyncSession(self._running().session(at, timeout=timeout, reads=reads), self._call)

    async def __aenter__(self) -> Self:
        try:
            self._grid = await self._call(self._make)
        except BaseException:
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        grid, self._grid = self._running(), None
        await self._call(grid.close)
        self._threads.shutdown(wait=False)

    def _running(self) -> RemoteGrid:
        if self._grid is None:
            raise GridRefused("expected a use within the `async with` block of the grid")
        return self._grid

    def _call(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._threads, work)


class AsyncSession:
    """Transactions, one after the other, as `GridSession`. As a context manager it is one of them.

    Args:
        call: has work done in a thread.
    """

    def __init__(self, session: GridSession, call: Call) -> None:
        self._session = session
        self._call = call

    @property
    def token(self) -> Token | None:
        """Of the last commit; None: it has written nothing."""
        return self._session.token

    def map(self, name: str) -> "AsyncMap":
        """A map of the map set.

        Raises:
            GridRefused: it has none of this name.
        """
        return AsyncMap(self._session.map(name), self._call)

    def begin(self) -> None:
        """Begins a transaction; as `GridSession.begin`."""
        self._session.begin()

    async def commit(self) -> Token | None:
        """Commits it; as `GridSession.commit`."""
        await self._call(self._session.commit)
        return self.token

    async def rollback(self) -> None:
        """Ends it: nothing of it is written."""
        await self._call(self._session.rollback)

    async def __aenter__(self) -> Self:
        self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._call(partial(self._session.__exit__, kind, error, trace))


class AsyncMap:
    """One map, as a session sees it; its calls are those of `GridMap`."""

    def __init__(self, grid_map: GridMap, call: Call) -> None:
        self.name = grid_map.name
        self._map = grid_map
        self._call = call

    async def get(
        self, key: object, otherwise: object = None, *, partition: int | None = None
    ) -> object:
        """The value of a key; `otherwise` where there is none."""
        return await self._call(partial(self._map.get, key, otherwise, partition=partition))

    async def put(self, key: object, value: object, *, partition: int | None = None) -> None:
        """Sets the value of a key, whether it has one or not."""
        await self._call(partial(self._map.put, key, value, partition=partition))

    upsert = put

    async def insert(self, key: object, value: object, *, partition: int | None = None) -> None:
        """Sets the value of a key that has none."""
        await self._call(partial(self._map.insert, key, value, partition=partition))

    async def update(self, key: object, value: object, *, partition: int | None = None) -> None:
        """Sets the value of a key that has one."""
        await self._call(partial(self._map.update, key, value, partition=partition))

    async def remove(self, key: object, *, partition: int | None = None) -> None:
        """Removes a key, if it is there."""
        await self._call(partial(self._map.remove, key, partition=partition))

    async def clear(self, partition: int | None = None) -> None:
        """Removes all keys of a partition; None: of each, by one transaction each."""
        await self._call(partial(self._map.clear, partition))

    async def scan(self, partition: int) -> list[tuple[object, object]]:
        """All keys of a partition with their values, as they were at one time."""
        rows: list[tuple[object, object]] = []
        await self._call(lambda: rows.extend(self._map.scan(partition)))
        return rows


def connect_async(
    hosts: str,
    map_set: str,
    *,
    serializers: Iterable[Serializer] = (),
    near: Iterable[str] = (),
    timeout: float = TIMEOUT_SECONDS,
    tls: TlsSettings = NO_TLS,
) -> AsyncGrid:
    """A map set of a cluster, to be used in an `async with` block; as `cqrepl.grid.connect`."""
    options = partial(connect, serializers=serializers, near=near, timeout=timeout, tls=tls)
    return AsyncGrid(partial(options, hosts, map_set))
