"""Roll cycles: how time is cut into cycles, and how a cycle names its store file.

    cycle = trunc((now_ms - epoch) / length_ms)
    name  = the instant cycle * length_ms + E in UTC, in the roll cycle's format

E is the epoch without its time of day, which does not show in names. A format is written in the
letters of Java's date formatter, and that text (quotes included) is what a table store keeps: it
identifies the roll cycle. The numbers and names are checked against Java in
`tests/vectors/queues/rollcycles.json`.
"""

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, lru_cache
from typing import Final, NewType

Cycle = NewType("Cycle", int)  # number of a store file; an `int` when the program runs

CYCLE_MAX: Final = (1 << 31) - 1
_DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# the letters that occur, each with its width in digits, and its part of a datetime
_LETTERS: Final = {"yyyy": 4, "MM": 2, "dd": 2, "HH": 2, "mm": 2, "ss": 2}
_PARTS: Final = dict(
    zip(_LETTERS, ("year", "month", "day", "hour", "minute", "second"), strict=True)
)
_TOKEN: Final = re.compile(r"yyyy|MM|dd|HH|mm|ss|'[^']*'|-")
# dates of which the name can be spelled with four digits for the year
_LAST_MS: Final = int((datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds()) * 1000


@dataclass(frozen=True)
class RollCycle:
    """One rule of rolling. `index_count` and `index_spacing` are what new files of it get."""

    name: str
    format: str
    length_ms: int
    index_count: int
    index_spacing: int
    default_epoch: int = 0

    @cached_property
    def shift(self) -> int:
        """Number of bits of an index that hold the sequence."""
        return sequence_bits(self.index_count, self.index_spacing)

    @property
    def max_excerpts(self) -> int:
        """The number of excerpts that one cycle can hold."""
        return min((1 << self.shift) - 1, self.index_count**2 * self.index_spacing)

    def cycle_at(self, now_ms: int, epoch: int) -> Cycle:
        """The cycle of a moment, given in milliseconds since 1970."""
        since = now_ms - epoch
        length_ms = self.length_ms
        return Cycle(since // length_ms if since >= 0 else -(-since // length_ms))

    def file_name(self, cycle: int, epoch: int) -> str:
        """The name of a cycle's store file, without `.cq4`.

        Raises:
            ValueError: the cycle is negative, or its date has no name of four digits for the year.
        """
        at_ms = cycle * self.length_ms + _whole_days(epoch)
        if not 0 <= cycle <= CYCLE_MAX or not -_DAY_MS <= at_ms <= _LAST_MS:
            raise ValueError(f"expected a cycle of {self.name} before the year 10000, got {cycle}")
        return _spell(self.format, _EPOCH + timedelta(milliseconds=at_ms))

    def cycle_of_name(self, name: str, epoch: int) -> Cycle | None:
        """The cycle that `file_name` spells as `name`; None when no cycle is named so."""
        match = self._pattern.fullmatch(name)
        if match is None:
            return None
        parts = {key: int(digits) for key, digits in match.groupdict().items()}
        try:
            at = datetime(
                parts["yyyy"], parts["MM"], parts["dd"],
                parts.get("HH", 0), parts.get("mm", 0), parts.get("ss", 0), tzinfo=UTC,
            )  # fmt: skip
        except ValueError:
            return None
        since_ms = int((at - _EPOCH).total_seconds()) * 1000 - _whole_days(epoch)
        cycle, rest = divmod(since_ms, self.length_ms)
        return Cycle(cycle) if rest == 0 and 0 <= cycle <= CYCLE_MAX else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = []
        for token in _TOKEN.findall(self.format):
            width = _LETTERS.get(token)
            digits = f"(?P<{token}>[0-9]{{{width}}})"
            parts.append(re.escape(token.strip("'")) if width is None else digits)
        return re.compile("".join(parts))


def sequence_bits(index_count: int, index_spacing: int) -> int:
    """The number of bits of a sequence in an index, and in a store file's sequence word."""
    return max(32, 2 * (index_count.bit_length() - 1) + index_spacing.bit_length() - 1)


def by_name(name: str) -> RollCycle:
    """The roll cycle of this name.

    Raises:
        ValueError: there is none, or it is WEEKLY.
    """
    _refuse_weekly(name == WEEKLY.name)
    if name not in _BY_NAME:
        near = difflib.get_close_matches(name.upper(), _BY_NAME, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        known = ", ".join(_BY_NAME)
        raise ValueError(
            f"expected the name of a roll cycle, got {name!r}{meant}; known are {known}"
        )
    return _BY_NAME[name]


def by_format(format_: str) -> RollCycle:
    """The roll cycle of this file name format, as a table store keeps it.

    Raises:
        ValueError: there is none, or it is WEEKLY.
    """
    _refuse_weekly(format_ == WEEKLY.format)
    if format_ not in _BY_FORMAT:
        raise ValueError(f"expected the format of a roll cycle, got {format_!r}")
    return _BY_FORMAT[format_]


def by_file_name(name: str) -> RollCycle:
    """The roll cycle that a store file is named by (no two name alike); `name` is without `.cq4`.

    Raises:
        ValueError: there is none, or it is WEEKLY.
    """
    _refuse_weekly(re.fullmatch(r"[0-9]{4}W[0-9]{2}", name) is not None)
    for roll_cycle in ROLL_CYCLES:
        if roll_cycle.cycle_of_name(name, 0) is not None:
            return roll_cycle
    raise ValueError(f"expected a store file named by a roll cycle, got {name!r}")


def _refuse_weekly(is_weekly: bool) -> None:
    if is_weekly:
        # its file name holds a week number of the writer's locale, which even Java cannot read back
        raise ValueError("roll cycle WEEKLY is not supported: its file names name no cycle")


def _whole_days(epoch: int) -> int:
    """The epoch without its time of day, as it shows in file names."""
    if epoch < 0 and epoch % _DAY_MS:
        return -_DAY_MS  # as Java has it, also for more days than one
    return epoch - epoch % _DAY_MS


@lru_cache(maxsize=1024)
def _spell(format_: str, at: datetime) -> str:
    return _template(format_).format(at)


@cache
def _template(format_: str) -> str:
    """The template by which `str.format` spells a moment in a roll cycle's format."""
    out = []
    for token in _TOKEN.findall(format_):
        part = _PARTS.get(token)
        digits = f"{{0.{part}:0{_LETTERS.get(token)}}}"
        out.append(token.strip("'") if part is None else digits)
    return "".join(out)


_MINUTE = 60_000
_HOUR = 3_600_000
WEEKLY: Final = RollCycle("WEEKLY", "YYYY'W'ww", 7 * _DAY_MS, 4096, 256, 259_200_000)
# in the order in which Java tries them on a file name
ROLL_CYCLES: Final = (
    RollCycle("FIVE_MINUTELY", "yyyyMMdd-HHmm'V'", 5 * _MINUTE, 2048, 256),
    RollCycle("TEN_MINUTELY", "yyyyMMdd-HHmm'X'", 10 * _MINUTE, 2048, 256),
    RollCycle("TWENTY_MINUTELY", "yyyyMMdd-HHmm'XX'", 20 * _MINUTE, 2048, 256),
    RollCycle("HALF_HOURLY", "yyyyMMdd-HHmm'H'", 30 * _MINUTE, 2048, 256),
    RollCycle("FAST_HOURLY", "yyyyMMdd-HH'F'", _HOUR, 4096, 256),
    RollCycle("TWO_HOURLY", "yyyyMMdd-HH'II'", 2 * _HOUR, 4096, 256),
    RollCycle("FOUR_HOURLY", "yyyyMMdd-HH'IV'", 4 * _HOUR, 4096, 256),
    RollCycle("SIX_HOURLY", "yyyyMMdd-HH'VI'", 6 * _HOUR, 4096, 256),
    RollCycle("FAST_DAILY", "yyyyMMdd'F'", _DAY_MS, 4096, 256),
    RollCycle("MINUTELY", "yyyyMMdd-HHmm", _MINUTE, 2048, 16),
    RollCycle("HOURLY", "yyyyMMdd-HH", _HOUR, 4096, 16),
    RollCycle("DAILY", "yyyyMMdd", _DAY_MS, 8192, 64),
    RollCycle("LARGE_HOURLY", "yyyyMMdd-HH'L'", _HOUR, 8192, 64),
    RollCycle("LARGE_DAILY", "yyyyMMdd'L'", _DAY_MS, 32768, 128),
    RollCycle("XLARGE_DAILY", "yyyyMMdd'X'", _DAY_MS, 32768, 256),
    RollCycle("HUGE_DAILY", "yyyyMMdd'H'", _DAY_MS, 32768, 1024),
    RollCycle("SMALL_DAILY", "yyyyMMdd'S'", _DAY_MS, 8192, 8),
    RollCycle("LARGE_HOURLY_SPARSE", "yyyyMMdd-HH'LS'", _HOUR, 4096, 1024),
    RollCycle("LARGE_HOURLY_XSPARSE", "yyyyMMdd-HH'LX'", _HOUR, 2048, 1 << 20),
    RollCycle("HUGE_DAILY_XSPARSE", "yyyyMMdd'HX'", _DAY_MS, 16384, 1 << 20),
    RollCycle("TEST_SECONDLY", "yyyyMMdd-HHmmss'T'", 1000, 32768, 4),
    RollCycle("TEST4_SECONDLY", "yyyyMMdd-HHmmss'T4'", 1000, 32, 4),
    RollCycle("TEST_HOURLY", "yyyyMMdd-HH'T'", _HOUR, 16, 4),
    RollCycle("TEST_DAILY", "yyyyMMdd'T1'", _DAY_MS, 8, 1),
    RollCycle("TEST2_DAILY", "yyyyMMdd'T2'", _DAY_MS, 16, 2),
    RollCycle("TEST4_DAILY", "yyyyMMdd'T4'", _DAY_MS, 32, 4),
    RollCycle("TEST8_DAILY", "yyyyMMdd'T8'", _DAY_MS, 128, 8),
)
_BY_NAME: Final = {roll_cycle.name: roll_cycle for roll_cycle in ROLL_CYCLES}
_BY_FORMAT: Final = {roll_cycle.format: roll_cycle for roll_cycle in ROLL_CYCLES}
