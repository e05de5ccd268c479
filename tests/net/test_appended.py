"""The result of an append: the index, and whether a policy calls what was appended safe."""

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

import cqrepl
from cqrepl import AckOutcome, AckPolicy, Appended, HostEvents, HostSettings, Queue, aio, blocking
from cqrepl.commands.statuspage import page
from cqrepl.protocol.ackpolicy import PRESETS, From, OnTimeout
from cqrepl.replicator.leadership import AckUnknown, SteppedDown
from cqrepl.replicator.settings import SourceSettings
from cqrepl.status.snapshot import snapshot_of
from tests.support.replicas import BEATS, LOOPBACK, at, eventually
from tests.support.samples import NOON_MS

WARN = AckPolicy(timeout_seconds=0.05, on_timeout=OnTimeout.WARN)
NONE = AckPolicy(from_=From.NONE)
SAFE = AckPolicy(timeout_seconds=60)
POLICIES: list[AckPolicy] = [
    WARN,
    *(replace(each, timeout_seconds=0.05) for each in PRESETS.values() if each.hosts_min),
]


def settings(folder: Path, given: AckPolicy | None = None) -> HostSettings:
    """Of a host that streams "q", which has a policy."""
    Queue.open_for_append(folder / "q", create="FAST_DAILY").close()
    source = SourceSettings(policies={} if given is None else {"q": given})
    paths = {"q": folder / "q"}
    return HostSettings.of(listen=LOOPBACK, sources=paths, source=source, **BEATS)


def test_it_is_an_int() -> None:
    one = Appended(7, AckOutcome.UNKNOWN)
    assert (one, one + 1, hex(one), f"{one}", json.dumps(one)) == (7, 8, "0x7", "7", "7")
    again = copy.copy(one)
    assert (again, again.outcome) == (7, AckOutcome.UNKNOWN)
    assert cqrepl.Appended is Appended
    assert not Appended(7).is_acked


async def test_nobody_is_connected(tmp_path: Path) -> None:
    """The index comes, and does not look like success, in each kind of append; the host counts."""
    told: list[tuple[str, int]] = []
    events = HostEvents(on_unknown=lambda name, waits: told.append((name, waits)))
    async with cqrepl.Host(settings(tmp_path), events=events) as host:
        queue = host.queue("q")
        with queue.open() as opened:
            calls: list[Callable[[], Appended]] = [
                lambda: queue.leading.append([b"x"], policy=WARN),
                lambda: queue.append_here([b"x"], None, WARN),
                lambda: opened.append(b"x", policy=WARN),
                lambda: opened.append_many([b"x", b"y"], policy=WARN),
            ]
            found = [await trio.to_thread.run_sync(call) for call in calls]
        found += [await queue.append(b"x", policy=WARN)]
        found += [await queue.append_many([b"x"], policy=WARN)]
        assert {each.outcome for each in found} == {AckOutcome.UNKNOWN}
        assert not any(each.is_acked for each in found)
        assert sorted(set(found)) == found
        assert await queue.wait_acked(found[-1], policy=WARN) is AckOutcome.UNKNOWN
        with pytest.raises(AckUnknown):
            await queue.append(b"x", policy=replace(WARN, on_timeout=OnTimeout.FAIL))
        said = snapshot_of(host)
        queues = said["queues"]
        assert isinstance(queues, list)
        assert queues[0]["unknown"] == 8
        assert "queue q: 8 waits ended without knowing whether hosts have it" in page(said)
        await eventually(lambda: bool(told) and told[-1] == ("q", 8))
        with pytest.raises(SteppedDown):
            await queue.append(b"x", policy=replace(WARN, on_timeout=OnTimeout.STEP_DOWN))
        assert queue.leading.unknown_waits == 9
        wait = partial(queue.leading.wait, found[-1], replace(WARN, on_timeout=OnTimeout.BLOCK), 0)
        with pytest.raises(AckUnknown):
            await trio.to_thread.run_sync(wait)
        assert queue.leading.unknown_waits == 10


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_policy_that_an_operator_gave(tmp_path: Path, policy: AckPolicy) -> None:
    """The program names none, and may not know of any."""
    given = replace(policy, on_timeout=OnTimeout.WARN)
    async with cqrepl.Host(settings(tmp_path, given)) as host:
        queue = host.queue("q")
        index = await queue.append(b"x")
        assert index.outcome is (None if given.window else AckOutcome.UNKNOWN)
        assert not index.is_acked


async def test_what_is_safe(tmp_path: Path) -> None:
    async with cqrepl.Host(settings(tmp_path)) as host:
        paths = {"q": tmp_path / "copy"}
        async with cqrepl.Host(HostSettings.of(connect=at(host.port), sinks=paths, **BEATS)):
            queue = host.queue("q")
            index = await queue.append(b"x", policy=SAFE)
            assert (index.outcome, index.is_acked) == (AckOutcome.ACKED, True)
            for nothing in (None, NONE):  # nothing was waited for
                index = await queue.append(b"x", policy=nothing)
                assert (index.outcome, index.is_acked) == (None, False)
            last = await trio.to_thread.run_sync(lambda: queue.leading.append([b"x"]))
            assert last.outcome is None
            assert queue.leading.unknown_waits == 0


async def test_a_window_that_was_waited_for_in_vain(tmp_path: Path) -> None:
    """An append with room in the window is under way. One without room is done all the same, and
    its outcome is unknown."""
    given = replace(WARN, window=2)
    async with cqrepl.Host(settings(tmp_path, given)) as host:
        queue = host.queue("q")
        found = [await queue.append(b"x") for _ in range(3)]
        assert [each.outcome for each in found] == [None, None, AckOutcome.UNKNOWN]


def test_hosts_of_asyncio_and_of_plain_threads(tmp_path: Path) -> None:
    with blocking.Host(settings(tmp_path)) as host:
        queue = host.queue("q")
        with queue.open() as opened:
            for index in (
                queue.append(b"x", now_ms=NOON_MS, policy=WARN),
                queue.append_many([b"x"], now_ms=NOON_MS, policy=WARN),
                opened.append(b"x", now_ms=NOON_MS, policy=WARN),
            ):
                assert (index.outcome, index.is_acked) == (AckOutcome.UNKNOWN, False)

    async def main() -> None:
        async with aio.Host(settings(tmp_path)) as served:
            for index in (
                await served.queue("q").append(b"x", policy=WARN),
                await served.queue("q").append_many([b"x"], policy=WARN),
            ):
                assert (index.outcome, index.is_acked) == (AckOutcome.UNKNOWN, False)

    asyncio.run(main())
