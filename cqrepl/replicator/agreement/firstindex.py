"""Checks by the clock that an index that comes for a queue can be one of its roll cycle.

A Java source does not say how its queue rolls. Read under another roll cycle, its indexes are of
days far from today, and would be stored in files of those days. So the first one is compared with
this host's clock, before a file is made for it. Nor may a sink give back what is of the future.

Where a queue is known to be of this roll cycle, or the index is of no other one, what is of times
to come tells of a clock that is wrong, here or at the host that has written it. That passes once
the clocks agree: the queue is tried again until then.

Later indexes may jump, as those of the source do; but a source that means ill could have thousands
of store files made that way. So of cycles that the clock has not come to, a few are taken a minute.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cqrepl.queue import ROLL_CYCLES, LayoutMismatch, QueueError, QueueLayout
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, cycle_of, format_index
from cqrepl.queue.format.rollcycle import RollCycle
from cqrepl.surroundings import surroundings

_AHEAD: Final = timedelta(hours=1)  # of a short cycle: clocks of two hosts differ
_BEHIND: Final = timedelta(days=3653)  # ten years: an archive may be streamed, too
_FAR_MS: Final = _BEHIND // timedelta(milliseconds=1)  # no clock is wrong by more
_READINGS_MAX: Final = 4
AHEAD_FILES_MAX: Final = 10
AHEAD_SECONDS: Final = 60.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FOREVER: Final = "a day after the year 9999"
CLOCKS_DIFFER: Final = "the clock of this host, or of the one that wrote it, is wrong"


class ClockBehind(QueueError):
    """An index is of times to come by this host's clock, or by the one of the host that wrote it
    the clock here is behind. It may be taken once the clocks agree."""


def check_first_index(
    index: Index, layout: QueueLayout, now_ms: int, path: Path, *, is_known: bool = False
) -> None:
    """Compares the day of an index with the clock.

    Args:
        index: the first one that comes.
        layout: of the queue that is to take it.
        now_ms: milliseconds since 1970 by this host's clock.
        path: of the queue.
        is_known: the queue is of the source's roll cycle, as it has taken from it before.

    Raises:
        ClockBehind: its cycle begins more than one cycle, and more than an hour, ahead of the
            clock, and it is of this roll cycle.
        LayoutMismatch: it begins so far ahead, or ten years behind the clock.
    """
    own = layout.roll_cycle
    if _is_near(index, own, layout.epoch, now_ms):
        return
    now = _EPOCH + timedelta(milliseconds=now_ms)
    fitting = list(_readings(index, now_ms))
    if _is_ahead(index, own, layout.epoch, now_ms) and (
        is_known or (not fitting and _is_near(index, own, layout.epoch, now_ms + _FAR_MS))
    ):
        raise _behind(index, layout, now, path)
    readings = [
        f"{roll_cycle.name} ({_told(_day_of(index, roll_cycle, roll_cycle.default_epoch))})"
        for roll_cycle in fitting
    ]
    others = f"it could be of {', '.join(readings[:_READINGS_MAX])}" if readings else (
        "it is of no other roll cycle either"
    )  # fmt: skip
    raise LayoutMismatch(
        f"a first index between {_told(now - _BEHIND)} and now ({_told(now)}) expected,"
        f" {format_index(index)} is of {_told(_day_of(index, own, layout.epoch))}"
        f" under {own.name}; {others}",
        path=path,
    )


def _behind(index: Index, layout: QueueLayout, now: datetime, path: Path) -> ClockBehind:
    return ClockBehind(
        f"an index of at most an hour, or one cycle, after now ({_told(now)}) expected,"
        f" {format_index(index)} is of {_told(_day_of(index, layout.roll_cycle, layout.epoch))}"
        f" under {layout.roll_cycle.name}: {CLOCKS_DIFFER}",
        path=path,
    )


def check_not_ahead(index: Index, layout: QueueLayout, now_ms: int, path: Path) -> None:
    """Compares the day of an index with the clock, if it is later.

    Args: as of `check_first_index`; `index` may be any.

    Raises:
        LayoutMismatch: its cycle begins more than one cycle, and more than an hour, ahead.
    """
    if _is_ahead(index, layout.roll_cycle, layout.epoch, now_ms):
        now = _EPOCH + timedelta(milliseconds=now_ms)
        raise LayoutMismatch(
            f"an index of at most one cycle after now ({_told(now)}) expected,"
            f" {format_index(index)} is of {_told(_day_of(index, layout.roll_cycle, layout.epoch))}"
            f" under {layout.roll_cycle.name}",
            path=path,
        )


class CyclesAhead:
    """The store files of one queue whose cycles the clock has not come to."""

    def __init__(self) -> None:
        self._made: deque[float] = deque(maxlen=AHEAD_FILES_MAX)

    def check(
        self, index: Index, layout: QueueLayout, now_ms: int, now_s: float, path: Path
    ) -> None:
        """Counts the file that an index begins, if it is one of those.

        Args: as of `check_first_index`, and
            now_s: monotonic time in seconds.

        Raises:
            LayoutMismatch: there have been too many within a minute.
        """
        if not _is_ahead(index, layout.roll_cycle, layout.epoch, now_ms):
            return
        made = self._made
        if len(made) == AHEAD_FILES_MAX and now_s - made[0] < AHEAD_SECONDS:
            raise LayoutMismatch(
                f"at most {AHEAD_FILES_MAX} cycles of times to come within {AHEAD_SECONDS:g} s"
                f" expected, {format_index(index)} is of"
                f" {_told(_day_of(index, layout.roll_cycle, layout.epoch))}"
                f" under {layout.roll_cycle.name}",
                path=path,
            )
        made.append(now_s)


class FirstIndexes:
    """The indexes that begin a cycle in one queue, held against this host's clock.

    Args:
        path: of the queue.
        any_cycle: none is refused.
    """

    def __init__(self, path: Path, *, any_cycle: bool) -> None:
        self.any_cycle = any_cycle
        self._path = path
        self._ahead = CyclesAhead()

    def check_first(self, index: Index, end: Index, layout: QueueLayout) -> None:
        """Looks at the first index that comes on a connection.

        Args:
            end: next index of the queue.
            layout: of the queue.

        Raises:
            ClockBehind, LayoutMismatch: as `check_first_index`.
        """
        if self._begins_a_cycle(index, end, layout):
            now_ms, is_known = surroundings().wall_ms(), end > NEXT_OF_EMPTY
            check_first_index(index, layout, now_ms, self._path, is_known=is_known)

    def check_later(self, index: Index, end: Index, layout: QueueLayout) -> None:
        """Looks at a later one.

        Args: as of `check_first`.

        Raises:
            LayoutMismatch: as `CyclesAhead.check`.
        """
        if self._begins_a_cycle(index, end, layout):
            now_ms, now_s = surroundings().wall_ms(), surroundings().monotonic_ns() / 1e9
            self._ahead.check(index, layout, now_ms, now_s, self._path)

    def _begins_a_cycle(self, index: Index, end: Index, layout: QueueLayout) -> bool:
        shift = layout.roll_cycle.shift
        return not self.any_cycle and cycle_of(index, shift) != cycle_of(end, shift)


def ends_ahead(end: Index, layout: QueueLayout) -> bool:
    """True where a copy ends in a cycle that this host would not take, by its clock.

    Args:
        end: the next index of the copy.
    """
    now_ms = surroundings().wall_ms()
    return end > NEXT_OF_EMPTY and _is_ahead(end, layout.roll_cycle, layout.epoch, now_ms)


def _readings(index: Index, now_ms: int) -> Iterator[RollCycle]:
    """The roll cycles by which an index is not far from the clock."""
    for roll_cycle in ROLL_CYCLES:
        if _is_near(index, roll_cycle, roll_cycle.default_epoch, now_ms):
            yield roll_cycle


def _is_near(index: Index, roll_cycle: RollCycle, epoch: int, now_ms: int) -> bool:
    cycle = cycle_of(index, roll_cycle.shift)
    start_ms = cycle * roll_cycle.length_ms + epoch
    if start_ms + roll_cycle.length_ms < now_ms - _BEHIND // timedelta(milliseconds=1):
        return False
    return not _is_ahead(index, roll_cycle, epoch, now_ms)


def _is_ahead(index: Index, roll_cycle: RollCycle, epoch: int, now_ms: int) -> bool:
    cycle = cycle_of(index, roll_cycle.shift)
    start_ms = cycle * roll_cycle.length_ms + epoch
    is_later = cycle > roll_cycle.cycle_at(now_ms, epoch) + 1
    return is_later and start_ms > now_ms + _AHEAD // timedelta(milliseconds=1)


def _day_of(index: Index, roll_cycle: RollCycle, epoch: int) -> datetime | None:
    """The time at which the cycle of an index begins; None beyond the years that have names."""
    start_ms = cycle_of(index, roll_cycle.shift) * roll_cycle.length_ms + epoch
    try:
        return _EPOCH + timedelta(milliseconds=start_ms)
    except OverflowError:
        return None


def _told(moment: datetime | None) -> str:
    return _FOREVER if moment is None else f"{moment:%Y-%m-%d %H:%M}"
