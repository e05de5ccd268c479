"""The near cache of one map: entries that a client has read, until a change of them is told.

Theory of operation. The client watches each partition of the map at some host, without the rows.
A change that is told removes the entry, and notes its index: an answer that is older than that, and
comes later, is not kept. With the connection all entries of the partition go, and what was read
before it is there again is not kept; so a gap in what is told leaves nothing old behind.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from cqrepl.grid.gridclient import GridClient
from cqrepl.grid.partition.gridwords import Change, GridEntry, MapOp, unpack_changes
from cqrepl.service.fieldwords import FieldWords

ENTRIES_MAX: Final = 1_000_000


class NearCache:
    """The near cache of one map.

    Attributes:
        hits, misses: reads that it has answered, and those that it has not.
        is_on: the partitions whose changes are told now.
    """

    def __init__(self, client: GridClient, name: str) -> None:
        self.hits = 0
        self.misses = 0
        self.is_on: set[int] = set()
        self._client = client
        self._name = name
        self._entries: dict[tuple[int, bytes], GridEntry] = {}
        self._changed: dict[tuple[int, bytes], int] = {}  # index of the last change
        self._cleared: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, partition: int, key: bytes) -> GridEntry | None:
        """The entry; None where it is not kept. From any thread."""
        found = self._entries.get((partition, key))
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def keep(self, partition: int, key: bytes, entry: GridEntry) -> None:
        """Keeps what was read, unless a later change was told. From any thread."""
        place = partition, key
        last = max(self._changed.get(place, 0), self._cleared.get(partition, 0))
        if partition in self.is_on and entry.version >= last and len(self._entries) < ENTRIES_MAX:
            self._entries[place] = entry
            if partition not in self.is_on or self._changed.get(place, 0) > entry.version:
                self._entries.pop(place, None)  # it was told meanwhile

    def drop(self, partition: int, change: Change) -> None:
        """An own change, of which nothing was told yet."""
        self._drop(partition, change, 0)

    def _drop(self, partition: int, change: Change, index: int) -> None:
        if change.op is MapOp.CLEAR:
            self._cleared[partition] = max(index, self._cleared.get(partition, 0))
            self._forget(partition)
            return
        place = partition, change.key
        if index:
            self._changed[place] = index
        self._entries.pop(place, None)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watches all partitions; has started once each is watched."""
        async with trio.open_nursery() as nursery:
            for each in range(self._client.settings.partitions):
                await nursery.start(self._watch, each)
            task_status.started()

    async def _watch(
        self, partition: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        started: Callable[[], None] = task_status.started
        while True:
            told = partial(self._told, partition)
            _, _, ended = await self._client.watch(partition, self._name, told, with_rows=False)
            self.is_on.add(partition)
            started()
            started = _nothing
            await ended.wait()
            self.is_on.discard(partition)
            self._forget(partition)
            self._changed = {at: index for at, index in self._changed.items() if at[0] != partition}

    def _told(self, partition: int, said: FieldWords) -> None:
        for change in unpack_changes(said.text("maps"), said.data("changes")):
            self._drop(partition, change, said.number("index"))

    def _forget(self, partition: int) -> None:
        for place in [each for each in list(self._entries) if each[0] == partition]:
            self._entries.pop(place, None)


def _nothing() -> None:
    """It has started."""
