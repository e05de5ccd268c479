"""A network between hosts in one thread, behind trio's own socket factory.

Theory of operation. Each end of a connection is one end of a pair of real sockets, so that all that
works on descriptors works here too; between the two pairs a task for each way carries the bytes.
`Weather` on that way delays, splits, stalls and swallows them, and a link can be cut.

Hosts have the addresses `10.0.0.<id>`. Which host a socket belongs to is known from the
surroundings in which it is made.
"""

import errno
import os
import random
import socket
from collections.abc import Callable
from typing import Any, Final

import trio

from cqrepl.dump.recording import PIECE_MAX
from cqrepl.surroundings import Surroundings, surroundings
from cqrepl.testing.labmachine import Process
from cqrepl.testing.story import Story

DELAY_SECONDS: Final = (0.0002, 0.003)  # of a way in good weather
BUFFERS_BYTES: Final = (4096, 32_768, 212_992)  # of a socket: what a peer that stalls is sent
_PORT_FIRST: Final = 49_152


def address_of(host: int) -> str:
    """The address at which a host listens, and from which it dials."""
    return f"10.0.0.{host}"


class Weather:
    """The conditions under which bytes get from one host to another."""

    def __init__(self) -> None:
        self.delay_s = DELAY_SECONDS
        self.is_splitting = False  # bytes come in small pieces
        self.is_swallowing = False  # bytes do not come, and neither host is told
        self._clear = trio.Event()
        self._clear.set()

    def stall(self) -> None:
        """Nothing comes through until `clear`; what was sent is kept."""
        if self._clear.is_set():
            self._clear = trio.Event()

    def clear(self) -> None:
        """All is well again."""
        self.delay_s, self.is_splitting, self.is_swallowing = DELAY_SECONDS, False, False
        self._clear.set()

    @property
    def is_good(self) -> bool:
        """True while bytes come soon, as far as is known."""
        is_moving = not self.is_stalled and not self.is_swallowing
        return is_moving and self.delay_s == DELAY_SECONDS

    @property
    def is_stalled(self) -> bool:
        return not self._clear.is_set()

    async def wait_clear(self) -> None:
        await self._clear.wait()


class Link:
    """One connection."""

    def __init__(
        self, number: int, dialler: "LabSocket", listener: "LabSocket", buffer_bytes: int
    ) -> None:
        self.number = number
        self.hosts = (dialler.host, listener.host)
        self.ends = (dialler, listener)
        self.inner: list[Any] = []  # the ends of the network
        for end in self.ends:
            near, far = socket.socketpair()
            for each in (near, far):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
            end.attach(trio.socket.from_stdlib_socket(near), self)
            self.inner.append(trio.socket.from_stdlib_socket(far))
        self.is_cut = False
        self.left: list[int | None] = [None, None]  # bytes that each way carries until a cut

    def let_through(self, way: int, data: bytes) -> tuple[bytes, bool]:
        """The part of some bytes that comes through, and whether the link is to be cut then."""
        left = self.left[way]
        if left is None:
            return data, False
        self.left[way] = max(0, left - len(data))
        return data[:left], len(data) > left

    def cut(self) -> None:
        """Both ends find the connection broken at once."""
        self.is_cut = True
        for each in self.inner:
            each.close()


class Network(trio.abc.SocketFactory):
    """All links there are, and the weather on them."""

    def __init__(self, nursery: trio.Nursery, rng: random.Random, story: Story) -> None:
        self._nursery = nursery
        self._rng = rng
        self._story = story
        self._weather: dict[tuple[int, int], Weather] = {}
        self._listeners: dict[tuple[str, int], LabSocket] = {}
        self._awaited: dict[tuple[int, int], int] = {}  # of links to come: bytes until a cut
        self._ports = _PORT_FIRST
        self._count = 0
        self.links: list[Link] = []
        self._all: list[Link] = []

    def close(self) -> None:
        """Nothing is open afterwards, neither here nor at any host."""
        for link in self._all:
            link.cut()
            for end in link.ends:
                end.close()

    @property
    def made(self) -> int:
        """The number of links that there were so far."""
        return self._count

    def socket(self, family: int = 0, type: int = 0, proto: int = 0) -> "LabSocket":
        here = surroundings()
        assert isinstance(here, Process), "sockets are made by hosts of the laboratory"
        return LabSocket(self, here)

    def has_met(self, process: Surroundings, host: int) -> bool:
        """True when there was a connection between this process and a host."""
        return any(
            end.process is process and host in link.hosts for link in self._all for end in link.ends
        )

    def weather(self, source: int, target: int) -> Weather:
        """On the way from one host to another."""
        return self._weather.setdefault((source, target), Weather())

    def cut(self, chosen: Callable[[Link], bool]) -> int:
        """Cuts links; how many."""
        links = [link for link in self.links if chosen(link) and not link.is_cut]
        for link in links:
            link.cut()
        self.links = [link for link in self.links if not link.is_cut]
        return len(links)

    def cut_after(self, count: int, source: int, target: int) -> None:
        """Cuts what is between two hosts once so many bytes more have come from one to the other,
        wherever in a document that is; or the next connection of theirs, where there is none."""
        links = [link for link in self.links if set(link.hosts) == {source, target}]
        for link in links:
            link.left[link.hosts.index(source)] = count
        if not links:
            self._awaited[source, target] = count

    def process_died(self, process: Surroundings) -> None:
        """No socket of it is there any more."""
        self.cut(lambda link: any(end.process is process for end in link.ends))
        for place, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[place]

    def listen(self, place: tuple[str, int], listener: "LabSocket") -> None:
        if place in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._listeners[place] = listener

    def forget(self, listener: "LabSocket") -> None:
        """A listener is closed."""
        self._listeners = {
            place: each for place, each in self._listeners.items() if each is not listener
        }

    async def connect(self, dialler: "LabSocket", place: tuple[str, int]) -> None:
        target = int(place[0].rpartition(".")[2])
        await self._travel(dialler.host, target)
        listener = self._listeners.get(place)
        await self._travel(target, dialler.host)
        if listener is None or listener.is_closed:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._ports += 1
        accepted = LabSocket(self, listener.process)
        accepted.name, accepted.peer = place, (address_of(dialler.host), self._ports)
        dialler.name, dialler.peer = accepted.peer, place
        self._count += 1
        link = Link(self._count, dialler, accepted, self._rng.choice(BUFFERS_BYTES))
        for way, (source, end) in enumerate((link.hosts, link.hosts[::-1])):
            link.left[way] = self._awaited.pop((source, end), None)
        self.links.append(link)
        self._all.append(link)
        listener.came.send_nowait(accepted)
        for way in (0, 1):
            self._nursery.start_soon(self._carry, link, way)

    async def _travel(self, source: int, target: int) -> None:
        weather = self.weather(source, target)
        await weather.wait_clear()
        if weather.is_swallowing:
            await trio.sleep_forever()  # the dialler gives up
        await trio.sleep(self._rng.uniform(*weather.delay_s))

    async def _carry(self, link: Link, way: int) -> None:
        weather = self.weather(link.hosts[way], link.hosts[1 - way])
        near, far = link.inner[way], link.inner[1 - way]
        ends = (link.ends[0].name, link.ends[1].name)
        has_hole = False
        try:
            while True:
                data = await near.recv(PIECE_MAX)
                await trio.sleep(self._rng.uniform(*weather.delay_s))
                if weather.is_stalled:
                    await weather.wait_clear()
                if weather.is_swallowing or has_hole:
                    has_hole = True  # what comes later comes never: bytes keep their order
                    if not data:
                        return
                    continue
                if not data:
                    far.shutdown(socket.SHUT_WR)
                    self._story.carry(link.number, ends, way, b"")
                    return
                for piece in self._pieces(data, weather):
                    goes, is_last = link.let_through(way, piece)
                    self._story.carry(link.number, ends, way, goes)
                    view = memoryview(goes)
                    while view:
                        view = view[await far.send(view) :]
                    if is_last:
                        self.cut(lambda each: each is link)
                        return
        except (OSError, trio.ClosedResourceError):
            # one end is gone, and so is the connection
            self.cut(lambda each: each is link)

    def _pieces(self, data: bytes, weather: Weather) -> list[bytes]:
        if not weather.is_splitting:
            return [data]
        pieces, at = [], 0
        while at < len(data):
            end = at + self._rng.choice((1, 2, 3, 5, 8, 21, 100, 5000))
            pieces.append(data[at:end])
            at = end
        return pieces


class LabSocket(trio.socket.SocketType):
    """A socket of a host in the laboratory, as trio has them."""

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, 0

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__()
        self.process = process
        self.host = process.machine.host
        self.is_closed = False
        self.name: tuple[str, int] = ("", 0)
        self.peer: tuple[str, int] | None = None
        self.came, self._coming = trio.open_memory_channel[LabSocket](1000)
        self._network = network
        self._inner: Any = None
        self._link: Link | None = None

    def attach(self, inner: Any, link: Link) -> None:
        """This is an end of a link now."""
        self._inner, self._link = inner, link

    # ---- as trio calls them ----------------------------------------------------------------------

    async def bind(self, address: Any) -> None:
        self.name = (address_of(self.host), address[1] or 7000)

    def listen(self, backlog: int = 0) -> None:
        self._network.listen(self.name, self)

    async def accept(self) -> "tuple[LabSocket, Any]":
        accepted = await self._coming.receive()
        return accepted, accepted.peer

    async def connect(self, address: Any) -> None:
        await self._network.connect(self, (address[0], address[1]))

    async def recv(self, bufsize: int, flags: int = 0) -> bytes:
        data = await self._inner.recv(bufsize, flags)
        self._check(data)
        return bytes(data)

    async def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        count = await self._inner.recv_into(buffer, nbytes, flags)
        self._check(count)
        return int(count)

    async def send(self, bytes: Any, flags: int = 0) -> int:
        return int(await self._inner.send(bytes, flags))

    def _check(self, came: Any) -> None:
        if not came and self._link is not None and self._link.is_cut:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    def shutdown(self, flag: int) -> None:
        self._inner.shutdown(flag)

    @property
    def did_shutdown_SHUT_WR(self) -> bool:
        return bool(self._inner.did_shutdown_SHUT_WR)

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._network.forget(self)
        self.came.close()
        if self._inner is not None:
            self._inner.close()

    def fileno(self) -> int:
        return -1 if self._inner is None else int(self._inner.fileno())

    def setsockopt(self, *arguments: Any) -> None:
        """Nothing here has options."""

    def getsockopt(self, level: int, option: int, buffersize: int | None = None) -> Any:
        return 1

    def getsockname(self) -> Any:
        return self.name

    def getpeername(self) -> Any:
        if self.peer is None or self.is_closed:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self.peer

    def __enter__(self) -> "LabSocket":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
