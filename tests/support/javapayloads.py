"""The payloads that the Java command `append` writes, made again here (tools/java/README.md)."""

from collections.abc import Iterator

MASK = (1 << 64) - 1


def payload(seed: int, i: int, size: int) -> bytes:
    """Payload number `i` of a seed: SplitMix64 output, its first 8 bytes replaced by `i`."""
    state = (seed * 1000003 + i) & MASK
    out = bytearray()
    while len(out) < size:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        out += (z ^ (z >> 31)).to_bytes(8, "little")
    del out[size:]
    head = min(8, size)
    out[:head] = i.to_bytes(8, "little")[:head]
    return bytes(out)


def payloads(seed: int, count: int, size_min: int, size_max: int | None = None) -> Iterator[bytes]:
    """The payloads that `append DIR CYCLE count size_min-size_max seed` writes, in order."""
    sizes = (size_min if size_max is None else size_max) - size_min + 1
    for i in range(count):
        yield payload(seed, i, size_min + i % sizes)
