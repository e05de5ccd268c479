"""The chain over excerpts: a hash of all that a cycle holds up to an excerpt, in order.

    chain(0)     = 0
    chain(n + 1) = XXH3_128(payload n, seed = XXH3_64(chain(n), sequence, length))

Numbers are little-endian, 8 bytes each. It guards against accidents, not against forgers. The hash
comes from a library: of the native kernel's own, or of the wheel `xxhash`; without both there are
no chains, and nothing can be proved.
"""

from __future__ import annotations

from array import array
from typing import Final

from cqrepl.kernel import choose
from cqrepl.kernel.plain import CHAIN_BYTES as CHAIN_BYTES

CHAIN_START: Final = bytes(CHAIN_BYTES)  # over nothing


def has_chains() -> bool:
    """False when there is no library for the hash."""
    return choose.KERNEL.extend_chain is not None


def extend_chain(
    data: bytes | memoryview,
    offsets: array[int],
    lengths: array[int],
    sequence: int,
    chain: bytes,
) -> bytes:
    """The chain over what `chain` is over, and these excerpts, which follow.

    Args:
        sequence: of the first of them, in its cycle.
        chain: over all excerpts of the cycle before it, 16 bytes.

    Raises:
        ValueError: an excerpt that does not lie within the data, a chain of another length.
    """
    extend = choose.KERNEL.extend_chain
    assert extend is not None, "callers ask for it first"
    return extend(data, offsets, lengths, sequence, chain)
