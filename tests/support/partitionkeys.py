"""Keys whose partition each place that reckons it has to give alike."""

import random
from typing import Final

COUNT: Final = 10_000
_LETTERS: Final = "abcz09 .-_äß€中😀🜁"
_EDGES: Final = [
    sign * ((1 << bits) + more)
    for bits in (0, 7, 8, 15, 16, 31, 32, 62)
    for more in (-1, 0, 1)
    for sign in (1, -1)
]


def whole_numbers() -> list[int]:
    rng = random.Random(1)
    drawn = [rng.randint(-(1 << 63), (1 << 63) - 1) >> rng.randint(0, 63) for _ in range(COUNT)]
    return [*_EDGES, -(1 << 63), (1 << 63) - 1, *drawn][:COUNT]


def texts() -> list[str]:
    rng = random.Random(2)
    edges = ["a" * size for size in (0, 1, 31, 32, 127, 128, 16_383, 16_384)]
    drawn = ["".join(rng.choices(_LETTERS, k=_size(rng, nth))) for nth in range(COUNT)]
    return [*edges, *drawn][:COUNT]


def byte_keys() -> list[bytes]:
    rng = random.Random(3)
    edges = [bytes(size) for size in (0, 1, 254, 255, 65_534, 65_535)]
    return [*edges, *(rng.randbytes(_size(rng, nth)) for nth in range(COUNT))][:COUNT]


def _size(rng: random.Random, nth: int) -> int:
    return rng.randint(0, 24 if nth % 50 else 300)
