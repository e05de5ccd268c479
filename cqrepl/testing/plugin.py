"""Fixtures for tests of programs that use cqrepl: `pytest -p cqrepl.testing.plugin`.

    cq_queue      an empty queue in a directory of its own, open for appending
    cq_cluster    `async with cq_cluster(3) as cluster`: a source and two sinks (`Cluster`)
    cq_pair       `async with cq_pair() as cluster`: a source and one sink

Clusters are for tests that run under trio. With a clock that jumps (`MockClock` with
`autojump_threshold=0`; pytest-trio has it as `autojump_clock`) no time is waited for.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:  # what is not asked for costs nothing
    from cqrepl.queue import Queue
    from cqrepl.testing.cluster import Cluster


class MakeCluster(Protocol):
    """Runs a cluster of so many hosts; the other arguments are those of `Cluster`."""

    def __call__(
        self, hosts: int = 2, **arguments: Any
    ) -> "AbstractAsyncContextManager[Cluster]": ...


@pytest.fixture
def cq_queue(tmp_path: Path) -> "Iterator[Queue]":
    """An empty queue that rolls once a day."""
    from cqrepl.queue import Queue

    with Queue.open_for_append(tmp_path / "cq-queue", create="FAST_DAILY") as queue:
        yield queue


@pytest.fixture
def cq_cluster(tmp_path: Path) -> MakeCluster:
    """Makes clusters."""
    from cqrepl.testing.cluster import running_cluster

    def make(hosts: int = 2, **arguments: Any) -> "AbstractAsyncContextManager[Cluster]":
        return running_cluster(tmp_path / "cq-cluster", hosts, **arguments)

    return make


@pytest.fixture
def cq_pair(cq_cluster: MakeCluster) -> MakeCluster:
    """Makes a source and a sink."""
    return cq_cluster
