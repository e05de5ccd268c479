"""Memory that processes share, as far as only native code can work on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cqrepl.kernel import choose

if TYPE_CHECKING:
    from cqrepl._native import AtomicWords


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
