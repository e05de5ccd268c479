"""The content of a file, page by page: store files are far longer than what is in them, and most of
a run's power cuts compare them many times."""

import os
from dataclasses import dataclass, field
from typing import Final

PAGE: Final = 4096
_ZEROS: Final = bytes(PAGE)


@dataclass(slots=True)
class Pages:
    """The length of a file, and its pages by number, each of `PAGE` bytes; what is missing is
    zero."""

    size: int = 0
    pages: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, descriptor: int) -> "Pages":
        """A file as it is now, open for reading."""
        size, at = os.fstat(descriptor).st_size, 0
        pages: dict[int, bytes] = {}
        while at < size:
            try:
                start = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError:  # nothing but a hole follows
                break
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            start -= start % PAGE
            data = os.pread(descriptor, at - start, start)
            for position in range(0, len(data), PAGE):
                page = data[position : position + PAGE].ljust(PAGE, b"\0")
                if page != _ZEROS:
                    pages[(start + position) // PAGE] = page
        return cls(size, pages)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Pages":
        """A file as it is now."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return cls.of(descriptor)
        finally:
            os.close(descriptor)

    def page(self, number: int) -> bytes:
        return self.pages.get(number, _ZEROS)

    def put(self, number: int, page: bytes) -> None:
        if page == _ZEROS:
            self.pages.pop(number, None)
        else:
            self.pages[number] = page

    def differing(self, other: "Pages") -> list[int]:
        """The numbers of the pages of this file that are otherwise in another, in order."""
        numbers = sorted(self.pages.keys() | other.pages.keys())
        return [
            number
            for number in numbers
            if (left := self.size - number * PAGE) > 0
            and self.page(number)[:left] != other.page(number)[:left]
        ]
