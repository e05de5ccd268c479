"""What a kernel is: the functions and types that both kernels have, with the same results.

`cqrepl.kernel.batch` says what each function means; callers go through it, `pen`, `memory` and
`live`, and never see which kernel works. A kernel without something says None in its place.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from cqrepl import _native

INTERFACE: Final = 11  # raised with every change of a function's meaning, in all kernels


class Looks(Protocol):
    """Looks at words of shared memory, again and again, until one is not what it was."""

    def __init__(self, words: Sequence[memoryview], values: bytes, pause_seconds: float, /) -> None:
        """Words of 4 bytes each, and what stood in them, one after the other.

        Raises:
            ValueError: words and values do not belong together, or a pause is below 0.
        """

    def until_changed(self) -> bool:
        """Pauses before each look, the first too; true when a word has changed, false when
        cancelled. Other threads run meanwhile."""
        ...

    def cancel(self) -> None:
        """Has `until_changed` come back at its next look. Any thread may call it."""


class Kernel(Protocol):
    """A module that does what happens once for each excerpt."""

    @property
    def NAME(self) -> str: ...

    @property
    def INTERFACE(self) -> int: ...

    @property
    def AtomicWords(self) -> type[_native.AtomicWords] | None: ...

    @property
    def Pen(self) -> type[_native.Pen] | None: ...

    @property
    def WordLooks(self) -> type[Looks]: ...

    @property
    def name_cut_files(self) -> Callable[[str, int, int], None] | None: ...

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

    def gather_payloads(
        self, data: bytes | memoryview, offsets: array[int], lengths: array[int], /
    ) -> tuple[bytes, array[int]]: ...

    def number_from(self, first: int, count: int, /) -> array[int]: ...

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
