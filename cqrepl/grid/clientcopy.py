"""Copies of a server's map at a client: read-only, and kept up to date by what a host tells.

Theory of operation. Each partition is watched at some host: its rows at one time, and then each
transaction that is seen there. When the connection has ended, the partition is watched again, at a
copy that has the last transaction that was told; what has changed meanwhile is told as updates, so
no event comes twice, and none is left out that shows in the end.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import NoReturn, Protocol

import trio

from cqrepl.grid.errors import GridRefused, TokenLost
from cqrepl.grid.gridclient import GridClient
from cqrepl.grid.partition.gridvalues import ValueCodec
from cqrepl.grid.partition.gridwords import GridEntry, MapOp, unpack_changes
from cqrepl.grid.partition.token import Token
from cqrepl.service.fieldwords import FieldWords


class Mode(StrEnum):
    """The ways in which a client has a copy."""

    NONE = "none"
    CONTINUOUS = "continuous"  # it follows
    SNAPSHOT = "snapshot"  # taken once


class ReplicationMapListener(Protocol):
    """Is told of a copy, in the thread of the client: it is not to hold that up."""

    def snapshot_begin(self, partition: int) -> None:
        """The entries of a partition come."""

    def entry(self, partition: int, key: object, value: object) -> None:
        """One of them."""

    def snapshot_end(self, partition: int, token: Token) -> None:
        """All of them were told, as they were once this token's transaction was seen."""

    def update(self, partition: int, key: object, value: object, *, is_there: bool) -> None:
        """An entry has another value, or is gone."""

    def disconnect(self, partition: int) -> None:
        """The host is gone; the copy stays as it is."""

    def resume(self, partition: int) -> None:
        """Another one has gone on; updates tell what has changed meanwhile."""


class _NoListener:
    def snapshot_begin(self, partition: int) -> None: ...
    def entry(self, partition: int, key: object, value: object) -> None: ...
    def snapshot_end(self, partition: int, token: Token) -> None: ...
    def update(self, partition: int, key: object, value: object, *, is_there: bool) -> None: ...
    def disconnect(self, partition: int) -> None: ...
    def resume(self, partition: int) -> None: ...


class ReadOnlyMap:
    """The copy of one map; made by `RemoteGrid.enable_client_replication`.

    Attributes:
        mode: NONE once it follows no more.
        tokens: the last transaction that it has, by partition.
    """

    def __init__(
        self,
        client: GridClient,
        codec: ValueCodec,
        name: str,
        mode: Mode,
        partitions: Iterable[int],
        listener: ReplicationMapListener | None,
    ) -> None:
        self.name = name
        self.mode = mode
        self.tokens: dict[int, Token] = {}
        self._client = client
        self._codec = codec
        self._partitions = sorted(set(partitions)) or list(range(client.settings.partitions))
        last = client.settings.partitions - 1
        if wrong := [each for each in self._partitions if not 0 <= each <= last]:
            raise GridRefused(f"expected partitions from 0 to {last}, got {wrong[0]}")
        self._listener: ReplicationMapListener = listener or _NoListener()
        self._rows: dict[int, dict[bytes, bytes]] = {}
        self._early: dict[int, list[FieldWords]] = {}  # changes that came before their rows
        self._scope = trio.CancelScope()
        self._follows = mode is Mode.CONTINUOUS  # else what hosts tell is passed over

    def get(self, key: object, otherwise: object = None) -> object:
        """The value of a key in the copy; `otherwise` where it has none."""
        partition = self._client.settings.partition(self.name, key)
        found = self._rows.get(partition, {}).get(self._codec.key(key))
        return otherwise if found is None else self._codec.loads(found)

    def items(self) -> list[tuple[object, object]]:
        """All entries."""
        loads = self._codec.loads
        rows = [row for each in list(self._rows.values()) for row in list(each.items())]
        return [(loads(key), loads(value)) for key, value in rows]

    def __len__(self) -> int:
        return sum(map(len, list(self._rows.values())))

    async def lag(self) -> int:
        """The number of transactions that the primaries have, and this copy not yet: of each
        partition at most the last 10,000 of its group. In the client's thread."""
        tokens = list(self.tokens.items())
        return sum([await self._client.lag(each, self.name, token) for each, token in tokens])

    def put(self, key: object, value: object) -> NoReturn:
        """Raises GridRefused: a copy is only read."""
        raise GridRefused(f"map {self.name!r}: expected a read of a client's copy, got a write")

    insert = update = upsert = put

    def remove(self, key: object) -> NoReturn:
        """Raises GridRefused, as `put`."""
        self.put(key, None)

    def get_replication_mode(self) -> Mode:
        """The way in which it is kept up to date now."""
        return self.mode

    def end(self) -> None:
        """Follows no more. In the client's thread."""
        self.mode = Mode.NONE
        self._follows = False
        self._scope.cancel()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Takes all partitions, and follows them; has started once each was taken."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for each in self._partitions:
                    await nursery.start(self._follow, each)
                task_status.started()
                if self.mode is Mode.SNAPSHOT:
                    nursery.cancel_scope.cancel()

    async def _follow(
        self, partition: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        started: Callable[[], None] = task_status.started
        while True:
            self._early[partition] = []
            told = partial(self._told, partition)
            at = self.tokens.get(partition)
            try:
                rows, token, ended = await self._client.watch(partition, self.name, told, at=at)
            except TokenLost:  # an operator has accepted that it is
                del self.tokens[partition]
                continue
            self._take(partition, rows, token)
            self.tokens[partition] = token
            for said in self._early.pop(partition):
                self._told(partition, said)
            started()
            started = _started_before
            await ended.wait()
            self._listener.disconnect(partition)

    def _take(self, partition: int, rows: list[tuple[bytes, GridEntry]], token: Token) -> None:
        """The rows of a partition: all are entries the first time, and updates later."""
        new = {key: entry.value for key, entry in rows}
        old = self._rows.get(partition)
        if old is None:
            self._rows[partition] = new
            self._listener.snapshot_begin(partition)
            for key, value in new.items():
                self._listener.entry(partition, self._codec.loads(key), self._codec.loads(value))
            self._listener.snapshot_end(partition, token)
            return
        self._listener.resume(partition)
        for key in [key for key in old if key not in new]:
            self._change(partition, key, None)
        for key, value in new.items():
            if old.get(key) != value:
                self._change(partition, key, value)

    def _told(self, partition: int, said: FieldWords) -> None:
        if not self._follows:
            return
        if partition in self._early:
            self._early[partition].append(said)
            return
        for op, _, key, value in unpack_changes(said.text("maps"), said.data("changes")):
            if op is MapOp.CLEAR:
                for each in list(self._rows[partition]):
                    self._change(partition, each, None)
            else:
                self._change(partition, key, value if op is MapOp.PUT else None)
        self.tokens[partition] = Token.parse(said.text("at"))

    def _change(self, partition: int, key: bytes, value: bytes | None) -> None:
        rows, loads = self._rows[partition], self._codec.loads
        if value is None:
            if rows.pop(key, None) is not None:
                self._listener.update(partition, loads(key), None, is_there=False)
            return
        rows[key] = value
        self._listener.update(partition, loads(key), loads(value), is_there=True)


def _started_before() -> None:
    """It has started."""
