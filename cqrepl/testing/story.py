"""The story of a run, in order: for people, and as a hash that tells two runs apart."""

import hashlib
from typing import NamedTuple

import trio


class Happening(NamedTuple):
    """Something happened; `where` is a host, a link or the laboratory itself."""

    seconds: float
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:10.3f} s  {self.where:10}  {self.text}"


End = tuple[str, int]


class Carried(NamedTuple):
    """Bytes that came to the end of a link; none when it ended. Way 0 is that from the dialler."""

    seconds: float
    link: int
    ends: tuple[End, End]
    way: int
    data: bytes


class Story:
    """Entries, the bytes that went over links, and the hash over all of it."""

    def __init__(self) -> None:
        self.entries: list[Happening] = []
        self.carried: list[Carried] = []
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The hash of all that was told so far; equal for equal runs."""
        return self._hash.hexdigest()

    def end(self, text: str) -> None:
        """The run has ended so: told behind all else, and part of the hash."""
        last = self.entries[-1].seconds if self.entries else 0.0
        self.entries.append(Happening(last, "laboratory", text))
        self._hash.update(text.encode())

    def tell(self, where: str, text: str) -> None:
        """Something happened now."""
        entry = Happening(trio.current_time(), where, text)
        self.entries.append(entry)
        self._hash.update(str(entry).encode())

    def carry(self, link: int, ends: tuple[End, End], way: int, data: bytes) -> None:
        """Bytes have come to the end of a link now."""
        now = trio.current_time()
        self.carried.append(Carried(now, link, ends, way, data))
        self._hash.update(f"{now:.9f} {link} {way} {len(data)} ".encode())
        self._hash.update(data)
