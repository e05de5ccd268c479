"""The interface of a kernel: the functions and types that both have, with the same results.

`cqrepl.kernel.batch` says what each function means; callers go through it, `pen`, `memory` and
`live`, and never see which kernel works. A kernel that lacks one of them has None in its place.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from cqrepl import _native

INTERFACE: Final = 27  # raised with every change of a function's meaning, in all kernels


class Looks(Protocol):
    """Looks at words of shared memory, again and again, until one is not what it was."""

    def __init__(
        self,
        words: Sequence[memoryview],
        values: bytes,
        pause_seconds: float,
        later_pause_seconds: float,
        count: int,
        /,
    ) -> None:
        """Words of 4 bytes each, and what stood in them, one after the other.

        Args:
            pause_seconds: before each of the first `count` looks.
            later_pause_seconds: before all later ones.

        Raises:
            ValueError: words and values do not belong together, or a pause is below 0.
        """

    def until_changed(self) -> bool:
        """Pauses before each look, the first too; true when a word has changed, false when
        cancelled. Other threads run meanwhile."""
        ...

    def cancel(self) -> None:
        """Has `until_changed` come back at its next look. Any thread may call it."""


class AckLevel(IntEnum):
    """The level of a host's mark; what has come to a level has come to those before it too."""

    APPENDED = 0  # it stands in the host's queue
    SYNCED = 1  # it is on the host's disk
    APPLIED = 2  # the host's program has taken it


class Waited(IntEnum):
    """The state of a wait."""

    UNKNOWN = 0  # what is waited for has not come in time: whether the hosts have it is not known
    REACHED = 1  # it has come
    ENDED = 2  # the board has ended


class MarkRow(Protocol):
    """The marks of one host on one board. Any thread may use it.

    Beside its marks a host has a claim, if it cannot prove what it holds: it counts for each index
    from the first one that it was sent up to the one that it has acknowledged, and for no other
    one. Only waits look at a claim: it is part of no mark.
    """

    def claiming(self, first: int, /) -> MarkRow:
        """The same host, which is sent what is from this index on and cannot prove that it has the
        rest: what is raised there at `APPENDED` is the claim, and the mark stays. A claim that
        began before is over, and is raised no more."""
        ...

    def raise_to(self, level: int, index: int, /) -> None:
        """Raises a mark, or the claim; one that is higher stays."""
        ...

    def lower_to(self, level: int, index: int, /) -> None:
        """Lowers a mark, and with what is appended the claim; one that is lower stays. What was
        told before is not taken back."""
        ...

    def mark(self, level: int, /) -> int:
        """The mark at a level; -1 for nothing."""
        ...


class MarkBoard(Protocol):
    """The marks of one queue. Any thread may use it.

    What is waited for is told by four arguments: `index`, which so many (`count`) of these `hosts`
    are to have, or of all for None, at a `level`; what is not appended counts at none. A host that
    has no row has nothing.

    Raises:
        ValueError: a level that is none.
    """

    def row(self, host: int, /) -> MarkRow:
        """The marks of a host, which may be new; 0 is for all peers that have no id.

        Raises:
            ValueError: an id above 127 or below 0.
        """
        ...

    def marks(self, level: int, /) -> list[tuple[int, int]]:
        """The hosts that have a mark at this level, and their marks, in the order of the hosts."""
        ...

    def has(self, index: int, count: int, level: int, hosts: Sequence[int] | None, /) -> bool:
        """True when they have it."""
        ...

    def wait(
        self,
        index: int,
        count: int,
        level: int,
        hosts: Sequence[int] | None,
        seconds: float | None,
        /,
    ) -> int:
        """Sleeps until they have it, the board has ended, or the time is over, None for no limit;
        the answer is a `Waited`. Other threads run meanwhile, and a signal is acted on.

        Raises:
            ValueError: less than 0 seconds.
        """
        ...

    def watch(self, index: int, count: int, level: int, hosts: Sequence[int] | None, /) -> int:
        """Has the bell ring once, when they have it or the board has ended, which may be at once.
        The answer is for `unwatch`."""
        ...

    def unwatch(self, watch: int, /) -> None:
        """Ends a watch; nothing for one that is over."""
        ...

    def keep_safe(
        self,
        buffer: memoryview,
        position: int,
        count: int,
        level: int,
        hosts: Sequence[int] | None,
        /,
    ) -> None:
        """From now on raises a word with the marks: the 8 bytes at a position of a buffer, which
        other processes read. It becomes the index up to which so many of these hosts have a level;
        claims do not count. There is one such word of a board; the buffer is held until
        `keep_none_safe`.

        Raises:
            AssertionError: no aligned word is there, or it may not be written.
        """
        ...

    def keep_none_safe(self) -> None:
        """Raises no word any more, and gives its buffer back."""
        ...

    def end(self) -> None:
        """Ends all waits that there are, and each one to come that is not for what is there."""
        ...

    def go_on(self) -> None:
        """Lets threads wait again."""
        ...


class LoopBell(Protocol):
    """Wakes an event loop."""

    def board(self) -> MarkBoard:
        """A board that rings this bell."""
        ...

    def fileno(self) -> int:
        """The descriptor, which can be read once it has rung. It is open as long as this lives, or
        a board that rings it."""
        ...

    def ring(self) -> None:
        """Has it ring."""
        ...

    def clear(self) -> None:
        """Takes back that it has rung."""
        ...


class Kernel(Protocol):
    """A module that does what happens once for each excerpt."""

    @property
    def NAME(self) -> str: ...

    @property
    def INTERFACE(self) -> int: ...

    @property
    def AtomicWords(self) -> type[_native.AtomicWords] | None: ...

    @property
    def FileMap(self) -> type[_native.FileMap] | None: ...

    @property
    def Pen(self) -> type[_native.Pen] | None: ...

    @property
    def WordLooks(self) -> type[Looks]: ...

    @property
    def Bell(self) -> type[LoopBell]: ...

    def name_cut_files(self, speaker: str, code_cut: int, code_full: int, /) -> None: ...

    @property
    def give_time(self) -> Callable[[tuple[int, int] | None], None] | None: ...

    @property
    def extend_chain(
        self,
    ) -> Callable[[bytes | memoryview, array[int], array[int], int, bytes], bytes] | None: ...

    @property
    def populate_pages(self) -> Callable[[memoryview, int, int], None] | None: ...

    def find_excerpts(
        self,
        store: memoryview,
        position: int,
        end: int,
        count_max: int,
        bytes_max: int,
        payload_max: int,
        alignment: int = ...,
        /,
    ) -> tuple[int, int, array[int], array[int]]: ...

    def frame_excerpts(
        self,
        data: memoryview,
        offsets: array[int],
        lengths: array[int],
        start: int,
        index: int,
        cid_document: bytes,
        ns_item: bytes,
        out: bytearray,
        filled: int,
        /,
    ) -> tuple[int, int]: ...

    def scan_frames(
        self, data: bytes | memoryview, start: int, cid_document: bytes, payload_max: int, /
    ) -> tuple[int, int, int, array[int], array[int]] | None: ...

    def run_length(
        self,
        data: bytes | memoryview,
        offsets: array[int],
        lengths: array[int],
        start: int,
        count_max: int,
        bytes_max: int,
        /,
    ) -> int: ...

    def split_run(
        self, data: bytes | memoryview, start: int, end: int, count: int, payload_max: int, /
    ) -> tuple[int, array[int], array[int]]: ...

    def gather_payloads(
        self, data: bytes | memoryview, offsets: array[int], lengths: array[int], /
    ) -> tuple[bytes, array[int]]: ...

    def number_from(self, first: int, count: int, /) -> array[int]: ...

    def wide_gaps(
        self,
        offsets: array[int],
        lengths: array[int],
        start: int,
        stop: int,
        gap_max: int,
        /,
    ) -> array[int]: ...

    def join_payloads(
        self, payloads: Sequence[bytes | memoryview], /
    ) -> tuple[bytes, array[int], array[int]]: ...

    def laid_size(self, lengths: array[int], start: int, count: int, /) -> int: ...

    def measure_lengths(
        self, lengths: array[int], start: int, count: int, /
    ) -> tuple[int, int]: ...

    def lay_excerpts(
        self,
        data: bytes | memoryview,
        offsets: array[int],
        lengths: array[int],
        start: int,
        count: int,
        store: memoryview,
        position: int,
        sequence: int,
        index_spacing: int,
        /,
    ) -> tuple[int, int, int, list[tuple[int, int]]]: ...
