"""The columns by which `preload` spreads and sorts rows, as Spark computes them without Python.

The key as binary wire and its partition are what `cqrepl.routing` says. Texts and whole numbers are
told in Spark's own functions, which cost a fraction of a call of Python for each row; keys of other
types go through Python.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

import wire
from cqrepl.routing import key_bytes

WHOLE_NUMBERS: Final = ("bigint", "int", "smallint", "tinyint")
_SHORT_MAX, _LONG_TEXT = 31, "B8"
_SHORT_CODES: Final = bytes(range(0xE0, 0xE0 + _SHORT_MAX + 1))  # of a text of so many bytes
# the greatest number of each form: its code and how many bytes, the least form that holds it first
_POSITIVE: Final = (
    ((1 << 8) - 1, "A1", 1), ((1 << 15) - 1, "A5", 2), ((1 << 16) - 1, "A2", 2),
    ((1 << 31) - 1, "A6", 4), ((1 << 32) - 1, "A3", 4), ((1 << 63) - 1, "A7", 8),
)  # fmt: skip
# the least one
_NEGATIVE: Final = (
    (-(1 << 7), "A4", 1), (-(1 << 15), "A5", 2), (-(1 << 31), "A6", 4), (-(1 << 63), "A7", 8),
)  # fmt: skip
_CHARSET: Final = "CESU-8"  # UTF-8, but for characters beyond 16 bits: of each surrogate apart
_ALL_CHARSETS: Final = "spark.sql.legacy.javaCharsets"
_plans: Final = Lock()  # they have a setting of the session in common
_GROUP_BITS: Final = 7  # of a length, in each byte; the highest bit says that more follow
_GROUPS: Final = 5


def column(name: str) -> Column:
    """A column by its name, whatever signs are in it."""
    return f.col(f"`{name.replace('`', '``')}`")


@contextmanager
def java_charsets(spark: SparkSession) -> Iterator[None]:
    """Lets the plan of a query that is made in a block have all charsets of Java."""
    with _plans:
        before = spark.conf.get(_ALL_CHARSETS)
        spark.conf.set(_ALL_CHARSETS, "true")
        try:
            yield
        finally:
            spark.conf.set(_ALL_CHARSETS, str(before))


def key_column(key: Column, kind: str) -> Column:
    """The key as binary wire; `kind` is its type as Spark spells it. For a query that is made
    within `java_charsets`."""
    if kind == "string":
        found = _text(key)
    elif kind in WHOLE_NUMBERS:
        found = _number(key.cast("bigint"))
    else:  # Arrow would ask for pandas
        return f.udf(key_bytes, "binary", useArrow=False)(key)
    return f.coalesce(found, f.unhex(f.lit(wire.encode(None).hex())))


def partition_column_of(key: Column, partitions: int) -> Column:
    """The partition of a key as binary wire."""
    return f.pmod(f.crc32(key), f.lit(partitions)).cast("int")


def order_columns(value: Column | None, kind: str) -> list[Column]:
    """The columns that the rows of a key are sorted by. Rows without a value come first."""
    if value is None:
        return []
    if kind in ("double", "float"):
        value = f.when(f.isnan(value), None).otherwise(value)
    return [value]


def _text(key: Column) -> Column:
    is_ascii = f.octet_length(key) == f.char_length(key)
    data = f.when(is_ascii, f.encode(key, "UTF-8")).otherwise(f.encode(key, _CHARSET))
    count = f.octet_length(data)
    # picked from a constant: each digit of `unhex` is a step of its own
    short = f.substring(f.lit(_SHORT_CODES), count + 1, f.lit(1))
    return f.when(count <= _SHORT_MAX, f.concat(short, data)).otherwise(
        f.concat(f.unhex(f.concat(f.lit(_LONG_TEXT), _length(count))), data)
    )


def _length(count: Column) -> Column:
    """A length as hexadecimal digits, seven bits in each byte, the lowest ones first."""
    texts = [_digits(f.shiftright(count, nth * _GROUP_BITS), 0x7F) for nth in range(_GROUPS)]
    more = [_digits(f.shiftright(count, nth * _GROUP_BITS), 0x7F, 0x80) for nth in range(_GROUPS)]
    found = f.concat(*more[:-1], texts[-1])
    for nth in reversed(range(_GROUPS - 1)):
        fits = count < (1 << (nth + 1) * _GROUP_BITS)
        found = f.when(fits, f.concat(*more[:nth], texts[nth])).otherwise(found)
    return found


def _digits(value: Column, mask: int, added: int = 0) -> Column:
    """The lowest byte of a number, masked, as two hexadecimal digits."""
    return f.lpad(f.hex(value.bitwiseAND(f.lit(mask)) + added), 2, "0")


def _number(value: Column) -> Column:
    found = None
    for last, code, size in reversed(_POSITIVE):
        form = _number_form(value, code, size)
        found = form if found is None else f.when(value <= last, form).otherwise(found)
    below = None
    for first, code, size in reversed(_NEGATIVE):
        form = _number_form(value, code, size)
        below = form if below is None else f.when(value >= first, form).otherwise(below)
    assert found is not None
    assert below is not None
    return f.when(value >= 0, found).otherwise(f.when(value < 0, below))


def _number_form(value: Column, code: str, size: int) -> Column:
    """A code, and the lowest bytes of a number, the lowest one first."""
    digits = [_digits(f.shiftright(value, 8 * nth), 0xFF) for nth in range(size)]
    return f.unhex(f.concat(f.lit(code), *digits))
