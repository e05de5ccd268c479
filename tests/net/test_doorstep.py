"""Threat T8: a peer that has connected and not said who it is costs little, and keeps none out."""

import errno
import os
import socket
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from cqrepl.net import listener
from cqrepl.net.doorstep import UNGREETED_MAX, Doorstep
from cqrepl.net.listener import ACCEPT_PAUSE_SECONDS

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
