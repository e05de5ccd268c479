"""Threats T8 and T25: thousands of connections that say nothing to a real source, and to a sink."""

import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from cqrepl.net.doorstep import UNGREETED_MAX
from cqrepl.net.listener import CONNECTIONS_MAX
from cqrepl.queue import ExcerptBatch, Queue
from tests.faults.victims import HOSTILE_ID, MACHINES, SECONDS, Victim
from tests.support import peer
from tests.support.processes import private_bytes
from tests.support.replicas import eventually, last_of
from tests.support.samples import NOON_MS
from tests.support.scripted import scripted

IDLE = 2000
HOSTILE = 10_000
AT_ONCE = 200  # hostile connections that are open at one time
PACE_S = 0.005  # between two appends
MIB = 1 << 20
# what they say: nothing, rubbish, TLS, a length without an end, HTTP, half a greeting
RUBBISH = (
    b"",
    bytes(range(256)) * 16,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\xff\xff\xff\x3f" + b"x" * 10,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x40\x00\x00\x40\xc7handler",
)


@asynccontextmanager
async def idle(victim: Victim, number: int, each: int) -> AsyncIterator[list[trio.SocketStream]]:
    """So many connections that say nothing, and so many of them from each machine."""
    opened: list[trio.SocketStream] = []
    machine = ""
    try:
        with trio.fail_after(SECONDS):
            for nth in range(number):
                if nth % each == 0:
                    machine = next(MACHINES)
                opened.append(
                    await trio.open_tcp_stream("127.0.0.1", victim.port, local_address=machine)
                )
        yield opened
    finally:
        for stream in opened:
            await trio.aclose_forcefully(stream)


async def is_greeted(victim: Victim, machine: str) -> None:
    """A new good peer is let in."""
    async with scripted(victim.port, HOSTILE_ID, victim.own_id, machine) as good:
        await good.send(peer.terminator())
        await good.hear_end()


@pytest.mark.parametrize("each", [IDLE, UNGREETED_MAX])
async def test_t8_t25_thousands_of_idle_connections(victim: Victim, each: int) -> None:
    """From one machine, or from many. The good peer does not notice, and another one is let in, of
    the same machine too; what it costs is bounded, in memory and in lines."""
    before, begun, said = private_bytes(victim.process.pid), time.monotonic(), len(victim.said)
    async with idle(victim, IDLE, each) as opened:
        await victim.serves()
        await is_greeted(victim, opened[-1].socket.getsockname()[0])
        await is_greeted(victim, "127.0.0.1")
        assert connected_to(victim.port) <= CONNECTIONS_MAX + 20
        assert private_bytes(victim.process.pid) - before < 32 * MIB
    await victim.serves()
    if each == IDLE:
        counted = re.compile(r"said nothing yet \((\d+) such lines\)")
        await eventually(lambda: counted.search(victim.said, said) is not None)  # a second later
        seconds = time.monotonic() - begun
        lines = re.findall("said nothing yet|without having sent", victim.said[said:])
        assert 0 < len(lines) <= 2 * (seconds + 1)


def connected_to(port: int) -> int:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    local = [row for row in rows if int(row[1].partition(":")[2], 16) == port and row[9] != "0"]
    return sum(row[3] == "01" for row in local)


async def test_t6_a_hundred_peers_that_never_read(victims: dict[str, Victim]) -> None:
    """The bytes that wait for them are bounded, whatever there is; the good peer is served all the
    while."""
    victim = victims["source"]
    with Queue.open_for_append(victim.original) as queue:
        for _ in range(8):
            queue.append_many([bytes(64 * 1024)] * 16, now_ms=NOON_MS)
    await victim.serves()
    before = private_bytes(victim.process.pid)
    ids = [host_id for host_id in range(3, 103) if host_id != HOSTILE_ID]
    async with AsyncExitStack() as stack:
        for host_id in ids:
            sink = await stack.enter_async_context(
                scripted(victim.port, host_id, victim.own_id, next(MACHINES))
            )
            _, cid = await sink.answer(0)
            await sink.send(peer.end_of_stream(cid))
            await sink.hear("re", 1)  # and nothing more
        await victim.serves()
        assert private_bytes(victim.process.pid) - before < len(ids) * MIB
        await is_greeted(victim, "127.0.0.1")
    await victim.serves()


@pytest.mark.long
async def test_t8_ten_thousand_hostile_connections_take_nothing_from_a_good_peer(
    victims: dict[str, Victim],
) -> None:
    """Excerpts come at a pace. While the attack lasts the good peer gets nine of ten at least, as
    they come, and the victim stays as large as it was."""
    victim = victims["source"]
    await victim.serves()
    before, largest = private_bytes(victim.process.pid), 0
    begin = last_of(victim.original)
    assert begin is not None
    attack_is_over = trio.Event()

    async def write() -> None:
        with Queue.open_for_append(victim.original) as queue:
            appender, index = queue.appender(), begin
            while not attack_is_over.is_set():
                index += 1
                appender.append_at(ExcerptBatch.of(index, [b"good"]))
                await trio.sleep(PACE_S)

    async def attack(says: bytes, machine: str) -> None:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", victim.port, local_address=machine)
            async with stream:
                await stream.send_all(says)
                with trio.move_on_after(1.0):
                    await stream.receive_some(1)
        except (OSError, trio.BrokenResourceError):
            return  # it was turned away: that is right

    async def in_turns(numbers: Iterator[int]) -> None:
        for nth in numbers:
            await attack(RUBBISH[nth % len(RUBBISH)], machines[nth % len(machines)])

    machines = [next(MACHINES) for _ in range(HOSTILE // 10)]
    with trio.fail_after(600):
        async with trio.open_nursery() as writing:
            writing.start_soon(write)
            numbers = iter(range(HOSTILE))
            async with trio.open_nursery() as attacking:
                for _ in range(AT_ONCE):
                    attacking.start_soon(in_turns, numbers)
                while next(numbers, None) is not None:
                    largest = max(largest, private_bytes(victim.process.pid))
                    await trio.sleep(0.5)
            sent, got = last_of(victim.original), last_of(victim.copy)
            largest = max(largest, private_bytes(victim.process.pid))
            attack_is_over.set()
    assert sent is not None
    assert got is not None
    assert sent - begin > 100
    assert (got - begin) / (sent - begin) >= 0.9
    assert largest - before < 32 * MIB
    await victim.serves()
