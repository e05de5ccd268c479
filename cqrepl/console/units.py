"""Times and sizes as people write them: `500us`, `250ms`, `20s`, `16MiB`, `1000000`."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_TIME_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT_TIME: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(us|ms|s)")
_SHORT_TIME_NS: Final = {"us": 1000, "ms": 1_000_000, "s": 1_000_000_000}
_SIZE: Final = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB|kB|MB|GB)?")
_SIZE_BYTES: Final = {
    None: 1,
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}


def parse_time_ms(text: str) -> int:
    """Milliseconds of a time.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"a time such as 500ms, 20s, 1m or 3d expected, {text!r} came")
    return round(float(match[1]) * _TIME_MS[match[2]])


def parse_short_time_ns(text: str) -> int:
    """Nanoseconds of a short time.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    match = _SHORT_TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"a time such as 500us, 2ms or 1s expected, {text!r} came")
    return round(float(match[1]) * _SHORT_TIME_NS[match[2]])


def since_1970_ns(moment: datetime) -> int:
    """Nanoseconds of a moment since 1970; one without an offset is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def parse_size(text: str) -> int:
    """Bytes of a size.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"a size such as 16MiB, 10GB or 65536 expected, {text!r} came")
    return int(match[1]) * _SIZE_BYTES[match[2]]


def parse_hosts(text: str, words: Mapping[str, frozenset[int] | None]) -> frozenset[int] | None:
    """Host ids, `2,3`, or what one of some words stands for.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    if text in words:
        return words[text]
    try:
        return frozenset(int(each) for each in text.split(","))
    except ValueError:
        wanted = f"{', '.join(words)} or host ids such as 2,3"
        raise ValueError(f"{wanted} expected, {text!r} came") from None


def format_bytes(count: float) -> str:
    """A number of bytes with three digits and a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.2f} TB"


def format_size(count: int) -> str:
    """A size as it is chosen: in the greatest binary unit that it is a multiple of.

    >>> format_size(256), format_size(1024), format_size(16 << 20)
    ('256 B', '1 KiB', '16 MiB')
    """
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count and count % scale == 0:
            return f"{count // scale} {unit}"
    return f"{count} B"


def plural(count: int, noun: str) -> str:
    """A number and what is counted.

    >>> plural(1, "file"), plural(2000, "file"), plural(2, "copy")
    ('1 file', '2,000 files', '2 copies')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"
