"""Hosts that are source and sink at once, over one connection: what must not come of that.

Each scenario is run as it is, and once more with a fault put in on purpose: it is found.
"""

from __future__ import annotations

import math
import random
import re
import select
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio

from cqrepl.kernel import live
from cqrepl.net.reception import Reception
from cqrepl.net.sharedsocket import SharedSocket
from cqrepl.protocol import Connection
from cqrepl.protocol.heartbeat import Heartbeat
from cqrepl.replicator.incoming.sinksession import SinkSession
from cqrepl.replicator.outgoing.outgoingqueue import Outgoing
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.surroundings import Surroundings, surroundings
from cqrepl.testing import network
from cqrepl.testing.checker import last_index
from cqrepl.testing.cluster import Cluster, running_cluster
from cqrepl.testing.labhosts import Copy
from cqrepl.testing.labmachine import Process
from cqrepl.testing.laboratory import run
from cqrepl.testing.labroles import HEARTBEAT_MS, TIMEOUT_MS
from cqrepl.testing.network import LabSocket
from cqrepl.testing.plan import Fault, Kind, RunPlan
from cqrepl.testing.standstill import Standstill
from cqrepl.testing.story import Carried
from cqrepl.testing.transcript import documents
from tests.support.schedules import schedule

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from cqrepl.kernel.live import SinkLane, SourceLane

Patch = pytest.MonkeyPatch

FLOODS_AT = 5.0
TO_HOST_1 = 0  # way of what the dialler says, the host with the higher id
SECONDS_MAX = 60.0
LONG_BYTES = 1000  # of what is part of a document


plan = partial(schedule, seconds=25.0, rate=2.0, both_ways=True)


def floods(count: int) -> list[Fault]:
    return [Fault(FLOODS_AT + nth / 100, Kind.FLOOD, 1, 2, 0.0) for nth in range(count)]


def connections(carried: list[Carried]) -> int:
    """The number of connections, one after the other or beside each other."""
    return len({each.link for each in carried})


# ---- cuts inside documents -----------------------------------------------------------------------


def cut_inside(at: tuple[int, int] | None) -> RunPlan:
    """Two hosts that have runs for each other, and a cut in the middle of what one says.

    Args:
        at: way of the first connection, and the byte of it that is the last to come through.
    """
    faults: tuple[Fault, ...] = (Fault(1.0, Kind.FLOOD, 1, 2, 0.0),)
    if at is not None:
        way, byte = at
        ends = (1, 2) if way != TO_HOST_1 else (2, 1)
        faults += (Fault(0.0, Kind.CUT_INSIDE, *ends, 0.0, nth=byte),)
    return plan(*faults, seconds=3.0)


def kinds_of_documents() -> dict[tuple[int, str], int]:
    """The middle of the first document of each kind on each way, by way and kind."""
    found: dict[tuple[int, str], int] = {}
    outcome = run(cut_inside(None))
    for each in documents(outcome.carried):
        place = re.match(
            r"# position: (\d+), header: \S+ (.*?), (\d+) bytes, [^ ]+, (.*)", each.text
        )
        if place is not None and each.link == 1:
            kind = re.sub(r"0x\w+|\d+", "", f"{place[2]} {place[4]}")
            found.setdefault((each.way, kind), int(place[1]) + 4 + int(place[3]) // 2)
    return found


def test_a_cut_inside_each_kind_of_document() -> None:
    kinds = kinds_of_documents()
    assert len(kinds) > 20
    assert sum(", run " in kind for _, kind in kinds) == 2
    for (way, kind), byte in kinds.items():
        outcome = run(cut_inside((way, byte)))
        assert outcome.broken is None, kind
        first = [each for each in outcome.carried if each.link == 1 and each.way == way]
        assert sum(len(each.data) for each in first) == byte, kind
        comes_again = "TerminatorHandler" not in kind  # no host dials any more
        assert connections(outcome.carried) == 1 + comes_again, kind


# ---- two full sockets ----------------------------------------------------------------------------


def full_sockets(seed: int) -> RunPlan:
    """Both hosts have more for each other than the sockets take, and nothing comes through for a
    while: both wait to send. Then all comes through."""
    stall = Fault(FLOODS_AT - 0.05, Kind.STALL, 1, 2, 1.2)
    return plan(stall, *floods(3), seed=seed)


class FullSockets:
    """Counts the times that both ends of a connection were full at once."""

    def __init__(self, patch: Patch) -> None:
        self.count = 0
        send = LabSocket.send

        async def watched(end: LabSocket, data: Any, flags: int = 0) -> int:
            link = end._link
            assert link is not None
            fds = [each.fileno() for each in link.ends]
            if all(fd >= 0 for fd in fds):
                self.count += not select.select([], fds, [], 0)[1]
            return await send(end, data, flags)

        patch.setattr(LabSocket, "send", watched)


def a_side_that_sends_does_not_read(patch: Patch) -> None:
    """It takes what the other side sends when it has sent all of its own."""
    sending: set[Reception] = set()
    send, read = SharedSocket.send_frames, Reception.read

    async def mark(self: SharedSocket, frames: memoryview) -> None:
        sending.add(self._reception)
        try:
            await send(self, frames)
        finally:
            sending.discard(self._reception)

    async def late(self: Reception, receive: Callable[[], Any]) -> int | None:
        while self in sending:
            await trio.sleep(0.01)
        return await read(self, receive)

    patch.setattr(SharedSocket, "send_frames", mark)
    patch.setattr(Reception, "read", late)


@pytest.mark.parametrize("seed", range(2))
def test_two_full_sockets_do_not_wait_for_each_other(seed: int, monkeypatch: Patch) -> None:
    full = FullSockets(monkeypatch)
    outcome = run(full_sockets(seed))
    assert outcome.broken is None
    assert full.count, "the sockets took all at once: nothing is shown"
    assert connections(outcome.carried) == 1


def test_two_full_sockets_that_wait_for_each_other_are_found(monkeypatch: Patch) -> None:
    a_side_that_sends_does_not_read(monkeypatch)
    outcome = run(full_sockets(0))
    assert connections(outcome.carried) > 1


# ---- heartbeats ----------------------------------------------------------------------------------


class LongSends:
    """A host that sends over a slow link for longer than a connection may be silent, and takes in
    what is little beside that.

    Args:
        excerpts: what is appended at once.
    """

    def __init__(self, patch: Patch, folder: Path, excerpts: list[bytes]) -> None:
        patch.setattr(network, "BUFFERS_BYTES", (4096,))  # so little at a time
        self.beats: list[float] = []  # when its heartbeats came
        self.long: list[float] = []  # and the excerpts
        self.answers: list[float] = []  # and whatever the other one says meanwhile
        self.connections = 0
        self.has_all = False
        self._folder = folder
        self._excerpts = excerpts

    async def run(self) -> None:
        async with running_cluster(self._folder, 2, both_ways=True) as cluster:
            await cluster.settled()
            await trio.sleep(TIMEOUT_MS / 1000)
            for ends in ((1, 2), (2, 1)):
                cluster.network.weather(*ends).delay_s = (0.05, 0.4)
            cluster.append(*self._excerpts, master=1)
            with suppress(trio.TooSlowError):
                await cluster.settled(SECONDS_MAX)
                self.has_all = True
            self.connections = connections(cluster.story.carried)
        least = min(map(len, self._excerpts))
        for each in documents(cluster.story.carried):
            length = re.search(r" data, (\d+) bytes", each.text)
            if each.way == TO_HOST_1:
                self.answers.append(each.seconds)
            elif length is not None and int(length[1]) >= least:
                self.long.append(each.seconds)
            elif 'heartbeat: ""' in each.text:
                self.beats.append(each.seconds)

    @property
    def beats_within(self) -> int:
        """The number of heartbeats that came between the first and the last excerpt."""
        first, last = self.long[0], self.long[-1]
        assert last - first > 5 * TIMEOUT_MS / 1000, "not long: nothing is shown"
        return sum(first < at < last for at in self.beats)

    @property
    def longest_silence(self) -> float:
        """Of the other host, in seconds."""
        return max(after - before for before, after in pairwise(self.answers))


def heartbeats_wait_for_frames(patch: Patch) -> None:
    """One goes out where nothing else has for an interval."""
    sent: dict[Surroundings, float] = {}
    send, tick = SharedSocket.send_frames, Heartbeat.tick

    async def note(self: SharedSocket, frames: memoryview) -> None:
        sent[surroundings()] = math.inf
        await send(self, frames)
        sent[surroundings()] = trio.current_time()

    def late(self: Heartbeat, now: float) -> None:
        if now - sent.get(surroundings(), -math.inf) < HEARTBEAT_MS / 1000:
            self._next = now + HEARTBEAT_MS / 1000
        else:
            tick(self, now)

    patch.setattr(SharedSocket, "send_frames", note)
    patch.setattr(Heartbeat, "tick", late)


def only_whole_documents_are_heard(patch: Patch) -> None:
    """A peer counts as silent while one comes in."""
    hear = Connection.received
    patch.setattr("cqrepl.net.sharedsocket.pump_for", lambda *_: None)

    def deaf(self: Connection, count: int, now: float) -> None:
        heard = self._heard
        hear(self, count, now)
        if self._inflow.splitter.pending_bytes > LONG_BYTES:
            self._heard = heard

    patch.setattr(Connection, "received", deaf)


MANY_EXCERPTS = [b"%d " % nth + b"~" * 4000 for nth in range(400)]
ONE_EXCERPT = [b"~" * 200_000]


async def test_heartbeats_go_out_while_frames_do(
    monkeypatch: Patch, tmp_path: Path, autojump_clock: MockClock
) -> None:
    sends = LongSends(monkeypatch, tmp_path, MANY_EXCERPTS)
    await sends.run()
    assert sends.beats_within >= 2
    assert sends.longest_silence < TIMEOUT_MS / 1000
    assert sends.has_all
    assert sends.connections == 1


async def test_heartbeats_that_wait_for_frames_are_found(
    monkeypatch: Patch, tmp_path: Path, autojump_clock: MockClock
) -> None:
    heartbeats_wait_for_frames(monkeypatch)
    sends = LongSends(monkeypatch, tmp_path, MANY_EXCERPTS)
    await sends.run()
    assert sends.beats_within < 2


async def test_an_excerpt_may_take_longer_than_a_connection_may_be_silent(
    monkeypatch: Patch, tmp_path: Path, autojump_clock: MockClock
) -> None:
    sends = LongSends(monkeypatch, tmp_path, ONE_EXCERPT)
    await sends.run()
    [at] = sends.long
    since = max(before for before in sends.beats if before < at)
    assert at - since > TIMEOUT_MS / 1000, "not long: nothing is shown"
    assert sends.has_all
    assert sends.connections == 1


async def test_a_peer_that_hears_whole_documents_only_is_found(
    monkeypatch: Patch, tmp_path: Path, autojump_clock: MockClock
) -> None:
    only_whole_documents_are_heard(monkeypatch)
    sends = LongSends(monkeypatch, tmp_path, ONE_EXCERPT)
    await sends.run()
    assert sends.connections > 1
    assert not sends.has_all


# ---- a queue that stops --------------------------------------------------------------------------


async def stop_one(cluster: Cluster) -> tuple[Copy, Copy]:
    """Host 2 finds that its copy of host 1's queue is not what was sent; the two copies of that
    queue."""
    source, copy = cluster.hosts[1].copies[1], cluster.hosts[2].copies[1]
    rng = random.Random(1)
    with trio.fail_after(SECONDS_MAX):
        while not (copy.holds_unread and copy.flip_last(rng)):
            append_everywhere(cluster)
            await trio.sleep(0.003)
        while not (copy.has_stopped and source.has_told_of(copy)):
            append_everywhere(cluster)
            await trio.sleep(0.003)
    return source, copy


def append_everywhere(cluster: Cluster) -> None:
    for master in cluster.streams:
        cluster.append(b"to all others", master=master)


class Lanes:
    """Notes what native pumps are lent: each queue, and the host that it goes to."""

    def __init__(self, patch: Patch) -> None:
        self.lent: list[tuple[str, int]] = []
        lanes_in, lanes_out = SinkSession.lanes_in, SourceSession.lanes_out

        def noted_in(session: SinkSession) -> list[SinkLane]:
            lanes = lanes_in(session)
            here = surroundings()
            assert isinstance(here, Process)
            self.lent += [(queue.name, here.machine.host) for _, queue, _ in session._lanes.each]
            return lanes

        def noted_out(session: SourceSession) -> list[SourceLane]:
            lanes = lanes_out(session)
            self.lent += [
                (each.queue.name, each.marks.host_id)
                for each in session.outgoing.values()
                if each.lane is not None
            ]
            return lanes

        patch.setattr(SinkSession, "lanes_in", noted_in)
        patch.setattr(SourceSession, "lanes_out", noted_out)


def a_stopped_queue_keeps_its_lane(patch: Patch) -> None:
    """It is lent to the native pump as if it went on."""
    stopped = SourceSession._stopped

    def careless(self: SourceSession, each: Outgoing, *arguments: Any, **options: Any) -> None:
        vars(each)["close"] = lambda: None
        stopped(self, each, *arguments, **options)
        del vars(each)["close"]

    patch.setattr(SourceSession, "_stopped", careless)


async def stop_a_lane(lanes: Lanes, folder: Path) -> list[str]:
    """Stop a lane, and append to all queues. Excerpts of its queue go to no pump, and all others
    go on over the same connections; the list of what is not so."""
    async with (
        running_cluster(folder, 3, both_ways=True) as cluster,
        trio.open_nursery() as nursery,
    ):
        standstill = Standstill(nursery.cancel_scope)
        trio.lowlevel.add_instrument(standstill)
        wrong = ["it never waits for anything"]
        await cluster.settled()
        source, copy = await stop_one(cluster)
        assert ("q1", 2) in lanes.lent, "it was not in a lane: nothing is shown"
        lanes.lent.clear()
        last = last_index(copy.path)
        for _ in range(100):
            append_everywhere(cluster)
            await trio.sleep(0.01)
        others = [
            (stream, sink)
            for stream in cluster.streams.values()
            for sink in stream.sinks
            if sink is not copy
        ]
        with trio.move_on_after(SECONDS_MAX):
            while not all(stream.is_settled(sink) for stream, sink in others):
                await trio.sleep(0.05)
        assert last < last_index(source.path)
        wrong = []
        if connections(cluster.story.carried) != 3:
            wrong.append("a connection was lost")
        if not all(stream.is_settled(sink) for stream, sink in others):
            wrong.append("other queues do not go on")
        if last_index(copy.path) != last or ("q1", 2) in lanes.lent:
            wrong.append("the queue goes on")
        if not {("q3", 2), ("q2", 1), ("q1", 3)} <= set(lanes.lent):
            wrong.append("others have lost their lanes")
    return wrong


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pump")
async def test_a_lane_whose_queue_stops_holds_up_no_other(
    monkeypatch: Patch, tmp_path: Path, autojump_clock: MockClock
) -> None:
    assert not await stop_a_lane(Lanes(monkeypatch), tmp_path)


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pump")
async def test_a_lane_that_outlives_its_queue_is_found(
    monkeypatch: Patch, tmp_path: Path, autojump_clock: MockClock
) -> None:
    a_stopped_queue_keeps_its_lane(monkeypatch)
    assert await stop_a_lane(Lanes(monkeypatch), tmp_path)
