"""Peers that go silent, or trickle, inside a frame: the connection is closed, in either role.

With the native kernel a live pump receives then, and hands back what it cannot use yet, again and
again: none of that is a sign of life. The connections are real ones, and no test looks at a clock:
a side that does not close keeps its peer waiting to the end of a generous time.
"""

import itertools
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from cqrepl import serve_sink, serve_source
from cqrepl.protocol import inflow
from tests.support import peer
from tests.support.peer import uber
from tests.support.replicas import LOOPBACK, eventually, live_source, more_excerpts
from tests.support.samples import fill, noon_index, read
from tests.support.scripted import Scripted, scripted

CID: Final = 901
TIMEOUT_MS, LONG_TIMEOUT_MS, INTERVAL_MS = 2500, 20_000, 500
WAIT_S: Final = 30  # for what takes some seconds
LIMIT_S: Final = 2.0  # of a document, in place of 30
GAP_S: Final = 1.0  # after a longer one it was the machine that rested, not the peer
SILENT: Final = re.compile(r"closed: nothing received for [\d.]+ s")
FRAME: Final = peer.excerpt(noon_index(sequence=1), b"two" * 20, cid=CID)
# within the head of the event, within its payload
CUTS: Final = (len(peer.select(CID)) + 7, len(FRAME) - 1)


@asynccontextmanager
async def sending_source(path: Path, timeout_ms: int = TIMEOUT_MS) -> AsyncIterator[Scripted]:
    """A scripted source whose first excerpt our sink has stored."""
    async with (
        serve_sink({"q": path}, listen=LOOPBACK) as sink,
        scripted(sink.port) as source,
    ):
        await source.greet(1, 2, timeout_ms, INTERVAL_MS)
        await source.offer("q", CID)
        await source.send(peer.excerpt(noon_index(), b"one", cid=CID))
        await source.hear("idx")
        yield source


@asynccontextmanager
async def taking_sink(
    path: Path, timeout_ms: int = TIMEOUT_MS
) -> AsyncIterator[tuple[Scripted, int]]:
    """A scripted sink of our source, which gets more and more; and the cid of the queue."""
    fill(path, "FAST_DAILY", {0: 3})
    async with (
        serve_source({"q": path}, listen=LOOPBACK) as source,
        scripted(source.port) as sink,
        trio.open_nursery() as nursery,
    ):
        await sink.greet(2, 1, timeout_ms, INTERVAL_MS)
        _, cid = await sink.answer(0)
        await sink.send(peer.end_of_stream(cid))
        await sink.hear("re", 3)
        nursery.start_soon(append_more, path, 3)
        await sink.hear("re", 5)
        yield sink, cid
        nursery.cancel_scope.cancel()


async def append_more(path: Path, first: int) -> None:
    """Appends one excerpt after the other, so that a live pump keeps the connection."""
    while True:
        more_excerpts(path, first, 1)
        first += 1
        await trio.sleep(0.02)


async def trickle(stream: Scripted, some: bytes) -> None:
    """Sends a byte at a time, slowly, until the other side closes."""
    with trio.move_on_after(WAIT_S):
        for byte in some:
            try:
                await stream.send(bytes([byte]))
            except trio.BrokenResourceError:
                return
            await trio.sleep(0.1)


async def trickle_whole(stream: Scripted, frames: bytes) -> bool:
    """Sends frames in small pieces; whether none of these was held up, in a machine that stood
    still, for as long as a frame may take."""
    is_even, before = True, trio.current_time()
    try:
        for at in range(0, len(frames), 13):
            await stream.send(frames[at : at + 13])
            await trio.sleep(0.05)
            now = trio.current_time()
            is_even, before = is_even and now - before <= GAP_S, now
    except trio.BrokenResourceError:
        if is_even:
            raise
    return is_even


@pytest.mark.parametrize("cut", CUTS)
async def test_a_source_that_falls_silent_within_a_frame(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    async with sending_source(tmp_path / "q") as source:
        await source.send(FRAME[:cut])
        await source.hear_end(WAIT_S)
    assert SILENT.search(caplog.text)
    assert [data for _, data in read(tmp_path / "q")] == [b"one"]


@pytest.mark.parametrize("cut", [3, 20])
async def test_a_sink_that_falls_silent_within_an_acknowledgement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    async with taking_sink(tmp_path / "q") as (sink, cid):
        await sink.send(peer.acknowledgement(noon_index(), cid=cid)[:cut])
        await sink.hear_end(WAIT_S)
    assert SILENT.search(caplog.text)


async def test_a_source_that_trickles_within_a_frame(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is heard all the time, and its frame never comes to an end."""
    monkeypatch.setattr(inflow, "FRAME_SECONDS", LIMIT_S)
    frame = peer.excerpt(noon_index(sequence=1), bytes(1000), cid=CID)
    async with sending_source(tmp_path / "q", LONG_TIMEOUT_MS) as source:
        await source.send(frame[:20])
        await trickle(source, frame[20:])
        await source.hear_end(WAIT_S)
    assert "closed: a document that started was not complete" in caplog.text
    assert [data for _, data in read(tmp_path / "q")] == [b"one"]


async def test_a_sink_that_trickles_within_an_acknowledgement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflow, "FRAME_SECONDS", LIMIT_S)
    async with taking_sink(tmp_path / "q", LONG_TIMEOUT_MS) as (sink, cid):
        said = peer.acknowledgement(noon_index(), cid=cid)
        await sink.send(said[:9])
        await trickle(sink, said[9:])
        await sink.hear_end(WAIT_S)
    assert "closed: a document that started was not complete" in caplog.text


async def test_a_peer_that_trickles_whole_frames_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each frame ends in time, and somewhere the next one has always begun."""
    monkeypatch.setattr(inflow, "FRAME_SECONDS", LIMIT_S)
    frames = b"".join(peer.excerpt(noon_index(sequence=nth), b"x", cid=CID) for nth in range(1, 30))
    for attempt in itertools.count():
        caplog.clear()
        path = tmp_path / f"q{attempt}"
        async with sending_source(path, LONG_TIMEOUT_MS) as source:
            if not await trickle_whole(source, frames):
                continue
            while source.all("idx")[-1]["idx"] != noon_index(sequence=29):
                await source.hear("idx", len(source.all("idx")) + 1)
        break
    assert "closed: a" not in caplog.text
    assert len(read(path)) == 30


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
