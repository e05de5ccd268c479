"""Hypothesis strategies for what goes over the wire and into queue files."""

import random
from itertools import pairwise

from hypothesis import strategies as st

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
