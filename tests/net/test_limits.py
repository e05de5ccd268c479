"""The limit of bytes that a peer is sent a second, and the order in which queues go out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from cqrepl.host import serve_host
from cqrepl.kernel import live
from cqrepl.kernel.live import Pausing
from cqrepl.net.settings import LIMIT_MAX, NetSettings
from cqrepl.net.tokenbucket import UNLIMITED, TokenBucket
from cqrepl.protocol.messages import write_cid
from cqrepl.queue import Queue
from cqrepl.replicator.settings import host_settings
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.status.snapshot import snapshot_of
from tests.net.live_pumps import CID, OTHER_CID, Ends, excerpts_of, source_lane
from tests.net.streams import Recorder, greeting, make_pump, memory_streams, said
from tests.net.test_pump import running
from tests.support.copies import assert_same
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    at,
    eventually,
    live_sink,
    live_source,
    received,
)

RATE: Final = 80_000  # 8,000 are kept, 4,000 of them for live queues; steps of 1,000
native = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")

# ---------------------------------------------------------------- tokens


def bucket_of(rate: int, tokens: int = 0) -> TokenBucket:
    bucket = TokenBucket()
    bucket.limit(rate, 0.0)
    bucket.take_back(tokens, 0.0)
    return bucket


def test_without_a_limit_there_is_room_for_everything() -> None:
    bucket = TokenBucket()
    bucket.spend(1 << 50)
    assert (bucket.rooms(1.0), bucket.pause(1.0)) == (UNLIMITED, 0.0)


def test_tokens_come_evenly_and_a_tenth_of_a_second_is_kept() -> None:
    bucket = bucket_of(RATE)
    assert [bucket.lend(now) for now in (0.5e-3, 50e-3, 90e-3, 5.0)] == [40, 4000, 7200, 8000]


def test_a_step_comes_before_anything_goes_and_what_is_live_has_a_reserve() -> None:
    bucket = bucket_of(RATE)
    assert [bucket.rooms(now) for now in (0.012, 0.013, 0.062, 0.0635)] == [
        (0, 0),
        (1040, 0),
        (4960, 0),
        (5080, 1080),
    ]
    bucket.spend(1080)
    assert bucket.rooms(0.0635) == (4000, 0)


def test_what_one_excerpt_takes_too_much_is_owed() -> None:
    bucket = bucket_of(RATE, 8000)
    assert not bucket.pause(0.0)
    bucket.spend(88_000)
    assert bucket.pause(0.0) == pytest.approx(1.0125, abs=1e-5)
    assert bucket.rooms(1.0) == (0, 0)
    assert bucket.rooms(1.0 + bucket.pause(1.0)).live == 1000


@pytest.mark.parametrize("rate", [1, 2, 9, 11, LIMIT_MAX])
def test_every_limit_has_room_for_something_soon(rate: int) -> None:
    bucket = bucket_of(rate)
    now = bucket.pause(0.0)
    assert bucket.rooms(now).live > 0
    assert bucket.rooms(now + 10.0).much > 0


def test_another_limit_forgives_nothing_that_is_owed() -> None:
    bucket = bucket_of(RATE, -1000)
    bucket.limit(10 * RATE, 0.0)
    assert bucket.lend(0.0) == -1000
    bucket.limit(0, 0.0)
    assert bucket.rooms(0.0) == UNLIMITED


@native
@pytest.mark.parametrize("tokens", [-5, 0, 7, 1 << 40])
def test_a_pump_gives_back_the_tokens_that_it_was_lent(tokens: int) -> None:
    control = live.LiveControl()
    assert control.take_tokens() is None
    control.put_tokens(1, tokens, False)
    assert [control.take_tokens(), control.take_tokens()] == [tokens, None]
    with pytest.raises(ValueError, match="at least one byte a second"):
        control.put_tokens(0, 1, False)


def test_limits_that_make_no_sense_are_refused() -> None:
    for limits in ({"limit_bytes_per_s": -1}, {"limits": {2: LIMIT_MAX + 1}}):
        with pytest.raises(ValueError, match=r"a limit from 0 to .* bytes/s expected"):
            host_net(**limits)


def host_net(**limits: Any) -> NetSettings:
    return replace(host_settings(1, 2, listen=LOOPBACK).net, **limits)


# ---------------------------------------------------------------- one pump

MANY: Final = 1 << 40  # tokens
STEP_MS: Final = 20  # of looks without a pause, in which no time goes on for the tokens


class Lent:
    """A native pump with two queues, one of them with a backlog."""

    def __init__(self, folder: Path, stack: ExitStack, rate: int = RATE) -> None:
        self.ends = stack.enter_context(Ends.connected())
        self.queues = [
            stack.enter_context(Queue.open(folder / name, create="FAST_DAILY"))
            for name in ("much", "little")
        ]
        self.much, self.little = self.queues
        self.rate = rate
        self.left = 0

    def run(self, tokens: int, *lanes: live.SourceLane) -> bytes:
        """The bytes that go out for so many tokens."""
        self.ends.control.put_tokens(self.rate, tokens, False)
        _, unsent = self.ends.stream(*lanes, slice_ms=STEP_MS, pausing=Pausing.STEP)
        left = self.ends.control.take_tokens()
        assert left is not None
        self.left = left
        self.ends.far.setblocking(False)
        data = bytearray()
        while part := self.part():
            data += part
        assert not unsent
        return bytes(data)

    def part(self) -> bytes:
        try:
            return self.ends.far.recv(1 << 20)
        except BlockingIOError:
            return b""


def frames(stream: bytes, cid: int = CID) -> int:
    """The number of frames of a queue in a stream."""
    return stream.count(write_cid(cid))


@native
def test_a_pump_sends_as_many_bytes_as_it_has_tokens(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pump = Lent(tmp_path, stack)
        pump.much.append_many([bytes(100)] * 1000)
        lane = source_lane(pump.much.tailer())
        for tokens in (8000, 4000, 999, -1):
            data = pump.run(tokens, lane)
            excerpts, rest = excerpts_of(data)
            assert not rest
            assert pump.left == tokens - len(data)
            assert len(data) <= max(tokens, 0)
            assert bool(excerpts) == (tokens == 8000), "one with much leaves half, and a step"
            assert lane.has_much


@native
@pytest.mark.parametrize("size", [100, 2000, 100_000, 400_000])
def test_one_excerpt_goes_out_whole_however_few_tokens_there_are(tmp_path: Path, size: int) -> None:
    with ExitStack() as stack:
        pump = Lent(tmp_path, stack, rate=80)  # a step is one token
        pump.much.append_many([bytes(size)] * 8)
        lane, whole = source_lane(pump.much.tailer()), 0
        for _ in range(8):
            data = pump.run(8, lane)
            excerpts, _ = excerpts_of(data)
            assert (len(excerpts), pump.left) == (1, 8 - len(data))
            whole += len(excerpts)
        assert whole == 8


@native
def test_a_pump_leaves_half_of_the_tokens_for_what_is_live(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pump = Lent(tmp_path, stack)
        pump.much.append_many([bytes(100)] * 1000)
        pump.little.append(bytes(100))
        much = source_lane(pump.much.tailer(), has_much=True)
        little = source_lane(pump.little.tailer(), cid=OTHER_CID)
        data = pump.run(8000, much, little)
        assert data.startswith(write_cid(OTHER_CID)), "what is live goes first"
        assert frames(data, OTHER_CID) == 1
        assert (much.has_much, little.has_much) == (True, False)
        size = len(data) // (frames(data) + 1)
        assert 4000 - size < pump.left < 4000 + size
        left = pump.left
        assert pump.run(left, much, little) == b"", "what has much may not use the rest"
        pump.little.append(bytes(100))
        data = pump.run(left, much, little)
        assert (frames(data), frames(data, OTHER_CID)) == (0, 1)


@native
def test_lanes_share_what_may_be_on_its_way(tmp_path: Path) -> None:
    """The peer reads and acknowledges nothing; then it does, of one of them."""
    budget = live.SendBudget(800)
    with ExitStack() as stack:
        pump = Lent(tmp_path, stack)
        for queue in pump.queues:
            queue.append_many([bytes(8)] * 2000)
        much = source_lane(pump.much.tailer(), budget=budget)
        little = source_lane(pump.little.tailer(), cid=OTHER_CID, budget=budget)
        assert frames(pump.run(MANY, much)) == 700
        assert frames(pump.run(MANY, much, little), OTHER_CID) == 87
        assert budget.free == 13
        assert pump.run(MANY, much, little) == b""
        much.add_room(350, 0)
        assert budget.free == 363
        data = pump.run(MANY, much, little)
        assert 0 < budget.free < 363
        assert frames(data) + frames(data, OTHER_CID) == 363 - budget.free
        budget.set(800)
        assert budget.free == 800


@native
def test_a_window_of_one_excerpt_is_used(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pump = Lent(tmp_path, stack)
        pump.much.append_many([bytes(8)] * 3)
        budget = live.SendBudget(1)
        much = source_lane(pump.much.tailer(), budget=budget)
        assert frames(pump.run(MANY, much)) == 1
        assert pump.run(MANY, much) == b""
        assert budget.free == 0


@native
def test_documents_wait_for_no_tokens(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pump = Lent(tmp_path, stack)
        pump.much.append(b"waits")
        pump.ends.control.send(b"said")
        assert pump.run(-(1 << 40), source_lane(pump.much.tailer())) == b"said"
        assert pump.left == -(1 << 40)


# ---------------------------------------------------------------- one connection, a mock clock


async def test_no_more_goes_out_than_tokens_have_come(autojump_clock: MockClock) -> None:
    near, far = memory_streams()
    pump = make_pump(near, limit=[1000])
    session, rest = Recorder(to_send=10_000, piece=1000), 0
    with trio.move_on_after(30) as scope:
        async with running(pump, session):
            await far.send_all(greeting())
            await said(far, 2)
            start = trio.current_time()
            while session.framed < 10_000:
                await trio.sleep(0.1)
                passed = trio.current_time() - start
                assert session.framed <= 100 + 1000 * passed
                rest = 10_000 - session.framed
            assert passed == pytest.approx(10.0, abs=0.3)
            scope.cancel()
    assert rest == 0


# ---------------------------------------------------------------- whole hosts

SLOW: Final = 256 << 10
MUCH: Final = 512  # excerpts of 16 KiB: half a minute at that limit


def backlog(path: Path, name: str) -> int:
    """A queue with that much in it; the last index."""
    with Queue.open(path / name, create="FAST_DAILY") as queue:
        return queue.append_many([bytes(16 << 10)] * MUCH)


async def test_what_is_live_goes_before_what_catches_up(tmp_path: Path) -> None:
    last = backlog(tmp_path, "much")
    names = ("much", "little")
    paths = {name: tmp_path / name for name in names}
    copies = {name: tmp_path / f"{name}-copy" for name in names}
    with Queue.open(tmp_path / "little", create="FAST_DAILY") as little:
        little.append(b"first")
        async with (
            serve_source(paths, listen=LOOPBACK, limit_bytes_per_s=SLOW, **BEATS) as source,
            serve_sink(copies, connect=at(source.port), **BEATS) as sink,
        ):
            await received(sink, 1, "little")
            await received(sink, 1, "much")
            for _ in range(20):
                await acked(source, little.append(b"now"), "little")
                assert source.queues["much"].acknowledged < last


async def test_a_peer_is_sent_no_more_than_its_limit(tmp_path: Path) -> None:
    """By what it has received, so nothing is asked of the machine's speed."""
    backlog(tmp_path, "q")
    async with live_source(tmp_path / "q", limit_bytes_per_s=SLOW) as source:
        start = trio.current_time()
        async with live_sink(tmp_path / "copy", source.port) as sink:
            for count in (1, 16, 32):
                await received(sink, count)
                passed = trio.current_time() - start
                stored = sink.queues["q"].counters.drained().received.payload_bytes
                # a tenth of a second is kept, and one excerpt may be owed
                assert stored <= SLOW * (passed + 0.1) + (16 << 10)


async def test_a_sink_gives_back_within_its_limit(tmp_path: Path) -> None:
    """All of it comes, and in more than one piece."""
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append(b"first")
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port):
            await acked(source, queue_end(tmp_path / "q"))
    with Queue.open_for_append(tmp_path / "copy") as queue:
        queue.append_many([bytes(1000)] * 64, to_copy=True)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port, limit_bytes_per_s=1 << 20):
            await eventually(lambda: queue_end(tmp_path / "q") == queue_end(tmp_path / "copy"))
    assert_same(tmp_path / "q", tmp_path / "copy")


def queue_end(path: Path) -> int:
    with Queue.open(path) as queue:
        return queue.last_index() or 0


async def test_a_host_takes_on_another_limit_while_it_runs(tmp_path: Path) -> None:
    last = backlog(tmp_path, "q")
    settings = replace(
        host_settings(1, 2, listen=LOOPBACK, remote_ids=[2], limit_bytes_per_s=1 << 10),
        sources={"q": tmp_path / "q"},
    )
    async with serve_host(settings, sources=settings.sources, sinks={}) as host:
        async with live_sink(tmp_path / "copy", host.port) as sink:
            await received(sink, 1)
            assert limits_said(host) == [1 << 10]
            assert host.source.queues["q"].acknowledged < last
            net = replace(host.settings.net, limits={2: 0})
            await host.change(replace(host.settings, net=net))
            assert limits_said(host) == [None]
            with trio.fail_after(SECONDS):
                await host.source.wait_acked(last)
    assert_same(tmp_path / "q", tmp_path / "copy")


def limits_said(host: Any) -> Sequence[object]:
    peers: Any = snapshot_of(host)["peers"]
    return [each["limit"] for each in peers]
