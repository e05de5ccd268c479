"""An excerpt while it is being put together: in memory only, until it is appended or dropped."""

from collections.abc import Callable

from cqrepl.queue.format.errors import ExcerptTooLarge


class Draft:
    """The draft that `Appender.writing` hands out: write parts, and keep or roll back the whole."""

    def __init__(self, index_next: int, payload_max: int) -> None:
        self._index_next = index_next
        self._payload_max = payload_max
        self._parts: list[bytes] = []
        self._length = 0
        self.is_rolled_back = False
        self.index: int | None = None  # once it is appended

    def __len__(self) -> int:
        return self._length

    def write(self, part: bytes | bytearray | memoryview) -> None:
        """Adds bytes at the end.

        Raises:
            ExcerptTooLarge: there are too many of them. Nothing was added.
        """
        added = bytes(part)
        length = self._length + len(added)
        if length > self._payload_max:
            raise ExcerptTooLarge(self._index_next, length, self._payload_max)
        self._parts.append(added)
        self._length = length

    def rollback(self) -> None:
        """Drops the excerpt: nothing is appended, and what is written after is dropped too."""
        self.is_rolled_back = True

    def append_with(self, append: Callable[[bytes], int]) -> None:
        """Appends the excerpt, unless it was rolled back."""
        if not self.is_rolled_back:
            self.index = append(b"".join(self._parts))
