"""Threat T25: what peers bring about is logged once a second for each reason, with a count."""

import logging

import pytest
import trio
from trio.testing import MockClock

from cqrepl.net.peerlog import REASONS_MAX, PeerLog

SECONDS = 60


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def test_t25_a_flood_of_one_reason_is_a_line_a_second(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = PeerLog()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        for nth in range(100 * SECONDS):
            log.tell(logging.INFO, f"192.0.2.1:{nth}", f"closed: {nth} bytes came")
            await trio.sleep(0.01)
        await trio.sleep(2)  # the last count is told without another line
        nursery.cancel_scope.cancel()
    assert SECONDS <= len(caplog.messages) <= SECONDS + 2
    assert caplog.messages[0] == "192.0.2.1:0: closed: 0 bytes came"
    counts = [int(line.rpartition("(")[2].split()[0]) for line in caplog.messages[1:]]
    assert 1 + sum(counts) == 100 * SECONDS
    assert caplog.messages[-1].startswith("192.0.2.1:5999: closed: 5999 bytes came (")


async def test_other_reasons_and_other_machines_are_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = PeerLog()
    lines = [("192.0.2.1:1", "closed: a"), ("192.0.2.2:1", "closed: a"), ("192.0.2.1:2", "closed")]
    for peer, message in lines * 2:
        log.tell(logging.INFO, peer, message)
    assert caplog.messages == [f"{peer}: {message}" for peer, message in lines]


async def test_a_reason_that_was_quiet_for_a_second_is_told_as_it_is(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = PeerLog()
    for _ in range(3):
        log.tell(logging.INFO, "192.0.2.1:1", "closed")
        await trio.sleep(1.5)
    assert caplog.messages == ["192.0.2.1:1: closed"] * 3


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
