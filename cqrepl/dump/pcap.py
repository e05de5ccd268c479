"""Capture files, pcap and pcapng: packets with their time and their kind of link.

Theory of operation. Both formats are runs of blocks behind a header that tells the byte order; they
are read forward, one packet at a time. A capture that ends within a packet is damaged there: all
before it was given.

    pcap      magic, version, zone, accuracy, greatest length, kind of link;  then for each packet
              seconds, micro- or nanoseconds, bytes that are here, bytes that there were, the bytes
    pcapng    blocks: type, length, content, length again. A section header starts everything anew,
              an interface has a kind of link and a resolution of time, packets name an interface

Source: the descriptions of the formats by the tcpdump group and the IETF draft
`draft-ietf-opsawg-pcapng`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cqrepl.dump.documentreader import Readable
from wire.errors import WireError

MAGIC_BYTES: Final = 4
PACKET_MAX: Final = 1 << 20  # far above any packet; a longer one means a damaged file
_BLOCK_MAX: Final = 1 << 24
_NANOS: Final = 1_000_000_000
# magic of pcap, as bytes: byte order and fractions of a second
_PCAP: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1_000_000),
    b"\xa1\xb2\xc3\xd4": (">", 1_000_000),
    b"\x4d\x3c\xb2\xa1": ("<", _NANOS),
    b"\xa1\xb2\x3c\x4d": (">", _NANOS),
}
_SECTION: Final = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDERS: Final = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 1, 2, 3, 6
_OPTION_RESOLUTION, _OPTION_OFFSET = 9, 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One captured packet; `number` counts from 1, as Wireshark does."""

    number: int
    time_ns: int
    link: int
    data: bytes


def is_capture(magic: bytes) -> bool:
    """True when a file that begins with these bytes is a capture."""
    return magic in _PCAP or magic == _SECTION


def read_packets(file: Readable) -> Iterator[Packet]:
    """The packets of a capture file.

    Raises:
        WireError: no capture, or a damaged one; after every packet before the damage.
    """
    source = _Source(file)
    magic = source.read(MAGIC_BYTES, "a capture")
    if magic in _PCAP:
        order, fractions = _PCAP[magic]
        yield from _read_pcap(source, order, fractions)
    elif magic == _SECTION:
        yield from _read_pcapng(source)
    else:
        raise WireError(f"a pcap or pcapng capture was expected, magic {magic.hex()} came", 0)


class _Source:
    """Reads exactly, and knows where it is."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self.position = 0

    def read(self, count: int, what: str) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            reason = f"{what} of {count} more bytes was expected, {len(data)} came"
            raise WireError(reason, self.position)
        self.position += count
        return data

    def read_or_end(self, count: int, what: str) -> bytes | None:
        """As `read`; None where the file ends before the first byte."""
        first = self._file.read(1)
        if not first:
            return None
        self.position += 1
        return first + self.read(count - 1, what)


def _read_pcap(source: _Source, order: str, fractions: int) -> Iterator[Packet]:
    *_, link = struct.unpack(f"{order}HHiIII", source.read(20, "a header"))
    number = 0
    while (head := source.read_or_end(16, "a packet header")) is not None:
        seconds, fraction, here, _ = struct.unpack(f"{order}IIII", head)
        if here > PACKET_MAX:
            reason = f"a packet of at most {PACKET_MAX} bytes was expected, one of {here} came"
            raise WireError(reason, source.position - 16)
        number += 1
        time_ns = seconds * _NANOS + fraction * (_NANOS // fractions)
        data = source.read(here, "a packet")
        # the upper bits tell of check sequences, which stand behind what is looked at
        yield Packet(number=number, time_ns=time_ns, link=link & 0xFFFF, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interface:
    link: int
    kept_max: int
    units: int  # of time in a second
    offset_s: int

    def time_ns(self, high: int, low: int) -> int:
        return (high << 32 | low) * _NANOS // self.units + self.offset_s * _NANOS


def _read_pcapng(source: _Source) -> Iterator[Packet]:
    order, interfaces, number = "<", list[_Interface](), 0
    kind_raw: bytes | None = _SECTION
    while kind_raw is not None:
        start = source.position - 4
        length_raw = source.read(4, "a block")
        if kind_raw == _SECTION:
            order_raw = source.read(4, "a section header")
            if order_raw not in _BYTE_ORDERS:
                reason = f"a section's byte order was expected, {order_raw.hex()} came"
                raise WireError(reason, start)
            order, interfaces = _BYTE_ORDERS[order_raw], []
        content = _content(source, order, length_raw, start)
        (kind,) = struct.unpack(f"{order}I", kind_raw)
        try:
            if kind_raw == _SECTION:
                pass
            elif kind == _INTERFACE:
                interfaces.append(_interface(content, order))
            elif kind in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
                number += 1
                yield _packet(content, order, interfaces, kind, number)
        except (struct.error, IndexError) as error:
            raise WireError(f"a block of type {kind} was expected, other bytes came", start) from (
                error
            )
        kind_raw = source.read_or_end(4, "a block")


def _content(source: _Source, order: str, length_raw: bytes, start: int) -> bytes:
    """The rest of a block, but for the length at its end."""
    (length,) = struct.unpack(f"{order}I", length_raw)
    left = start + length - 4 - source.position
    if length % 4 or left < 0 or length > _BLOCK_MAX:
        raise WireError(f"the length of a block was expected, {length} came", start)
    content = source.read(left, "a block")
    if source.read(4, "a block") != length_raw:
        raise WireError(f"the length {length} at the end of a block was expected", start)
    return content


def _interface(content: bytes, order: str) -> _Interface:
    link, _, kept_max = struct.unpack_from(f"{order}HHI", content)
    units, offset_s, at = 1_000_000, 0, 8
    while at + 4 <= len(content):
        option, length = struct.unpack_from(f"{order}HH", content, at)
        if option == _OPTION_RESOLUTION and length == 1:
            value = content[at + 4]
            units = 1 << (value & 0x7F) if value & 0x80 else 10**value
        elif option == _OPTION_OFFSET and length == 8:
            (offset_s,) = struct.unpack_from(f"{order}q", content, at + 4)
        at += 4 + length + -length % 4
    return _Interface(link=link, kept_max=kept_max, units=units, offset_s=offset_s)


def _packet(
    content: bytes, order: str, interfaces: list[_Interface], kind: int, number: int
) -> Packet:
    if kind == _SIMPLE_PACKET:
        interface = interfaces[0]
        (here,) = struct.unpack_from(f"{order}I", content)
        here = min(here, interface.kept_max or here)
        return Packet(number=number, time_ns=0, link=interface.link, data=content[4 : 4 + here])
    layout = f"{order}IIIII" if kind == _PACKET else f"{order}HxxIIII"
    which, high, low, here, _ = struct.unpack_from(layout, content)
    interface, data = interfaces[which], content[20 : 20 + here]
    if len(data) < here:
        raise struct.error("a packet longer than its block")
    time_ns = interface.time_ns(high, low)
    return Packet(number=number, time_ns=time_ns, link=interface.link, data=data)
