"""TCP segments in captured packets: link, IP version 4 or 6, TCP.

Theory of operation. Each layer is stepped over by its own header; a packet that is not TCP over IP
gives nothing. Lengths come from the IP header, since a short frame is filled up on some links; a
length of 0 says that the network card cut the packet later. Fragments cannot be put together: the
first one is taken for what it holds, so the rest shows as missing.
"""

import ipaddress
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_TCP: Final = 6
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLANS: Final = frozenset({0x8100, 0x88A8, 0x9100})
# kinds of link: how many bytes stand before the IP header, where the type of the content is
_NULL, _ETHERNET, _LOOP, _COOKED, _COOKED2 = 0, 1, 108, 113, 276
_RAW: Final = frozenset({12, 14, 101, 228, 229})
LINK_RAW: Final = 101
# extension headers of IPv6 that have a length in units of 8 bytes
_EXTENSIONS: Final = frozenset({0, 43, 60, 135})
_FRAGMENT: Final = 44
FIN, SYN, RST = 1, 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One TCP segment; `wanted` is the length of its payload on the network."""

    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    flags: int
    payload: bytes
    wanted: int


def parse_segment(link: int, data: bytes) -> Segment | None:
    """The TCP segment in a packet; None when there is none."""
    try:
        start = _ip_start(link, data)
        if start is None or start >= len(data):
            return None
        version = data[start] >> 4
        if version == 4:
            return _parse_v4(data, start)
        return _parse_v6(data, start) if version == 6 else None
    except (struct.error, IndexError):
        return None  # cut off within a header


def _ip_start(link: int, data: bytes) -> int | None:
    if link in _RAW:
        return 0
    if link in (_NULL, _LOOP):
        return 4
    if link == _ETHERNET:
        at = 12
        while _u16(data, at) in _VLANS:
            at += 4
        return at + 2 if _u16(data, at) in (_IPV4, _IPV6) else None
    if link == _COOKED:
        return 16 if _u16(data, 14) in (_IPV4, _IPV6) else None
    if link == _COOKED2:
        return 20 if _u16(data, 0) in (_IPV4, _IPV6) else None
    return None


def _parse_v4(data: bytes, start: int) -> Segment | None:
    head = (data[start] & 0x0F) * 4
    length = _u16(data, start + 2) or len(data) - start
    if data[start + 9] != _TCP or _u16(data, start + 6) & 0x1FFF:
        return None
    source, target = data[start + 12 : start + 16], data[start + 16 : start + 20]
    return _parse_tcp(data, start + head, start + length, source, target)


def _parse_v6(data: bytes, start: int) -> Segment | None:
    length = _u16(data, start + 4)
    following, at = data[start + 6], start + 40
    end = at + length if length else len(data)
    while following in _EXTENSIONS or following == _FRAGMENT:
        if following == _FRAGMENT and _u16(data, at + 2) & 0xFFF8:
            return None
        size = 8 if following == _FRAGMENT else 8 * (data[at + 1] + 1)
        following, at = data[at], at + size
    if following != _TCP:
        return None
    return _parse_tcp(data, at, end, data[start + 8 : start + 24], data[start + 24 : start + 40])


def _parse_tcp(data: bytes, at: int, end: int, source: bytes, target: bytes) -> Segment:
    source_port, target_port, sequence = struct.unpack_from(">HHI", data, at)
    body = at + (data[at + 12] >> 4) * 4
    return Segment(
        source=(_address(source), source_port),
        target=(_address(target), target_port),
        sequence=sequence,
        flags=data[at + 13],
        payload=data[body:end],
        wanted=max(end - body, 0),
    )


def _u16(data: bytes, at: int) -> int:
    return data[at] << 8 | data[at + 1]


@lru_cache(maxsize=4096)
def _address(raw: bytes) -> str:
    return str(ipaddress.ip_address(raw))
