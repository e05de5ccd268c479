"""The relay on loopback: what it passes and writes down, and where exactly it fails."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from cqrepl.protocol.messages import write_acknowledgement, write_cid, write_replication_event
from tests.support.relay import Action, OnDocument, Relay, at, forward_all

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests/vectors/network"
TRANSCRIPTS = sorted(set(VECTORS.glob("*.json")) - {VECTORS / "acceptor-behaviour.json"})
DOCUMENTS = [
    write_cid(7),
    write_replication_event(5, b"first", 1),
    write_cid(7),
    write_replication_event(6, bytes(3000), 2),
    write_cid(7),
]
ANSWER = write_acknowledgement(5, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A relay with one connection through it; the sink dials."""

    relay: Relay
    sink: trio.SocketStream
    source: trio.SocketStream
    accepted: "trio.MemoryReceiveChannel[trio.SocketStream]"

    @asynccontextmanager
    async def again(self) -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
        async with await trio.open_tcp_stream("127.0.0.1", self.relay.port) as sink:
            yield sink, await self.accepted.receive()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, "trio.MemoryReceiveChannel[trio.SocketStream]"]]:
    """A port, and the streams of all that dial it."""
    send, receive = trio.open_memory_channel[trio.SocketStream](10)

    async def hand_over(stream: trio.SocketStream) -> None:
        await send.send(stream)
        await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, hand_over, listeners)
        yield listeners[0].socket.getsockname()[1], receive
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def joined(
    on_document: OnDocument | None = forward_all, cut_after: int | None = None
) -> AsyncIterator[Joined]:
    async with listening() as (port, accepted):
        async with Relay(port, on_document=on_document, cut_after=cut_after).running() as relay:
            async with await trio.open_tcp_stream("127.0.0.1", relay.port) as sink:
                source = await accepted.receive()
                yield Joined(relay=relay, sink=sink, source=source, accepted=accepted)


async def read_count(stream: trio.SocketStream, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = await stream.receive_some(count - len(data))
        assert more, f"the stream ended after {len(data)} bytes"
        data += more
    return data


async def read_to_end(stream: trio.SocketStream) -> bytes:
    data = b""
    with suppress(trio.BrokenResourceError):  # a reset is an end too
        while more := await stream.receive_some():
            data += more
    return data


async def assert_silent(stream: trio.SocketStream) -> None:
    with trio.move_on_after(0.05) as scope:
        data = await stream.receive_some()
        raise AssertionError(f"{data!r} came")
    assert scope.cancelled_caught


def happened(relay: Relay) -> list[str]:
    return [entry.kind for entry in relay.entries if entry.direction == "event"]


async def test_documents_of_both_sides_pass_and_are_recorded() -> None:
    async with joined() as ends:
        await ends.source.send_all(b"".join(DOCUMENTS))
        assert await read_count(ends.sink, sum(map(len, DOCUMENTS))) == b"".join(DOCUMENTS)
        await ends.sink.send_all(ANSWER)
        assert await read_count(ends.source, len(ANSWER)) == ANSWER
        relay = ends.relay
    assert relay.documents_from("source") == DOCUMENTS
    assert relay.documents_from("sink") == [ANSWER]
    assert (relay.count_from("source"), relay.count_from("sink")) == (5, 1)
    assert relay.entries[0].kind == "connected by sink"
    entry = [each for each in relay.entries if each.raw][-1].as_json()
    assert entry == {
        "conn": 1,
        "t_ms": entry["t_ms"],
        "dir": "sink->source",
        "kind": "data",
        "hex": ANSWER.hex(),
        "text": "--- !!data #binary\nidx: 0x5\nns: 1",
    }


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
async def test_a_recorded_session_is_recorded_alike(path: Path) -> None:
    wanted = [
        {key: each[key] for key in ("dir", "kind", "hex", "text")}
        for each in json.loads(path.read_text())
        if each["dir"] != "event"
    ]
    async with joined() as ends:
        for each in wanted:
            raw = bytes.fromhex(each["hex"])
            sender, receiver = ends.sink, ends.source
            if each["dir"] == "source->sink":
                sender, receiver = receiver, sender
            await sender.send_all(raw)
            assert await read_count(receiver, len(raw)) == raw
        entries = [entry.as_json() for entry in ends.relay.entries]
    found = [
        {key: each[key] for key in ("dir", "kind", "hex", "text")}
        for each in entries
        if each["dir"] != "event"
    ]
    assert found == wanted


@pytest.mark.parametrize("number", [1, 2, 4])
async def test_cut_passes_its_document_and_ends_both_sides(number: int) -> None:
    async with joined(at(number, "source", Action.CUT)) as ends:
        await ends.source.send_all(b"".join(DOCUMENTS))
        assert await read_to_end(ends.sink) == b"".join(DOCUMENTS[:number])
        assert await read_to_end(ends.source) == b""
        assert ends.relay.documents_from("source") == DOCUMENTS[:number]
        assert happened(ends.relay)[-1] == "connection dropped by the network"


async def test_cut_inside_passes_half_of_its_document() -> None:
    async with joined(at(4, "source", Action.CUT_INSIDE)) as ends:
        await ends.source.send_all(b"".join(DOCUMENTS))
        half = DOCUMENTS[3][: len(DOCUMENTS[3]) // 2]
        assert await read_to_end(ends.sink) == b"".join(DOCUMENTS[:3]) + half
        assert ends.relay.documents_from("source") == DOCUMENTS[:3]
        assert happened(ends.relay)[-1] == "connection dropped by the network inside a document"


async def test_stall_keeps_both_sockets_open_and_passes_nothing() -> None:
    async with joined(at(2, "source", Action.STALL)) as ends:
        await ends.source.send_all(b"".join(DOCUMENTS))
        passed = b"".join(DOCUMENTS[:2])
        assert await read_count(ends.sink, len(passed)) == passed
        await ends.relay.stalled.wait()
        await ends.sink.send_all(ANSWER)
        await assert_silent(ends.source)
        await assert_silent(ends.sink)
        await ends.source.aclose()
        assert await read_to_end(ends.sink) == b""
        assert happened(ends.relay)[-2:] == [
            "network stalls, nothing is forwarded any more",
            "closed by source",
        ]


# bytes


@pytest.mark.parametrize("on_document", [None, forward_all], ids=["bytes", "documents"])
async def test_nothing_passes_while_the_gate_is_closed(on_document: OnDocument | None) -> None:
    async with joined(on_document) as ends:
        ends.relay.close_gate()
        await ends.source.send_all(DOCUMENTS[0])
        await ends.sink.send_all(ANSWER)
        await assert_silent(ends.sink)
        await assert_silent(ends.source)
        ends.relay.open_gate()
        assert await read_count(ends.sink, len(DOCUMENTS[0])) == DOCUMENTS[0]
        assert await read_count(ends.source, len(ANSWER)) == ANSWER


@pytest.mark.parametrize("count", [1, 5000])
async def test_a_reset_after_so_many_bytes_towards_the_dialler(count: int) -> None:
    """None more arrive; later connections pass whole."""
    async with joined(None, cut_after=count) as ends:
        await ends.sink.send_all(bytes(9999))
        assert await read_count(ends.source, 9999) == bytes(9999)
        sent = bytes(range(200)) * 100
        await ends.source.send_all(sent)
        assert sent[:count].startswith(await read_to_end(ends.sink))
        async with ends.again() as (sink, source):
            await source.send_all(sent)
            assert await read_count(sink, len(sent)) == sent


# the command


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[tuple[trio.Process, int]]:
    """The command as a process, and the port that it printed."""
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            lambda task_status: trio.run_process(
                [sys.executable, "-m", "tools.record", *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                check=False,
                task_status=task_status,
            )
        )
        yield process, int(await process.stdout.receive_some())
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_command_in_order(tmp_path: Path, number: int) -> None:
    path = tmp_path / "transcript.json"
    async with listening() as (target, accepted):
        to = f"127.0.0.1:{target}"
        async with command("--to", to, "--dialler", "sink", "--out", str(path)) as (process, port):
            async with await trio.open_tcp_stream("127.0.0.1", port) as sink:
                await sink.send_all(ANSWER)
                await read_count(await accepted.receive(), len(ANSWER))
            process.send_signal(number)
            assert await process.wait() == 0
    kinds = [each["kind"] for each in json.loads(path.read_text())]
    assert kinds[:2] == ["connected by sink", "data"]


async def test_kill_ends_the_process_after_the_document_and_not_a_byte_later() -> None:
    victim = await trio.lowlevel.open_process(["sleep", "60"])
    kill = ["--kill", str(victim.pid), "--after", "2", "--of", "source", "--run-seconds", "60"]
    async with listening() as (target, accepted):
        to = f"127.0.0.1:{target}"
        async with command("--to", to, "--dialler", "sink", *kill) as (_, port):
            async with await trio.open_tcp_stream("127.0.0.1", port) as sink:
                source = await accepted.receive()
                await source.send_all(b"".join(DOCUMENTS))
                assert await read_to_end(sink) == b"".join(DOCUMENTS[:2])
            assert await victim.wait() == -signal.SIGKILL
