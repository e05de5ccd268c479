"""A queue that a sink does not answer in time stops alone, whatever else the connection carries."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from cqrepl import HostSettings, NetSettings, ProtocolSettings, serve_host
from cqrepl.net.address import Address
from cqrepl.protocol import StopReason
from cqrepl.protocol.settings import HeartbeatSettings
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support import peer
from tests.support.copies import assert_same
from tests.support.replicas import LOOPBACK, acked, at, eventually, last_of
from tests.support.samples import fill, noon_index
from tests.support.scripted import scripted

NAMES = ("quick", "slow")
# an answer has as long as the peer may be silent; who waits for its end here waits for longer
BEATS: Final[dict[str, Any]] = {"heartbeat_interval_ms": 500, "heartbeat_timeout_ms": 5000}


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Set when the sink's queue `slow` is to be opened."""
    prepare, opens = SinkQueue.prepare, Event()

    def held(self: SinkQueue, *args: Any, **more: Any) -> None:
        if self.name == "slow":
            opens.wait(60)
        prepare(self, *args, **more)

    monkeypatch.setattr(SinkQueue, "prepare", held)
    yield opens
    opens.set()


async def test_a_sink_that_was_slow_gets_the_queue_after_all(
    tmp_path: Path, opens: Event, caplog: pytest.LogCaptureFixture
) -> None:
    paths = {name: tmp_path / name for name in NAMES}
    for path in paths.values():
        fill(path, "FAST_DAILY", {0: 3})
    copies = {name: tmp_path / "copies" / name for name in NAMES}
    async with (
        serve_source(paths, listen=LOOPBACK, **BEATS) as source,
        serve_sink(copies, connect=at(source.port), **BEATS) as sink,
    ):
        await acked(source, last_of(paths["quick"]) or 0, "quick")
        (session,) = source.endpoint.sessions
        assert isinstance(session, SourceSession)
        await eventually(lambda: "slow" in session.troubles)
        assert session.troubles["slow"].reason is StopReason.NO_ANSWER
        opens.set()
        await acked(source, last_of(paths["slow"]) or 0, "slow")
        assert not source.stops
        assert not sink.stops
        assert "queue 'slow' pauses: no answer from the sink" in caplog.text
    assert_same(paths["slow"], copies["slow"])


async def test_a_peer_without_the_queue_keeps_its_connection_and_streams_its_own(
    tmp_path: Path,
) -> None:
    """Java's sinks refuse a queue that they do not have without a word."""
    fill(tmp_path / "ours", "FAST_DAILY", {0: 3})
    heartbeat = HeartbeatSettings(interval_ms=500, timeout_ms=1000)
    settings = HostSettings(
        net=NetSettings(listen=Address("127.0.0.1", 0)),
        protocol=ProtocolSettings(host_id=1, remote_ids=frozenset({2}), heartbeat=heartbeat),
    )
    sources, sinks = {"ours": tmp_path / "ours"}, {"theirs": tmp_path / "theirs"}
    async with (
        serve_host(settings, sources=sources, sinks=sinks) as host,
        scripted(host.port, 2, 1) as java,
    ):
        await java.offer("theirs", 901)
        await java.hear("eos")
        await eventually(lambda: bool(host.source.stops))
        (stop,) = host.source.stops
        assert (stop.name, stop.reason, stop.host_id) == ("ours", StopReason.NO_ANSWER, 2)
        assert "host 2" in stop.message
        await java.send(peer.excerpts(noon_index(), b"one", cid=901))
        await java.hear("idx")
        # the queue is there after all: the offer stands
        (offer,) = [m for m in java.all("csp") if m["csp"].startswith("/replication/ours/")]
        csp, cid = offer["csp"], offer["cid"]
        answer = peer.register(csp, cid, peer.source_handler(0, name="ours"))
        await java.send(answer, peer.select(cid), peer.end_of_stream(cid))
        await eventually(lambda: not host.source.stops)
        assert len(await java.hear("re", 3)) == 3
        assert len(host.endpoint.sessions) == 1


async def test_an_operator_has_a_queue_offered_again_that_was_not_answered(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    beats: dict[str, Any] = {"heartbeat_interval_ms": 500, "heartbeat_timeout_ms": 1000}
    async with serve_source([tmp_path / "q"], listen=LOOPBACK, **beats) as source:
        async with scripted(source.port, 2, 1):
            await eventually(lambda: bool(source.stops))
            assert not source.has_stopped  # another sink may have it
            (session,) = source.endpoint.sessions
            source.resume("q")
            assert not source.stops
            await eventually(lambda: session not in source.endpoint.sessions)
