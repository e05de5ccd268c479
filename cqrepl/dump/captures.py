"""The documents in a capture: its TCP connections that carry documents, all in time order.

Theory of operation. Packets go to their connection, found by its two ends; a connection that begins
anew between the same ends is another one. Each direction is put together (`reassembly`) and cut
into documents (`streams`). Whether a connection carries documents is decided by the first bytes of
either direction; until then they are kept. A document is given when its last byte has come, so the
documents of all connections stand in the order in which they were complete.

Where bytes are missing or are no documents, one direction ends with a remark; its opposite goes on.
"""

from collections.abc import Iterator
from typing import Final

from cqrepl.dump.conversation import ConversationRouter
from cqrepl.dump.documentreader import Document, Readable
from cqrepl.dump.entries import Entry, Passage, Remark
from cqrepl.dump.pcap import Packet, read_packets
from cqrepl.dump.reassembly import HalfStream
from cqrepl.dump.segments import SYN, Segment, parse_segment
from cqrepl.dump.streams import StreamFeed, starts_stream
from wire.errors import WireError

CONNECTIONS_MAX: Final = 1 << 12  # followed at the same time
_UNDECIDED_MAX_BYTES: Final = 11 << 20
_End = tuple[str, int]


def read_capture(file: Readable) -> Iterator[Entry | Remark]:
    """The documents in a capture file, and remarks where something is missing.

    Raises:
        WireError: the file is no capture, or damaged; after everything before the damage.
    """
    capture = Capture()
    damage: WireError | None = None
    try:
        for packet in read_packets(file):
            yield from capture.add(packet)
    except WireError as error:
        damage = error
    yield from capture.end()
    if damage is not None:
        raise damage


class Capture:
    """Takes packets in the order of a capture."""

    def __init__(self) -> None:
        self._connections: dict[frozenset[_End], CapturedConnection] = {}
        self._count = 0
        self._framed = 0
        self._unframed = 0

    def add(self, packet: Packet) -> Iterator[Entry | Remark]:
        """The entries and remarks that this packet completes."""
        segment = parse_segment(packet.link, packet.data)
        if segment is None:
            return
        ends = frozenset((segment.source, segment.target))
        connection = self._connections.get(ends)
        if connection is None or connection.is_replaced_by(segment):
            yield from self._close(ends)
            if len(self._connections) >= CONNECTIONS_MAX:
                yield from self._close(next(iter(self._connections)))
            self._count += 1
            connection = CapturedConnection(self._count, segment.source, segment.target)
            self._connections[ends] = connection
        yield from connection.add(segment, packet.time_ns, packet.number)

    def end(self) -> Iterator[Entry | Remark]:
        """The entries and remarks that are left at the end of the capture."""
        for ends in list(self._connections):
            yield from self._close(ends)
        if self._unframed:
            were = "connection was" if self._unframed == 1 else "connections were"
            text = f"{self._unframed} {were} left out: no documents in them"
            yield Remark(text=text, is_damage=False)
        if not self._framed:
            text = "a connection that carries documents was expected, none came"
            yield Remark(text=text, is_damage=True)

    def _close(self, ends: frozenset[_End]) -> Iterator[Entry | Remark]:
        connection = self._connections.pop(ends, None)
        if connection is None:
            return
        yield from connection.end()
        self._framed += connection.is_framed is True
        self._unframed += connection.is_framed is not True and connection.has_bytes


class CapturedConnection:
    """Both directions of one connection; 0 is the one in which the first packet was sent."""

    def __init__(self, number: int, first: _End, second: _End) -> None:
        self.is_framed: bool | None = None
        self._number = number
        self._ends = first, second
        self._names = shown_end(first), shown_end(second)
        self._halves = HalfStream(), HalfStream()
        self._feeds = StreamFeed(), StreamFeed()
        self._has_stopped = [False, False]
        self._early: list[tuple[int, bytes, int, int]] = []  # until it is decided
        self._early_bytes = [bytearray(), bytearray()]
        self._starts: list[bool | None] = [None, None]
        self._router = ConversationRouter()

    @property
    def has_bytes(self) -> bool:
        """True when something was said."""
        return any(half.given for half in self._halves)

    def is_replaced_by(self, segment: Segment) -> bool:
        """True when this segment begins another connection between the same ends."""
        half = self._halves[self._ends.index(segment.source)]
        if not segment.flags & SYN or not half.has_begun:
            return False
        return not half.is_start((segment.sequence + 1) % (1 << 32))

    def add(self, segment: Segment, time_ns: int, packet: int) -> Iterator[Entry | Remark]:
        """The entries and remarks that this segment completes."""
        direction = self._ends.index(segment.source)
        half = self._halves[direction]
        sequence = segment.sequence
        if segment.flags & SYN:
            sequence += 1
            if not half.has_begun:
                half.begin(sequence)
        if self._has_stopped[direction] or self.is_framed is False:
            return
        yield from self.add_bytes(direction, half.add(sequence, segment.payload), time_ns, packet)
        if half.waits_too_long:
            yield from self._stop(direction)

    def add_bytes(
        self, direction: int, data: bytes, time_ns: int, packet: int
    ) -> Iterator[Entry | Remark]:
        """The entries and remarks that these bytes, the next of a direction, complete."""
        if not data or self._has_stopped[direction] or self.is_framed is False:
            return
        if self.is_framed is None:
            self._early.append((direction, data, time_ns, packet))
            self._early_bytes[direction] += data
            yield from self._decide(direction)
            return
        yield from self._feed(direction, data, time_ns, packet)

    def end(self) -> Iterator[Entry | Remark]:
        """The entries and remarks that are left at the end; a remark says what is missing."""
        if self.is_framed:
            for direction in (0, 1):
                if not self._has_stopped[direction]:
                    yield from self._stop(direction)

    def _decide(self, direction: int) -> Iterator[Entry | Remark]:
        """Looks whether the connection carries documents, as soon as that can be told."""
        if self._starts[direction] is None:
            self._starts[direction] = starts_stream(self._early_bytes[direction])
        is_long = sum(map(len, self._early_bytes)) > _UNDECIDED_MAX_BYTES
        if True in self._starts:
            self.is_framed = True
        elif is_long or self._starts == [False, False]:
            self.is_framed = False
        if self.is_framed is None:
            return
        early, self._early = self._early, []
        self._early_bytes = [bytearray(), bytearray()]
        if self.is_framed:
            yield from self._refuse_others()
            for each in early:
                yield from self._feed(*each)

    def _refuse_others(self) -> Iterator[Remark]:
        """Stops a direction of a framed connection that begins with something else."""
        for direction in (0, 1):
            if self._starts[direction] is False:
                self._has_stopped[direction] = True
                yield self._damage(direction, "documents were expected, other bytes came", 0)

    def _feed(
        self, direction: int, data: bytes, time_ns: int, packet: int
    ) -> Iterator[Entry | Remark]:
        if self._has_stopped[direction]:
            return
        sender, receiver = self._names[direction], self._names[1 - direction]
        passage = Passage(
            connection=self._number,
            sender=sender,
            receiver=receiver,
            time_ns=time_ns,
            packet=packet,
        )
        try:
            for document in self._feeds[direction].feed(data):
                yield self._entry(direction, document, passage)
        except WireError as error:
            self._has_stopped[direction] = True
            yield self._damage(direction, error.reason, error.position or 0)

    def _entry(self, direction: int, document: Document, passage: Passage) -> Entry:
        said = self._router.read(direction, document, passage.time_ns)
        return Entry(document=document, passage=passage, said=said)

    def _stop(self, direction: int) -> Iterator[Remark]:
        """Ends a direction and tells what is missing in it."""
        self._has_stopped[direction] = True
        missing = self._halves[direction].missing
        feed = self._feeds[direction]
        if missing is not None:
            at, count = missing
            yield self._damage(direction, f"{count} bytes are missing in the capture", at)
        elif feed.cut_off is not None:
            yield self._damage(direction, feed.cut_off, feed.position)

    def _damage(self, direction: int, reason: str, position: int) -> Remark:
        way = f"{self._names[direction]} > {self._names[1 - direction]}"
        text = f"connection {self._number}, {way}: {reason} at position {position}"
        return Remark(text=text, is_damage=True)


def shown_end(end: _End) -> str:
    """An address and port as people write them."""
    host, port = end
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
