"""Hostile peers against a real source and a real sink, which go on serving a good one meanwhile.

Both processes run through all tests of this file.
"""

import random
import re
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.net.doorstep import UNGREETED_MAX
from cqrepl.queue import Queue
from cqrepl.queue.format.index import format_index
from tests.faults.victims import HOSTILE_ID, MACHINES, SECONDS, Victim
from tests.support import peer
from tests.support.processes import private_bytes
from tests.support.replicas import eventually, last_of
from tests.support.samples import noon_index, read
from tests.support.scripted import Scripted, scripted

MIB = 1 << 20
CLAIMS = 200
ESTABLISHED_OR_LISTENING = ("01", "0A")  # the latter tells the connections not accepted yet
NAMES_EACH = 90  # on one connection: fewer than close it


def document(body: bytes, word: int = 0) -> bytes:
    return (len(body) | word).to_bytes(4, "little") + body


METADATA = 1 << 30
NOT_COMPLETE = 1 << 31
TEXT = b"handler: !UberHandler {remoteIdentifier: 9, localIdentifier: 1, wireType: TEXT}\n"

BEFORE_GREETING = {
    "garbage": (random.Random(1).randbytes(4000), "."),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "at most 65536 bytes"),
    "tls": (bytes.fromhex("160301020001000100"), "expected plain bytes, got TLS"),
    "zero header": (bytes(64), "zero|0x00000000|length 0|empty"),
    "bit 31": (document(b"\xc7handler", NOT_COMPLETE), "not complete|0x8"),
    "oversize": (peer.header(65_537), "at most 65536 bytes"),
    "oversize by far": (peer.header((1 << 30) - 1), "at most 65536 bytes"),
    "empty document": (document(b""), "."),
    "text": (document(TEXT, METADATA), "binary UberHandler expected"),
    "text as data": (document(TEXT), "binary UberHandler expected"),
    "heartbeat first": (peer.heartbeats(), "UberHandler expected before any other"),
    "cid first": (peer.select(7), "UberHandler expected before any other"),
    "excerpt first": (peer.excerpts(noon_index(), b"x", cid=7), "UberHandler expected"),
    "terminator first": (peer.terminator(), "UberHandler expected before any other"),
    "unknown handler first": (
        peer.register("/", 1, peer.Typed("java.lang.Runtime", {})),
        "UberHandler expected",
    ),
    "wire type": (peer.uber(9, 1, "TEXT"), "."),
}


@pytest.mark.parametrize("name", BEFORE_GREETING)
async def test_instead_of_a_greeting(victim: Victim, name: str) -> None:
    sent, reason = BEFORE_GREETING[name]
    async with victim.attacked() as attacker:
        await attacker.send(sent)
        await attacker.hear_end()
        await victim.logs(attacker, "closed", reason)
        assert attacker.said == []


@pytest.mark.parametrize(
    ("own", "other", "reason"),
    [
        (HOSTILE_ID, 77, r"the peer expects host id 77, this side has \d"),
        (HOSTILE_ID, -(1 << 63), "the peer expects host id -"),
        (None, None, r"both sides have host id \d"),
    ],
)
async def test_t10_wrong_ids(
    victim: Victim, own: int | None, other: int | None, reason: str
) -> None:
    mine = victim.own_id
    async with victim.attacked() as attacker:
        await attacker.send(peer.uber(own or mine, other or mine))
        await attacker.hear_end()
        await victim.logs(attacker, "closed", reason)


AFTER_GREETING = {
    "zero header": (bytes(8), "."),
    "bit 31": (document(b"x", NOT_COMPLETE), "."),
    "oversize": (peer.header(16 * MIB + 4097), "at most 16781312 bytes"),
    "oversize meta-data": (document(bytes(65_537), METADATA), "at most 65536 bytes"),
    "oversize message": (document(b"\xc3idx" + bytes(65_537)), "at most 65536 bytes"),
    "unreadable body": (document(b"\xc9" * 50, METADATA), "unreadable document"),
    "text": (document(b"heartbeat: ''\n"), "unreadable document|name"),
    "101 refusals": (peer.select(4242) * 101, "more than 100 messages had to be refused"),
    "101 unknown handlers": (
        peer.register("/x", 4242, peer.Typed("java.lang.ProcessBuilder", {})) * 101,
        "more than 100 messages had to be refused",
    ),
}


@pytest.mark.parametrize("name", AFTER_GREETING)
async def test_after_the_greeting(victim: Victim, name: str) -> None:
    sent, reason = AFTER_GREETING[name]
    async with victim.attacked(greet=True) as attacker:
        await attacker.send(sent)
        await attacker.hear_end()
        await victim.logs(attacker, "closed", reason)


async def test_t4_memory_does_not_follow_what_is_claimed(victim: Victim) -> None:
    """Peers that claim the longest document that is allowed, and send ten bytes of it, cost what as
    many cost that claim nothing; together they claim three times what they may add."""
    async with victim.attacked(greet=True) as first:
        await memory_with(victim, bytes(3))  # what these leave behind is collected at some time
        before = await memory_with(victim, bytes(3))  # less than a header
        await first.send(peer.header(16 * MIB) + bytes(10))
        # on connections that have no host id yet: as much as is allowed there
        grown = await memory_with(victim, peer.header(65_000) + bytes(10)) - before
        assert grown < 9 * MIB < (16 * MIB + CLAIMS * 65_000) / 3, grown


async def memory_with(victim: Victim, sent: bytes) -> int:
    async with AsyncExitStack() as stack:
        for nth in range(CLAIMS):
            if nth % UNGREETED_MAX == 0:
                machine = next(MACHINES)
            attacker = await stack.enter_async_context(scripted(victim.port, machine=machine))
            await attacker.send(sent)
        await victim.serves()
        await eventually(lambda: unread_bytes(victim.port) == 0)
        return private_bytes(victim.process.pid)


def unread_bytes(port: int) -> int:
    """The number of bytes that have come for a port of this machine and were not taken."""
    unread = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if int(local.partition(":")[2], 16) == port and state in ESTABLISHED_OR_LISTENING:
            unread += int(queues.partition(":")[2], 16)
    return unread


async def test_t5_slow_and_silent_greetings_have_five_seconds(victims: dict[str, Victim]) -> None:
    """One byte a second, two of them, and nothing at all."""

    async def drip(victim: Victim, attacker: Scripted) -> None:
        for byte in peer.uber(HOSTILE_ID, victim.own_id):
            await attacker.send(bytes([byte]))
            await trio.sleep(1)

    async def one(victim: Victim, drips: bool) -> None:
        start = time.monotonic()
        machine = next(MACHINES)
        async with (
            scripted(victim.port, machine=machine) as attacker,
            trio.open_nursery() as nursery,
        ):
            if drips:
                nursery.start_soon(drip, victim, attacker)
            await attacker.hear_end()
            nursery.cancel_scope.cancel()
            assert time.monotonic() - start > 4.5
            await victim.logs(
                attacker, "closed", r"no greeting \(an UberHandler\) of the peer within 5 s"
            )

    async with trio.open_nursery() as nursery:
        for victim in victims.values():
            nursery.start_soon(one, victim, True)
            nursery.start_soon(one, victim, False)
    for victim in victims.values():
        await victim.serves()


async def test_half_a_document_and_gone(victim: Victim) -> None:
    """A closed and a reset connection in the middle of a frame."""
    for linger in (b"", b"\1\0\0\0\0\0\0\0"):
        async with victim.attacked(greet=True) as attacker:
            whole = peer.excerpts(noon_index(), b"x" * 1000, cid=7)
            await attacker.send(whole[:-500])
            if linger:
                attacker.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await trio.aclose_forcefully(attacker.stream)
    lost = r"disconnected: (the connection ended in the middle|connection broken)"
    await eventually(lambda: len(re.findall(lost, victim.said)) >= 2)


# what only a sink, or only a source, can be asked


def hostile_names() -> list[str]:
    """More than three hundred names that would name something else than a queue of the sink."""
    parts = ["../x", "/abs", "..", ".", "", "a/b", "a\\b", "metadata", "copies", "q/../q", "./q"]
    parts += ["q\0", "q\n", " q", "q ", "Q", "\uff0fx", "\u2024\u2024/x", "x" * 300, "%2e%2e/x"]
    parts += ["q/metadata.cq4t", "file:///x", "~", "$HOME", "`id`", "con", "q.", "\ud7ff", "\x7f"]
    prefixes = ["", "../", "../../", "/", "//", "./", "q/", "\0", "..\\", "C:\\", "....//"]
    return sorted({prefix + part for prefix in prefixes for part in parts} - {"q"})


async def test_t1_names_that_are_no_queue(victims: dict[str, Victim]) -> None:
    """Each is refused, and nothing comes into being anywhere."""
    victim = victims["sink"]
    names = hostile_names()
    assert len(names) > 300

    def listing() -> list[str]:
        return sorted(str(path) for path in victim.folder.parent.rglob("*"))

    before = listing()
    refused = victim.said.count("refused: unknown queue")
    for start in range(0, len(names), NAMES_EACH):
        async with victim.attacked(greet=True) as attacker:
            for cid, name in enumerate(names[start : start + NAMES_EACH]):
                handler = peer.sink_handler(0, name=name)
                await attacker.send(peer.register("/replication/q/2", cid + 1, handler))
            await attacker.send(peer.terminator())
            await attacker.hear_end()
            assert len(attacker.all("handler")) == 2  # the two of the greeting
    assert listing() == before
    connections = -(-len(names) // NAMES_EACH)
    assert victim.said.count("refused: unknown queue") == refused + 3 * connections
    assert all(line.isprintable() for line in victim.said.splitlines())


async def test_queue_of_another_connection(victims: dict[str, Victim]) -> None:
    """The sink's queue is taken by the good source: another one gets no answer for it."""
    victim = victims["sink"]
    before = read(victim.copy)
    async with victim.attacked(greet=True) as attacker:
        handler = peer.sink_handler(0, name="q")
        last = last_of(victim.copy)
        assert last is not None
        await attacker.send(
            peer.register("/replication/q/2", 901, handler),
            peer.excerpts(last + 1, b"forged", cid=901),
            peer.terminator(),
        )
        await attacker.hear_end()
        assert len(attacker.all("handler")) == 2  # the two of the greeting
    assert read(victim.copy)[: len(before)] == before
    assert b"forged" not in [data for _, data in read(victim.copy)]


@pytest.mark.parametrize("index", [-1, 1 << 62, (1 << 63) - 1, 0])
async def test_t12_acknowledgements_of_what_was_not_sent(
    victims: dict[str, Victim], index: int
) -> None:
    """From a peer that can prove nothing: said once, never counted; the queue goes on."""
    victim = victims["source"]
    async with victim.attacked(greet=True) as attacker:
        _, cid = await attacker.answer(0)
        await attacker.send(peer.end_of_stream(cid), peer.acknowledgement(index, 1, cid))
        if index > 0:
            await victim.logs(
                attacker, "refused", f"acknowledgement of index {format_index(index)}"
            )
        count = len(read(victim.original))
        await attacker.hear("re", count)
    with Queue.open(victim.original) as queue:
        await eventually(lambda: queue.acknowledged_index == queue.last_index())


async def test_frames_for_a_source(victims: dict[str, Victim]) -> None:
    """A source takes excerpts only while a sink copies back."""
    victim = victims["source"]
    async with victim.attacked(greet=True) as attacker:
        _, cid = await attacker.answer(0)
        last = last_of(victim.original)
        assert last is not None
        await attacker.send(peer.end_of_stream(cid), peer.excerpts(last + 1, b"forged", cid=cid))
        await attacker.hear_end()
        await victim.logs(attacker, "closed", "EXCERPTS_RECEIVED is not allowed while STREAMING")
    assert b"forged" not in [data for _, data in read(victim.original)]


def mutated(stream: bytes, dice: random.Random) -> bytes:
    """The stream with a few bytes changed, left out, or repeated."""
    data = bytearray(stream)
    for _ in range(dice.randrange(1, 6)):
        place = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[place] = dice.randrange(256)
            case 1:
                data[place] ^= 1 << dice.randrange(8)
            case 2:
                del data[place : place + dice.randrange(1, 9)]
            case _:
                data[place:place] = data[place : place + dice.randrange(1, 9)]
    return bytes(data)


def conversation(victim: Victim) -> bytes:
    """The bytes of a peer that does everything right, but for the cid that it cannot know."""
    start = peer.uber(HOSTILE_ID, victim.own_id) + peer.heartbeats()
    shape: dict[str, Any] = {"cqrepl": peer.SHAPE_FIELDS}
    if victim.role == "sink":
        offer = peer.register("/replication/q/2", 901, peer.sink_handler(0, name="q", **shape))
        return start + offer + peer.excerpts(noon_index(), b"a", b"bc", cid=901)
    answer = peer.source_handler(0, name="q", **shape)
    return (
        start
        + peer.register(f"/replication/q/{HOSTILE_ID}", 901, answer)
        + peer.end_of_stream(901)
        + peer.acknowledgement(noon_index(), 1, 901)
    )


@pytest.mark.parametrize("seed", range(4))
async def test_almost_good_conversations(victim: Victim, seed: int) -> None:
    """Each ends in order, is closed with a reason, or waits for more: never an error of ours."""
    dice = random.Random(seed)
    good = conversation(victim)

    async def talk(data: bytes) -> None:
        async with scripted(victim.port) as attacker:
            with trio.move_on_after(SECONDS):
                await attacker.send(data)
                await attacker.stream.send_eof()
                try:
                    while await attacker.stream.receive_some(65536):
                        pass
                except trio.BrokenResourceError:
                    pass

    for _ in range(10):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(talk, mutated(good, dice))
    await victim.serves()
    assert victim.process.poll() is None, victim.said
