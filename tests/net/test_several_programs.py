"""Several programs on one host: each has the peers, and the words of its own handlers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

import cqrepl
import cqrepl.aio
import cqrepl.blocking
from cqrepl import Host, HostSettings, LinkView, Queue
from cqrepl.protocol.cid import Cid
from tests.support.program import Echo, EchoKind, register, text_document
from tests.support.replicas import LOOPBACK, SECONDS, at, eventually

MISTAKE = "a mistake of the program"


@dataclass(eq=False)
class AskedBackKind(EchoKind):
    """Its half tells what it hears, on the side that was asked."""

    def accept(self, csp: str, cid: Cid, body: object, link: LinkView, now: float) -> Echo:
        self.made.append(Echo(csp, link, answers=False, cid=cid))
        return self.made[-1]


@dataclass(eq=False)
class Service:
    """One program; a peer with its kind is asked under its csp."""

    name: str
    asks: bool = False
    fails: int = 0  # so many connections
    links: list[LinkView] = field(default_factory=list)
    told_of: list[tuple[LinkView, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = AskedBackKind(alias=f"!{self.name}Handler", needs=frozenset({self.name}))
        self.kinds = (self.kind,)

    @property
    def csp(self) -> str:
        return f"/{self.name}/1"

    async def connected(self, link: LinkView) -> None:
        self.links.append(link)
        if len(self.links) <= self.fails:
            raise LookupError(MISTAKE)
        if self.asks:
            half = register(link, self.kind, self.csp)
            link.send(half.cid, text_document("say", self.name))

    async def told(self, link: LinkView, event: object) -> None:
        self.told_of.append((link, event))

    @property
    def heard(self) -> list[object]:
        return [event for _, event in self.told_of]


class Chat(Service):
    pass


class Audit(Service):
    pass


def here(path: Path) -> HostSettings:
    Queue.open_for_append(path, create="FAST_DAILY").close()
    return HostSettings.of(listen=LOOPBACK, sources={"q": path})


def there(port: int | None, path: Path) -> HostSettings:
    return HostSettings.of(connect=at(port), sinks={"q": path})


async def test_each_program_has_each_peer_and_hears_its_own_handlers(tmp_path: Path) -> None:
    """On the side that registers, and on the side that accepts."""
    asking = [Chat("chat", asks=True), Audit("audit", asks=True)]
    asked = [Audit("audit"), Chat("chat")]  # their order at the peer is another one
    async with Host(here(tmp_path / "q"), programs=asked) as host:
        async with Host(there(host.port, tmp_path / "copy"), programs=asking):
            await eventually(lambda: all(each.heard for each in asked))
            for each in asked:
                assert each.heard == [(each.csp, each.name)]
                assert each.told_of[0][0] is each.links[0]
                each.kind.made[0].say("back")
            await eventually(lambda: all(each.heard for each in asking))
            for each in asking:
                assert each.heard == [(each.csp, "back")]
                assert each.told_of[0][0] is each.links[0]
            assert [len(each.links) for each in (*asking, *asked)] == [1, 1, 1, 1]
            with trio.fail_after(SECONDS):  # and the queue goes the same way
                await host.queue().wait_acked(await host.queue().append(b"x"), n=1)


async def test_serve_source_and_serve_sink_take_several(tmp_path: Path) -> None:
    asking = [Chat("chat", asks=True), Audit("audit", asks=True)]
    asked = [Chat("chat"), Audit("audit")]
    Queue.open_for_append(tmp_path / "q", create="FAST_DAILY").close()
    async with cqrepl.serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, programs=asked) as one:
        copy = {"q": tmp_path / "copy"}
        async with cqrepl.serve_sink(copy, connect=at(one.port), programs=asking):
            await eventually(lambda: all(each.heard for each in asked))
            assert [each.heard for each in asked] == [
                [("/chat/1", "chat")],
                [("/audit/1", "audit")],
            ]


MAKERS: list[Any] = [Host, cqrepl.aio.Host, cqrepl.blocking.Host]


@pytest.mark.parametrize("make", MAKERS)
def test_two_programs_with_one_kind_are_refused_by_their_names(tmp_path: Path, make: Any) -> None:
    wanted = "Chat and Audit both add the kind '!chatHandler'"
    with pytest.raises(ValueError, match=wanted):
        make(here(tmp_path / "q"), programs=[Chat("chat"), Audit("chat")])


@pytest.mark.parametrize("make", MAKERS)
def test_program_and_programs_are_not_given_both(tmp_path: Path, make: Any) -> None:
    with pytest.raises(ValueError, match="expected program= or programs=, got both"):
        make(here(tmp_path / "q"), program=Chat("chat"), programs=[Audit("audit")])


async def test_a_kind_of_the_hosts_own_is_refused_when_it_is_entered(tmp_path: Path) -> None:
    """Not only once a peer connects, which would end the host."""
    host = Host(here(tmp_path / "q"), programs=[Chat("Fetch")])
    with pytest.raises(ValueError, match="LostFiles and Chat both add the kind '!FetchHandler'"):
        async with host:
            pass


@pytest.mark.parametrize("alias", ["", "Heartbeat"])
def test_a_kind_without_a_name_of_its_own_is_refused(tmp_path: Path, alias: str) -> None:
    program = Chat(alias)
    program.kind.alias = f"!{alias}Handler" if alias else ""
    with pytest.raises(ValueError, match="Chat"):
        Host(here(tmp_path / "q"), programs=[Audit("audit"), program])


async def test_a_program_that_fails_is_named_and_ends_its_connection_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one behind it is told of the next connection, and works."""
    failing, good, asking = Chat("chat", fails=1), Audit("audit"), Audit("audit", asks=True)
    async with Host(here(tmp_path / "q"), programs=[failing, good]) as host:
        async with Host(there(host.port, tmp_path / "copy"), programs=[asking]):
            await eventually(lambda: ("/audit/1", "audit") in good.heard)
            assert (len(failing.links), len(good.links)) == (2, 1)
            assert f"the program has failed: Chat: LookupError('{MISTAKE}')" in caplog.text
            with trio.fail_after(SECONDS):
                await host.queue().wait_acked(await host.queue().append(b"x"), n=1)


async def test_a_program_that_waits_in_told_holds_up_what_comes_behind_it(tmp_path: Path) -> None:
    slow, quick = Slow("chat"), Audit("audit")
    asking = [Chat("chat", asks=True), Audit("audit", asks=True)]
    async with Host(here(tmp_path / "q"), programs=[slow, quick]) as host:
        async with Host(there(host.port, tmp_path / "copy"), programs=asking):
            await eventually(lambda: bool(slow.told_of))
            assert not quick.heard  # it came later over the same connection
            slow.go.set()
            await eventually(lambda: bool(quick.heard))


class Slow(Chat):
    """Waits when it is told something."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.go = trio.Event()

    async def told(self, link: LinkView, event: object) -> None:
        await super().told(link, event)
        await self.go.wait()
