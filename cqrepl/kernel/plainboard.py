"""The board of a queue in plain Python: how far each host is, and threads that wait for that.

It is the reference of the native one (`native/kernel/src/live/board.rs`), which the native pumps
write without the interpreter. `cqrepl.kernel.interface` says what each method means.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cqrepl.kernel.interface import AckLevel, Waited

_NOTHING: Final = -1
_NO_CLAIM: Final = ((1 << 63) - 1, _NOTHING)
_HOSTS: Final = range(128)  # 0 stands for all peers that have no id
_LEVELS: Final = range(len(AckLevel))
_WORD_BYTES: Final = 8
_SECONDS_MAX: Final = threading.TIMEOUT_MAX


@dataclass(frozen=True, slots=True)
class _Wanted:
    index: int
    count: int
    level: AckLevel
    hosts: frozenset[int] | None


@dataclass(slots=True)
class _Waiter:
    wanted: _Wanted
    stand: Waited = Waited.UNKNOWN
    woken: threading.Event | None = field(default_factory=threading.Event)  # None: the bell rings


@dataclass(frozen=True, slots=True)
class _SafeWord:
    wanted: _Wanted
    word: memoryview


class Bell:
    """See `cqrepl.kernel.interface.LoopBell`."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def board(self) -> "Board":
        return Board(self)

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with suppress(BlockingIOError):  # one that is full can be read already
            os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        with suppress(BlockingIOError):  # it has not rung
            os.eventfd_read(self._descriptor)

    def __del__(self) -> None:
        os.close(self._descriptor)


class Board:
    """See `cqrepl.kernel.interface.MarkBoard`."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._guard = threading.Lock()  # of what follows
        self._rows: dict[int, BoardRow] = {}
        self._waiters: dict[int, _Waiter] = {}
        self._waiters_ever = 0
        self._has_ended = False
        self._safe: _SafeWord | None = None

    def row(self, host: int) -> "BoardRow":
        if host not in _HOSTS:
            raise ValueError("expected a host from 0 to 127")
        with self._guard:
            return self._rows.setdefault(host, BoardRow(self))

    def marks(self, level: int) -> list[tuple[int, int]]:
        level = level_of(level)
        with self._guard:
            marks = [(host, row.mark(level)) for host, row in sorted(self._rows.items())]
        return [(host, mark) for host, mark in marks if mark > _NOTHING]

    def has(self, index: int, count: int, level: int, hosts: Sequence[int] | None) -> bool:
        wanted = _wanted(index, count, level, hosts)
        with self._guard:
            return self._has(wanted)

    def wait(
        self,
        index: int,
        count: int,
        level: int,
        hosts: Sequence[int] | None,
        seconds: float | None,
    ) -> int:
        wanted = _wanted(index, count, level, hosts)
        if seconds is not None and not seconds >= 0:
            raise ValueError("expected 0 seconds or more")
        waiter = _Waiter(wanted)
        assert waiter.woken is not None
        number = self._add(waiter)
        try:
            waiter.woken.wait(None if seconds is None else min(seconds, _SECONDS_MAX))
        finally:
            self.unwatch(number)
        return waiter.stand

    def watch(self, index: int, count: int, level: int, hosts: Sequence[int] | None) -> int:
        return self._add(_Waiter(_wanted(index, count, level, hosts), woken=None))

    def unwatch(self, watch: int) -> None:
        with self._guard:
            self._waiters.pop(watch, None)

    def keep_safe(
        self,
        buffer: memoryview,
        position: int,
        count: int,
        level: int,
        hosts: Sequence[int] | None,
    ) -> None:
        wanted = _wanted(0, count, level, hosts)
        assert 0 <= position <= len(buffer) - _WORD_BYTES, "expected the position of a word"
        assert position % _WORD_BYTES == 0, "expected the position of an aligned word"
        assert not buffer.readonly, "expected a word to be raised"
        word = buffer[position : position + _WORD_BYTES].cast("q")
        with self._guard:
            self._safe = _SafeWord(wanted, word)
            self._raise_safe()

    def keep_none_safe(self) -> None:
        with self._guard:
            self._safe = None

    def _raise_safe(self) -> None:
        if self._safe is None:
            return
        wanted, word = self._safe.wanted, self._safe.word
        rows = self._rows.items()
        held = sorted(
            row.held(wanted.level)
            for host, row in rows
            if wanted.hosts is None or host in wanted.hosts
        )
        if wanted.count <= len(held):
            word[0] = max(word[0], held[-wanted.count])

    def end(self) -> None:
        with self._guard:
            self._has_ended = True
        self.tell()

    def go_on(self) -> None:
        with self._guard:
            self._has_ended = False

    def tell(self) -> None:
        """A mark has risen, or nothing more comes: tells all whose wait is over."""
        with self._guard:
            self._raise_safe()
            for number in list(self._waiters):
                self._tell(number)

    def _tell(self, number: int) -> None:
        waiter = self._waiters[number]
        if self._has(waiter.wanted):
            waiter.stand = Waited.REACHED
        elif self._has_ended:
            waiter.stand = Waited.ENDED
        else:
            return
        del self._waiters[number]
        if waiter.woken is None:
            self._bell.ring()
        else:
            waiter.woken.set()

    def _add(self, waiter: _Waiter) -> int:
        with self._guard:
            self._waiters_ever += 1
            number = self._waiters_ever
            self._waiters[number] = waiter
            self._tell(number)  # a mark that rose before is not told otherwise
        return number

    def _has(self, wanted: _Wanted) -> bool:
        rows = self._rows.items()
        named = [row for host, row in rows if wanted.hosts is None or host in wanted.hosts]
        return sum(row.has(wanted.level, wanted.index) for row in named) >= wanted.count


class BoardRow:
    """See `cqrepl.kernel.interface.MarkRow`."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._guard = threading.Lock()
        self._marks = dict.fromkeys(AckLevel, _NOTHING)
        self._claim = _NO_CLAIM  # the first and the last index

    def claiming(self, first: int) -> "ClaimingRow":
        with self._guard:
            self._claim = (first, _NOTHING)
        return ClaimingRow(self, first)

    def raise_to(self, level: int, index: int) -> None:
        level = level_of(level)
        with self._guard:
            has_risen = index > self._marks[level]
            self._marks[level] = max(index, self._marks[level])
        if has_risen:
            self._board.tell()

    def raise_claim(self, first: int, index: int) -> None:
        """Raises the claim that begins with `first`, if it is not over."""
        with self._guard:
            has_risen = self._claim[0] == first and index > self._claim[1]
            if has_risen:
                self._claim = (first, index)
        if has_risen:
            self._board.tell()

    def lower_to(self, level: int, index: int) -> None:
        level = level_of(level)
        with self._guard:
            self._marks[level] = min(index, self._marks[level])
            if level is AckLevel.APPENDED:
                first, last = self._claim
                self._claim = (first, min(index, last))

    def mark(self, level: int) -> int:
        return self._marks[level_of(level)]

    def held(self, level: AckLevel) -> int:
        """Up to where the host surely has a level: no further than it has appended."""
        return min(self._marks[level], self._marks[AckLevel.APPENDED])

    def has(self, level: AckLevel, index: int) -> bool:
        """True when the host has an index at a level; one that it has not appended it has at
        none."""
        first, last = self._claim
        is_appended = self._marks[AckLevel.APPENDED] >= index or first <= index <= last
        return is_appended and (level is AckLevel.APPENDED or self._marks[level] >= index)


class ClaimingRow:
    """See `cqrepl.kernel.interface.MarkRow.claiming`."""

    def __init__(self, row: BoardRow, first: int) -> None:
        self._row = row
        self._first = first

    def claiming(self, first: int) -> "ClaimingRow":
        return self._row.claiming(first)

    def raise_to(self, level: int, index: int) -> None:
        if level_of(level) is AckLevel.APPENDED:
            self._row.raise_claim(self._first, index)
        else:
            self._row.raise_to(level, index)

    def lower_to(self, level: int, index: int) -> None:
        self._row.lower_to(level, index)

    def mark(self, level: int) -> int:
        return self._row.mark(level)


def level_of(level: int) -> AckLevel:
    """The level of this number.

    Raises:
        ValueError: there is none.
    """
    if level not in _LEVELS:
        raise ValueError("expected a level from 0 to 2")
    return AckLevel(level)


def _wanted(index: int, count: int, level: int, hosts: Sequence[int] | None) -> _Wanted:
    return _Wanted(index, count, level_of(level), None if hosts is None else frozenset(hosts))
