"""A queue as a program leads it: appending, and waiting until a policy calls it safe."""

import asyncio
import copy
import json
import logging
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pytest
import trio

import cqrepl
import cqrepl.aio
import cqrepl.blocking
from cqrepl import Appended, Host, HostEvents, HostSettings, aio, blocking
from cqrepl.commands.statuspage import page
from cqrepl.kernel.board import AckLevel
from cqrepl.protocol.ackpolicy import PRESETS, AckPolicy, From, OnTimeout
from cqrepl.queue import Appender, Queue
from cqrepl.replicator.leadership import AckOutcome, AckUnknown, SteppedDown
from cqrepl.replicator.settings import SourceSettings
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from cqrepl.status.snapshot import snapshot_of
from tests.support import peer
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    at,
    eventually,
    live_sink,
    live_source,
)
from tests.support.samples import NOON_MS, fill, noon_index
from tests.support.scripted import scripted
from tests.support.sleepers import Sleeper, asleep

T = TypeVar("T")
APPENDED, SYNCED, APPLIED = AckLevel
ANY = AckPolicy(timeout_seconds=SECONDS)
SHORT = AckPolicy(timeout_seconds=0.05, hosts=frozenset({7}), on_timeout=OnTimeout.WARN)
LAST = noon_index(sequence=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    return tmp_path / "q"


async def in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


async def test_what_is_appended_is_waited_for_as_the_policy_says(path: Path) -> None:
    async with live_source(path) as source, AsyncExitStack() as stack:
        for host_id in (2, 3):
            sink = live_sink(path.with_name(f"copy{host_id}"), source.port, host_id=host_id)
            await stack.enter_async_context(sink)
        leading = source.leading()
        both = replace(ANY, from_=From.ALL, hosts=frozenset({2, 3}), level=SYNCED)

        def work() -> int:
            index = leading.append([b"one", b"two"], policy=both)
            marks = leading.marks()
            assert all(marks[host][SYNCED] >= index for host in (2, 3))
            assert leading.commit_index(both) == index
            assert leading.commit_index(replace(both, hosts=frozenset({2, 7}))) == -1
            return index

        index = await in_thread(work)
        assert await source.wait_acked(index, policy=both) is AckOutcome.ACKED
        assert await leading.wait_acked(index, both) is AckOutcome.ACKED
        assert await leading.wait_acked(index) is AckOutcome.ACKED


async def test_the_policy_of_the_queue_holds_where_a_call_gives_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"listen": LOOPBACK, "policies": {"q": SHORT}, **BEATS}
    async with serve_source([path], **options) as source:
        leading = source.leading("q")
        assert leading.policy == SHORT
        assert await in_thread(partial(leading.wait, LAST)) is AckOutcome.UNKNOWN
        assert await leading.wait_acked(LAST) is AckOutcome.UNKNOWN
        assert await source.wait_acked(LAST) is AckOutcome.UNKNOWN
        index = await in_thread(partial(leading.append, [b"x"]))
        assert caplog.messages[-1].startswith("queue 'q': it is not known whether hosts have")
        assert hex(index) in caplog.messages[-1]


@pytest.mark.parametrize("is_task", [True, False], ids=["task", "thread"])
async def test_when_the_time_is_over_it_is_not_known(
    path: Path, is_task: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No policy has it told that a write has failed."""
    caplog.set_level(logging.WARNING, "cqrepl.replicator.leadership")
    async with live_source(path) as source:
        leading = source.leading()
        calls: list[str] = []
        leading.on_step_down = lambda: calls.append("stepped down")

        async def wait(on_timeout: OnTimeout) -> AckOutcome:
            policy = replace(SHORT, on_timeout=on_timeout)
            if is_task:
                return await leading.wait_acked(LAST, policy)
            return await in_thread(partial(leading.wait, LAST, policy))

        assert await wait(OnTimeout.WARN) is AckOutcome.UNKNOWN
        (message,) = caplog.messages
        assert "not known whether hosts have 0x" in message
        assert "hosts=7" in message
        with pytest.raises(AckUnknown, match=r"'q': it is not known whether .* have 0x"):
            await wait(OnTimeout.FAIL)
        assert issubclass(AckUnknown, TimeoutError)
        assert not calls
        assert await wait(OnTimeout.STEP_DOWN) is AckOutcome.STEPPED_DOWN
        assert calls == ["stepped down"]
        assert leading.has_stepped_down


async def test_one_that_has_stepped_down_appends_no_more(path: Path) -> None:
    policy = replace(SHORT, on_timeout=OnTimeout.STEP_DOWN)
    async with live_source(path) as source:
        leading = source.leading()
        with pytest.raises(SteppedDown, match="not known whether hosts have"):
            await in_thread(partial(leading.append, [b"stays"], policy=policy))
        with pytest.raises(SteppedDown, match="has stepped down"):
            await in_thread(partial(leading.append, [b"is not written"]))
        last = leading.commit_index(AckPolicy(from_=From.NONE))
        leading.lead_again()
        assert await in_thread(partial(leading.append, [b"is written"])) > last >= LAST


@pytest.mark.parametrize("is_task", [True, False], ids=["task", "thread"])
async def test_one_that_blocks_goes_on_until_it_comes(path: Path, is_task: bool) -> None:
    policy = AckPolicy(timeout_seconds=0.01, on_timeout=OnTimeout.BLOCK)
    async with live_source(path) as source, trio.open_nursery() as nursery:
        leading = source.leading()
        outcomes: list[AckOutcome] = []

        async def wait() -> None:
            if is_task:
                outcomes.append(await leading.wait_acked(LAST, policy))
            else:
                outcomes.append(await in_thread(partial(leading.wait, LAST, policy)))

        nursery.start_soon(wait)
        await trio.sleep(0.1)
        assert not outcomes
        async with live_sink(path.with_name("copy"), source.port):
            await eventually(lambda: bool(outcomes))
        assert outcomes == [AckOutcome.ACKED]


async def test_what_waits_is_bounded_by_the_window(path: Path) -> None:
    policy = AckPolicy(window=3, timeout_seconds=0.05, on_timeout=OnTimeout.FAIL)
    async with serve_source([path], listen=LOOPBACK, policies={"q": policy}, **BEATS) as source:
        leading = source.leading()

        def work() -> int:
            leading.append([b"1", b"2"])
            last = leading.append([b"3"])
            for payloads in ([b"4"], [b"4", b"5"]):
                with pytest.raises(AckUnknown):
                    leading.append(payloads)
            return last

        last = await in_thread(work)
        copy = {"q": path.with_name("copy")}
        async with serve_sink(copy, connect=f"127.0.0.1:{source.port}", **BEATS):
            await source.wait_acked(last, policy=ANY)
            assert await in_thread(partial(leading.append, [b"4"])) > last


async def test_nobody_knows_which_hosts_are_all(path: Path) -> None:
    every = AckPolicy(from_=From.ALL)
    async with live_source(path) as source:
        leading = source.leading()
        with pytest.raises(ValueError, match="it is not known which are all"):
            await leading.wait_acked(LAST, every)
        with pytest.raises(ValueError, match="it is not known which are all"):
            await in_thread(partial(leading.wait, LAST, every))
        assert leading.commit_index(every) == -1
        with pytest.raises(RuntimeError, match="waits with wait_acked"):
            leading.wait(LAST, ANY)


async def test_each_acknowledgement_wakes_the_thread_that_waits_for_it(tmp_path: Path) -> None:
    """Many others wait; a live pump takes it, or the event loop."""
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 64})
    async with live_source(tmp_path / "q") as source, scripted(source.port, 2, 1) as sink:
        _, cid = await sink.answer(0)
        await sink.send(peer.end_of_stream(cid))
        await sink.hear("re", len(written))
        leading = source.leading()
        sleepers = [Sleeper(partial(leading.wait, index, ANY)) for index, _ in written]
        slept = await in_thread(partial(asleep, sleepers))
        for nth, (index, _) in enumerate(written):
            assert sleepers[nth].state == ("S", slept[nth])
            await sink.send(peer.acknowledgement(index, cid=cid))
            assert await in_thread(sleepers[nth].ended) is AckOutcome.ACKED


async def test_an_append_is_not_closed_under(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is removed in the midst, or its host ends: what was begun is appended whole."""
    found, begins, goes_on = list[int](), threading.Event(), threading.Event()
    append = Appender.append

    def slow(appender: Appender, payloads: list[bytes], now_ms: int | None = None) -> int:
        begins.set()
        assert goes_on.wait(SECONDS)
        return append(appender, payloads, now_ms)

    async with live_source(path) as source:
        leading = source.leading()
        monkeypatch.setattr(Appender, "append", slow)
        worker = threading.Thread(target=lambda: found.append(leading.append([b"one", b"two"])))
        worker.start()
        await eventually(begins.is_set)
    for call in (partial(leading.append, [b"three"]), leading.commit_index, leading.lead_again):
        with pytest.raises(SteppedDown, match="its source has closed"):
            call()
    assert not leading.goes_on
    assert not leading.may_read()
    goes_on.set()
    await in_thread(worker.join)
    with Queue.open(path) as queue:
        assert [queue.last_index()] == found
        assert queue.count() == 5
    assert leading._queue is None


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


OWN: Final = AckPolicy(
    level=AckLevel.SYNCED, hosts=[2], timeout_seconds=0.01, on_timeout=OnTimeout.FAIL
)
PATIENT: Final = replace(OWN, timeout_seconds=SECONDS)
NOBODY: Final = AckPolicy(from_=From.NONE)


def source_of(path: Path, own: AckPolicy | None = None) -> HostSettings:
    """Of a host that listens and streams "q", to which a policy may be given."""
    Queue.open_for_append(path, create="FAST_DAILY").close()
    source = SourceSettings(policies={} if own is None else {"q": own})
    return HostSettings.of(listen=LOOPBACK, host_id=1, sources={"q": path}, source=source)


def sink_of(port: int | None, path: Path) -> HostSettings:
    return HostSettings.of(connect=at(port), sinks={"q": path})


def held(queue: Queue) -> list[bytes]:
    return [bytes(excerpt) for excerpt in queue.tailer()]


def of_some_code(queue: Queue, payload: bytes) -> int:
    """Append as code does that knows of no host and of no policy."""
    return queue.append(payload, now_ms=NOON_MS)


def test_a_queue_that_knows_of_no_host_takes_no_policy(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        said = r"/q: a queue of the host .* expected for a policy.*: host\.queue\(name\)\.open\(\)"
        with pytest.raises(ValueError, match=said):
            queue.append(b"no", policy=PATIENT)  # type: ignore[arg-type]  # it is refused
        with pytest.raises(ValueError, match=said):
            queue.append_many([b"no"], policy=PATIENT)  # type: ignore[arg-type]  # refused too
        assert held(queue) == []


async def test_what_other_code_appends_waits_for_the_policy_of_the_queue(tmp_path: Path) -> None:
    async with Host(source_of(tmp_path / "q", OWN)) as host:
        queue = host.queue().open()

        def alone() -> None:
            with pytest.raises(AckUnknown, match="'q': it is not known whether hosts have"):
                of_some_code(queue, b"a")
            queue.append(b"b", now_ms=NOON_MS, policy=NOBODY)

        def with_a_sink() -> None:
            last = queue.append_many([b"c", b"d"], now_ms=NOON_MS, policy=PATIENT)
            marks = host.queue().leading.marks()[2]
            assert marks[AckLevel.SYNCED] == last
            assert held(queue) == [b"a", b"b", b"c", b"d"]

        await in_thread(alone)
        async with Host(sink_of(host.port, tmp_path / "copy")):
            await in_thread(with_a_sink)
            with pytest.raises(RuntimeError, match="a task of the event loop waits with"):
                of_some_code(queue, b"is not written")
    with queue, pytest.raises(cqrepl.HostEnded):
        queue.append(b"is not written", policy=NOBODY)
    with Queue.open(tmp_path / "copy") as copy:
        assert held(copy) == [b"a", b"b", b"c", b"d"]


async def test_where_the_queue_was_given_no_policy_nobody_is_waited_for(tmp_path: Path) -> None:
    async with Host(source_of(tmp_path / "q")) as host:
        with host.queue().open() as queue:
            assert of_some_code(queue, b"a") == queue.last_index()
            assert held(queue) == [b"a"]
        with pytest.raises(cqrepl.QueueError, match="expected an open queue, it was closed"):
            of_some_code(queue, b"is not written")
        with Queue.open(tmp_path / "q") as plain:
            assert held(plain) == [b"a"]


async def test_what_is_taken_in_is_opened_to_be_read(tmp_path: Path) -> None:
    async with Host(source_of(tmp_path / "q")) as host:
        async with Host(sink_of(host.port, tmp_path / "copy")) as other:
            await host.queue().append(b"a", policy=replace(PATIENT, level=AckLevel.APPENDED))
            with other.queue().open() as queue:
                assert held(queue) == [b"a"]
                with pytest.raises(cqrepl.Refused, match="'q' is taken in here"):
                    of_some_code(queue, b"no")
