"""Settings of single queues at a host, beside those that hold for all of its queues."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import trio

from cqrepl import Host, HostSettings, NetSettings, ProtocolSettings, Queue, serve_host
from cqrepl.net.address import Address
from cqrepl.replicator.marks.counters import NOTHING
from cqrepl.replicator.settings import SourceSettings
from tests.support.replicas import LOOPBACK, SECONDS, at, copied, last_of
from tests.support.samples import NOON_MS, payloads

NAMES = ("a", "b")


def settings(host_id: int, net: NetSettings, source: SourceSettings | None = None) -> HostSettings:
    protocol = ProtocolSettings(host_id=host_id, remote_ids=frozenset({3 - host_id}))
    return HostSettings(net=net, protocol=protocol, source=source or SourceSettings())


@asynccontextmanager
async def two_queues(tmp_path: Path, source: SourceSettings) -> AsyncIterator[Host]:
    """Host 1 streams "a" and "b", none of which is there, to host 2."""
    ours = settings(1, NetSettings(listen=Address.parse(LOOPBACK)), source)
    out = {name: tmp_path / "out" / name for name in NAMES}
    into = {name: tmp_path / "in" / name for name in NAMES}
    async with serve_host(ours, sources=out, sinks={}) as host:
        theirs = settings(2, NetSettings(connect=Address.parse(at(host.port))))
        async with serve_host(theirs, sources={}, sinks=into):
            yield host


def appended(path: Path) -> None:
    """Twenty excerpts, as an application appends them."""
    with Queue.open_for_append(path) as queue:
        queue.appender().append(payloads(20, seed=1), NOON_MS)


async def test_queues_are_made_and_only_some_are_acknowledged(tmp_path: Path) -> None:
    source = SourceSettings(
        made_with={"a": "FAST_HOURLY", "b": "FAST_DAILY"},
        unacknowledged=frozenset({"b"}),
        source_ids={"b": 1002},
    )
    async with two_queues(tmp_path, source) as host:
        for name, cycle in (("a", "FAST_HOURLY"), ("b", "FAST_DAILY")):
            with Queue.open(tmp_path / "out" / name) as queue:
                assert queue.layout.roll_cycle.name == cycle
            appended(tmp_path / "out" / name)
        last = last_of(tmp_path / "out" / "a")
        assert last is not None
        with trio.fail_after(SECONDS):
            await host.source.wait_acked(last, "a")
        await copied(tmp_path / "out" / "b", tmp_path / "in" / "b")
        assert host.source.queues["b"].acknowledged == NOTHING
        with Queue.open(tmp_path / "in" / "b") as copy:
            assert copy.layout.source_id == 1002


async def test_a_queue_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    made = SourceSettings(made_with=dict.fromkeys(NAMES, "FAST_DAILY"))
    async with two_queues(tmp_path, made):
        pass
    other = replace(made, made_with=dict.fromkeys(NAMES, "FAST_HOURLY"))
    async with two_queues(tmp_path, other) as host:
        assert host.source.queues["a"].queue.layout.roll_cycle.name == "FAST_DAILY"
