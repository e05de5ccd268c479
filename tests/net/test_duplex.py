"""Queues both ways on one connection, and a program's own handlers beside them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import (
    Host,
    HostSettings,
    NetSettings,
    ProtocolSettings,
    Queue,
    serve_host,
    serve_source,
)
from cqrepl.kernel import live
from cqrepl.net.address import Address
from cqrepl.protocol import HeartbeatSettings, LinkView
from cqrepl.replicator.agreement.consent import ReturnSettings
from cqrepl.replicator.duplexsession import DuplexSession
from cqrepl.replicator.settings import SourceSettings
from tests.support import program
from tests.support.program import Echo, EchoKind
from tests.support.replicas import (
    LOOPBACK,
    SECONDS,
    at,
    copied,
    eventually,
    live_sink,
    live_source,
)
from tests.support.samples import NOON_MS, fill, layout, noon_index, payloads, read

LISTEN = Address.parse(LOOPBACK)
BEATS = HeartbeatSettings(interval_ms=500, timeout_ms=5000)


def settings(
    host_id: int, *, listen: str | None = None, connect: str | None = None, guest: str = ""
) -> HostSettings:
    """Of a host that listens, or of one that dials host 1."""
    return HostSettings(
        net=NetSettings(
            listen=None if listen is None else Address.parse(listen),
            connect=None if connect is None else Address.parse(connect),
        ),
        protocol=ProtocolSettings(
            host_id=host_id,
            guest=guest,
            remote_ids=frozenset({1} if connect is not None else ()),
            heartbeat=BEATS,
        ),
        source=SourceSettings(returns=ReturnSettings(hosts=frozenset({1, 2}))),
    )


@dataclass(frozen=True)
class Two:
    """Two hosts, and the directory of each."""

    one: Host
    other: Host
    here: Path
    there: Path


@asynccontextmanager
async def two_hosts(tmp_path: Path, **more: Any) -> AsyncIterator[Two]:
    """One streams `a` and takes `b`, the other one streams `b` and takes `a`."""
    here, there = tmp_path / "one", tmp_path / "other"
    for path in (here / "a", there / "b"):
        if not path.exists():
            with Queue.open_for_append(path, create=layout()):
                pass
    first = settings(1, listen=LOOPBACK)
    async with serve_host(first, sources={"a": here / "a"}, sinks={"b": here / "b"}, **more) as one:
        second = settings(2, connect=at(one.port))
        async with serve_host(
            second, sources={"b": there / "b"}, sinks={"a": there / "a"}, **more
        ) as other:
            yield Two(one, other, here, there)


async def test_two_queues_in_opposite_directions(tmp_path: Path) -> None:
    ours = fill(tmp_path / "one" / "a", "FAST_DAILY", {0: 700, 1: 1, 3: 40})
    theirs = fill(tmp_path / "other" / "b", "FAST_DAILY", {0: 300, 2: 5})
    async with two_hosts(tmp_path) as two:
        with trio.fail_after(SECONDS):
            await two.one.source.wait_acked(ours[-1][0])
            await two.other.source.wait_acked(theirs[-1][0])
        assert len(two.one.endpoint.sessions) == len(two.other.endpoint.sessions) == 1
        with Queue.open_for_append(two.here / "a") as queue:
            queue.appender().append(payloads(10, seed=1), NOON_MS + 4 * 86_400_000)
        with Queue.open_for_append(two.there / "b") as queue:
            queue.appender().append(payloads(10, seed=2), NOON_MS + 4 * 86_400_000)
        await copied(two.here / "a", two.there / "a")
        await copied(two.there / "b", two.here / "b")
        assert not two.one.source.stops + two.one.sink.stops + two.other.source.stops


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pump")
async def test_both_directions_go_through_one_live_pump(tmp_path: Path) -> None:
    fill(tmp_path / "one" / "a", "FAST_DAILY", {0: 100})
    fill(tmp_path / "other" / "b", "FAST_DAILY", {0: 100})
    async with two_hosts(tmp_path) as two:
        with (
            Queue.open_for_append(two.here / "a") as ours,
            Queue.open_for_append(two.there / "b") as theirs,
            trio.fail_after(SECONDS),
        ):
            while not (is_live_both_ways(two.one) and is_live_both_ways(two.other)):
                ours.append(b"to the other")
                theirs.append(b"to the one")
                await trio.sleep(0.002)
        await copied(two.here / "a", two.there / "a")
        await copied(two.there / "b", two.here / "b")
        assert len(two.one.endpoint.sessions) == 1


def is_live_both_ways(host: Host) -> bool:
    """True while a live pump has queues in both directions."""
    for pump, session in host.endpoint._live.items():
        assert isinstance(session, DuplexSession)
        goes_out = any(each.lane is not None for each in session.source.outgoing.values())
        if pump._shared.turn.is_working and goes_out and session.sink._lanes.each:
            return True
    return False


async def test_a_back_copy_while_the_other_queue_streams(tmp_path: Path) -> None:
    """Each source has lost its last excerpts; both get them back over the same connection."""
    first = {}
    for host, other, name in (("one", "other", "a"), ("other", "one", "b")):
        first[name] = fill(tmp_path / other / name, "FAST_DAILY", {0: 2000})
        fill(tmp_path / host / name, "FAST_DAILY", {0: 1500})
    async with two_hosts(tmp_path) as two:
        await eventually(lambda: len(read(two.here / "a")) == len(read(two.there / "b")) == 2000)
        await copied(two.there / "a", two.here / "a")
        await copied(two.here / "b", two.there / "b")
        with trio.fail_after(SECONDS):
            await eventually(lambda: all(s.is_settled for s in two.one.endpoint.sessions))


async def test_a_queue_goes_one_way(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a queue goes one way: 'a' is to go both"):
        async with serve_host(
            settings(1, listen=LOOPBACK), sources={"a": tmp_path}, sinks={"a": tmp_path}
        ):
            pass


async def test_a_host_of_both_meets_a_source_and_a_sink(tmp_path: Path) -> None:
    """It streams to a sink that dials, and takes from a source that dials."""
    ours = fill(tmp_path / "out", "FAST_DAILY", {0: 100})
    theirs = fill(tmp_path / "theirs", "FAST_DAILY", {0: 200})
    async with serve_host(
        settings(1, listen=LOOPBACK),
        sources={"q": tmp_path / "out"},
        sinks={"theirs": tmp_path / "in"},
    ) as host:
        source = live_sink(tmp_path / "copy", host.port)
        async with source:
            await copied(tmp_path / "out", tmp_path / "copy")
        async with serve_source(
            [tmp_path / "theirs"], connect=at(host.port), host_id=3, remote_ids=[1]
        ) as dialler:
            with trio.fail_after(SECONDS):
                await dialler.wait_acked(theirs[-1][0])
    assert read(tmp_path / "in") == theirs
    assert read(tmp_path / "copy") == ours


async def test_a_queue_that_is_taken_elsewhere_is_offered_when_it_is_free(tmp_path: Path) -> None:
    """A sink takes from one source at a time; the second one is told when the first has gone."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 100})
    fill(tmp_path / "second", "FAST_DAILY", {0: 150})
    async with serve_host(
        settings(9, listen=LOOPBACK), sources={}, sinks={"q": tmp_path / "copy"}
    ) as sink:
        first = live_source(
            tmp_path / "q", listen=None, connect=at(sink.port), host_id=1, remote_ids=[9]
        )
        second = live_source(
            tmp_path / "second", listen=None, connect=at(sink.port), host_id=2, remote_ids=[9]
        )
        leave = trio.Event()

        async def run_first() -> None:
            async with first:
                await leave.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_first)
            await eventually(lambda: sink.sink.queues["q"].received_excerpts == len(written))
            async with second as waiting:
                await eventually(lambda: len(sink.endpoint.sessions) == 2)
                with trio.move_on_after(0.2):
                    await waiting.wait_acked(written[-1][0])
                assert waiting.queues["q"].acknowledged == -1
                leave.set()  # for good: one whose connection is cut would come again
                await eventually(lambda: waiting.queues["q"].sent_excerpts > 0)
                assert not waiting.stops


# a program's own handlers


@dataclass
class Greeter:
    """Registers one handler at every peer that can take it, and keeps what it was told."""

    kind: EchoKind = field(default_factory=EchoKind)
    echoes: list[Echo] = field(default_factory=list)
    told_of: list[object] = field(default_factory=list)
    greets: bool = True

    @property
    def kinds(self) -> tuple[EchoKind, ...]:
        return (self.kind,)

    async def connected(self, link: LinkView) -> None:
        if self.greets and program.CAPABILITY in link.capabilities:
            self.echoes.append(program.register(link, self.kind, "/echo/1"))

    async def told(self, link: LinkView, event: object) -> None:
        self.told_of.append(event)


def has_heard(greeter: Greeter, count: int) -> bool:
    return len(greeter.told_of) >= count


async def test_a_programs_handlers_beside_the_queues(tmp_path: Path) -> None:
    ours = fill(tmp_path / "q", "FAST_DAILY", {0: 700})
    asks, answers = Greeter(), Greeter(greets=False)
    async with live_source(tmp_path / "q", program=asks) as source:
        async with live_sink(tmp_path / "copy", source.port, program=answers):
            await eventually(lambda: bool(answers.kind.made))
            for nth in range(20):
                asks.echoes[0].say(f"word {nth}")
                await eventually(partial(has_heard, asks, nth + 1))
            with trio.fail_after(SECONDS):
                await source.wait_acked(ours[-1][0])
            await copied(tmp_path / "q", tmp_path / "copy")
            assert asks.told_of[-1] == ("/echo/1", "WORD 19")
    assert asks.echoes[0].closed_for
    assert len(asks.echoes[0].closed_for) == len(answers.kind.made[0].closed_for) == 1


async def test_a_program_meets_a_peer_without_it(tmp_path: Path) -> None:
    ours = fill(tmp_path / "q", "FAST_DAILY", {0: 70})
    asks = Greeter()
    async with live_source(tmp_path / "q", program=asks) as source:
        async with live_sink(tmp_path / "copy", source.port):
            with trio.fail_after(SECONDS):
                await source.wait_acked(ours[-1][0])
    assert asks.echoes == []


async def test_a_program_and_queues_both_ways(tmp_path: Path) -> None:
    both = Greeter()
    async with two_hosts(tmp_path, program=both) as two:
        await eventually(lambda: len(both.kind.made) == 2)
        for echo in list(both.echoes):
            echo.say("x" * 30_000)
        await eventually(lambda: len(both.told_of) == 2)
        with Queue.open_for_append(two.here / "a") as queue:
            queue.appender().append([b"y"], NOON_MS)
        with trio.fail_after(SECONDS):
            await two.one.source.wait_acked(noon_index())


# guests


@asynccontextmanager
async def guest(name: str, port: int | None, greeter: Greeter) -> AsyncIterator[Host]:
    """A peer that is no member, with a program and no queues."""
    own = settings(1, connect=at(port), guest=name)
    async with serve_host(own, sources={}, sinks={}, program=greeter) as host:
        yield host


async def test_guests_are_served_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    answers = Greeter(kind=EchoKind(takes_guests=True), greets=False)
    one = replace(settings(1, listen=LOOPBACK), net=NetSettings(listen=LISTEN, guests_max=2))
    greeters = [Greeter() for _ in range(3)]
    async with serve_host(one, sources={"q": tmp_path / "q"}, sinks={}, program=answers) as host:
        async with guest("a", host.port, greeters[0]), guest("b", host.port, greeters[1]):
            await eventually(lambda: len(answers.kind.made) == 2)
            for greeter in greeters[:2]:
                greeter.echoes[0].say("hello" * 1000)
                await eventually(partial(has_heard, greeter, 1))
            async with guest("c", host.port, greeters[2]):
                await eventually(lambda: "at most 2 guests at a time" in caplog.text)
            async with live_sink(tmp_path / "copy", host.port):
                await copied(tmp_path / "q", tmp_path / "copy")
        await eventually(lambda: not host.endpoint.sessions)
        async with guest("c", host.port, greeters[2]):
            await eventually(lambda: len(answers.kind.made) == 3)
        assert not host.source.queues["q"].marks.keys() - {2}


@pytest.mark.parametrize("has_program", [True, False])
async def test_a_guest_has_no_queues(tmp_path: Path, has_program: bool) -> None:
    own = settings(1, connect="127.0.0.1:1", guest="x")
    program = Greeter() if has_program else None
    wanted = "a guest has no queues" if has_program else "at least one queue or a program"
    with pytest.raises(ValueError, match=wanted):
        async with serve_host(
            own, sources={"q": tmp_path} if has_program else {}, sinks={}, program=program
        ):
            pass
