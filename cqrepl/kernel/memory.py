"""Memory that processes share: words to be watched, and what only native code can do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from cqrepl.kernel import choose
from wire.header import HEADER_BYTES

if TYPE_CHECKING:
    from cqrepl._native import AtomicWords
    from cqrepl.kernel.interface import Looks


class WatchedWord(NamedTuple):
    """Four bytes of memory that processes share, and what stood there. A look at them is a plain
    load: a reader that finds something else looks again, by a load that keeps later reads behind.

    Two words of one `place` are the same memory, even if it is mapped twice.
    """

    place: tuple[int, int, int]  # device and inode of the file; position in it
    word: memoryview  # holds the memory
    value: bytes

    @classmethod
    def at(cls, file: tuple[int, int], memory: memoryview, position: int) -> Self:
        """The word there, and what stands in it now."""
        word = memory[position : position + HEADER_BYTES].toreadonly()
        assert len(word) == HEADER_BYTES
        return cls((*file, position), word, bytes(word))

    @property
    def has_changed(self) -> bool:
        """True when something else stands there."""
        return self.word != self.value


def atomic_words() -> type[AtomicWords] | None:
    """Aligned words in memory that processes share; None with the plain kernel, which has none."""
    return choose.KERNEL.AtomicWords


class MappedFile(Protocol):
    """An open file, or the beginning of it, mapped into memory and shared with all who map it."""

    def extend(self, descriptor: int, length: int, /) -> bool:
        """Maps what the file has grown by, behind what is mapped, so that views stay good.

        Args:
            descriptor: of the same open file.
            length: bytes that the file has at least.

        Returns:
            False where there is no room for that, or the system refuses: it is as it was.
        """
        ...

    def comes_singly(self, position: int, /) -> None:
        """Has the system read nothing ahead behind a position of what is mapped."""
        ...

    def view(self) -> memoryview:
        """All bytes that are mapped now."""
        ...

    def close(self) -> None:
        """Unmaps it.

        Raises:
            BufferError: views are held; it is unmapped when the last of them goes.
        """
        ...


def file_map() -> Callable[[int, int, int, bool], MappedFile] | None:
    """Maps a file that can then grow where it is: `(descriptor, length, room, is_writable)`, with
    bytes to map, at least 1, and up to how many it may grow if the system has such addresses; None
    with the plain kernel, which cannot choose where the system maps what.

    The map keeps no descriptor. An OSError says why there is none.
    """
    return choose.KERNEL.FileMap


def looks_at(
    words: Sequence[WatchedWord], pause_seconds: float, later_pause_seconds: float, count: int
) -> Looks:
    """Looks at all these words, with the first pause before each of `count` looks, and the other
    one before each look after them."""
    values = b"".join(word.value for word in words)
    memory = [word.word for word in words]
    return choose.KERNEL.WordLooks(memory, values, pause_seconds, later_pause_seconds, count)


def page_populator() -> Callable[[memoryview, int, int], None] | None:
    """The function that brings pages of a buffer into memory: called with `(buffer, start, end)`,
    those that hold the bytes from `start` to `end`. None with the plain kernel, which cannot do
    that while other threads work.

    The pages are then writable without a page fault, and hold what they held. The function raises
    ValueError for a position outside, and OSError where no page can be had: behind the end of a
    mapped file, on a full disk, or before Linux 5.14.
    """
    return choose.KERNEL.populate_pages


def name_cut_files(speaker: str, code_cut: int, code_full: int) -> None:
    """From now on, when a file of a queue was cut under its mapping, the process says in one line
    which one before it ends: the system ends it in any case. For programs of our own, as it changes
    what becomes of a signal (SIGBUS).

    Args:
        speaker: how the line begins.
        code_cut: the exit code then.
        code_full: the exit code when the file is as long as ever, and has no page all the same, as
            with a hole in it on a full disk.
    """
    choose.KERNEL.name_cut_files(speaker, code_cut, code_full)
