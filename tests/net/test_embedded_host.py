"""A host inside a program: its queues, what is wrong with how it is used, and its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import cqrepl
import cqrepl.aio
import cqrepl.blocking
from cqrepl import (
    AckLevel,
    AckPolicy,
    AckUnknown,
    From,
    Host,
    HostSettings,
    OnTimeout,
    Queue,
    SteppedDown,
)
from cqrepl.console.exitcodes import REFUSED
from cqrepl.net.controlsocket import NotThere, ask, ask_status
from cqrepl.replicator.settings import SourceSettings
from tests.support.ports import reserved_port
from tests.support.replicas import LOOPBACK, SECONDS, at
from tests.support.samples import NOON_MS, held

CYCLE = "FAST_DAILY"


def made(path: Path) -> Path:
    """An empty queue."""
    Queue.open_for_append(path, create=CYCLE).close()
    return path


@asynccontextmanager
async def two_hosts(tmp_path: Path) -> AsyncIterator[tuple[Host, Host]]:
    """Host 1 streams "orders" to host 2, which streams "fills" to host 1."""
    there, here = tmp_path / "there", tmp_path / "here"
    first = HostSettings.of(
        listen=LOOPBACK,
        host_id=1,
        sources={"orders": made(here / "orders")},
        sinks={"fills": here / "fills"},
    )
    async with Host(first) as one:
        second = HostSettings.of(
            connect=at(one.port),
            sources={"fills": made(there / "fills")},
            sinks={"orders": there / "orders"},
        )
        async with Host(second) as two:
            yield one, two


class Answering:
    """A program that appends when a peer is there, before it reads on, and in a task."""

    kinds = ()

    def __init__(self, nursery: trio.Nursery) -> None:
        self.said: list[str] = []
        self.index: int | None = None
        self.host: Host | None = None
        self._nursery = nursery

    async def connected(self, link: object) -> None:
        assert self.host is not None
        queue = self.host.queue("q")
        try:
            await queue.append(b"here")
        except RuntimeError as error:
            self.said.append(str(error))
        await queue.append(b"for nobody", policy=AckPolicy(from_=From.NONE))
        self._nursery.start_soon(self._append)

    async def told(self, link: object, event: object) -> None:
        pass

    async def _append(self) -> None:
        assert self.host is not None
        self.index = await self.host.queue("q").append(b"in a task")


async def test_a_program_does_not_wait_for_a_peer_before_it_reads_on(tmp_path: Path) -> None:
    policies = {"q": AckPolicy()}
    source = SourceSettings(policies=policies)
    path = made(tmp_path / "q")
    here = HostSettings.of(listen=LOOPBACK, host_id=1, sources={"q": path}, source=source)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            program = Answering(nursery)
            async with Host(here, program=program) as host:
                program.host = host
                there = HostSettings.of(connect=at(host.port), sinks={"q": tmp_path / "copy"})
                async with Host(there):
                    while program.index is None:
                        await trio.sleep(0.01)
    assert program.said[0].startswith("an append that waits for a policy is not for `connected`")
    assert held(path) == held(tmp_path / "copy") == [b"for nobody", b"in a task"]


async def test_each_side_appends_and_waits_for_the_other(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (one, two):
        for host, name, other in ((one, "orders", 2), (two, "fills", 1)):
            queue = host.queue(name)
            assert queue.is_streamed
            index = await queue.append(b"a", now_ms=NOON_MS)
            last = await queue.append_many([b"b", b"c"], now_ms=NOON_MS)
            assert last == index + 2
            with trio.fail_after(SECONDS):
                await queue.wait_acked(last, hosts=[other])
            assert queue.board.marks == {other: last}
            await trio.to_thread.run_sync(queue.board.wait, last)
    assert held(tmp_path / "there" / "orders") == held(tmp_path / "here" / "fills")
    assert held(tmp_path / "here" / "fills") == [b"a", b"b", b"c"]


async def test_a_task_appends_as_a_policy_says(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (one, _):
        queue = one.queue("orders")
        policy = AckPolicy(level=AckLevel.SYNCED, timeout_seconds=SECONDS)
        last = await queue.append_many([b"a", b"b"], now_ms=NOON_MS, policy=policy)
        assert queue.leading.marks()[2][AckLevel.SYNCED] == last
        nobody = AckPolicy(hosts=frozenset({7}), timeout_seconds=0.01, on_timeout=OnTimeout.FAIL)
        with pytest.raises(AckUnknown, match="not known whether hosts have"):
            await queue.append(b"c", now_ms=NOON_MS, policy=nobody)
        with pytest.raises(ValueError, match="it is not known which are all"):
            await queue.append(b"no", policy=AckPolicy(from_=From.ALL))
        with trio.move_on_after(0.05) as scope:  # it is appended first
            unlimited = AckPolicy(hosts=frozenset({7}))
            await queue.append(b"d", now_ms=NOON_MS, policy=unlimited)
        assert scope.cancelled_caught
        with pytest.raises(cqrepl.Refused, match="'fills' is taken in here"):
            await one.queue("fills").append(b"no", policy=policy)
    assert held(tmp_path / "here" / "orders") == [b"a", b"b", b"c", b"d"]
    with pytest.raises(cqrepl.HostEnded):
        await queue.append(b"no", policy=policy)


async def test_f26_f27_f28_each_queue_waits_as_it_was_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two synchronous queues with times of their own, and one without a policy, run side by side
    with no backup. What was written stays, each wait logs one line about what is not known, and
    no append raises an error."""
    limits = {"quick": 0.05, "slow": 2.0}
    policies = {
        name: AckPolicy(hosts=[2], timeout_seconds=limit, on_timeout="warn")
        for name, limit in limits.items()
    }
    paths = {name: made(tmp_path / name) for name in (*limits, "free")}
    source = SourceSettings(policies=policies)
    here = HostSettings.of(listen=LOOPBACK, host_id=1, sources=paths, source=source)
    ended: list[tuple[str, int, float]] = []
    async with Host(here) as host, trio.open_nursery() as nursery:

        async def write(name: str) -> None:
            began = trio.current_time()
            index = await host.queue(name).append(b"stays", now_ms=NOON_MS)
            ended.append((name, index, trio.current_time() - began))

        for name in ("slow", "quick", "free"):
            nursery.start_soon(write, name)
    took = {name: seconds for name, _, seconds in ended}
    assert [name for name, *_ in ended][-1] == "slow"
    assert all(took[name] >= limit for name, limit in limits.items())
    told = [each for each in caplog.messages if "not known whether" in each]
    for name, index, _ in ended:
        of_it = [each for each in told if f"'{name}'" in each]
        assert len(of_it) == (name in limits)
        assert all(f"{index:#x}" in each for each in of_it)
        assert all(f"timeout={limits[name] * 1e6:.0f}us" in each for each in of_it)
        assert held(paths[name]) == [b"stays"]


async def test_an_append_waits_for_the_window_of_its_policy(tmp_path: Path) -> None:
    path = made(tmp_path / "q")
    one = HostSettings.of(listen=LOOPBACK, host_id=1, sources={"q": path})
    narrow = AckPolicy(window=2, timeout_seconds=0.01, on_timeout=OnTimeout.WARN)
    stern = replace(narrow, on_timeout=OnTimeout.FAIL)
    async with Host(one) as host:
        queue = host.queue()
        await queue.append_many([b"a", b"b"], policy=narrow)
        with pytest.raises(AckUnknown):
            await queue.append(b"is not written", policy=stern)
        stepping = replace(narrow, on_timeout=OnTimeout.STEP_DOWN)
        with pytest.raises(SteppedDown, match="has stepped down"):
            await queue.append(b"is not written", policy=stepping)
        queue.leading.lead_again()
        two = HostSettings.of(connect=at(host.port), sinks={"q": tmp_path / "copy"})
        async with Host(two):
            await queue.append(b"c", policy=replace(stern, timeout_seconds=SECONDS))
    assert held(tmp_path / "copy") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("is_task", [True, False], ids=["task", "thread"])
async def test_what_is_appended_waits_for_the_policy_that_the_queue_was_given(
    tmp_path: Path, is_task: bool
) -> None:
    """Without one beside it; and a wait that names no hosts is for it too."""
    own = AckPolicy(
        level=AckLevel.SYNCED, hosts=frozenset({2}), timeout_seconds=0.01, on_timeout=OnTimeout.FAIL
    )
    source = SourceSettings(policies={"q": own})
    one = HostSettings.of(
        listen=LOOPBACK, host_id=1, sources={"q": made(tmp_path / "q")}, source=source
    )
    async with Host(one) as host:
        queue = host.queue()

        async def append(payload: bytes, policy: AckPolicy | None = None) -> int:
            if is_task:
                return await queue.append(payload, policy=policy)
            return await trio.to_thread.run_sync(queue.append_here, [payload], None, policy)

        with pytest.raises(AckUnknown, match="not known whether hosts have"):
            await append(b"a")
        index = await append(b"b", AckPolicy(from_=From.NONE))
        with pytest.raises(AckUnknown):
            await queue.wait_acked(index)
        two = HostSettings.of(connect=at(host.port), sinks={"q": tmp_path / "copy"})
        async with Host(two):
            with trio.fail_after(SECONDS):
                await queue.wait_acked(index, 1)
            with pytest.raises(ValueError, match="from 1 to 127 expected, 0 came"):
                await queue.wait_acked(index, 0)
            last = await append(b"c", replace(own, timeout_seconds=SECONDS))
            assert queue.leading.marks()[2][AckLevel.SYNCED] == last
            assert await queue.wait_acked(last) is cqrepl.AckOutcome.ACKED
    assert held(tmp_path / "copy") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("is_task", [True, False], ids=["task", "thread"])
async def test_a_host_that_has_stepped_down_appends_nothing_without_a_policy_either(
    tmp_path: Path, is_task: bool
) -> None:
    policy = AckPolicy(timeout_seconds=0.01, on_timeout=OnTimeout.STEP_DOWN)
    one = HostSettings.of(listen=LOOPBACK, host_id=1, sources={"q": made(tmp_path / "q")})
    async with Host(one) as host:
        queue = host.queue()

        async def append(payload: bytes) -> None:
            if is_task:
                await queue.append(payload, now_ms=NOON_MS)
            else:
                await trio.to_thread.run_sync(queue.append_here, [payload], NOON_MS)

        await append(b"a")
        with pytest.raises(SteppedDown, match="not known whether hosts have"):
            await queue.append(b"stays", now_ms=NOON_MS, policy=policy)
        with pytest.raises(SteppedDown, match="'q': this host has stepped down"):
            await append(b"is not written")
        queue.leading.lead_again()
        await append(b"b")
    assert held(tmp_path / "q") == [b"a", b"stays", b"b"]


async def test_what_is_taken_in_is_only_read(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (one, _):
        fills = one.queue("fills")
        assert not fills.is_streamed
        assert fills.path == tmp_path / "here" / "fills"
        with pytest.raises(cqrepl.Refused, match="'fills' is taken in here: only the host"):
            await fills.append(b"no")
        with pytest.raises(cqrepl.Refused, match="'fills' is taken in here"):
            await fills.wait_acked(0)
        with pytest.raises(
            ValueError, match="expected one of the queues fills, orders, got 'trades'"
        ):
            one.queue("trades")
        with pytest.raises(ValueError, match="expected one of the queues fills, orders, got None"):
            one.queue()


async def test_the_settings_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "!QueueReplicationCfg\n"
        "cluster:\n"
        "  context: !QueueClusterContext\n"
        f"    baseSourcePath: {tmp_path}/source\n"
        f"    baseSinkPath: {tmp_path}/sink\n"
        f'  one: {{hostId: 1, connectUri: "127.0.0.1:{reserved_port()}"}}\n'
        "  two: {hostId: 2}\n"
        "queues:\n"
        "  orders: {masterId: 1, acknowledge: true}\n"
        "cqrepl: {ack: {orders: {level: synced, from: all}}}\n"
    )
    async with Host(cqrepl.read_settings(path, 1)) as one:
        async with Host(cqrepl.read_settings(str(path), 2)):
            queue = one.queue()
            with trio.fail_after(SECONDS):
                index = await queue.append(b"a")
            assert queue.leading.marks()[2][AckLevel.SYNCED] == index
    assert held(tmp_path / "sink" / "orders") == [b"a"]
    with pytest.raises(cqrepl.ConfigError, match=r"the id of a host \(1, 2\) expected"):
        cqrepl.read_settings(path, 3)


async def test_a_host_runs_once(tmp_path: Path) -> None:
    host = Host(HostSettings.of(listen=LOOPBACK, sources={"q": made(tmp_path / "q")}))
    async with host:
        queue = host.queue()
        await queue.append(b"a")
        with pytest.raises(RuntimeError, match="a host runs once: make another one"):
            await host.__aenter__()
    with pytest.raises(cqrepl.HostEnded, match=r"^this host has ended$"):
        await queue.append(b"b")
    with pytest.raises(cqrepl.WaitEnded, match="the source has closed"):
        await queue.wait_acked(1)
    assert held(tmp_path / "q") == [b"a"]


def test_asyncio_is_told_what_there_is(tmp_path: Path) -> None:
    path = made(tmp_path / "q")
    settings = HostSettings.of(listen=LOOPBACK, sources={"q": path})

    async def main() -> None:
        told = "is for trio, this is asyncio: here it is cqrepl.aio.Host"
        with pytest.raises(RuntimeError, match=f"^cqrepl.Host {told}$"):
            await Host(settings).__aenter__()
        with pytest.raises(RuntimeError, match=f"^cqrepl.serve_source {told}$"):
            await cqrepl.serve_source([path], listen=LOOPBACK).__aenter__()
        with pytest.raises(RuntimeError, match=f"^cqrepl.serve_sink {told}$"):
            await cqrepl.serve_sink([tmp_path / "copy"], listen=LOOPBACK).__aenter__()
        told = "^cqrepl.follow is for trio, this is asyncio: here it is cqrepl.aio.follow$"
        with Queue.open(path) as queue, pytest.raises(RuntimeError, match=told):
            async for _ in cqrepl.follow(queue.tailer()):
                pass

    asyncio.run(main())


async def test_the_boards_wait_for_no_loop_of_asyncio(tmp_path: Path) -> None:
    """It would stand still meanwhile."""
    settings = HostSettings.of(listen=LOOPBACK, sources={"q": made(tmp_path / "q")})
    async with Host(settings) as host:
        board = host.queue().board

        async def waits() -> None:
            board.wait(1, timeout=0.0)

        async def tasks() -> None:
            await board.wait_acked(1)

        def other_loop() -> None:
            with pytest.raises(RuntimeError, match="a task of the event loop waits with"):
                asyncio.run(waits())
            with pytest.raises(RuntimeError, match=r"AckBoard.wait_acked is for trio, this is"):
                asyncio.run(tasks())

        await trio.to_thread.run_sync(other_loop)


async def test_it_is_asked_at_a_socket_if_its_settings_name_one(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    settings = HostSettings.of(
        listen=LOOPBACK, host_id=7, sources={"orders": made(tmp_path / "orders")}, run_dir=run_dir
    )

    async def told(**what: object) -> dict[str, object]:
        return await trio.to_thread.run_sync(ask, run_dir, 7, what)

    async with Host(settings) as host:
        said = await trio.to_thread.run_sync(ask_status, run_dir, 7)
        assert (said["host"], said["listens"]) == (7, at(host.port))
        done = await told(do="pause", queue="orders")
        assert done == {"v": 1, "host": 7, "do": "pause", "queue": "orders"} | {
            "said": ["queue 'orders' is paused"]
        }
        assert host.source.queues["orders"].life.hold.reason is not None
        done = await told(do="reload")
        assert (done["error"], done["code"]) == (
            "a program runs this host: it has no file of its own to read again",
            REFUSED,
        )
    with pytest.raises(NotThere):
        await told(do="status")


async def test_a_program_adds_verbs(tmp_path: Path) -> None:
    async def greet(asked: dict[str, object]) -> dict[str, object]:
        return {"v": 1, "said": [f"hello, {asked['name']}"]}

    host = Host(
        HostSettings.of(
            listen=LOOPBACK,
            host_id=7,
            sources={"orders": made(tmp_path / "orders")},
            run_dir=tmp_path / "run",
        )
    )
    host.control.verbs["greet"] = greet
    async with host:
        what = {"do": "greet", "name": "operator"}
        done = await trio.to_thread.run_sync(ask, tmp_path / "run", 7, what)
    assert done["said"] == ["hello, operator"]


def test_in_asyncio_and_in_threads_too(tmp_path: Path) -> None:
    def settings(name: str) -> HostSettings:
        orders = made(tmp_path / name)
        return HostSettings.of(
            listen=LOOPBACK, host_id=7, sources={"orders": orders}, run_dir=tmp_path / "run"
        )

    async def in_asyncio() -> dict[str, object]:
        async with cqrepl.aio.Host(settings("one")):
            return await asyncio.to_thread(ask_status, tmp_path / "run", 7)

    assert asyncio.run(in_asyncio())["host"] == 7
    with cqrepl.blocking.Host(settings("two")):
        assert ask_status(tmp_path / "run", 7)["host"] == 7


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"source": {"q": "q"}}, "SourceSettings expected for 'source', dict came"),
        ({"sources": ["q"]}, "names and directories of queues expected for 'sources', list came"),
    ],
)
def test_queues_where_settings_go_are_told(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        HostSettings.of(listen=LOOPBACK, **wrong)
