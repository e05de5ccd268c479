"""Two hosts of this machine, with a bad line between them.

Each host is a network namespace with one device, the end of a tunnel whose packets this process
passes on: so loss, delay and all the rest are drawn here, from one seed, and the kernel needs
neither netem nor a firewall. What is put into the line is changed while it runs.

    host A: tun0 10.77.0.1 -- this process -- 10.77.0.2 tun0: host B
"""

import fcntl
import heapq
import os
import random
import shutil
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import trio

from tests.support.requirements import require

ADDRESSES: Final = ("10.77.0.1", "10.77.0.2")
MTU: Final = 1500
TUNNEL: Final = "/dev/net/tun"
SET_NAME, NO_HEADER = 0x400454CA, 0x0001 | 0x1000  # TUNSETIFF; IFF_TUN | IFF_NO_PI
BACKLOG_SECONDS: Final = 0.5  # what waits longer for a slow line is dropped, as a router does
TCP, RESET, ACKNOWLEDGES = 6, 0x04, 0x10


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """The conditions that a packet meets; chances are from 0 to 1, times in seconds.

    Args:
        cut: ends whose packets get nowhere.
        resets: packets that acknowledge are answered with a reset, in both directions.
    """

    loss: float = 0.0
    twice: float = 0.0
    delay: float = 0.0
    jitter: float = 0.0  # beside the delay: packets overtake one another
    bytes_per_s: float | None = None
    cut: frozenset[int] = frozenset()
    resets: bool = False


FAIR: Final = Weather()


class Line:
    """Passes packets on between the two ends, 0 and 1."""

    def __init__(self, ends: tuple[int, int], dice: random.Random) -> None:
        self.weather = FAIR
        self.passed = [0, 0]
        self.dropped = self.resets = 0
        self._ends = ends
        self._dice = dice
        self._waiting: list[tuple[float, int, int, bytes]] = []  # a heap: when due, nth, to which
        self._nth = 0
        self._free_at = [0.0, 0.0]  # when a slow line has sent what it was given
        self._news = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear, 0)
            nursery.start_soon(self._hear, 1)
            nursery.start_soon(self._deliver)

    async def _hear(self, end: int) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._ends[end])
            try:
                while True:
                    self._take(end, os.read(self._ends[end], 1 << 16))
            except BlockingIOError:
                pass

    def _take(self, end: int, packet: bytes) -> None:
        weather, dice = self.weather, self._dice
        if weather.resets and self._reset(end, packet):
            return
        if end in weather.cut or dice.random() < weather.loss:
            self.dropped += 1
            return
        for _ in range(1 + (dice.random() < weather.twice)):
            self._queue(end, packet)

    def _queue(self, end: int, packet: bytes) -> None:
        weather, now = self.weather, trio.current_time()
        due = now
        if weather.bytes_per_s is not None:
            due = max(now, self._free_at[end])
            if due - now > BACKLOG_SECONDS:
                self.dropped += 1
                return
            due += len(packet) / weather.bytes_per_s
            self._free_at[end] = due
        due += weather.delay + self._dice.random() * weather.jitter
        self._nth += 1
        heapq.heappush(self._waiting, (due, self._nth, 1 - end, packet))
        self._news.set()

    async def _deliver(self) -> None:
        while True:
            self._news = trio.Event()
            due = self._waiting[0][0] if self._waiting else float("inf")
            if due > trio.current_time():
                with trio.move_on_at(due):
                    await self._news.wait()
                continue
            _, _, end, packet = heapq.heappop(self._waiting)
            self._write(end, packet)

    def _write(self, end: int, packet: bytes) -> None:
        try:
            os.write(self._ends[end], packet)
            self.passed[end] += 1
        except OSError:  # its queue is full: a packet less
            self.dropped += 1

    def _reset(self, end: int, packet: bytes) -> bool:
        """Answers a packet as if the other host knew nothing of the connection; false when the
        packet acknowledges nothing, and says so of no place that a reset could name."""
        if packet[0] >> 4 != 4 or packet[9] != TCP:
            return False
        segment = packet[(packet[0] & 15) * 4 :]
        flags = segment[13]
        if not flags & ACKNOWLEDGES or flags & RESET:
            return False
        self._write(end, reset_for(packet, segment))
        self.resets += 1
        return True


def reset_for(packet: bytes, segment: bytes) -> bytes:
    """The packet with which the far host of this one would reset the connection."""
    near, far = packet[12:16], packet[16:20]
    ports = segment[2:4] + segment[0:2]
    tcp = ports + segment[8:12] + bytes(4) + struct.pack(">BBHHH", 5 << 4, RESET, 0, 0, 0)
    pseudo = far + near + struct.pack(">BBH", 0, TCP, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp)) + tcp[18:]
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, TCP, 0) + far + near
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + tcp


def checksum(data: bytes) -> int:
    """The internet checksum of an even number of bytes."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Two hosts that the line joins."""

    names: tuple[str, str]
    line: Line

    def entering(self, end: int) -> str:
        """A line of Python that moves a process to a host, for `commands(before=...)`."""
        path = f"/run/netns/{self.names[end]}"
        new_net = 0x40000000
        return (
            f"import ctypes, os; assert not ctypes.CDLL(None).setns("
            f"os.open({path!r}, os.O_RDONLY), {new_net})"
        )


@asynccontextmanager
async def hosts(dice: random.Random) -> AsyncIterator[Hosts]:
    """Two hosts for the length of a block; both are gone at its end, whatever came."""
    if os.geteuid() != 0 or not shutil.which("ip") or not os.path.exists(TUNNEL):
        require("root", f"hosts of their own take root, `ip` and {TUNNEL}")
    names = (f"cqrepl-{os.getpid()}-a", f"cqrepl-{os.getpid()}-b")
    ends: list[int] = []
    made: list[str] = []
    try:
        for name, address in zip(names, ADDRESSES, strict=True):
            if not ip("netns", "add", name):
                require("root", "no network namespace may be made here")
            made.append(name)
            ends.append(tunnel_into(name, address))
        line = Line((ends[0], ends[1]), dice)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.run)
            yield Hosts(names=names, line=line)
            nursery.cancel_scope.cancel()
    finally:
        for end in ends:
            os.close(end)
        for name in made:
            ip("netns", "del", name)


def tunnel_into(name: str, address: str) -> int:
    """Makes the one device of a host; the descriptor that gives and takes its packets."""
    end = os.open(TUNNEL, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = bytearray(struct.pack("16sH22x", b"", NO_HEADER))  # the system chooses the name
        fcntl.ioctl(end, SET_NAME, request)
        device = request[:16].rstrip(b"\0").decode()
        within = ("-n", name)
        steps = (
            ("link", "set", device, "netns", name, "name", "tun0"),
            (*within, "addr", "add", f"{address}/24", "dev", "tun0"),
            (*within, "link", "set", "tun0", "mtu", str(MTU), "up"),
            (*within, "link", "set", "lo", "up"),
        )
        if not all(ip(*words) for words in steps):
            require("root", "a tunnel cannot be moved into a namespace here")
    except BaseException:
        os.close(end)
        raise
    return end


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0
