"""A place in a queue, as people name it."""

import re
from datetime import datetime
from typing import Final, NamedTuple

from cqrepl.console.units import since_1970_ns

# that of `queue.format.index`, which would load all of `queue` for a mere --help
_INDEX_MAX: Final = (1 << 63) - 1


class Spot(NamedTuple):
    """A place in a queue as people name it: an index, or a number of excerpts from an end.

    `counted` is None for an index in `at`; else the place is so many excerpts before the last
    (0: the last itself). `first` is index 0. `time_ns` is set for a time, since 1970 in UTC.
    """

    at: int = 0
    counted: int | None = None
    time_ns: int | None = None

    def is_behind(self, other: "Spot") -> bool:
        """True where this place is behind the other one in each queue that holds both apart."""
        if other == Spot():  # the first excerpt: nothing is before it
            return self != other
        if self.time_ns is not None and other.time_ns is not None:
            return self.time_ns > other.time_ns
        if self.counted is not None and other.counted is not None:
            return self.counted < other.counted
        is_index = [each.time_ns is None and each.counted is None for each in (self, other)]
        return all(is_index) and self.at > other.at


def parse_spot(text: str) -> Spot:
    """The place that a text names: 0x451600000004, a decimal index, first, last, -10, or a time.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    if text == "first":
        return Spot()
    if text == "last":
        return Spot(counted=0)
    if match := re.fullmatch(r"-([1-9][0-9]{0,17})", text):
        return Spot(counted=int(match[1]) - 1)
    if (index := _index_of(text)) is not None:
        return Spot(at=index)
    if match := re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", text):
        return Spot(time_ns=_time_ns(text))
    raise ValueError(
        "an index such as 0x451600000004, first, last, -10 or a time such as 2026-11-21T10:00Z"
        f" expected, {text!r} came"
    )


def parse_place(text: str) -> int:
    """The index that a text names, for options that take an index and no place of another kind.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    index = 0 if text == "first" else _index_of(text)
    if index is None:
        raise ValueError(f"an index such as 0x451600000004 was expected, {text!r} came")
    return index


def parse_dumped(text: str) -> int:
    """The index that a text names as dumps show it: in hexadecimal, with or without the 0x.

    Raises:
        ValueError: with what was expected, in one sentence.
    """
    index = _index_of(text, has_decimal=False)
    if index is None:
        raise ValueError(f"expected an index in hexadecimal, got {text!r}")
    return index


def _index_of(text: str, *, has_decimal: bool = True) -> int | None:
    """An index in each form that messages, tables and Java print: 0x451600000004; digits alone,
    which are decimal but in dumps; hexadecimal without the 0x, where a letter tells that it is."""
    if has_decimal and re.fullmatch(r"[0-9]{1,19}", text):
        index = int(text)
    elif re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", text):
        index = int(text, 16)
    else:
        return None
    return index if index <= _INDEX_MAX else None


def _time_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"a time such as 2026-11-21T10:00Z expected, {text!r} came") from error
    return since_1970_ns(moment)
