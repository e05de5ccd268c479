"""Dialling on a mock clock; hosts that refuse, hang or come back are a socket factory of trio's."""

import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cqrepl.net.address import Address
from cqrepl.net.dialer import (
    COMPLAIN_SECONDS,
    GIVE_UP_SECONDS,
    PAUSE_FIRST_SECONDS,
    PAUSE_MAX_SECONDS,
    Dialled,
    dial,
)
from cqrepl.net.errors import Unreachable

THERE = Address("127.0.0.9", 4000)
HOUR = 3600.0


@pytest.fixture
def brisk_hosts() -> None:
    """Pauses are as long as users have them: the clock is none of the machine's."""


class Host(trio.abc.SocketFactory):
    """Every host there is. `answer` is what happens with an attempt to connect."""

    def __init__(self, answer: Callable[[], Awaitable[None]]) -> None:
        self.attempts: list[float] = []
        self.answer = answer
        trio.socket.set_custom_socket_factory(self)

    def socket(self, *arguments: Any, **more: Any) -> trio.socket.SocketType:
        return Attempt(self)


class Attempt(trio.socket.SocketType):
    """A socket that can be connected, closed, and nothing else."""

    def __init__(self, host: Host) -> None:
        self._host = host

    type = socket.SOCK_STREAM

    async def connect(self, address: Any) -> None:
        self._host.attempts.append(trio.current_time())
        await self._host.answer()

    def setsockopt(self, *arguments: Any) -> None:
        pass

    def getpeername(self) -> tuple[str, int]:
        return (THERE.host, THERE.port)

    def close(self) -> None:
        pass


async def refuse() -> None:
    await trio.lowlevel.checkpoint()
    raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


async def hang() -> None:
    await trio.sleep_forever()


async def accept() -> None:
    await trio.lowlevel.checkpoint()


async def works(stream: trio.SocketStream) -> Dialled:
    """Runs a connection for a minute."""
    await trio.sleep(60)
    return Dialled(None, was_useful=True)


async def never(stream: trio.SocketStream) -> Dialled:
    raise AssertionError("connected")


async def test_pauses_double_with_jitter_up_to_a_limit(autojump_clock: MockClock) -> None:
    host = Host(refuse)
    with trio.move_on_after(60):
        await dial(THERE, never, gives_up=False)
    pauses = [then - now for now, then in pairwise(host.attempts)]
    wanted = PAUSE_FIRST_SECONDS
    for pause in pauses:
        assert 0.75 * wanted <= pause <= 1.25 * wanted + 1e-6
        wanted = min(2 * wanted, PAUSE_MAX_SECONDS)
    assert wanted == PAUSE_MAX_SECONDS
    assert len({round(pause, 6) for pause in pauses}) > len(pauses) / 2, "no jitter"


async def test_dials_for_ever_and_reminds_less_and_less_often(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(refuse)
    with trio.move_on_after(HOUR) as hour:
        await dial(THERE, never, gives_up=False)
    assert hour.cancelled_caught
    assert len(host.attempts) > HOUR / (1.25 * PAUSE_MAX_SECONDS)
    first, *reminders = caplog.messages
    assert first == "cannot connect to 127.0.0.9:4000: Connection refused; trying again"
    assert set(reminders) == {f"still {first}"}
    assert len(reminders) == 5  # after 1, 3, 7, 15 and 31 minutes


async def test_each_reason_is_said_once_until_a_peer_was_there(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def busy() -> None:
        await trio.lowlevel.checkpoint()
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    async def either() -> None:
        await (refuse if len(host.attempts) % 2 else busy)()

    host = Host(either)
    with trio.move_on_after(COMPLAIN_SECONDS / 2):
        await dial(THERE, never, gives_up=False)
    reasons = ["Connection refused", "No route to host"]
    once = [f"cannot connect to 127.0.0.9:4000: {each}; trying again" for each in reasons]
    assert caplog.messages == once

    async def there_once(stream: trio.SocketStream) -> Dialled:
        host.answer = refuse
        return await works(stream)

    caplog.clear()
    host.answer, host.attempts = refuse, []
    with trio.move_on_after(COMPLAIN_SECONDS * 2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(dial, THERE, there_once, gives_up=False))
            await trio.sleep(10)
            host.answer = accept
    assert caplog.messages == [once[0], once[0]]


@pytest.mark.parametrize(
    ("answer", "reason"), [(refuse, "Connection refused"), (hang, "no answer")]
)
async def test_gives_up_after_30_seconds(
    autojump_clock: MockClock, answer: Callable[[], Awaitable[None]], reason: str
) -> None:
    Host(answer)
    start = trio.current_time()
    with pytest.raises(Unreachable) as caught:
        await dial(THERE, never, gives_up=True)
    assert str(caught.value) == f"127.0.0.9:4000 not reached within 30 s: {reason}"
    took = trio.current_time() - start
    assert GIVE_UP_SECONDS - 1.25 * PAUSE_MAX_SECONDS <= took <= GIVE_UP_SECONDS


async def test_what_was_wrong_on_the_connection_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer that is there and does not suit is complained of as seldom as one that is not."""
    host = Host(accept)

    async def wrong_id(stream: trio.SocketStream) -> Dialled:
        await trio.lowlevel.checkpoint()
        return Dialled("host id 2 expected, 9 came")

    with trio.move_on_after(HOUR):
        await dial(THERE, wrong_id, gives_up=False)
    assert len(host.attempts) > 900
    assert len(caplog.records) <= HOUR / COMPLAIN_SECONDS
    assert caplog.records[0].levelno == logging.WARNING
    assert "host id 2 expected, 9 came" in caplog.records[0].getMessage()
    with pytest.raises(Unreachable, match="host id 2 expected, 9 came"):
        await dial(THERE, wrong_id, gives_up=True)


async def test_connections_of_no_use_are_made_less_and_less_often(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The peer is there and greets, and each time the connection ends at once."""
    host = Host(accept)

    async def ends_at_once(stream: trio.SocketStream) -> Dialled:
        await trio.lowlevel.checkpoint()
        return Dialled(None, was_useful=len(host.attempts) == 100)

    with trio.move_on_after(HOUR):
        await dial(THERE, ends_at_once, gives_up=True)
    pauses = [then - now for now, then in pairwise(host.attempts)]
    assert pauses[0] <= 1.25 * PAUSE_FIRST_SECONDS
    assert all(pause >= 0.75 * PAUSE_MAX_SECONDS for pause in pauses[10:99])
    assert pauses[99] <= 1.25 * PAUSE_FIRST_SECONDS, "useful, and still a long pause"
    assert not caplog.records  # the part that ran the connections has said why they ended


async def test_unknown_host_name(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Nobody(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *arguments: Any, **more: Any) -> Any:
            await trio.lowlevel.checkpoint()
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        async def getnameinfo(self, *arguments: Any) -> Any:
            raise AssertionError

    trio.socket.set_custom_hostname_resolver(Nobody())
    with pytest.raises(Unreachable, match=r"nobody\.invalid:1 .*: Name or service"):
        await dial(Address("nobody.invalid", 1), never, gives_up=True)
