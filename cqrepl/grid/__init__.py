"""Maps in memory on several hosts: transactions, synchronous replicas, preload, reads by token.

>>> import cqrepl.grid
>>> with cqrepl.grid.local() as grid, grid.session() as s:
...     s.map("orders").put("A-17", 3)
...     s.map("orders").get("A-17")
3
"""

from cqrepl.grid.asyncgrid import AsyncGrid, AsyncMap, AsyncSession, connect_async
from cqrepl.grid.clientcopy import Mode, ReadOnlyMap
from cqrepl.grid.errors import (
    Conflict,
    CrossPartition,
    GridError,
    GridFull,
    GridRefused,
    LoaderError,
    LockTimeout,
    NotServing,
    OutcomeUnknown,
    TokenLost,
    TokenTimeout,
)
from cqrepl.grid.gridsettings import (
    GridSettings,
    Locks,
    MapSettings,
    Reads,
    ReplicaSettings,
)
from cqrepl.grid.gridsettings import PreloadStatus as Status
from cqrepl.grid.localgrid import LocalGrid, local
from cqrepl.grid.partition.gridsession import GridSession
from cqrepl.grid.partition.token import Token
from cqrepl.grid.remotegrid import RemoteGrid, connect

__all__ = [
    "AsyncGrid",
    "AsyncMap",
    "AsyncSession",
    "Conflict",
    "CrossPartition",
    "GridError",
    "GridFull",
    "GridRefused",
    "GridSession",
    "GridSettings",
    "LoaderError",
    "LocalGrid",
    "LockTimeout",
    "Locks",
    "MapSettings",
    "Mode",
    "NotServing",
    "OutcomeUnknown",
    "ReadOnlyMap",
    "Reads",
    "RemoteGrid",
    "ReplicaSettings",
    "Status",
    "Token",
    "TokenLost",
    "TokenTimeout",
    "connect",
    "connect_async",
    "local",
]
