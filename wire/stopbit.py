"""Variable-length integers: 7 bits a byte, least significant group first, top bit set when more
follows.

A negative number n is stored as its complement ~n with the top bit set on every group, closed by
one zero byte. So there is no over-long form of a positive number: `85 00` is -6.
"""

from wire.errors import WireError

_LONGEST_POSITIVE = 9  # groups of 7 bits that a 63-bit number needs
_LONGEST = 10


def encode(value: int) -> bytes:
    """The stop-bit form of a 64-bit signed integer."""
    assert -(1 << 63) <= value < 1 << 63
    negative = value < 0
    rest = ~value if negative else value
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    if negative:
        out.append(rest | 0x80)
        out.append(0)
    else:
        out.append(rest)
    return bytes(out)


def decode(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """The number at `position` and the position behind it; reads nothing at or past `end`.

    Raises:
        WireError: the number runs past `end` or does not fit 64 bits.
    """
    value = 0
    for group in range(_LONGEST):
        at = position + group
        if at >= end:
            raise WireError("stop-bit number runs past the end of its block", position)
        byte = data[at]
        if byte & 0x80:
            value |= (byte & 0x7F) << (7 * group)
            continue
        if byte == 0 and group:
            value = ~value
        elif group >= _LONGEST_POSITIVE:
            break
        else:
            value |= byte << (7 * group)
        return value, at + 1  # at most 9 groups of 7 bits, so it fits
    raise WireError("stop-bit number does not fit 64 bits", position)
