"""A command that is to end hears of what goes no further, and no stranger ends it."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from cqrepl.net import dialer
from cqrepl.net.errors import Unreachable
from cqrepl.protocol import StopReason
from cqrepl.replicator.queuestate import queues
from cqrepl.replicator.queuestate.pause import PAUSE_SECONDS_MAX
from cqrepl.replicator.queuestate.queues import STUCK_SECONDS, Signal, until_stuck
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    acked,
    at,
    eventually,
    last_of,
    live_sink,
)
from tests.support.samples import fill


async def stuck(replicator: Source | Sink) -> None:
    with trio.fail_after(SECONDS):
        await replicator.wait_stuck()


async def goes_on(replicator: Source | Sink) -> None:
    """Nothing says within a moment that it would not."""
    with trio.move_on_after(0.2) as moment:
        await replicator.wait_stopped()
    assert moment.cancelled_caught


async def test_a_stranger_that_is_refused_does_not_end_the_source(tmp_path: Path) -> None:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    fill(tmp_path / "other", "FAST_DAILY", {0: 3, 1: 5})
    async with serve_source({"q": tmp_path / "q"}, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(tmp_path / "other", source.port, host_id=3) as stranger:
            await eventually(lambda: bool(source.stops and stranger.stops))
            assert source.stops[0].reason is StopReason.REFUSED
            await goes_on(source)
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, last)


async def test_names_that_do_not_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "STUCK_SECONDS", 0.1)
    fill(tmp_path / "orders", "FAST_DAILY", {0: 3})
    async with serve_source({"orders": tmp_path / "orders"}, listen=LOOPBACK, **BEATS) as source:
        address = at(source.port)
        async with serve_sink({"order": tmp_path / "copy"}, connect=address, **BEATS) as sink:
            await stuck(source)
            await stuck(sink)
            (here,), (there,) = source.stops, sink.stops
    assert (here.name, here.reason) == ("orders", StopReason.REFUSED)
    assert (there.name, there.reason) == ("order", StopReason.REFUSED)


async def test_a_sink_goes_on_with_one_queue_and_a_source_is_done_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "STUCK_SECONDS", 0.05)
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    fill(tmp_path / "orders", "FAST_DAILY", {0: 3})
    both = {"q": tmp_path / "q", "orders": tmp_path / "orders"}
    async with serve_source(both, listen=LOOPBACK, **BEATS) as source:
        async with live_sink(tmp_path / "copy", source.port) as sink:
            await acked(source, last, "q")
            with trio.move_on_after(0.2) as moment:
                await sink.wait_stuck()
            assert moment.cancelled_caught
            await stuck(source)  # of what was there the sink has all that it takes
            (stop,) = source.stops
            assert (stop.name, stop.reason) == ("orders", StopReason.REFUSED)


def test_what_is_tried_in_vain_is_found_out_in_its_longest_pause() -> None:
    """With equal times each trial looked as if it got further, for ever."""
    assert STUCK_SECONDS < PAUSE_SECONDS_MAX


async def test_what_goes_on_again_is_not_stuck(autojump_clock: trio.testing.MockClock) -> None:
    """It goes on again though no signal has said so."""
    untaken: set[str] | None = {"q"}
    changed = Signal()
    with trio.move_on_after(60) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_stuck, lambda: untaken, changed)
            await trio.sleep(STUCK_SECONDS / 2)
            untaken = None
            await trio.sleep(5 * STUCK_SECONDS)
            assert nursery.child_tasks
            untaken = {"q"}
            changed.set()
    assert not patience.cancelled_caught
    assert trio.current_time() >= 6.5 * STUCK_SECONDS


async def test_one_that_listens_does_not_wait_for_ever_for_the_next_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "GIVE_UP_SECONDS", 0.5)
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    options: dict[str, Any] = {"listen": LOOPBACK, "gives_up": True} | BEATS

    async def listen() -> None:
        async with serve_source({"q": tmp_path / "q"}, **options) as source:
            await trio.sleep(1.5)  # for the first one it waits
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, last_of(tmp_path / "q") or 0)
            await trio.sleep_forever()

    with trio.fail_after(SECONDS), pytest.raises(ExceptionGroup) as caught:
        await listen()
    gone: BaseException = caught.value
    while isinstance(gone, ExceptionGroup):
        (gone,) = gone.exceptions
    assert isinstance(gone, Unreachable)
    assert "which went: ended in order by the peer" in str(gone)
