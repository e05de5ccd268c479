"""Threat T8: a peer that has connected and not said who it is costs little, and keeps none out."""

import errno
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cqrepl.net import listener
from cqrepl.net.address import Address
from cqrepl.net.doorstep import UNGREETED_ALL_MAX, UNGREETED_MAX, Doorstep
from cqrepl.net.errors import Unreachable
from cqrepl.net.limits import GuestPace
from cqrepl.net.listener import ACCEPT_PAUSE_SECONDS
from cqrepl.net.peerlog import MACHINES_MAX, REASONS_MAX, PeerLog
from cqrepl.net.pump import Pump
from cqrepl.net.roster import TAKE_OVER_SECONDS, TAKE_OVERS_MAX, Roster
from cqrepl.protocol import Connection, ConnectionConfig
from cqrepl.replicator.queuestate.queues import named
from tests.net.streams import InMemory, Recorder, make_pump, memory_streams
from tests.support import peer
from tests.support.replicas import at, live_sink, live_source
from tests.support.samples import fill

SECONDS = 10


class Guest:
    """A peer that waits; `why` it had to go."""

    def __init__(self) -> None:
        self.why = ""

    def dismiss(self, why: str) -> None:
        self.why = why


def test_t8_the_oldest_of_a_machine_goes_for_its_newest() -> None:
    step, guests = Doorstep(), [Guest() for _ in range(20)]
    other = Guest()
    step.enter("192.0.2.2", other)
    for guest in guests:
        step.enter("192.0.2.1", guest)
    gone = [bool(guest.why) for guest in guests]
    assert gone == [True] * (20 - UNGREETED_MAX) + [False] * UNGREETED_MAX
    assert not other.why


def test_t8_the_oldest_of_all_machines_goes_for_the_newest_of_any() -> None:
    step, guests = Doorstep(), [Guest() for _ in range(800)]
    for nth, guest in enumerate(guests):
        step.enter(f"192.0.{nth // 250}.{nth % 250}", guest)
    gone = [bool(guest.why) for guest in guests]
    assert gone == [True] * (800 - UNGREETED_ALL_MAX) + [False] * UNGREETED_ALL_MAX
    assert guests[0].why == f"more than {UNGREETED_ALL_MAX} have said nothing yet"


async def test_t25_many_machines_write_few_lines(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    log = PeerLog()
    with caplog.at_level(logging.INFO, "cqrepl"):
        for nth in range(800):
            log.tell(logging.INFO, f"192.0.{nth // 250}.{nth % 250}:1234", "closed: said nothing")
        log.tell(logging.INFO, "192.0.2.1:9", "closed: something else")
        assert len(caplog.messages) == MACHINES_MAX + 2
        await trio.sleep(1.5)
        log.tell(logging.INFO, "192.0.9.1:9", "connected")
    assert any("(791 such lines)" in each for each in caplog.messages)


def test_guests_are_read_from_in_turn() -> None:
    pace = GuestPace(100)
    assert pace.wait(50, 10.0) == pytest.approx(0.5)
    assert pace.wait(100, 10.0) == pytest.approx(1.5)  # another guest, behind the first
    assert pace.wait(1, 20.0) == pytest.approx(0.01)  # what was free is not saved up
    assert pace.wait(0, 20.0) == 0.0
    assert GuestPace(0).wait(1_000_000, 10.0) == 0.0


def test_t8_who_has_greeted_does_not_go() -> None:
    step, guests = Doorstep(), [Guest() for _ in range(20)]
    for guest in guests:
        step.enter("192.0.2.1", guest)
        step.leave(guest)
    assert not any(guest.why for guest in guests)
    assert not step.make_room()


def test_t8_room_is_made_by_the_oldest_of_all() -> None:
    step, guests = Doorstep(), [Guest() for _ in range(3)]
    for nth, guest in enumerate(guests):
        step.enter(f"192.0.2.{nth}", guest)
    assert step.make_room()
    assert [bool(guest.why) for guest in guests] == [True, False, False]


class Poor:
    """A listener on a machine that has no descriptor left, until it is given one."""

    def __init__(self) -> None:
        self.asked = 0
        self.given: trio.SocketStream | None = None

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.given is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        given, self.given = self.given, None
        return given

    async def __aenter__(self) -> "Poor":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""


async def test_t8_without_descriptors_it_waits_and_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener asks a few times a second, tells of it once a second at most, and takes a peer
    that comes then."""
    poor, served = Poor(), trio.Event()

    async def on_stream(stream: trio.SocketStream) -> None:
        served.set()

    near, far = socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, cast(trio.SocketListener, poor), on_stream)
        await trio.sleep(SECONDS)
        assert 1 < poor.asked <= SECONDS / ACCEPT_PAUSE_SECONDS + 2
        assert 1 <= len(caplog.messages) <= SECONDS + 1
        assert "Too many open files" in caplog.text
        poor.given = trio.SocketStream(trio.socket.from_stdlib_socket(near))
        await served.wait()
        nursery.cancel_scope.cancel()
    far.close()


FLOOD_SECONDS = 60


@pytest.fixture
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.usefixtures("all_levels")
async def test_t25_a_flood_of_one_reason_is_a_line_a_second(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = PeerLog()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        for nth in range(100 * FLOOD_SECONDS):
            log.tell(logging.INFO, f"192.0.2.1:{nth}", f"closed: {nth} bytes came")
            await trio.sleep(0.01)
        await trio.sleep(2)  # the last count is told without another line
        nursery.cancel_scope.cancel()
    assert FLOOD_SECONDS <= len(caplog.messages) <= FLOOD_SECONDS + 2
    assert caplog.messages[0] == "192.0.2.1:0: closed: 0 bytes came"
    counts = [int(line.rpartition("(")[2].split()[0]) for line in caplog.messages[1:]]
    assert 1 + sum(counts) == 100 * FLOOD_SECONDS
    assert caplog.messages[-1].startswith("192.0.2.1:5999: closed: 5999 bytes came (")


@pytest.mark.usefixtures("all_levels")
async def test_other_reasons_and_other_machines_are_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = PeerLog()
    lines = [("192.0.2.1:1", "closed: a"), ("192.0.2.2:1", "closed: a"), ("192.0.2.1:2", "closed")]
    for address, message in lines * 2:
        log.tell(logging.INFO, address, message)
    assert caplog.messages == [f"{address}: {message}" for address, message in lines]


@pytest.mark.usefixtures("all_levels")
async def test_a_reason_that_was_quiet_for_a_second_is_told_as_it_is(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = PeerLog()
    for _ in range(3):
        log.tell(logging.INFO, "192.0.2.1:1", "closed")
        await trio.sleep(1.5)
    assert caplog.messages == ["192.0.2.1:1: closed"] * 3


@pytest.mark.usefixtures("all_levels")
async def test_t25_reasons_without_end_share_one(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = PeerLog()
    for nth in range(10 * REASONS_MAX):
        log.tell(logging.INFO, "192.0.2.1:1", f"refused: queue {'x' * nth}")
    assert len(caplog.messages) == REASONS_MAX + 1
    await trio.sleep(1)
    log.tell(logging.WARNING, "192.0.2.1:1", "closed")
    assert f"({9 * REASONS_MAX - 1} such lines)" in caplog.messages[-2]


async def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(Unreachable) as caught:
            await listener.open_listener(address)
    assert str(caught.value) == f"cannot listen on {address}: the port is in use"


async def test_a_name_for_several_addresses() -> None:
    """One socket listens, and what it says it listens on can be dialled."""
    heard = trio.Event()

    async def on_stream(stream: trio.SocketStream) -> None:
        heard.set()

    found = await listener.open_listener(Address("localhost", 0))
    async with found, trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, found, on_stream)
        host = found.socket.getsockname()[0]
        async with await trio.open_tcp_stream(host, listener.listening_port(found)):
            with trio.fail_after(60):
                await heard.wait()
        nursery.cancel_scope.cancel()


async def test_connections_beyond_the_limit_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 2)
    live: list[str] = []
    leave = trio.Event()

    async def on_stream(stream: trio.SocketStream) -> None:
        live.append(listener.peer_name(stream))
        await stream.send_all(b"hello")
        await leave.wait()
        await stream.aclose()

    async def dial(port: int) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    found = await listener.open_listener(Address("127.0.0.1", 0))
    port = listener.listening_port(found)
    async with found, trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, found, on_stream)
        with trio.fail_after(60):
            served = [await dial(port), await dial(port)]
            for stream in served:
                assert await stream.receive_some(5) == b"hello"
            async with await dial(port) as refused:
                name = at(refused.socket.getsockname()[1])
                with suppress(trio.BrokenResourceError):  # a reset is as good
                    assert await refused.receive_some(5) == b""
            assert [r.getMessage() for r in caplog.records] == [f"{name}: refused: 2 are connected"]
            leave.set()
            for stream in served:
                assert await stream.receive_some(5) == b""
                await stream.aclose()
            async with await dial(port) as again:  # there is room again
                assert await again.receive_some(5) == b"hello"
        nursery.cancel_scope.cancel()
    assert all(name.startswith("127.0.0.1:") for name in live)


class House:
    """Connections that all knock at one roster."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.roster = Roster()
        self._nursery = nursery
        self._far: list[InMemory] = []

    async def knock(self, host_id: int) -> Pump:
        near, far = memory_streams()
        self._far.append(far)
        pump = make_pump(near)
        pump._admit = self.roster.enter
        self._nursery.start_soon(self._run, pump)
        await far.send_all(peer.uber(host_id, 1) + peer.heartbeats(3_600_000, 1_800_000))
        await wait_all_tasks_blocked()
        return pump

    async def _run(self, pump: Pump) -> None:
        await pump.run(Recorder())
        self.roster.leave(pump)


async def test_the_newer_one_wins(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        first, other = await house.knock(2), await house.knock(3)
        second = await house.knock(2)
        assert first.ended.is_set()
        assert first.ended_why == "host id 2 connected again"
        assert house.roster.pumps == [second, other]
        assert not second.ended.is_set()
        assert not other.ended.is_set()
        nursery.cancel_scope.cancel()


async def test_t10_more_than_three_take_overs_in_ten_seconds_are_refused(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        live = await house.knock(2)
        for _ in range(TAKE_OVERS_MAX):
            before, live = live, await house.knock(2)
            assert before.ended.is_set()
            await trio.sleep(1)
        refused = await house.knock(2)
        assert refused.ended.is_set()
        assert refused.has_failed
        assert "do two hosts have this id?" in refused.ended_why
        assert sum("do two hosts" in message for message in caplog.messages) == 1
        assert house.roster.pumps == [live]
        assert not (await house.knock(3)).ended.is_set()  # another host is not concerned
        await trio.sleep(TAKE_OVER_SECONDS - TAKE_OVERS_MAX)
        again = await house.knock(2)  # the first take-over is ten seconds ago now
        assert house.roster.pumps[0] is again
        assert live.ended.is_set()
        assert (await house.knock(2)).has_failed
        nursery.cancel_scope.cancel()


async def test_a_second_host_of_one_id_hears_why(tmp_path: Path) -> None:
    """Once the two have taken over from each other too often; the first one goes on."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            other = ConnectionConfig(settings=sink.endpoint.protocol, is_dialler=True)
            refused = ""
            while not refused:
                assert source.port is not None
                stream = await trio.open_tcp_stream("127.0.0.1", source.port)
                pump = Pump(stream, Connection(other, trio.current_time()), "other", let_in)
                with trio.move_on_after(0.2):
                    await pump.run(Recorder())
                refused = pump.ended_why if pump.connection.was_refused else ""
            assert refused.startswith("the peer says: host id 2 is connected")
            assert refused.endswith("do two hosts have this id?")


async def let_in(host_id: int, pump: Pump) -> str | None:
    return None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("localhost:65535", "localhost", 65535),
        ("[::1]:4000", "::1", 4000),
        ("[fe80::1%lo]:1", "fe80::1%lo", 1),
        ("a-host.example:080", "a-host.example", 80),
    ],
)
def test_good_address(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == Address(host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "host", "host:", ":80", "80", "host:-1", "host:+1", "host: 1", "host:1x"),
        *("host:65536", "host:99999999999999999999", "::1:80", "host:\u0661", "host:1:2", "h:1\n"),
    ],
)
def test_bad_address_says_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        Address.parse(text)
    assert "\n" not in str(caught.value)


def test_names_of_directories(tmp_path: Path) -> None:
    assert named(["/a/one", Path("/b/two/")]) == {"one": Path("/a/one"), "two": Path("/b/two")}
    assert named({"n": "/a/one"}) == {"n": Path("/a/one")}
    assert list(named([Path()])) == [Path().absolute().name]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "/abs", "a/b", "a\\b", "-a", ".a", "_a", "a b", "a\0b", "a\n"),
        *("a" * 129, "\uff0fx", "caf\u00e9", "a:b", "a=b", "~"),
    ],
)
def test_hostile_name(name: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        named({name: "/a"})
    assert "\n" not in str(caught.value)


def test_same_name_twice() -> None:
    with pytest.raises(ValueError, match="two queues are named 'q'"):
        named(["/a/q", "/b/q"])


def test_no_queue() -> None:
    with pytest.raises(ValueError, match="at least one"):
        named([])
