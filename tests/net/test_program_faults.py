"""An exception of a program's own code ends the handler, or the connection, that met it; and
nothing else."""

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import cqrepl.aio
import cqrepl.blocking
from cqrepl import Host, HostEvents, HostSettings, Queue
from cqrepl.protocol import LinkView
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.programfault import HANDLER_FAILED, Contained
from tests.support.program import Echo, EchoKind, register, text_document
from tests.support.replicas import LOOPBACK, SECONDS, at, eventually
from wire import Reader

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


def failing_events() -> HostEvents:
    def fail(*told: object) -> None:
        raise LookupError(MISTAKE)

    return HostEvents(on_role=fail, on_acked=fail, on_lag=fail, on_diverged=fail)


def test_a_blocking_host_outlives_its_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own: dict[str, Any] = {"program": Answering("receive"), "events": failing_events()}
    with cqrepl.blocking.Host(settings_of(tmp_path / "q"), **own) as host:
        to_here = peer_of(host.port, tmp_path / "copy")
        with cqrepl.blocking.Host(to_here, program=Asking()):
            until = time.monotonic() + SECONDS
            while not (says_mistake(caplog) and "on_role" in caplog.text):
                assert time.monotonic() < until
                time.sleep(0.01)
            index = host.queue().append(b"x")
            host.queue().wait_acked(index, n=1, timeout=SECONDS)


def test_a_host_in_asyncio_outlives_its_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        own: dict[str, Any] = {"program": Answering("receive"), "events": failing_events()}
        async with cqrepl.aio.Host(settings_of(tmp_path / "q"), **own) as host:
            to_here = peer_of(host.port, tmp_path / "copy")
            async with cqrepl.aio.Host(to_here, program=Asking()):
                while not (says_mistake(caplog) and "on_role" in caplog.text):
                    await asyncio.sleep(0.01)
                index = await host.queue().append(b"x")
                await host.queue().wait_acked(index, n=1)

    asyncio.run(asyncio.wait_for(main(), SECONDS))


# what is contained


def contained(raised: BaseException) -> list[Exception]:
    told: list[Exception] = []
    with Contained(told.append, OSError):
        raise raised
    return told


def test_an_exception_is_told_and_goes_no_further() -> None:
    mistake = LookupError(MISTAKE)
    assert contained(mistake) == [mistake]
    group = ExceptionGroup("", [mistake])
    assert contained(group) == [group]


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(7), OSError("it passes")])
def test_what_is_no_exception_goes_through(raised: BaseException) -> None:
    with pytest.raises(type(raised)) as caught:
        contained(raised)
    assert caught.value is raised


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
