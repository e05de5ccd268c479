"""The partitions of one group for loaders, whose sessions run in threads of the host that leads."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import trio

from cqrepl.grid.gridsettings import GridSettings
from cqrepl.grid.partition.gridsession import GridSession
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.gridwords import GridEntry
from cqrepl.grid.partition.locktable import LockPlace
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token


class LedGroup(Protocol):
    """A group that this host leads; its functions are called in the event loop."""

    settings: GridSettings
    codec: ValueCodec

    def new_owner(self) -> int: ...
    def release(self, owner: int) -> None: ...
    def check_serves(self, partition: int, *, also_starting: bool = False) -> None: ...
    async def lock(self, owner: int, places: Iterable[LockPlace]) -> None: ...
    async def get(self, partition: int, name: str, key: bytes) -> GridEntry | None: ...
    async def rows(self, partition: int, name: str) -> tuple[dict[bytes, GridEntry], Token]: ...
    async def commit(
        self, owner: int, request: TxRequest, *, write_through: bool = True
    ) -> Token: ...


class HostedStore:
    """A `Store` of one group; its partitions need not have started."""

    def __init__(self, group: LedGroup, trio_token: trio.lowlevel.TrioToken) -> None:
        self.settings = group.settings
        self.codec = group.codec
        self._group = group
        self._trio_token = trio_token

    def session(self) -> GridSession:
        """A session that writes through to no loader."""
        return GridSession(self, write_through=False)

    def new_owner(self) -> int:
        """A number for the locks of one transaction."""
        return self._group.new_owner()

    def get(
        self, owner: int, partition: int, name: str, key: bytes, *, lock: bool
    ) -> GridEntry | None:
        """An entry; None for none."""

        async def read() -> GridEntry | None:
            if lock:
                await self._group.lock(owner, [LockPlace(partition, name, key)])
            return await self._group.get(partition, name, key)

        return trio.from_thread.run(read, trio_token=self._trio_token)

    def rows(self, partition: int, name: str) -> Iterator[tuple[bytes, GridEntry]]:
        """All entries of a map in a partition, as they were at one time."""
        read = self._group.rows
        rows, _ = trio.from_thread.run(read, partition, name, trio_token=self._trio_token)
        return iter(rows.items())

    def commit(self, owner: int, request: TxRequest, *, write_through: bool) -> Token:
        """Commits; see `Store.commit`."""

        async def commit() -> Token:
            self._group.check_serves(request.partition, also_starting=True)
            return await self._group.commit(owner, request, write_through=write_through)

        return trio.from_thread.run(commit, trio_token=self._trio_token)

    def release(self, owner: int) -> None:
        """Gives back all locks."""
        trio.from_thread.run_sync(self._group.release, owner, trio_token=self._trio_token)
