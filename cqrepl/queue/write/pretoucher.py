"""Has the pages that a writer is about to store into in memory, before it gets there.

Theory of operation. The first store into a fresh page of a file stops the writer for 0.6 to 8 us: a
page must be found, cleared, and entered into the file and into the page table. A thread of its own
does that ahead of the writer, in the writer's mapping, without the interpreter's lock. It changes
no byte, so it needs no lock of the queue either.

    0 .. position    written
    .. reserved      allocated and mapped, told to the writer; its pages are in memory
    .. + a step      the same, still to be told: the writer's next step meets nothing new
    .. allocated     the file has it; pages come when the writer comes nearer

The writer reserves space in steps, and says so each time (`follow`): that wakes the thread, which
brings the pages up to one step behind what is reserved into memory, allocates the file further when
it must, and sleeps again. Steps grow to half of the bytes asked for: the one that is told, and the
next.

When the writer maps the file anew, what was touched has to be entered into the new page table, at a
fifth of the first cost; to unmap the old one, which takes long too, is left to the thread. That
works in short pieces, looks for newer orders in between, and holds a mapping no longer than a
piece; one that is closed meanwhile goes with the piece.

In between it makes the file of the next cycle ready (`precreating`), for which alone it looks at
the clock, once a cycle.

Where there is no space, or no thread to be had, nothing is done ahead and nothing said: the writer
gets the error, when it needs the space. Pages that wait untouched for long are written back by the
system and then cost a small fault again.
"""

import os
import threading
from contextlib import suppress
from typing import Final, NamedTuple

from cqrepl.kernel.memory import page_populator
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.queue.write.nextcycle import NextCycle
from cqrepl.surroundings import begun

AHEAD_BYTES: Final = 8 << 20
_PROCESSORS_MIN: Final = 3  # of fewer, peer and writer leave none to a helper
_PIECE: Final = 256 << 10
_NICE: Final = 10
_GROWTH_MIN: Final = 1 << 20
_GROWTH_MAX: Final = 64 << 20


class _Order(NamedTuple):
    """The part of a mapping that is to be touched; the mapping had this length when its writer
    asked."""

    mapping: Mapping
    length: int
    cycle: Cycle
    position: int
    end: int


class PageToucher:
    """One writer's helper: a thread, from the first order on, until `close`."""

    def __init__(self, ahead_bytes: int, next_cycle: NextCycle) -> None:
        # the longest step that a writer is to reserve: it is told one, and the next is made ready
        self.step_max = max(ahead_bytes // 2, _PIECE)
        self._next_cycle = next_cycle
        self._changed = threading.Condition()
        self._order: _Order | None = None
        self._position = 0  # of the last order
        self._thread: threading.Thread | None = None
        self._touched: tuple[Mapping, int, int] | None = None  # a mapping, its length, up to where
        self._allocated: tuple[Mapping, int] | None = None
        self.is_closed = False

    def is_ready(self, mapping: Mapping, end: int) -> bool:
        """True when the bytes up to `end` are mapped, and known to be allocated."""
        return end <= self._allocated_to(mapping) and end <= mapping.length

    def follow(self, mapping: Mapping, cycle: Cycle, position: int, end: int) -> None:
        """Has the bytes of a cycle's mapping touched, `position` to `end`; returns at once.

        Only the last order counts.
        """
        with self._changed:
            if self.is_closed:
                return
            mapping.unmaps_later = True
            self._order = _Order(mapping, mapping.length, cycle, position, end)
            if self._thread is None and not self._begin():
                self._order = None  # which would keep a mapping that no thread unmaps
                mapping.unmaps_later = False
                return
            self._changed.notify()

    def _begin(self) -> bool:
        """False where no thread can be started now; the next order tries it again."""
        thread = threading.Thread(target=self._run, name="touch-ahead", daemon=True)
        if not begun(thread):
            return False
        self._thread = thread
        return True

    def close(self) -> None:
        """Ends the thread, and takes away the file that it made if no writer used it.

        Mappings may be closed before or after; the queue's locks are to be given back after.
        """
        with self._changed:
            self.is_closed = True
            self._order = None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._next_cycle.forget()
        self._touched = self._allocated = None

    def _run(self) -> None:
        # behind the writer, should they want the same processor
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self.is_closed:
            order = self._next()
            # no space, or a file that was cut, is for the writer to meet
            with suppress(OSError):
                if order is None:
                    self._prepare_next_cycle()
                else:
                    self._carry_out(order)
            if order is not None:
                order.mapping.unmap_left()
            del order  # a mapping that was left must go

    def _next(self) -> _Order | None:
        """The next order; None when it is time for the next cycle, or to end."""
        with self._changed:
            if self._order is None and not self.is_closed:
                self._changed.wait(self._next_cycle.wait_s())
            order, self._order = self._order, None
            return order

    def _prepare_next_cycle(self) -> None:
        # woken in vain, or the clock was changed: as long as there is time left there is time left
        if not self.is_closed and self._next_cycle.wait_s() == 0:
            self._next_cycle.make(self._position)

    def _carry_out(self, order: _Order) -> None:
        self._touch(order)
        mapping, end = order.mapping, order.end
        self._position = order.position
        self._next_cycle.stands_in(order.cycle)
        if self._order is None and self._allocated_to(mapping) < end:
            end += min(max(end, _GROWTH_MIN), _GROWTH_MAX)  # so that it is not done for each order
            if mapping.allocate_ahead(order.position, end):
                self._allocated = (mapping, end)

    def _allocated_to(self, mapping: Mapping) -> int:
        allocated = self._allocated
        return allocated[1] if allocated is not None and allocated[0] is mapping else 0

    def _touch(self, order: _Order) -> None:
        mapping, start, end = order.mapping, order.position, min(order.end, order.length)
        if self._touched is not None and self._touched[:2] == (mapping, order.length):
            start = max(start, self._touched[2])
        while start < end and self._order is None and not self.is_closed:
            mapping.populate(start, min(start + _PIECE, end))
            start += _PIECE
            self._touched = (mapping, order.length, start)


def usual_ahead_bytes() -> int:
    """The number of bytes to touch ahead where the user has not said how many; 0 on two processors
    or one."""
    return AHEAD_BYTES if len(os.sched_getaffinity(0)) >= _PROCESSORS_MIN else 0


def page_toucher(cycles: Cycles, layout: QueueLayout, ahead_bytes: int) -> PageToucher | None:
    """A helper that keeps so many bytes ahead; None where nothing can be, or nothing is wanted."""
    if ahead_bytes <= 0 or page_populator() is None:
        return None
    return PageToucher(ahead_bytes, NextCycle(cycles, layout, ahead_bytes))
