"""The kinds of binary wire, and what tells them apart when writing.

    BINARY, BINARY_LIGHT   the same bytes; what Chronicle uses on sockets and in queues
    BINARY_FIXED           numbers keep the width that their writer method names
    BINARY_NUMERIC         field names go out as numbers: their own, or Java's hash of the name
    FIELDLESS_BINARY       field names are left out; event names stay
    RAW                    no codes at all: reader and writer agree beforehand (`wire.objects.raw`)

Reading needs no variant: a reader takes any code that comes, except in RAW. Compressed and delta
wires are refused by name.
"""

from enum import Enum
from typing import Final

from wire.codes import Code
from wire.errors import WireError

UNSUPPORTED: Final = frozenset(
    {"COMPRESSED_BINARY", "DELTA_BINARY", "DEFAULT_ZERO_BINARY", "TEXT", "JSON", "YAML", "CSV"}
)
# type names under which Java writes compressed bytes
COMPRESSIONS: Final = frozenset({"lzw", "gzip", "snappy", "zstd", "lz4"})
DELTA_CODES: Final = frozenset(
    {
        Code.FIELD_ANCHOR,
        Code.ANCHOR,
        Code.UPDATED_ALIAS,
        Code.FLOAT_SET_LOW_0,
        Code.FLOAT_SET_LOW_2,
        Code.FLOAT_SET_LOW_4,
    }
)
_HASH_FACTOR: Final = 31
_INT32_MASK: Final = 0xFFFFFFFF
_INT32_SIGN: Final = 0x80000000
_INT32_MAX: Final = 0x7FFFFFFF
_INT32_DIGITS: Final = 10


class Variant(Enum):
    """A kind of binary wire."""

    BINARY_LIGHT = "BINARY_LIGHT"
    BINARY = "BINARY"
    BINARY_FIXED = "BINARY_FIXED"
    BINARY_NUMERIC = "BINARY_NUMERIC"
    FIELDLESS_BINARY = "FIELDLESS_BINARY"
    RAW = "RAW"

    @classmethod
    def named(cls, name: str) -> "Variant":
        """The variant of this name.

        >>> Variant.named("DELTA_BINARY")
        Traceback (most recent call last):
        ...
        wire.errors.WireError: wire type DELTA_BINARY is not supported
        """
        found = cls.__members__.get(name)
        if found is None:
            known = "is not supported" if name in UNSUPPORTED else "is not known"
            raise WireError(f"wire type {name} {known}")
        return found


def name_code(name: str) -> int:
    """Java's hash of a name: what a numeric wire writes for it.

    >>> name_code("a"), name_code("dt")
    (97, 3216)
    """
    code = 0
    units = name.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (code * _HASH_FACTOR + (units[at] | units[at + 1] << 8)) & _INT32_MASK
    return code - 2 * (code & _INT32_SIGN)


def name_number(name: str) -> int | None:
    """The number that a name spells; None where it is no decimal number of 32 bits.

    >>> name_number("007"), name_number("1a"), name_number("2147483648")
    (7, None, None)
    """
    if not (name.isascii() and name.isdecimal()):
        return None
    digits = name.lstrip("0")
    if len(digits) > _INT32_DIGITS or int(digits or "0") > _INT32_MAX:
        return None
    return int(digits or "0")


def unsupported_code(code: int, position: int) -> WireError:
    """The error for a code that no plain reader takes."""
    if code in DELTA_CODES:
        return WireError(
            f"delta wire is not supported, code 0x{code:02X} ({Code(code).name}) came", position
        )
    return WireError(f"a value was expected, code 0x{code:02X} came", position)
