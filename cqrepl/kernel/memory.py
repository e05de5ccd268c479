"""Memory that processes share: words to be watched, and what only native code can do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self

from cqrepl.kernel import choose
from wire.header import HEADER_BYTES

if TYPE_CHECKING:
    from cqrepl._native import AtomicWords


class WatchedWord(NamedTuple):
    """Four bytes of memory that processes share, and what stood there: a look at it is one plain
    load. Whoever finds another value looks again in the way that keeps later reads behind."""

    word: memoryview  # of one unsigned number; holds the memory
    value: int

    @classmethod
    def at(cls, memory: memoryview, position: int) -> Self:
        """The word there, and what stands in it now."""
        assert position % HEADER_BYTES == 0
        word = memory[position : position + HEADER_BYTES].toreadonly().cast("I")
        return cls(word, word[0])

    @property
    def has_changed(self) -> bool:
        """True when something else stands there."""
        return bool(self.word[0] != self.value)


def atomic_words() -> type[AtomicWords] | None:
    """Aligned words in memory that processes share; None with the plain kernel, which has none."""
    return choose.KERNEL.AtomicWords


def page_populator() -> Callable[[memoryview, int, int], None] | None:
    """What has the pages in memory that hold bytes `start` to `end` of a buffer: `(buffer, start,
    end)`; None with the plain kernel, which cannot do that while other threads work.

    They are then writable without a page fault, and hold what they held. A position outside is a
    ValueError. Where no page can be had, behind the end of a mapped file, on a full disk, or before
    Linux 5.14, it is an OSError.
    """
    return choose.KERNEL.populate_pages
