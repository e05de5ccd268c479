"""A queue that a sink has not answered in time is offered again, on the same connection."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from cqrepl.protocol import StopReason
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.copies import assert_same
from tests.support.replicas import LOOPBACK, acked, at, eventually, last_of
from tests.support.samples import fill

NAMES = ("quick", "slow")
# an answer has as long as the peer may be silent; who waits for its end here waits for longer
BEATS: Final[dict[str, Any]] = {"heartbeat_interval_ms": 500, "heartbeat_timeout_ms": 20_000}


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
