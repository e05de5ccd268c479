"""Hypothesis strategies for what goes over the wire and into queue files."""

import random
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st

# for properties that cost little; construct is slow now and then, so that no example has a deadline
THOROUGH = settings(max_examples=250, deadline=None)
INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
# where the width of a number, of a length or of a code changes, and one to each side
_EDGES = sorted(
    {
        sign * edge + step
        for edge in (0, *(1 << bits for bits in (5, 7, 8, 14, 15, 16, 24, 31, 32, 40, 53, 62)))
        for sign in (1, -1)
        for step in (-1, 0, 1)
    }
    | {INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX, 0x451600000000, 0x451600000001}
)
_LENGTH_EDGES = (0, 1, 2, 3, 4, 5, 31, 32, 254, 255, 256, 257, 65535, 65536, 65537)

int64s = st.sampled_from(_EDGES) | st.integers(INT64_MIN, INT64_MAX)
# unpaired surrogates too: they survive in Java's encoding
characters = st.characters() | st.characters(categories=["Cs"]) | st.sampled_from("\0é€\U0001f600")
short_texts = st.text(characters, max_size=40)
texts = short_texts | st.builds(lambda text, times: text * times, short_texts, st.just(9))
names = st.text(st.characters(max_codepoint=255), max_size=40)


def is_text(text: str) -> bool:
    """True unless two surrogates side by side would be read as the one character they make."""
    units = text.encode("utf-16", "surrogatepass")
    return units.decode("utf-16", "surrogatepass") == text


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """The bytes of an excerpt; now and then a length at which a code or a width changes."""
    if draw(st.integers(0, 3)):
        return draw(st.binary(max_size=40))
    length = draw(st.sampled_from(_LENGTH_EDGES))
    return random.Random(draw(st.integers(0, 9))).randbytes(length)


runs = st.lists(payloads(), min_size=1, max_size=12)


@st.composite
def splits(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in pieces, some of them empty."""
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=20).map(sorted))
    return [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]


def corrupted(data: bytes, at: int, value: int) -> bytes:
    """The same bytes but for one."""
    return data[:at] + bytes([value]) + data[at + 1 :]


# Bytes that look like items more often than not: every code with an operand that fits it, most of
# the time, then bytes as they come.
_OPERAND_BYTES = {
    **dict.fromkeys((0x80, 0x81, 0x82, 0x8E), 4),
    **dict.fromkeys((0x90, 0xA3, 0xA6), 4),
    **dict.fromkeys((0x91, 0xA7, 0xAF), 8),
    **dict.fromkeys((0xA1, 0xA4, 0xA8), 1),
    **dict.fromkeys((0xA2, 0xA5, 0xA9), 2),
    0xA0: 16,
    0x8D: 24,
}
_counted = st.binary(max_size=6).map(lambda data: bytes([len(data)]) + data)


@st.composite
def _items(draw: st.DrawFn) -> bytes:
    code = draw(st.sampled_from([0x8F, *range(0x80, 0x84), 0x8D, 0x8E, *range(0x90, 0x100)]))
    if code in (0x80, 0x81, 0x82, 0x8E):
        width = {0x80: 1, 0x81: 2}.get(code, 4)
        content = draw(st.binary(max_size=5))
        return bytes([code]) + len(content).to_bytes(width, "little") + content
    if code == 0x8D:
        longs = draw(st.lists(int64s, max_size=2))
        head = len(longs).to_bytes(8, "little") + bytes(8)
        return bytes([code]) + head + b"".join(n.to_bytes(8, "little", signed=True) for n in longs)
    if 0xB2 <= code <= 0xBE:
        return bytes([code]) + draw(_counted | st.sampled_from((b"\x80\0", b"\x81\0")))
    length = code & 0x1F if code >= 0xC0 else _OPERAND_BYTES.get(code, 0)
    return bytes([code]) + draw(st.binary(min_size=length, max_size=length))


_field_names = st.sampled_from((b"\xc1a", b"\xc0", b"\xb9\x01b", b"\xb7\x01c", b"\xba\x05"))
_fields = st.builds(lambda name, item: name + item, _field_names, _items())
item_bytes = st.lists(_items() | _fields, max_size=6).map(b"".join)
garbage = st.one_of(
    st.binary(max_size=30),
    item_bytes,
    st.builds(lambda data, cut: data[:cut], item_bytes, st.integers(0, 20)),
    st.lists(_fields | _fields | st.binary(max_size=2), max_size=5).map(b"".join),
)
