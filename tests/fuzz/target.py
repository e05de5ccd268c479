"""The form of a fuzzing target, and the ways to cut its bytes into parts."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

# mutations keep parts between separators whole, while a length in front of a part is soon wrong
SEPARATOR: Final = b"\xf5\xf6"
Run = Callable[[bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function that fails on a defect and on nothing else.

    Args:
        seeds: inputs to start from, made when they are needed.
        tokens: byte strings that mutations should try to insert.
        length_max: longest input in bytes.
    """

    run: Run
    seeds: Callable[[], Iterable[bytes]]
    tokens: tuple[bytes, ...] = ()
    length_max: int = 2048


@contextmanager
def only(*announced: type[Exception]) -> Iterator[None]:
    """Takes these errors for an answer, if they give a reason; all else goes through."""
    try:
        yield
    except announced as error:
        if not str(error):
            raise AssertionError(f"{type(error).__name__} without a reason") from error


def parts_of(data: bytes) -> list[bytes]:
    return data.split(SEPARATOR)


def joined(parts: Iterable[bytes]) -> bytes:
    """The input whose parts these are, as far as none holds the separator."""
    return SEPARATOR.join(parts)


def framed(data: bytes) -> bytes:
    """A stream of documents with right lengths: in each part a byte that says which kind, then the
    body."""
    out = bytearray()
    for part in parts_of(data):
        kind, body = part[:1], part[1:]
        is_metadata = bool(kind) and bool(kind[0] & 1)
        if body or is_metadata:
            out += (len(body) | is_metadata << 30).to_bytes(4, "little") + body
    return bytes(out)


def unframed(stream: bytes) -> bytes:
    """The input from which `framed` makes this run of complete documents."""
    parts: list[bytes] = []
    at = 0
    while at + 4 <= len(stream):
        word = int.from_bytes(stream[at : at + 4], "little")
        end = at + 4 + (word & 0x3FFFFFFF)
        parts.append(bytes([word >> 30 & 1]) + stream[at + 4 : end])
        at = end
    return joined(parts)


def pieces(data: bytes, cuts: bytes) -> Iterator[bytes]:
    at, turn = 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)] if cuts else len(data)
        turn += 1
        if size == 0 and turn % 8 == 0:
            size = 1  # cuts of nothing but 0 would never end
        yield data[at : at + size]
        at += size
