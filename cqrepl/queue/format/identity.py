"""The identity of a queue: 16 random bytes, the same in a queue and in all of its copies.

Two copies that share excerpts can be compared. Those that share none, or hold nothing yet, can not:
this number alone tells that they belong together. It is 32 hexadecimal digits for people and on
the wire, and two longs in the table store, neither of them zero: a long that is zero is none.
"""

from typing import Final, NewType

Identity = NewType("Identity", str)

LONG_BYTES: Final = 8
_DIGITS: Final = 4 * LONG_BYTES


def parse_identity(text: str) -> Identity:
    """The identity in a text, as it is written for people and on the wire.

    Raises:
        ValueError: the text is not 32 hexadecimal digits, or one half of them is zero.
    """
    problem = f"an identity of {_DIGITS} hexadecimal digits expected, {text[:80]!r} came"
    if len(text) != _DIGITS:
        raise ValueError(problem)
    try:
        found = identity_of(*longs_in(bytes.fromhex(text)))
    except ValueError as error:
        raise ValueError(problem) from error
    if found is None:
        raise ValueError(f"an identity without a half that is zero expected, {text!r} came")
    return found


def longs_of(identity: Identity) -> tuple[int, int]:
    """The two longs of an identity, the first half first."""
    return longs_in(bytes.fromhex(identity))


def identity_of(high: int, low: int) -> Identity | None:
    """The identity of two longs; None where one of them is zero."""
    if not high or not low:
        return None
    return Identity(b"".join(_packed(each) for each in (high, low)).hex())


def longs_in(data: bytes) -> tuple[int, int]:
    """The two longs of 16 bytes."""
    high, low = data[:LONG_BYTES], data[LONG_BYTES:]
    return int.from_bytes(high, "big", signed=True), int.from_bytes(low, "big", signed=True)


def _packed(number: int) -> bytes:
    return number.to_bytes(LONG_BYTES, "big", signed=True)
