"""Queues both ways on one connection, and a program's own handlers beside them."""

import logging
import math
from collections.abc import AsyncIterator, Mapping
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
)
from cqrepl.net.address import Address
from cqrepl.protocol import HeartbeatSettings, LinkView
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.programfault import HANDLER_FAILED, Contained
from cqrepl.replicator.agreement.consent import ReturnSettings
from cqrepl.replicator.settings import SourceSettings
from tests.support import program
from tests.support.program import Echo, EchoKind, register, text_document
from tests.support.replicas import (
    LOOPBACK,
    SECONDS,
    at,
    copied,
    eventually,
    live_sink,
    live_source,
)
from tests.support.samples import NOON_MS, fill, layout, payloads, read
from wire import Reader

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


MISTAKE = "a mistake of the program"
NAMED = "EchoHandler at '/echo/1'"


class Raising(Echo):
    """The half that answers; one of its methods fails at what the peer says."""

    fails_in = "receive"

    def receive(self, name: str, reader: Reader, now: float) -> bool:
        known = super().receive(name, reader, now)
        if self.fails_in == "receive":
            raise LookupError(MISTAKE)
        if self.fails_in == "tick":
            super().__setattr__("deadline", now)
        return known

    def tick(self, now: float) -> None:
        raise LookupError(MISTAKE)

    def produce(self, room: int) -> bytes:
        data = super().produce(room)
        if data and self.fails_in == "produce":
            raise LookupError(MISTAKE)
        return data[:-1] if self.fails_in == "half a document" else data

    def closed(self, reason: str) -> None:
        super().closed(reason)
        if self.fails_in == "closed":
            raise LookupError(MISTAKE)

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__
        if name == "deadline" and own("heard") and own("fails_in") == "deadline":
            raise LookupError(MISTAKE)
        return own(name)


class RaisingKind(EchoKind):
    """Fails as the peer registers, or makes halves that do."""

    fails_in = "receive"

    def read_body(self, fields: Mapping[str, Reader]) -> str:
        if self.fails_in == "read_body":
            raise LookupError(MISTAKE)
        return super().read_body(fields)

    def accept(self, csp: str, cid: Cid, body: object, link: LinkView, now: float) -> Echo | str:
        if self.fails_in == "accept":
            raise LookupError(MISTAKE)
        half = Raising(csp, link, answers=self.fails_in != "told", cid=cid)
        half.fails_in = self.fails_in
        self.made.append(half)
        return half


class Answering:
    """The program of the host that is to stay."""

    def __init__(self, fails_in: str) -> None:
        self.kind = RaisingKind()
        self.kind.fails_in = fails_in
        self.connections = 0

    @property
    def kinds(self) -> tuple[EchoKind, ...]:
        return (self.kind,)

    async def connected(self, link: LinkView) -> None:
        self.connections += 1
        if self.kind.fails_in == "connected" and self.connections == 1:
            raise LookupError(MISTAKE)

    async def told(self, link: LinkView, event: object) -> None:
        async with trio.open_nursery():  # as one of the program's own tasks would
            raise LookupError(MISTAKE)


class Asking:
    """Has each peer answer, once, whatever comes of it."""

    def __init__(self) -> None:
        self.kind = EchoKind()
        self.halves: list[Echo] = []

    @property
    def kinds(self) -> tuple[EchoKind, ...]:
        return (self.kind,)

    async def connected(self, link: LinkView) -> None:
        half = register(link, self.kind, "/echo/1")
        self.halves.append(half)
        if len(self.halves) == 1:
            link.send(half.cid, text_document("say", "hello"))

    async def told(self, link: LinkView, event: object) -> None:
        pass


def settings_of(path: Path) -> HostSettings:
    Queue.open_for_append(path, create="FAST_DAILY").close()
    return HostSettings.of(listen=LOOPBACK, sources={"q": path})


def peer_of(port: int | None, path: Path) -> HostSettings:
    return HostSettings.of(connect=at(port), sinks={"q": path})


def says_mistake(caplog: pytest.LogCaptureFixture) -> bool:
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    return any(NAMED in each and "host 2 at " in each and MISTAKE in each for each in told)


@pytest.mark.parametrize(
    "fails_in",
    ["receive", "tick", "produce", "half a document", "deadline", "closed", "accept", "read_body"],
)
async def test_a_handler_that_fails_ends_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fails_in: str
) -> None:
    answering, asking = Answering(fails_in), Asking()
    async with Host(settings_of(tmp_path / "q"), program=answering) as host:
        async with Host(peer_of(host.port, tmp_path / "copy"), program=asking):
            await eventually(lambda: bool(asking.halves))
            if fails_in == "closed":
                asking.halves[0].link.remove(asking.halves[0].cid)
            if fails_in == "half a document":
                await eventually(lambda: "that is not whole" in caplog.text)
            else:
                await eventually(partial(says_mistake, caplog))
            if fails_in not in ("closed", "accept", "read_body"):
                await eventually(lambda: asking.halves[0].closed_for == [HANDLER_FAILED])
                assert len(answering.kind.made[0].closed_for) == 1
            with trio.fail_after(SECONDS):  # the queue goes on, over the same connection
                await host.queue().wait_acked(await host.queue().append(b"x"), n=1)
            assert len(asking.halves) == 1


@pytest.mark.parametrize("fails_in", ["connected", "told"])
async def test_a_program_that_fails_ends_the_connection_that_it_was_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fails_in: str
) -> None:
    answering, asking = Answering(fails_in), Asking()
    async with Host(settings_of(tmp_path / "q"), program=answering) as host:
        async with Host(peer_of(host.port, tmp_path / "copy"), program=asking):
            await eventually(lambda: answering.connections == 2)
            assert "closed: the program has failed: " in caplog.text
            assert MISTAKE in caplog.text
            with trio.fail_after(SECONDS):
                await host.queue().wait_acked(await host.queue().append(b"x"), n=1)


# what is contained


def contained(raised: BaseException) -> list[Exception]:
    told: list[Exception] = []
    with Contained(told.append, OSError):
        raise raised
    return told


def test_of_a_group_what_is_no_exception_goes_through() -> None:
    told: list[Exception] = []
    ends, mistake = SystemExit(7), LookupError(MISTAKE)
    with pytest.raises(BaseExceptionGroup) as caught, Contained(told.append):
        raise BaseExceptionGroup("", [mistake, ends])
    assert caught.value.exceptions == (ends,)
    assert [each.exceptions for each in told if isinstance(each, ExceptionGroup)] == [(mistake,)]


async def test_cancellation_goes_through() -> None:
    told: list[Exception] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        with Contained(told.append):
            await trio.sleep(math.inf)
    assert scope.cancelled_caught
    assert not told
