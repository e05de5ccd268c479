"""The message about a connection that was not ended in order: which peer it was, and what came
last."""

import socket
from pathlib import Path

import pytest
import trio

from tests.support.peer import uber
from tests.support.replicas import eventually, live_source
from tests.support.samples import fill
from tests.support.scripted import scripted


@pytest.mark.parametrize(
    ("linger", "how"),
    [
        (b"", "the connection ended without a goodbye"),
        (b"\1\0\0\0\0\0\0\0", "connection broken: Connection reset by peer"),
    ],
    ids=["closed", "reset"],
)
async def test_a_host_that_dies(
    linger: bytes, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with scripted(source.port, 2, 1) as sink:
            await sink.answer(0)
            await sink.hear("handler", 3)  # so that nothing is left unread
            address = sink.address
            if linger:
                sink.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            else:
                sink.stream.socket.shutdown(socket.SHUT_WR)
                await sink.hear_end()
            await trio.aclose_forcefully(sink.stream)
        await eventually(lambda: f"host 2 at {address}: disconnected: {how}" in caplog.messages)


async def test_one_that_goes_in_the_middle_of_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with live_source(tmp_path / "q") as source:
        async with scripted(source.port) as nobody:
            await nobody.send(uber(2, 1)[:-7])
            nobody.stream.socket.shutdown(socket.SHUT_WR)
            await nobody.hear_end()
            told = f"{nobody.address}: closed: the connection ended in the middle of a document"
        await eventually(lambda: any(each.startswith(told) for each in caplog.messages))
