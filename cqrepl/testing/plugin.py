"""Fixtures for tests of programs that use cqrepl: `pytest -p cqrepl.testing.plugin`.

    cq_queue      an empty queue in a directory of its own, open for appending
    cq_cluster    `async with cq_cluster(3) as cluster`: a source and two sinks (`Cluster`)
    cq_pair       `async with cq_pair() as cluster`: a source and one sink

A coroutine that asks for one of the last two runs under trio, by pytest-trio, whatever `trio_mode`
of the project says; `pip install cqrepl[testing]` brings both. With a clock that jumps
(`MockClock` with `autojump_threshold=0`; pytest-trio has it as `autojump_clock`) no time is waited
for.
"""

import inspect
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:  # what is not asked for costs nothing
    from cqrepl.queue import Queue
    from cqrepl.testing.cluster import Cluster


_UNDER_TRIO: Final = {"cq_cluster", "cq_pair"}
_NO_RUNNER: Final = (
    "expected pytest-trio, for tests with cq_cluster or cq_pair: pip install cqrepl[testing]"
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Has the coroutines that ask for a cluster run under trio."""
    for item in items:
        if isinstance(item, pytest.Function) and not _UNDER_TRIO.isdisjoint(item.fixturenames):
            if not config.pluginmanager.hasplugin("trio"):
                raise pytest.UsageError(_NO_RUNNER)
            if inspect.iscoroutinefunction(item.obj) and item.get_closest_marker("trio") is None:
                item.add_marker("trio")


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
