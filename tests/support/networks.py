"""Captures for tests: what was said on a connection, as packets of a network, in a file.

`Network` writes Ethernet frames with IP version 4 or 6 and TCP, in pieces of any size; a test may
leave packets out, repeat them or change their order before the file is written.
"""

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cqrepl.protocol.messages import (
    HeartbeatHandler,
    ReplicationHandler,
    UberHandler,
    WireShape,
    write_acknowledgement,
    write_cid,
    write_heartbeat,
    write_registration,
    write_replication_event,
    write_uber,
)

SESSIONS = Path(__file__).parents[1] / "vectors" / "network"
START_NS = 1_700_000_000_123_456_789
CSP = "/replication/out-1/2"
CID, HEARTBEAT_CID = 1_795_256_962_667_000, 787_122_337
FIRST_INDEX = 0x451600000000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A packet before it is written."""

    time_ns: int
    data: bytes


class Network:
    """Makes packets of connections between 10.0.0.1 (direction 0) and 10.0.0.2, or IPv6."""

    def __init__(self, *, version: int = 4, seed: int = 1) -> None:
        self.pieces: list[Piece] = []
        self.now_ns = START_NS
        self._version = version
        self._random = random.Random(seed)
        self._sequences: dict[tuple[int, int], int] = {}

    def open(self, port: int) -> None:
        """SYN of both sides, near the end of the sequence numbers."""
        for direction in (0, 1):
            self._sequences[port, direction] = (1 << 32) - self._random.randrange(1, 3000)
            self._add(port, direction, b"", flags=2)
            self._move(port, direction, 1)

    def say(self, port: int, direction: int, data: bytes, *, mtu: int = 1460) -> None:
        """Bytes of one side, in as many packets as they need."""
        for at in range(0, len(data), mtu):
            self._add(port, direction, data[at : at + mtu], flags=0x18)
            self._move(port, direction, len(data[at : at + mtu]))

    def save(self, path: Path) -> Path:
        """Writes a pcap file with nanoseconds."""
        out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1)]
        for piece in self.pieces:
            seconds, nanos = divmod(piece.time_ns, 10**9)
            out.append(struct.pack("<IIII", seconds, nanos, len(piece.data), len(piece.data)))
            out.append(piece.data)
        path.write_bytes(b"".join(out))
        return path

    def save_pcapng(self, path: Path) -> Path:
        """Writes a pcapng file, big-endian, with nanoseconds."""
        options = struct.pack(">HHBxxxHH", 9, 1, 9, 0, 0)
        out = [
            _block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1)),
            _block(1, struct.pack(">HHI", 1, 0, 1 << 18) + options),
            _block(4, b"\0\0\0\0"),  # names: of no interest
        ]
        for piece in self.pieces:
            head = struct.pack(
                ">IIIII", 0, piece.time_ns >> 32, piece.time_ns & 0xFFFFFFFF, *[len(piece.data)] * 2
            )
            out.append(_block(6, head + piece.data))
        path.write_bytes(b"".join(out))
        return path

    def _move(self, port: int, direction: int, count: int) -> None:
        key = port, direction
        self._sequences[key] = (self._sequences[key] + count) % (1 << 32)

    def _add(self, port: int, direction: int, data: bytes, *, flags: int) -> None:
        ports = (port, 7001) if direction == 0 else (7001, port)
        sequence = self._sequences[port, direction]
        tcp = struct.pack(">HHIIBBHHH", *ports, sequence, 0, 5 << 4, flags, 0xFFFF, 0, 0) + data
        hosts = [b"\x0a\0\0\x01", b"\x0a\0\0\x02"]
        if self._version == 6:
            hosts = [b"\xfd" + bytes(11) + host for host in hosts]
        addresses = hosts[direction] + hosts[1 - direction]
        if self._version == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0)
        else:
            ip = struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64)
        link = bytes(12) + (b"\x08\x00" if self._version == 4 else b"\x86\xdd")
        self.now_ns += 1_234_567
        self.pieces.append(Piece(time_ns=self.now_ns, data=link + ip + addresses + tcp))


def _block(kind: int, content: bytes) -> bytes:
    content += bytes(-len(content) % 4)
    length = struct.pack(">I", len(content) + 12)
    return struct.pack(">I", kind) + length + content + length


def set_up(shape: WireShape = WireShape.NETWORK) -> Iterator[tuple[int, bytes]]:
    """The first documents of both sides: the sink, direction 0, dials."""
    heartbeat = HeartbeatHandler(timeout_ms=40000, interval_ms=30000)

    def replication(kind: str) -> ReplicationHandler:
        return ReplicationHandler(
            kind=f"{kind}ReplicationHandler",
            queue_name="out-1",
            acknowledgement=True,
            next_index=0,
            source_id=1002,
        )

    yield 0, write_uber(UberHandler(remote_id=2, local_id=1), shape)
    yield 0, write_registration("/", HEARTBEAT_CID, heartbeat, shape)
    yield 1, write_uber(UberHandler(remote_id=1, local_id=2), shape)
    yield 1, write_registration(CSP, CID, replication("Sink"), shape)
    yield 1, write_registration("/", HEARTBEAT_CID, heartbeat, shape)
    yield 0, write_registration(CSP, CID, replication("Source"), shape)


def exchange(events: int, *, seed: int = 1) -> Iterator[tuple[int, bytes]]:
    """Events with payloads of many sizes, each acknowledged, and some heartbeats."""
    numbers = random.Random(seed)
    for nth in range(events):
        ns = 1_000_000_000_000 + numbers.randrange(1 << 40)
        payload = numbers.randbytes(numbers.choice((0, 1, 31, 256, 3000)))
        yield 1, write_cid(CID) + write_replication_event(FIRST_INDEX + nth, payload, ns)
        yield 0, write_cid(CID) + write_acknowledgement(FIRST_INDEX + nth, ns)
        if nth % 10 == 0:
            yield nth % 20 // 10, write_cid(HEARTBEAT_CID) + write_heartbeat()


def recorded_sessions() -> Iterator[tuple[str, list[Json]]]:
    """Recorded sessions, most of two Java hosts: their documents, connection by connection."""
    for path in sorted(SESSIONS.glob("*.json")):
        if path.stem == "acceptor-behaviour":
            continue
        entries = [entry for entry in json.loads(path.read_text()) if entry["hex"]]
        for conn in sorted({entry["conn"] for entry in entries}):
            yield path.stem, [entry for entry in entries if entry["conn"] == conn]
